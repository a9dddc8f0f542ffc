import pytest
import torch

from sostenuto.checks import InputError
from sostenuto.nn import LipschitzRNN, ResidualRNN
from tests.laws.layer_laws import LayerLaws
from tests.nn.plain import assert_same, count, zeros

F64 = torch.float64


class TestLipschitzRNN(LayerLaws):
    cls = LipschitzRNN
    options = {"step_size": 0.3}


class TestImplicitLipschitzRNN(LayerLaws):
    cls = LipschitzRNN
    options = {"step_size": 0.3, "integrator": "imex", "implicitness": 0.7, "beta": (0.6, 1.0), "gamma": (0.1, 0.0)}


class TestGatedLipschitzRNN(LayerLaws):
    cls = LipschitzRNN
    options = {"step_size": 0.3, "gated": True, "integrator": "midpoint"}


def make(**options):
    layer = LipschitzRNN(3, 5, dtype=F64, **{"step_size": 0.2, **options})
    with torch.no_grad():
        for name in ("weight_linear", "weight_hh"):
            layer.free_weight(name, 0, False).normal_(std=0.3)
    return layer


def parts(layer):
    """A and W from the free matrices by eq. (9), then U, b, all as the paper writes them."""
    made = []
    for name, beta, gamma in zip(("weight_linear", "weight_hh"), layer.beta, layer.gamma, strict=True):
        m = layer.free_weight(name, 0, False)
        made.append((1 - beta) * (m + m.T) + beta * (m - m.T) - gamma * torch.eye(5, dtype=F64))
    return *made, layer.weight_ih_l0, layer.bias_ih_l0


def test_euler_equals_a_plain_loop():
    layer = make(alpha=0.6, beta=(0.6, 0.9), gamma=(0.2, 0.05))

    def step(u, h):
        a, w, v, b = parts(layer)
        return (h + 0.2 * (0.6 * h @ a.T + torch.tanh(h @ w.T + u @ v.T + b)),)

    assert_same(layer, torch.randn(40, 2, 3, dtype=F64), step)
    assert layer.backend_used == "scan"


@pytest.mark.parametrize("rho", [0.0, 0.5, 1.0])
def test_imex_solves_the_papers_equation(rho):
    """Eq. (14): h⁺ = h + ε tanh(z) + ε[(1−ρ)Ah + ρAh⁺]."""
    layer = make(integrator="imex", implicitness=rho)

    def step(u, h):
        a, w, v, b = parts(layer)
        right = h + 0.2 * (torch.tanh(h @ w.T + u @ v.T + b) + (1 - rho) * h @ a.T)
        return (torch.linalg.solve(torch.eye(5, dtype=F64) - rho * 0.2 * a, right.T).T,)

    assert_same(layer, torch.randn(40, 2, 3, dtype=F64), step)
    assert layer.backend_used == "scan"


@pytest.mark.parametrize("integrator", ["euler", "midpoint", "rk4"])
def test_gated_equals_the_release(integrator):
    layer = make(gated=True, integrator=integrator, alpha=0.8)

    def rate(u, h):
        a, w, v, b = parts(layer)
        gate, value = (u @ v.T + b).chunk(2, dim=-1)
        return (0.8 * h @ a.T + torch.tanh(h @ w.T + value)) / (1 + torch.exp(-(h @ w.T + gate)))

    def step(u, h):
        k1 = rate(u, h)
        if integrator == "euler":
            return (h + 0.2 * k1,)
        k2 = rate(u, h + 0.1 * k1)
        if integrator == "midpoint":
            return (h + 0.2 * k2,)
        k3 = rate(u, h + 0.1 * k2)
        return (h + 0.2 * (k1 + 2 * k2 + 2 * k3 + rate(u, h + 0.2 * k3)) / 6,)

    assert_same(layer, torch.randn(20, 2, 3, dtype=F64), step)
    assert layer.backend_used == "steps"


