"""Stochastic passes: keyed masks beside a slow reference, cut networks beside whole ones, nothing else disturbed."""

from copy import deepcopy

import pytest
import torch
from branching_net import Branching, images
from torch import Tensor, nn

from ukemi import UserError, randomness
from ukemi.models import MODELS, create
from ukemi.randomness import Stream
from ukemi.uncertainty import (
    DropoutPasses,
    Ensemble,
    dropouts_of,
    insert_dropout,
    measured,
    with_dropout,
)
from ukemi.uncertainty.dropout import Masks, masked
from ukemi.uncertainty.splitting import Cut


def test_a_compiled_network_is_asked_as_it_was_before() -> None:
    net = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(16, 4)).eval()
    images, index = torch.rand(3, 1, 4, 4), torch.arange(3)
    compiled = torch.compile(net, backend="eager")
    compiled(images)  # from here on it looks for no new hooks
    for split in (True, False):
        found = DropoutPasses(compiled, 4, split=split)(images, index)  # type: ignore[arg-type]
        assert torch.allclose(found.drawn, DropoutPasses(net, 4)(images, index).drawn)


def test_masks_are_the_keyed_numbers_one_by_one() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Dropout(0.3), nn.Linear(4, 2, bias=False)).double()
    x, index = images(3, 1, 2), torch.tensor([5, 0, 9])
    found = DropoutPasses(model, 4, seed=8)(x, index, turn=6).drawn
    for n in range(3):
        for t in range(4):
            u = randomness.uniform(index[n : n + 1], 4, 4, seed=randomness.key(8, 6), stream=Stream.DROPOUT, epoch=0)[
                0, t
            ]
            kept = torch.tensor([x[n].flatten()[i] / 0.7 if float(u[i]) >= 0.3 else 0.0 for i in range(4)])
            wanted = (model[2].weight @ kept.double()).softmax(0)
            assert torch.allclose(found[t, n], wanted, atol=1e-12)


def test_every_dropout_has_masks_of_its_own() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Dropout(0.0), nn.Dropout(0.5), nn.Linear(9, 2)).double()
    x, index = images(2, 1, 3), torch.arange(2)
    found = DropoutPasses(model, 3, seed=4)(x, index).drawn
    key = {"seed": randomness.key(4, 0), "stream": Stream.DROPOUT}
    first, second = (randomness.uniform(index, 3, 9, epoch=layer, **key) >= 0.5 for layer in (0, 1))  # type: ignore[arg-type]
    wanted = model[4](4 * (first & second) * x.flatten(1)[:, None]).softmax(2)
    assert torch.allclose(found, wanted.transpose(0, 1), atol=1e-12) and not torch.equal(first, second)


@pytest.mark.parametrize("kind", [nn.Dropout1d, nn.Dropout2d])
def test_dropout_of_maps_drops_whole_maps(kind: type[nn.Module]) -> None:
    model = nn.Sequential(nn.Flatten(2) if kind is nn.Dropout1d else nn.Identity(), kind(0.5), nn.Flatten()).double()
    x = images(3, 6, 2) + 0.1
    with masked(model, Masks(torch.arange(3), 1, 0, 1, 0, 0)):
        kept = (model.eval()(x).view_as(x) / x).flatten(2)
    assert set(kept.round(decimals=9).unique().tolist()) == {0.0, 2.0} and (kept == kept[..., :1]).all()


def test_a_value_depends_on_neither_batch_nor_order_nor_shape_of_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x, index = Branching().double(), images(40), torch.arange(100, 140)
    source = DropoutPasses(model, 6, seed=1)
    whole = source(x, index)
    order = torch.randperm(40)
    moved = source(x[order], index[order])
    assert torch.allclose(moved.drawn, whole.drawn[:, order], atol=1e-12)
    assert torch.allclose(source(x[7:8], index[7:8]).drawn, whole.drawn[:, 7:8], atol=1e-12)
    monkeypatch.setattr("ukemi.uncertainty.passes.rows_per_pass", lambda shape, device: 8)
    assert torch.allclose(source(x, index).drawn, whole.drawn, atol=1e-12)


def test_rows_that_share_an_index_share_their_masks() -> None:
    model, x, index = Branching().double(), images(3), torch.tensor([4, 7, 2])
    source = DropoutPasses(model, 5)
    shared = source(x.repeat_interleave(4, 0), index, shared=4)
    alone = source(x, index)
    assert torch.allclose(shared.drawn, alone.drawn.repeat_interleave(4, 1), atol=1e-12)


def test_seed_turn_and_index_all_change_the_masks() -> None:
    model, x, index = Branching().double(), images(2), torch.arange(2)
    base = DropoutPasses(model, 4)(x, index).drawn
    others = [
        DropoutPasses(model, 4, seed=1)(x, index),
        DropoutPasses(model, 4)(x, index, turn=1),
        DropoutPasses(model, 4)(x, index + 2),
    ]
    assert all(not torch.allclose(other.drawn, base) for other in others)


