# ruff: noqa: ARG005, N803, N806 (X is the name of the contract, f(h, x) that of a step)

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from sostenuto.audits import lyapunov_spectrum
from sostenuto.audits.stability.state_map import map_of_layer
from sostenuto.benchmarks import lorenz96_exponents
from sostenuto.checks import InputError
from sostenuto.data.tasks.lorenz96 import trajectories
from sostenuto.models.prediction import SequenceClassifier
from sostenuto.nn import GRU, LAYERS, LSTM, UnICORNN
from tests.laws.audit_laws import AuditLaws
from tests.laws.recurrent import with_recurrence


class TestLyapunovSpectrum(AuditLaws):
    def ask(self, model, X, y, **options):
        with with_recurrence(model):
            return lyapunov_spectrum(model, X, **options)


def test_lorenz96_has_the_published_exponents():
    """A short run: 1.67 to 1.69 and 27.1 are published; the long one is in results/lorenz96_exponents.json."""
    record = lorenz96_exponents.run(progress=False, starts=8, steps=800, washout=200)
    assert record["largest"] == pytest.approx(1.68, abs=4 * record["largest_standard_error"])
    assert record["largest_standard_error"] < 0.06
    assert record["kaplan_yorke"] == pytest.approx(27.1, rel=0.03)
    assert record["sum_of_exponents"] == pytest.approx(-40, abs=0.1)  # the divergence of the field


def test_lorenz96_is_stepped_as_the_data_are():
    first = lorenz96_exponents.first_states(2)
    want = trajectories(first.numpy(), lorenz96_exponents.STEP, 5, forcing=8.0)[:, -1]
    h = first
    for _ in range(5):
        h = torch.stack([lorenz96_exponents.step(row, torch.zeros(0)) for row in h])
    assert np.allclose(h.numpy(), want, rtol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_a_linear_recurrence_has_the_logarithms_of_its_eigenvalues(seed):
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(5, 5))
    values = np.array([1.3, 0.9, 0.6, 0.35, 0.2])
    matrix = torch.from_numpy(vectors @ np.diag(values) @ np.linalg.inv(vectors))
    found = lyapunov_spectrum(lambda h, x: matrix @ h, start=np.zeros(5), steps=400, washout=150)
    assert np.allclose(found.exponents, np.log(values), atol=1e-9)


def test_a_linear_module_has_the_logarithms_of_its_eigenvalues():
    class Linear(nn.Module):
        input_size = 1

        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.tensor([[0.5, 0.3], [-0.4, 0.8]]))

        def step(self, x, state):
            state = x.new_zeros(len(x), 2) if state is None else state
            moved = state @ self.weight.T + x
            return moved, moved

    model = Linear()
    found = lyapunov_spectrum(model, torch.randn(2, 3000, 1), washout=100)
    modulus = torch.linalg.eigvals(model.weight.double()).abs().max().item()
    assert found.exponents == pytest.approx([np.log(modulus)] * 2, abs=2e-3)  # a pair that turns: equal exponents
    assert found.state_size == 2


def test_a_switched_off_direction_is_counted_as_lost():
    found = lyapunov_spectrum(lambda h, x: torch.stack([0.5 * h[0], 0 * h[1]]), start=[1.0, 1.0], steps=10)
    assert found.exponents[1] < -600
    assert type(found).from_dict(found.to_dict()) == found


@pytest.mark.parametrize("unit", [nn.LSTM, nn.GRU, nn.RNN, LSTM, GRU])
@pytest.mark.parametrize("num_layers", [1, 2])
def test_torch_units_agree_with_jacrev_of_their_cell(unit, num_layers):
    torch.manual_seed(0)
    layer = unit(2, 3, num_layers=num_layers, batch_first=True)
    found = map_of_layer(layer)
    h, x = torch.randn(4, found.state_size).double(), torch.randn(4, 2).double()
    jacobian = found.jacobian(h, x)
    change = 1e-6 * torch.randn(4, found.state_size).double()
    moved = (found.advance(h + change, x) - found.advance(h - change, x)) / 2
    assert torch.allclose(moved, (jacobian @ change[..., None])[..., 0], atol=1e-12, rtol=1e-5)
    double = layer.double()
    parts = found.advance(h, x)
    rows = parts.unflatten(1, (-1, num_layers, 3))
    output, _ = double(x[:, None], _state(h, num_layers, unit))
    assert torch.allclose(output[:, 0], rows[:, 0, -1])


def _state(h, num_layers, unit):
    parts = h.unflatten(1, (-1, num_layers, 3)).permute(1, 2, 0, 3).contiguous()
    return (parts[0], parts[1]) if "LSTM" in unit.__name__ else parts[0]


def test_cells_are_accepted():
    found = lyapunov_spectrum(nn.LSTMCell(2, 3), torch.randn(2, 30, 2))
    assert len(found.exponents) == 6
    assert found.verdict == "contracting"