@pytest.mark.parametrize("integrator", ["euler", "imex", "midpoint", "rk4"])
def test_spans_are_steps_of_other_sizes(integrator):
    layer = make(integrator=integrator)
    x, spans = torch.randn(6, 2, 3, dtype=F64), 0.5 + torch.rand(6, 2, dtype=F64)
    output, _ = layer(x, timespans=spans)
    assert layer.backend_used == "steps"
    state = [zeros(x, 5)[None, :1], zeros(x, 5)[None, :1]]
    for t in range(6):
        for b in range(2):
            other = make(integrator=integrator, step_size=0.2 * float(spans[t, b]))
            other.load_state_dict(layer.state_dict())
            one, state[b] = other.step(x[t, b : b + 1], state[b])
            torch.testing.assert_close(one[0], output[t, b], rtol=1e-10, atol=1e-12)


def test_without_its_linear_part_it_is_the_residual_unit():
    layer, other = make(alpha=0.0), ResidualRNN(3, 5, step_size=0.2, dtype=F64)
    with torch.no_grad():
        for name in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0"):
            getattr(other, name).copy_(getattr(layer, name))
    x = torch.randn(9, 2, 3, dtype=F64)
    torch.testing.assert_close(layer(x)[0], other(x)[0])


def test_parameters_and_their_start():
    n, d = 200, 3
    assert count(LipschitzRNN(d, n)) == n * (d + 2 * n + 1)
    assert count(LipschitzRNN(d, n, gated=True, num_layers=2)) == n * (2 * d + 2 * n + 2) + n * (2 * n + 2 * n + 2)
    layer = LipschitzRNN(d, n)
    assert list(layer.state_dict()) == [
        "weight_ih_l0",
        "bias_ih_l0",
        "parametrizations.weight_linear_l0.original",
        "parametrizations.weight_hh_l0.original",
    ]
    assert layer.free_weight("weight_hh", 0, False).std().item() == pytest.approx(0.1 / n, rel=0.05)
    assert layer.weight_ih_l0.std().item() == pytest.approx((2 / (n + d)) ** 0.5, rel=0.1)
    assert not layer.bias_ih_l0.any()


def test_certificates():
    layer = LipschitzRNN(1, 6, gamma=(1.0, 0.0), step_size=0.1)
    with torch.no_grad():
        layer.free_weight("weight_hh", 0, False).mul_(0.1)
    for kind in ("contraction", "lure", "discrete"):
        found = layer.certificate(kind)
        assert (found.kind, found.holds) == (kind, True)
        assert found.rate > 0
    assert not layer.certificate("settling").holds
    assert "A" in LipschitzRNN(1, 6).certificate().reason
    assert "gate" in LipschitzRNN(1, 6, gated=True).certificate().reason
    assert "rk4" in LipschitzRNN(1, 6, integrator="rk4").certificate("discrete").reason
    with pytest.raises(InputError, match="kind"):
        layer.certificate("magic")


def test_the_discrete_test_sees_what_the_continuous_one_cannot():
    """Errata erichson2021.4: A = −.1 I + 10·skew contracts in continuous time; Euler steps of .03 do not."""
    skew = torch.tensor([[0.0, 10.0], [-10.0, 0.0]])
    layer = LipschitzRNN(1, 2, step_size=0.03, beta=1.0, gamma=(0.1, 0.0))
    with torch.no_grad():
        layer.free_weight("weight_linear", 0, False).copy_(skew / 2)
        layer.free_weight("weight_hh", 0, False).zero_()
    assert layer.certificate("contraction").holds
    assert not layer.certificate("discrete").holds


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"step_size": 0.0}, "step_size"),
        ({"beta": 1.5}, "beta"),
        ({"beta": (0.5, 0.6, 0.7)}, "one for A and one for W"),
        ({"gamma": -1.0}, "gamma"),
        ({"alpha": -1.0}, "alpha"),
        ({"integrator": "magic"}, "integrator"),
        ({"implicitness": 2.0}, "implicitness"),
        ({"integrator": "imex", "gated": True}, "explicit integrator"),
        ({"backend": "tpu"}, "backend"),
        ({"precision": "half"}, "precision"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        LipschitzRNN(1, 2, **options)


def test_a_compiled_backend_is_not_replaced_silently():
    layer = LipschitzRNN(1, 2, integrator="rk4", backend="cpu")
    with pytest.raises(InputError, match="backend 'cpu'"):
        layer(torch.zeros(3, 1, 1))
