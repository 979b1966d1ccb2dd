"""Promises: public names, command-line flags, the order in which rooms may import each other, examples that run."""

import ast
import doctest
import importlib
import pkgutil
import re
import shlex
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from pydantic import BaseModel

import ukemi
from ukemi.augmenters import AUGMENTERS, PRESETS
from ukemi.cli.attack import AttackCommandConfig
from ukemi.cli.augmenters import AugmentersConfig
from ukemi.cli.dare import DareConfig, NullConfig
from ukemi.cli.data import DataConfig
from ukemi.cli.defend import DefendConfig
from ukemi.cli.demo import DemoConfig
from ukemi.cli.enhance import EnhanceConfig
from ukemi.cli.evaluate import EvaluateConfig
from ukemi.cli.generate import GenerateConfig
from ukemi.cli.models import ModelsConfig
from ukemi.cli.parse import parse, parse_train
from ukemi.cli.recipes import RecipesConfig
from ukemi.cli.repair import AdversarialConfig, RetrainConfig
from ukemi.cli.run import RunConfig
from ukemi.cli.search import SearchConfig
from ukemi.cli.selfcheck import SelfcheckConfig
from ukemi.cli.slice import SliceConfig
from ukemi.cli.uncertainty import UncertaintyConfig
from ukemi.comparing import CompareConfig
from ukemi.objectives import OBJECTIVES
from ukemi.training import TrainConfig

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "ukemi"
ORDER = [
    "starting",
    "errors",
    "schema",
    "fused",
    "randomness",
    "ranks",
    "spaces",
    "variations",
    "genetics",
    "data",
    "models",
    "activations",
    "attacks",
    "uncertainty",
    "fitness",
    "augmenters",
    "objectives",
    "measures",
    "training",
    "slicing",
    "defences",
    "repairs",
    "comparing",
    "experiments",
    "reports",
    "recipes",
    "cli",
    "__main__",
]

PUBLIC = [
    "AUGMENTERS",
    "FITNESS",
    "OBJECTIVES",
    "PRESETS",
    "Scored",
    "Augmenter",
    "GRIDS",
    "Gene",
    "Normalize",
    "Random",
    "Robustness",
    "Sensei",
    "Space",
    "Standard",
    "Styx",
    "T2",
    "T3",
    "T6",
    "UserError",
    "WorstOf",
    "named_grid",
    "robust_accuracy",
    "vary",
]

FLAGS = {
    "train": """augmenter autotune average batch-size channels channels-last checkpoint-minutes classes clip compile
        cuda-graphs data data-folder device dropout drops epochs flips genes history history-precision learning-rate
        mean model model-arguments momentum objective optimiser out precision robust-every robust-images schedule
        seed size smoothing space std stream tensorboard validate-every validation weight-decay weights workers""",
    "evaluate": """adversarial-set attack channels classes confidence data data-folder device epsilon epsilons
        fail-under gallery gamma genes grid images junit landscapes levels mean mean-accuracy model model-arguments
        norm others out overshoot restarts run searches seed size space split std step-size steps theta weights""",
    "attack": """attack channels classes confidence data data-folder device epsilon gallery gamma images mean model
        model-arguments norm others out overshoot restarts run searches seed size split std step-size steps theta
        weights""",
    "uncertainty": """against attacked attacks channels classes confidence data data-folder device dropout ensemble
        epsilon fuzzers gallery images keep-fuzzed mean model model-arguments out own-dropout-only passes pcs-thresholds
        profile run seed sets size split std validation-images variants vr-thresholds weights""",
    "generate": """against attacked attacks channels classes climbers confidence data data-folder device dropout edge
        elite ensemble epsilon exchange gallery generations generator goal grains images mean model model-arguments
        mutation out own-dropout-only passes pattern pcs-thresholds population profile run seed size space split std
        tournament validation-images vr-thresholds weights""",
    "compare": """address attack-images attacks baseline cases cost-first cpus-per-run data data-folder decides
        device engine equal-cost gpus-per-run grids images jobs methods models out retries runs seed seeds title
        train""",
    "recipes": "",
    "run": """address cpus-per-run data-folder device engine equal-cost gpus-per-run jobs out recipe retries runs
        seeds size""",
    "search": """channels classes data data-folder device generations genes grid images levels mean methods model
        model-arguments out run seed seeds size space split std weights""",
    "repair retrain": "device epochs out run",
    "repair adversarial": "batch-size clean device epochs learning-rate out run sets",
    "repair dare": """allowed-drop batch-size control-images controls device epochs epsilon learning-rates out p q
        reading run samples select-on twins variant""",
    "repair null": "device kind like out run seed",
    "repair uncertainty": """alpha attacks device epochs epsilon images layers learning-rate out run samples sets
        share transfer variant""",
    "defend": """against attacked attacks channels classes confidence data data-folder defences device dropout ensemble
        epsilon images mean model model-arguments out own-dropout-only passes pcs-thresholds profile run samples seed
        sets size split std validation-images vr-thresholds weights""",
    "selfcheck": """channels classes data data-folder device epsilon images mean model model-arguments out queries
        run seed size split std steps tolerance weights""",
    "slice": """batch-size channels classes contributions data data-folder device mean model model-arguments out
        profile q reading run samples seed size split std theta weights""",
    "demo": "device epochs out seed",
    "data": "folder get",
    "models": "",
    "augmenters": "",
    "standard": "name",
    "random": "name",
    "worst-of": "fitness identity k name when",
    **dict.fromkeys(
        PRESETS,
        """cap coin compete crossing crossover edge first fitness identity invalid keep mutation name parents population
        selection skip skipped threshold warmup warmup-on when""",
    ),
    "styx": "data-ratio masks mutator name pixel-ratio pixels redraw sigma",
    "cross-entropy": "name",
    "consistency": "kind labels-on name statistics stop-clean weight",
    "mixup": "alpha name",
    "manifold-mixup": "alpha layers name",
    "adversarial": "attack epsilon name norm ratio step-size steps",
    "distillation": "name teacher temperature",
    "grouped-mixup": "alpha first layers name partners",
}
SCHEMAS: dict[str, type[BaseModel]] = {
    "train": TrainConfig,
    "evaluate": EvaluateConfig,
    "attack": AttackCommandConfig,
    "uncertainty": UncertaintyConfig,
    "generate": GenerateConfig,
    "compare": CompareConfig,
    "recipes": RecipesConfig,
    "run": RunConfig,
    "search": SearchConfig,
    "repair retrain": RetrainConfig,
    "repair adversarial": AdversarialConfig,
    "repair dare": DareConfig,
    "repair null": NullConfig,
    "repair uncertainty": EnhanceConfig,
    "defend": DefendConfig,
    "selfcheck": SelfcheckConfig,
    "slice": SliceConfig,
    "demo": DemoConfig,
    "data": DataConfig,
    "models": ModelsConfig,
    "augmenters": AugmentersConfig,
    **AUGMENTERS,
    **OBJECTIVES,
}


