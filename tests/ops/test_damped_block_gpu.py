"""The Triton kernels of the block around damped oscillators: on a GPU, or under Triton's interpreter."""

# ruff: noqa: N803 (T, B, H are the names inside ops)

import pytest
import torch

from sostenuto.ops.damped_block import BlockWeights, damped_block
from tests.laws.op_laws import GPU

pytest.importorskip("triton", reason="Triton has no wheel for this system")

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def _any_number_of_rows(monkeypatch):
    monkeypatch.setattr("sostenuto.ops.damped_block.LEAST_ROWS", 1)


def make(T, B, H, *, bias=True):
    torch.manual_seed(T)
    size, angle = 0.3 + 0.65 * torch.rand(1, 1, H), 3 * torch.rand(1, 1, H)
    shapes = {"norm": (H,), "norm_bias": (H,), "enter": (H, H), "enter_bias": (H,), "scale": (H,), "direct": (H,)}
    shapes |= {"gate": (2 * H, H), "gate_bias": (2 * H,), "readout": (2, H), "gain": (2, 1, 1, H)}
    weights = {name: 0.5 * torch.randn(shape) for name, shape in shapes.items()}
    weights["power"] = torch.stack([size * angle.cos(), size * angle.sin()])
    weights["enter"], weights["gate"] = weights["enter"] / H**0.5, weights["gate"] / H**0.5
    if not bias:
        weights |= {"enter_bias": None, "gate_bias": None}
    tensors = torch.randn(T, B, H), torch.randn(B, 2 * H), *BlockWeights(**weights)
    return [None if tensor is None else tensor.to(GPU) for tensor in tensors]


def differentiated(backend, tensors, lengths, arriving, dtype):
    cast = [None if tensor is None else tensor.to(dtype).requires_grad_() for tensor in tensors]
    results = damped_block(cast[0], cast[1], BlockWeights(*cast[2:]), lengths=lengths, backend=backend)
    leaves = [tensor for tensor in cast if tensor is not None]
    used = [(result, part.to(dtype)) for result, part in zip(results, arriving, strict=True) if part is not None]
    found = torch.autograd.grad([one for one, _ in used], leaves, [part for _, part in used])
    return [*results, *found]


def check(T, B, H, *, bias=True, ragged=False, spread=False, ending=True):
    tensors = make(T, B, H, bias=bias)
    lengths = torch.randint(1, T + 1, (B,), device=GPU) if ragged else None
    d_outputs = torch.randn(1, 1, 1).expand(T, B, H) if spread else torch.randn(T, B, H)
    arriving = d_outputs.to(GPU), torch.randn(B, 2 * H).to(GPU) if ending else None
    truth = differentiated("reference", tensors, lengths, arriving, torch.float64)
    found = differentiated("gpu", tensors, lengths, arriving, torch.float32)
    assert type(found[0].grad_fn).__name__ == "BlockBackward"
    for index, (one, other) in enumerate(zip(found, truth, strict=True)):
        error = ((one.double() - other).abs().max() / other.abs().max().clamp(min=1e-3)).item()
        assert one.shape == other.shape
        assert error <= 2e-5, (T, B, H, index, error)


@pytest.mark.parametrize("shape", [(1, 1, 3), (1, 5, 17), (9, 1, 3), (20, 3, 17), (9, 2, 128), (3, 2, 130)])
@pytest.mark.parametrize("ragged", [False, True])
def test_is_its_parts_forward_and_backward(shape, ragged):
    check(*shape, ragged=ragged)


def test_without_biases():
    check(12, 3, 9, bias=False)


def test_outputs_alone_and_the_same_gradient_everywhere():
    check(12, 3, 9, ending=False, spread=True)


def test_programs_see_several_tiles(monkeypatch):
    """Few programs and small tiles: each sums over many."""
    monkeypatch.setattr("sostenuto.ops.damped_block.gpu.PROGRAMS", 3)
    monkeypatch.setattr("sostenuto.ops.damped_block.gpu.TILE", 16)
    check(11, 3, 5)
    check(11, 3, 5, spread=True)


def test_results_are_the_same_every_time():
    tensors, arriving = make(30, 3, 17), (torch.randn(30, 3, 17).to(GPU), None)
    first, second = (differentiated("gpu", tensors, None, arriving, torch.float32) for _ in range(2))
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))


def test_wide_blocks_and_time_spans_run_their_parts(monkeypatch):
    inputs, start, *others = make(3, 2, 4)
    inputs, weights = inputs.requires_grad_(), BlockWeights(*others)
    spanned = weights._replace(power=weights.power.abs(), gain=weights.gain[:1], spans=torch.ones(3, 2, device=GPU))
    nodes = [type(damped_block(inputs, start, each)[0].grad_fn).__name__ for each in (weights, spanned)]
    monkeypatch.setattr("sostenuto.ops.damped_block.WIDEST", 3)
    nodes.append(type(damped_block(inputs, start, weights)[0].grad_fn).__name__)
    assert [name == "BlockBackward" for name in nodes] == [True, False, False]


def test_second_derivatives_are_the_references():
    tensors = [tensor if tensor is None else tensor.requires_grad_() for tensor in make(3, 2, 2)]
    outputs, _ = damped_block(tensors[0], tensors[1], BlockWeights(*tensors[2:]), backend="gpu")
    (slope,) = torch.autograd.grad(outputs.square().sum(), tensors[0], create_graph=True)
    (curved,) = torch.autograd.grad(slope.square().sum(), tensors[0])
    assert torch.isfinite(curved).all()
    assert curved.abs().max() > 0


@pytest.mark.skipif(not torch.cuda.is_available(), reason="kernels are counted on a GPU")
def test_few_launches():
    """Six kernels forward and eleven backward, and what cuBLAS adds to split its sums."""
    tensors = [tensor if tensor is None else tensor.requires_grad_() for tensor in make(40, 8, 128)]
    leaves = [tensor for tensor in tensors if tensor is not None]
    arriving = torch.ones_like(tensors[0])

    def run():
        return damped_block(tensors[0], tensors[1], BlockWeights(*tensors[2:]), backend="gpu")[0]

    torch.autograd.grad(run(), leaves, arriving)
    outputs = run()
    assert _kernels(run) <= 9
    assert _kernels(lambda: torch.autograd.grad(outputs, leaves, arriving)) <= 18


def _kernels(run):
    """Count the kernels that a call launches."""
    kinds = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=kinds, acc_events=True) as profiler:  # else it warns that it forgets
        run()
        torch.cuda.synchronize()
    names = [event.name for event in profiler.events() if str(event.device_type).endswith("CUDA")]
    return sum(not name.startswith(("Memcpy", "Memset")) for name in names)
