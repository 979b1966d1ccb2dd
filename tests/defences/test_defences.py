"""Hardened models and detectors: every one passes the same checks, and each its own."""

from copy import deepcopy
from math import floor

import pytest
import torch
from torch import nn

from ukemi import UserError
from ukemi.data import Data
from ukemi.defences import DEFENCES, TRAINING, Detector, Setting, Squeezing, Variants, defence_of, key_of, passes
from ukemi.defences.classifier import Classifying, halves
from ukemi.defences.detectors import Mutating
from ukemi.defences.hardening import CROPS, NEARBY, _mean, _vote
from ukemi.defences.slices import Slicing
from ukemi.defences.transforms import deflected, jpeg, total_variation, wavelet_denoised
from ukemi.slicing import slices_of
from ukemi.training.sets import weights_hash
from ukemi.variations import vary

PLAIN = [name for name in DEFENCES if name not in TRAINING]


@pytest.fixture(scope="session")
def setting(net: nn.Module, benign: Data, adversarial: Data) -> Setting:
    return Setting(net, benign, adversarial, passes=10)


@pytest.fixture(scope="session", params=PLAIN)
def named(request: pytest.FixtureRequest, setting: Setting) -> tuple[str, object]:
    return request.param, defence_of(request.param, setting)


def test_a_defence_is_batch_independent_and_leaves_everything_as_it_was(
    named: tuple[str, nn.Module | Detector], net: nn.Module, attacked: Data
) -> None:
    _, defence = named
    images, labels = attacked.images[torch.arange(40)], attacked.labels[:40]
    before, state = weights_hash(net), torch.random.get_rng_state()
    whole = passes(defence, images, labels)
    assert passes(defence, images[11:14], labels[11:14]).equal(whole[11:14])
    order = torch.randperm(40, generator=torch.Generator().manual_seed(3))
    assert passes(defence, images[order], labels[order]).equal(whole[order])
    if isinstance(defence, Detector):
        assert torch.allclose(defence.scores(images)[5:7], defence.scores(images[5:7]), atol=1e-5)
    assert weights_hash(net) == before and torch.random.get_rng_state().equal(state)


def test_a_defence_stops_some_attacked_images_and_few_benign_ones(
    named: tuple[str, nn.Module | Detector], net: nn.Module, attacked: Data, fashion: object
) -> None:
    name, defence = named
    images, labels = attacked.images[torch.arange(len(attacked))], attacked.labels
    assert not bool(passes(nn.Sequential(net), images, labels).logical_not().any())  # undefended, all pass
    passed = float(passes(defence, images, labels).double().mean())
    # what is fooled in the middle of a class by a large step is not stopped by every defence; some are weak
    assert passed < 1 or name in ("bit-depth", "total-variation", "jpeg")
    if isinstance(defence, Detector):
        few = fashion.test.batch(torch.arange(1, 1000, 5), "cpu").images  # type: ignore[attr-defined]
        assert float(defence.flags(few).double().mean()) < 0.15


def test_the_threshold_flags_at_most_its_share(net: nn.Module, benign: Data) -> None:
    images = benign.batch(torch.arange(len(benign)), "cpu").images
    # a part of an image is none; and 300 x (1 - 0.19) is rounded to more than 243
    for share in (0.0, 0.05, 0.055, 0.19, 0.3):
        detector = Squeezing(net).fitted(benign, share)
        flagged = int(detector.flags(images).sum())
        assert flagged == floor(share * len(benign))
    with pytest.raises(UserError, match="no threshold"):
        Squeezing(net).flags(images)
    with pytest.raises(UserError, match="false-positives"):
        Squeezing(net).fitted(benign, 1.0)


def test_a_vote_counts_heads_and_a_mean_averages() -> None:
    logits = torch.randn(7, 5, 4, generator=torch.Generator().manual_seed(0))
    logits[:, 4] = 9 * torch.eye(4)[torch.tensor([0, 0, 0, 1, 1, 2, 3])]  # a majority that is not sure
    logits[:3, 4] = torch.tensor([0.1, 0.0, 0.0, 0.0])
    votes = _vote(logits)
    for at in range(5):
        heads = torch.bincount(logits[:, at].argmax(1), minlength=4)
        best = (heads == heads.max()).nonzero().flatten()
        mean = logits[:, at].softmax(1).mean(0)
        assert int(votes[at].argmax()) == int(best[mean[best].argmax()])
    assert torch.allclose(_mean(logits).exp(), logits.softmax(2).mean(0), atol=1e-6)


