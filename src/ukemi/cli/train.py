"""`ukemi train`."""

from pathlib import Path
from shlex import quote

from rich.console import Console

from ukemi import reports
from ukemi.cli.bars import bar
from ukemi.cli.parse import parse_train, pop
from ukemi.errors import UserError
from ukemi.ranks import is_first, launched, restarted
from ukemi.repairs.more import REPAIR, read_about
from ukemi.training import Run, TrainConfig, choose_mutator, train
from ukemi.training.choosing import is_open, write_choice


def run(arguments: list[str]) -> int:
    folder, rest = pop(arguments, "--resume")
    if folder is None:
        config = parse_train(rest)
        if restarted() and (config.folder() / "config.toml").is_file():  # torchrun --max-restarts
            return run(["--resume", str(config.folder())])
        if is_open(config):
            config = _chosen(config)
    else:
        if rest:
            raise UserError(f"resume: a run goes on as it began, so {' '.join(rest)} can't be given beside it.")
        config = Run.config_of(Path(folder))
        _tell_finished(Run(Path(folder)), config)
        arguments = ["--config", str(Path(folder) / "config.toml")]
    finished = train(config, resume=folder is not None)
    if not is_first():
        return 0
    with reports.made_by(["train", *arguments]):
        page = write_page(finished, config)
    last = finished.read_log()[-1]
    console = Console(highlight=False, markup=False, soft_wrap=True)
    if "validation_accuracy" in last:
        console.print(f"validation accuracy {last['validation_accuracy']:.1%}", end="")
        robust = last.get("robust_accuracy")
        console.print("" if robust is None else f", robust accuracy {robust:.1%}")
    console.print(f"run:     {finished.folder}\nweights: {finished.weights_path}\npage:    {page}")
    console.print(f"next:    ukemi evaluate {quote(str(finished.folder))}")
    return 0


def _tell_finished(run: Run, config: TrainConfig) -> None:
    log = run.read_log() if is_first() and run.weights_path.exists() else []  # a killed run's may end in half a line
    if log and log[-1]["epoch"] + 1 >= config.epochs:
        told = f"ukemi: {run.folder} is finished: all {config.epochs} epochs are trained, so nothing is left to do."
        Console(stderr=True).print(told, highlight=False, markup=False, soft_wrap=True)


def _chosen(config: TrainConfig) -> TrainConfig:
    """The config with the mutator that ranks first; the ranking is printed and kept with the run."""
    if launched() > 1:
        raise UserError("augmenter.mutator: auto is chosen on one rank; name the one that it chose there.")
    with bar("mutators", 1) as report:
        choice = choose_mutator(config, report=report)
    write_choice(config.folder(), choice)
    Console(highlight=False, markup=False).print(reports.choice_table(choice))
    return choice.config


def write_page(finished: Run, config: TrainConfig) -> Path:
    path = finished.folder / "training.html"
    settings = config.model_dump(mode="json", exclude_defaults=False)
    if (finished.folder / REPAIR).exists():
        settings["repair"] = {name: said for name, said in read_about(finished).items() if name != "trials"}
    reports.write_training_page(path, f"Training of {finished.folder.name}", finished.read_log(), settings)
    return path
