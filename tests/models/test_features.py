import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from sostenuto.data.batch import SequenceBatch
from sostenuto.models.features import LAGS, MOST_WORDS, step_features, summary_features, token_counts


@given(st.lists(st.integers(1, 12), min_size=1, max_size=5), st.integers(0, 99))
def test_summaries_are_those_of_numpy_on_each_sequence_alone(lengths: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    sequences = [rng.normal(size=(length, 3)) for length in lengths]
    got = summary_features(SequenceBatch.from_sequences(sequences, dtype=torch.float64)).numpy()
    for row, x in zip(got, sequences, strict=True):
        slope = np.polyfit(np.arange(len(x)), x, 1)[0] if len(x) > 1 else np.zeros(3)
        change = np.abs(np.diff(x, axis=0)).mean(0) if len(x) > 1 else np.zeros(3)
        expected = [x.mean(0), x.std(0), x.min(0), x.max(0), x[0], x[-1], slope, change]
        np.testing.assert_allclose(row, np.concatenate(expected), atol=1e-10)


def test_many_sequences_are_summarized_in_pieces() -> None:
    values = torch.randn(5, 1_500_000, 1)
    whole = summary_features(SequenceBatch(values, torch.full((5,), 1_500_000)))
    alone = summary_features(SequenceBatch(values[3:4], torch.tensor([1_500_000])))
    torch.testing.assert_close(whole[3:4], alone)


def test_counts_ignore_padding_and_share_counters() -> None:
    batch = SequenceBatch(torch.tensor([[1, 1 + MOST_WORDS, 5], [0, 0, 0]]), torch.tensor([3, 1]))
    counts = token_counts(batch).expm1()
    assert counts.shape == (2, MOST_WORDS)
    assert counts[0, [1, 5]].round().tolist() == [2.0, 1.0]
    assert counts.sum(1).round().tolist() == [3.0, 1.0]
    assert torch.equal(summary_features(batch), token_counts(batch))


def test_step_features_look_back_and_never_ahead() -> None:
    values = torch.arange(1.0, 21.0).reshape(1, 20, 1)
    features = step_features(values)
    for step in range(20):
        expected = [float(max(step + 1 - lag, 0)) for lag in LAGS]
        assert features[0, step].tolist() == expected
    tokens = step_features(torch.tensor([[3, 67, 1]]))
    assert tokens.shape == (1, 3, 64 * len(LAGS))
    assert tokens[0, 1].nonzero()[:, 0].tolist() == [3, 64 + 3]
