# ruff: noqa: N803 (T, B, H are the names inside ops)

import numpy as np
import pytest
import torch

from sostenuto.checks import InputError
from sostenuto.ops.backend import BACKENDS
from sostenuto.ops.oscillator import oscillator_scan
from sostenuto.ops.oscillator.scan import FUSED_CHANNELS
from tests.laws.op_laws import LOOP, ScanLaws, close, compare, differentiate, weights_of


class OscillatorLaws(ScanLaws):
    states = ("y", "z")
    backends = BACKENDS
    stiffness: float

    def inputs(self, T, B, H):
        draw = {"dtype": torch.float64}
        return {
            "x": torch.randn(T, B, H, **draw),
            "weight": 2 * torch.rand(H, **draw) - 0.5,
            "step": 0.05 + 0.2 * torch.rand(H, **draw),
            "y": 0.5 * torch.randn(B, H, **draw),
            "z": 0.5 * torch.randn(B, H, **draw),
            "timespans": 0.2 + 1.6 * torch.rand(T, B, **draw),
        }

    def run(self, tensors, backend):
        names = ("x", "weight", "step")
        return oscillator_scan(
            *(tensors[name] for name in names),
            self.stiffness,
            tensors["y"],
            tensors["z"],
            timespans=tensors.get("timespans"),
            backend=backend,
        )

    def loop(self, arrays):
        x, w, y, z = (arrays[name] for name in ("x", "weight", "y", "z"))
        y, z, ys = y.copy(), z.copy(), np.empty_like(x)
        spans = arrays.get("timespans", np.ones(x.shape[:2]))
        for n in range(len(x)):
            for b in range(x.shape[1]):
                g = arrays["step"] * spans[n, b]
                z[b] -= g * (np.tanh(w * y[b] + x[n, b]) + self.stiffness * y[b])
                y[b] += g * z[b]
                ys[n, b] = y[b]
        return ys, y, z


class TestOscillatorScan(OscillatorLaws):
    stiffness = 1.7


class TestWithoutStiffness(OscillatorLaws):
    stiffness = 0.0


class DrivenLaws(OscillatorLaws):
    """With the input map inside the op, few channels (computed in the scan) and many (one product before it)."""

    stiffness = 1.7
    channels: int

    def inputs(self, T, B, H):
        tensors = super().inputs(T, B, H)
        x = torch.randn(T, B, self.channels, dtype=torch.float64)
        matrix, bias = (torch.randn(H, self.channels, dtype=torch.float64), torch.randn(H, dtype=torch.float64))
        return {**tensors, "x": x, "weight_ih": matrix / self.channels**0.5, "bias": bias}

    def run(self, tensors, backend):
        names = ("x", "weight", "step")
        return oscillator_scan(
            *(tensors[name] for name in names),
            self.stiffness,
            tensors["y"],
            tensors["z"],
            input_map=(tensors["weight_ih"], tensors.get("bias")),
            timespans=tensors.get("timespans"),
            backend=backend,
        )

    def loop(self, arrays):
        drive = arrays["x"] @ arrays["weight_ih"].T + arrays["bias"]
        return super().loop({**arrays, "x": drive})


class TestFewChannels(DrivenLaws):
    channels = 3


class TestManyChannels(DrivenLaws):
    channels = FUSED_CHANNELS + 1


@pytest.mark.parametrize("channels", [1, FUSED_CHANNELS + 1])
def test_a_map_without_bias_is_one_with_none(channels):
    laws = DrivenLaws()
    laws.channels = channels
    with_zero = laws.make(20)
    with_zero["bias"].zero_()
    without = {name: tensor for name, tensor in with_zero.items() if name != "bias"}
    results, gradients = differentiate(laws.on("cpu"), with_zero)
    gradients.pop("bias")
    compare(differentiate(laws.on("cpu"), without), (results, gradients), 0.0)


