"""Contributions in plain Python, one sample, neuron and place at a time: what the fast ones must equal."""

import torch
from torch import Tensor


def sign(number: float) -> int:
    return (number > 0) - (number < 0)


def dense(given: list[float], moved_out: list[float], moved_in: list[float], weight: Tensor, groups: int = 1):
    """Formula 2 of DARE for one sample: what goes on to the inputs; signs and real values of the synapses."""
    outs, ins = weight.shape
    back = [0.0] * (ins * groups)
    signs, reals = torch.zeros(outs, ins, dtype=torch.float64), torch.zeros(outs, ins, dtype=torch.float64)
    for n in range(outs):
        for h in range(ins):
            source = n // (outs // groups) * ins + h
            contribution = given[n] * moved_out[n] * float(weight[n, h]) * moved_in[source]
            signs[n, h], reals[n, h] = sign(contribution), contribution
            back[source] += sign(contribution)
    return back, signs, reals


def term(given: list[float], moved_sum: list[float], moved_term: list[float]) -> list[float]:
    """A term of a sum, channel by channel."""
    return [sign(g * s * t) for g, s, t in zip(given, moved_sum, moved_term, strict=True)]


def kept_signs(terms: list[float], theta: float) -> list[int]:
    """NNSlicer's choice among the terms of one sum."""
    total, prefix, last = sum(terms), 0.0, 0.0
    if abs(total) <= 1e-6 * sum(map(abs, terms)):
        return [0] * len(terms)
    for one in sorted(terms, key=abs, reverse=True):
        prefix, last = prefix + one, abs(one)
        if abs(prefix - total) <= theta * abs(total):
            break
    return [sign(one) * sign(total) if abs(one) >= 0.99 * last else 0 for one in terms]


def convolved(given: Tensor, moved: Tensor, weight: Tensor, theta: float, stride: int = 1, padding: int = 0):
    """One sample through a convolution (groups 1) at every place: back `[in, H, W]` and synapses `[out, in]`."""
    outs, ins, kernel, _ = weight.shape
    _, high, wide = moved.shape
    back, signs = torch.zeros_like(moved), torch.zeros(outs, ins, dtype=moved.dtype)
    for o in range(outs):
        for row in range(given.shape[1]):
            for column in range(given.shape[2]):
                if given[o, row, column] == 0:
                    continue
                places, terms = [], []
                for i in range(ins):
                    for a in range(kernel):
                        for b in range(kernel):
                            y, x = row * stride + a - padding, column * stride + b - padding
                            if 0 <= y < high and 0 <= x < wide:
                                places.append((i, y, x))
                                terms.append(float(weight[o, i, a, b] * moved[i, y, x]))
                for (i, y, x), kept in zip(places, kept_signs(terms, theta), strict=True):
                    back[i, y, x] += kept * sign(float(given[o, row, column]))
                    signs[o, i] += kept * sign(float(given[o, row, column]))
    return back, signs


def linear(given: Tensor, moved: Tensor, weight: Tensor, theta: float):
    """One sample through a Linear: back `[in]` and synapses `[out, in]`."""
    back, signs = convolved(given[:, None, None], moved[:, None, None], weight[:, :, None, None], theta)
    return back[:, 0, 0], signs


def windows(size: int, kernel: int, stride: int) -> list[tuple[int, range]]:
    """Windows of a pool without padding: number and rows (or columns)."""
    return [(at, range(start, start + kernel)) for at, start in enumerate(range(0, size - kernel + 1, stride))]


def max_pooled(given: Tensor, values: Tensor, kernel: int, stride: int) -> Tensor:
    back = torch.zeros_like(values)
    for c in range(len(values)):
        for row, ys in windows(values.shape[1], kernel, stride):
            for column, xs in windows(values.shape[2], kernel, stride):
                top = max(float(values[c, y, x]) for y in ys for x in xs)
                for y in ys:
                    for x in xs:
                        back[c, y, x] += given[c, row, column] * (float(values[c, y, x]) == top)
    return back


def mean_pooled(given: Tensor, moved: Tensor, kernel: int, stride: int, theta: float) -> Tensor:
    back = torch.zeros_like(moved)
    for c in range(len(moved)):
        for row, ys in windows(moved.shape[1], kernel, stride):
            for column, xs in windows(moved.shape[2], kernel, stride):
                places = [(y, x) for y in ys for x in xs]
                kept = kept_signs([float(moved[c, y, x]) for y, x in places], theta)
                for (y, x), one in zip(places, kept, strict=True):
                    back[c, y, x] += one * sign(float(given[c, row, column]))
    return back
