"""Grad-CAM against a closed form and a loop over samples and channels; the model is left as it was."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ukemi import UserError
from ukemi.activations import grad_cam


class Block(nn.Module):
    """One residual block whose last activation, behind the addition, runs in place; the head adds in place too."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(2, 4, 3, padding=1)
        self.conv = nn.Conv2d(4, 4, 3, padding=1, stride=2)
        self.norm = nn.BatchNorm2d(4)
        self.short = nn.Conv2d(4, 4, 1, stride=2)
        self.relu = nn.ReLU(inplace=True)
        self.last = nn.Linear(4 * 9, 3)

    def forward(self, images: Tensor) -> Tensor:
        x = self.stem(images)
        x = self.relu(self.norm(self.conv(x)) + self.short(x))
        x *= 1.5
        return self.last(x.flatten(1))


def block() -> Block:
    torch.manual_seed(0)
    model = Block()
    model.norm.running_mean.uniform_(-0.5, 0.5)  # type: ignore[union-attr]
    return model.eval()


def test_a_closed_form() -> None:
    """A 1x1 convolution, then the mean over all places: the logit's slope is weight / places, the same everywhere."""
    model = nn.Sequential(nn.Conv2d(1, 2, 1, bias=False), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2, 2))
    with torch.no_grad():
        model[0].weight[:, 0, 0, 0] = torch.tensor([2.0, -1.0])  # type: ignore[index]
        model[3].weight[:] = torch.tensor([[1.0, 0.0], [0.0, 3.0]])
    images = torch.rand(4, 1, 5, 5)
    towards_first = grad_cam(model, images, torch.zeros(4, dtype=torch.int64))
    assert torch.allclose(towards_first, 2 * images[:, 0] / 25)
    pooled = grad_cam(model, images, torch.zeros(4, dtype=torch.int64), layer="1")
    assert torch.allclose(pooled, 2 * images[:, 0].mean((1, 2))[:, None, None].expand(4, 5, 5))
    assert not grad_cam(model, images, torch.ones(4, dtype=torch.int64)).any()  # all of it speaks against


def slow(model: Block, image: Tensor, klass: int) -> Tensor:
    x = model.stem(image[None])
    maps = F.relu(model.norm(model.conv(x)) + model.short(x)).detach().requires_grad_()
    model.last((1.5 * maps).flatten(1))[0, klass].backward()
    found = torch.zeros(maps.shape[2:])
    for channel in range(maps.shape[1]):
        found += maps.grad[0, channel].mean() * maps[0, channel].detach()  # type: ignore[index]
    return F.interpolate(found.clamp(min=0)[None, None], image.shape[1:], mode="bilinear")[0, 0]


def test_against_a_loop_and_the_model_stays_as_it_was() -> None:
    model, images, classes = block(), torch.rand(7, 2, 6, 6), torch.arange(7) % 3
    expected = torch.stack([slow(model, image, int(klass)) for image, klass in zip(images, classes, strict=True)])
    model.zero_grad(set_to_none=True)
    model.train()
    model.norm.eval()
    model.requires_grad_(False)
    before = {name: one.clone() for name, one in model.state_dict().items()}
    with torch.inference_mode():
        found = grad_cam(model, images, classes)
    assert torch.allclose(found, expected, atol=1e-6) and float(found.max()) > 0
    assert model.training and not model.norm.training and not images.requires_grad
    assert all(torch.equal(one, before[name]) for name, one in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not model.relu._forward_hooks and not model.conv._forward_hooks
    assert torch.allclose(grad_cam(model, images, classes, layer="relu"), expected, atol=1e-6)
    assert grad_cam(model, images[:0], classes[:0]).shape == (0, 6, 6)


def test_what_is_wrong_is_said() -> None:
    model, images, classes = block(), torch.rand(2, 2, 6, 6), torch.tensor([0, 1])
    with pytest.raises(UserError, match=r"classes: one class per image, \[2\]"):
        grad_cam(model, images, torch.tensor([0]))
    with pytest.raises(UserError, match="classes: they should lie in 0 to 2"):
        grad_cam(model, images, torch.tensor([0, 3]))
    with pytest.raises(UserError, match="layer: Block has no module 'nowhere'"):
        grad_cam(model, images, classes, layer="nowhere")
    with pytest.raises(UserError, match=r"layer: Grad-CAM needs a layer that gives maps"):
        grad_cam(model, images, classes, layer="last")
    model.spare = nn.Conv2d(4, 4, 1)
    with pytest.raises(UserError, match="layer: it does not run"):
        grad_cam(model, images, classes, layer="spare")
    with pytest.raises(UserError, match="layer: Sequential has no Conv2d"):
        grad_cam(nn.Sequential(nn.Flatten(), nn.Linear(72, 3)), images, classes)
    assert not model.last._forward_hooks  # also after an error
