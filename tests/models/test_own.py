"""A user's own network: good files, bad files, hostile files."""

import os
import pickle
import re
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from ukemi.errors import UserError
from ukemi.models import Normalize, load_own

SOURCE = """
import torch
from torch import nn

NUMBER = 3
NET = nn.Linear(3, 3)

def small(classes=4, width=2):
    return nn.Sequential(nn.Flatten(), nn.Linear(12, width), nn.ReLU(), nn.Linear(width, classes))

def late(classes=4):
    import own_helper
    return own_helper.make(classes)

class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(3, 3), nn.Linear(3, 3)
        self.two.weight = self.one.weight

def lazy():
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(2), nn.ReLU(), nn.Linear(2, 4))

def text():
    return "no network"

def exported():
    return torch.export.export(nn.Linear(12, 4), (torch.rand(2, 12),)).module()
"""

HELPER = """
from torch import nn

def make(classes):
    return nn.Linear(3, classes)
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "own_networks.py").write_text(SOURCE)
    (tmp_path / "own_helper.py").write_text(HELPER)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in ("own_networks", "own_helper"):
        sys.modules.pop(name, None)


def small() -> nn.Module:
    return load_own("own_networks:small")


def test_a_factory_in_the_current_directory_and_the_path_is_restored() -> None:
    before = list(sys.path)
    model = load_own("own_networks:small", {"classes": 7})
    assert model(torch.rand(2, 3, 2, 2)).shape == (2, 7)
    assert sys.path == before
    assert isinstance(load_own("own_networks:late"), nn.Linear)
    with pytest.raises(UserError):
        load_own("own_networks:nothing")
    assert sys.path == before


def test_mean_and_std_put_normalize_in_front() -> None:
    model = load_own("own_networks:small", mean=[0.5] * 3, std=[0.25] * 3)
    assert [name for name, _ in model.named_children()] == ["normalize", "network"]
    assert isinstance(model.normalize, Normalize)
    assert not [layer for layer in small().modules() if isinstance(layer, Normalize)]
    with pytest.raises(UserError, match=r"^std: mean and std belong together"):
        load_own("own_networks:small", mean=[0.5] * 3)


@pytest.mark.parametrize("name", ["w.safetensors", "w.pt", "w.pth", "wrapped.pt"])
def test_weights_are_loaded(name: str, here: Path) -> None:
    state = {key: torch.randn_like(value) for key, value in small().state_dict().items()}
    if name.endswith("safetensors"):
        save_file(state, here / name)
    else:
        torch.save({"state_dict": state, "epoch": 3} if name.startswith("wrapped") else state, here / name)
    for mean in (None, [0.5] * 3):
        model = load_own("own_networks:small", {}, here / name, mean, mean)
        loaded = (model if mean is None else model.network).state_dict()  # type: ignore[operator, union-attr]
        assert all(torch.equal(loaded[key], state[key]) for key in state)


def test_a_lazy_layer_takes_the_shapes_of_the_file(here: Path) -> None:
    state = small().state_dict()
    save_file(state, here / "whole.safetensors")
    images = torch.rand(3, 1, 3, 4)
    found = load_own("own_networks:lazy", weights=here / "whole.safetensors", mean=(0.5,), std=(0.5,))(images)
    model = small()
    model.load_state_dict(state)
    assert torch.equal(found, model((images - 0.5) / 0.5))
    save_file({key: value for key, value in state.items() if key != "1.weight"}, here / "less.safetensors")
    with pytest.raises(UserError, match=r"lacks '1\.weight', which the model has"):
        load_own("own_networks:lazy", weights=here / "less.safetensors")


def test_of_tied_tensors_a_file_may_hold_one(here: Path) -> None:
    state = load_own("own_networks:Tied").state_dict()
    del state["two.weight"]
    save_file({key: torch.full_like(value, 2.0) for key, value in state.items()}, here / "tied.safetensors")
    model = load_own("own_networks:Tied", weights=here / "tied.safetensors")
    assert all((value == 2).all() for value in model.state_dict().values())
    del state["two.bias"]
    save_file(state, here / "less.safetensors")
    with pytest.raises(UserError, match=r"lacks 'two\.bias'"):
        load_own("own_networks:Tied", weights=here / "less.safetensors")


@pytest.mark.parametrize(
    ("name", "arguments", "sentence"),
    [
        ("own_networks", {}, "model: 'own_networks' should have the form package.module:name."),
        ("no_such_module:make", {}, "(ModuleNotFoundError: No module named 'no_such_module')."),
        ("own_networks:nothing", {}, "model: module 'own_networks' has no name 'nothing'."),
        ("own_networks:NUMBER", {}, "should be a function or class that makes a network, but it is of type int."),
        ("own_networks:NET", {}, "should be a function or class that makes a network, not one itself."),
        ("own_networks:text", {}, "model: 'own_networks:text' should make a torch.nn.Module, but it made a str."),
        ("own_networks:exported", {}, "made a network that can't be set to evaluation (NotImplementedError"),
        ("own_networks:small", {"depth": 3}, "model: 'own_networks:small' does not take these arguments (got an"),
    ],
)
def test_a_wrong_factory_is_one_sentence(name: str, arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=re.escape(sentence)):
        load_own(name, arguments)


def changed(**changes: torch.Tensor | None) -> dict[str, torch.Tensor]:
    state: dict[str, torch.Tensor | None] = {**small().state_dict()}
    state.update({key.replace("_", "."): value for key, value in changes.items()})
    return {key: value for key, value in state.items() if value is not None}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"1_bias": None}, "lacks '1.bias', which the model has."),
        ({"9_bias": torch.zeros(2)}, "has '9.bias', which the model does not have."),
        ({"3_bias": torch.zeros(5)}, "[5], but the model's [4]."),
    ],
)
@pytest.mark.parametrize("suffix", ["safetensors", "pt"])
def test_a_wrong_state_names_the_first_key(changes: dict[str, Any], words: str, suffix: str, here: Path) -> None:
    path = here / f"wrong.{suffix}"
    (save_file if suffix == "safetensors" else torch.save)(changed(**changes), path)
    with pytest.raises(UserError, match=re.escape(words)):
        load_own("own_networks:small", weights=path)


@pytest.mark.parametrize("content", [b"", b"nonsense", bytes(100), b"PK\x03\x04broken"])
@pytest.mark.parametrize("suffix", ["safetensors", "pt", "pth"])
def test_a_file_that_is_no_such_file(content: bytes, suffix: str, here: Path) -> None:
    path = here / f"broken.{suffix}"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"^weights: .*broken"):
        load_own("own_networks:small", weights=path)


def test_missing_files_and_unknown_endings(here: Path) -> None:
    with pytest.raises(UserError, match="there is no file"):
        load_own("own_networks:small", weights=here / "none.pt")
    with pytest.raises(UserError, match=r"should end in \.safetensors, \.pt, \.pth, \.bin, \.ckpt, \.tar"):
        load_own("own_networks:small", weights=here / "weights.h5")
    (here / "folder.pt").mkdir()
    with pytest.raises(UserError, match="there is no file"):
        load_own("own_networks:small", weights=here / "folder.pt")


def checkpoint(**weights: dict[str, torch.Tensor]) -> dict[str, Any]:
    net = small()
    optimiser = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    net(torch.rand(1, 3, 2, 2)).sum().backward()
    optimiser.step()
    return {"epoch": 3, "best": torch.tensor(0.5), "optimizer": optimiser.state_dict(), **weights}


@pytest.mark.parametrize(
    ("key", "file"),
    [("model", "last.pth"), ("model_state_dict", "last.ckpt"), ("net", "best.pth.tar"), ("ema", "w.bin")],
)
def test_of_a_checkpoint_the_only_state_dictionary_is_taken(key: str, file: str, here: Path) -> None:
    state = {name: torch.randn_like(value) for name, value in small().state_dict().items()}
    torch.save(checkpoint(**{key: state}), here / file)
    loaded = load_own("own_networks:small", weights=here / file).state_dict()
    assert all(torch.equal(loaded[name], state[name]) for name in state)


def test_of_two_state_dictionaries_none_is_guessed(here: Path) -> None:
    torch.save(checkpoint(model=small().state_dict(), ema=small().state_dict()), here / "two.pt")
    with pytest.raises(UserError, match=r"holds several state dictionaries, 'model', 'ema': save the one"):
        load_own("own_networks:small", weights=here / "two.pt")


@pytest.mark.parametrize("values", [[1, 2], {"epoch": 3}, torch.zeros(3), {"state_dict": [1]}])
def test_a_pickle_without_a_state_dictionary(values: Any, here: Path) -> None:
    torch.save(values, here / "values.pt")
    with pytest.raises(UserError, match=r"should hold a state dictionary of tensors: save model\.state_dict\(\)\.$"):
        load_own("own_networks:small", weights=here / "values.pt")


class Hostile:
    """Makes a folder when it is unpickled."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, ("owned",)


