"""Dense and diagonal scans as torch operators: traced, exported, mapped, differentiated twice and forwards."""

import pytest
import torch

from sostenuto.ops.dense import dense_scan
from sostenuto.ops.dense.autograd import dense_scan_backward_op, dense_scan_op
from sostenuto.ops.diagonal import diagonal_scan, gated_scan
from sostenuto.ops.diagonal.autograd import diagonal_scan_op
from tests.apart import run_apart

T, B, H = 9, 3, 4


def dense(*, steps=T, full=True, dtype=torch.float64, units=H):
    torch.manual_seed(1)
    draw, square = {"dtype": dtype}, (units, units)
    linear = torch.eye(units, **draw) + 0.1 * torch.randn(square, **draw) if full else torch.full((1, 1), 0.9, **draw)
    return [
        torch.randn(steps, B, units, **draw), torch.randn(B, units, **draw), 0.3 * torch.randn(square, **draw), linear,
        torch.full((1,), 0.2, **draw),
    ]  # fmt: skip


def diagonal(*, steps=T, dtype=torch.float64):
    torch.manual_seed(1)
    draw = {"dtype": dtype}
    return [torch.randn(steps, B, H, **draw), torch.randn(B, H, **draw), *(torch.rand(3, H, **draw).unbind(0))]


def gated(*, steps=T, dtype=torch.float64):
    z, start, weight, *_ = diagonal(steps=steps, dtype=dtype)
    return [z, torch.flip(z, (0,)), start, weight]


OPS = [
    pytest.param(*pair, id=pair[0].__name__)
    for pair in ((dense_scan, dense), (diagonal_scan, diagonal), (gated_scan, gated))
]


def test_operators_are_well_formed():
    for full in (False, True):
        tensors = [tensor.requires_grad_() for tensor in dense(full=full)]
        torch.library.opcheck(dense_scan_op, (*tensors, None, "tanh", "exact", True))
        plain = [tensor.detach() for tensor in tensors]
        states, last, activated = dense_scan_op(*plain, None, "tanh", "exact", True)
        for weights in ([False] * 3, [True] * 3, [True, False, False]):
            arguments = (*plain[1:], "tanh", "exact", states, activated, states, last, weights)
            torch.library.opcheck(dense_scan_backward_op, arguments, test_utils=("test_schema", "test_faketensor"))
    z, start, *vectors = diagonal()
    stacked = torch.stack([*vectors, torch.zeros_like(vectors[0])]).requires_grad_()
    for candidates in (None, z.flip(0)):
        torch.library.opcheck(diagonal_scan_op, (z.requires_grad_(), candidates, start, stacked, "logistic"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("units", [8, 16, 24, 32, 64, 128])
def test_gradients_share_no_memory(units, dtype):
    """Where no row is padded, gradients cut from one array would: an operator's results may not."""
    plain = dense(steps=2, units=units, dtype=dtype)
    states, last, activated = dense_scan_op(*plain, None, "tanh", "exact", True)
    arguments = (*plain[1:], "tanh", "exact", states, activated, states, last, [True] * 3)
    torch.library.opcheck(dense_scan_backward_op, arguments, test_utils="test_schema")
    z, *rest = (tensor.requires_grad_() for tensor in plain)
    mapped = [torch.stack([tensor, tensor]) for tensor in rest]
    torch.vmap(lambda *values: dense_scan(z, *values)[0])(*mapped).sum().backward()
    assert rest[1].grad.untyped_storage().data_ptr() != rest[2].grad.untyped_storage().data_ptr()


@pytest.mark.parametrize(("op", "make"), OPS)
def test_second_derivatives_are_the_references(op, make):
    tensors = [tensor[:3, :2] if tensor.ndim == 3 else tensor for tensor in make()]
    tensors = [tensor[:2] if tensor.shape == (B, H) else tensor for tensor in tensors]
    leaves = [tensor.detach().clone().requires_grad_() for tensor in tensors]
    assert torch.autograd.gradgradcheck(lambda *values: op(*values, backend="cpu"), leaves, atol=1e-6)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")
@pytest.mark.parametrize(("op", "make"), OPS)
def test_forward_mode_is_the_references(op, make):
    z, *rest = make()
    tangent = torch.randn_like(z)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(z, tangent)
        got, expected = (
            torch.autograd.forward_ad.unpack_dual(op(dual, *rest, backend=name)[0]).tangent
            for name in ("cpu", "reference")
        )
    torch.testing.assert_close(got, expected)
    assert got.abs().max() > 0


@pytest.mark.parametrize("mapped", [(0,), (0, 1), (2,), (0, 2)])
@pytest.mark.parametrize(("op", "make"), OPS)
def test_vmap_is_one_by_one(op, make, mapped):
    tensors = make()
    many = [torch.stack([tensors[i], 0.5 * tensors[i], 2 * tensors[i]], dim=-1) for i in mapped]

    def run(*values):
        replaced = dict(zip(mapped, values, strict=True))
        return op(*(replaced.get(i, tensor) for i, tensor in enumerate(tensors)), backend="cpu")

    got = torch.vmap(run, in_dims=-1)(*many)
    for index in range(3):
        for one, other in zip(got, run(*(tensor[..., index] for tensor in many)), strict=True):
            torch.testing.assert_close(one[index], other)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_give_the_same_bits(threads):
    tensors = [torch.randn(20, 21, 60), torch.zeros(21, 60), torch.randn(60, 60) / 8, torch.eye(1), torch.ones(1) / 9]
    expected = dense_scan(*tensors, backend="cpu")
    torch.set_num_threads(threads)
    got = dense_scan(*tensors, backend="cpu")
    for one, other in zip(got, expected, strict=True):
        assert torch.equal(one, other)


WHOLE = """
import torch
from sostenuto.ops.dense import dense_scan
from sostenuto.ops.diagonal import diagonal_scan

class Unit(torch.nn.Module):
    def __init__(self, op, weight, linear, gain):
        super().__init__()
        self.op = op
        self.weight, self.linear, self.gain = (torch.nn.Parameter(value) for value in (weight, linear, gain))

    def forward(self, x):
        return self.op(x, x.new_zeros(x.shape[1:]).float(), self.weight, self.linear, self.gain)[0]

units = [Unit(dense_scan, torch.randn(4, 4) / 4, torch.eye(4), torch.ones(1) / 9)]
units.append(Unit(diagonal_scan, torch.rand(4), torch.rand(4), torch.rand(4)))
for unit in units:
    compiled = torch.compile(unit, fullgraph=True, dynamic=True, backend="aot_eager")
    for count in (9, 20):
        x = torch.randn(count, 3, 4, requires_grad=True)
        leaves = [x, *unit.parameters()]
        got, expected = (torch.autograd.grad(one(x).sin().sum(), leaves) for one in (compiled, unit))
        torch.testing.assert_close(got, expected)
    steps = torch.export.Dim("steps", min=2, max=512)
    program = torch.export.export(unit, (torch.randn(9, 3, 4),), dynamic_shapes=({0: steps},))
    longer = torch.randn(27, 3, 4)
    torch.testing.assert_close(program.module()(longer), unit(longer))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        states = unit(x.detach().bfloat16())
    assert states.dtype == torch.float32
    torch.testing.assert_close(states, unit(x.detach()), rtol=0.05, atol=0.05)
"""


def test_compiles_and_exports():
    """In a process of its own: symbolic sizes are not the ints that the type checks ask for."""
    run_apart(WHOLE)
