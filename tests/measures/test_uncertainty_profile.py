"""Profiles: what attacks turn, thresholds from validation data, a row per source."""

import pytest
import torch
from torch import Tensor, nn

from ukemi import T3, UserError, vary
from ukemi.attacks import Attacked, fgsm
from ukemi.attacks.config import AttackConfig
from ukemi.data import Data, DataSet, in_a_row
from ukemi.measures.uncertainty import attack_of, natural_variants, profile, turned_by, validation_thresholds
from ukemi.uncertainty import DropoutPasses, Thresholds, aurocs, found_thresholds, uncertainty_of

LIMITS = Thresholds((0.5, 0.5), (0.2, 0.2))


@pytest.fixture
def net(fashion: DataSet) -> nn.Module:
    """A linear network with dropout, trained for a moment."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.AvgPool2d(4), nn.Flatten(), nn.Dropout(0.3), nn.Linear(49, 10))
    batch = fashion.train.batch(torch.arange(len(fashion.train)), "cpu")
    optimiser = torch.optim.Adam(model.parameters(), 0.05)
    for _ in range(40):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(batch.images), batch.labels).backward()
        optimiser.step()
    return model.eval()


@pytest.fixture
def data(fashion: DataSet) -> Data:
    return fashion.test.take(torch.arange(80))


def test_only_what_was_right_and_is_wrong_counts_as_turned(net: nn.Module, data: Data) -> None:
    attack = AttackConfig(attack="fgsm", epsilon=0.1).made(0)
    found = turned_by(net, data, attack)
    batch = data.batch(torch.arange(80), "cpu")
    with torch.no_grad():
        known = net(batch.images).argmax(1) == batch.labels
    made = fgsm(net, batch.images[known], batch.labels[known], epsilon=0.1)
    assert 0 < len(found) < int(known.sum()) + 1
    assert torch.equal(found.index, batch.index[known][made.success])
    assert torch.equal(found.images, made.images[made.success]) and found.identities == data.identities
    assert len(turned_by(net, data, AttackConfig(attack="fgsm", epsilon=0).made(0))) == 0


def test_variants_are_keyed_by_identity(net: nn.Module, data: Data) -> None:
    made = natural_variants(net, data, T3, seed=5)
    part = natural_variants(net, data.take(torch.tensor([7, 3])), T3, seed=5)
    assert torch.equal(made.images[torch.tensor([7, 3])], part.images)
    batch = data.batch(torch.arange(80), "cpu")
    assert torch.equal(made.images, vary(batch.images, T3.sample(batch.index, seed=5)[:, 0], T3))


def test_a_profile_has_a_row_per_source(net: nn.Module, data: Data) -> None:
    source = DropoutPasses(net, 12)
    turned = turned_by(net, data, AttackConfig(attack="fgsm", epsilon=0.1).made(0))
    heard: list[int] = []
    groups = {"benign": data, "none": turned.take(torch.arange(0)), "fgsm": turned}
    found = profile(source, groups, LIMITS, report=lambda done, total: heard.append(done))
    assert (
        [one.name for one in found.sources] == ["benign", "fgsm"]
        and found.empty == ("none",)
        and heard[-1] == 80 + len(turned)
    )
    benign, attacked = (uncertainty_of(source, part) for part in (data, turned))
    assert found.aurocs() == {"fgsm": aurocs(benign, attacked)}
    assert found.shares()["fgsm"].count == len(turned) and found.sources[1].accuracy == 0
    right = (benign.prediction == data.labels).double()
    bins = found.reliability()
    assert int(bins.count.sum()) == 80 and found.benign.accuracy == pytest.approx(float(right.mean()))
    with pytest.raises(UserError, match="one is needed that is called 'benign'"):
        profile(source, {"fgsm": turned}, LIMITS)


def test_what_is_right_again_is_not_among_what_was_turned(net: nn.Module, data: Data) -> None:
    """At the border a GPU may answer otherwise beside other images; here benign images stand for such."""
    source = DropoutPasses(net, 12)
    turned = turned_by(net, data, AttackConfig(attack="fgsm", epsilon=0.1).made(0))
    right = data.take((uncertainty_of(source, data).prediction == data.labels).nonzero().flatten()[:5])
    mixed = in_a_row([turned, right])
    groups = {"benign": data, "fgsm": mixed, "none left": right, "mine": mixed}
    found = profile(source, groups, LIMITS, turned={"fgsm", "none left"})
    shares = found.shares()
    assert [shares[name].count for name in ("fgsm", "mine")] == [len(turned), len(mixed)]
    assert found.empty == ("none left",) and torch.equal(found.sources[1].data.index, turned.index)
    limits = validation_thresholds(source, data, [turned])
    assert validation_thresholds(source, data, [mixed, right]) == limits
    with pytest.raises(UserError, match="none of them turned a validation image"):
        validation_thresholds(source, data, [right])


def test_a_source_that_the_model_has_no_answers_to_is_named(net: nn.Module, data: Data) -> None:
    """A fuzzer looks for just such inputs."""
    lost = in_a_row([data.take(torch.arange(3)), data.take(torch.arange(1))])
    lost.images[3] = torch.nan  # type: ignore[index]
    said = "^model on deephunter: its answers to 1 of 4 images are not finite"
    with pytest.raises(UserError, match=said):
        profile(DropoutPasses(net, 12), {"benign": data, "deephunter": lost}, LIMITS)


def bounded(model: nn.Module, images: Tensor, labels: Tensor, *, epsilon: float) -> Attacked:
    return fgsm(model, images, labels, epsilon=epsilon)


def boundless(model: nn.Module, images: Tensor, labels: Tensor) -> Attacked:
    return fgsm(model, images, labels, epsilon=0.5)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("fgsm", {"epsilon": 0.3}),
        ("deepfool", {}),
        ("carlini-wagner", {"steps": 200, "searches": 5}),
        (f"{__name__}:bounded", {"epsilon": 0.3}),
        (f"{__name__}:boundless", {}),
    ],
)
def test_an_attack_gets_the_budget_where_it_takes_one(name: str, settings: dict[str, float]) -> None:
    assert attack_of(name, 0.3).settings() == settings


def _but(rows: Tensor, data: Data) -> Tensor:
    return torch.arange(len(data))[~torch.isin(torch.arange(len(data)), rows)]


def test_thresholds_come_from_the_data_that_is_given(net: nn.Module, data: Data) -> None:
    source = DropoutPasses(net, 12)
    turned = turned_by(net, data, AttackConfig(attack="fgsm", epsilon=0.1).made(0))
    found = validation_thresholds(source, data, [turned.take(torch.arange(0)), turned])
    assert found == found_thresholds(uncertainty_of(source, data), uncertainty_of(source, turned))
    few = uncertainty_of(source, turned).vr.argmax()[None]  # what several attacks turned counts together
    assert validation_thresholds(source, data, [turned.take(few), turned.take(_but(few, turned))]) == found
    assert validation_thresholds(source, data, [turned.take(few)]) != found
    with pytest.raises(UserError, match="attacks: none of them turned a validation image"):
        validation_thresholds(source, data, [turned.take(torch.arange(0))])
