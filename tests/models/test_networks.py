"""Every network of the table: its size, its shapes, and what training, tracing and saving need of it."""

from collections.abc import Iterator

import pytest
import torch
from safetensors.torch import load, save
from torch import nn

from ukemi.models import MODELS, Shape, create, freeze_first, listing
from ukemi.models.layers import MaxNormLinear

SHRUNK = {
    **dict.fromkeys(["wrn-28-10", "vgg16", "vgg19"], 8),
    **dict.fromkeys(["resnet18", "resnet50", "resnet50-imagenet", "mobilenet", "mobilenet-224", "nin", "fm-1"], 16),
    **dict.fromkeys(["alexnet", "svhn-1", "svhn-2", "imdb-1", "imdb-2"], 32),
}
"""Sides of the images on which the larger networks are tested quickly."""


def conv(inputs: int, outputs: int, kernel: int = 3) -> int:
    return kernel * kernel * inputs * outputs + outputs


def fc(inputs: int, outputs: int) -> int:
    return inputs * outputs + outputs


def residual_6n2(n: int) -> int:
    """Stem, n blocks per stage (two convolutions with their BatchNorms), two projections, last BatchNorm, head."""
    same = sum(n * (2 * 9 * width * width + 2 * 2 * width) for width in (16, 32, 64))
    # The first block of stages 2 and 3 has half the inputs in its first convolution and first BatchNorm.
    halved = sum(9 * width * width // 2 + width for width in (32, 64))
    projections = 16 * 32 + 32 * 64
    return 9 * 3 * 16 + same - halved + projections + 2 * 64 + fc(64, 10)


def six_convolutions(inputs: int) -> int:
    return conv(inputs, 32) + conv(32, 32) + conv(32, 64) + conv(64, 64) + conv(64, 128) + conv(128, 128)


VGG16_CONVOLUTIONS, VGG19_CONVOLUTIONS = 14_714_688, 20_024_384  # published, with biases, three channels
VGG_BIASES = {16: 4_224, 19: 5_504}
VGG_HEAD = fc(512, 4096) + fc(4096, 4096) + fc(4096, 10)

PARAMETERS = {
    "demo-cnn": 33_914,
    "resnet20": 272_282,
    "resnet32": 466_714,
    "resnet50-6n2": 758_362,
    "wrn-28-10": 36_479_194,  # published
    "resnet18": 11_173_962,  # published
    "resnet50": 23_520_842,  # published
    "resnet50-imagenet": 25_557_032,  # published
    "vgg16": 33_642_442,
    "vgg19": 38_953_418,
    "alexnet": 9_638_474,
    "nin": 966_986,  # published
    "lenet5": 61_706,  # published
    "lenet5-dropout": 61_706,  # published
    "mobilenet": 3_217_226,
    "mobilenet-224": 4_231_976,  # published
    "styx-mlp": 669_706,  # published
    "styx-cnn": 1_199_882,  # published
    "styx-cifar-cnn": 1_250_858,  # published
    "fm-1": 26_557_642,
    "fm-2": 2_688_522,
    "fm-3": 493_772,
    "gtsrb-1": 1_358_155,
    "gtsrb-1-t6": 670_283,
    "gtsrb-2": 33_773_419,
    "gtsrb-3": 1_359_627,
    "gtsrb-4": 14_857_067,
    "svhn-1": 555_690,
    "svhn-2": 2_436_266,
    "imdb-1": 15_245_125,
    "imdb-2": 20_554_821,
}

BY_HAND = {
    "demo-cnn": 5 * 5 * 16 + 9 * 16 * 32 + 9 * 32 * 64 + 2 * (16 + 32 + 64) + fc(64 * 4 * 4, 10),
    "resnet20": residual_6n2(3),
    "resnet32": residual_6n2(5),
    "resnet50-6n2": residual_6n2(8),
    # A BatchNorm per convolution has twice as many parameters as the bias it replaces.
    "vgg16": VGG16_CONVOLUTIONS + VGG_BIASES[16] + VGG_HEAD,
    "vgg19": VGG19_CONVOLUTIONS + VGG_BIASES[19] + VGG_HEAD,
    "alexnet": conv(3, 96) + conv(96, 256) + 2 * (96 + 256) + conv(256, 384) + conv(384, 384) + conv(384, 256)
    + fc(1024, 2048) + fc(2048, 2048) + fc(2048, 10),
    "mobilenet": PARAMETERS["mobilenet-224"] - fc(1024, 1000) + fc(1024, 10),
    "fm-1": VGG16_CONVOLUTIONS - conv(3, 64) + conv(1, 64) - 3 * conv(512, 512) + VGG_HEAD,
    "fm-2": conv(1, 32, 5) + conv(32, 64, 5) + conv(64, 128, 1) + fc(128 * 4 * 4, 1024) + fc(1024, 512) + fc(512, 10),
    "fm-3": 2 + conv(1, 64, 4) + conv(64, 64, 4) + fc(64 * 5 * 5, 256) + fc(256, 64) + 2 * 64 + fc(64, 10),
    "gtsrb-1": six_convolutions(3) + fc(128 * 4 * 4, 512) + fc(512, 43),
    "gtsrb-1-t6": six_convolutions(3) + 2 * conv(128, 128) + fc(128, 512) + fc(512, 43),
    "gtsrb-2": VGG16_CONVOLUTIONS + fc(512, 4096) + fc(4096, 4096) + fc(4096, 43),
    "gtsrb-3": PARAMETERS["gtsrb-1"] + 2 * (32 + 64 + 128 + 512),
    "gtsrb-4": VGG16_CONVOLUTIONS + fc(512, 256) + fc(256, 43),
    "svhn-1": six_convolutions(3) + 2 * 2 * (32 + 64 + 128) + fc(128 * 2 * 2, 512) + fc(512, 10),
    "svhn-2": conv(3, 32) + conv(32, 32) + conv(32, 64) + conv(64, 64) + 2 * 64 + fc(64 * 6 * 6, 1024) + fc(1024, 10),
    "imdb-1": VGG16_CONVOLUTIONS + fc(512, 1024) + fc(1024, 5),
    "imdb-2": VGG19_CONVOLUTIONS + fc(512, 1024) + fc(1024, 5),
}  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Images this small gain nothing from more threads, and threads that wait for a busy core lose minutes."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_every_network_has_the_pinned_number_of_parameters() -> None:
    assert {row.name: row.parameters for row in listing()} == PARAMETERS


@pytest.mark.parametrize("name", BY_HAND)
def test_the_number_of_parameters_follows_from_the_paper_by_hand(name: str) -> None:
    assert PARAMETERS[name] == BY_HAND[name]


@pytest.mark.parametrize(
    ("name", "shape", "millions"),
    [
        ("alexnet", Shape(3, (32, 32), 10), 9.6),
        ("alexnet", Shape(1, (28, 28), 10), 8.1),
        ("vgg16", Shape(1, (28, 28), 10), 33.6),
        ("vgg19", Shape(1, (28, 28), 10), 39.0),
    ],
)
def test_dare_networks_have_the_size_of_the_paper(name: str, shape: Shape, millions: float) -> None:
    with torch.device("meta"):
        network = MODELS[name].factory(shape).eval()
        assert network(torch.empty(2, shape.channels, *shape.size)).shape == (2, 10)
    assert sum(parameter.numel() for parameter in network.parameters()) / 1e6 == pytest.approx(millions, abs=0.06)


@pytest.mark.parametrize("name", MODELS)
def test_forward_gives_logits_at_the_paper_shape_and_at_the_smallest(name: str) -> None:
    entry = MODELS[name]
    for shape in (entry.shape, Shape(1, (entry.smallest, entry.smallest), 3), Shape(2, (33, 47), 5)):
        with torch.device("meta"):
            network = entry.factory(shape).eval()
            assert network(torch.empty(2, shape.channels, *shape.size)).shape == (2, shape.classes)


@pytest.mark.parametrize("name", [name for name, entry in MODELS.items() if entry.smallest > 1])
def test_one_pixel_less_than_the_smallest_is_too_small(name: str) -> None:
    side = MODELS[name].smallest - 1
    with pytest.raises((RuntimeError, ZeroDivisionError, UserWarning)), torch.device("meta"):
        MODELS[name].factory(Shape(1, (side, side), 3)).eval()(torch.empty(2, 1, side, side))


@pytest.fixture(scope="module", params=list(MODELS))
def case(request: pytest.FixtureRequest) -> tuple[str, Shape, nn.Module]:
    """One network at a time, at a size that is quick."""
    entry = MODELS[request.param]
    side = SHRUNK.get(request.param)
    shape = entry.shape._replace(size=(side, side)) if side else entry.shape
    torch.manual_seed(1)
    return request.param, shape, create(request.param, **shape._asdict(), mean=[0.4] * shape.channels)


def pixels(shape: Shape, count: int) -> torch.Tensor:
    return torch.rand(count, shape.channels, *shape.size, generator=torch.Generator().manual_seed(2))


def test_gradient_reaches_every_parameter(case: tuple[str, Shape, nn.Module]) -> None:
    _, shape, model = case
    model.train()
    images = pixels(shape, 4).requires_grad_()
    nn.functional.cross_entropy(model(images), torch.arange(4) % shape.classes).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.any() or name.endswith("bias"), name
    assert images.grad is not None
    assert images.grad.any()
    model.zero_grad()


def test_eval_is_deterministic_and_keeps_state_and_input(case: tuple[str, Shape, nn.Module]) -> None:
    _, shape, model = case
    model.eval()
    images = pixels(shape, 2)
    before, kept = images.clone(), {key: value.clone() for key, value in model.state_dict().items()}
    with torch.no_grad():
        assert torch.equal(model(images), model(images))
    assert torch.equal(images, before)
    assert all(torch.equal(value, kept[key]) for key, value in model.state_dict().items())


def test_fx_traces_it_and_channels_last_agrees(case: tuple[str, Shape, nn.Module]) -> None:
    _, shape, model = case
    images = pixels(shape, 2)
    traced = torch.fx.symbolic_trace(model.eval())
    with torch.no_grad():
        expected = model(images)
        assert torch.equal(traced(images), expected)
        last = model(images.to(memory_format=torch.channels_last))
    torch.testing.assert_close(last, expected, rtol=1e-3, atol=1e-4)


def test_state_survives_safetensors(case: tuple[str, Shape, nn.Module]) -> None:
    name, shape, model = case
    with torch.device("meta"):
        twin = create(name, **shape._asdict())
    twin.load_state_dict(load(save(model.state_dict())), assign=True)
    images = pixels(shape, 2)
    with torch.no_grad():
        assert torch.equal(twin.eval()(images), model.eval()(images))


def test_nothing_works_in_place(case: tuple[str, Shape, nn.Module]) -> None:
    assert not [layer for layer in case[2].modules() if getattr(layer, "inplace", False)]


@pytest.mark.parametrize("name", ["demo-cnn", "resnet20", "nin", "lenet5", "fm-2", "fm-3", "styx-mlp"])
def test_weights_are_a_function_of_the_global_generator(name: str) -> None:
    def drawn(seed: int) -> dict[str, torch.Tensor]:
        torch.manual_seed(seed)
        return create(name, classes=10, channels=1, size=(28, 28)).state_dict()

    first, again, other = drawn(5), drawn(5), drawn(6)
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert any(not torch.equal(first[key], other[key]) for key in first)


def test_counting_draws_nothing() -> None:
    before = torch.get_rng_state()
    listing()
    assert torch.equal(before, torch.get_rng_state())


def test_6n2_weights_start_he_normal() -> None:
    torch.manual_seed(0)
    model = create("resnet32", classes=10, channels=3, size=(32, 32))
    wide = [layer for layer in model.modules() if isinstance(layer, nn.Conv2d) and layer.in_channels == 64]
    for layer in wide:
        assert layer.weight.std().item() == pytest.approx((2 / (64 * layer.kernel_size[0] ** 2)) ** 0.5, rel=0.03)
    assert len(wide) == 9


def test_max_norm_shortens_only_what_is_too_long() -> None:
    layer = MaxNormLinear(4, 2, longest=3.0)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[6.0, 0, 0, 0], [0, 1.0, 0, 0]]))
        layer.bias.zero_()
    outputs = layer(torch.eye(4))
    assert outputs[0].tolist() == [3.0, 0.0]
    assert outputs[1].tolist() == [0.0, 1.0]
    assert layer.weight[0, 0] == 6.0


@pytest.mark.parametrize(("name", "frozen"), [("imdb-1", 10), ("imdb-2", 11)])
def test_freezing_15_layers_counts_input_convolutions_and_pools(name: str, frozen: int) -> None:
    with torch.device("meta"):
        model = create(name, classes=5, channels=3, size=(128, 128))
    freeze_first(model)
    convolutions = [layer for layer in model.modules() if isinstance(layer, nn.Conv2d)]
    stopped = [not layer.weight.requires_grad for layer in convolutions]
    assert stopped == [True] * frozen + [False] * (len(convolutions) - frozen)
    assert all(p.requires_grad for layer in model.modules() if isinstance(layer, nn.Linear) for p in layer.parameters())


def test_gtsrb_resizes_inside() -> None:
    torch.manual_seed(0)
    small = create("gtsrb-1", classes=43, channels=3, size=(32, 30)).eval()
    torch.manual_seed(0)
    native = create("gtsrb-1", classes=43, channels=3, size=(48, 48)).eval()
    images = pixels(Shape(3, (32, 30), 43), 2)
    resized = nn.functional.interpolate(images, (48, 48), mode="bilinear")
    with torch.no_grad():
        torch.testing.assert_close(small(images), native(resized))
