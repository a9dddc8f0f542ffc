# ruff: noqa: N803, N806 (X is the name of the contract)
import numpy as np
import pytest
import torch
from torch import nn
from torch.autograd.functional import hessian
from torch.func import functional_call

from sostenuto.audits.batches import eval_batch
from sostenuto.audits.curvature import hessian as module
from sostenuto.audits.curvature.hessian import hessian_spectrum
from sostenuto.audits.curvature.operator import Hessian, twice_differentiable, waiting_bytes
from sostenuto.audits.curvature.surface import loss_surface
from sostenuto.checks import InputError
from tests.laws.audit_laws import AuditLaws


class CurvatureLaws(AuditLaws):
    # Curvature needs gradients; a model that draws numbers has no Hessian.
    test_the_model_is_asked_in_evaluation_mode_without_gradients = None
    test_random_numbers_are_left_as_they_were = None
    test_a_model_that_draws_repeats_too = None


class TestSpectrumLaws(CurvatureLaws):
    def ask(self, model, X, y, **options):
        return hessian_spectrum(model, X, y, **options)


class TestSurfaceLaws(CurvatureLaws):
    def ask(self, model, X, y, **options):
        return loss_surface(model, X, y, points=3, **options)


class Recurrent(nn.Module):
    def __init__(self, unit=nn.GRU, hidden=9):
        super().__init__()
        self.layer, self.head = unit(2, hidden, batch_first=True), nn.Linear(hidden, 3)

    def forward(self, x):
        return self.head(self.layer(x)[0][:, -1])


def dense_hessian(model, X, y):
    """Form the matrix by torch alone, with the weights as one vector."""
    names, shapes = zip(*[(name, value.shape) for name, value in model.named_parameters()], strict=True)

    def loss(flat):
        parts = torch.split(flat, [shape.numel() for shape in shapes])
        weights = {name: part.view(shape) for name, part, shape in zip(names, parts, shapes, strict=True)}
        return nn.functional.cross_entropy(functional_call(model, weights, (X,)), y)

    flat = torch.cat([value.detach().flatten() for value in model.parameters()])
    return hessian(loss, flat)


@pytest.mark.parametrize("unit", [nn.GRU, nn.LSTM, nn.RNN])
def test_agrees_with_the_dense_hessian(unit, monkeypatch):
    """Top eigenvalues to 1 %, trace to 5 %, by sampling."""
    torch.manual_seed(0)
    monkeypatch.setattr(module, "FEW_WEIGHTS", 10)
    # Two batches, the second smaller: some four hundred products with the Hessian pass through every step of each.
    model, X, y = Recurrent(unit, 3).double(), torch.randn(9, 3, 2, dtype=torch.float64), torch.arange(9) % 3
    found = hessian_spectrum(model, X, y, top=3, probes=40, lanczos_steps=8, batch_size=5)
    assert not found.exact
    expected = torch.linalg.eigvalsh(dense_hessian(model, X, y)).numpy()[::-1]
    np.testing.assert_allclose(found.top, expected[:3], rtol=0.01)
    assert found.bottom == pytest.approx(expected[-1], rel=0.02)
    assert found.trace == pytest.approx(expected.sum(), rel=0.05)
    assert abs(found.trace - expected.sum()) < 4 * found.trace_error + 1e-6
    nodes, weights = np.asarray(found.nodes), np.asarray(found.weights)
    assert weights.sum() == pytest.approx(1.0)
    spread = np.sqrt(2 * (expected**2).sum() / 40)  # of Hutchinson's estimate, which the density's mean is
    assert (nodes @ weights) * len(expected) == pytest.approx(expected.sum(), abs=4 * spread)
    assert (nodes**2 @ weights) * len(expected) == pytest.approx((expected**2).sum(), rel=0.3)


def test_few_weights_are_exact():
    torch.manual_seed(1)
    model, X, y = Recurrent(nn.RNN, 4).double(), torch.randn(20, 5, 2, dtype=torch.float64), torch.arange(20) % 3
    found = hessian_spectrum(model, X, y, top=4)
    expected = torch.linalg.eigvalsh(dense_hessian(model, X, y)).numpy()[::-1]
    assert found.exact
    assert found.trace == pytest.approx(expected.sum())
    np.testing.assert_allclose(found.top, expected[:4], rtol=1e-6)


def test_a_saddle_is_named():
    torch.manual_seed(1)
    model, X = Recurrent(nn.RNN, 4), torch.randn(20, 5, 2)
    assert "not a minimum" in hessian_spectrum(model, X, torch.arange(20) % 3).summary()


def test_the_surface_curves_as_its_eigenvalues_say():
    torch.manual_seed(2)
    model, X, y = Recurrent(nn.GRU, 5).double(), torch.randn(30, 6, 2, dtype=torch.float64), torch.arange(30) % 3
    before = [value.detach().clone() for value in model.parameters()]
    found = loss_surface(model, X, y, radius=1e-3, points=3)
    loss, step = np.asarray(found.loss), 1e-3
    second = [
        (loss[2, 1] - 2 * loss[1, 1] + loss[0, 1]) / step**2,
        (loss[1, 2] - 2 * loss[1, 1] + loss[1, 0]) / step**2,
    ]
    np.testing.assert_allclose(second, found.eigenvalues, rtol=1e-3)
    assert all(torch.equal(left, right) for left, right in zip(before, model.parameters(), strict=True))


