"""The recurrent NTK against random networks: the one check that knows nothing of the derivation."""

import numpy as np
import pytest

from sostenuto.benchmarks.recurrent_ntk_monte_carlo import ACTIVATIONS, SIGMAS, finite_kernels, sequences
from sostenuto.kernels import RecurrentNTK

WIDTH, DRAWS = 256, 64
BIAS = 4.0 / WIDTH
"""A finite width shifts the mean by a term of order 1/n; in units of √(k(x,x) k(y,y)) it is allowed so much."""


@pytest.mark.parametrize("name", list(ACTIVATIONS))
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_agrees_with_finite_networks(layers, name):
    x = sequences()
    for kind, samples in zip(("ntk", "nngp"), finite_kernels(x, layers, name, WIDTH, DRAWS), strict=True):
        limit = RecurrentNTK(layers, ACTIVATIONS[name][0], **SIGMAS, kind=kind)(x)
        error = samples.std(axis=0, ddof=1) / np.sqrt(DRAWS)
        allowed = 3 * error + BIAS * np.sqrt(np.outer(np.diag(limit), np.diag(limit)))
        far = np.abs(samples.mean(axis=0) - limit) > allowed
        assert not far.any(), (kind, np.argwhere(far), samples.mean(axis=0)[far], limit[far], error[far])


def test_error_falls_as_the_root_of_the_width():
    """Figure 2 of alemohammad2021."""
    x = sequences()[2:4]
    limit = RecurrentNTK(1, "relu", **SIGMAS)(x)
    widths, errors = (32, 128, 512), []
    for width in widths:
        samples = finite_kernels(x, 1, "relu", width, 60)[0]
        errors.append(np.sqrt(((samples / limit - 1) ** 2).mean()))
    assert np.polyfit(np.log(widths), np.log(errors), 1)[0] == pytest.approx(-0.5, abs=0.1)


def test_a_wrong_kernel_would_be_noticed():
    """Without the start's term, or with a σ a twentieth larger, the same comparison fails."""
    x = sequences()
    samples = finite_kernels(x, 1, "relu", WIDTH, DRAWS)[0]
    error = samples.std(axis=0, ddof=1) / np.sqrt(DRAWS)
    for change in ({"sigma_h": 0.0}, {"sigma_w": 1.05 * SIGMAS["sigma_w"]}):
        limit = RecurrentNTK(1, "relu", **{**SIGMAS, **change})(x)
        allowed = 3 * error + BIAS * np.sqrt(np.outer(np.diag(limit), np.diag(limit)))
        assert (np.abs(samples.mean(axis=0) - limit) > allowed).any()
