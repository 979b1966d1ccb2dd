"""Pixels before a model sees them: beside scipy, Pillow, closed forms and slow loops."""

from io import BytesIO

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from scipy.ndimage import median_filter
from scipy.optimize import minimize

from ukemi import UserError
from ukemi.defences import key_of
from ukemi.defences.transforms import (
    _reflected,
    _shrunk,
    bit_depth,
    deflected,
    jpeg,
    median,
    non_local_means,
    total_variation,
    wavelet_denoised,
)

IMAGES = torch.rand(3, 3, 9, 8, generator=torch.Generator().manual_seed(0))


@given(bits=st.integers(1, 8))
def test_bit_depth_leaves_so_many_levels_and_moves_by_half_a_step(bits: int) -> None:
    found = bit_depth(torch.linspace(0, 1, 1000), bits)
    assert len(found.unique()) == 2**bits
    assert float((found - torch.linspace(0, 1, 1000)).abs().max()) <= 0.5 / (2**bits - 1) + 1e-6
    assert bit_depth(found, bits).equal(found)


@pytest.mark.parametrize("window", [2, 3, 4, 5, 8])
def test_the_median_is_scipys(window: int) -> None:
    """With its usual border, as in the code of feature squeezing."""
    wanted = [[median_filter(one.numpy(), window, mode="reflect") for one in image] for image in IMAGES]
    assert np.array_equal(median(IMAGES, window).numpy(), np.array(wanted))


def lab(pixel: np.ndarray) -> np.ndarray:
    """CIE's L a b of linear red, green and blue, with L from 0 to 255."""
    x = (0.412453 * pixel[0] + 0.357580 * pixel[1] + 0.180423 * pixel[2]) / 0.950456
    y = 0.212671 * pixel[0] + 0.715160 * pixel[1] + 0.072169 * pixel[2]
    z = (0.019334 * pixel[0] + 0.119193 * pixel[1] + 0.950227 * pixel[2]) / 1.088754
    fx, fy, fz = (np.cbrt(t) if t > 0.008856 else 7.787 * t + 16 / 116 for t in (x, y, z))
    return np.array([(116 * fy - 16) * 2.55, 500 * (fx - fy), 200 * (fy - fz)])


def slow_means(image: np.ndarray, search: int, patch: int, strength: float) -> np.ndarray:
    """Pixel by pixel, as the definition reads; the result in Lab."""
    _, height, width = image.shape
    values = np.apply_along_axis(lab, 0, image)
    far, near = search // 2, patch // 2
    border = far + near
    around = np.pad(values, ((0, 0), (border, border), (border, border)), mode="reflect")
    found = np.zeros_like(values)
    for part in ([0], [1, 2]):
        for row in range(height):
            for column in range(width):
                here = around[part, row + far : row + far + patch, column + far : column + far + patch]
                sums, weights = np.zeros(len(part)), 0.0
                for down in range(search):
                    for right in range(search):
                        there = around[part, row + down : row + down + patch, column + right : column + right + patch]
                        unlike = ((here - there) ** 2).sum() / patch**2
                        weight = np.exp(-unlike / (strength**2 * len(part)))
                        sums += weight * there[:, near, near]
                        weights += weight
                found[part, row, column] = sums / weights
    return found


@pytest.mark.parametrize(("search", "patch", "strength"), [(3, 1, 30.0), (5, 3, 12.0), (13, 3, 2.0)])
def test_non_local_means_are_those_of_a_slow_loop(search: int, patch: int, strength: float) -> None:
    """With dark pixels too; the search reaches over the whole image and its reflections."""
    images = IMAGES[:2].double()
    images[0], images[1] = 0.05 * images[0], 0.4 + 0.03 * images[1]
    found = non_local_means(images, search, patch, strength)
    for image, one in zip(images.numpy(), found.numpy(), strict=True):
        wanted = slow_means(image, search, patch, strength)
        reached = np.apply_along_axis(lab, 0, one)
        inside = ((one > 0) & (one < 1)).all(0)  # a mean of colours may lie outside of what a screen shows
        assert inside.mean() > 0.7
        assert np.abs(wanted - reached)[:, inside].max() < 1e-3
    assert float((found - images).abs().max()) > 0.001