def test_public_names() -> None:
    assert sorted(ukemi.__all__) == sorted(PUBLIC)
    assert all(hasattr(ukemi, name) for name in PUBLIC)


@pytest.mark.parametrize("command", FLAGS)
def test_flags(command: str) -> None:
    fields = sorted(name.replace("_", "-") for name in SCHEMAS[command].model_fields)
    assert fields == sorted(FLAGS[command].split())


@pytest.mark.parametrize("command", SCHEMAS)
def test_every_flag_is_explained(command: str) -> None:
    fields = SCHEMAS[command].model_fields.items()
    assert all(info.description for name, info in fields if name != "name")


def imports(path: Path) -> set[str]:
    """The rooms that a file imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "ukemi":
            parts = node.module.split(".")
            found |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
    return found


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_rooms_import_only_rooms_before_them(path: Path) -> None:
    room = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    if room == "__init__":
        return
    allowed = ORDER[: ORDER.index(room) + 1]
    assert {name for name in imports(path) if name in ORDER} <= set(allowed)
    assert len(path.read_text().splitlines()) <= 400


def modules() -> list[str]:
    return [info.name for info in pkgutil.walk_packages(ukemi.__path__, "ukemi.")]


@pytest.mark.parametrize("name", modules())
def test_examples_in_docstrings_run(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__doc__
    globs = {**vars(module), "torch": torch, "T3": ukemi.T3, "T6": ukemi.T6}
    assert doctest.testmod(module, globs=globs).failed == 0


def test_the_readmes_python_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert len(blocks) >= 2
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), names)
    assert "found" in names


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.name)
def test_the_docs_python_runs_and_their_links_lead_somewhere(
    page: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # nothing of it stays behind
    text = page.read_text()
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(compile(block, page.name, "exec"), {})
    for link in re.findall(r"\]\(([^)#]+)\)", re.sub(r"```.*?```", "", text, flags=re.DOTALL)):
        assert "://" in link or (page.parent / link).exists(), link


PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
TOML: dict[str, Callable[[Path], object]] = {
    "compare.md": lambda path: parse(CompareConfig, ["--config", str(path)], "compare"),
    "train.md": lambda path: parse_train(["--config", str(path)]),
    "spaces.md": lambda path: parse_train(["--config", str(path)]),
}
"""What reads the TOML of a page; docs/recipes.md has recipes, which tests/recipes reads."""


def commands(page: Path) -> list[list[str]]:
    """The arguments of every `ukemi` and `python -m ukemi` in a page's blocks."""
    found = []
    for language, block in re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE):
        if language not in ("", "sh", "bash"):
            continue
        for line in block.replace("\\\n", " ").splitlines():
            said = re.search(r"(?:^|-m )ukemi (.*)", line)
            if said:
                found.append(shlex.split(said[1], comments=True))
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_pages_commands_are_ones_that_exist(page: Path) -> None:
    for arguments in commands(page):
        plain = [word for word in arguments if word not in ("...", "…")]
        command = " ".join(plain[:2]) if plain[0] == "repair" else plain[0]
        rest = plain[len(command.split()) :]
        rest = rest[: rest.index("--config")] if "--config" in rest else rest
        if "--help" in rest or "--resume" in rest:
            continue
        assert command in SCHEMAS, arguments
        told = parse_train(rest) if command == "train" else parse(SCHEMAS[command], rest, command)  # type: ignore[type-var]
        assert isinstance(told, SCHEMAS[command]), arguments


def test_the_pages_commands_are_found() -> None:
    """Else the test above would pass by finding none."""
    found = {page: commands(page) for page in PAGES}
    assert len(found[ROOT / "README.md"]) >= 6 and sum(map(len, found.values())) >= 40
    assert {"train", "evaluate", "attack", "compare", "run"} <= {one[0] for page in found.values() for one in page}


@pytest.mark.parametrize("page", TOML)
def test_the_docs_toml_is_read(page: str, tmp_path: Path) -> None:
    blocks = re.findall(r"```toml\n(.*?)```", (ROOT / "docs" / page).read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        (tmp_path / "own.toml").write_text(block)
        TOML[page](tmp_path / "own.toml")


def test_versions_agree() -> None:
    assert f'version = "{ukemi.__version__}"' in (ROOT / "pyproject.toml").read_text()
    assert f"## {ukemi.__version__}" in (ROOT / "CHANGELOG.md").read_text()