@pytest.mark.parametrize("channels", [1, FUSED_CHANNELS + 1])
def test_only_the_gradients_asked_for_are_the_same(channels):
    laws = DrivenLaws()
    laws.channels = channels
    tensors = laws.make(20)
    _, expected = differentiate(laws.on("cpu"), tensors)
    for name in ("weight_ih", "bias", "weight", "y"):
        leaves = {key: tensor.detach().clone().requires_grad_(key == name) for key, tensor in tensors.items()}
        results = laws.run(leaves, "cpu")
        (gradient,) = torch.autograd.grad(results, [leaves[name]], weights_of(results), retain_graph=True)
        close(gradient, expected[name], 0.0)
        (again,) = torch.autograd.grad(results, [leaves[name]], weights_of(results))
        assert torch.equal(again, gradient)
        assert gradient.stride() == leaves[name].stride()


@pytest.mark.parametrize("channels", [1, FUSED_CHANNELS + 1])
def test_second_derivatives_through_the_map(channels):
    laws = DrivenLaws()
    laws.channels = channels
    tensors = laws.make(3, shape=(1, 2), timespans=False)
    names = list(tensors)

    def run(*values):
        return laws.run(dict(zip(names, values, strict=True)), "cpu")

    assert torch.autograd.gradgradcheck(run, [tensors[name].requires_grad_() for name in names], atol=1e-6)


def readme_adjoint(x, w, g, stiffness, y, z, arriving):
    """The adjoint of the README, line by line; ``g`` is (T, B, H), ``arriving`` weighs outputs and final y and z."""
    ys, zs, forces = [y], [z], []
    for n in range(len(x)):
        forces.append(np.tanh(w * ys[-1] + x[n]))
        zs.append(zs[-1] - g[n] * (forces[-1] + stiffness * ys[-1]))
        ys.append(ys[-1] + g[n] * zs[-1])
    at_outputs, bar_y, bar_z = arriving
    bar_x, bar_g, bar_w = np.empty_like(x), np.empty_like(x), np.zeros_like(w)
    for n in reversed(range(len(x))):
        before, slope = ys[n], 1 - forces[n] ** 2
        bar_y = bar_y + at_outputs[n]
        bar_z = bar_z + g[n] * bar_y
        bar_x[n] = -g[n] * slope * bar_z
        bar_w += (bar_x[n] * before).sum(0)
        bar_g[n] = bar_y * zs[n + 1] - bar_z * (forces[n] + stiffness * before)
        bar_y = bar_y + w * bar_x[n] - g[n] * stiffness * bar_z
    return bar_x, bar_w, bar_g, bar_y, bar_z


@pytest.mark.parametrize("stiffness", [0.0, 1.7])
@pytest.mark.parametrize("T", [1, 2, 257])
def test_the_readme_derives_the_adjoint_rightly(T, stiffness):
    laws = OscillatorLaws()
    laws.stiffness = stiffness
    leaves = {name: tensor.requires_grad_() for name, tensor in laws.make(T, seed=T).items()}
    results = laws.run(leaves, "reference")
    weights = weights_of(results)
    torch.autograd.backward(results, weights)
    x, w, step, y, z, spans = (leaves[name].detach().numpy() for name in ("x", "weight", "step", "y", "z", "timespans"))
    arriving = [weight.numpy() for weight in weights]
    bar_x, bar_w, bar_g, bar_y, bar_z = readme_adjoint(x, w, step * spans[:, :, None], stiffness, y, z, arriving)
    expected = {
        "x": bar_x,
        "weight": bar_w,
        "step": (bar_g * spans[:, :, None]).sum((0, 1)),
        "y": bar_y,
        "z": bar_z,
        "timespans": (bar_g * step).sum(2),
    }
    for name, gradient in expected.items():
        close(leaves[name].grad, torch.from_numpy(gradient), LOOP)


def test_the_step_inverts_as_the_readme_says():
    laws = OscillatorLaws()
    laws.stiffness = 1.7
    tensors = laws.make(63, timespans=False)
    x, w, g = tensors["x"], tensors["weight"], tensors["step"]
    _, y, z = laws.run(tensors, "reference")
    for drive in x.flip(0):
        y = y - g * z
        z = z + g * (torch.tanh(w * y + drive) + 1.7 * y)
    close(y, tensors["y"], LOOP)
    close(z, tensors["z"], LOOP)