def test_variants_ask_about_variants(net: nn.Module, benign: Data) -> None:
    images = benign.batch(torch.arange(4), "cpu").images
    hardened = Variants(net, CROPS, 6, "mean", seed=2)
    genes = CROPS.sample(key_of(images), 6, seed=2)
    wanted = torch.stack([net(vary(images, genes[:, at], CROPS)).softmax(1) for at in range(6)]).mean(0)
    assert torch.allclose(hardened(images).exp(), wanted, atol=1e-5)
    assert not torch.allclose(Variants(net, NEARBY, 6, seed=3)(images), hardened(images))
    with pytest.raises(UserError, match="how: 'max' is none of mean, vote"):
        Variants(net, NEARBY, 6, "max")  # type: ignore[arg-type]


def test_crops_are_averaged_and_variations_vote(net: nn.Module, benign: Data) -> None:
    for name, wanted in (("crop-rescale", (CROPS, 10, "mean", 7)), ("vote", (NEARBY, 15, "vote", 7))):
        made = defence_of(name, Setting(net, benign, seed=7))
        assert isinstance(made, Variants) and (made.space, made.count, made.how, made.seed) == wanted


def test_deflected_pixels_are_denoised(net: nn.Module, benign: Data) -> None:
    images = benign.batch(torch.arange(4), "cpu").images
    hardened = defence_of("pixel-deflection", Setting(net, benign, seed=7))
    assert isinstance(hardened, nn.Module)
    wanted, other = (net(wavelet_denoised(deflected(images, key_of(images), seed=seed))) for seed in (7, 0))
    assert torch.equal(hardened(images), wanted) and not torch.allclose(wanted, other)


def test_defences_are_worn_as_documented(net: nn.Module, benign: Data) -> None:
    """The numbers of docs/defences.md, which measured results rest on."""
    images = benign.batch(torch.arange(4), "cpu").images
    forms = {
        "jpeg": jpeg(images, 75),
        "total-variation": total_variation(images, 0.1, 30),
        "pixel-deflection": wavelet_denoised(deflected(images, key_of(images), 0.05, 3, seed=0), 0.04),
    }
    for name, form in forms.items():
        worn = defence_of(name, Setting(net, benign))
        assert isinstance(worn, nn.Module) and torch.equal(worn(images), net(form))
    assert defence_of("mutation-testing", Setting(net, benign))._mutants == 20  # type: ignore[union-attr]
    ranges = [[(gene.name, gene.low, gene.high) for gene in space.genes] for space in (CROPS, NEARBY)]
    moved = [("translate_x", -0.05, 0.05), ("translate_y", -0.05, 0.05)]
    assert ranges == [[*moved, ("zoom", 1, 1.2)], [("rotation", -10, 10), *moved, ("shear", -0.05, 0.05)]]


def test_mutants_keep_most_benign_labels(net: nn.Module, benign: Data) -> None:
    detector = Mutating(net, benign, 8)
    images = benign.batch(torch.arange(len(benign)), "cpu").images
    assert 1e-4 < detector.size <= 0.5
    changed = detector.scores(images)
    assert 0 < float(changed.mean()) < 0.12
    assert set((changed * 8).round().tolist()) <= set(range(9))
    mutants = [detector.mutant(number) for number in range(8)]
    for name, weight in net.named_parameters():
        noise = torch.stack([(mutant[name] - weight.detach()) / detector.size for mutant in mutants])
        assert float(noise.std()) == pytest.approx(float(weight.detach().std()), rel=0.35)


def test_the_slices_of_images_add_up_to_those_of_their_class(net: nn.Module, benign: Data) -> None:
    """Against the walk of `ukemi.slicing` itself: the signs of one image alone are its slice."""
    detector = Slicing(net, benign)
    image = benign.take(torch.tensor([17]))
    predicted = int(net(image.batch(torch.tensor([0]), "cpu").images).argmax())
    alone = Data(image.images, torch.tensor([predicted]), benign.classes, image.index, benign.identities)
    # the class's slice and the image's own, in full, both relative to the same means
    own = slices_of(net, alone, baseline=benign, classes=[predicted]).contributions
    classes = slices_of(net, benign).contributions
    cosines = [
        nn.functional.cosine_similarity(own[name][0].flatten(), classes[name][predicted].flatten(), dim=0)
        for name in own
    ]
    found = detector.scores(image.batch(torch.tensor([0]), "cpu").images)
    assert float(found) == pytest.approx(-float(torch.stack(cosines).mean()), abs=1e-5)


