"""Objectives: how images and labels become a loss."""

from ukemi.objectives.cross_entropy import CrossEntropy, Objective, Outcome

__all__ = ["CrossEntropy", "Objective", "Outcome"]
