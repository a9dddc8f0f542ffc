import math

import pytest
import torch

from sostenuto.checks import InputError
from sostenuto.nn import DampedOscillators
from tests.laws.layer_laws import LayerLaws
from tests.nn.plain import count

F64 = torch.float64


class TestDampedOscillators(LayerLaws):
    cls = DampedOscillators


class TestDampedOscillatorsWithoutBias(LayerLaws):
    cls = DampedOscillators
    options = {"bias": False, "time_scales": (2.0, 20.0)}


def loop(layer, x, spans):
    """The exact solution by torch's matrix exponential, one unit and one step at a time."""
    rate = torch.complex(-layer.decay(), layer.frequency())
    force = torch.sqrt(1 - torch.exp(-2 * layer.decay())) * (x @ layer.weight_ih_l0.T + layer.bias_ih_l0)
    s, outputs = torch.zeros(x.shape[1], layer.hidden_size, dtype=torch.complex128), []
    real, imaginary = layer.weight_hr_l0.chunk(2)
    for u, span in zip(force, spans, strict=True):
        power = torch.exp(rate * span[:, None])
        s = power * s + (power - 1) / rate * u
        outputs.append(real * s.real + imaginary * s.imag)
    return torch.stack(outputs), s


@pytest.mark.parametrize("regular", [True, False])
def test_equals_the_exact_solution_with_every_gradient(regular):
    layer = DampedOscillators(3, 5, dtype=F64)
    torch.nn.init.normal_(layer.bias_ih_l0)
    x = torch.randn(30, 2, 3, dtype=F64, requires_grad=True)
    spans = torch.ones(30, 2, dtype=F64) if regular else (3 * torch.rand(30, 2, dtype=F64)).requires_grad_()
    wanted = [x, *layer.parameters(), *([] if regular else [spans])]
    expected, last = loop(layer, x, spans)
    output, (y, z) = layer(x, timespans=None if regular else spans)
    torch.testing.assert_close(output, expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(torch.complex(y[0], z[0]), last, rtol=1e-9, atol=1e-9)
    weight = torch.randn_like(expected)
    pairs = zip(*(torch.autograd.grad((each * weight).sum(), wanted) for each in (output, expected)), strict=True)
    for got, other in pairs:
        torch.testing.assert_close(got, other, rtol=1e-8, atol=1e-8)


def test_a_step_in_two_halves_is_one_step():
    """The solution is exact: where the input is held, cutting a span changes nothing."""
    layer, x = DampedOscillators(2, 6, dtype=F64), torch.randn(4, 1, 2, dtype=F64)
    _, whole = layer(x, timespans=2.0)
    _, halves = layer(x.repeat_interleave(2, 0), timespans=1.0)
    for one, other in zip(whole, halves, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


def test_vector_field_is_the_derivative():
    layer, x = DampedOscillators(2, 6, dtype=F64), torch.randn(1, 3, 2, dtype=F64)
    start = tuple(torch.randn(1, 3, 6, dtype=F64) for _ in range(2))
    h = torch.cat([part[0] for part in start], dim=-1)
    _, after = layer(x, start, timespans=1e-6)
    moved = torch.cat([part[0] for part in after], dim=-1)
    torch.testing.assert_close((moved - h) / 1e-6, layer.vector_field(h, x[0]), rtol=1e-4, atol=1e-4)


def test_time_scales_at_the_start_and_states_of_white_noise():
    torch.manual_seed(0)
    layer = DampedOscillators(64, 64, time_scales=(2.0, 500.0))
    scales = 1 / layer.decay()
    assert scales[0].item() == pytest.approx(2.0, rel=1e-4)
    assert scales[-1].item() == pytest.approx(500.0, rel=1e-4)
    assert ((1 / scales - 1e-6 <= layer.frequency()) & (layer.frequency() <= math.pi + 1e-5)).all()
    output, (y, z) = layer(torch.randn(2000, 8, 64))
    power = (y**2 + z**2).mean((0, 1))
    assert 0.1 < power.min() < power.max() < 3
    assert 0.5 < output[1000:].std() < 1.5
    assert count(layer) == 64 * (64 + 5)


def test_certificates_are_the_slowest_decay():
    layer = DampedOscillators(2, 16, dtype=F64)
    slowest = layer.decay().min().item()
    assert layer.certificate("contraction").rate == pytest.approx(slowest)
    assert layer.certificate("discrete", spans=(0.5, 2.0)).rate == pytest.approx(0.5 * slowest)
    assert not layer.certificate("lure").holds
    starts = [tuple(torch.randn(1, 1, 16, dtype=F64) for _ in range(2)) for _ in range(2)]
    x = torch.randn(100, 1, 2, dtype=F64)
    ends = [torch.cat(layer(x, start)[1]) for start in starts]
    apart = (torch.cat(starts[0]) - torch.cat(starts[1])).norm()
    assert (ends[0] - ends[1]).norm() <= math.exp(-100 * layer.certificate("discrete").rate) * apart


@pytest.mark.parametrize("wrong", [(0.0, 10.0), (10.0, 1.0)])
def test_time_scales_are_checked(wrong):
    with pytest.raises(InputError, match="time_scales"):
        DampedOscillators(2, 3, time_scales=wrong)
