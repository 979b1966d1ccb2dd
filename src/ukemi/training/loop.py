"""The training loop. Read it top to bottom: `train` sets up, `_epoch` is one pass over the data.

Everything random is a function of (seed, epoch, index) and every checkpoint holds all that changes, so a run that is
killed at any moment and resumed ends in the same bits on a CPU as one that was not.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

import torch
from torch import Tensor, nn

from ukemi import measures, randomness
from ukemi.augmenters import Augmenter
from ukemi.data import Batch, Data
from ukemi.errors import UserError
from ukemi.models.inference import home_of, scoring, seconds_per_image
from ukemi.objectives import Objective
from ukemi.randomness import Stream
from ukemi.training.average import Average
from ukemi.training.capture import Replayed, Stepped, own_stream
from ukemi.training.checkpoints import checkpoint_path, forget_old, write_checkpoint
from ukemi.training.config import TrainConfig
from ukemi.training.display import Display
from ukemi.training.guard import Guard, TrainingStopped
from ukemi.training.history import keep, kept_epochs, size_on_disk
from ukemi.training.run import Run
from ukemi.training.setup import Sets, batches_of_epoch, fixed_subset, load_model, load_sets, make_model

SUMS = ("loss", "right", "seen")


class Interrupted(Exception):
    """Ctrl-C: the run ended cleanly at a checkpoint. The CLI exits with 130."""


@dataclass
class State:
    """All that changes while training."""

    model: nn.Module
    optimiser: torch.optim.Optimizer
    augmenter: Augmenter
    objective: Objective
    guard: Guard
    rate: Tensor
    """the learning rate, where the optimiser reads it on the device"""
    sums: dict[str, Tensor]
    """loss, right answers and images of the epoch so far, float64 on the device"""
    classes: tuple[str, ...]
    """the names of the labels; they belong to the weights"""
    average: Average
    epoch: int = 0
    step: int = 0
    """the next step of this epoch"""
    scored: int = 0
    """scoring passes so far, counted in images"""
    spared: int = 0
    """scoring passes that skipping robust samples saved so far"""
    pass_seconds: float = 0.0
    """what a scoring pass takes per image; timed once, where skipping saves some"""
    seconds: float = 0.0
    clock: float = field(default_factory=monotonic)

    def elapsed(self) -> float:
        return self.seconds + monotonic() - self.clock


def train(config: TrainConfig, *, resume: bool = False, quiet: bool = False) -> Run:
    """Trains as `config` says, into its run folder; `resume` goes on from the folder's last checkpoint."""
    device = config.chosen_device()
    sets = load_sets(config)
    state = _new_state(config, sets.train, device, None if resume else config.weights)
    sets = sets.to(device)
    board = _board(config)
    if not resume:
        state.augmenter.rehearse(state.model, sets.train)
    size = size_on_disk(config, state.model) if config.history and not resume else None
    run = Run(config.folder()) if resume else Run.start(config)
    with Display(run.folder, config.epochs, quiet) as display, _interruptible() as interrupted, own_stream(device):
        if resume:
            _resume(run, state, display)
        if size and not quiet:
            display.note(size)
        network, scorer = _compiled(config, state.model)
        log = _writers(board, run)
        captured = config.cuda_graphs and device.type == "cuda"
        step = Replayed(partial(_step, config, state, network, scorer), config.batch_size, captured, display.note)
        while state.epoch < config.epochs:
            step.forget()
            _epoch(config, run, state, scorer, step, sets.train, display, interrupted)
            line = _end_of_epoch(config, run, state, sets)
            log(line)
            display.epoch_done(line)
            state.epoch, state.step = state.epoch + 1, 0
            _clear(state.sums)
            _save(run, state)
    with state.average.worn():
        write_checkpoint(run.weights_path, state.model.state_dict(), {"classes": state.classes})
    return run


