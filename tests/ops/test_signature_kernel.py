"""The level-wise program against explicit signatures, its symmetry to the last bit, its derivatives and refusals."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sostenuto.checks import InputError, MissingExtraError
from sostenuto.ops.signature import (
    goursat,
    signature_kernel_diagonal,
    signature_kernel_levels,
    signature_kernel_slopes,
)
from sostenuto.ops.signature.goursat import goursat_diagonal, goursat_kernel, goursat_slopes, solver_order
from sostenuto.ops.signature.reference import signature_levels_reference


def steps(*shape, seed=0, scale=0.5):
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(*shape, generator=generator, dtype=torch.float64)


def explicit(left, right, level):
    """The definition: both signatures formed, multiplied level by level."""
    channels = left.shape[2]
    sizes = [channels**k for k in range(1, level + 1)]
    parts = [signature_levels_reference(side, level).split(sizes, dim=-1) for side in (left, right)]
    products = [one @ other.T for one, other in zip(*parts, strict=True)]
    return torch.stack([torch.ones_like(products[0]), *products], dim=-1)


@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize(("channels", "level"), [(1, 7), (2, 5), (3, 4), (4, 1), (2, 2)])
def test_is_the_inner_product_of_signatures(backend, channels, level):
    left, right = steps(5, 7, channels), steps(70, 4, channels, seed=1)
    found = signature_kernel_levels(left, right, level, backend=backend)
    torch.testing.assert_close(found, explicit(left, right, level), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_two_straight_lines_by_hand(backend):
    """A line's level k is b^⊗k/k!, so the program must give ⟨b, c⟩^k/(k!)²: repeated segments count in full."""
    line = torch.tensor([[[0.3, -1.2]]], dtype=torch.float64)
    found = signature_kernel_levels(line, 2 * line, 8, backend=backend)[0, 0]
    inner = 2 * float((line * line).sum())
    expected = [inner**k / math.factorial(k) ** 2 for k in range(9)]
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-13)
    cut = (line / 3).expand(1, 3, 2)
    np.testing.assert_allclose(signature_kernel_levels(cut, 2 * line, 8, backend=backend)[0, 0], expected, rtol=1e-13)


@given(
    left=arrays(np.float64, (2, 3, 2), elements=st.floats(-1e3, 1e3)),
    right=arrays(np.float64, (3, 4, 2), elements=st.floats(-1e3, 1e3)),
)
@settings(max_examples=60)
def test_the_order_of_the_paths_changes_no_bit(left, right):
    one, other = torch.from_numpy(left), torch.from_numpy(right)
    found = signature_kernel_levels(one, other, 4)
    assert torch.equal(found, signature_kernel_levels(other, one, 4).transpose(0, 1))
    assert torch.equal(found[1:, :1], signature_kernel_levels(one[1:], other[:1], 4))
    square = signature_kernel_levels(one, one, 4)
    assert torch.equal(square.diagonal().T, signature_kernel_diagonal(one, 4))
    assert torch.equal(square, signature_kernel_levels(one, one.clone(), 4))


def test_increments_of_zero_change_no_bit():
    left, right = steps(3, 5, 2), steps(4, 6, 2, seed=1)
    padded = torch.cat([torch.zeros(3, 2, 2).double(), left[:, :2], torch.zeros(3, 1, 2).double(), left[:, 2:]], dim=1)
    assert torch.equal(signature_kernel_levels(padded, right, 4), signature_kernel_levels(left, right, 4))
    ragged = right.clone()
    ragged[1, 2:] = 0.0
    alone = signature_kernel_levels(left, right[1:2, :2], 4)
    assert torch.equal(signature_kernel_levels(left, ragged, 4)[:, 1:2], alone)
    still = signature_kernel_levels(torch.zeros(1, 3, 2).double(), right, 3)
    assert torch.equal(still, torch.tensor([1.0, 0, 0, 0]).double().expand(1, 4, 4))


@pytest.mark.parametrize("scaled", [1, 2, 3])
def test_slopes_are_derivatives(scaled):
    left, right = steps(3, 5, 3), steps(4, 6, 3, seed=1)
    logarithm = torch.zeros((), dtype=torch.float64)

    def scaled_kernel(logarithm):
        factor = torch.where(torch.arange(3) < scaled, logarithm.exp(), torch.ones(()).double())
        return signature_kernel_levels(left * factor, right * factor, 4, backend="reference")

    expected = torch.autograd.functional.jacobian(scaled_kernel, logarithm)
    values, slopes = signature_kernel_slopes(left, right, 4, scaled)
    torch.testing.assert_close(slopes, expected, rtol=1e-11, atol=1e-12)
    assert torch.equal(values, signature_kernel_levels(left, right, 4))
    if scaled == 3:
        torch.testing.assert_close(slopes, 2 * torch.arange(5) * values, rtol=1e-11, atol=1e-12)


