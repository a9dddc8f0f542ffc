# ruff: noqa: N803 (T, B, H are the names inside ops)

import numpy as np
import pytest
import torch

from sostenuto.checks import InputError
from sostenuto.ops.activation import ACTIVATIONS, activate
from sostenuto.ops.backend import BACKENDS
from sostenuto.ops.diagonal import diagonal_scan, gated_scan
from tests.laws.op_laws import LOOP, RecurrenceLaws, close, compare, differentiate


class DiagonalLaws(RecurrenceLaws):
    states = ("start",)
    over_time = ("inputs",)
    projected = "inputs"
    backends = BACKENDS[1:]
    activation = "tanh"

    def inputs(self, T, B, H):
        draw = {"dtype": torch.float64}
        tensors = {
            "inputs": torch.randn(T, B, H, **draw),
            "start": 0.5 * torch.randn(B, H, **draw),
            "weight": 1.5 * torch.rand(H, **draw) - 0.5,
            "linear": 0.2 + 0.6 * torch.rand(H, **draw),
            "gain": 0.1 + 0.3 * torch.rand(H, **draw),
        }
        if self.activation == "modrelu":
            tensors["threshold"] = -0.5 * torch.rand(H, **draw)
        return tensors

    def run(self, tensors, backend):
        names = ("inputs", "start", "weight", "linear", "gain")
        options = {"activation": self.activation, "threshold": tensors.get("threshold"), "backend": backend}
        return diagonal_scan(*(tensors[name] for name in names), **options)

    def loop(self, arrays):
        h, states = arrays["start"].copy(), np.empty_like(arrays["inputs"])
        threshold = torch.from_numpy(arrays["threshold"]) if "threshold" in arrays else None
        for n, z in enumerate(arrays["inputs"]):
            activated = activate(torch.from_numpy(arrays["weight"] * h + z), self.activation, threshold).numpy()
            h = states[n] = arrays["linear"] * h + arrays["gain"] * activated
        return states, h


class TestDiagonal(DiagonalLaws):
    pass


class TestModrelu(DiagonalLaws):
    activation = "modrelu"


class TestGated(DiagonalLaws):
    over_time = ("inputs", "candidates")

    def inputs(self, T, B, H):
        tensors = super().inputs(T, B, H)
        del tensors["linear"], tensors["gain"]
        return tensors | {"candidates": torch.randn(T, B, H, dtype=torch.float64)}

    def run(self, tensors, backend):
        names = ("inputs", "candidates", "start", "weight")
        return gated_scan(*(tensors[name] for name in names), backend=backend)

    def loop(self, arrays):
        c, states = arrays["start"].copy(), np.empty_like(arrays["inputs"])
        for n, (a, x) in enumerate(zip(arrays["inputs"], arrays["candidates"], strict=True)):
            f = 1 / (1 + np.exp(-(arrays["weight"] * c + a)))
            c = states[n] = f * c + (1 - f) * x
        return states, c


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_nonlinearity(activation):
    laws = DiagonalLaws()
    laws.activation = activation
    tensors = laws.make(100, shape=(5, 7))
    compare(differentiate(laws.on("cpu"), tensors), differentiate(laws.on("reference"), tensors), LOOP)


def test_a_linear_recurrence_is_a_sum_of_powers():
    decay, drive = torch.tensor([0.5, 0.9], dtype=torch.float64), torch.randn(30, 2, 2, dtype=torch.float64)
    one, zero = torch.ones_like(decay), torch.zeros_like(decay)
    _, last = diagonal_scan(drive, torch.zeros(2, 2, dtype=torch.float64), zero, decay, one, activation="identity")
    powers = decay ** torch.arange(29, -1, -1)[:, None]
    close(last, (powers[:, None] * drive).sum(0), LOOP)


def test_a_long_sequence_gives_the_references_gradients():
    for laws in (TestDiagonal(), TestGated()):
        single = laws.make(784, shape=(3, 37), dtype=torch.float32)
        double = {name: tensor.double() for name, tensor in single.items()}
        truth = differentiate(laws.on("reference"), double)
        compare(differentiate(laws.on("cpu"), double), truth, 1e-10)
        got, gradients = differentiate(laws.on("cpu"), single)
        raised = tuple(value.double() for value in got), {name: value.double() for name, value in gradients.items()}
        compare(raised, truth, 1e-5)


def test_bad_options_are_refused():
    z, start, one = torch.zeros(2, 1, 2), torch.zeros(1, 2), torch.ones(2)
    with pytest.raises(InputError, match=r"expected activation to be one of 'tanh'.*got 'sin'"):
        diagonal_scan(z, start, one, one, one, activation="sin")
    with pytest.raises(InputError, match="expected a threshold for modrelu"):
        diagonal_scan(z, start, one, one, one, threshold=one)
    with pytest.raises(InputError, match="expected backend to be one of"):
        gated_scan(z, z, start, one, backend="fast")


def test_an_unknown_activation_is_refused():
    with pytest.raises(InputError, match="activation"):
        activate(torch.ones(2), "softplus")
