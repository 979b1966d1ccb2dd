"""Sensitivity against closed forms and against loops over single variants."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ukemi import T2, T3, Gene, Space, UserError
from ukemi.data import Data, labelled
from ukemi.measures.sensitivity import failure_by_gene, landscape, worst_variants
from ukemi.variations import vary

BRIGHTNESS = Space((Gene("brightness", -0.5, 0.5, 0, 0.1),))


class Brighter(nn.Module):
    """Class 1 where the mean pixel is above one half."""

    def forward(self, images: Tensor) -> Tensor:
        mean = images.mean((1, 2, 3))
        return torch.stack([torch.zeros_like(mean), 20 * (mean - 0.5)], 1)


def greys(values: list[float]) -> Data:
    """Even images of the given greys, labelled by `Brighter`'s own rule."""
    images = torch.tensor(values)[:, None, None, None].expand(-1, 1, 4, 4)
    return labelled(images.contiguous(), torch.tensor([int(value > 0.5) for value in values]), ["dark", "bright"])


def some_model(channels: int = 1) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(channels, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.LazyLinear(3))


def some_data(count: int = 20) -> tuple[nn.Module, Data]:
    """A random network, and random images labelled with its own guesses save a third."""
    model = some_model()
    images = torch.rand(count, 1, 10, 10, generator=torch.Generator().manual_seed(1))
    labels = model.eval()(images).argmax(1)
    labels[::3] = (labels[::3] + 1) % 3
    return model, labelled(images, labels, ["a", "b", "c"])


def test_rates_of_a_known_function_of_brightness_are_exact() -> None:
    data = greys([0.15, 0.35, 0.65, 0.85])
    (found,) = failure_by_gene(Brighter(), data, BRIGHTNESS, values=11)
    assert found.gene == "brightness"
    assert found.images == 4
    assert found.values[5] == 0
    # -0.5 … 0.5 in steps of 0.1: 0.65 falls from -0.2 on, 0.85 from -0.4 on, and alike upward
    assert found.rates == (0.5, 0.5, 0.25, 0.25, 0, 0, 0, 0.25, 0.25, 0.5, 0.5)


def test_only_recognised_images_take_part() -> None:
    data = greys([0.15, 0.35, 0.65, 0.85])
    turned = labelled(data.images[torch.arange(4)], torch.tensor([1, 0, 1, 0]), data.classes)
    (found,) = failure_by_gene(Brighter(), turned, BRIGHTNESS)
    assert found.images == 2
    assert max(found.rates) == 0.5


def test_a_model_that_recognises_nothing_has_no_rate() -> None:
    data = greys([0.15, 0.85])
    turned = labelled(data.images[torch.arange(2)], torch.tensor([1, 0]), data.classes)
    (found,) = failure_by_gene(Brighter(), turned, BRIGHTNESS)
    assert found.images == 0
    assert set(found.rates) == {0.0}


def test_the_identity_is_among_the_values_and_breaks_nothing() -> None:
    lopsided = Space((Gene("rotation", -10, 35, 0, 1), Gene("zoom", 0.9, 1.3, 1, 0.1)))
    model, data = some_data()
    for one, gene in zip(failure_by_gene(model, data, lopsided, values=4), lopsided.genes, strict=True):
        assert list(one.values) == sorted(one.values)
        assert (one.values[0], one.values[-1]) == (gene.low, gene.high)
        assert one.rates[one.values.index(gene.identity)] == 0


def test_rates_equal_a_loop_over_single_variants() -> None:
    model, data = some_data()
    right = [at for at in range(len(data)) if int(model(data.images[at : at + 1]).argmax()) == int(data.labels[at])]
    for at, one in enumerate(failure_by_gene(model, data, T3, values=5)):
        assert one.images == len(right)
        for value, rate in zip(one.values, one.rates, strict=True):
            genes = T3.identity().clone()
            genes[at] = value
            wrong = [
                int(model(vary(data.images[i : i + 1], genes[None], T3)).argmax()) != int(data.labels[i]) for i in right
            ]
            assert rate == sum(wrong) / len(right)


def test_the_subset_hangs_on_identities_not_on_order() -> None:
    model, data = some_data(60)
    shuffled = data.take(torch.randperm(60, generator=torch.Generator().manual_seed(3)))
    kept = failure_by_gene(model, data, T2, images=7, seed=5)
    assert kept == failure_by_gene(model, shuffled, T2, images=7, seed=5)
    assert kept[0].images == 7


def test_the_model_is_left_as_it_was() -> None:
    model, data = some_data()
    model.train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    torch.manual_seed(4)
    expected = torch.rand(1)
    torch.manual_seed(4)
    failure_by_gene(model, data, T2, values=3)
    landscape(model, data.images[torch.tensor([0])][0], 0, T2, steps=3)
    assert torch.equal(torch.rand(1), expected)
    assert model.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize(("images", "values"), [(0, 11), (5, 1)])