def test_nothing_is_like_a_class_without_an_image(net: nn.Module, benign: Data) -> None:
    images = benign.batch(torch.arange(40), "cpu").images
    taken = net(images).argmax(1)
    rest = benign.take((benign.labels != taken[0]).nonzero().flatten())
    scores = Slicing(net, rest).scores(images)
    assert not scores[taken == taken[0]].any() and bool((scores[taken != taken[0]] != 0).all())


@pytest.mark.parametrize("name", ["slices", "adversarial-classifier"])
def test_what_learns_from_one_half_has_its_threshold_from_the_other(name: str, setting: Setting) -> None:
    own, other = halves(setting.benign)
    assert setting.adversarial is not None
    made = {
        "slices": lambda: Slicing(setting.model, own),
        "adversarial-classifier": lambda: Classifying(setting.model, own, halves(setting.adversarial)[0]),  # type: ignore[arg-type]
    }
    found = defence_of(name, setting)
    assert isinstance(found, Detector) and found.threshold == made[name]().fitted(other).threshold


def test_a_half_without_an_image_is_named(net: nn.Module, benign: Data) -> None:
    one = benign.take(torch.arange(1))
    seeds = [next(seed for seed in range(9) if len(halves(one, seed)[0]) == count) for count in (0, 1)]
    for seed, said in zip(seeds, ("slices: without an image", "benign: without an image"), strict=True):
        with pytest.raises(UserError, match=said):
            defence_of("slices", Setting(net, one, seed=seed))


def test_no_images_have_no_scores(net: nn.Module, benign: Data) -> None:
    detector = Squeezing(net).fitted(benign)
    none = torch.empty(0, 1, 28, 28)
    assert detector.flags(none).tolist() == []
    for defence in (detector, net):
        assert passes(defence, none, torch.empty(0).long()).tolist() == []


def test_halves_keep_samples_apart(benign: Data) -> None:
    own, other = halves(benign)
    assert len(own) + len(other) == len(benign) and min(len(own), len(other)) > 0.4 * len(benign)
    assert not set(own.index.tolist()) & set(other.index.tolist())


def test_what_a_defence_lacks_is_named(net: nn.Module, benign: Data) -> None:
    bare = Setting(net, benign)
    with pytest.raises(UserError, match="adversarial-classifier: it learns"):
        defence_of("adversarial-classifier", bare)
    with pytest.raises(UserError, match=r"adversarial-classifier: it learns from .* images, but 300 and 0 were given"):
        Classifying(net, benign, benign.take(torch.arange(0)))
    with pytest.raises(UserError, match="distillation: it trains"):
        defence_of("distillation", bare)
    with pytest.raises(UserError, match="defences: 'none' is none of squeezing"):
        defence_of("none", bare)


@pytest.mark.parametrize("name", PLAIN)
def test_a_network_that_can_not_take_the_images_is_named(name: str, net: nn.Module, benign: Data) -> None:
    with pytest.raises(UserError, match=r"images: they are torch.float32, but the model's weights are torch.float64"):
        defence_of(name, Setting(deepcopy(net).double(), benign, benign))


def test_the_size_of_mutations_is_found_on_the_images_and_not_on_padding(
    net: nn.Module, benign: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few images make up a small part of a chunk; what fills it says nothing."""
    few = benign.take(torch.arange(24))
    images = few.batch(torch.arange(24), "cpu").images
    steadiest = Mutating(net, benign, 8).scores(images).argmin()
    rest = torch.arange(24)
    first = torch.cat([steadiest[None], rest[rest != steadiest]])  # a chunk is filled with its first row
    sizes = []
    for chunk in (24, 4096):
        monkeypatch.setattr("ukemi.defences.base.default_chunk", lambda shape, device, most, chunk=chunk: chunk)
        sizes.append(Mutating(net, few.take(first), 8).size)
    assert sizes[0] == sizes[1]
    monkeypatch.undo()
    detector = Mutating(net, few.take(first), 8)
    assert float(detector.scores(images).mean()) <= 0.1
    detector.size *= 2
    assert float(detector.scores(images).mean()) > 0.1