def _epoch(
    config: TrainConfig,
    run: Run,
    state: State,
    scorer: nn.Module,
    step: Replayed,
    data: Data,
    display: Display,
    interrupted: threading.Event,
) -> None:
    """One pass over the data, from the state's step on."""
    space, device = config.chosen_space(), home_of(state.model)
    order = batches_of_epoch(len(data), config.batch_size, config.seed, state.epoch, data.labels.device)
    saved = monotonic()
    if state.step == 0:
        scored, spared = state.augmenter.forwards, state.augmenter.spared
        with _precision(config, device):
            state.augmenter.begin_epoch(scorer, data, state.epoch)
        state.scored += state.augmenter.forwards - scored
        state.spared += state.augmenter.spared - spared
    searches = state.augmenter.plan([data.index[positions] for positions in order])
    kinds = list(zip(searches, state.objective.plan(config.seed, state.epoch, len(order)), strict=True))
    for batch in data.batches(order[state.step :], device):
        state.augmenter.planned, state.objective.kind = kinds[state.step]
        state.rate.fill_(_learning_rate(config, state.epoch + state.step / len(order)))
        # dropout and its like draw from the global generators: made a function of (seed, epoch, step)
        torch.manual_seed(randomness.key(config.seed, Stream.STEP, state.epoch, state.step))
        stepped = step(batch, kinds[state.step])
        state.scored, state.spared = state.scored + stepped.scored, state.spared + stepped.spared
        state.guard.remember(state.epoch, state.step, batch.index, stepped)
        if stepped.logits is not None:
            state.augmenter.observe(batch.index, stepped.logits, batch.labels)
        state.step += 1
        state.guard.check(space, now=state.step == len(order))
        display.step(state.epoch, state.step, len(order), state.sums)
        if interrupted.is_set():
            state.guard.check(space, now=True)
            _save(run, state)
            raise Interrupted(f"stopped at epoch {state.epoch}, step {state.step}; go on with --resume {run.folder}")
        if config.checkpoint_minutes and monotonic() - saved > 60 * config.checkpoint_minutes:
            state.guard.check(space, now=True)
            _save(run, state)
            saved = monotonic()


def _step(config: TrainConfig, state: State, network: nn.Module, scorer: nn.Module, batch: Batch) -> Stepped:
    """Augment, forward, backward, masked update. Nothing in here waits for the device, so it can be captured.

    `network` and `scorer` are the state's model, compiled or not: what is trained and what scores variants.
    """
    device, augmenter = batch.images.device, state.augmenter
    index, labels, epoch = batch.index, batch.labels, state.epoch
    if len(index) != config.batch_size:
        network = scorer = state.model  # a last, smaller batch is not worth compiling for
    scored, spared = augmenter.forwards, augmenter.spared
    with _precision(config, device):
        images = augmenter(scorer, batch.images, labels, index, epoch)
    clean = augmenter.flipped(batch.images, index, epoch) if state.objective.wants_clean else None
    if config.channels_last:
        images = images.contiguous(memory_format=torch.channels_last)
        clean = None if clean is None else clean.contiguous(memory_format=torch.channels_last)
    network.train()
    # a context of its own: weights that were cast for scoring are cast again, with their gradient
    with _precision(config, device):
        outcome = state.objective(network, images, labels, index, epoch, clean)
    state.optimiser.zero_grad(set_to_none=True)
    outcome.losses.mean().backward()
    losses, logits = outcome.losses.detach(), outcome.logits.detach()
    alone = _alone(config, state, network, images) if state.objective.mixes else logits
    state.guard.mask(losses, [weight.grad for weight in _trained(state) if weight.grad is not None])
    state.optimiser.step()
    state.average.move(towards=1.0 if epoch == 0 else 1 - config.average)
    _count(state.sums, losses, logits, labels)
    return Stepped(losses, augmenter.genes, alone, augmenter.forwards - scored, augmenter.spared - spared)


def _alone(config: TrainConfig, state: State, network: nn.Module, images: Tensor) -> Tensor | None:
    """What the images get unmixed: one scoring pass, where the augmenter wants to observe it."""
    if not state.augmenter.observes:
        return None
    state.augmenter.forwards += len(images)
    state.augmenter.spared -= len(images)
    with scoring(network, images.device), _precision(config, images.device):
        logits = network(images)
    return logits.clone()


