"""What the tests of commands work on."""

import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """An image folder: two classes, 24 grey images of 16 x 16 each."""
    generator = np.random.default_rng(0)
    for name, level in (("dark", 40), ("light", 180)):
        for part, count in (("train", 24), ("test", 8)):
            folder = tmp_path / "pictures" / part / name
            folder.mkdir(parents=True)
            for at in range(count):
                pixels = (level + generator.integers(0, 40, (16, 16))).astype(np.uint8)
                Image.fromarray(pixels).save(folder / f"{at}.png")
    return tmp_path / "pictures"
