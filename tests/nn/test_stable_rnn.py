import pytest
import torch

from sostenuto.constraints.stable import FORMS, REPARAMETRIZATIONS
from sostenuto.nn import StableRNN
from tests.laws.layer_laws import LayerLaws
from tests.nn.plain import SIGMAS, assert_same, count

F64 = torch.float64


class TestStableRNN(LayerLaws):
    cls = StableRNN
    options = {"step_size": 0.3}
    refused = (
        {"step_size": 0.0},
        {"activation": "gelu"},
        {"form": "x"},
        {"reparametrization": "x"},
        {"integrator": "exact"},
    )


class TestExactStableRNN(LayerLaws):
    cls = StableRNN
    options = {"step_size": 0.3, "activation": "identity", "integrator": "exact"}


class TestDissipativeStableRNN(LayerLaws):
    cls = StableRNN
    options = {"step_size": 0.3, "form": "dissipative", "reparametrization": "inverse", "activation": "logistic"}


def written(layer):
    """W by errata wang2024.4 with eigenvectors, as it is written there."""
    free = layer.free_weight("weight_hh", 0, False)
    functions = {
        "softplus": lambda v: torch.log1p(torch.exp(v)),
        "exp": lambda v: torch.exp(v.clamp(max=5)),
        "inverse": lambda v: 1 / (1 + v * v),
    }
    if layer.reparametrization == "direct":
        return torch.diag(free) if layer.form == "diagonal" else free
    f = functions[layer.reparametrization]
    if layer.form == "diagonal":
        return -torch.diag(1e-3 + f(free))
    values, vectors = torch.linalg.eigh((free + free.T) / 2)
    decay = -vectors @ torch.diag(1e-3 + f(values)) @ vectors.T
    return decay if layer.form == "symmetric" else decay + (free - free.T) / 2


@pytest.mark.parametrize("reparametrization", REPARAMETRIZATIONS)
@pytest.mark.parametrize("form", FORMS)
def test_equals_a_plain_loop(form, reparametrization):
    layer = StableRNN(3, 5, form=form, reparametrization=reparametrization, step_size=0.2, dtype=F64)
    with torch.no_grad():
        layer.free_weight("weight_hh", 0, False).normal_()
    weight = written(layer).detach()

    def step(u, h):
        return (h + 0.2 * torch.tanh(h @ weight.T + u @ layer.weight_ih_l0.T + layer.bias_ih_l0),)

    assert_same(layer, torch.randn(30, 2, 3, dtype=F64), step)
    assert layer.backend_used == "scan"


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("activation", SIGMAS)
def test_activations(form, activation):
    layer = StableRNN(3, 5, form=form, activation=activation, dtype=F64)
    weight = written(layer).detach()

    def step(u, h):
        z = u @ layer.weight_ih_l0.T + layer.bias_ih_l0
        return (h + 0.1 * SIGMAS[activation](h @ weight.T + z),)

    assert_same(layer, torch.randn(9, 2, 3, dtype=F64), step)


@pytest.mark.parametrize("reparametrization", ["softplus", "exp", "inverse"])
@pytest.mark.parametrize("form", FORMS)
def test_stays_hurwitz_while_it_is_trained_badly(form, reparametrization):
    layer = StableRNN(1, 4, form=form, reparametrization=reparametrization)
    optimizer = torch.optim.SGD(layer.parameters(), lr=100.0)
    for _ in range(10):
        optimizer.zero_grad()
        (layer.weight_hh_l0 * torch.randn_like(layer.weight_hh_l0)).sum().backward()
        optimizer.step()
        assert layer.certificate("settling").holds


def test_direct_starts_where_softplus_does_but_is_free():
    layer = StableRNN(1, 4, form="symmetric", reparametrization="direct")
    assert torch.linalg.eigvalsh(layer.weight_hh_l0).max() < 0
    with torch.no_grad():
        layer.free_weight("weight_hh", 0, False).copy_(torch.eye(4))
    assert not layer.certificate("settling").holds


def test_a_linear_unit_contracts():
    layer = StableRNN(1, 4, form="dissipative", activation="identity", step_size=0.01)
    assert layer.certificate("contraction").holds
    assert layer.certificate("discrete").holds


def test_the_exact_integrator_solves_the_equation():
    """A held input: h(t + τ) = e^{wτ}h + (e^{wτ} − 1)/w·z, whatever the step; with the exp form LRU's exp(−exp θ)."""
    options = {"activation": "identity", "reparametrization": "exp", "integrator": "exact", "dtype": F64}
    layer = StableRNN(3, 5, step_size=20.0, **options)
    decay = torch.exp(-20.0 * (1e-3 + torch.exp(layer.free_weight("weight_hh", 0, False))))

    def step(u, h):
        z = u @ layer.weight_ih_l0.T + layer.bias_ih_l0
        return (decay * h + (decay - 1) / layer.weight_hh_l0 * z,)

    assert_same(layer, torch.randn(9, 2, 3, dtype=F64), step)
    assert layer.backend_used == "scan"
    assert layer.certificate("discrete").holds
    assert not StableRNN(3, 5, step_size=20.0, activation="identity").certificate("discrete").holds
    x, spans = torch.randn(4, 2, 3, dtype=F64), torch.full((4, 2), 0.5, dtype=F64)
    halves = layer(x.repeat_interleave(2, 0), timespans=spans.repeat_interleave(2, 0))[0][1::2]
    torch.testing.assert_close(halves, layer(x)[0])


def test_the_exact_step_has_its_limit_at_zero():
    layer = StableRNN(1, 3, activation="identity", reparametrization="direct", integrator="exact", dtype=F64)
    with torch.no_grad():
        layer.free_weight("weight_hh", 0, False).copy_(torch.tensor([0.0, 1e-6, -1e-3]))
    x = torch.ones(50, 1, 1, dtype=F64)
    euler = StableRNN(1, 3, activation="identity", reparametrization="direct", dtype=F64)
    euler.load_state_dict(layer.state_dict())
    torch.testing.assert_close(layer(x)[0], euler(x)[0], rtol=1e-3, atol=0)
    layer(x)[0].sum().backward()
    assert torch.isfinite(layer.free_weight("weight_hh", 0, False).grad).all()


def test_parameters():
    assert count(StableRNN(3, 10)) == 10 * (3 + 2)
    for form in ("symmetric", "dissipative"):
        assert count(StableRNN(3, 10, form=form)) == 10 * (3 + 10 + 1)