def test_gradients_by_the_inputs():
    left, right = steps(2, 3, 2).requires_grad_(), steps(1, 4, 2, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(lambda a, b: signature_kernel_levels(a, b, 3), (left, right), atol=1e-8)
    with pytest.raises(InputError, match="expected no gradient with backend='cpu'"):
        signature_kernel_levels(left, right, 3, backend="cpu")


def test_several_threads_give_the_same_bits():
    left, right = steps(20, 6, 2), steps(130, 6, 2, seed=1)
    expected = signature_kernel_levels(left, right, 3)
    torch.set_num_threads(3)
    assert torch.equal(signature_kernel_levels(left, right, 3), expected)


class TestUntruncated:
    @pytest.fixture(autouse=True)
    def _needs_pysiglib(self):
        pytest.importorskip("pysiglib")

    def test_is_the_sum_of_all_levels(self):
        left, right = steps(3, 10, 2, scale=0.2), steps(4, 8, 2, seed=1, scale=0.2)
        levels = signature_kernel_levels(left, right, 16)
        torch.testing.assert_close(goursat_kernel(left, right), levels.sum(-1), rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(goursat_diagonal(left), goursat_kernel(left, left).diagonal(), rtol=1e-13, atol=0)

    @pytest.mark.parametrize(("pieces", "length"), [(1, 3.0), (1, 8.0), (40, 20.0), (40, 100.0)])
    def test_a_line_gives_the_bessel_function(self, pieces, length):
        line = torch.full((1, pieces, 1), length / pieces, dtype=torch.float64)
        exact = torch.special.i0(torch.tensor(2 * length, dtype=torch.float64))
        torch.testing.assert_close(goursat_kernel(line, line)[0, 0], exact, rtol=1e-12, atol=0)

    def test_slopes_are_derivatives(self):
        paths = steps(3, 6, 2, scale=0.3)
        matrix, slopes = goursat_slopes(paths)
        torch.testing.assert_close(matrix, goursat_kernel(paths, paths), rtol=1e-13, atol=0)
        for channel in range(2):
            shift = 1e-5 * torch.eye(2, dtype=torch.float64)[channel]
            above, below = (goursat_kernel(p, p) for p in (paths * shift.exp(), paths * (-shift).exp()))
            torch.testing.assert_close(slopes[..., channel], (above - below) / 2e-5, rtol=1e-7, atol=1e-9)

    @pytest.mark.parametrize("size", [50.0, 1e3, 1e8])
    def test_steps_too_long_are_refused(self, size):
        """pysiglib answers here with a wrong number, NaN or 0, and no error."""
        line = torch.full((1, 1, 1), size, dtype=torch.float64)
        with pytest.raises(InputError, match=r"longest segment times .* scale the data down"):
            goursat_kernel(line, line)

    def test_an_overflow_is_refused(self):
        line = torch.full((1, 450, 1), 0.8, dtype=torch.float64)
        assert solver_order(line, line) <= 64
        for call in (lambda: goursat_kernel(line, line), lambda: goursat_diagonal(line)):
            with pytest.raises(InputError, match="got an overflow or a diverged solution for 1 of 1 pairs"):
                call()

    @pytest.mark.parametrize("wrong", [0.0, float("nan"), float("inf"), -5.0, 1e9])
    def test_an_impossible_answer_is_refused(self, monkeypatch, wrong):
        class Silent:
            @staticmethod
            def sig_kernel(path, *_, **__):
                return torch.full((len(path),), wrong, dtype=torch.float64)

        monkeypatch.setattr(goursat, "_pysiglib", lambda: Silent)
        with pytest.raises(InputError, match="diverged"):
            goursat_diagonal(steps(2, 3, 2))


def test_without_pysiglib_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pysiglib", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'sostenuto\[signature\]'"):
        goursat_kernel(steps(1, 2, 1), steps(1, 2, 1))


def test_refusals():
    with pytest.raises(InputError, match="expected level to be a whole number of at least 1, got 0"):
        signature_kernel_levels(steps(1, 2, 1), steps(1, 2, 1), 0)