def test_dropout_on_average_changes_nothing_in_front_of_a_linear() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(9, 3)).double()
    x = images(1, 1, 3)
    logits = DropoutPasses(model, 4000)(x, torch.arange(1)).drawn.log()
    gaps = (logits[..., 0] - logits[..., 1]).mean()
    with torch.no_grad():
        model.eval()
        certain = model(x)[0]
    assert float(gaps) == pytest.approx(float(certain[0] - certain[1]), abs=0.05)


def test_the_model_and_the_global_random_state_stay_as_they_are(tiny_net: nn.Module) -> None:
    tiny_net.train()
    x = torch.rand(4, 1, 28, 28)
    before, state = deepcopy(tiny_net.state_dict()), torch.get_rng_state()
    DropoutPasses(tiny_net, 3)(x, torch.arange(4))
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(before[name], tensor) for name, tensor in tiny_net.state_dict().items())
    assert all(module.training for module in tiny_net.modules())
    assert not any(module._forward_hooks for module in tiny_net.modules())


class Late(nn.Module):
    """Layers that stand behind the head: one that runs before it, one that runs after it for its own sake."""

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.head, self.gate, self.aside, self.scale = nn.Linear(81, 3), nn.Linear(81, 81), nn.Linear(3, 3), scale

    def forward(self, x: Tensor) -> Tensor:
        answer = self.head(x.flatten(1) * self.gate(x.flatten(1)).sigmoid())
        if self.scale == 1:
            self.side = self.aside(answer)
        return answer * self.scale


def placed(model: nn.Module) -> list[str]:
    return [name for name, module in model.named_modules() if isinstance(module, nn.Dropout)]


def test_images_show_which_layer_gives_the_logits() -> None:
    few = images(3).float()
    assert placed(insert_dropout(Aside(), 0.5, few)) == ["head.inserted_dropout"]
    assert placed(insert_dropout(Late(), 0.5, few)) == ["head.inserted_dropout"]
    assert placed(insert_dropout(Late(scale=2.0), 0.5, few)) == ["head.inserted_dropout"]  # the last that runs
    found = DropoutPasses(with_dropout(Aside(), 0.5, few), 8)(few, torch.arange(3))
    assert float(found.drawn.std(0).max()) > 1e-4
    model = Late().train()
    assert insert_dropout(model, 0.5, few).training and model.training and not hasattr(model, "side")


@pytest.mark.parametrize("name", MODELS)
def test_the_classifier_of_every_network_of_ours_is_the_last_that_it_holds(name: str) -> None:
    size = (32, 32)
    model = create(name, classes=10, channels=3, size=size)
    assert placed(insert_dropout(model, 0.5, torch.rand(2, 3, *size))) == placed(insert_dropout(model, 0.5))


def test_a_rate_of_zero_gives_equal_passes() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Dropout(0.0), nn.Linear(81, 3)).double()
    found = measured(DropoutPasses(model, 5)(images(6), torch.arange(6)))
    assert (found.vr == 0).all() and float(found.mi.max()) < 1e-12


def test_inserted_dropout_leaves_weights_and_answers_as_they_are() -> None:
    model = create("demo-cnn", classes=10, channels=1, size=(28, 28)).double().eval()
    assert not dropouts_of(model)
    changed = insert_dropout(model, 0.25)
    x = images(3, 1, 28)
    assert changed.state_dict().keys() == model.state_dict().keys()
    assert torch.equal(changed(x), model(x)) and not dropouts_of(model)
    assert not torch.allclose(changed.train()(x.repeat(2, 1, 1, 1))[:3], changed(x.repeat(2, 1, 1, 1))[:3])
    (dropout,) = dropouts_of(changed)
    assert dropout.p == 0.25
    spread = DropoutPasses(changed.eval(), 8)(x, torch.arange(3)).drawn.std(0)
    assert float(spread.max()) > 1e-4
    assert with_dropout(changed, 0.5) is changed


def test_an_ensemble_gives_its_members_answers() -> None:
    members = [nn.Sequential(nn.Flatten(), nn.Linear(81, 3)).double() for _ in range(3)]
    x = images(5)
    found = Ensemble(members)(x, torch.arange(5))
    wanted = torch.stack([member(x).softmax(1) for member in members])
    # logits are kept in float32
    assert torch.allclose(found.drawn.double(), wanted, atol=1e-6)
    assert torch.allclose(found.certain.double(), wanted[0], atol=1e-6)
    assert Ensemble(nn.ModuleList(members)).models == tuple(members)
    with pytest.raises(UserError, match=r"ensemble: its models give different numbers of logits: \[3, 4\]"):
        Ensemble([*members, nn.Sequential(nn.Flatten(), nn.Linear(81, 4)).double()])(x, torch.arange(5))


