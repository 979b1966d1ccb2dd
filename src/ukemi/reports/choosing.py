"""How STYX's candidates ranked, for the terminal."""

from rich.table import Table

from ukemi.reports import words
from ukemi.reports.terminal import captioned
from ukemi.training.choosing import Choice, Trial


def choice_table(choice: Choice) -> Table:
    """The ranking, the winner first, and the training without mutation last."""
    found = captioned(
        f"{words.plural(choice.images, 'validation image')} after {words.plural(choice.epochs, 'epoch')} each;"
        " under BIM, mean over Linf budgets of 2/255 to 32/255; the first one is trained"
    )
    found.add_column("mutator")
    for name in ("data\nratio", "pixel\nratio", "accuracy\nunder attack", "robustness\n(STYX)", "accuracy"):
        found.add_column(name, justify="right")
    for trial in (*choice.ranking, choice.without):
        found.add_row(*_cells(trial))
    return found


def _cells(trial: Trial) -> list[str]:
    shares = [words.percent(share) for share in (trial.attacked_accuracy, trial.robustness, trial.accuracy)]
    ratios = ["", ""] if trial.mutator == "none" else [f"{trial.data_ratio:g}", f"{trial.pixel_ratio:g}"]
    return [trial.mutator, *ratios, *shares]
