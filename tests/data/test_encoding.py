import json
import math
import tomllib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sostenuto.checks import InputError
from sostenuto.data.dataset import SequenceSet
from sostenuto.data.encoding import Encoding, check_learnable
from sostenuto.data.scaling import channel_scale
from sostenuto.data.targets import as_step_targets, has_classes, sort_classes, task_of


def ragged(seed: int = 0, count: int = 8, channels: int = 2) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.normal(3.0, 5.0, (int(rng.integers(2, 9)), channels)) for _ in range(count)]


def labeled(names: list[str], **options: Any) -> SequenceSet:
    return SequenceSet(ragged(count=len(names)), np.array(names), "classification", **options)


def regression(**options: Any) -> SequenceSet:
    return SequenceSet(ragged(), np.linspace(-2.0, 9.0, 8), "regression", **options)


def step_targets(values: list[np.ndarray]) -> SequenceSet:
    return SequenceSet([np.zeros((len(row), 1)) for row in values], values, "sequence")


# Scaling


def test_standard_scaling_gives_mean_zero_and_deviation_one() -> None:
    train = labeled(["a", "b"] * 4)
    encoding = Encoding.fit(train)
    batch = encoding.encode(train, dtype=torch.float64)
    steps = batch.values[batch.mask]
    assert torch.allclose(steps.mean(0), torch.zeros(2, dtype=torch.float64), atol=1e-12)
    assert torch.allclose(steps.std(0, correction=0), torch.ones(2, dtype=torch.float64), atol=1e-12)
    joined = np.concatenate(list(train.sequences))
    np.testing.assert_allclose(encoding.center, joined.mean(0), rtol=1e-12)
    np.testing.assert_allclose(encoding.scale, joined.std(0), rtol=1e-12)
    assert (batch.values[~batch.mask] == 0).all()


def test_minmax_scaling_fills_zero_to_one_and_none_changes_nothing() -> None:
    train = labeled(["a", "b"] * 4)
    batch = Encoding.fit(train, scaling="minmax").encode(train, dtype=torch.float64)
    steps = batch.values[batch.mask]
    assert steps.min() == 0
    assert steps.max() == 1
    plain = Encoding.fit(train, scaling="none").encode(train, dtype=torch.float64)
    np.testing.assert_array_equal(plain.sequences()[3].numpy(), train.sequences[3])


def test_the_test_part_is_scaled_by_the_training_part() -> None:
    encoding = Encoding.fit(labeled(["a", "b"] * 4))
    other = SequenceSet([np.full((2, 2), 7.0)])
    expected = (7.0 - np.array(encoding.center)) / np.array(encoding.scale)
    got = encoding.encode(other, dtype=torch.float64)
    np.testing.assert_allclose(got.values[0, 1].numpy(), expected)
    assert got.targets is None


@pytest.mark.parametrize("scaling", ["standard", "minmax"])
@pytest.mark.parametrize("constant", [0.0, 0.1, 1e9, -3e-7])
def test_a_constant_channel_is_only_centered(scaling: Any, constant: float) -> None:
    center, scale = channel_scale([np.full((n, 1), constant) for n in (3, 5, 7)], scaling)
    assert scale == (1.0,)
    assert center[0] == pytest.approx(constant, rel=1e-12)


def test_missing_values_do_not_count_and_an_unobserved_channel_is_left_alone() -> None:
    rows = [np.array([[1.0, np.nan], [np.nan, np.nan], [5.0, np.nan]])]
    assert channel_scale(rows) == ((3.0, 0.0), (2.0, 1.0))
    assert channel_scale(rows, "minmax") == ((1.0, 0.0), (4.0, 1.0))


@given(st.floats(1e-150, 1e150), st.floats(-1e3, 1e3))
def test_scaling_undoes_any_unit(unit: float, offset: float) -> None:
    rows = [np.array([[0.0], [1.0], [5.0]]), np.array([[2.0], [-3.0]])]
    center, scale = channel_scale([unit * (row + offset) for row in rows])
    plain_center, plain_scale = channel_scale(rows)
    assert center[0] == pytest.approx(unit * (plain_center[0] + offset), rel=1e-9, abs=1e-9 * unit)
    assert scale[0] == pytest.approx(unit * plain_scale[0], rel=1e-8)


