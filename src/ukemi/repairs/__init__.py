"""Repairs: what is done to a trained model."""

from ukemi.repairs.adversarial import fine_tune, fine_tune_grid
from ukemi.repairs.compared import Column, columns_of, lead, verdict
from ukemi.repairs.dare import Dare, Dared, LimitMissed, dare
from ukemi.repairs.gains import Standing, standing_of
from ukemi.repairs.ground import Ground, ground_of
from ukemi.repairs.mining import Mined, mine, mine_at_random
from ukemi.repairs.null import null_control, random_change
from ukemi.repairs.retraining import Retrain, retrain
from ukemi.repairs.tuning import Trial, Tuned, tune
from ukemi.repairs.uncertain import Enhance, Enhanced, enhance

__all__ = [
    "Column",
    "Dare",
    "Dared",
    "Enhance",
    "Enhanced",
    "Ground",
    "LimitMissed",
    "Mined",
    "Retrain",
    "Standing",
    "Trial",
    "Tuned",
    "columns_of",
    "dare",
    "enhance",
    "fine_tune",
    "fine_tune_grid",
    "ground_of",
    "lead",
    "mine",
    "mine_at_random",
    "null_control",
    "random_change",
    "retrain",
    "standing_of",
    "tune",
    "verdict",
]
