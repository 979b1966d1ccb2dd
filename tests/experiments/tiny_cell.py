"""A cell of either experiment with the least of everything."""

from pathlib import Path
from typing import Any

from ukemi.cli.main import command
from ukemi.experiments import ExperimentConfig, Place


def placed(experiment: str, data: Path, folder: Path, device: str = "cpu", **cell: Any) -> Place:
    sizes = {
        "dare": {"epochs": 6, "tuning": 20, "choosing": 5, "test": 10, "white-box": 10, "tune-epochs": 1}
        | {"carlini-steps": 5, "carlini-searches": 2, "grids": {"dare": [1e-4], "adversarial": [1e-4]}},
        "uncertainty": {"images": 20, "validation-images": 20, "seeds": 4, "group-images": 12, "samples": 6}
        | {"measured": 12, "epochs": 1, "passes": 4, "population": 4, "generations": 2, "defences": ["bit-depth"]}
        | {"carlini-steps": 5, "carlini-searches": 2},
    }[experiment]
    told = {"name": "tiny", "data": str(data), "model": "demo-cnn", **cell}
    part = {"dare": "share", "uncertainty": "study"}[experiment]
    config = ExperimentConfig(experiment=experiment, part=part, cells=[told], sizes=sizes, out=folder, device=device)
    return config.placed(config.cells[0], 0, command)
