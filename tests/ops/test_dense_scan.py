# ruff: noqa: N803, N806 (T, B, H are the names inside ops)

import numpy as np
import pytest
import torch

from sostenuto.checks import InputError
from sostenuto.ops.activation import ACTIVATIONS
from sostenuto.ops.backend import BACKENDS
from sostenuto.ops.dense import dense_scan
from tests.laws.op_laws import LOOP, RecurrenceLaws, close, compare, differentiate, weights_of

NUMPY = {
    "tanh": np.tanh,
    "relu": lambda a: np.maximum(a, 0),
    "hardtanh": lambda a: np.clip(a, -1, 1),
    "logistic": lambda a: 1 / (1 + np.exp(-a)),
    "identity": lambda a: a,
}


class DenseLaws(RecurrenceLaws):
    """Every form of P and Q: ``components`` k of the state, full matrices or coefficients."""

    states = ("start",)
    over_time = ("inputs",)
    projected = "inputs"
    backends = BACKENDS[1:]
    single = {"gpu": 2e-5}  # products on the tensor cores keep 21 bits; 8e-6 was seen on an H200
    components = 1
    full_linear = False
    full_gain = False
    activation = "tanh"

    def inputs(self, T, B, H):
        draw, k = {"dtype": torch.float64}, self.components
        S = k * H
        tensors = {
            "inputs": torch.randn(T, B, H, **draw),
            "start": 0.5 * torch.randn(B, S, **draw),
            "weight": 0.7 * torch.randn(H, S, **draw) / S**0.5,
            "linear": 0.8 * torch.eye(k, **draw) + 0.1 * torch.randn(k, k, **draw),
            "gain": 0.2 + 0.3 * torch.rand(k, **draw),
        }
        if self.full_linear:
            tensors["linear"] = 0.8 * torch.eye(S, **draw) + 0.1 * torch.randn(S, S, **draw) / S**0.5
        if self.full_gain:
            tensors["gain"] = 0.4 * torch.randn(S, H, **draw) / H**0.5
        if self.activation == "modrelu":
            tensors["threshold"] = -0.5 * torch.rand(H, **draw)
        return tensors

    def run(self, tensors, backend):
        names = ("inputs", "start", "weight", "linear", "gain")
        options = {"activation": self.activation, "threshold": tensors.get("threshold"), "backend": backend}
        return dense_scan(*(tensors[name] for name in names), **options)

    def activate(self, values, arrays):
        if self.activation == "modrelu":
            return np.sign(values) * np.maximum(np.abs(values) + arrays["threshold"], 0)
        return NUMPY[self.activation](values)

    def loop(self, arrays):
        z, W, P, Q = (arrays[name] for name in ("inputs", "weight", "linear", "gain"))
        T, B, H = z.shape
        S = W.shape[1]
        P = P if P.shape[0] == S else np.kron(P, np.eye(H))
        Q = Q if Q.ndim == 2 else np.kron(Q[:, None], np.eye(H))
        h, states = arrays["start"].copy(), np.empty((T, B, S))
        for n in range(T):
            for b in range(B):
                h[b] = P @ h[b] + Q @ self.activate(W @ h[b] + z[n, b], arrays)
                states[n, b] = h[b]
        return states, h


class TestResidual(DenseLaws):
    """One coefficient each: residual, antisymmetric, Elman."""


class TestLipschitz(DenseLaws):
    full_linear = True


class TestImplicit(DenseLaws):
    full_linear = full_gain = True


class TestSecondOrder(DenseLaws):
    components = 2


class TestOrthogonal(DenseLaws):
    activation = "modrelu"
    single = {"gpu": 1e-4}  # p's gradient is one sum, here of terms 100 times its size; 6.3e-5 was seen on an H200


@pytest.mark.parametrize("backend", BACKENDS[:3])
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("form", [(1, False, True), (2, True, False), (3, True, True)])
def test_every_form_under_every_nonlinearity(form, activation, backend):
    laws = DenseLaws()
    laws.components, laws.full_linear, laws.full_gain = form
    laws.activation = activation
    tensors = laws.make(20, shape=(9, 5))
    arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
    got = differentiate(laws.on(backend), tensors)
    for one, other in zip(got[0], laws.loop(arrays), strict=True):
        close(one, torch.from_numpy(other), LOOP)
    compare(got, differentiate(laws.on("reference"), tensors), LOOP)


