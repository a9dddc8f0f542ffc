"""What one sequence brings to all its pairs: its variances at every layer and step, kept so that no step overflows.

With q the variance Σ^(ℓ,t,t)(x, x) and r its normalization, a pair needs d = σ_w·unit_{t−1}·r_t, inputs σ_u x_t r_t/√m
(layer 1) or σ_u·unit^{ℓ−1}·r (above), and the bias σ_b r: bounded numbers, whatever q is. A rectifier's q may leave
float64 (σ_w = 1.47 does near 9000 steps), so it is held as a number near 1 and a power of 4.
"""

import math
from dataclasses import dataclass, fields
from typing import Any

import torch
from jaxtyping import Float64
from torch import Tensor

from sostenuto.checks import require
from sostenuto.ops.recurrent_ntk.duals import Dual, Moments
from sostenuto.ops.recurrent_ntk.scales import Scales

Rows = Float64[Tensor, "n time"]
LARGEST = 1e300
"""Variances of activations that are not scale-free must stay below."""


@dataclass(frozen=True)
class LayerProfile:
    """One layer's share: ``recurrent`` d, ``inputs`` (layer 1) or ``below`` (above it), ``bias``, and the moments."""

    recurrent: Rows
    inputs: Float64[Tensor, "n time channel"] | None
    below: Rows | None
    below_root: Rows | None
    """α of the layer below, at the same step."""
    bias: Rows
    before: Rows
    """α of the step before: of the start at the first step."""
    moments: Moments


@dataclass(frozen=True)
class Profile:
    """Sequences of one length, ready to be paired."""

    layers: tuple[LayerProfile, ...]
    log_unit: Rows
    """log of σ_v times the top layer's unit: a value is exp(log_unit_x + log_unit_y) times what pairs give."""
    nngp: Rows
    """A(x, x) of the top layer at every step."""
    ntk: Rows
    """A(x, x) + A′(x, x)·Θ(x, x) of the top layer at every step."""

    @property
    def steps(self) -> int:
        """The common length."""
        return self.nngp.shape[1]

    def select(self, n: int) -> "Profile":
        """Take the n-th sequence alone."""
        layers = tuple(_selected(layer, n) for layer in self.layers)
        return Profile(layers, self.log_unit[n : n + 1], self.nngp[n : n + 1], self.ntk[n : n + 1])


def profile(x: Float64[Tensor, "n time channel"], scales: Scales, dual: Dual) -> Profile:
    """Run the variances of alemohammad2021, eqs. (13)–(14), (errata, alemohammad2021.2), through time and layers."""
    drive = x * (1 / math.sqrt(x.shape[2]))
    layers: list[LayerProfile] = []
    exponents, below, tangent = torch.zeros(x.shape[:2], dtype=torch.float64), None, None
    for index in range(len(scales.w)):
        layer, exponents, tangent = _layer(
            index, drive if index == 0 else None, below, exponents, tangent, scales, dual
        )
        layers.append(layer)
        below = layer.moments
    top = layers[-1].moments
    covariance = top.root**2
    there = top.unit * scales.v > 0
    units = torch.log(torch.where(there, top.unit * scales.v, 1.0)) + exponents * math.log(2)
    log_unit = torch.where(there, units, -math.inf)
    assert tangent is not None
    return Profile(tuple(layers), log_unit, covariance, covariance + tangent)


