"""Repairs: what is done to a trained model."""

from ukemi.repairs.adversarial import fine_tune
from ukemi.repairs.retraining import Retrain, retrain

__all__ = ["Retrain", "fine_tune", "retrain"]