def test_a_long_sequence_gives_the_references_gradients():
    laws = TestLipschitz()
    single = laws.make(784, shape=(21, 37), dtype=torch.float32)
    double = {name: tensor.double() for name, tensor in single.items()}
    truth = differentiate(laws.on("reference"), double)
    compare(differentiate(laws.on("cpu"), double), truth, 1e-10)
    got, gradients = differentiate(laws.on("cpu"), single)
    raised = tuple(value.double() for value in got), {name: value.double() for name, value in gradients.items()}
    compare(raised, truth, 1e-5)


def test_a_nonlinearity_keeps_nan():
    for activation in ACTIVATIONS:
        threshold = torch.zeros(2) if activation == "modrelu" else None
        z = torch.tensor([[[torch.nan, 1.0]]])
        one, zero = torch.ones(1), torch.zeros(1, 2)
        args = (z, zero, torch.zeros(2, 2), one[None], one)
        for backend in ("reference", "cpu"):
            states, _ = dense_scan(*args, activation=activation, threshold=threshold, backend=backend)
            assert states[0, 0].isnan().tolist() == [True, False]


def readme_adjoint(tensors, states, activated, arriving):
    """The adjoint of the README, line by line, with full matrices and tanh."""
    start, W, P, Q = (tensors[name].detach() for name in ("start", "weight", "linear", "gain"))
    at_states, cotangent = arriving
    bar_z, bar_W, bar_P, bar_Q = [], torch.zeros_like(W), torch.zeros_like(P), torch.zeros_like(Q)
    for n in reversed(range(len(states))):
        before = states[n - 1] if n else start
        cotangent = cotangent + at_states[n]
        bar_u = cotangent @ Q
        z = bar_u * (1 - activated[n] ** 2)
        bar_W, bar_P, bar_Q = bar_W + z.T @ before, bar_P + cotangent.T @ before, bar_Q + cotangent.T @ activated[n]
        bar_z.append(z)
        cotangent = cotangent @ P + z @ W
    return {"inputs": torch.stack(bar_z[::-1]), "start": cotangent, "weight": bar_W, "linear": bar_P, "gain": bar_Q}


@pytest.mark.parametrize("T", [1, 2, 257])
def test_the_readme_derives_the_adjoint_rightly(T):
    laws = TestImplicit()
    leaves = {name: tensor.requires_grad_() for name, tensor in laws.make(T, seed=T).items()}
    results = laws.run(leaves, "reference")
    weights = weights_of(results)
    torch.autograd.backward(results, weights)
    states = results[0].detach()
    before = torch.cat([leaves["start"].detach()[None], states[:-1]])
    activated = torch.tanh(before @ leaves["weight"].detach().T + leaves["inputs"].detach())
    for name, gradient in readme_adjoint(leaves, states, activated, weights).items():
        close(leaves[name].grad, gradient, LOOP)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"linear": torch.ones(3, 3)}, r"expected linear as a matrix \(4, 4\) or as coefficients \(2, 2\), got .*3, 3"),
        ({"gain": torch.ones(3)}, r"expected gain as a matrix \(4, 2\) .* got shape \(3,\)"),
        ({"activation": "sin"}, "expected activation to be one of 'tanh'.*got 'sin'"),
        ({"activation": "modrelu"}, "expected a threshold for modrelu and for nothing else, got none for 'modrelu'"),
        ({"threshold": torch.ones(2)}, "expected a threshold for modrelu and for nothing else, got one for 'tanh'"),
        ({"precision": "half"}, "expected precision to be one of 'exact', 'tf32', got 'half'"),
        ({"backend": "gpu?"}, "expected backend to be one of"),
    ],
)
def test_bad_options_are_refused(change, message):
    tensors = {"inputs": torch.zeros(3, 1, 2), "start": torch.zeros(1, 4), "weight": torch.zeros(2, 4)}
    tensors |= {"linear": torch.eye(2), "gain": torch.ones(2)}
    with pytest.raises(InputError, match=message):
        dense_scan(**{**tensors, **change})
