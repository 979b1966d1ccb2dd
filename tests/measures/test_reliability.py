"""The self-check: a tiny model per flag that raises that flag and no other, and an honest network that raises none."""

from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ukemi import UserError
from ukemi.data import Data, DataSet, labelled
from ukemi.measures.reliability import FLAGS, Selfcheck, selfcheck

EPSILON, STEPS, QUERIES = 0.1, 20, 150
SIDE = 8


def made(low: float, high: float, count: int = 20, side: int = SIDE) -> Data:
    """Grey images, half of them darker than a half (class 0) and half brighter (class 1), `low` to `high` away."""
    away = torch.linspace(low, high, count)
    levels = torch.cat([0.5 - away, 0.5 + away])
    return labelled(levels[:, None, None, None].expand(-1, 1, side, side).contiguous(), (levels > 0.5).long())


NEAR, FAR = made(0.02, 0.3), made(0.15, 0.4)
WIDE = made(0.15, 0.4, count=10, side=64)  # so many pixels that random starts hardly differ


def checked(model: nn.Module, data: Data, **options: float) -> Selfcheck:
    settings = {"epsilon": EPSILON, "steps": STEPS, "queries": QUERIES, **options}
    return selfcheck(model, data, **settings)  # type: ignore[arg-type]


def raised(found: Selfcheck) -> list[str]:
    assert [flag.name for flag in found.flags] == list(FLAGS)
    return [flag.name for flag in found.raised]


class Bright(nn.Module):
    """Class 1 where the mean pixel is above a half; what is done to the images before can be put in."""

    def __init__(self, before: Callable[[Tensor], Tensor] = lambda images: images, scale: float = 20.0) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(scale))
        self.before = before

    def forward(self, images: Tensor) -> Tensor:
        return self.two(self.before(images).flatten(1).mean(1) - 0.5)

    def two(self, score: Tensor) -> Tensor:
        return torch.stack([-self.scale * score, self.scale * score], 1)


class Softmax(Bright):
    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images).softmax(1)


class ByBatch(Bright):
    """Brighter than its batch."""

    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images - images.mean() + 0.5)


