# ruff: noqa: N803, N806 (T, B, H are the names inside ops)

import numpy as np
import pytest
import torch

from sostenuto.checks import InputError
from sostenuto.ops.backend import BACKENDS
from sostenuto.ops.damped import damped_scan, held_coefficients
from sostenuto.ops.damped.coefficients import held_coefficients_reference
from tests.laws.op_laws import LOOP, RecurrenceLaws, close, compare, differentiate


class TestDamped(RecurrenceLaws):
    """Coefficients shared by all steps."""

    states = ("start",)
    over_time = ("inputs",)
    projected = "inputs"
    backends = BACKENDS[1:]

    def inputs(self, T, B, H):
        draw = {"dtype": torch.float64}
        size, angle = 0.3 + 0.65 * torch.rand(1, 1, H, **draw), 3 * torch.rand(1, 1, H, **draw)
        return {
            "inputs": torch.randn(T, B, H, **draw),
            "start": 0.5 * torch.randn(B, 2 * H, **draw),
            "power": torch.stack([size * angle.cos(), size * angle.sin()]),
            "gain": torch.randn(2, 1, 1, H, **draw),
            "readout": torch.randn(2, H, **draw),
        }

    def run(self, tensors, backend):
        return damped_scan(
            *(tensors[name] for name in ("inputs", "start", "power", "gain", "readout")), backend=backend
        )

    def loop(self, arrays):
        T, B, H = arrays["inputs"].shape
        power, gain = (np.broadcast_to(arrays[name][0] + 1j * arrays[name][1], (T, B, H)) for name in ("power", "gain"))
        s, c = arrays["start"][:, :H] + 1j * arrays["start"][:, H:], arrays["readout"]
        outputs = np.empty((T, B, H))
        for t, x in enumerate(arrays["inputs"]):
            s = power[t] * s + gain[t] * x
            outputs[t] = c[0] * s.real + c[1] * s.imag
        return outputs, np.concatenate([s.real, s.imag], axis=-1)

    def test_final_state_is_the_last_output(self, backend):
        tensors = self.make(9, backend=backend)
        readout = torch.stack([torch.ones_like(tensors["readout"][0]), torch.zeros_like(tensors["readout"][0])])
        outputs, final = self.run({**tensors, "readout": readout}, backend)
        close(outputs[-1], final.chunk(2, dim=-1)[0], self.within(backend, LOOP))

    def test_every_sequence_stops_at_its_end(self, backend):
        tensors = self.make(9, shape=(3, 5), backend=backend)
        lengths = torch.tensor([9, 4, 1], device=tensors["inputs"].device)

        def together(leaves):
            return damped_scan(*leaves.values(), lengths=lengths, backend=backend)

        def alone(leaves):
            outputs, lasts = [], []
            for b, length in enumerate(lengths.tolist()):
                own = {"inputs": leaves["inputs"][:length, b : b + 1], "start": leaves["start"][b : b + 1]}
                own |= {name: leaves[name][:, :length, b : b + 1] if leaves[name].shape[1] > 1 else leaves[name]
                        for name in ("power", "gain")}  # fmt: skip
                output, last = self.run({**leaves, **own}, backend)
                outputs.append(torch.nn.functional.pad(output, (0, 0, 0, 0, 0, 9 - length)))
                lasts.append(last)
            return torch.cat(outputs, 1), torch.cat(lasts)

        compare(differentiate(together, tensors), differentiate(alone, tensors), self.within(backend, 1e-10))


