"""Every fitness by its name, and a user's own."""

import inspect
from collections.abc import Callable
from typing import Any

from ukemi.errors import UserError
from ukemi.fitness import pointwise, uncertain
from ukemi.fitness.base import Fitness, Scorer
from ukemi.fitness.coverage import MultisectionCoverage, NeuronCoverage
from ukemi.fitness.surprise import DistanceSurprise, LikelihoodSurprise
from ukemi.schema import imported, reason

FITNESS: dict[str, Callable[[], Scorer]] = {
    "cross-entropy": lambda: pointwise.cross_entropy,
    "margin": lambda: pointwise.margin,
    "kl": lambda: pointwise.divergence,
    "binary-cross-entropy": lambda: pointwise.binary_cross_entropy,
    "misclassified": lambda: pointwise.misclassified_first,
    "neuron-coverage": NeuronCoverage,
    "multisection-coverage": MultisectionCoverage,
    "likelihood-surprise": LikelihoodSurprise,
    "distance-surprise": DistanceSurprise,
    "uncertainty": lambda: uncertain.uncertainty,
    "predictive-entropy": uncertain.PredictiveEntropy,
}
"""What makes each fitness, by the name that configs and the command line use."""


def fitness_of(given: str | Scorer) -> Scorer:
    """The fitness of a name, or of `package.module:name`: a function of `Scored`, a `Fitness`, or a class or function
    that makes one without arguments. A callable is returned as it is; a `Fitness` class is made."""
    if isinstance(given, str):
        if given in FITNESS:
            return FITNESS[given]()
        if ":" in given:
            return _own(given)
        raise UserError(
            f"fitness: {given!r} is not known; known are {', '.join(FITNESS)}, and your own as package.module:name."
        )
    if isinstance(given, type):
        return _made(given, given.__name__)
    if not callable(given):
        raise UserError(f"fitness: a name or a function is expected, but {given!r} was given.")
    return given


def _own(name: str) -> Scorer:
    found = imported(name, "fitness")
    if not callable(found):
        raise UserError(f"fitness: {name!r} should be a function or a Fitness, but it is a {type(found).__name__}.")
    if isinstance(found, type) or (not isinstance(found, Fitness) and _takes_nothing(found)):
        return _made(found, name)
    return found


def _takes_nothing(function: Callable[..., Any]) -> bool:
    """A factory has no parameter that must be given; a fitness has one."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # some callables have no signature; taken as a fitness
        return False
    return all(each.default is not each.empty or each.kind is each.VAR_KEYWORD for each in parameters)


def _made(factory: Callable[[], Any], name: str) -> Scorer:
    try:
        made = factory()
    except Exception as error:  # a user's class fails in any way it likes
        raise UserError(f"fitness: {name!r} made no fitness ({reason(error)}).") from error
    if not callable(made):
        raise UserError(f"fitness: {name!r} should make a function or a Fitness, but it made a {type(made).__name__}.")
    return made
