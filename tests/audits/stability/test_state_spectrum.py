# ruff: noqa: ARG005, N803 (X is the name of the contract, f(h, x) that of a step)

import numpy as np
import pytest
import torch
from torch import nn

from sostenuto.audits import state_spectrum
from sostenuto.nn import LipschitzRNN, UnICORNN
from tests.laws.audit_laws import AuditLaws
from tests.laws.recurrent import with_recurrence


class TestStateSpectrum(AuditLaws):
    def ask(self, model, X, y, **options):
        with with_recurrence(model):
            return state_spectrum(model, X, points=8, **options)


def test_eigenvalues_are_those_of_the_step():
    layer = nn.RNN(1, 4, bias=False, dtype=torch.float64)
    found = state_spectrum(layer, np.zeros((1, 5, 1)))
    want = torch.linalg.eigvals(layer.weight_hh_l0).abs().sort(descending=True).values
    got = np.hypot(found.eigenvalues_real, found.eigenvalues_imaginary)
    assert np.allclose(got, want.detach().numpy())
    assert found.data_radius == pytest.approx(found.radius)
    assert found.abscissa is None


def test_growth_of_a_map_that_is_not_normal_is_seen():
    matrix = torch.tensor([[0.9, 10.0], [0.0, 0.9]]).double()
    found = state_spectrum(lambda h, x: matrix @ h, start=[0.0, 0.0], steps=2)
    norms = [torch.linalg.matrix_norm(torch.linalg.matrix_power(matrix, k), 2).item() for k in range(101)]
    assert np.allclose(found.norms, norms)
    assert max(norms) == pytest.approx(found.peak)
    assert found.peak <= found.peak_bound <= 1.02 * found.peak
    assert found.kreiss <= found.peak_bound
    assert "rises to" in found.summary()


def test_norms_that_overflow_are_still_numbers():
    found = state_spectrum(lambda h, x: 1e9 * h, start=[0.0], steps=2)
    assert (found.peak, found.norms[-1]) == (None, 1e300)
    assert "do not decay" in found.summary()
    assert type(found).from_dict(found.to_dict()) == found


def test_a_step_that_is_too_long_is_told_from_an_unstable_equation():
    """A = −.1 I + 10 J is stable, and |1 + .03 λ| = 1.041 is not (docs/errata.md, erichson2021.4)."""
    found = {}
    for step in (0.001, 0.03):
        layer = LipschitzRNN(1, 2, beta=1.0, gamma=(0.1, 0.0), step_size=step, dtype=torch.float64)
        with torch.no_grad():
            layer.weight_linear_l0 = torch.tensor([[-0.1, 10.0], [-10.0, -0.1]], dtype=torch.float64)
            layer.weight_hh_l0 = torch.zeros(2, 2).double()
        found[step] = state_spectrum(layer, torch.zeros(1, 10, 1))
    assert found[0.001].abscissa == pytest.approx(-0.1)
    assert not found[0.001].steps_disagree
    assert found[0.03].data_radius == pytest.approx(1.041, abs=1e-3)
    assert found[0.03].steps_disagree
    assert "the step is too long" in found[0.03].summary()


def test_undamped_oscillators_are_neutral():
    found = state_spectrum(UnICORNN(1, 3, step_size=0.1), torch.zeros(1, 5, 1))
    assert found.radius == pytest.approx(1, abs=1e-9)