@pytest.mark.parametrize("name", sorted(LAYERS))
def test_every_layer_of_this_library_is_accepted(name):
    torch.manual_seed(0)
    layer = LAYERS[name](2, 3, num_layers=2)
    found = lyapunov_spectrum(layer, torch.randn(2, 20, 2))
    assert len(found.exponents) == 2 * layer.state_size


def test_undamped_oscillators_keep_volume():
    """A symplectic map: exponents come in pairs that cancel."""
    found = lyapunov_spectrum(UnICORNN(1, 3, step_size=0.1), torch.randn(2, 200, 1))
    assert sum(found.exponents) == pytest.approx(0, abs=1e-12)


def test_a_model_is_audited_as_its_layer_and_lengths_count():
    torch.manual_seed(0)
    model = SequenceClassifier(GRU(2, 4, batch_first=True), num_classes=3)
    X = [torch.randn(length, 2) for length in (30, 12, 21)]
    inside, bare = lyapunov_spectrum(model, X), lyapunov_spectrum(model.layer, X)
    assert inside.exponents == pytest.approx(bare.exponents, abs=1e-6)
    assert (inside.model, inside.counted_steps) == ("SequenceClassifier", 63)
    alone = [lyapunov_spectrum(model.layer, [x]) for x in X]
    weighted = sum(np.array(one.exponents) * one.counted_steps for one in alone) / 63
    assert weighted[0] == pytest.approx(bare.exponents[0], abs=1e-9)
    assert sum(weighted) == pytest.approx(sum(bare.exponents), abs=1e-9)  # the determinants: of no order
    padded = nn.utils.rnn.pad_sequence(X, batch_first=True)
    assert lyapunov_spectrum(model.layer, padded, lengths=[30, 12, 21]) == bare


def test_fewer_exponents_are_the_largest():
    layer, X = GRU(1, 5, dtype=torch.float64), torch.randn(2, 60, 1)
    few, all_of_them = lyapunov_spectrum(layer, X, count=2, washout=20), lyapunov_spectrum(layer, X, washout=20)
    assert few.exponents[0] == pytest.approx(all_of_them.exponents[0], rel=0.05)
    assert len(few.exponents) == 2


FLAT = np.zeros((1, 5, 1))


@pytest.mark.parametrize(
    ("model", "X", "options", "message"),
    [
        (nn.TransformerEncoderLayer(2, 1, 4), FLAT, {}, "one recurrent layer, whose state can be followed, got 0 in"),
        (nn.LSTM(1, 2, bidirectional=True), FLAT, {}, "expected a one-directional layer, got a bidirectional LSTM"),
        (nn.ModuleList([nn.GRU(1, 2), nn.GRU(1, 2)]), FLAT, {}, "got 2 in ModuleList"),
        (nn.ModuleList([nn.GRUCell(1, 2)]), FLAT, {}, "whole sequences, got the cell GRUCell inside ModuleList"),
        (nn.GRU(3, 2), FLAT, {}, "expected 3 channels (input_size), got 1"),
        (nn.GRU(1, 2), FLAT, {"count": 3}, "expected at most 2 exponents"),
        (nn.GRU(1, 2), FLAT, {"washout": 5}, "expected washout below 5"),
        (nn.GRU(1, 2), None, {}, "expected data X for a module, got None"),
        (lambda h, x: h, None, {}, "expected a first state for a function f(h, x), got none"),
        (lambda h, x: h, None, {"start": [1.0]}, "expected data X or a number of steps, got neither"),
        (lambda h, x: h[:1], None, {"start": [1.0, 2.0], "steps": 2}, "to return a state of shape (2,)"),
        (lambda h, x: 1e300 * h, None, {"start": [1.0], "steps": 5}, "expected finite states along the data"),
    ],
)
def test_what_cannot_be_followed_is_refused(model, X, options, message):
    with pytest.raises(InputError) as caught:
        lyapunov_spectrum(model, X, **options)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("layer", [torch.nn.LSTM(2, 12), torch.nn.GRU(2, 24)])
def test_products_with_the_jacobian_are_those_of_the_whole_matrix(layer):
    from sostenuto.audits.stability.state_map import map_of_layer

    step = map_of_layer(layer)
    h, x = torch.randn(3, 24).double(), torch.randn(3, 2).double()
    frame = torch.randn(3, 24, 4).double()
    torch.testing.assert_close(step.carry(h, x, frame), step.jacobian(h, x) @ frame)


def test_an_exponent_with_a_wide_interval_is_not_said_to_be_neutral():
    found = lyapunov_spectrum(lambda h, x: 0.9 * h, start=[[1.0], [1.0]], steps=50)
    assert "small changes of the state fade" in found.summary()
    wide = replace(found, standard_error=(1.0,))
    assert "small changes of the state may grow or fade" in wide.summary()
    narrow = replace(found, exponents=(1e-5,), standard_error=(1e-4,))
    assert "small changes of the state neither grow nor fade" in narrow.summary()
