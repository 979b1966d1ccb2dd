"""The training loop. Read it top to bottom: `train` sets up, `_epoch` is one pass over the data.

Everything random is a function of (seed, epoch, index) and every checkpoint holds all that changes, so a run that is
killed at any moment and resumed ends in the same bits on a CPU as one that was not.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

import torch
from torch import Tensor, nn

from ukemi import fused, measures, randomness
from ukemi.data import Batch, Data
from ukemi.errors import UserError
from ukemi.models.inference import evaluating, home_of, scoring, seconds_per_image
from ukemi.models.repeated import own_stream
from ukemi.objectives import Outcome
from ukemi.randomness import Stream
from ukemi.ranks import Ranks, out_of_memory
from ukemi.training.average import Average
from ukemi.training.capture import Replayed, Stepped
from ukemi.training.checkpoints import write_checkpoint
from ukemi.training.config import TrainConfig
from ukemi.training.display import Display
from ukemi.training.guard import Guard, TrainingStopped, check_weights
from ukemi.training.history import keep, kept_epochs, size_on_disk
from ukemi.training.interrupt import Interrupted, interruptible
from ukemi.training.parallel import (
    check_alike,
    go_on,
    losses_named,
    own_device,
    shared_statistics,
    together_trained,
    wants_gpu,
)
from ukemi.training.run import Run
from ukemi.training.setup import Sets, batches_of_epoch, fixed_subset, laid_out, load_sets, make_model, notes_of
from ukemi.training.spent import BINS, GENES, count_genes, genes_line
from ukemi.training.state import SUMS, State
from ukemi.training.state import resume as take_up
from ukemi.training.state import save as _save
from ukemi.variations import check_kernels


def train(config: TrainConfig, *, resume: bool = False, quiet: bool = False) -> Run:
    """Trains as `config` says, into its run folder; `resume` goes on from the folder's last checkpoint.

    Where torchrun started several processes, all of them call this and train together.
    """
    ranks = Ranks.joined(wants_gpu(config.device))
    try:
        with losses_named(config.folder(), ranks):
            return _train(config, resume, quiet, ranks)
    finally:
        ranks.leave()


def _train(config: TrainConfig, resume: bool, quiet: bool, ranks: Ranks) -> Run:
    with ranks.together():
        device = own_device(config.device, ranks)
        sets = load_sets(config)
    check_alike(config, sets.train, ranks, resume)
    taken_up = resume and Run(config.folder()).has_checkpoint()  # a checkpoint brings weights of its own
    with ranks.together():
        state = _new_state(config, sets.train, device, None if taken_up else config.weights, ranks)
        sets = sets.to(device)
        board = _board(config)
        if not resume:
            _rehearse(config, state, sets.train)
        size = size_on_disk(config, state.model) if config.history and not resume else None
    with ranks.together():
        run = Run(config.folder()) if resume or not ranks.first else Run.start(config)
    display = Display(run.folder, config.epochs, quiet, ranks)
    search = fused.compiled() if config.autotune and device.type == "cuda" else nullcontext()
    with display, interruptible(ranks) as interrupted, own_stream(device), search:
        if resume:
            take_up(run, state, display)
        if size and not quiet:
            display.note(size)
        for note in () if resume or quiet else notes_of(config, state.classes, sets.train):
            display.note(note)
        network, scorer = _compiled(config, state.model)
        state.parallel = together_trained(state.objective, network, ranks)
        log = _writers(board, run) if ranks.first else (lambda line: None)
        captured = config.cuda_graphs and device.type == "cuda" and ranks.alone
        step = Replayed(partial(_step, config, state, network, scorer), config.batch_size, captured, display.note)
        while state.epoch < config.epochs:
            step.forget()
            _epoch(config, run, state, scorer, step, sets.train, display, interrupted)
            line = _end_of_epoch(config, run, state, sets)
            check_weights(state.model, line)
            log(line)
            display.epoch_done(line)
            state.epoch, state.step = state.epoch + 1, 0
            state.clear_sums()
            _save(run, state)
    with state.average.worn(), ranks.together():
        if ranks.first:
            write_checkpoint(run.weights_path, state.model.state_dict(), {"classes": state.classes})
    return run


def rehearse(config: TrainConfig, data: Data) -> None:
    """What a training would refuse before its first step, refused now, on the CPU; nothing is written."""
    _rehearse(config, _new_state(config, data, torch.device("cpu"), config.weights), data)


def _rehearse(config: TrainConfig, state: State, data: Data) -> None:
    home = home_of(state.model)
    check_kernels(data.batch(torch.arange(min(2, len(data))), home).images, config.chosen_space())
    with _precision(config, home) if home.type == config.chosen_device().type else nullcontext():
        state.augmenter.rehearse(state.model, data)
        state.objective.rehearse(state.model, data)


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
    space, device, ranks = config.chosen_space(), home_of(state.model), state.ranks
    order = batches_of_epoch(len(data), config.batch_size, config.seed, state.epoch, data.labels.device)
    saved = monotonic()
    if state.step == 0:
        scored, spared = state.augmenter.forwards, state.augmenter.spared
        with _precision(config, device), state.spent.search(), evaluating(scorer):
            state.augmenter.begin_epoch(scorer, data, state.epoch)
        state.scored += state.augmenter.forwards - scored
        state.spared += state.augmenter.spared - spared
    mine = [ranks.part(positions) for positions in order]
    searches = state.augmenter.plan([data.index[positions] for positions in mine])
    kinds = list(zip(searches, state.objective.plan(config.seed, state.epoch, len(order)), strict=True))
    # a rank without a row of a batch takes part with one that counts for nothing
    held = [rows if len(rows) else whole[:1] for rows, whole in zip(mine, order, strict=True)]
    for batch in state.spent.waited(data.batches(held[state.step :], device)):
        state.augmenter.planned, state.objective.kind = kinds[state.step]
        state.whole, state.absent = len(order[state.step]), not len(mine[state.step])
        state.rate.fill_(_learning_rate(config, state.epoch + state.step / len(order)))
        # dropout and its like draw from the global generators: made a function of (seed, epoch, step)
        torch.manual_seed(randomness.key(config.seed, Stream.STEP, state.epoch, state.step, *ranks.key))
        stepped = step(batch, kinds[state.step])
        state.scored, state.spared = state.scored + stepped.scored, state.spared + stepped.spared
        state.guard.remember(state.epoch, state.step, batch.index, stepped)
        if stepped.logits is not None:
            state.augmenter.observe(batch.index, stepped.logits, batch.labels)
        state.unmerged.append(data.index[order[state.step]])
        state.step, state.spent.images = state.step + 1, state.spent.images + state.whole
        due = bool(config.checkpoint_minutes) and monotonic() - saved > 60 * config.checkpoint_minutes
        stop, due, exhausted = ranks.agree(interrupted.is_set(), due and ranks.first, state.exhausted)
        if exhausted:
            raise TrainingStopped(_exhausted(run, state))
        state.guard.check(space, now=state.step == len(order))
        display.step(state.epoch, state.step, len(order), state.sums)
        if stop:
            state.guard.check(space, now=True)
            _save(run, state)
            raise Interrupted(f"stopped at epoch {state.epoch}, step {state.step}; go on with {run.resuming}")
        if due:
            state.guard.check(space, now=True)
            _save(run, state)
            saved = monotonic()


def _step(config: TrainConfig, state: State, network: nn.Module, scorer: nn.Module, batch: Batch) -> Stepped:
    """Augment, forward, backward, masked update. Nothing in here waits for the device, so it can be captured.

    `network` and `scorer` are the state's model, compiled or not: what is trained and what scores variants.
    """
    state.searched = False
    if state.absent:
        return _take_part(config, state, batch, weight=0.0)
    index, labels, augmenter = batch.index, batch.labels, state.augmenter
    if len(index) != state.ranks.share(config.batch_size):
        network = scorer = state.model  # a last, smaller batch is not worth compiling for
    scored, spared = augmenter.forwards, augmenter.spared
    try:
        images, outcome = _forward(config, state, network, scorer, batch)
    except RuntimeError as error:
        if state.ranks.alone or not out_of_memory(error) or _halfway(state):
            raise
        state.exhausted = True
        return _take_part(config, state, batch, weight=torch.nan)
    _backward(state, state.ranks.mean(outcome.losses, state.whole))
    losses, logits = outcome.losses.detach(), outcome.logits.detach()
    alone = _alone(config, state, network, images) if state.objective.mixes else logits
    _update(config, state, losses)
    _count(state.sums, losses, logits, labels)
    if augmenter.genes is not None:
        state.sums[GENES] += count_genes(augmenter.genes, config.chosen_space())
    return Stepped(losses, augmenter.genes, alone, augmenter.forwards - scored, augmenter.spared - spared)


def _forward(
    config: TrainConfig, state: State, network: nn.Module, scorer: nn.Module, batch: Batch
) -> tuple[Tensor, Outcome]:
    """The images to train on, and what the objective says of them."""
    device, augmenter = batch.images.device, state.augmenter
    index, labels, epoch = batch.index, batch.labels, state.epoch
    with _precision(config, device), state.spent.search():
        images = augmenter(scorer, batch.images, labels, index, epoch)
    state.searched = True
    clean = augmenter.flipped(batch.images, index, epoch) if state.objective.wants_clean else None
    if config.channels_last:
        images = images.contiguous(memory_format=torch.channels_last)
        clean = None if clean is None else clean.contiguous(memory_format=torch.channels_last)
    network.train()
    objective = state.parallel or partial(state.objective, network)
    # a context of its own: weights that were cast for scoring are cast again, with their gradient
    with _precision(config, device):
        return images, objective(images, labels, index, epoch, clean)


def _backward(state: State, loss: Tensor) -> None:
    state.optimiser.zero_grad(set_to_none=True)
    loss.backward()


def _update(config: TrainConfig, state: State, losses: Tensor) -> None:
    """The update, masked where something is not finite."""
    state.guard.mask(losses, [weight.grad for weight in _trained(state) if weight.grad is not None], config.clip)
    state.optimiser.step()
    state.average.move(towards=1.0 if state.epoch == 0 else 1 - config.average)


def _halfway(state: State) -> bool:
    """Whether the others may wait inside of this rank's forward pass, for its part of a layer's statistics."""
    return state.searched and any(isinstance(layer, nn.SyncBatchNorm) for layer in state.model.modules())


def _take_part(config: TrainConfig, state: State, batch: Batch, weight: float) -> Stepped:
    """A rank that has no rows, or no memory for them, still gives the gradient of one row, times 0 or times NaN: the
    others wait for it. NaN is masked like any other, on all ranks."""
    assert state.parallel is not None
    images, labels, index = batch.images[:1], batch.labels[:1], batch.index[:1]
    if not state.searched:  # else it has met the others already
        state.augmenter.absent()
    state.model.train()
    with _precision(config, images.device):
        losses = state.parallel(images, labels, index, state.epoch, images).losses
    _backward(state, losses.sum() * weight)
    _update(config, state, losses.detach() * weight)
    return Stepped(losses[:0].detach(), None, None)


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
    """The epoch's line of the log; every rank measures its share."""
    device, ranks = home_of(state.model), state.ranks
    sums, scored, spared = state.totals()
    loss, right, seen = (float(sums[name]) for name in SUMS)
    line: dict[str, Any] = {"epoch": state.epoch, "loss": loss / seen, "accuracy": right / seen, "images": int(seen)}
    line["learning_rate"] = _learning_rate(config, state.epoch + 1)
    line["scoring_forwards"] = scored
    asynchronous = device.type != "cpu"
    if spared or (scored and asynchronous):
        state.pass_seconds = state.pass_seconds or _seconds_per_image(config, state.model, sets.train)
    if asynchronous:
        state.spent.scoring = (scored - state.spent.scored) * state.pass_seconds / ranks.size
    state.spent.scored = scored
    if spared:
        line["scoring_forwards_saved"] = spared
        line["scoring_seconds_saved"] = round(spared * state.pass_seconds, 3)
    if bool(sums[GENES].any()):
        line[GENES] = genes_line(sums[GENES], config.chosen_space())
    last, began = state.epoch + 1 == config.epochs, monotonic()
    with state.average.worn():
        if sets.validation is not None:
            if last or (state.epoch + 1) % config.validate_every == 0:
                found = measures.accuracy(state.model, sets.validation, device, ranks)
                line["validation_accuracy"], line["validation_loss"] = found
            if config.robust_every and (last or (state.epoch + 1) % config.robust_every == 0):
                few = fixed_subset(sets.validation, config.robust_images, config.seed)
                robust = measures.robustness_of(state.model, few, config.chosen_space(), ranks=ranks)
                line["robust_accuracy"] = robust.robust_accuracy
        state.spent.validation = monotonic() - began
        if ranks.first and state.epoch + 1 in kept_epochs(config):
            line["history_seconds"] = keep(config, run, state.model, state.epoch + 1)
    return line | {**state.spent.taken(), "seconds": round(state.elapsed(), 3)}