def test_non_local_means_leave_flat_images_and_lone_patches_alone() -> None:
    flat = torch.full((1, 3, 6, 7), 0.3)
    assert torch.allclose(non_local_means(flat), flat, atol=1e-5)
    assert torch.allclose(non_local_means(IMAGES, strength=1e-3), IMAGES, atol=1e-4)  # no other patch is like one
    noisy = (flat + 0.01 * torch.randn(flat.shape, generator=torch.Generator().manual_seed(1))).clamp(0, 1)
    assert float(non_local_means(noisy, strength=20).std()) < 0.3 * float(noisy.std())
    assert torch.allclose(non_local_means(IMAGES[1:2]), non_local_means(IMAGES)[1:2], atol=1e-6)
    thin = torch.rand(2, 3, 1, 2)
    assert non_local_means(thin).shape == thin.shape and non_local_means(thin[:0]).shape == (0, 3, 1, 2)


@given(side=st.integers(2, 9), border=st.integers(0, 12))
def test_rows_are_reflected_as_numpy_does(side: int, border: int) -> None:
    assert _reflected(side, border).tolist() == np.pad(np.arange(side), border, mode="reflect").tolist()
    assert _reflected(1, border).tolist() == [0] * (2 * border + 1)


@pytest.mark.parametrize("channels", [1, 3])
def test_jpeg_is_pillows_and_keeps_the_device_type(channels: int) -> None:
    images = IMAGES[:, :channels]
    found = jpeg(images, 50)
    pixels = (images[1] * 255).round().byte().permute(1, 2, 0).numpy()
    file = BytesIO()
    Image.fromarray(pixels[..., 0] if channels == 1 else pixels).save(file, "JPEG", quality=50)
    wanted = np.asarray(Image.open(file)).reshape(9, 8, channels)
    assert np.array_equal((found[1] * 255).round().byte().permute(1, 2, 0).numpy(), wanted)
    assert found.dtype == images.dtype and jpeg(images[:0]).shape == images[:0].shape
    with pytest.raises(UserError, match="channels"):
        jpeg(torch.rand(1, 2, 8, 8))


def energy(images: torch.Tensor, start: torch.Tensor, weight: float) -> torch.Tensor:
    across, down = torch.zeros_like(images), torch.zeros_like(images)
    across[..., :-1], down[..., :-1, :] = images.diff(dim=3), images.diff(dim=2)
    variation = (across.square() + down.square()).sqrt().sum((1, 2, 3))
    return (images - start).square().sum((1, 2, 3)) / 2 + weight * variation


def test_total_variation_lowers_its_energy_and_leaves_flat_images_alone() -> None:
    images = IMAGES.double()
    found = total_variation(images, 0.1, 200)
    assert bool((energy(found, images, 0.1) < 0.8 * energy(images, images, 0.1)).all())
    # no small change of it is better: it is the minimum
    for seed in range(5):
        moved = found + 1e-3 * torch.randn(
            found.shape, dtype=found.dtype, generator=torch.Generator().manual_seed(seed)
        )
        assert bool((energy(moved, images, 0.1) >= energy(found, images, 0.1) - 1e-6).all())
    flat = torch.full((1, 1, 6, 6), 0.3)
    assert torch.allclose(total_variation(flat), flat)


def test_one_step_of_total_variation_is_chambolles() -> None:
    """Two pixels, 1 apart: p = -s / (1 + s) with s = 1/8 of that over the weight, and the weight times p moves."""
    found = total_variation(torch.tensor([[[[0.0, 1.0]]]], dtype=torch.float64), 0.1, 1)
    assert found.flatten().tolist() == pytest.approx([1 / 18, 17 / 18])


def test_total_variation_is_the_minimum_that_scipy_finds() -> None:
    image = IMAGES[:1, :1, :4, :4].double()

    def fallen(values: np.ndarray) -> tuple[float, np.ndarray]:
        moved = torch.tensor(values).view(1, 1, 4, 4).requires_grad_()
        (found,) = energy(moved, image, 0.1)
        found.backward()
        assert moved.grad is not None
        return found.item(), moved.grad.nan_to_num().flatten().numpy()

    started = image.flatten().numpy() + 1e-3 * np.arange(16)
    wanted = min(minimize(fallen, start, jac=True).fun for start in (started, np.linspace(0.4, 0.6, 16)))
    assert float(energy(total_variation(image, 0.1, 1000), image, 0.1)) <= wanted + 1e-6


