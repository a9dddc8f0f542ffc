import math
import re

import numpy as np
import pytest
import torch
from torch import nn

from sostenuto.audits.memory.function import memory_function
from sostenuto.checks import InputError
from sostenuto.nn import UnICORNN
from tests.laws.audit_laws import AuditLaws

PROBES = ["heaviside", "impulse", "reversed"]


class Convolution(nn.Module):
    """The linear functional y_t = Σ_s ρ(s) x_(t−s) + bias, at every step or at the end."""

    def __init__(self, rho, bias=0.0, at_end=False):
        super().__init__()
        self.rho, self.bias, self.at_end = nn.Parameter(rho), bias, at_end

    def forward(self, x):
        steps = x.shape[1]
        rho = torch.cat([self.rho, self.rho.new_zeros(max(steps - len(self.rho), 0), *self.rho.shape[1:])])
        lag = torch.arange(steps)[:, None] - torch.arange(steps)
        seen = rho[lag.clamp(min=0)] * (lag >= 0)[..., None, None]
        y = torch.einsum("stoc,btc->bso", seen, x) + self.bias
        return y[:, -1] if self.at_end else y


class ScaledTanh(nn.Module):
    """h ← h + ε tanh(W h + u x): wang2024, figure 11b."""

    def __init__(self, weight, step=0.1):
        super().__init__()
        self.weight, self.step = nn.Parameter(torch.tensor(weight, dtype=torch.float64)), step

    def forward(self, x):
        h, states = x.new_zeros(len(x), len(self.weight)), []
        for t in range(x.shape[1]):
            h = h + self.step * torch.tanh(h @ self.weight.T + x[:, t])
            states.append(h)
        return torch.stack(states, 1)


class Reading(nn.Module):
    def __init__(self, layer, at_end=False):
        super().__init__()
        width = layer.hidden_size * (2 if layer.bidirectional else 1)
        self.layer, self.head, self.at_end = layer, nn.Linear(width, 2), at_end

    def forward(self, x):
        scores = self.head(self.layer(x)[0])
        return scores[:, -1] if self.at_end else scores


class TestLaws(AuditLaws):
    # No data are asked about: these laws have nothing to hold of.
    test_the_result_says_how_to_get_it_again = None
    test_bad_values_are_refused_by_index = None
    test_runs_in_the_models_precision = None
    test_arrays_are_tensors = None

    def ask(self, model, X, y, **options):  # noqa: N803
        return memory_function(model, X.shape[1] - 1, input_size=X.shape[2], search_steps=1, **options)


def polynomial(outputs=2, channels=3, steps=121, power=1.5):
    generator = torch.Generator().manual_seed(5)
    coefficients = torch.randn(1, outputs, channels, generator=generator, dtype=torch.float64)
    return coefficients * (torch.arange(steps, dtype=torch.float64) + 1)[:, None, None] ** -power


@pytest.mark.parametrize("at_end", [False, True])
@pytest.mark.parametrize("probe", PROBES)
def test_a_linear_model_is_measured_exactly(probe, at_end):
    rho = polynomial()
    found = memory_function(Convolution(rho, bias=3.0, at_end=at_end), 120, input_size=3, probe=probe)
    assert found.linear
    assert found.causal
    expected = rho.abs().sum(-1).amax(-1).numpy()
    np.testing.assert_allclose(found.memory, expected[list(found.lags)], rtol=1e-9)
    assert found.kind == "polynomial"
    assert found.rate == pytest.approx(1.5, rel=1e-3)


def test_the_probes_agree_on_a_model_that_is_nearly_linear():
    torch.manual_seed(0)
    model = Reading(nn.GRU(2, 8, batch_first=True)).double()
    options = {"input_size": 2, "amplitudes": (1e-4,), "lead": 60, "search_steps": 2}
    found = [memory_function(model, 40, probe=probe, **options) for probe in PROBES]
    for other in found[1:]:
        np.testing.assert_allclose(other.memory[:20], found[0].memory[:20], rtol=0.02)
        assert (other.kind, other.rate) == ("exponential", pytest.approx(found[0].rate, rel=0.05))


def test_small_inputs_decay_where_large_ones_do_not():
    found = memory_function(
        ScaledTanh([[1.0, 1.0], [-4.0, -3.0]]), 400, input_size=2, amplitudes=(0.01, 5.0), search_steps=2
    )
    small, large = found.by_amplitude
    assert small.tail.kind == "exponential"
    assert small.tail.rate == pytest.approx(-math.log(0.9), rel=0.1)
    assert large.tail.kind == "non-decaying"
    assert not found.agrees
    assert "depends on the size of the input" in found.summary()
    assert "not decaying within the horizon for inputs of size 5" in found.summary()


def test_the_search_reaches_the_best_corner_of_many_channels():
    """A gate that opens for one corner of 8 channels only: neither axes nor their signs show it."""
    best = torch.tensor([1.0, -1, 1, 1, -1, 1, -1, -1])

    class Gate(nn.Module):
        def forward(self, x):
            return (x @ best).pow(3).cumsum(1)[..., None] * 1e-2

    found = memory_function(Gate(), 5, input_size=8, amplitudes=(1.0,))
    assert not found.linear
    assert found.memory[0] == pytest.approx(512e-2, rel=1e-5)


