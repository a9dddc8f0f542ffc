"""The fused block around damped oscillators against its parts."""

# ruff: noqa: N803 (T, B, H are the names inside ops)

import pytest
import torch

from sostenuto.ops.damped_block import BlockWeights, compiled_steps, damped_block
from tests.laws.op_laws import close

F64 = torch.float64


@pytest.fixture(autouse=True)
def _any_number_of_rows(monkeypatch):
    monkeypatch.setattr("sostenuto.ops.damped_block.LEAST_ROWS", 1)


def make(T, B, H, *, spanned=False, bias=True):
    torch.manual_seed(T)
    draw = {"dtype": F64}
    size, angle = 0.3 + 0.65 * torch.rand(1, 1, H, **draw), 3 * torch.rand(1, 1, H, **draw)
    shapes = {"norm": (H,), "norm_bias": (H,), "enter": (H, H), "enter_bias": (H,), "scale": (H,), "direct": (H,)}
    shapes |= {"gate": (2 * H, H), "gate_bias": (2 * H,), "readout": (2, H), "gain": (2, 1, 1, H)}
    weights = {name: 0.5 * torch.randn(shape, **draw) for name, shape in shapes.items()}
    weights["power"] = torch.stack([size * angle.cos(), size * angle.sin()])
    if not bias:
        weights |= {"enter_bias": None, "gate_bias": None}
    if spanned:  # decays from fast to slow, and some spans of nothing
        weights["power"] = torch.stack([-size.log() * torch.logspace(-4, 0.5, H, **draw), angle])
        spans = (2 * torch.rand(T, B, **draw) - 0.2).clamp(min=0)
        weights |= {"gain": weights["gain"][:1], "spans": spans}
    weights = BlockWeights(**weights)
    return torch.randn(T, B, H, **draw), torch.randn(B, 2 * H, **draw), weights


def differentiated(backend, inputs, start, weights, lengths, arriving, dtype):
    cast = [None if tensor is None else tensor.to(dtype).requires_grad_() for tensor in (inputs, start, *weights)]
    results = damped_block(cast[0], cast[1], BlockWeights(*cast[2:]), lengths=lengths, backend=backend)
    leaves = [tensor for tensor in cast if tensor is not None]
    used = [(result, weight.to(dtype)) for result, weight in zip(results, arriving, strict=True) if weight is not None]
    found = torch.autograd.grad([one for one, _ in used], leaves, [other for _, other in used], allow_unused=True)
    return [*results, *found]


@pytest.mark.parametrize(("dtype", "tolerance"), [(F64, 1e-12), (torch.float32, 2e-5)])
@pytest.mark.parametrize(
    ("shape", "spanned", "bias", "ragged"),
    [
        ((7, 3, 5), False, True, False),
        ((40, 3, 13), False, True, True),
        ((9, 70, 16), False, False, False),
        ((20, 5, 17), True, True, False),
        ((20, 5, 17), True, True, True),
        ((1, 1, 3), False, True, False),
    ],
)
def test_is_its_parts_forward_and_backward(shape, spanned, bias, ragged, dtype, tolerance):
    inputs, start, weights = make(*shape, spanned=spanned, bias=bias)
    lengths = torch.randint(1, shape[0] + 1, (shape[1],)) if ragged else None
    arriving = torch.randn(shape, dtype=F64), torch.randn(start.shape, dtype=F64)
    truth = differentiated("reference", inputs, start, weights, lengths, arriving, F64)
    found = differentiated("cpu", inputs, start, weights, lengths, arriving, dtype)
    for one, other in zip(found, truth, strict=True):
        close(one.double(), other.detach(), tolerance)


@pytest.mark.parametrize("at", [0, 1])
def test_one_gradient_alone(at):
    inputs, start, weights = make(12, 6, 9)
    results = torch.zeros(1, 1, 1, dtype=F64).expand(12, 6, 9), torch.ones(6, 18, dtype=F64)
    arriving = tuple(part + 1 if index == 0 else part for index, part in enumerate(results))
    arriving = tuple(part if index == at else None for index, part in enumerate(arriving))
    pairs = (differentiated(name, inputs, start, weights, None, arriving, F64) for name in ("reference", "cpu"))
    for truth, found in zip(*pairs, strict=True):
        if truth is not None:
            close(found.detach(), truth.detach(), 1e-12)


def test_gradients_of_gradients_are_the_references():
    inputs, start, weights = make(3, 2, 2, spanned=True)
    leaves = [tensor.requires_grad_() for tensor in (inputs, start, *weights)]

    def run(*tensors):
        return damped_block(tensors[0], tensors[1], BlockWeights(*tensors[2:]), backend="cpu")

    assert torch.autograd.gradcheck(run, leaves)
    assert torch.autograd.gradgradcheck(run, leaves)


def test_rows_of_several_threads(monkeypatch):
    inputs, start, weights = make(30, 7, 6)
    alone = damped_block(inputs, start, weights, backend="cpu")
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    arriving = torch.randn_like(inputs), torch.randn_like(start)
    for one, other in zip(damped_block(inputs, start, weights, backend="cpu"), alone, strict=True):
        close(one, other, 1e-13)
    pairs = (differentiated(name, inputs, start, weights, None, arriving, F64) for name in ("reference", "cpu"))
    for truth, found in zip(*pairs, strict=True):
        close(found.detach(), truth.detach(), 1e-12)


@pytest.mark.parametrize("spanned", [False, True])
def test_without_gradients_it_is_the_same(spanned):
    inputs, start, weights = make(37, 9, 11, spanned=spanned)
    lengths = torch.randint(1, 38, (9,))
    recorded = damped_block(inputs, start.clone().requires_grad_(), weights, lengths=lengths, backend="cpu")
    for one, other in zip(damped_block(inputs, start, weights, lengths=lengths, backend="cpu"), recorded, strict=True):
        close(one, other.detach(), 1e-14)


def test_another_number_of_threads_backward(monkeypatch):
    inputs, start, weights = make(20, 9, 5)
    leaf = inputs.clone().requires_grad_()
    outputs, _ = damped_block(leaf, start, weights, backend="cpu")
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    (found,) = torch.autograd.grad(outputs.square().sum(), leaf)
    outputs, _ = damped_block(leaf, start, weights, backend="reference")
    (truth,) = torch.autograd.grad(outputs.square().sum(), leaf)
    close(found, truth, 1e-12)


@pytest.mark.parametrize("channels", [None, 4])
def test_steps_of_several_blocks_at_once(channels):
    inputs, start, first = make(1, 3, 13)
    second = make(2, 3, 13, bias=False)[2]
    widening = None if channels is None else (torch.randn(13, channels, dtype=F64), torch.randn(13, dtype=F64))
    x = inputs[0] if channels is None else torch.randn(3, channels, dtype=F64)
    states = torch.stack([start, start.flip(0)])
    step = compiled_steps([first, second], widening)
    assert step is not None
    output, real, imaginary = step(x, *states.chunk(2, dim=-1))
    stream = (x if widening is None else torch.nn.functional.linear(x, *widening))[None]
    for block, weights in enumerate((first, second)):
        stream, last = damped_block(stream, states[block], weights, backend="reference")
        close(torch.cat([real[block], imaginary[block]], dim=-1), last, 1e-13)
    close(output, stream[0], 1e-13)