def test_many_sequences_give_the_same_scale_as_one_long_one() -> None:
    rng = np.random.default_rng(1)
    long = rng.normal(1e6, 1.0, (1_100_000, 1))
    center, scale = channel_scale(np.split(long, 1100))
    assert center[0] == pytest.approx(long.mean(), rel=1e-14)
    assert scale[0] == pytest.approx(long.std(), rel=1e-9)


def test_a_value_too_large_for_the_type_is_refused_and_float64_takes_it() -> None:
    train = SequenceSet([np.array([[1e300], [0.0]]), np.zeros((2, 1))], np.array(["a", "b"]))
    encoding = Encoding.fit(train, scaling="none")
    with pytest.raises(InputError, match="sequence 0: expected values that float32 can hold"):
        encoding.encode(train)
    assert encoding.encode(train, dtype=torch.float64).values.max() == 1e300
    assert torch.isfinite(Encoding.fit(train).encode(train).values).all()


def test_infinity_is_refused_by_fit() -> None:
    with pytest.raises(InputError, match="sequence 1: expected finite values, got infinity"):
        Encoding.fit(SequenceSet([np.zeros((2, 1)), np.array([[np.inf]])], np.array(["a", "b"])))


# Missing values and channels


def test_nan_is_refused_masked_or_interpolated() -> None:
    rows = [np.array([[0.0], [np.nan], [4.0]]), np.array([[2.0], [2.0]])]
    train = SequenceSet(rows, np.array(["a", "b"]))
    with pytest.raises(InputError, match="sequence 0: expected no missing values"):
        Encoding.fit(train).encode(train)
    masked = Encoding.fit(train, missing="mask")
    assert (masked.num_channels, masked.input_size) == (1, 2)
    batch = masked.encode(train)
    assert batch.values[0, 1].tolist() == [0.0, 0.0]
    assert batch.values[0, :, 1].tolist() == [1.0, 0.0, 1.0]
    drawn = Encoding.fit(train, scaling="none", missing="interpolate")
    assert (drawn.input_size, drawn.encode(train).values[0, 1].item()) == (1, 2.0)


def test_the_wrong_channel_count_is_named_and_exchanged_axes_are_recognized() -> None:
    encoding = Encoding.fit(labeled(["a", "b"] * 2))
    with pytest.raises(InputError, match=r"expected 2 channels, as in training, got 3; bring the channels"):
        encoding.encode(SequenceSet([np.zeros((9, 3))]))
    with pytest.raises(InputError, match=r"got 9; the axes look exchanged: pass layout='bct'"):
        encoding.encode(SequenceSet([np.zeros((2, 9))]))


def test_timespans_are_carried() -> None:
    train = SequenceSet(
        [np.zeros((3, 1)), np.ones((2, 1))], np.array(["a", "b"]), timespans=[np.array([1.0, 2.0, 3.0]), np.ones(2)]
    )
    spans = Encoding.fit(train).encode(train).timespans
    assert spans is not None
    assert spans.tolist() == [[1.0, 2.0, 3.0], [1.0, 1.0, 0.0]]


def test_timespans_are_in_units_of_the_median_of_training() -> None:
    values, names = [np.zeros((3, 1)), np.ones((2, 1))], np.array(["a", "b"])
    train = SequenceSet(values, names, timespans=[np.array([60.0, 60.0, 240.0]), np.array([60.0, 30.0])])
    encoding = Encoding.from_dict(Encoding.fit(train).to_dict())
    new = SequenceSet(values, timespans=[np.full(3, 120.0), np.full(2, 120.0)])
    first, later = encoding.encode(train).timespans, encoding.encode(new).timespans
    assert first is not None
    assert later is not None
    assert first.tolist() == [[1.0, 1.0, 4.0], [1.0, 0.5, 0.0]]
    assert later.tolist() == [[2.0, 2.0, 2.0], [2.0, 2.0, 0.0]]


# Classes


def test_classes_are_sorted_by_value_where_all_are_numbers() -> None:
    assert sort_classes(["10", "2", "-1", "2.5"]) == ("-1", "2", "2.5", "10")
    assert sort_classes(["10", "2", "x"]) == ("10", "2", "x")
    assert sort_classes(["nan", "2", "10"]) == ("10", "2", "nan")