def test_a_model_that_looks_ahead_is_said_to():
    torch.manual_seed(1)
    found = memory_function(Reading(nn.GRU(1, 6, batch_first=True, bidirectional=True)), 30, input_size=1)
    assert not found.causal
    assert "looks ahead" in found.summary()
    assert not memory_function(Reading(nn.GRU(1, 6, batch_first=True)), 30, input_size=1).summary().count("ahead")


def test_an_undamped_oscillator_does_not_forget():
    torch.manual_seed(2)
    found = memory_function(Reading(UnICORNN(1, 16, batch_first=True)), 300, input_size=1, amplitudes=(1.0,))
    assert found.kind in ("non-decaying", "periodic", "no law")
    assert found.half_life is None
    assert re.search(r"\d\u202f% of it is still there 300 steps later", found.summary())


def test_half_life_in_the_unit_of_the_data():
    rho = 0.5 ** (torch.arange(41, dtype=torch.float64) / 8)[:, None, None]
    found = memory_function(Convolution(rho), 40, input_size=1, time_step=0.25, time_unit="seconds")
    assert found.half_life == pytest.approx(8.0)
    assert found.half_time == pytest.approx(2.0)
    assert "half of it is gone after 2 seconds" in found.summary()


def test_long_horizons_of_models_that_answer_at_the_end_are_thinned():
    rho = torch.exp(-0.01 * torch.arange(601, dtype=torch.float64))[:, None, None]
    found = memory_function(Convolution(rho, at_end=True), 600, input_size=1)
    assert len(found.lags) < 200
    assert found.lags[-1] == 600
    assert (found.kind, found.rate) == ("exponential", pytest.approx(0.01, rel=1e-3))


def test_a_model_that_needs_lengths_gets_them():
    class Needs(nn.Module):
        def forward(self, x, lengths):
            return x[torch.arange(len(x)), lengths - 1]

    assert memory_function(Needs(), 10, input_size=1).kind == "finite"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"horizon": 2}, "expected horizon to be a whole number of at least 4, got 2"),
        ({"probe": "step"}, "expected probe to be one of 'heaviside', 'impulse', 'reversed', got 'step'"),
        ({"amplitudes": ()}, "expected at least one amplitude, got none"),
        ({"amplitudes": (1.0, -1.0)}, "expected amplitude to be a finite number above 0, got -1.0"),
        ({"time_step": 0.0}, "expected time_step to be a finite number above 0"),
    ],
)
def test_bad_options_are_refused(options, message):
    settings = {"horizon": 10, "input_size": 1, **options}
    with pytest.raises(InputError, match=message):
        memory_function(Convolution(polynomial(1, 1)), **settings)


class CausalFFT(nn.Module):
    """A causal convolution by way of the spectrum: rounding spreads to earlier steps."""

    def forward(self, x):
        steps = x.shape[1]
        kernel = torch.fft.rfft(0.9 ** torch.arange(steps, dtype=x.dtype), 2 * steps)[None, :, None]
        return torch.fft.irfft(torch.fft.rfft(x, 2 * steps, dim=1) * kernel, 2 * steps, dim=1)[:, :steps]


def test_rounding_is_no_look_ahead():
    found = memory_function(CausalFFT(), 100, input_size=1)
    assert found.causal
    assert found.half_life == pytest.approx(6.6, abs=0.1)


def test_a_low_level_that_stays_is_not_called_half():
    rho = 0.5 ** torch.arange(81, dtype=torch.float64)[:, None, None] + 1e-3
    found = memory_function(Convolution(rho), 80, input_size=1)
    assert found.kind == "exponential"
    assert found.half_life == pytest.approx(1, abs=0.1)
    assert "down to a floor of 0.1\u202f%" in found.summary()
    constant = memory_function(Convolution(torch.ones(81, 1, 1, dtype=torch.float64)), 80, input_size=1)
    assert "100\u202f% of it is still there 80 steps later" in constant.summary()


def test_a_baseline_takes_the_place_of_silence():
    """A gate that is shut in silence and open on the data."""

    class Gate(nn.Module):
        def forward(self, x):
            return (x[..., :1] * (x[..., 1:] > 0.5)).cumsum(1)

    baseline = torch.tensor([0.0, 1.0]).expand(41, 2)
    options = {"horizon": 40, "input_size": 2, "probe": "impulse", "amplitudes": (0.1,), "search_steps": 0}
    assert memory_function(Gate(), **options).memory[-1] == 0
    assert memory_function(Gate(), baseline=baseline, **options).memory[-1] == pytest.approx(1)
    with pytest.raises(InputError, match=r"expected a baseline of shape \(41, 2\), got \(3, 2\)"):
        memory_function(Gate(), baseline=baseline[:3], **options)