class Stuck(nn.Module):
    """BatchNorm and dropout that ignore the evaluation mode."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer, self.head = layer, Bright()

    def train(self, mode: bool = True) -> "Stuck":
        super().train(mode)
        self.layer.train()
        return self

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.layer(images - 0.5) * 0.2 + 0.5)


class Hidden(Bright):
    """The upper half decides, without a gradient; the lower half has one, and decides when it is changed a lot."""

    def __init__(self, reach: float) -> None:
        super().__init__()
        self.reach = reach

    def forward(self, images: Tensor) -> Tensor:
        upper, lower = images[:, :, : SIDE // 2].mean((1, 2, 3)) - 0.5, images[:, :, SIDE // 2 :].mean((1, 2, 3)) - 0.5
        return self.two(upper.detach() + self.reach * lower**3)


class Pattern(nn.Module):
    """Class by brightness, which has no gradient here; `odds` of how much of a checkerboard there is turn it over."""

    def __init__(self, *corners: tuple[float, float]) -> None:
        super().__init__()
        self.corners = ((-10.0, -11.0), (0.0, -1.0), *corners, (0.3, -0.05), (0.31, 0.2), (10.0, 10.0))

    def odds(self, amount: Tensor) -> Tensor:
        """Straight lines from corner to corner."""
        out = torch.zeros_like(amount)
        for (x0, y0), (x1, y1) in pairwise(self.corners):
            out = torch.where((amount >= x0) & (amount < x1), y0 + (y1 - y0) * (amount - x0) / (x1 - x0), out)
        return out

    def forward(self, images: Tensor) -> Tensor:
        places = torch.arange(images.shape[-1])
        board = (places[:, None] + places[None]) % 2 * 2.0 - 1
        odds = self.odds((images * board).mean((1, 2, 3))) * (1 - 2 * (images.mean((1, 2, 3)) > 0.5).float())
        return torch.stack([-odds, odds], 1)


def door(low: float, high: float) -> list[tuple[float, float]]:
    """Between `low` and `high`, and nowhere near, the class is another one; the way beyond goes on rising."""
    return [(low, -0.1), (low + 1e-4, 0.1), (high, 0.1), (high + 1e-4, -0.1)]


def test_a_plain_linear_model_raises_nothing() -> None:
    found = checked(Bright(), NEAR)
    assert raised(found) == [] and all(flag.judged for flag in found.flags)
    assert found.recognised == found.images == 40 and found.held == found.held_by_all
    # the closed form: who is nearer than epsilon falls
    assert found.held == int(((NEAR.images[torch.arange(40)].mean((1, 2, 3)) - 0.5).abs() > EPSILON).sum())


@pytest.mark.parametrize("epsilon", [0.3, 0.5, 0.9])
def test_budgets_beyond_the_box_are_left_out(epsilon: float) -> None:
    found = checked(Bright(), NEAR, epsilon=epsilon)
    assert raised(found) == []
    assert max(run.epsilon for run in found.runs) == 1 and sum(run.epsilon == 1 for run in found.runs) == 1


def test_random_output() -> None:
    model = Bright(lambda images: images + 0.1 * torch.randn_like(images))
    state = torch.random.get_rng_state()
    found = checked(model, NEAR)
    assert raised(found) == ["random-output"] and torch.equal(torch.random.get_rng_state(), state)
    assert found["batch-mates"].verdict == "clear" and found["zero-gradients"].verdict == "clear"
    assert found["black-box-wins"].verdict == "not judged" and not found.runs and found.held is None


def test_dropout_that_stays_on_is_named() -> None:
    found = checked(Stuck(nn.Dropout(0.3)), NEAR)
    assert raised(found) == ["random-output"] and "Dropout active in evaluation mode: layer." in found.flags[0].sentence


def test_batch_mates() -> None:
    found = checked(ByBatch(), NEAR)
    assert raised(found) == ["batch-mates"] and found["steps-hurt"].verdict == "not judged"


def test_batch_statistics_are_named_and_the_model_gets_its_own_back() -> None:
    model = Stuck(nn.BatchNorm2d(1))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = checked(model, NEAR)
    assert raised(found) == ["batch-mates"]
    assert "Batch statistics active in evaluation mode: layer." in found.flags[1].sentence
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert raised(checked(Stuck(nn.BatchNorm2d(1, track_running_stats=False)), NEAR)) == ["batch-mates"]


def test_probabilities() -> None:
    found = checked(Softmax(), NEAR)
    assert raised(found) == ["probabilities"] and found.held == checked(Bright(), NEAR).held


class CoarseSoftmax(Bright):
    """Probabilities whose sum is off by the rounding of bfloat16."""

    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images).bfloat16().softmax(1)


def test_probabilities_of_few_digits() -> None:
    found = checked(CoarseSoftmax(), NEAR)["probabilities"]
    assert found.raised and found.evidence["sum_is_off_by"] > 1e-3


class Holed(nn.Module):
    """NaN for all that is darker than `level`."""

    def __init__(self, model: nn.Module, level: float) -> None:
        super().__init__()
        self.model, self.level = model, level

    def forward(self, images: Tensor) -> Tensor:
        outputs: Tensor = self.model(images)
        return outputs.where(images.mean((1, 2, 3))[:, None] > self.level, torch.nan)


class AddingUp(nn.Module):
    """Logits that add up to 1 for grey of 0.3, and for no other."""

    def forward(self, images: Tensor) -> Tensor:
        grey = images.flatten(1).mean(1)
        return torch.stack([1 - grey, grey + 5 * (grey - 0.3)], 1)


def test_logits_of_one_image_that_add_up_to_1_are_no_probabilities() -> None:
    one = labelled(torch.full((1, 1, SIDE, SIDE), 0.3), torch.tensor([0]), ["dark", "bright"])
    found = checked(AddingUp(), one)
    assert not found["probabilities"].raised and found["probabilities"].evidence["sum_is_off_by"] < 1e-6
    assert found["unbounded-holds"].verdict == "clear"  # it was attacked


def test_a_zero_has_no_minus() -> None:
    found = checked(Bright(lambda images: images * 0 + 0.5), FAR)
    assert found["probabilities"].sentence == "Outputs lie between 0 and 0: logits."


def test_answers_that_are_not_numbers_hide_no_flag() -> None:
    few = checked(Holed(Softmax(), 0.21), NEAR)
    assert raised(few) == ["probabilities"] and few.flags[2].evidence["not_finite"] == 1
    assert few.flags[2].sentence.endswith("here. NaN or infinite: 1 of 40.")
    whole = checked(Holed(Bright(), 1.0), NEAR)
    assert raised(whole) == ["chance-accuracy"] and whole["probabilities"].verdict == "not judged"
    assert whole["probabilities"].sentence == "All outputs are NaN or infinite."


def test_a_saturated_softmax_has_no_gradient_either() -> None:
    assert raised(checked(Softmax(scale=2000.0), FAR)) == ["probabilities", "zero-gradients"]


def test_chance_accuracy() -> None:
    data = Data(NEAR.images, (torch.arange(40) * 7) % 2, NEAR.classes, NEAR.index, NEAR.identities)
    assert raised(checked(Bright(), data)) == ["chance-accuracy"]
    # guessing gets 20 of 40, and 26 with some luck
    for wrong, flags in ((15, ["chance-accuracy"]), (10, [])):
        labels = torch.where(torch.arange(40) < wrong, 1 - NEAR.labels, NEAR.labels)
        found = checked(Bright(), Data(NEAR.images, labels, NEAR.classes, NEAR.index, NEAR.identities))
        assert raised(found) == flags and found.recognised == 40 - wrong


@pytest.mark.parametrize(("count", "verdict"), [(1, "not judged"), (2, "not judged"), (3, "clear")])
def test_images_too_few_to_tell_from_chance(count: int, verdict: str) -> None:
    found = checked(Bright(), made(0.3, 0.4, count))  # of 4 images of two classes guessing gets up to 2 + 2 · 1
    assert raised(found) == [] and found["chance-accuracy"].verdict == verdict
    assert ("so more images are needed" in found["chance-accuracy"].sentence) == (verdict == "not judged")


def test_of_one_step_there_is_no_fourth() -> None:
    found = checked(Bright(), NEAR, steps=1)
    assert [run.name for run in found.runs if run.epsilon == EPSILON] == [
        *("PGD, 1 step", "FGSM", "PGD, 4 steps"),
        f"Square, {QUERIES} queries",
    ]
    assert found["steps-hurt"].sentence.endswith("but not to 1: 0 to one step (FGSM).")


def test_a_model_that_knows_nothing_leaves_nothing_to_judge() -> None:
    found = checked(Bright(scale=-20.0), NEAR)
    assert raised(found) == ["chance-accuracy"] and found["zero-gradients"].verdict == "not judged"
    assert found.held is None and found.backwards == 0


@pytest.mark.parametrize(
    "before",
    [
        lambda images: (images * 32).round() / 32,
        lambda images: images.detach(),
        lambda images: (images > 0.5).float() * 0.5 + 0.25,
        lambda images: torch.from_numpy(images.numpy()) if images.requires_grad else images,
    ],
    ids=["rounded", "detached", "binary", "numpy"],
)
def test_zero_gradients(before: Callable[[Tensor], Tensor]) -> None:
    found = checked(Bright(before), NEAR)
    assert raised(found) == ["zero-gradients"]
    flag = found["zero-gradients"]
    assert flag.evidence["zero"] == 40 and flag.evidence["fooled_by_square"] > 5
    assert found.held == 40 and found.held_by_all is not None and found.held_by_all < 35
    assert found["black-box-wins"].verdict == "not judged"


def test_a_confident_model_is_not_blind_but_cross_entropy_would_be() -> None:
    found = checked(Bright(scale=3000.0), FAR)
    assert raised(found) == [] and found["zero-gradients"].evidence["zero_by_cross_entropy"] == 40


def test_one_saturated_image_is_not_enough() -> None:
    found = checked(Bright(lambda images: images.clamp(0.21, 1)), NEAR)
    assert raised(found) == [] and found["zero-gradients"].evidence["zero"] == 1


def test_black_box_wins() -> None:
    found = checked(Hidden(reach=12.0), NEAR)
    assert raised(found) == ["black-box-wins"]
    assert found.held is not None and found.held_by_all is not None and found.held_by_all < found.held


class HalfBlind(Bright):
    """Bright images have a gradient, dark ones have none."""

    def forward(self, images: Tensor) -> Tensor:
        score = images.flatten(1).mean(1) - 0.5
        return self.two(torch.where(score > 0, score, score.detach()))


def test_what_falls_to_square_where_there_is_no_gradient_counts_once() -> None:
    found = checked(HalfBlind(), NEAR)
    assert raised(found) == ["zero-gradients"]
    assert found["zero-gradients"].evidence["zero"] == 20 and found["zero-gradients"].evidence["fooled_by_square"] > 2
    assert found["black-box-wins"].evidence == {"images": 20, "found": 0}


def test_unbounded_holds() -> None:
    assert raised(checked(Hidden(reach=0.01), FAR)) == ["unbounded-holds"]


def test_steps_hurt() -> None:
    # a hill before a valley: one large step gets across, small ones come back
    hill = [(0.03, -0.5), (0.06, -1.0), (0.09, 0.5), (0.2, 0.6)]
    found = checked(Pattern(*hill), WIDE)
    assert raised(found) == ["steps-hurt"] and "20 to one step (FGSM)" in found["steps-hurt"].sentence


def test_steps_missing() -> None:
    # the steps of epsilon (0.0125) pass this door, and those of a longer run (0.0031) meet it
    assert raised(checked(Pattern(*door(0.0555, 0.0588)), WIDE)) == ["steps-missing"]


def test_not_monotone() -> None:
    # the steps of epsilon meet this door (0.0625), and those of larger budgets (0.025, 0.05) pass it
    assert raised(checked(Pattern(*door(0.0575, 0.064)), WIDE)) == ["not-monotone"]


@pytest.fixture(scope="module")
def honest(fashion: DataSet) -> nn.Module:
    """A small network after two epochs of fashion-mini."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 5, stride=3), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.1), nn.Flatten(), nn.Linear(512, 10)
    )
    images, labels = fashion.train.images.float() / 255, fashion.train.labels  # type: ignore[attr-defined]
    optimiser = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(2):
        for rows in torch.randperm(len(images)).split(64):
            optimiser.zero_grad(set_to_none=True)
            F.cross_entropy(model(images[rows]), labels[rows]).backward()
            optimiser.step()
    return model