@pytest.mark.parametrize(
    ("raw", "classes"),
    [
        (np.array(["10", "2", "1"]), ("1", "2", "10")),
        (np.array([10, 2, 1]), ("1", "2", "10")),
        (np.array([10.0, 2.0, 1.0]), ("1", "2", "10")),
        (np.array([True, False, True]), ("False", "True")),
        (np.array(["up", 3, "up"], dtype=object), ("3", "up")),
        (np.array([["b"], ["a"], ["c"]]), ("a", "b", "c")),
    ],
)
def test_classes_come_from_text_and_from_numbers(raw: np.ndarray, classes: tuple[str, ...]) -> None:
    train = SequenceSet(ragged(count=3), raw, "classification")
    encoding = Encoding.fit(train)
    assert encoding.classes == classes
    batch = encoding.encode(train)
    assert batch.targets is not None
    assert batch.targets.dtype == torch.int64
    assert encoding.output_size == len(classes)
    assert encoding.decode_classes(batch.targets).tolist() == [
        str(int(v) if isinstance(v, float) else v) for v in raw.ravel().tolist()
    ]


def test_an_unknown_class_is_named() -> None:
    encoding = Encoding.fit(labeled(["a", "b"]))
    with pytest.raises(InputError, match=r"expected the classes of training \(a, b\), got 'c'; drop"):
        encoding.encode(labeled(["a", "c"]))


def test_a_missing_label_is_refused() -> None:
    with pytest.raises(InputError, match="expected a class for every sequence, got nan"):
        Encoding.fit(SequenceSet(ragged(count=2), np.array([1.0, np.nan]), "classification"))


def test_the_task_is_read_from_the_targets_where_none_is_named() -> None:
    rows = ragged(count=2)
    assert task_of(SequenceSet(rows, np.array([1, 2]))) == "classification"
    assert task_of(SequenceSet(rows, np.array([1.5, 2]))) == "regression"
    assert task_of(SequenceSet(rows, [np.zeros(len(row)) for row in rows])) == "sequence"
    assert task_of(SequenceSet(rows, np.array([1, 2]), "regression")) == "regression"
    with pytest.raises(InputError, match="expected targets or a named task"):
        task_of(SequenceSet(rows))


# Real targets


def test_real_targets_are_standardized_and_come_back_in_their_own_unit() -> None:
    train = regression()
    encoding = Encoding.fit(train)
    batch = encoding.encode(train, dtype=torch.float64)
    assert batch.targets is not None
    assert batch.targets.shape == (8, 1)
    assert batch.targets.mean().abs() < 1e-12
    assert batch.targets.std(correction=0) == pytest.approx(1.0)
    assert encoding.output_size == 1
    np.testing.assert_allclose(encoding.decode_targets(batch.targets), np.asarray(train.targets))
    np.testing.assert_allclose(encoding.decode_targets(batch.targets[:, 0]), np.asarray(train.targets))


def test_several_targets_keep_their_shape() -> None:
    values = np.random.default_rng(0).normal(size=(8, 2, 3)) * [1.0, 10.0, 100.0]
    train = replace(regression(), targets=values)
    encoding = Encoding.fit(train)
    batch = encoding.encode(train, dtype=torch.float64)
    assert batch.targets is not None
    assert (batch.targets.shape, encoding.target_shape, encoding.output_size) == ((8, 6), (2, 3), 6)
    np.testing.assert_allclose(encoding.decode_targets(batch.targets), values)
    with pytest.raises(InputError, match=r"expected targets of shape \(2, 3\), got \(\)"):
        encoding.encode(regression())


def test_a_forecast_of_its_own_channels_shares_their_unit() -> None:
    rows = ragged()
    train = SequenceSet(rows, np.stack([row[-2:] for row in rows]), "forecast")
    encoding = Encoding.fit(train, scaling="minmax")
    batch = encoding.encode(train, dtype=torch.float64)
    assert encoding.target_center == encoding.center * 2
    assert batch.targets is not None
    last = torch.stack([row[-2:] for row in batch.sequences()])
    torch.testing.assert_close(batch.targets, last)
    np.testing.assert_allclose(encoding.decode_targets(batch.targets), np.asarray(train.targets))


