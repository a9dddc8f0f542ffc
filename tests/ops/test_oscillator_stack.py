# ruff: noqa: N803 (T, B, H are the names inside ops)

import pytest
import torch

from sostenuto.checks import InputError
from sostenuto.ops.oscillator import Cell, oscillator_scan
from sostenuto.ops.oscillator.cpu import scan as cpu
from sostenuto.ops.oscillator.recompute import oscillator_stack
from sostenuto.ops.oscillator.reference import inverse_reference
from tests.apart import run_apart


def drawn(T, B, H, dtype=torch.float64):
    draw = {"dtype": dtype}
    x, y, z = (torch.randn(*shape, **draw) for shape in ((T, B, H), (B, H), (B, H)))
    return x, 2 * torch.rand(H, **draw) - 0.5, 0.05 + 0.2 * torch.rand(H, **draw), 1.7, y, z


@pytest.mark.parametrize(("T", "B", "H"), [(1, 1, 1), (63, 3, 5), (40, 7, 700)])
@pytest.mark.parametrize("spans", [False, True])
def test_the_compiled_inverse_is_the_references(T, B, H, spans):
    arguments = drawn(T, B, H)
    timespans = 2 * torch.rand(T, B, dtype=torch.float64) if spans else None
    for one, other in zip(
        cpu.inverse(*arguments, timespans, True), inverse_reference(*arguments, timespans, True), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-11)
    assert cpu.inverse(*arguments).velocities is None


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 2e-5)])
@pytest.mark.parametrize("inverse", [cpu.inverse, inverse_reference])
def test_the_inverse_undoes_the_scan(inverse, dtype, tolerance):
    x, w, g, alpha, y, z = drawn(200, 3, 5, dtype)
    ys, y_end, z_end = oscillator_scan(x, w, g, alpha, y, z)
    found = inverse(x, w, g, alpha, y_end, z_end, velocities=True)
    for one, other in ((found.outputs, ys), (found.y, y), (found.z, z), (found.velocities[-1], z_end)):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(found.y_peak, torch.cat([y[None], ys]).abs().amax(0), rtol=tolerance, atol=tolerance)
    assert (found.z_peak >= found.velocities.abs().amax(0) - tolerance).all()


def test_a_span_of_zero_is_inverted_exactly():
    arguments = drawn(50, 2, 3, torch.float32)
    for inverse in (cpu.inverse, inverse_reference):
        found = inverse(*arguments, torch.zeros(50, 2))
        assert torch.equal(found.y, arguments[4])
        assert torch.equal(found.z, arguments[5])


def test_arguments_stay_as_they_are():
    arguments = drawn(9, 2, 3)
    before = [value.clone() if isinstance(value, torch.Tensor) else value for value in arguments]
    cpu.inverse(*arguments)
    assert all(torch.equal(one, other) for one, other in zip(arguments[4:], before[4:], strict=True))


def stack(**options):
    cell = Cell(torch.ones(2, 1), None, None, torch.ones(2), torch.full((2,), 0.1), None)
    zero = torch.zeros(1, 1, 2)
    return oscillator_stack(torch.ones(9, 1, 1), [cell], options.pop("stiffness", 1.0), zero, zero, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"stiffness": -1.0}, "stiffness"), ({"chunk": 0}, "chunk"), ({"backend": "abacus"}, "backend")],
)
def test_bad_arguments_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        stack(**options)


def test_without_gradients_nothing_is_kept_and_nothing_drifts():
    result = stack(chunk=4)
    assert not result.outputs.requires_grad
    assert (result.drift.chunks, result.drift.restarted, result.drift.worst) == (3, 0, [0.0])


COMPILED = """
import torch
from sostenuto.nn import UnICORNN

layer = UnICORNN(2, 4, num_layers=2, memory="recompute")
compiled = torch.compile(layer, fullgraph=True, dynamic=True, backend="aot_eager")
for count in (9, 20):
    x = torch.randn(count, 3, 2, requires_grad=True)
    (got,) = torch.autograd.grad(compiled(x)[0].sin().sum(), x)
    assert layer.last_drift == ()
    (expected,) = torch.autograd.grad(layer(x)[0].sin().sum(), x)
    assert len(layer.last_drift) == 1
    layer.last_drift = ()
    torch.testing.assert_close(got, expected)
"""


def test_a_compiled_graph_takes_the_stored_stack():
    """In a process of its own: symbolic sizes are not the bools and ints that the type checks ask for."""
    run_apart(COMPILED)
