"""Repairs: what is done to a trained model."""

from ukemi.repairs.retraining import Retrain, retrain

__all__ = ["Retrain", "retrain"]