@pytest.mark.parametrize("writer", [torch.save, lambda value, path: path.write_bytes(pickle.dumps(value))])
def test_a_hostile_pickle_is_refused_and_not_run(writer: Any, here: Path) -> None:
    writer({"1.weight": Hostile()}, here / "hostile.pt")
    with pytest.raises(UserError, match="nothing else is unpickled"):
        load_own("own_networks:small", weights=here / "hostile.pt")
    assert not (here / "owned").exists()


def test_a_whole_pickled_model_is_refused(here: Path) -> None:
    torch.save(nn.Sequential(nn.Linear(2, 2)), here / "whole.pt")
    with pytest.raises(UserError, match=r"save model\.state_dict\(\)"):
        load_own("own_networks:small", weights=here / "whole.pt")


def test_a_scripted_model_is_refused_without_a_warning(here: Path) -> None:
    with warnings.catch_warnings(action="ignore"):
        torch.jit.trace(nn.Linear(2, 2), torch.rand(1, 2)).save(here / "scripted.pt")
    with (
        warnings.catch_warnings(record=True, action="always") as told,
        pytest.raises(UserError, match=r"save model\.state_dict\(\)"),
    ):
        load_own("own_networks:small", weights=here / "scripted.pt")
    assert not told


def test_weights_of_the_network_alone_or_behind_its_normalisation(here: Path) -> None:
    image = torch.rand(2, 3, 2, 2)
    torch.save(small().state_dict(), "alone.pt")
    alone = load_own("own_networks:small", None, Path("alone.pt"), [0.5] * 3, [0.2] * 3)
    save_file(alone.state_dict(), "both.safetensors")
    both = load_own("own_networks:small", None, Path("both.safetensors"), [0.5] * 3, [0.2] * 3)
    assert torch.equal(alone(image), both(image))


@pytest.mark.parametrize("around", ["module", "_orig_mod", "net", "model.backbone"])
def test_weights_from_behind_a_wrapper_say_how_to_save_them(around: str, here: Path) -> None:
    inside = {f"{around}.{name}": value for name, value in small().state_dict().items()}
    torch.save({**inside, "metric.total": torch.zeros(1)}, "wrapped.pt")
    with pytest.raises(UserError, match=rf"has '{around}\.1\.weight', .*; save model\.{around}\.state_dict\(\)"):
        load_own("own_networks:small", None, Path("wrapped.pt"))


@pytest.mark.parametrize(
    ("mean", "said"), [(102, r"102 was given \(of pixels in 0 to 255 it is 102/255"), (-1, "-1 was")]
)
def test_a_mean_that_no_pixels_have(mean: float, said: str) -> None:
    with pytest.raises(UserError, match=f"mean: pixels lie in .0, 1., and so does their mean, but {said}"):
        load_own("own_networks:small", None, None, [mean] * 3, [51] * 3)
