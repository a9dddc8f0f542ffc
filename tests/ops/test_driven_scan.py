# ruff: noqa: N803, N806 (T, B, H are the names inside ops)

import pytest
import torch
import torch.nn.functional as F

from sostenuto.ops import dense as module
from sostenuto.ops.dense import dense_scan, driven_scan

FORMS = {
    "residual": (1, False, False),
    "Lipschitz": (1, True, False),
    "implicit": (1, True, True),
    "two": (2, False, False),
}
SHAPES = [(1, 1, 1, 1), (9, 5, 3, 7), (40, 33, 20, 16)]


def make(T, B, d, H, form="residual", dtype=torch.float64, batch_first=False):
    """Draw (x, V, b, start, W, P, Q)."""
    k, full_linear, full_gain = FORMS[form]
    S, draw = k * H, {"dtype": dtype}
    x = torch.randn(B, T, d, **draw).transpose(0, 1) if batch_first else torch.randn(T, B, d, **draw)
    linear = 0.8 * torch.eye(S if full_linear else k, **draw) + 0.1 * torch.rand(k, 1, **draw)
    gain = torch.randn(S, H, **draw) / S if full_gain else 0.2 + 0.3 * torch.rand(k, **draw)
    start, weight = torch.randn(B, S, **draw), torch.randn(H, S, **draw) / S**0.5
    tensors = (x, torch.randn(H, d, **draw), torch.randn(H, **draw), start, weight, linear, gain)
    return [tensor.requires_grad_() for tensor in tensors]


def apart(x, matrix, bias, *system, activation="tanh"):
    """Compute what it means: a product over all time, then the reference."""
    return dense_scan(F.linear(x, matrix, bias), *system, activation=activation, backend="reference")[0]


def assert_same(got, expected, tensors, *, tolerance, wanted=None, weight=None):
    wanted = tensors if wanted is None else wanted
    weight = torch.randn_like(expected) if weight is None else weight
    pairs = [(got, expected)]
    pairs += zip(*(torch.autograd.grad(one, wanted, weight) for one in (got, expected)), strict=True)
    for one, other in pairs:
        torch.testing.assert_close(one, other, rtol=0, atol=tolerance * max(other.abs().max().item(), 1e-3))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shape", SHAPES)
def test_means_the_product_and_then_the_scan(shape, form):
    tensors = make(*shape, form)
    assert_same(driven_scan(*tensors), apart(*tensors), tensors, tolerance=1e-10)


@pytest.mark.parametrize("activation", ["relu", "hardtanh", "logistic", "identity"])
def test_every_activation(activation):
    tensors = make(7, 4, 3, 5)
    got, expected = driven_scan(*tensors, activation=activation), apart(*tensors, activation=activation)
    assert_same(got, expected, tensors, tolerance=1e-10)


def test_single_precision():
    tensors = make(63, 18, 17, 24, "Lipschitz", torch.float32)
    assert_same(driven_scan(*tensors), apart(*tensors), tensors, tolerance=2e-5)


@pytest.mark.parametrize("threads", [1, 2])
def test_reads_batch_first_input_where_it_lies(threads):
    tensors = make(11, 9, 6, 8, batch_first=True)
    torch.set_num_threads(threads)
    assert_same(driven_scan(*tensors), apart(*tensors), tensors, tolerance=1e-10)


def test_expanded_input_and_a_gradient_that_is_one_row():
    _, *others = make(6, 3, 2, 4)
    x = torch.randn(1, 1, 2, dtype=torch.float64, requires_grad=True)
    tensors = [x, *others]
    got, expected = (run(x.expand(6, 3, 2), *others) for run in (driven_scan, apart))
    weight = torch.ones(1, 1, 1, dtype=torch.float64).expand_as(expected)
    assert_same(got, expected, tensors, tolerance=1e-10, weight=weight)


@pytest.mark.parametrize("wanted", range(7))
def test_each_gradient_alone(wanted):
    tensors = [tensor.detach().requires_grad_(index == wanted) for index, tensor in enumerate(make(5, 3, 2, 4))]
    assert_same(driven_scan(*tensors), apart(*tensors), tensors, tolerance=1e-10, wanted=[tensors[wanted]])


def test_without_a_bias():
    x, matrix, _, *system = make(5, 3, 2, 4)
    given = (x, matrix, None, *system)
    assert_same(driven_scan(*given), apart(*given), given, tolerance=1e-10, wanted=[x, matrix, *system])


def test_second_derivatives():
    tensors = make(4, 2, 2, 3)
    assert torch.autograd.gradgradcheck(driven_scan, tensors, fast_mode=True)


def test_no_graph_and_the_same_values_without_gradients():
    tensors = make(5, 3, 2, 4)
    with torch.no_grad():
        states = driven_scan(*tensors)
    assert states.grad_fn is None
    torch.testing.assert_close(states, driven_scan(*tensors), rtol=0, atol=0)


def test_reads_no_uninitialized_memory():
    tensors = make(257, 128, 16, 16)
    expected = apart(*tensors)
    torch.use_deterministic_algorithms(True)
    try:
        assert_same(driven_scan(*tensors), expected, tensors, tolerance=1e-10)
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
def test_runs_as_one_function_in_eager_code_only(monkeypatch):
    calls = []
    monkeypatch.setattr(module, "dense_scan", lambda *args, **options: calls.append(1) or dense_scan(*args, **options))
    tensors = make(4, 2, 3, 5, dtype=torch.float32)
    driven_scan(*tensors)
    assert not calls
    driven_scan(*tensors, backend="reference")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        driven_scan(*tensors)
    torch.func.vmap(lambda x: driven_scan(x, *tensors[1:]))(torch.randn(2, 4, 2, 3))
    with torch.autograd.forward_ad.dual_level():
        driven_scan(torch.autograd.forward_ad.make_dual(tensors[0], tensors[0]), *tensors[1:])
    assert len(calls) == 4


def test_mixed_dtypes_are_refused():
    x, *others = make(4, 2, 3, 5)
    with pytest.raises(RuntimeError, match="dtype"):
        driven_scan(x.float(), *others)