def test_counts_out_of_range_are_refused(images: int, values: int) -> None:
    with pytest.raises(UserError, match="images and values"):
        failure_by_gene(Brighter(), greys([0.1, 0.9]), BRIGHTNESS, images=images, values=values)


def test_a_landscape_equals_a_loop() -> None:
    model, data = some_data()
    image, label = data.images[torch.tensor([1])][0], int(data.labels[1])
    found = landscape(model, image, label, T3, steps=5)
    assert found.down is not None
    assert (found.down.gene, found.across.gene) == ("rotation", "translate_x")
    assert found.losses.shape == found.wrong.shape == (5, 5)
    for row, angle in enumerate(found.down.values):
        for column, shift in enumerate(found.across.values):
            outputs = model(vary(image[None], torch.tensor([[angle, shift, 0, 0]]), T3))
            expected = F.cross_entropy(outputs, torch.tensor([label]))
            torch.testing.assert_close(found.losses[row, column], expected.detach(), atol=1e-5, rtol=1e-4)
            assert bool(found.wrong[row, column]) == (int(outputs.argmax()) != label)


def test_a_landscape_rests_at_the_identity() -> None:
    model, data = some_data()
    found = landscape(model, data.images[torch.tensor([1])][0], int(data.labels[1]), T3, steps=7)
    assert found.down is not None
    assert found.down.values[found.down.rest] == 0
    assert found.across.values[found.across.rest] == 0
    assert not found.wrong[found.down.rest, found.across.rest]


def test_a_space_of_one_gene_gives_one_row() -> None:
    found = landscape(Brighter(), torch.full((1, 4, 4), 0.25), 0, BRIGHTNESS, steps=11)
    assert found.down is None
    assert found.across.gene == "brightness"
    assert found.wrong.tolist() == [[value > 0.25 for value in found.across.values]]
    expected = [F.softplus(torch.tensor(20 * (max(0.0, 0.25 + value) - 0.5))) for value in found.across.values]
    torch.testing.assert_close(found.losses[0], torch.stack(expected), atol=1e-5, rtol=1e-5)


def test_without_translation_the_first_two_genes_are_moved() -> None:
    space = Space((Gene("zoom", 0.9, 1.1, 1, 0.1), Gene("contrast", 0.8, 1.2, 1, 0.1), *BRIGHTNESS.genes))
    found = landscape(Brighter(), torch.full((1, 4, 4), 0.25), 0, space, steps=3)
    assert found.down is not None
    assert (found.down.gene, found.across.gene) == ("zoom", "contrast")
    with pytest.raises(UserError, match="steps"):
        landscape(Brighter(), torch.full((1, 4, 4), 0.25), 0, space, steps=1)


def test_worst_variants_equal_a_loop() -> None:
    model, data = some_data()
    rows = T3.grid(2)
    images, labels = data.images[torch.arange(6)], data.labels[:6]
    found = worst_variants(model, images, labels, rows, T3)
    for at in range(6):
        tried = []
        for row in rows:
            outputs = model(vary(images[at : at + 1], row[None], T3))
            loss = float(F.cross_entropy(outputs, labels[at : at + 1]).detach())
            tried.append((int(outputs.argmax()) != int(labels[at]), loss))
        expected = max(tried)
        assert (int(found.guesses[at]) != int(labels[at])) == expected[0]
        assert float(found.losses[at]) == pytest.approx(expected[1], rel=1e-4)
        assert torch.equal(found.variants[at], vary(images[at : at + 1], found.genes[at : at + 1], T3)[0])


def test_a_misclassified_variant_goes_before_a_higher_loss() -> None:
    class Three(nn.Module):
        """Wrong but sure of little when brightened, right with a higher loss when darkened."""

        def forward(self, images: Tensor) -> Tensor:
            mean = images.mean((1, 2, 3))[:, None]
            wrong = torch.tensor([0.0, 0.1, -50.0, -50.0])
            right = torch.tensor([0.0, -0.01, -0.01, -0.01])
            return torch.where(mean > 0.5, wrong, right)

    image, label = torch.full((1, 1, 4, 4), 0.5), torch.tensor([0])
    found = worst_variants(Three(), image, label, torch.tensor([[-0.3], [0.3]]), BRIGHTNESS)
    assert float(found.genes[0, 0]) == pytest.approx(0.3)
    assert int(found.guesses[0]) == 1
    assert float(found.losses[0]) < 1
    # where no variant is misclassified, the highest loss is taken
    found = worst_variants(Three(), image, label, torch.tensor([[-0.3], [-0.1]]), BRIGHTNESS)
    assert float(found.genes[0, 0]) == pytest.approx(-0.3)
    assert int(found.guesses[0]) == 0
