"""The compiled signature: the reference, every gradient, prefixes, one step, ragged paths, layouts, transforms."""

import pytest
import torch

from sostenuto.checks import InputError
from sostenuto.ops.signature import levels_backend, path_increments, signature_levels, signature_size
from sostenuto.ops.signature.cpu import levels as cpu
from tests.laws.op_laws import close, poisoned, transposed

TIMES = (1, 2, 63, 257)
SHAPES = [(1, 1, 3), (1, 3, 4), (5, 2, 5), (9, 5, 3), (70, 2, 3), (3, 4, 1)]
EXACT, FLOAT64, FLOAT32 = 1e-12, 1e-10, 1e-5


def steps(batch, time, channels, seed=0, size=0.3):
    generator = torch.Generator().manual_seed(seed)
    return size * torch.randn(batch, time, channels, generator=generator, dtype=torch.float64)


def differentiated(increments, level, backend, prefixes=False):
    leaf = increments.detach().clone().requires_grad_()
    found = signature_levels(leaf, level, prefixes=prefixes, backend=backend)
    generator = torch.Generator().manual_seed(7)
    weight = torch.randn(found.shape, generator=generator, dtype=torch.float64).to(found)
    (gradient,) = torch.autograd.grad(found, leaf, weight)
    return found.detach(), gradient


@pytest.mark.parametrize("prefixes", [False, True])
@pytest.mark.parametrize("time", TIMES)
def test_is_the_reference_with_its_gradient(time, prefixes):
    for batch, channels, level in SHAPES if time < 100 else SHAPES[:3]:
        increments = steps(batch, time, channels, seed=time)
        found, gradient = differentiated(increments, level, "cpu", prefixes)
        expected, slope = differentiated(increments, level, "reference", prefixes)
        close(found, expected, EXACT)
        close(gradient, slope, FLOAT64)


@pytest.mark.parametrize("prefixes", [False, True])
def test_gradients_are_the_derivatives(prefixes):
    def run(increments):
        return signature_levels(increments, 4, prefixes=prefixes, backend="cpu")

    assert torch.autograd.gradcheck(run, steps(3, 5, 2).requires_grad_(), atol=1e-8)
    assert torch.autograd.gradcheck(run, steps(1, 1, 3).requires_grad_(), atol=1e-8)
    assert torch.autograd.gradgradcheck(run, steps(1, 3, 2).requires_grad_(), atol=1e-7)


@pytest.mark.parametrize("prefixes", [False, True])
def test_a_long_path_is_followed_back_in_parts(monkeypatch, prefixes):
    increments = steps(3, 61, 2)
    whole = differentiated(increments, 3, "cpu", prefixes)[1]
    monkeypatch.setattr(cpu, "KEPT", 1)
    torch.testing.assert_close(differentiated(increments, 3, "cpu", prefixes)[1], whole, rtol=0, atol=0)


def test_a_far_way_out_and_back_keeps_its_gradient():
    """Going back by inverse segments would lose the small levels at the start under the large ones in the middle."""
    out = steps(2, 40, 2, size=0.1) + 2.0
    increments = torch.cat([steps(2, 5, 2, seed=1, size=0.01), out, -out.flip(1)], dim=1)
    found, gradient = differentiated(increments, 5, "cpu")
    expected, slope = differentiated(increments, 5, "reference")
    close(found, expected, 1e-4)  # what is left of numbers of some 1e8 that cancel
    close(gradient, slope, FLOAT64)


def test_one_step_is_the_exponential():
    increments = steps(4, 1, 3)
    levels = signature_levels(increments, 3, backend="cpu").split([3, 9, 27], dim=1)
    power, factor = increments[:, 0], 1
    for k, level in enumerate(levels, start=1):
        factor *= k
        torch.testing.assert_close(level, power / factor, rtol=1e-13, atol=1e-15)
        power = (power[:, :, None] * increments[:, :1]).flatten(1)


