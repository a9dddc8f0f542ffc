import numpy as np
import pytest
import torch

from sostenuto.checks import InputError
from sostenuto.kernels import EmpiricalNTK, RecurrentNTK, WideRNN
from tests.laws.kernel_laws import sample


def network(**options):
    return WideRNN(2, 32, 2, sigma_b=0.3, generator=torch.Generator().manual_seed(0), **options)


def by_autograd(model, x, y):
    def gradient(one):
        value = model(torch.from_numpy(one)[None])[0, 0]
        return torch.cat([g.flatten() for g in torch.autograd.grad(value, list(model.parameters()))])

    return float(gradient(x) @ gradient(y))


@pytest.mark.parametrize("method", ["vmap", "loop"])
def test_is_the_inner_product_of_gradients(method):
    x, y = sample(3, 5, 3), sample(4, seed=1)
    model = network()
    kernel = EmpiricalNTK(model, method=method)
    expected = [[by_autograd(model, a, b) for b in y] for a in x]
    np.testing.assert_allclose(kernel(x, y), expected, rtol=1e-10)
    np.testing.assert_allclose(kernel.diag(x), np.diag(kernel(x)), rtol=1e-12)
    assert np.linalg.eigvalsh(kernel(x)).min() > 0
    assert model.training


def test_takes_layers_with_states_and_several_outputs():
    torch.manual_seed(0)
    kernel = EmpiricalNTK(torch.nn.RNN(2, 3, batch_first=True), method="loop")
    assert kernel(sample(3, 4)).shape == (2, 2)


def test_small_budgets_change_nothing(monkeypatch):
    x = sample(3, 5, 3, 4)
    whole = EmpiricalNTK(network())(x)
    monkeypatch.setattr("sostenuto.kernels.empirical_ntk.BUDGET", 1)
    np.testing.assert_allclose(EmpiricalNTK(network(), chunk=1)(x), whole, rtol=1e-12)


def test_follows_training_and_clones_share_the_model():
    from sklearn.base import clone

    kernel = EmpiricalNTK(network())
    before = kernel(sample(3))
    other = clone(kernel)
    assert other == kernel
    assert other.model is kernel.model
    with torch.no_grad():
        kernel.model.readout.mul_(2.0)
    assert not np.allclose(kernel(sample(3)), before)
    assert (kernel + RecurrentNTK()).n_dims == 3


def test_what_cannot_learn_is_refused():
    with pytest.raises(InputError, match="expected a model with parameters, got none"):
        EmpiricalNTK(torch.nn.Tanh())


def test_untied_is_tied_at_equal_length_only():
    """Theorem 3 of alemohammad2021, and docs/errata.md, alemohammad2021.6."""
    x = sample(2, 4, 4, channels=1, seed=3)
    options = {"sigma_w": 1.2, "sigma_b": 0.5}
    limit = RecurrentNTK(**options)(x)
    generator = torch.Generator().manual_seed(0)
    means = {}
    for tied in (True, False):
        draws = []
        for _ in range(40):
            model = WideRNN(1, 128, **options, tied=tied, steps=4, generator=generator)
            draws.append(EmpiricalNTK(model)(x))
        means[tied] = np.mean(draws, axis=0), np.std(draws, axis=0, ddof=1) / np.sqrt(40)
    for tied in (True, False):
        mean, error = means[tied]
        assert abs(mean[1, 2] - limit[1, 2]) < 3 * error[1, 2] + 0.02 * limit[1, 2]
    tied, untied = means[True], means[False]
    assert abs(tied[0][0, 1] - limit[0, 1]) < 3 * tied[1][0, 1] + 0.02 * limit[0, 1]
    assert abs(untied[0][0, 1] - limit[0, 1]) > 5 * untied[1][0, 1]
