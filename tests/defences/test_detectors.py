"""Detectors beside slow forms of their scores."""

from copy import deepcopy
from itertools import combinations

import pytest
import torch
from torch import Tensor, nn

from ukemi import UserError
from ukemi.data import Data
from ukemi.defences import Setting, Squeezing, defence_of, key_of
from ukemi.defences.classifier import Classifying
from ukemi.defences.detectors import Dropping, Mutating
from ukemi.defences.transforms import bit_depth, median, non_local_means
from ukemi.uncertainty import DropoutPasses, auroc, predictive_entropy


@pytest.fixture(scope="module")
def few(attacked: Data) -> Tensor:
    return attacked.batch(torch.arange(12), "cpu").images


@pytest.fixture(scope="module")
def coloured() -> tuple[nn.Module, Data]:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 4)).eval().requires_grad_(False)
    images = torch.rand(10, 3, 8, 8)
    return net, Data(images, torch.arange(10) % 4, ("a", "b", "c", "d"), torch.arange(10), 10)


def test_squeezing_flags_the_form_that_moves_furthest(
    net: nn.Module, few: Tensor, benign: Data, coloured: tuple[nn.Module, Data]
) -> None:
    coarse = coloured[1].batch(torch.arange(10), "cpu").images[:, :, :4, :4]
    pixels = nn.functional.interpolate(coarse, (8, 8), mode="bilinear")  # no two patches of noise are alike
    for model, data, images, bits, fewer in ((net, benign, few, 1, 1), (*coloured, pixels, 5, 3)):
        squeezed = [bit_depth(images, bits), median(images, 2)]
        squeezed += [non_local_means(images)] if images.shape[1] == 3 else []
        forms = torch.stack([model(form).softmax(1) for form in squeezed])
        apart = (forms - model(images).softmax(1)).abs().sum(2)
        assert torch.allclose(Squeezing(model).scores(images).float(), apart.amax(0), atol=1e-5)
        assert all(not torch.allclose(one, other) for one, other in combinations(apart, 2))
        hard, bare = (defence_of(name, Setting(model, data)) for name in ("squeezing", "bit-depth"))
        assert isinstance(hard, nn.Module) and isinstance(bare, nn.Module)
        assert torch.allclose(hard(images).exp(), forms.mean(0), atol=1e-5)
        assert torch.allclose(bare(images), model(bit_depth(images, fewer)), atol=1e-5)


def test_scores_that_are_no_numbers_give_no_threshold_and_are_flagged(coloured: tuple[nn.Module, Data]) -> None:
    net, data = coloured
    images = data.batch(torch.arange(10), "cpu").images
    detector = Squeezing(net)
    detector.threshold = float("inf")
    assert not bool(detector.flags(images).any())
    images[3] = torch.nan
    assert detector.flags(images).nonzero().flatten().tolist() == [3]
    with pytest.raises(UserError, match="benign: Squeezing finds no score for 1 of 10 images"):
        Squeezing(net).fitted(Data(images, data.labels, data.classes, data.index, 10))


def test_dropping_looks_at_the_predictive_entropy_under_masks_of_the_picture(net: nn.Module, few: Tensor) -> None:
    drawn = DropoutPasses(net, 6, seed=2)(few, key_of(few)).drawn.double()
    assert torch.allclose(Dropping(net, 6, seed=2).scores(few), predictive_entropy(drawn), atol=1e-6)


def test_mutation_testing_asks_every_mutant(net: nn.Module, few: Tensor, benign: Data) -> None:
    detector = Mutating(net, benign, 6)
    changed = torch.zeros(len(few))
    for number in range(6):
        mutant = deepcopy(net)
        with torch.no_grad():
            for name, weight in mutant.named_parameters():
                weight.copy_(detector.mutant(number).get(name, weight))
        changed += mutant(few).argmax(1) != net(few).argmax(1)
    assert torch.allclose(detector.scores(few).float(), changed / 6) and 0 < float(changed.sum()) < 6 * len(few)