def test_deflection_takes_values_of_neighbours_and_a_share_of_them() -> None:
    images = torch.arange(30 * 30.0).view(1, 1, 30, 30).expand(20, 1, 30, 30) / 900
    key = torch.arange(20)
    found = deflected(images, key, 0.2, 2)
    moved = found != images
    assert 0.15 < float(moved.double().mean()) < 0.2  # 1 of 25 neighbours is the pixel itself
    number = (found * 900).round().long()[:, 0]
    rows, columns = number // 30, number % 30
    far = torch.stack([rows - torch.arange(30)[:, None], columns - torch.arange(30)]).flatten(1).T
    assert len(far.unique(dim=0)) == 25 and int(far.min()) == -2 and int(far.max()) == 2
    assert deflected(images, key, 0.0).equal(images)
    assert deflected(images[3:5], key[3:5], 0.2, 2).equal(found[3:5])
    assert not found[0].equal(found[1])


def test_channels_move_together() -> None:
    grey = torch.rand(4, 1, 10, 10).expand(4, 3, 10, 10)
    found = deflected(grey, torch.arange(4), 0.5)
    assert found[:, 0].equal(found[:, 1]) and found[:, 0].equal(found[:, 2])


def test_wavelets_without_noise_give_the_image_back_and_with_it_a_smoother_one() -> None:
    odd = IMAGES[..., :7]
    assert torch.allclose(wavelet_denoised(odd, 0.0), odd, atol=1e-6)
    flat = (0.5 + 0.05 * torch.randn(4, 1, 16, 16, generator=torch.Generator().manual_seed(0))).clamp(0, 1)
    assert float(wavelet_denoised(flat, 0.05).std()) < 0.7 * float(flat.std())


def test_wavelets_are_those_of_a_slow_form() -> None:
    """Haar's on blocks of 2 x 2: details are shrunk each by itself, and what that takes beyond white is cut."""
    images = torch.randint(0, 2, (2, 2, 6, 8), generator=torch.Generator().manual_seed(2)).double()
    haar = torch.tensor([[1, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]], dtype=torch.float64) / 2
    parts = images.unfold(2, 2, 2).unfold(3, 2, 2).flatten(4) @ haar
    details = [_shrunk(part, 0.3) for part in parts[..., 1:].unbind(-1)]
    back, wanted = torch.stack([parts[..., 0], *details], -1) @ haar, torch.empty_like(images)
    for at in range(4):
        wanted[..., at // 2 :: 2, at % 2 :: 2] = back[..., at]
    assert float(wanted.min()) < 0 and float(wanted.max()) > 1
    assert torch.allclose(wavelet_denoised(images, 0.3), wanted.clamp(0, 1), atol=1e-12)


def test_details_are_shrunk_by_the_noise_over_the_signal() -> None:
    details = 0.2 * torch.randn(1, 2, 8, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = _shrunk(details, 0.1)
    for at, one in enumerate(details[0]):
        limit = 0.01 / float(one.square().mean() - 0.01) ** 0.5  # Chang et al. 2000: the noise's variance over that
        wanted = [[max(abs(float(d)) - limit, 0) * (1 if d > 0 else -1) for d in row] for row in one]
        assert torch.allclose(found[0, at], torch.tensor(wanted, dtype=torch.float64), atol=1e-12)
    assert not _shrunk(0.05 * details, 0.1).any()  # nothing but noise


def test_the_key_is_a_function_of_the_picture() -> None:
    images = torch.rand(50, 1, 6, 6)
    key = key_of(images)
    assert len(key.unique()) == 50
    assert key_of(images[7:9]).equal(key[7:9])
    changed = images.clone()
    changed[:, :, 2, 3] += 1e-6
    assert bool((key_of(changed) != key).all())
    assert not bool((key_of(images.flip(3)) == key).any())


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda: bit_depth(IMAGES, 0), "bits"),
        (lambda: median(IMAGES, 1), "window"),
        (lambda: jpeg(IMAGES, 0), "quality"),
        (lambda: non_local_means(IMAGES[:, :1]), "non-local-means: images of 3 channels"),
        (lambda: non_local_means(IMAGES, 12), "non-local-means: two odd windows"),
        (lambda: non_local_means(IMAGES, 13, 2), "non-local-means: two odd windows"),
        (lambda: non_local_means(IMAGES, strength=0), "non-local-means: .* strength above 0"),
        (lambda: total_variation(IMAGES, 0), "total-variation"),
        (lambda: total_variation(IMAGES, float("nan")), "total-variation"),
        (lambda: deflected(IMAGES, torch.arange(3), 2.0), "deflection"),
    ],
)
def test_wrong_settings_are_named(call: object, field: str) -> None:
    with pytest.raises(UserError, match=field):
        call()  # type: ignore[operator]