class TestVarying(TestDamped):
    """Coefficients of every step and sequence, as irregular time spans have."""

    over_time = ("inputs",)

    def inputs(self, T, B, H):
        draw = {"dtype": torch.float64}
        size, angle = 0.3 + 0.65 * torch.rand(T, B, H, **draw), 3 * torch.rand(T, B, H, **draw)
        varying = {
            "power": torch.stack([size * angle.cos(), size * angle.sin()]),
            "gain": torch.randn(2, T, B, H, **draw),
        }
        return super().inputs(T, B, H) | varying

    def test_split_is_whole(self, backend):
        tensors = self.make(20, backend=backend)

        def split(leaves):
            early, late = ({**leaves, "inputs": leaves["inputs"][part], **{name: leaves[name][:, part]
                            for name in ("power", "gain")}} for part in (slice(0, 7), slice(7, 20)))  # fmt: skip
            first, middle = self.run(early, backend)
            second, end = self.run({**late, "start": middle}, backend)
            return torch.cat([first, second]), end

        compare(differentiate(split, tensors), differentiate(self.on(backend), tensors), self.within(backend, 1e-10))

    def test_rows_of_a_batch_do_not_meet(self, backend):
        tensors = self.make(9, shape=(4, 5), backend=backend)
        outputs, _ = self.run(tensors, backend)
        own = {"inputs": tensors["inputs"][:, 2:3], "start": tensors["start"][2:3]}
        own |= {name: tensors[name][:, :, 2:3] for name in ("power", "gain")}
        close(self.run({**tensors, **own}, backend)[0], outputs[:, 2:3], self.within(backend, LOOP))


@pytest.mark.parametrize("span", [1e-6, 0.3, 1.0, 40.0])
def test_coefficients_are_the_exponential_and_its_integral(span):
    decay, frequency = torch.tensor([1e-4, 0.02, 1.3]).double(), torch.tensor([1e-5, 3.0, 0.0]).double()
    power, gain = held_coefficients(decay, frequency, torch.full((2, 3), span, dtype=torch.float64))
    rate = torch.complex(-decay, frequency)
    fine = (torch.arange(20000).double() + 0.5) / 20000 * span
    close(torch.complex(*power[:, 1, 2]).abs(), torch.exp(-decay * span), 1e-12)
    close(torch.complex(*power[:, 1, 2]), torch.exp(rate * span), 1e-12)
    close(torch.complex(*gain[:, 0, 0]), torch.exp(fine[:, None] * rate).mean(0) * span, 1e-5)


def test_coefficients_are_differentiable():
    values = [torch.rand(3).double() + 0.1, torch.rand(3).double(), torch.rand(2, 2).double() + 0.1]
    assert torch.autograd.gradcheck(held_coefficients, [value.requires_grad_() for value in values])


def test_an_unknown_backend_is_refused():
    zero = torch.zeros(2, 1, 1, 1)
    with pytest.raises(InputError, match="expected backend to be one of"):
        damped_scan(torch.zeros(1, 1, 1), torch.zeros(1, 2), zero, zero, torch.zeros(2, 1), backend="fast")


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-11), (torch.float32, 5e-6)])
@pytest.mark.parametrize("spread", [False, True])
def test_coefficients_are_the_references(dtype, tolerance, spread):
    """From slow units, whose gradient is a series, to fast ones; spans of 0 and of many turns."""
    torch.manual_seed(0)
    fine = {"dtype": torch.float64}
    decay, frequency = (torch.exp(torch.linspace(-7, 1.2, 20, **fine))[torch.randperm(20)] for _ in range(2))
    spans = torch.tensor([[0.0, 1e-3, 1.0], [0.3, 30.0, 2.5]], **fine) if spread else None
    values = [decay, frequency, spans, 0.1 + torch.rand(20, **fine)]
    arriving = [torch.randn(2, *((2, 3) if spread else (1, 1)), 20, **fine) for _ in range(2)]

    def differentiated(function, kind):
        leaves = [None if value is None else value.to(kind).requires_grad_() for value in values]
        results = function(*leaves)
        used = [leaf for leaf in leaves if leaf is not None]
        return [*results, *torch.autograd.grad(results, used, [part.to(kind) for part in arriving])]

    def reference(decay, frequency, spans, scale):
        return held_coefficients_reference(decay, frequency, scale, spans)

    truth = differentiated(reference, torch.float64)
    for found, expected in zip(differentiated(held_coefficients, dtype), truth, strict=True):
        close(found.detach().double(), expected.detach(), tolerance)


def test_second_derivatives_of_coefficients():
    torch.manual_seed(0)
    values = [torch.rand(3, dtype=torch.float64).add(0.2).requires_grad_() for _ in range(2)]
    assert torch.autograd.gradgradcheck(held_coefficients, values)
