"""A small training as a command line."""

from pathlib import Path


def small(images: Path, *more: str) -> list[str]:
    flags = ["train", "--data", str(images), "--epochs", "2", "--batch-size", "16", "--device", "cpu"]
    return [*flags, "--learning-rate", "1/50", *more]