@pytest.mark.parametrize("epsilon", [2 / 255, 8 / 255])
def test_an_honest_network_raises_nothing(honest: nn.Module, fashion: DataSet, epsilon: float) -> None:
    data = fashion.test.take(torch.arange(0, 1000, 17))
    heard: list[tuple[int, int]] = []
    honest.train()
    before = {name: value.clone() for name, value in honest.state_dict().items()}
    found = selfcheck(honest, data, epsilon=epsilon, steps=30, queries=150, report=lambda *at: heard.append(at))
    assert raised(found) == [], [flag.sentence for flag in found.raised]
    assert all(flag.judged for flag in found.flags)
    assert heard == sorted(heard) and heard[-1][0] == heard[-1][1] and len({total for _, total in heard}) == 1
    assert all(module.training for module in honest.modules())
    assert all(torch.equal(value, before[name]) for name, value in honest.state_dict().items())
    assert found.forwards > found.backwards > 0 and found.forwards >= sum(run.forwards for run in found.runs)


def test_counts_are_those_of_the_model() -> None:
    class Counting(Bright):
        passes = 0

        def forward(self, images: Tensor) -> Tensor:
            self.passes += len(images)
            return super().forward(images)

    model = Counting()
    found = checked(model, NEAR.take(torch.arange(10, 30)))
    # attacks look at two images more where they enter, the check for a gradient at one; padding of chunks besides
    assert found.forwards <= model.passes
    again = checked(Bright(), NEAR.take(torch.arange(10, 30)))
    assert again == found


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"epsilon": 0}, "epsilon: it should lie between 0 and 1, but 0 was given"),
        ({"epsilon": 1}, "epsilon: it should lie between"),
        ({"steps": 0}, "steps: it should be 1 or more"),
        ({"queries": 0}, "queries: it should be 1 or more"),
        ({"tolerance": 1}, "tolerance: it should lie in 0 to 1"),
    ],
)
def test_a_mistake_is_named(options: dict[str, float], said: str) -> None:
    with pytest.raises(UserError, match=said):
        checked(Bright(), NEAR, **options)
