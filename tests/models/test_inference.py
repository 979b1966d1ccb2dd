"""Forward passes in chunks: rows do not depend on their neighbours, and nothing is left changed."""

import pytest
import torch
from torch import Tensor, nn

from ukemi.errors import UserError
from ukemi.models.inference import BUDGET, FEW, default_chunk, logits, padded, right, rows_per_pass, wrong


@pytest.mark.parametrize("chunk", [1, 4, 7, 30])
def test_chunks_of_any_size_agree_in_float64(chunk: int, tiny_net: nn.Module) -> None:
    model, images = tiny_net.double(), torch.rand(30, 1, 28, 28, dtype=torch.float64)
    whole = model.eval()(images).float()
    found = logits(model, images, chunk)
    assert torch.allclose(found, whole, atol=1e-6) and not found.is_inference() and not found.requires_grad


def test_a_row_does_not_depend_on_its_neighbours(tiny_net: nn.Module) -> None:
    images = torch.rand(20, 1, 28, 28)
    found = logits(tiny_net, images, 8)
    others = torch.cat([images[:3], torch.rand(17, 1, 28, 28)])
    assert torch.equal(logits(tiny_net, others, 8)[:3], found[:3])


def test_the_model_is_left_as_it_was(tiny_net: nn.Module) -> None:
    tiny_net.train()
    before = {name: tensor.clone() for name, tensor in tiny_net.state_dict().items()}
    images, state = torch.rand(5, 1, 28, 28), torch.get_rng_state()
    logits(tiny_net, images, 2)
    assert all(module.training for module in tiny_net.modules())
    assert all(torch.equal(before[name], tensor) for name, tensor in tiny_net.state_dict().items())
    assert torch.equal(state, torch.get_rng_state())


def test_a_model_that_writes_into_its_images_is_refused() -> None:
    """Else a measure that asks again about the same images would ask about others."""

    class Writing(nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            images -= 0.5
            return images.flatten(1)

    with pytest.raises(UserError, match="model: it writes into the images that it is given"):
        logits(Writing(), torch.rand(4, 1, 2, 2), 4)


def test_padding_repeats_the_first_row() -> None:
    rows = torch.arange(6.0).reshape(3, 2)
    assert torch.equal(padded(rows, 5), torch.stack([*rows, rows[0], rows[0]])) and padded(rows, 3) is rows


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_row_is_right_or_wrong_and_wrong_where_a_logit_is_not_finite(dtype: torch.dtype) -> None:
    nan, inf = float("nan"), float("inf")
    rows = [[1, 2, 0], [3, 2, 0], [1, inf, 0], [1, 2, -inf], [1, nan, 0], [nan, 2, 0], [nan] * 3, [2, 2, 2]]
    answers, labels = torch.tensor(rows, dtype=dtype), torch.tensor([1, 1, 1, 1, 1, 1, 1, 0])
    slow = [
        max(range(3), key=row.__getitem__) == own and all(abs(one) < inf for one in row)
        for row, own in zip(rows, labels.tolist(), strict=True)
    ]
    assert right(answers, labels).tolist() == slow == [True, *[False] * 6, True]
    assert torch.equal(wrong(answers, labels), ~right(answers, labels))


def test_passes_fit_their_budget() -> None:
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    assert rows_per_pass((3, 32, 32), cpu) == 128 and rows_per_pass((3, 9999, 9999), cpu) == 1
    assert rows_per_pass((3, 32, 32), cuda) * 3 * 32 * 32 <= BUDGET["cuda"]
    assert default_chunk((3, 4096, 4096), cpu) == 1 and default_chunk((1, 28, 28), cpu) == 256
    gpu = torch.device("cuda")
    assert [default_chunk((3, 32, 32), gpu, *most) for most in ((), (FEW,))] == [4096, 512]
    assert default_chunk((1, 28, 28), cpu, FEW) == 256 and default_chunk((3, 2048, 2048), gpu, FEW) == 2