def test_the_last_prefix_is_the_whole():
    increments = steps(70, 20, 3)
    every = signature_levels(increments, 3, prefixes=True, backend="cpu")
    torch.testing.assert_close(every[:, -1], signature_levels(increments, 3, backend="cpu"), rtol=0, atol=0)
    assert every.shape == (70, 20, signature_size(3, 3))


def test_padding_changes_nothing_and_ragged_is_one_by_one():
    points, lengths = steps(5, 30, 2).cumsum(1), torch.tensor([30, 1, 7, 29, 2])
    increments = path_increments(points, lengths, basepoint=True, time_scale=0.25)
    together = signature_levels(increments, 4, backend="cpu")
    for index, length in enumerate(lengths.tolist()):
        alone = path_increments(points[index : index + 1, :length], basepoint=True, time_scale=0.25)
        torch.testing.assert_close(signature_levels(alone, 4, backend="cpu")[0], together[index], rtol=0, atol=1e-15)


def test_float32_is_nearer_the_truth_than_the_reference():
    for time in TIMES:
        single = steps(6, time, 2, seed=time).float()
        truth = differentiated(single.double(), 4, "reference")
        for prefixes in (False, True):
            truth = differentiated(single.double(), 4, "reference", prefixes)
            found = differentiated(single, 4, "cpu", prefixes)
            assert all(value.dtype == torch.float32 for value in found)
            for one, other in zip(found, truth, strict=True):
                close(one.double(), other, FLOAT32)


@pytest.mark.parametrize("layout", [transposed, poisoned], ids=["transposed", "strided"])
def test_reads_any_layout_and_leaves_its_input_alone(layout):
    plain = steps(5, 20, 3)
    laid_out = layout(plain).requires_grad_()
    before = laid_out.detach().clone()
    found = signature_levels(laid_out, 3, backend="cpu")
    found.sum().backward()
    torch.testing.assert_close(found.detach(), signature_levels(plain, 3, backend="cpu"), rtol=0, atol=0)
    leaf = plain.requires_grad_()
    signature_levels(leaf, 3, backend="cpu").sum().backward()
    torch.testing.assert_close(laid_out.grad, leaf.grad, rtol=0, atol=0)
    assert torch.equal(laid_out.detach(), before)


def test_threads_change_nothing():
    increments = steps(50, 12, 2)
    torch.set_num_threads(1)
    one = differentiated(increments, 4, "cpu")
    torch.set_num_threads(2)
    two = differentiated(increments, 4, "cpu")
    for first, second in zip(one, two, strict=True):
        torch.testing.assert_close(first, second, rtol=0, atol=1e-14)


def test_no_path_and_no_step():
    assert signature_levels(torch.zeros(0, 3, 2), 3, backend="cpu").shape == (0, 14)
    assert not signature_levels(torch.zeros(2, 0, 2), 3, backend="cpu").any()


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")  # torch's own, on first use
def test_operator_is_traced_and_differentiated():
    from sostenuto.ops.signature.autograd import signature_levels_op

    increments = steps(2, 4, 2).requires_grad_()
    for prefixes in (False, True):
        torch.library.opcheck(signature_levels_op, (increments, 3, prefixes))


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")  # torch's own, on first use
def test_backends_are_chosen_and_refused():
    assert levels_backend("auto", torch.zeros(1, 1, 1, requires_grad=True), prefixes=True) == "cpu"
    with pytest.raises(InputError, match="expected a tensor that the backend 'cpu' can take"):
        signature_levels(torch.zeros(1, 2, 2).bfloat16(), 2, backend="cpu")
    with pytest.raises(InputError, match=r"expected neither forward mode nor torch\.func with backend='cpu'"):
        torch.func.jvp(
            lambda path: signature_levels(path, 2, backend="cpu"), (torch.zeros(1, 2, 2),), (torch.ones(1, 2, 2),)
        )