@pytest.mark.parametrize(
    ("stiffness", "backend", "message"),
    [
        (-1.0, "auto", "expected stiffness to be a finite number at least 0, got -1.0"),
        (float("nan"), "auto", "stiffness"),
        (1.0, "gpu?", "expected backend to be one of 'auto', 'reference'.*got 'gpu\\?'"),
    ],
)
def test_bad_options_are_refused(stiffness, backend, message):
    x, zero, one = torch.zeros(2, 1, 1), torch.zeros(1, 1), torch.ones(1)
    with pytest.raises(InputError, match=message):
        oscillator_scan(x, one, one, stiffness, zero, zero, backend=backend)


@pytest.mark.parametrize("steps", [1000, 17984])
def test_long_sequences_give_the_references_gradients(steps):
    """Slow oscillators under a faint drive: long, and well conditioned, so that float32 has something to say."""
    torch.manual_seed(steps)
    draw = {"dtype": torch.float32}
    x = 0.1 * torch.randn(steps, 2, 3, **draw)
    weight, step = 0.2 * torch.rand(3, **draw), 0.005 + 0.01 * torch.rand(3, **draw)
    y, z = 0.1 * torch.randn(2, 3, **draw), 0.1 * torch.randn(2, 3, **draw)
    weights = torch.randn(steps, 2, 3, dtype=torch.float64)

    def run(dtype, backend):
        leaves = [tensor.to(dtype).requires_grad_() for tensor in (x, weight, step, y, z)]
        outputs, _, last = oscillator_scan(*leaves[:3], 1.0, *leaves[3:], backend=backend)
        loss = (outputs * weights.to(dtype)).sum() + last.sum()
        return [outputs.detach(), last.detach(), *torch.autograd.grad(loss, leaves)]

    truth = run(torch.float64, "reference")
    for dtype, tolerance in ((torch.float64, 1e-10), (torch.float32, 1e-5)):
        for got, right in zip(run(dtype, "cpu"), truth, strict=True):
            assert ((got.double() - right).abs().max() / right.abs().max()).item() <= tolerance


@pytest.mark.parametrize("timespans", [False, True])
@pytest.mark.parametrize("width", [15, 16, 17, 64, 93])
def test_columns_and_steps_beside_whole_vectors(width, timespans):
    laws = TestOscillatorScan()
    for steps in (3, 4, 5, 8, 9):
        tensors = laws.make(steps, shape=(1, width), timespans=timespans)
        compare(differentiate(laws.on("cpu"), tensors), differentiate(laws.on("reference"), tensors), LOOP)


@pytest.mark.parametrize("quarter", range(4))
def test_what_a_scan_writes_begins_at_another_place_of_a_page_than_what_it_reads(quarter):
    page, count, shape = 4096, 40 * 16 * 128, (40, 16, 128)
    one, other = torch.zeros(2, count + page)
    x, d_outputs = one[:count].view(shape), other[quarter * page // 16 :][:count].view(shape)
    x.requires_grad_()
    ys, *_ = oscillator_scan(x, torch.ones(128), torch.ones(128), 1.0, torch.zeros(16, 128), torch.zeros(16, 128))
    (d_x,) = torch.autograd.grad(ys, x, d_outputs)
    read = [tensor.data_ptr() for tensor in (x, ys, d_outputs)]
    assert abs((ys.data_ptr() - x.data_ptr()) % page - page // 2) < 64
    assert all(64 < (d_x.data_ptr() - address) % page < page - 64 for address in read)


@pytest.mark.parametrize("part", range(3))
def test_gradients_of_one_result_alone_once_and_twice(part):
    torch.manual_seed(0)
    tensors = [torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in ((9, 2, 5), (5,), (5,))]
    zero = torch.zeros(2, 5, dtype=torch.float64)

    def gradients(backend):
        loss = oscillator_scan(*tensors, 1.0, zero, zero, backend=backend)[part].square().sum()
        once = torch.autograd.grad(loss, tensors, retain_graph=True)
        recorded = torch.autograd.grad(loss, tensors, create_graph=True)
        return *once, *torch.autograd.grad(sum(found.square().sum() for found in recorded), tensors)

    for ours, theirs in zip(gradients("cpu"), gradients("reference"), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)