def test_a_constant_target_is_allowed() -> None:
    train = replace(regression(), targets=np.full(8, 4.0))
    check_learnable(train)
    encoding = Encoding.fit(train)
    assert encoding.decode_targets(torch.zeros(3, 1)).tolist() == [4.0, 4.0, 4.0]


def test_a_target_that_is_no_number_is_refused() -> None:
    with pytest.raises(InputError, match=r"sequence 1: expected a number as target, got .*'x'.*; pass task='class"):
        Encoding.fit(SequenceSet(ragged(count=2), np.array(["1", "x"]), "regression"))


# Step targets


def test_step_classes_are_padded_with_zero() -> None:
    train = step_targets([np.array(["b", "a", "b"]), np.array(["b"])])
    encoding = Encoding.fit(train)
    assert (encoding.has_step_targets, encoding.classes, encoding.output_size) == (True, ("a", "b"), 2)
    batch = encoding.encode(train)
    assert batch.targets is not None
    assert batch.targets.tolist() == [[1, 0, 1], [1, 0, 0]]
    assert batch.has_step_targets
    assert encoding.decode_classes(batch.targets)[0].tolist() == ["b", "a", "b"]


def test_step_numbers_are_scaled_per_value_and_padded_with_zero() -> None:
    rng = np.random.default_rng(0)
    values = [rng.normal(5, 3, (n, 2)) for n in (4, 2, 3)]
    train = step_targets(values)
    encoding = Encoding.fit(train)
    batch = encoding.encode(train, dtype=torch.float64)
    assert batch.targets is not None
    assert batch.targets.shape == (3, 4, 2)
    assert (batch.targets[~batch.mask] == 0).all()
    assert batch.targets[batch.mask].mean(0).abs().max() < 1e-12
    np.testing.assert_allclose(encoding.decode_targets(batch.targets)[1, :2], values[1])
    flat = step_targets([value[:, 0] for value in values])
    encoding = Encoding.fit(flat)
    decoded = encoding.decode_targets(encoding.encode(flat, dtype=torch.float64).targets)
    assert decoded.shape == (3, 4)
    np.testing.assert_allclose(decoded[2, :3], values[2][:, 0])


def test_step_targets_must_match_the_steps() -> None:
    train = SequenceSet([np.zeros((3, 1))] * 2, [np.zeros(3), np.zeros(2)], "sequence")
    with pytest.raises(InputError, match="sequence 1: expected a target for each of its 3 steps, got 2"):
        Encoding.fit(train)
    with pytest.raises(InputError, match="sequence 0: expected a target for each of its 3 steps, got a single one"):
        Encoding.fit(SequenceSet([np.zeros((3, 1))] * 2, np.array(["a", "b"]), "sequence"))


# Tokens


def test_tokens_become_padded_whole_numbers() -> None:
    train = SequenceSet([np.array([1, 2, 7]), np.array([3], dtype=np.int32)], np.array(["a", "b"]))
    encoding = Encoding.fit(train)
    assert (encoding.is_tokens, encoding.vocabulary_size, encoding.scaling, encoding.input_size) == (True, 8, "none", 1)
    batch = encoding.encode(train)
    assert batch.values.dtype == torch.int64
    assert batch.values.tolist() == [[1, 2, 7], [3, 0, 0]]
    with pytest.raises(InputError, match="sequence 0: expected token ids below 8, the training vocabulary, got 9"):
        encoding.encode(SequenceSet([np.array([9])]))
    wide = Encoding.fit(train, vocabulary_size=20)
    assert wide.encode(SequenceSet([np.array([9])])).values.tolist() == [[9]]


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (np.array([0.5, 1.0]), "expected whole-number token ids"),
        (np.array([-1, 2]), "expected token ids of at least 0"),
        (np.array([], dtype=int), "expected at least one token"),
    ],
)
def test_bad_tokens_are_refused(ids: np.ndarray, message: str) -> None:
    with pytest.raises(InputError, match=f"sequence 1: {message}"):
        Encoding.fit(SequenceSet([np.array([1, 2]), ids], np.array(["a", "b"])))


def test_tokens_and_numbers_are_not_exchanged() -> None:
    encoding = Encoding.fit(labeled(["a", "b"]))
    with pytest.raises(InputError, match=r"expected \(time, channel\) numbers, as in training, got token ids"):
        encoding.encode(SequenceSet([np.array([1, 2])]))


