import numpy as np
import pytest
import torch

import sostenuto as so


@pytest.fixture(scope="module")
def digits():
    return so.datasets.load("digits")


def test_shapes_range_and_names(digits):
    assert (len(digits.train), len(digits.test)) == (1438, 359)
    for part in (digits.train, digits.test):
        assert {sequence.shape for sequence in part.sequences} == {(64, 1)}
        assert sorted(set(part.targets)) == [str(digit) for digit in range(10)]
        assert part.task == "classification"
    values = np.stack(digits.train.sequences)
    assert (values.min(), values.max()) == (0.0, 1.0)
    assert np.array_equal(values * 16, np.round(values * 16))


def test_the_split_is_fixed_stratified_and_whole(digits):
    from sklearn.datasets import load_digits

    again = so.datasets.load("digits")
    assert again.train.checksum() == digits.train.checksum()
    assert digits.train.checksum() == "be38d7c0ca056917"
    everything = np.concatenate([np.stack(digits.train.sequences), np.stack(digits.test.sequences)])[:, :, 0] * 16
    assert sorted(map(tuple, everything)) == sorted(map(tuple, load_digits(return_X_y=True)[0]))
    for digit in range(10):
        train, test = (int((part.targets == str(digit)).sum()) for part in (digits.train, digits.test))
        assert test / (train + test) == pytest.approx(0.2, abs=0.003)


def test_permuted_is_the_same_data_in_one_other_order(digits):
    permuted = so.datasets.load("digits/permuted")
    order = torch.randperm(64, generator=torch.Generator().manual_seed(64)).numpy()
    assert sorted(order) == list(range(64))
    assert list(order) != list(range(64))
    for ordered, shuffled in ((digits.train, permuted.train), (digits.test, permuted.test)):
        assert np.array_equal(np.stack(ordered.sequences)[:, order], np.stack(shuffled.sequences))
        assert np.array_equal(ordered.targets, shuffled.targets)


def test_loading_leaves_the_global_generators_alone():
    torch.manual_seed(3)
    np.random.seed(3)
    expected = torch.rand(1), np.random.rand()
    torch.manual_seed(3)
    np.random.seed(3)
    so.datasets.load("digits/permuted")
    assert (torch.rand(1), np.random.rand()) == expected


def test_noise_follows_the_padded_digits_and_is_the_same_every_time():
    plain, padded = so.datasets.load("digits"), so.datasets.load("digits/noise-padded")
    for part, other in ((plain.train, padded.train), (plain.test, padded.test)):
        np.testing.assert_array_equal(part.targets, other.targets)
        whole = np.stack(other.sequences)
        assert whole.shape == (len(part), 500, 1)
        np.testing.assert_array_equal(whole[:, :64], np.stack(part.sequences))
        assert abs(whole[:, 64:].mean()) < 0.02
        assert abs(whole[:, 64:].std() - 1) < 0.02
    np.testing.assert_array_equal(so.datasets.load("digits/noise-padded").train.sequences[7], padded.train.sequences[7])