def test_ragged_sequences_and_step_classes():
    class Steps(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.head = nn.RNN(1, 3, batch_first=True), nn.Linear(3, 2)

        def forward(self, x, lengths=None):
            return self.head(self.layer(x)[0])

    torch.manual_seed(0)
    X, lengths = torch.randn(6, 4, 1), [4, 2, 3, 4, 1, 2]
    y = torch.randint(0, 2, (6, 4))
    model = Steps()
    found = hessian_spectrum(model, X, y, lengths=lengths)
    changed = X.clone()
    changed[4, 1:] = 100.0
    assert hessian_spectrum(model, changed, y, lengths=lengths).top == found.top


def test_a_model_without_weights_is_refused():
    class Nothing(nn.Module):
        def forward(self, x):
            return x[:, -1]

    with pytest.raises(InputError, match="expected a model with weights that learn, and a loss that depends on them"):
        hessian_spectrum(Nothing(), torch.randn(4, 3, 2), [0, 1, 0, 1])


def test_every_product_is_taken_at_the_weights_as_they_were(monkeypatch):
    torch.manual_seed(0)
    model, X, y = Recurrent(nn.RNN, 3), torch.randn(12, 4, 2), torch.arange(12) % 3
    start = [value.detach().clone() for value in model.parameters()]
    seen, product = [], Hessian.product

    def watched(self, vector):
        seen.append(all(torch.equal(one, now) for one, now in zip(start, self.parameters, strict=True)))
        return product(self, vector)

    monkeypatch.setattr(Hessian, "product", watched)
    hessian_spectrum(model, X, y)
    assert len(seen) >= module.SURPRISES
    assert all(seen)


def test_one_first_pass_serves_every_product_of_one_batch_until_a_weight_changes(monkeypatch):
    torch.manual_seed(0)
    model, X, y = Recurrent(nn.GRU, 3).double(), torch.randn(9, 4, 2, dtype=torch.float64), torch.arange(9) % 3
    passes, part = [], Hessian.part
    monkeypatch.setattr(Hessian, "part", lambda self, rows: passes.append(rows) or part(self, rows))
    together, split = (Hessian(model, eval_batch(model, X, y), size) for size in (9, 5))
    vectors = np.random.default_rng(0).standard_normal((3, together.size))
    for weights in ("as they were", "moved"):
        passes.clear()
        found = [together.product(vector) for vector in vectors]
        assert len(passes) == 1, weights
        np.testing.assert_allclose(found, [split.product(vector) for vector in vectors], rtol=1e-9, atol=1e-12)
        with torch.no_grad():
            model.head.weight.mul_(1.5)


def test_both_ends_of_the_spectrum_come_from_the_same_products(monkeypatch):
    torch.manual_seed(1)
    model, X, y = Recurrent(nn.RNN, 4).double(), torch.randn(20, 5, 2, dtype=torch.float64), torch.arange(20) % 3
    operator = Hessian(model, eval_batch(model, X, y), 256)
    expected = np.linalg.eigvalsh(operator.dense())[::-1]
    products, product = [], Hessian.product
    monkeypatch.setattr(Hessian, "product", lambda self, vector: products.append(1) or product(self, vector))
    start = np.random.default_rng(0).standard_normal(operator.size)
    for wanted in (1, 2, 3):
        products.clear()
        values, vectors = operator.extremes(wanted, start, both=True)
        together = len(products)
        np.testing.assert_allclose(values[:wanted], expected[:wanted], rtol=1e-3)
        assert values[-1] == pytest.approx(expected[-1], rel=1e-3)
        np.testing.assert_allclose(product(operator, vectors[:, -1]), values[-1] * vectors[:, -1], atol=1e-3)
        products.clear()
        operator.extremes(wanted, start)
        assert together < 2 * len(products)


def test_a_product_that_would_fill_the_memory_is_refused(monkeypatch):
    """The gradient of each use of a weight waits for those of the others: 30 steps use the matrix 30 times."""
    model, X, y = Recurrent(nn.GRU), torch.randn(20, 30, 2), torch.arange(20) % 3
    data = eval_batch(model, X, y)
    recurrent = sum(one.numel() for name, one in model.named_parameters() if "_hh" in name)
    rest = sum(one.numel() for name, one in model.named_parameters() if "_hh" not in name)
    with twice_differentiable():
        waiting = waiting_bytes(Hessian(model, data, 20), slice(0, 1))
    assert 4 * 30 * recurrent <= waiting <= 4 * 30 * (recurrent + rest)
    monkeypatch.setattr(module, "MOST_WAITING", 2.4 * waiting)
    with pytest.raises(InputError, match=r"a product with the Hessian to need at most 0 GiB, got an estimate of 0\.0"):
        hessian_spectrum(model, X, y, max_seconds=1e6)
    monkeypatch.setattr(module, "MOST_WAITING", 2.6 * waiting)
    assert hessian_spectrum(model, X, y, max_seconds=1e6).num_weights > 300
