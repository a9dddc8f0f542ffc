"""The laws of signatures, on random paths; agreement with pysiglib, with integrals by hand, and gradients."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import sostenuto as so
from sostenuto.checks import InputError, MissingExtraError
from sostenuto.data.batch import SequenceBatch
from sostenuto.ops import signature as levels_op
from sostenuto.theory import signature

EXACT = {"rtol": 1e-12, "atol": 1e-13}
LEVEL = 4

values = st.floats(-2.0, 2.0)


@st.composite
def paths(draw, least=1, most=6, channels=None):
    shape = (draw(st.integers(least, most)), channels or draw(st.integers(1, 3)))
    return torch.from_numpy(draw(arrays(np.float64, shape, elements=values)))


def close(found, expected):
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, **EXACT)


def product(left, right):
    """The tensor product of two signatures in the usual normalization, level by level."""
    found = []
    for k in range(len(left)):
        parts = [torch.tensordot(left[p], right[k - p], dims=0) for p in range(k + 1)]
        found.append(sum(parts[1:], parts[0]))
    return found


def usual(path, **options):
    return signature(path, LEVEL, normalization="none", **options)


def walk(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).cumsum(-2) * 0.3


@given(path=paths(least=3), cut=st.integers(1, 5))
@settings(max_examples=40)
def test_chen_a_path_in_two_parts(path, cut):
    cut = min(cut, len(path) - 1)
    close(product(usual(path[: cut + 1]), usual(path[cut:])), list(usual(path)))


@given(path=paths(least=2), where=st.floats(0.0, 1.0), repeat=st.integers(1, 3))
@settings(max_examples=40)
def test_how_fast_a_path_is_run_does_not_matter(path, where, repeat):
    between = torch.lerp(path[0], path[1], where)
    slower = torch.cat([path[:1], between[None].expand(repeat, -1), path[1:], path[-1:]])
    close(list(usual(slower)), list(usual(path)))


@given(start=arrays(np.float64, 3, elements=values), b=arrays(np.float64, 3, elements=values))
def test_a_straight_line_is_the_powers_of_its_increment(start, b):
    line = torch.from_numpy(np.stack([start, start + b]))
    b = line[1] - line[0]
    power = torch.ones((), dtype=torch.float64)
    for k, (paper, plain) in enumerate(zip(signature(line, LEVEL), usual(line), strict=True)):
        torch.testing.assert_close(paper, power, **EXACT)
        torch.testing.assert_close(plain, power / math.factorial(k), **EXACT)
        power = torch.tensordot(power, b, dims=0)


@given(path=paths(least=2, channels=2))
@settings(max_examples=40)
def test_shuffles(path):
    """Products of integrals are sums of integrals over the shuffles of their words, written out by hand."""
    s = usual(path)
    first, second, third, fourth = s[1], s[2], s[3], s[4]
    scale = 1 + float(s.norm()) ** 2
    for i in range(2):
        for j in range(2):
            assert float(first[i] * first[j] - second[i, j] - second[j, i]) == pytest.approx(0, abs=1e-12 * scale)
            for k in range(2):
                shuffled = third[i, j, k] + third[j, i, k] + third[j, k, i]
                assert float(first[i] * second[j, k] - shuffled) == pytest.approx(0, abs=1e-12 * scale)
    pairs = fourth[0, 1, 0, 1] * 2 + fourth[0, 0, 1, 1] * 4
    assert float(second[0, 1] ** 2 - pairs) == pytest.approx(0, abs=1e-12 * scale)


@given(path=paths(least=2))
@settings(max_examples=40)
def test_a_path_run_back_is_the_inverse(path):
    identity = product(usual(path), usual(path.flip(0)))
    scale = float(usual(path).norm()) ** 2
    assert float(identity[0]) == 1.0
    for level in identity[1:]:
        assert float(level.abs().max()) <= 1e-13 * scale


@given(path=paths(least=2), stop=st.integers(0, 5), basepoint=st.booleans())
@settings(max_examples=40)
def test_a_stopped_path_is_a_prefix(path, stop, basepoint):
    stop = min(stop, len(path) - 1)
    stopped = torch.cat([path[: stop + 1], path[stop].expand(len(path) - stop, -1)])
    every = usual(path, prefixes=True, basepoint=basepoint)
    close([level[stop] for level in every], list(usual(stopped, basepoint=basepoint)))
    close([level[stop] for level in every], list(usual(path[: stop + 1], basepoint=basepoint)))


def test_area_of_a_square_by_hand():
    """Round the unit square the second level is the signed area: ∫x dy − ∫y dx = 2."""
    square = torch.tensor([[0, 0], [1, 0], [1, 1], [0, 1], [0, 0]], dtype=torch.float64)
    second = usual(square)[2]
    assert float(second[0, 1] - second[1, 0]) == pytest.approx(2.0, abs=1e-15)
    assert second.diagonal().abs().max() == 0


@pytest.mark.parametrize(("length", "channels", "level"), [(2, 1, 6), (50, 2, 6), (30, 4, 4), (200, 3, 5)])
@pytest.mark.parametrize("backend", ["reference", "cpu", "pysiglib"])
def test_equals_pysiglib(length, channels, level, backend):
    pysiglib = pytest.importorskip("pysiglib")
    batch = walk(3, length, channels)
    expected = pysiglib.sig(batch, level, scalar_term=True)
    found = signature(batch, level, normalization="none", backend=backend)
    assert found.backend == backend
    torch.testing.assert_close(found.flat(), expected, rtol=1e-12, atol=1e-12)
    timed = pysiglib.sig(batch, level, time_aug=True, end_time=0.25, scalar_term=True)
    found = signature(batch, level, normalization="none", total_variation=0.5, backend=backend)
    torch.testing.assert_close(found.flat(), timed, rtol=1e-12, atol=1e-12)


def test_ragged_is_one_by_one():
    ragged = [walk(length, 2, seed=length) for length in (5, 1, 8, 3)]
    padded = SequenceBatch.from_sequences([path.numpy() for path in ragged], dtype=torch.float64)
    for options in ({}, {"basepoint": True}, {"total_variation": 0.3}, {"basepoint": True, "total_variation": 0.3}):
        for together in (signature(ragged, LEVEL, **options), signature(padded, LEVEL, **options)):
            for index, path in enumerate(ragged):
                close([level[index] for level in together], list(signature(path, LEVEL, **options)))


def test_ragged_prefixes_stay_at_the_end():
    ragged = [walk(3, 2), walk(6, 2)]
    every = signature(ragged, 3, prefixes=True, total_variation=0.5)
    assert every.leading == (2, 6)
    for level in every:
        torch.testing.assert_close(level[0, 3:], level[0, 2:3].expand_as(level[0, 3:]), rtol=0, atol=0)


def test_time_runs_from_zero_to_its_weight():
    for options in ({}, {"basepoint": True}):
        for length in (1, 2, 7):
            found = signature(walk(length, 2), 2, total_variation=0.6, **options)
            assert float(found[1][-1]) == pytest.approx(0.2, rel=1e-14)
    path = walk(4, 1)
    by_hand = torch.cat([path, 0.25 * torch.linspace(0, 1, 4, dtype=torch.float64)[:, None]], dim=1)
    close(list(signature(path, 3, total_variation=0.5)), list(signature(by_hand, 3)))
    at_zero = torch.cat([torch.zeros(1, 1, dtype=torch.float64), path])
    close(list(signature(path, 3, basepoint=True)), list(signature(at_zero, 3)))


@given(path=paths(least=2, most=5))
@settings(max_examples=40)
def test_factorial_levels_are_bounded_by_the_powers_of_the_length(path):
    """‖X^k‖ ≤ ‖X‖_TV^k, and for scaled paths with time ‖S‖ ≤ 2/(1 − L): fermanian2021, proposition 3."""
    length = float(so.theory.path_lengths(path))
    for k, level in enumerate(signature(path, LEVEL)):
        assert float(torch.linalg.vector_norm(level)) <= length**k * (1 + 1e-12)
    if length > 0:
        scaled = so.theory.scale_paths(path, 0.5).apply(path)
        assert float(signature(scaled, LEVEL, total_variation=0.5).norm()) <= 4.0


@pytest.mark.parametrize("prefixes", [False, True])
def test_gradients(prefixes):
    def run(path):
        return signature(path, 3, prefixes=prefixes, basepoint=True, total_variation=0.5).flat()

    path = walk(2, 4, 2).requires_grad_()
    assert signature(path, 3).backend == "cpu"
    assert torch.autograd.gradcheck(run, path, atol=1e-8)
    assert torch.autograd.gradgradcheck(run, walk(1, 3, 2).requires_grad_(), atol=1e-7)


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")  # torch's own, on first use
def test_forward_mode_and_mapping():
    path, direction = walk(3, 5, 2), walk(3, 5, 2, seed=1)

    def run(points):
        return levels_op.signature_levels(levels_op.path_increments(points), 3)

    _, slope = torch.func.jvp(run, (path,), (direction,))
    numeric = (run(path + 1e-6 * direction) - run(path - 1e-6 * direction)) / 2e-6
    torch.testing.assert_close(slope, numeric, rtol=1e-6, atol=1e-8)
    mapped = torch.func.vmap(lambda one: run(one[None])[0])(path)
    torch.testing.assert_close(mapped, run(path), **EXACT)


def test_gradient_of_pysiglib_is_the_reference():
    pytest.importorskip("pysiglib")
    found = []
    for backend in ("reference", "pysiglib"):
        path = walk(3, 20, 2).requires_grad_()
        flat = signature(path, 4, backend=backend).flat()
        flat.backward(torch.linspace(-1, 1, flat.numel(), dtype=torch.float64).reshape(flat.shape))
        found.append(path.grad)
    torch.testing.assert_close(found[0], found[1], rtol=1e-10, atol=1e-12)


def test_inner_products_and_norms():
    one, other = signature(walk(5, 2), 3), signature(walk(4, 2, seed=1), 3)
    by_levels = sum((a * b).sum() for a, b in zip(one, other, strict=True))
    torch.testing.assert_close(one.inner(other), by_levels)
    torch.testing.assert_close(one.inner(one).sqrt(), one.norm())
    with pytest.raises(InputError, match="expected two signatures of one normalization and level"):
        one.inner(signature(walk(4, 2), 3, normalization="none"))


def test_the_scale_is_remembered():
    train = [walk(5, 2).numpy(), walk(9, 2, seed=1).numpy()]
    found = so.theory.scale_paths(train, 0.5)
    lengths = so.theory.path_lengths(found.apply(train))
    assert float(lengths.max()) <= 0.5
    assert float(lengths.max()) == pytest.approx(0.5, rel=1e-9)
    assert found.within(train).all()
    assert found.within([10 * train[1], train[0]]).tolist() == [False, True]
    assert type(found).from_dict(found.to_dict()) == found
    batch = SequenceBatch.from_sequences(train, dtype=torch.float64)
    torch.testing.assert_close(found.apply(batch).values, batch.values * found.scale)
    with pytest.raises(InputError, match="a path that moves"):
        so.theory.scale_paths(torch.ones(1, 3, 2))


@pytest.mark.parametrize(
    ("path", "options", "message"),
    [
        (torch.zeros(3, 2), {"level": 0}, "expected level to be a whole number of at least 1, got 0"),
        (torch.zeros(3), {}, "expected a path of 2 axes or a batch of 3, got 1 axes"),
        (torch.zeros(0, 2), {}, "expected paths, points and channels"),
        ([torch.zeros(3, 2), torch.zeros(3, 1)], {}, "path 1: expected 2 channels as in path 0, got 1"),
        ([torch.zeros(3, 2), torch.zeros(3)], {}, r"path 1: expected \(time, channel\)"),
        (torch.tensor([[0.0], [math.nan]]), {}, "expected finite values, got NaN or infinity"),
        ([["a", "b"]], {}, "expected numbers, got"),
        ([], {}, "expected at least one path, got none"),
        (torch.zeros(3, 2), {"normalization": "k!"}, "expected normalization to be one of 'factorial', 'none'"),
        (torch.zeros(3, 2), {"total_variation": 1.0}, "expected total_variation to be a number of at least 0"),
        (torch.zeros(3, 2), {"backend": "fast"}, "expected backend to be one of"),
        (torch.zeros(3, 2), {"backend": "pysiglib", "prefixes": True}, "expected whole paths"),
    ],
)
def test_refusals(path, options, message):
    with pytest.raises(InputError, match=message):
        signature(path, **{"level": 2, **options})


def test_without_pysiglib_it_is_refused(monkeypatch):
    monkeypatch.setattr(levels_op, "HAS_PYSIGLIB", False)
    assert signature(walk(3, 2), 2).backend == "cpu"
    with pytest.raises(MissingExtraError, match=r"pip install 'sostenuto\[signature\]'"):
        signature(walk(3, 2), 2, backend="pysiglib")


@pytest.mark.parametrize(
    ("dtype", "size", "backend"), [(torch.float32, 1e10, "cpu"), (torch.float64, 1e70, "reference")]
)
def test_an_overflow_is_refused(dtype, size, backend):
    path = torch.tensor([[0.0, 0.0], [size, 1.0], [size, size]], dtype=dtype)
    with pytest.raises(
        InputError, match=f"expected a signature that {dtype} can hold, got an overflow in level . of 5"
    ):
        signature(path, 5, backend=backend)
