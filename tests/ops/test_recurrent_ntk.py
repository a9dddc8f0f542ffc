"""The compiled recurrent NTK against the reference, over layers, activations, lengths and options."""

import itertools

import numpy as np
import pytest
import torch

from sostenuto.checks import InputError
from sostenuto.ops.recurrent_ntk import Scales, recurrent_ntk, recurrent_ntk_diagonal

AGREEMENT = 1e-10


def series(*lengths, channels=1, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(length, channels, generator=generator, dtype=torch.float64) for length in lengths]


def awkward(channels):
    """Equal, opposite, near and vanishing sequences among random ones.

    Of 1 to 4 steps: the compiled loop knows a first step and those after it, and nothing of blocks of time, while the
    reference of a mean takes as many steps as two lengths multiplied.
    """
    x = series(2, 3, 3, 4, 1, channels=channels)
    return [*x, x[1].clone(), -x[2], x[2] * (1 + 1e-9), torch.zeros(2, channels, dtype=torch.float64)]


def whole(scaled):
    return scaled.values * torch.exp(scaled.rows[:, None] + scaled.columns[None, :])


@pytest.mark.parametrize(
    ("activation", "layers", "channels", "start"),
    list(itertools.product(["relu", "erf"], [1, 2, 3], [1, 3], [0.0, 0.5])),
)
def test_compiled_agrees_with_the_reference(activation, layers, channels, start):
    scales = Scales.of(layers, w=(1.3, 0.9, 1.1)[:layers], u=(0.8, 1.2, 0.7)[:layers], b=0.4 * start, h=start, v=1.2)
    x, y = awkward(channels), [*series(4, 2, channels=channels, seed=1), awkward(channels)[1]]
    for kind, pooling in (("ntk", "last"), ("nngp", "last"), ("ntk", "mean")):
        options = {"activation": activation, "kind": kind, "pooling": pooling}
        size = recurrent_ntk_diagonal(x, scales, **options, backend="reference")
        own = (size[0] * torch.exp(2 * size[1])).sqrt()
        for other in (None, y):
            truth, got = (
                whole(recurrent_ntk(x, other, scales, **options, backend=backend)) for backend in ("reference", "cpu")
            )
            sides = own[:, None] * (own if other is None else torch.ones(len(y), dtype=torch.float64))
            assert ((got - truth).abs() <= AGREEMENT * torch.maximum(truth.abs(), 1e-3 * sides).clamp(min=1e-3)).all()
        values, units = recurrent_ntk_diagonal(x, scales, **options, backend="cpu")
        torch.testing.assert_close(values * torch.exp(2 * units), own**2, rtol=AGREEMENT, atol=1e-13)


def test_many_pairs_cross_the_borders_of_blocks():
    x = series(*([9] * 150 + [4] * 160))
    scales = Scales.of(w=1.4, b=0.1)
    truth, got = (whole(recurrent_ntk(x, None, scales, backend=backend)) for backend in ("reference", "cpu"))
    torch.testing.assert_close(got, truth, rtol=AGREEMENT, atol=0)
    assert torch.equal(got, got.T)
    some = whole(recurrent_ntk(x[100:200], x, scales, backend="cpu"))
    torch.testing.assert_close(some, truth[100:200], rtol=AGREEMENT, atol=0)


def test_swapping_arguments_changes_no_bit():
    x, y = series(5, 3, 9, channels=2), series(4, 9, channels=2, seed=1)
    for activation in ("relu", "erf"):
        forth, back = (
            recurrent_ntk(a, b, Scales.of(2, h=0.3), activation=activation).values for a, b in ((x, y), (y, x))
        )
        assert torch.equal(forth, back.T)


def test_threads_change_no_bit():
    x = series(*range(1, 40))
    results = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        results.append(recurrent_ntk(x, None, Scales.of()).values)
    assert torch.equal(*results)


def test_compiled_code_has_no_quadrature():
    with pytest.raises(InputError, match="expected activation='relu' or 'erf' with backend='cpu'"):
        recurrent_ntk(series(3), None, Scales.of(), activation=torch.tanh, backend="cpu")


def test_gradient_by_inputs_is_right():
    x, y = series(4, 6, channels=2)
    for activation in ("relu", "erf", torch.tanh):

        def value(one, activation=activation):
            return whole(recurrent_ntk([one], [y], Scales.of(2, b=0.3), activation=activation))

        assert torch.autograd.gradcheck(value, x.clone().requires_grad_(), atol=1e-6)


def test_results_do_not_depend_on_what_else_is_there():
    x = series(7, 3, 5)
    together = recurrent_ntk(x, None, Scales.of(b=0.2)).values
    for i, j in itertools.product(range(3), range(3)):
        alone = recurrent_ntk([x[i]], [x[j]], Scales.of(b=0.2)).values[0, 0]
        assert float(alone) == pytest.approx(float(together[i, j]), rel=1e-15)
    assert np.isfinite(together.numpy()).all()