def _new_state(
    config: TrainConfig, data: Data, device: torch.device, weights: Path | None, ranks: Ranks | None = None
) -> State:
    ranks = ranks or Ranks()
    config.objective.check((data.channels, *data.size))
    model = make_model(config, data, data.classes, weights).to(device)
    model = shared_statistics(model, config.model, ranks)
    model = laid_out(model, config)
    objective = config.objective.build(config.smoothing)
    objective.attach(model)
    rate = torch.zeros((), device=device)
    optimiser = config.make_optimiser([model, objective.extra()], rate)
    space = config.chosen_space()
    augmenter = config.augmenter.build(space, config.seed, config.flips)
    augmenter.ranks = ranks
    sums = {name: torch.zeros((), dtype=torch.float64, device=device) for name in SUMS}
    sums[GENES] = torch.zeros(len(space), BINS, dtype=torch.float64, device=device)
    guard = Guard(optimiser, device, ranks=ranks)
    average = Average(model, config.average)
    return State(model, optimiser, augmenter, objective, guard, rate, sums, data.classes, average, ranks)


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


def _exhausted(run: Run, state: State) -> str:
    said = state.ranks.texts(str(state.ranks.rank) if state.exhausted else "")
    who = ", ".join(rank for rank in said if rank)
    where = f"rank {who} ran out of memory at epoch {state.epoch}, step {state.step - 1}"
    return f"{where}; a smaller batch-size or more ranks may help; {go_on(run.folder)}"


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
            if name not in ("epoch", GENES):
                writer.add_scalar(name, value, line["epoch"])
        writer.flush()

    return write