def _end_of_epoch(config: TrainConfig, run: Run, state: State, sets: Sets) -> dict[str, Any]:
    """The epoch's line of the log."""
    device = home_of(state.model)
    loss, right, seen = (float(state.sums[name]) for name in SUMS)
    line: dict[str, Any] = {"epoch": state.epoch, "loss": loss / seen, "accuracy": right / seen, "images": int(seen)}
    line["learning_rate"] = _learning_rate(config, state.epoch + 1)
    line["scoring_forwards"] = state.scored
    if state.spared:
        line["scoring_forwards_saved"] = state.spared
        state.pass_seconds = state.pass_seconds or _seconds_per_image(config, state.model, sets.train)
        line["scoring_seconds_saved"] = round(state.spared * state.pass_seconds, 3)
    last = state.epoch + 1 == config.epochs
    with state.average.worn():
        if sets.validation is not None:
            if last or (state.epoch + 1) % config.validate_every == 0:
                found = measures.accuracy(state.model, sets.validation, device)
                line["validation_accuracy"], line["validation_loss"] = found
            if config.robust_every and (last or (state.epoch + 1) % config.robust_every == 0):
                few = fixed_subset(sets.validation, config.robust_images, config.seed)
                robust = measures.robustness_of(state.model, few, config.chosen_space())
                line["robust_accuracy"] = robust.robust_accuracy
        if state.epoch + 1 in kept_epochs(config):
            line["history_seconds"] = keep(config, run, state.model, state.epoch + 1)
    line["seconds"] = round(state.elapsed(), 3)
    return line


def _new_state(config: TrainConfig, data: Data, device: torch.device, weights: Path | None) -> State:
    model = make_model(config, data, data.classes, weights).to(device)
    if config.channels_last:
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    objective = config.objective.build(config.smoothing)
    objective.attach(model)
    rate = torch.zeros((), device=device)
    optimiser = config.make_optimiser([model, objective.extra()], rate)
    augmenter = config.augmenter.build(config.chosen_space(), config.seed, config.flips)
    sums = {name: torch.zeros((), dtype=torch.float64, device=device) for name in SUMS}
    guard = Guard(optimiser, device)
    return State(
        model, optimiser, augmenter, objective, guard, rate, sums, data.classes, Average(model, config.average)
    )


def _seconds_per_image(config: TrainConfig, model: nn.Module, data: Data) -> float:
    few = data.batch(torch.arange(min(config.batch_size, len(data))), home_of(model)).images
    with _precision(config, few.device):
        return seconds_per_image(model, few)


def _trained(state: State) -> Iterator[nn.Parameter]:
    """All parameters that the optimiser may change."""
    return (weight for group in state.optimiser.param_groups for weight in group["params"])


def _learning_rate(config: TrainConfig, epochs: float) -> float:
    """The rate after this many epochs, counted with their fraction."""
    return config.learning_rate * config.make_schedule()(epochs / config.epochs)


def _count(sums: dict[str, Tensor], losses: Tensor, logits: Tensor, labels: Tensor) -> None:
    sums["loss"] += losses.double().sum()
    sums["right"] += (logits.argmax(1) == labels).sum()
    sums["seen"] += len(labels)


def _clear(sums: dict[str, Tensor]) -> None:
    for total in sums.values():
        total.zero_()


def _save(run: Run, state: State) -> None:
    tensors = {f"model.{name}": tensor for name, tensor in state.model.state_dict().items()}
    for number, kept in state.optimiser.state_dict()["state"].items():
        tensors |= {f"optimiser.{number}.{name}": value for name, value in kept.items() if value is not None}
    tensors |= {f"augmenter.{name}": tensor for name, tensor in state.augmenter.state_dict().items()}
    tensors |= {f"sums.{name}": tensor for name, tensor in state.sums.items()}
    tensors |= {f"average.{name}": tensor for name, tensor in state.average.tensors.items()}
    extra = state.objective.extra()
    tensors |= {} if extra is None else {f"objective.{name}": tensor for name, tensor in extra.state_dict().items()}
    kept = [tensor for name, tensor in tensors.items() if name.startswith(("model.", "objective."))]
    if not all(bool(tensor.isfinite().all()) for tensor in kept):
        raise TrainingStopped(f"the weights after epoch {state.epoch}, step {state.step} are not finite; not saved.")
    values: dict[str, Any] = {"epoch": state.epoch, "step": state.step, "classes": state.classes}
    values |= {"log_bytes": run.log_length(), "seconds": state.elapsed(), "scoring_forwards": state.scored}
    values |= {"scoring_forwards_saved": state.spared}
    write_checkpoint(checkpoint_path(run.checkpoints, state.epoch, state.step), tensors, values)
    forget_old(run.checkpoints)