def _layer(
    index: int,
    drive: Tensor | None,
    below: Moments | None,
    below_exponents: Rows,
    below_tangent: Rows | None,
    scales: Scales,
    dual: Dual,
) -> tuple[LayerProfile, Rows, Rows]:
    """Run one layer; return it, the exponents of its units, and A′Θ(x, x) at every step."""
    w, u, b, h = (group[index] for group in (scales.w, scales.u, scales.b, scales.h))
    count, steps = below_exponents.shape
    unit = (h / dual.start_root).expand(count)
    root = torch.full((count,), dual.start_root, dtype=torch.float64)
    exponent, tangent = torch.zeros(count, dtype=torch.float64), torch.zeros(count, dtype=torch.float64)
    rows: list[tuple[Tensor, ...]] = []
    for t in range(steps):
        above = u * below.unit[:, t] * below.root[:, t] if below is not None else None
        incoming = u * drive[:, t] if drive is not None else above[:, None]  # pyright: ignore[reportOptionalSubscript]
        shift = _exponent(dual, w * unit * root, exponent, incoming, below_exponents[:, t], b)
        carried = w * unit * _power(exponent - shift)
        entering = incoming * _power(below_exponents[:, t] - shift)[:, None]
        offset = b * _power(-shift)
        variance = (carried * root) ** 2 + (entering**2).sum(1) + offset**2
        _check(variance.detach(), t, index)
        moments = dual.moments(variance)
        r = moments.inverse
        lower = (
            torch.zeros_like(r) if below is None else u * below.unit[:, t] * _power(below_exponents[:, t] - shift) * r
        )
        theta = variance * r**2 + (carried * r) ** 2 * tangent
        if below_tangent is not None:
            theta = theta + lower**2 * below_tangent[:, t]
        tangent = moments.slope * torch.where(variance > 0, theta, 0.0)
        step = (carried * r, lower, offset * r, root, tangent, shift)
        rows.append((*step, moments.inverse, moments.gap, moments.root, moments.slope, moments.unit))
        rows[-1] += (entering * r[:, None],) + ((moments.coefficients,) if moments.coefficients is not None else ())
        unit, root, exponent = moments.unit, moments.root, shift
    d, e, bias, before, tangents, shifts, *parts = (torch.stack(column, 1) for column in zip(*rows, strict=True))
    inverse, gap, entry, slope, scale = parts[:5]
    kept = Moments(inverse, gap, entry, slope, scale, parts[6] if len(parts) > 6 else None)
    entered = (parts[5], None, None) if below is None else (None, e, below.root)
    return LayerProfile(d, *entered, bias, before, kept), shifts, tangents


def _check(variance: Tensor, step: int, layer: int) -> None:
    largest = float(variance.max())
    require(
        largest < LARGEST,
        f"expected variances below {LARGEST:g}",
        f"got {largest:.3g} at step {step + 1} of layer {layer + 1}",
        "scale the inputs or σ down, or take activation='relu'",
    )


def _selected(record: Any, n: int) -> Any:
    """Take row n of every tensor of a record, and of the records in it."""
    result = {}
    for field in fields(record):
        value = getattr(record, field.name)
        result[field.name] = (
            value if value is None else value[n : n + 1] if isinstance(value, Tensor) else _selected(value, n)
        )
    return type(record)(**result)


def _exponent(
    dual: Dual, carried: Tensor, carried_exponent: Tensor, incoming: Tensor, incoming_exponent: Tensor, bias: Tensor
) -> Tensor:
    """Choose the power of 2 that brings the largest contribution to a standard deviation between ½ and 1."""
    if not dual.scale_free:
        return torch.zeros_like(carried_exponent)
    largest = incoming.detach().abs().amax(1)
    candidates = torch.stack(
        [
            _binary(carried) + carried_exponent,
            _binary(largest) + incoming_exponent,
            _binary(bias.detach().expand_as(carried)),
        ]
    )
    best = candidates.amax(0)
    return torch.where(torch.isinf(best), 0.0, best)


def _binary(value: Tensor) -> Tensor:
    """Return the exponent of 2 of each number, −∞ for 0."""
    value = value.detach()
    return torch.where(value == 0, -math.inf, torch.frexp(value).exponent.to(torch.float64))


def _power(exponent: Tensor) -> Tensor:
    """Return 2^exponent; beyond float64's range the nearest end, beside which the other terms decide."""
    return torch.exp2(exponent.clamp(-1074, 1023))