def test_mutants_are_drawn_one_by_one_with_each_weights_own_deviation(net: nn.Module, benign: Data) -> None:
    detector = Mutating(net, benign, 6)
    weights, (first, second) = net.state_dict(), (detector.mutant(number) for number in range(2))
    assert first.keys() == {name for name, weight in weights.items() if weight.numel() > 1}
    for name, weight in first.items():
        noise, deviation = weight - weights[name], weights[name].std()
        assert not torch.equal(weight, second[name]) and torch.equal(weight, detector.mutant(0)[name])
        if weight.numel() > 1000:
            assert float(noise.std() / (detector.size * deviation)) == pytest.approx(1, abs=0.1)
    # the noise of all mutants would take the memory of as many models
    assert not [kept for kept in vars(detector).values() if isinstance(kept, Tensor | dict | list)]


def test_layers_of_one_shape_have_noise_of_their_own(coloured: tuple[nn.Module, Data]) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(192, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    detector, weights = Mutating(net, coloured[1], 2), net.state_dict()
    mutant = detector.mutant(0)
    first, second = ((mutant[name] - weights[name]) / weights[name].std() for name in ("3.weight", "5.weight"))
    assert not torch.allclose(first, second, atol=1e-2 * detector.size)


def test_the_noise_of_mutants_is_halved_from_a_half_to_below_a_ten_thousandth(
    coloured: tuple[nn.Module, Data],
) -> None:
    """Of a network that no noise turns, and of one whose two classes are tied, which any noise turns."""
    nets = [nn.Sequential(nn.Flatten(), nn.Linear(192, 2, bias=False)).requires_grad_(False) for _ in range(2)]
    nets[0][1].weight.copy_(torch.tensor([0.0, 1.0])[:, None].expand(2, 192))
    nets[1][1].weight.copy_(torch.linspace(0, 1, 192).expand(2, 192))
    assert [Mutating(net, coloured[1]).size for net in nets] == [0.5, 0.5 / 2**13]


def test_detectors_draw_by_the_seed_of_their_setting(net: nn.Module, benign: Data, adversarial: Data) -> None:
    own = benign.take(torch.arange(100))
    images = own.batch(torch.arange(100), "cpu").images
    for name in ("adversarial-classifier", "mutation-testing", "mc-dropout"):
        made = [defence_of(name, Setting(net, own, adversarial, passes=4, seed=seed)) for seed in (0, 0, 7)]
        first, again, other = (one.scores(images) for one in made)  # type: ignore[union-attr]
        assert torch.equal(first, again) and not torch.allclose(first, other, atol=1e-3)
    one, two = (Classifying(net, own, adversarial, seed).scores(images) for seed in (0, 7))
    assert not torch.allclose(one, two, atol=1e-3)


def test_the_classifier_tells_apart_what_it_learned_from(net: nn.Module, benign: Data, adversarial: Data) -> None:
    detector = Classifying(net, benign, adversarial)
    pixels = (data.batch(torch.arange(len(data)), "cpu").images for data in (benign, adversarial))
    clean, fooling = (detector.scores(images) for images in pixels)
    assert auroc(clean, fooling) > 0.95


def test_the_classifier_leaves_the_generators_of_gpus_alone(
    net: nn.Module, few: Tensor, benign: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeded: list[int] = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeded.append)
    adversarial = Data(few, torch.zeros(12).long(), benign.classes, torch.arange(12), 12)
    Classifying(net, benign.take(torch.arange(12)), adversarial)
    assert not seeded


def test_both_kinds_weigh_the_same_to_the_classifier(net: nn.Module, few: Tensor, benign: Data) -> None:
    own, other = benign.take(torch.arange(60)), Data(few, torch.zeros(12).long(), benign.classes, torch.arange(12), 12)
    twice = other.take(torch.arange(12).repeat(5))
    once, often = (Classifying(net, own, adversarial).scores(few) for adversarial in (other, twice))
    assert torch.allclose(once, often, atol=0.05 * float(once.abs().max()))