# Storage


@pytest.mark.parametrize(
    "train",
    [
        labeled(["1", "2", "10", "1"], channel_names=("x", "y"), target_name="label"),
        regression(target_name="heart rate"),
        step_targets([np.array([1.0, 2.0]), np.array([0.5])]),
        SequenceSet([np.array([1, 2, 7]), np.array([3])], np.array(["a", "b"])),
    ],
    ids=["classes", "regression", "steps", "tokens"],
)
def test_an_encoding_survives_json_and_toml(train: SequenceSet) -> None:
    encoding = Encoding.fit(train)
    stored = encoding.to_dict()
    assert Encoding.from_dict(json.loads(json.dumps(stored, allow_nan=False))) == encoding
    text = "\n".join(f"{name} = {json.dumps(value)}" for name, value in stored.items())
    assert Encoding.from_dict(tomllib.loads(text)) == encoding
    assert None not in stored.values()


def test_an_incomplete_store_is_refused() -> None:
    stored = Encoding.fit(regression()).to_dict()
    del stored["scale"]
    with pytest.raises(InputError, match="expected a stored encoding, got one without scale"):
        Encoding.from_dict(stored)


# What cannot be learned


def test_good_data_is_learnable() -> None:
    check_learnable(labeled(["a", "b"] * 2))
    check_learnable(regression())
    check_learnable(step_targets([np.array([0, 1]), np.array([1])]))


@pytest.mark.parametrize(
    ("train", "message"),
    [
        (SequenceSet(ragged(), None, "regression"), "expected targets to learn from, got none"),
        (labeled(["a"]), "expected at least 2 training sequences, got 1"),
        (labeled(["a", "a", "a"]), "expected at least two classes, got only class 'a'"),
        (labeled(["a", "b", "c", "a"]), 'got 3 classes in 4 sequences; is it a regression.*task="regression"'),
        (SequenceSet([np.zeros((1, 9))] * 4, np.array(["a", "b"] * 2)), "a recurrent model needs time, got 1 step"),
        (replace(regression(), targets=np.array([1.0] * 7 + [math.nan])), "sequence 7: expected a finite target"),
        (replace(regression(), targets=np.array([1.0] * 7 + [math.inf])), "sequence 7: expected a finite target"),
        (step_targets([np.array([1, 1]), np.array([1])]), "expected at least two classes, got only class '1'"),
    ],
)
def test_what_cannot_be_learned_is_refused_in_one_sentence(train: SequenceSet, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        check_learnable(train)
    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)


def test_nothing_to_fit_or_encode_is_refused() -> None:
    with pytest.raises(InputError, match="expected at least one sequence"):
        Encoding.fit(SequenceSet([], np.array([]), "regression"))
    with pytest.raises(InputError, match="expected at least one sequence"):
        Encoding.fit(regression()).encode(SequenceSet([]))


# Step targets


@pytest.mark.parametrize(
    ("rows", "classes"),
    [
        ([np.array([0, 1, 0])], True),
        ([np.array([False, True, False])], True),
        ([np.array([[0], [1], [0]])], True),
        ([np.array([0.0, 1.0, 0.0])], False),
        ([np.array([[0, 1], [1, 0], [0, 0]])], False),
        ([np.array(["a", "b", "a"])], True),
        ([np.arange(10), np.arange(10, 20)], True),
        ([np.arange(10), np.arange(11, 22)], False),
    ],
    ids=lambda case: str(len(case)) if isinstance(case, list) else str(case),
)
def test_a_few_whole_numbers_at_every_step_are_classes(rows, classes) -> None:
    data = SequenceSet([np.zeros((len(row), 1)) for row in rows], rows)
    assert has_classes(data) == classes


def test_the_caller_says_what_step_targets_are() -> None:
    data = SequenceSet([np.zeros((3, 1))], [np.array([0, 1, 0])], "sequence")
    assert not has_classes(as_step_targets(data, "numbers"))
    many = SequenceSet([np.zeros((30, 1))], [np.arange(30)], "sequence")
    assert not has_classes(many)
    assert has_classes(as_step_targets(many, "classes"))
