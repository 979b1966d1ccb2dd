"""`ukemi COMMAND …`: finds the command, runs it, and turns what went wrong into a sentence and an exit code."""

import atexit
import multiprocessing
import os
import sys
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from importlib import import_module

from rich.console import Console

from ukemi import __version__
from ukemi.cli.help import overview
from ukemi.errors import UserError
from ukemi.ranks import Agreed, launched, local_rank, met
from ukemi.starting import stopped_in_a_line
from ukemi.training import Interrupted, TrainingStopped
from ukemi.training.guard import RankLost

COMMANDS = {
    "demo": "break a small network, train it again four ways, and see the difference (three to five minutes)",
    "train": "train a classifier, plainly or against its own worst variations",
    "evaluate": "find where a classifier breaks: table, JSON and a page with pictures",
    "attack": "make the images that fool a classifier: a saved set, a table and a page with the perturbations",
    "uncertainty": "see what a classifier does not know: four patterns, what tells attacked images, calibration",
    "generate": "make inputs of a pattern of uncertainty that nobody tested: a saved set, a table and a page",
    "defend": "see which benign, attacked and generated inputs get past each defence: a table, JSON and a page",
    "compare": "train methods x models x data x seeds and see which is best, by how much, and how sure",
    "recipes": "list the experiments of the papers that can be repeated",
    "run": "repeat an experiment of a paper: ukemi run sensei-exp2 --size small",
    "search": "see how well each method finds an image's worst variant, at equal cost, beside an exhaustive grid",
    "slice": "see which synapses and neurons of a classifier matter to which class",
    "repair": "train a finished run's model further on what fools it",
    "selfcheck": "see whether a robust accuracy can be trusted: the ways in which attacks fail unnoticed, as flags",
    "data": "list data sets: what is there, where it was looked for, how to get it",
    "models": "list networks with their parameter counts",
    "augmenters": "list augmenters with their settings",
}
ON_RANKS = ("train", "evaluate", "attack", "uncertainty", "generate")
GO_ON = ("compare", "run")
"""commands that take up what they left, started again"""
EXIT_BAD_INPUT, EXIT_STOPPED, EXIT_CRASHED, EXIT_INTERRUPTED = 2, 3, 70, 130


def main(arguments: Sequence[str] | None = None) -> None:
    """The entry point. Exit codes: 0; 1, a --fail-under limit was missed or a flag raised; 2, bad input; 3,
    training stopped (a loss that is not finite, no memory left, a rank was lost); 70, a crash; 130, Ctrl-C."""
    # processes that decode images are forked, epoch by epoch, from a server that has imported what they need
    multiprocessing.get_context("forkserver").set_forkserver_preload(["ukemi.data"])
    Console.on_broken_pipe = _unheard  # type: ignore[assignment, method-assign]
    sys.exit(_ended(run(list(sys.argv[1:] if arguments is None else arguments))))


def run(arguments: list[str]) -> int:
    """The exit code of `ukemi arguments…`."""
    if not arguments or arguments[0] in ("-h", "--help"):
        _overview()
        return 0
    if arguments[0] == "--version":
        Console().print(f"ukemi {__version__}", highlight=False)
        return 0
    try:
        return command(arguments)
    except UserError as error:
        return _fail(str(error), EXIT_BAD_INPUT, always=met() and not isinstance(error, Agreed))
    except RankLost as error:
        return _fail(f"stopped: {error}", EXIT_STOPPED, always=True)
    except TrainingStopped as error:
        return _fail(f"training stopped: {error}", EXIT_STOPPED)
    except (Interrupted, KeyboardInterrupt) as error:
        again = "stopped; the same command goes on from here." if arguments[0] in GO_ON else ""
        return _fail(again or str(error) or "stopped.", EXIT_INTERRUPTED)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nothing to flush at exit
        return 0
    except OSError as error:
        return _fail(f"{error.filename or 'a file'}: {error.strerror or error}.", EXIT_BAD_INPUT, always=met())
    except Exception:
        # a fault of ukemi's or of a user's own code: all there is to know, and a code that no gate takes for a limit
        Console(stderr=True).print_exception()
        return _ended(EXIT_CRASHED)


def command(arguments: list[str]) -> int:
    """Runs `ukemi arguments…`; what goes wrong is raised."""
    from ukemi.reports import made_by  # slow to load, and an overview needs none of it

    with made_by(arguments):
        return _command(arguments[0])(arguments[1:])


def _command(name: str) -> Callable[[list[str]], int]:
    if name not in COMMANDS:
        near = get_close_matches(name, COMMANDS, 1)
        meant = f"did you mean {near[0]}?" if near else f"known are {', '.join(COMMANDS)}."
        raise UserError(f"{name!r} is no command of ukemi; {meant}")
    if launched() > 1 and name not in ON_RANKS:
        raise UserError(f"ukemi {name} runs in one process; torchrun may start {', '.join(ON_RANKS)}.")
    with stopped_in_a_line():
        return import_module(f"ukemi.cli.{name}").run


def _ended(code: int) -> int:
    """The code; a rank ends here, without taking down Python or what an error holds: a thread of the process group
    that still has a tensor then aborts a rank whose work is done, and the group itself may wait for ever for a rank
    that is gone."""
    if met():
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


def _unheard(console: Console) -> None:
    """Whoever read our output is gone (ukemi models | head): nothing more is said, and the exit code stays the
    command's own, where rich would end it with 1, which a gate takes for a missed limit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), console.file.fileno())


def _fail(text: str, code: int, always: bool = False) -> int:
    if always or local_rank() == 0:  # else all ranks of a machine say the same
        Console(stderr=True).print(f"ukemi: {text}", highlight=False, markup=False, soft_wrap=True)
    return _ended(code)


def _overview() -> None:
    overview(
        "ukemi finds where an image classifier breaks and trains it until it holds.",
        "ukemi COMMAND [options]",
        COMMANDS,
        "`ukemi COMMAND --help` lists a command's options. Start with `ukemi demo`.",
    )
