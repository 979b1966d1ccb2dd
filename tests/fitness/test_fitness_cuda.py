"""What only a GPU can show: scoring inside a CUDA graph, and the numbers of a CPU."""

import pytest
import torch
from test_fitness_base import LEARNING, altered, begun, scored_by
from torch import nn

from ukemi import UserError
from ukemi.data import DataSet
from ukemi.fitness import FITNESS, Scored, checked
from ukemi.models import create
from ukemi.uncertainty import with_dropout

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")


@pytest.fixture(autouse=True)
def _exact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


@pytest.mark.parametrize("name", FITNESS)
def test_a_captured_score_sees_what_was_learnt_last(name: str, fashion: DataSet) -> None:
    model = with_dropout(create("demo-cnn", classes=10, channels=1, size=(28, 28)), 0.2).cuda()
    batch = fashion.train.batch(torch.arange(64), "cuda")
    images, few = 1 - batch.images, fashion.train.take(torch.arange(60))
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        fitness = begun(name, model, few)

        def score() -> torch.Tensor:
            scored = scored_by(model, images, batch.labels)
            return checked(fitness(scored), scored, name)

        for _ in range(3):
            eager = score()
        with torch.cuda.graph(graph, stream=stream):
            captured = score()
        graph.replay()
        assert torch.equal(captured, eager)
        altered(model)
        if name in LEARNING:
            fitness.begin_epoch(model, few, 3)  # type: ignore[attr-defined]
        again = torch.cuda.CUDAGraph()
        with torch.cuda.graph(again, stream=stream):  # nothing in between: the first score of an epoch is captured
            recaptured = score()
        graph.replay()
        again.replay()
        assert torch.equal(captured, score()) and not torch.equal(captured, eager)
        assert torch.equal(captured, recaptured)
    torch.cuda.current_stream().wait_stream(stream)


@pytest.mark.parametrize("name", FITNESS)
def test_the_numbers_are_those_of_a_cpu(name: str, fashion: DataSet) -> None:
    model = with_dropout(create("demo-cnn", classes=10, channels=1, size=(28, 28)), 0.2)
    batch = fashion.train.batch(torch.arange(64), "cpu")
    images = batch.images.roll(5, 3) * 0.7
    here = begun(name, model, fashion.train)(scored_by(model, images, batch.labels))
    model.cuda()
    there = begun(name, model, fashion.train)(scored_by(model, images.cuda(), batch.labels.cuda())).cpu()
    close = torch.isclose(here.double(), there.double(), rtol=1e-2, atol=1e-2)
    assert close.double().mean() > 0.95


@pytest.mark.parametrize("name", LEARNING)
def test_a_state_from_the_host_is_moved(name: str, fashion: DataSet) -> None:
    model = with_dropout(create("demo-cnn", classes=10, channels=1, size=(28, 28)), 0.2).cuda()
    batch = fashion.train.batch(torch.arange(64), "cuda")
    scored = scored_by(model, batch.images.roll(5, 3), batch.labels)
    fitness, other = begun(name, model, fashion.train), LEARNING[name]()
    other.load_state_dict({key: tensor.cpu() for key, tensor in fitness.state_dict().items()})  # type: ignore[attr-defined]
    assert torch.allclose(other(scored), fitness(scored), rtol=1e-4, atol=1e-6)


def test_nan_is_looked_for_only_where_asked() -> None:
    scored = Scored(
        nn.Identity(), torch.zeros(2, 1, 2, 2).cuda(), torch.zeros(2).long().cuda(), torch.zeros(2, 3).cuda()
    )
    nan = torch.tensor([0.0, float("nan")]).cuda()
    assert checked(nan, scored, "mine", look=False).isnan().tolist() == [False, True]
    with pytest.raises(UserError, match="gave NaN for variant 1"):
        checked(nan, scored, "mine")
