"""The built wheel, installed into an empty environment, works from any folder."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True, timeout=200)
    return next(out.glob("*.whl"))


def test_the_wheel_holds_what_is_needed(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    for needed in ("py.typed", "data/fashion_mini.npz", "data/fashion_mini.LICENSE", "cli/main.py"):
        assert f"ukemi/{needed}" in names
    assert not [name for name in names if name.startswith("tests")]
    assert wheel.stat().st_size < 6_000_000


def test_the_installed_wheel_runs(wheel: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(site), str(wheel)]
    subprocess.run(pip, check=True, capture_output=True, timeout=200)
    code = (
        f"import sys; sys.path.insert(0, {str(site)!r}); import ukemi; assert {str(site)!r} in ukemi.__file__;"
        "from ukemi.cli.main import run; sys.exit(run(['train', '--epochs', '1', '--out', 'run', '--device', 'cpu'])"
        " or run(['evaluate', 'run', '--images', '20']))"
    )
    ended = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=250)
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "run" / "evaluation" / "page.html").exists()
