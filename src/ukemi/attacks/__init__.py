"""Attacks: what moves pixels until a classifier errs. One function each, `(model, images, labels, …) -> Attacked`."""

from ukemi.attacks.base import Attacked, Norm, Victim, admitted, attacking

__all__ = ["Attacked", "Norm", "Victim", "admitted", "attacking"]