def test_bad_input_is_named() -> None:
    plain = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    with pytest.raises(UserError, match="dropout: Sequential has no dropout layer"):
        DropoutPasses(plain, 5)
    with pytest.raises(UserError, match="inserting one is forbidden"):
        with_dropout(plain, 0.5, insert=False)
    with pytest.raises(UserError, match="passes: at least 2"):
        DropoutPasses(nn.Sequential(nn.Dropout(0.5), plain), 1)
    with pytest.raises(UserError, match="images: 2 for each of at least one index are needed, but 3 images and 2"):
        DropoutPasses(nn.Sequential(nn.Dropout(0.5), plain), 2)(images(3, 1, 2).float(), torch.arange(2), shared=2)
    with pytest.raises(UserError, match="but 0 images and 0 indices"):
        DropoutPasses(nn.Sequential(nn.Dropout(0.5), plain), 2)(images(0, 1, 2).float(), torch.arange(0))
    with pytest.raises(UserError, match="ensemble: at least 2 models"):
        Ensemble([plain])
    for rate in (0, 1):
        with pytest.raises(UserError, match=f"dropout: the rate should lie between 0 and 1, but {rate} was given"):
            insert_dropout(plain, rate)
    with pytest.raises(UserError, match="has no Linear or Conv2d"):
        insert_dropout(nn.Flatten(), 0.5)


def test_dropout_of_rate_zero_is_none() -> None:
    """Many networks hold it, switched off; every pass would be the same."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Dropout(0.0), nn.Linear(81, 8), nn.ReLU(), nn.Linear(8, 3)).double()
    changed = with_dropout(model, 0.5)
    parted, whole = DropoutPasses(changed, 6), DropoutPasses(changed, 6, split=False)
    x, index = images(5), torch.arange(5)
    found = parted(x, index)
    assert float(measured(found).mi.max()) > 1e-6
    # cut before the one that drops, and masked as the whole network is
    assert [tuple(value.shape) for value in parted._parts.head(x)] == [(5, 8)]  # type: ignore[union-attr]
    assert torch.allclose(found.drawn, whole(x, index).drawn, atol=1e-12)
    with pytest.raises(UserError, match="has no dropout layer with a rate above 0 and inserting one is forbidden"):
        with_dropout(model, 0.5, insert=False)


class Aside(nn.Module):
    """Its last Linear is a side head that a plain answer leaves out."""

    def __init__(self) -> None:
        super().__init__()
        self.head, self.aside = nn.Linear(81, 3), nn.Linear(81, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x.flatten(1))


def test_dropout_that_takes_no_part_is_named() -> None:
    """Else VR and MI would be 0 of every input, and nothing would say why."""
    for split in (True, False):
        with pytest.raises(UserError, match="dropout: no dropout layer of Aside takes part in its answers"):
            DropoutPasses(insert_dropout(Aside(), 0.5), 4, split=split)(images(2).float(), torch.arange(2))


class Writing(Branching):
    """Writes into what crosses the cut, and into what the dropout gives."""

    def forward(self, x: Tensor) -> Tensor:
        left, right = self.first(x), self.second(x)
        right.add_(nn.functional.silu(self.drop(left), inplace=True))
        return self.last(right.flatten(1))


@pytest.mark.parametrize("split", [True, False])
def test_a_pass_that_writes_into_its_tensors_leaves_the_others_alone(
    split: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dropout that drops nothing hands on the tensor itself, which the certain pass would change for all others."""
    monkeypatch.setattr("ukemi.uncertainty.passes.rows_per_pass", lambda shape, device: 8)  # 2 passes at a time
    model, x, index = Writing().double().eval(), images(4), torch.arange(4)
    source = DropoutPasses(model, 6, seed=3, split=split)
    found = source(x, index)
    assert isinstance(source._parts, Cut) == split
    for number in range(6):
        masks = Masks(index, 1, number, 1, 3, 0)
        with torch.no_grad(), masked(model, masks):
            assert torch.allclose(found.drawn[number], model(x).softmax(1), atol=1e-12)
    assert torch.allclose(found.certain, model(x).softmax(1), atol=1e-12)


class Sideways(nn.Module):
    """Drops rows of pixels that lie before the images, as `nn.TransformerEncoderLayer` has them by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.drop, self.head = nn.Dropout(0.5), nn.Linear(9, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.drop(x[:, 0].transpose(0, 1)).mean(0))


def test_dropout_that_does_not_go_image_by_image_is_named() -> None:
    with pytest.raises(UserError, match=r"dropout: Dropout is given \[9, 128, 9\], but its first dimension should be"):
        DropoutPasses(Sideways(), 4)(images(2).float(), torch.arange(2))


class Restless(nn.Module):
    """Its dropout is never off."""

    def __init__(self) -> None:
        super().__init__()
        self.drop, self.head = nn.Dropout(0.5), nn.Linear(81, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(nn.functional.dropout(self.drop(x.flatten(1)), 0.5))


@pytest.mark.parametrize("split", [True, False])
def test_a_network_that_is_never_certain_is_named(split: bool) -> None:
    """Its answers would depend on the batch, the certain one too."""
    with pytest.raises(UserError, match="model: Restless gives two answers to one image in evaluation mode"):
        DropoutPasses(Restless(), 4, split=split)(images(2).float(), torch.arange(2))
