"""The largest value over time is torch's `amax`, and so is its gradient."""

import pytest
import torch

from sostenuto.ops.oscillator import time_max


def by_steps(batch, steps, units, dtype=torch.float64):
    return torch.randn(steps, batch, units, dtype=dtype).transpose(0, 1).requires_grad_()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 7, 5), (40, 63, 130)])
def test_equals_amax(shape, dtype):
    values, gradient = by_steps(*shape, dtype), torch.randn(shape[0], shape[2], dtype=dtype)
    found, expected = time_max(values), values.amax(1)
    assert torch.equal(found, expected)
    (one,), (other,) = (torch.autograd.grad(result, values, gradient) for result in (found, expected))
    assert torch.equal(one, other)


def test_steps_that_share_the_largest_value_share_its_gradient():
    values = torch.tensor([[[2.0, 1.0]], [[0.0, 3.0]], [[2.0, 2.0]]]).transpose(0, 1).requires_grad_()
    (gradient,) = torch.autograd.grad(time_max(values).sum(), values)
    assert gradient[0].tolist() == [[0.5, 0.0], [0.0, 1.0], [0.5, 0.0]]


def test_what_is_not_a_number_is_not_hidden():
    for step in range(3):
        values = by_steps(2, 3, 2)
        with torch.no_grad():
            values[1, step, 0] = torch.nan
        assert torch.equal(time_max(values).isnan(), values.amax(1).isnan())


def test_other_layouts_and_transforms_are_torchs():
    values = torch.randn(4, 6, 3, dtype=torch.float64, requires_grad=True)
    assert torch.equal(time_max(values), values.amax(1))
    turned = by_steps(4, 6, 3)
    assert torch.equal(torch.func.grad(lambda v: time_max(v).sum())(turned), (turned == turned.amax(1)[:, None]) * 1.0)


def test_its_gradient_can_be_differentiated_again():
    assert torch.autograd.gradgradcheck(time_max, (by_steps(2, 5, 3),))
