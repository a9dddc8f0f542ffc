import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from jaxtyping import TypeCheckError

from sostenuto.checks import InputError
from sostenuto.data.batch import SequenceBatch, as_sequences


def test_ragged_list_is_padded_and_masked():
    batch = SequenceBatch.from_sequences([np.ones((3, 2)), np.ones((1, 2))], targets=[1, 0])
    assert batch.values.shape == (2, 3, 2)
    assert batch.values[1, 1:].abs().sum() == 0
    assert batch.mask.tolist() == [[True] * 3, [True, False, False]]
    assert batch.is_ragged
    assert [len(sequence) for sequence in batch.sequences()] == [3, 1]


def test_layouts():
    array = np.arange(24.0).reshape(2, 3, 4)
    wide = SequenceBatch.from_sequences(array, layout="bct")
    assert wide.values.shape == (2, 4, 3)
    assert torch.equal(wide.values, SequenceBatch.from_sequences(array.transpose(0, 2, 1)).values)
    assert SequenceBatch.from_sequences(np.zeros((5, 7))).values.shape == (5, 7, 1)
    assert SequenceBatch.from_sequences([np.zeros((2, 5))], layout="bct").values.shape == (1, 5, 2)


def test_torch_tensors_are_taken():
    assert SequenceBatch.from_sequences(torch.zeros(2, 3, 1)).values.shape == (2, 3, 1)
    assert SequenceBatch.from_sequences([torch.zeros(3, 1), torch.zeros(2, 1)]).lengths.tolist() == [3, 2]


def test_missing_values():
    gap = np.array([[1.0], [np.nan], [3.0], [np.nan]])
    with pytest.raises(InputError, match=r"sequence 0: expected no missing values, got NaN; pass missing='mask'"):
        SequenceBatch.from_sequences([gap])
    masked = SequenceBatch.from_sequences([gap], missing="mask").values[0]
    assert masked.tolist() == [[1, 1], [0, 0], [3, 1], [0, 0]]
    filled = SequenceBatch.from_sequences([gap], missing="interpolate").values[0, :, 0]
    assert filled.tolist() == [1, 2, 3, 3]
    spans = [[1.0, 3.0, 1.0, 1.0]]
    in_time = SequenceBatch.from_sequences([gap], timespans=spans, missing="interpolate").values[0, 1, 0]
    assert in_time.item() == pytest.approx(1 + 2 * 3 / 4)
    nothing = SequenceBatch.from_sequences([np.full((2, 1), np.nan)], missing="interpolate")
    assert nothing.values.tolist() == [[[0.0], [0.0]]]


@pytest.mark.parametrize(
    ("sequences", "message"),
    [
        ([], "at least one sequence"),
        ([np.zeros((0, 1))], "sequence 0: expected at least one step"),
        ([np.zeros((2, 1)), np.zeros((2, 3))], "sequence 1: expected 1 channels"),
        ([np.zeros((2, 1)), np.full((2, 1), np.inf)], "sequence 1: expected finite"),
        ([["a", "b"]], "sequence 0: expected numbers"),
        (np.zeros(4), "2 or 3 axes"),
        (np.zeros((1, 1, 1, 1)), "2 or 3 axes"),
        ([np.zeros((1, 1, 1))], "1 or 2 axes"),
        ([np.zeros(3, dtype=complex)], "real numbers"),
        ("text", "an array or a list"),
    ],
)
def test_bad_sequences_are_refused(sequences, message):
    with pytest.raises(InputError, match=message):
        SequenceBatch.from_sequences(sequences)


@pytest.mark.parametrize(
    ("spans", "message"),
    [([[1.0, 1.0]], "expected 3 timespans, got 2"), ([[1.0, 0.0, 1.0]], "above 0"), ([], "timespans for 1 sequences")],
)
def test_bad_timespans_are_refused(spans, message):
    with pytest.raises(InputError, match=message):
        SequenceBatch.from_sequences([np.zeros((3, 1))], timespans=spans)


def test_select_trims_steps_and_step_targets_but_never_others():
    values, lengths = torch.zeros(3, 4, 1), torch.tensor([4, 2, 2])
    steps = SequenceBatch(values, lengths, torch.zeros(3, 4), has_step_targets=True).select([1, 2])
    assert steps.values.shape == (2, 2, 1)
    assert steps.targets.shape == (2, 2)
    plain = SequenceBatch(values, lengths, torch.zeros(3, 4)).select([1, 2])
    assert plain.targets.shape == (2, 4)


def test_an_empty_choice_and_values_of_another_shape_are_refused():
    batch = SequenceBatch(torch.zeros(3, 4, 1), torch.tensor([4, 2, 2]))
    with pytest.raises(InputError, match="at least one sequence"):
        batch.select(torch.zeros(3, dtype=torch.bool))
    with pytest.raises(InputError, match="values of shape"):
        batch.with_values(torch.zeros(3, 5, 1))
    assert batch.with_values(torch.ones(3, 4, 1)).lengths is batch.lengths


def test_inconsistent_tensors_are_refused():
    with pytest.raises(InputError, match="lengths from 1 to 2"):
        SequenceBatch(torch.zeros(1, 2, 1), torch.tensor([3]))
    with pytest.raises((InputError, TypeCheckError)):
        SequenceBatch(torch.zeros(1, 2, 1), torch.tensor([2]), torch.zeros(2))


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(1, 3))
def test_padding_and_back(lengths, channels):
    generator = np.random.default_rng(sum(lengths))
    arrays = [generator.normal(size=(n, channels)) for n in lengths]
    batch = SequenceBatch.from_sequences(arrays, dtype=torch.float64)
    for array, sequence in zip(arrays, batch.sequences(), strict=True):
        np.testing.assert_array_equal(array, sequence.numpy())
    assert int(batch.mask.sum()) == sum(lengths)


def test_as_sequences_keeps_float_arrays_as_they_are():
    array = np.zeros((2, 1), dtype=np.float32)
    assert as_sequences([array])[0] is array


def test_what_is_on_the_device_already_is_not_moved():
    batch = SequenceBatch(torch.zeros(2, 3, 1), torch.tensor([3, 1]), torch.tensor([0, 1]))
    assert batch.to("cpu") is batch