def _resume(run: Run, state: State, display: Display) -> None:
    """Takes up the newest whole checkpoint; where there is none yet, the run starts anew."""
    checkpoint, refused = run.last_checkpoint()
    for _, sentence in refused:
        display.note(f"{sentence} The one before it is used.")
    if checkpoint is None:
        if refused:
            raise UserError(f"resume: {run.folder} holds no whole checkpoint: {refused[-1][1]}")
        if run.weights_path.exists():  # a repair wrote them, or the checkpoints were cleared away
            raise UserError(f"resume: {run.folder} holds weights, but no checkpoint to go on from.")
        run.cut_log(0)
        return
    load_model(state.model, checkpoint, run.checkpoints)
    _load_optimiser(state.optimiser, checkpoint.part("optimiser"))
    device = home_of(state.model)
    state.augmenter.load_state_dict({name: tensor.to(device) for name, tensor in checkpoint.part("augmenter").items()})
    for name, tensor in checkpoint.part("sums").items():
        state.sums[name].copy_(tensor)
    for name, tensor in checkpoint.part("average").items():
        state.average.tensors[name].copy_(tensor)
    extra = state.objective.extra()
    if extra is not None:
        extra.load_state_dict(checkpoint.part("objective"))
    state.epoch, state.step = checkpoint.values["epoch"], checkpoint.values["step"]
    state.seconds, state.clock = checkpoint.values["seconds"], monotonic()
    state.scored = checkpoint.values["scoring_forwards"]
    state.spared = checkpoint.values.get("scoring_forwards_saved", 0)
    run.cut_log(checkpoint.values["log_bytes"])
    for path, _ in refused:  # out of the way of the last two that are kept
        path.rename(path.with_suffix(".damaged"))


def _load_optimiser(optimiser: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    stored: dict[int, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        number, name = key.split(".", 1)
        stored.setdefault(int(number), {})[name] = tensor
    groups = optimiser.state_dict()["param_groups"]
    rates = [group["lr"] for group in optimiser.param_groups]
    optimiser.load_state_dict({"state": stored, "param_groups": groups})
    for group, rate in zip(optimiser.param_groups, rates, strict=True):
        group["lr"] = rate  # the very tensor, not the copy that loading makes


def _precision(config: TrainConfig, device: torch.device) -> AbstractContextManager[Any]:
    return torch.autocast(device.type, torch.bfloat16, enabled=config.precision == "bfloat16")


def _compiled(config: TrainConfig, model: nn.Module) -> tuple[nn.Module, nn.Module]:
    """The network to train and the one that scores: the same weights."""
    if not config.compile:
        return model, model
    torch.compiler.reset()  # what earlier trainings compiled counts towards a limit, behind which nothing is compiled
    network: nn.Module = torch.compile(model)  # type: ignore[assignment]
    if not config.autotune or home_of(model).type != "cuda":
        return network, network
    from torch._inductor import select_algorithm  # slow to load

    select_algorithm.PRINT_AUTOTUNE = False  # hundreds of lines
    return network, torch.compile(model, mode="max-autotune-no-cudagraphs")  # type: ignore[return-value]


def _board(config: TrainConfig) -> type[Any] | None:
    """TensorBoard's writer where it is asked for; looked for before anything is written."""
    if not config.tensorboard:
        return None
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise UserError("tensorboard: it is not installed; pip install ukemi[tensorboard].") from None
    return SummaryWriter


def _writers(board: type[Any] | None, run: Run) -> Callable[[dict[str, Any]], None]:
    """Writes an epoch's line to the log, and to TensorBoard where that is asked for."""
    if board is None:
        return run.write_log
    writer = board(run.folder / "tensorboard")

    def write(line: dict[str, Any]) -> None:
        run.write_log(line)
        for name, value in line.items():
            if name != "epoch":
                writer.add_scalar(name, value, line["epoch"])
        writer.flush()

    return write


@contextmanager
def _interruptible() -> Iterator[threading.Event]:
    """The first Ctrl-C asks for an end at the next step; the second ends at once."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return
    before = signal.getsignal(signal.SIGINT)

    def ask(*_: object) -> None:
        asked.set()
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, ask)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, before)
