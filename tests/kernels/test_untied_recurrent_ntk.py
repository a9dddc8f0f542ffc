import numpy as np
import pytest
import torch

from sostenuto.checks import InputError
from sostenuto.kernels import EmpiricalNTK, RecurrentNTK, UntiedRecurrentNTK, WideRNN
from tests.laws.kernel_laws import KernelLaws, sample


class TestUntiedRecurrentNTK(KernelLaws):
    kernels = (UntiedRecurrentNTK(sigma_b=0.2), UntiedRecurrentNTK(2, "erf", sigma_h=0.3, normalize=True))


def averages(x, draws, method="vmap", **options):
    generator = torch.Generator().manual_seed(0)
    found = [EmpiricalNTK(WideRNN(1, 128, **options, generator=generator), method=method)(x) for _ in range(draws)]
    return np.mean(found, axis=0), np.std(found, axis=0, ddof=1) / np.sqrt(draws)


@pytest.mark.parametrize(
    ("layers", "activation"), [(1, "relu"), (2, "relu"), (1, torch.nn.functional.softplus)], ids=["1", "2", "softplus"]
)
def test_agrees_with_finite_untied_networks(layers, activation):
    x = sample(2, 4, 4, channels=1, seed=3)
    options = {"sigma_w": 1.2, "sigma_b": 0.5}
    limit = UntiedRecurrentNTK(layers, activation, **options)(x)
    mean, error = averages(x, 40, num_layers=layers, activation=activation, tied=False, steps=4, **options)
    size = np.sqrt(np.outer(np.diag(limit), np.diag(limit)))
    assert (np.abs(mean - limit) < 3.5 * error + 0.03 * size).all()
    tied = RecurrentNTK(layers, activation, **options)(x)
    assert np.abs(mean - tied)[0, 1] > 5 * error[0, 1]
    np.testing.assert_allclose(limit[1:, 1:], tied[1:, 1:], rtol=1e-12)


def test_covariances_add_up_to_the_kernel():
    x = sample(3, 3, 5)
    for activation in ("relu", torch.nn.functional.softplus):
        for kind in ("ntk", "nngp"):
            kernel = UntiedRecurrentNTK(2, activation, sigma_b=0.3, kind=kind)
            expected = [[float(getattr(kernel.covariances(a, b), kind)) for b in x] for a in x]
            np.testing.assert_allclose(kernel(x), expected, rtol=1e-7)


def test_a_mean_over_steps_is_refused():
    with pytest.raises(InputError, match="expected pooling='last' of untied weights, got 'mean'"):
        UntiedRecurrentNTK(pooling="mean")


def test_wide_networks_with_a_random_start_have_the_kernel_with_one():
    """σ_h counts for equal sequences and not between different ones."""
    x = sample(3, 3, channels=1, seed=1)
    x.append(x[0].copy())
    options = {"sigma_w": 1.2, "sigma_h": 1.0}
    mean, error = averages(x, 60, "loop", **options)
    limit = RecurrentNTK(**options)(x)
    size = np.sqrt(np.outer(np.diag(limit), np.diag(limit)))
    assert (np.abs(mean - limit) < 3.5 * error + 0.03 * size).all()
    without = RecurrentNTK(sigma_w=1.2)(x)
    assert (np.abs(mean - without) > 5 * error)[0, 2]
    network = WideRNN(1, 16, sigma_h=1.0, generator=torch.Generator().manual_seed(0))
    inputs = torch.from_numpy(np.stack([x[0], x[1], x[0]]))
    start = network.start(inputs)[0]
    assert torch.equal(start[0], start[2])
    assert not torch.equal(start[0], start[1])
    assert torch.equal(network(inputs), network(inputs))
    with pytest.raises(InputError, match="pass method='loop' to EmpiricalNTK"):
        EmpiricalNTK(network)(x)
