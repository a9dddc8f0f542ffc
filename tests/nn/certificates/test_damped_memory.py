"""Damped oscillators: |λ|ⁿ of each unit, exactly, also over irregular time spans."""

import numpy as np
import pytest
import torch

from sostenuto.nn import DampedOscillators


def differences(layer, steps, timespans=None):
    x = torch.randn(steps, 4, 2, dtype=torch.float64)
    starts = [tuple(torch.randn(1, 4, 8, dtype=torch.float64) for _ in range(2)) for _ in range(2)]
    ends = [layer(x, start, timespans=timespans)[1] for start in starts]
    return (torch.hypot(*(a - b for a, b in zip(pair[0], pair[1], strict=True)))[0] for pair in (starts, ends))


def test_every_unit_keeps_exactly_its_share():
    torch.manual_seed(0)
    layer = DampedOscillators(2, 8, time_scales=(5.0, 100.0), dtype=torch.float64)
    found = layer.memory_certificate()
    before, after = differences(layer, 40)
    lives = -40 * np.log(2) / np.log((after / before).detach().numpy())
    assert np.allclose(lives, found.per_unit, rtol=1e-9)
    assert found.remembers_at_least == pytest.approx(min(found.per_unit), rel=1e-9)
    assert found.forgets_at_most == pytest.approx(max(found.per_unit), rel=1e-9)


def test_time_spans_are_covered():
    torch.manual_seed(0)
    layer = DampedOscillators(2, 8, time_scales=(5.0, 100.0), dtype=torch.float64)
    found = layer.memory_certificate(spans=(0.5, 2.0))
    before, after = differences(layer, 40, torch.rand(40, 4).double() * 1.5 + 0.5)
    low, high = found.curves([40], euclidean=True)
    share = (after.norm(dim=-1) / before.norm(dim=-1)).detach()
    assert low[0] <= float(share.min())
    assert float(share.max()) <= high[0]


def test_a_bounded_drive_gives_a_window():
    torch.manual_seed(0)
    layer = DampedOscillators(2, 8, time_scales=(2.0, 20.0), dtype=torch.float64)
    assert layer.memory_certificate().window(0.01).steps is None
    x = torch.randn(400, 50, 2, dtype=torch.float64)
    largest = float(layer.drive(0, False, [x]).detach().abs().max())
    window = layer.memory_certificate(drive=largest).window(0.01)
    assert 20 < window.steps < 400
    whole, cut = layer(x)[0][-1], layer(x[-window.steps :])[0][-1]
    assert 1e-6 < float((whole - cut).detach().norm(dim=-1).max()) <= 0.01
