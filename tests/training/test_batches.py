from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sostenuto.data.batch import SequenceBatch
from sostenuto.training.batches import BatchSource, subsample_steps

CPU = torch.device("cpu")


def numbered(count: int, steps: int = 3) -> SequenceBatch:
    values = torch.arange(count, dtype=torch.float32)[:, None, None].expand(-1, steps, 1).clone()
    return SequenceBatch(values, torch.full((count,), steps), torch.arange(count))


def shares(count: int, batch_size: int, processes: int, epoch: int | None, start: int = 0) -> list[list[list[int]]]:
    """List, batch by batch, the sequences that count in each process."""
    data = numbered(count)
    found = []
    for process in range(processes):
        source = BatchSource(data, batch_size, CPU, seed=3, process=process, num_processes=processes)
        mine = []
        for batch, counts, whole in source.batches(epoch, start):
            assert batch.targets is not None
            assert len(counts) == len(batch) >= 1
            assert set(batch.targets.tolist()) <= set(whole.tolist())
            mine.append([int(t) for t, c in zip(batch.targets, counts, strict=True) if c])
        assert len(mine) == len(source) - start
        found.append(mine)
    return [list(parts) for parts in zip(*found, strict=True)]


@given(st.integers(1, 40), st.integers(1, 12), st.integers(1, 3), st.none() | st.integers(0, 3))
def test_every_sequence_once_an_epoch_in_any_number_of_processes(count, batch_size, processes, epoch):
    batches = shares(count, batch_size, processes, epoch)
    seen = [number for parts in batches for part in parts for number in part]
    assert sorted(seen) == list(range(count))
    whole = shares(count, batch_size, 1, epoch)
    assert [sorted(n for part in parts for n in part) for parts in batches] == [sorted(parts[0]) for parts in whole]


def test_the_order_is_a_function_of_seed_and_epoch():
    data = numbered(50)

    def order(epoch: int | None, **options) -> list[int]:
        return torch.cat([piece for _, piece in BatchSource(data, 8, CPU, **options).pieces(epoch)]).tolist()

    first = order(4, seed=1)
    assert first == order(4, seed=1, process=1, num_processes=2)
    assert first != order(5, seed=1)
    assert first != order(4, seed=2)
    assert order(None) == list(range(50))
    before = torch.get_rng_state()
    order(9)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("drop_last", [False, True])
def test_an_epoch_visits_every_sequence_once_and_in_its_bucket(drop_last):
    lengths = [3, 9, 4, 10, 2, 8, 5]
    data = SequenceBatch.from_sequences([np.ones((n, 1)) for n in lengths], targets=list(range(7)))
    source = BatchSource(data, 2, CPU, borders=(5,), drop_last=drop_last)
    assert [bucket.steps for bucket in source.buckets] == [5, 10]
    pieces = source.pieces(0)
    assert len(source) == len(pieces) == (3 if drop_last else 4)
    seen = torch.cat([index for _, index in pieces]).tolist()
    assert len(seen) == len(set(seen)) == (6 if drop_last else 7)
    for (bucket, index), (batch, _, whole) in zip(pieces, source.batches(0), strict=True):
        assert torch.equal(index, whole)
        fixed = source.gathered(bucket, index)
        assert fixed.values.shape[1] == source.buckets[bucket].steps >= int(batch.lengths.max())
        assert torch.equal(fixed.targets, batch.targets)
        assert torch.equal(fixed.values[:, : batch.values.shape[1]], batch.values)
        assert torch.equal(fixed.lengths, batch.lengths)


@pytest.mark.parametrize("processes", [1, 2])
def test_an_epoch_goes_on_where_it_stopped(processes):
    assert shares(23, 4, processes, epoch=2, start=3) == shares(23, 4, processes, epoch=2)[3:]


def test_batches_are_trimmed_and_transformed():
    data = SequenceBatch(torch.ones(4, 9, 1), torch.tensor([2, 3, 9, 1]))
    source = BatchSource(data, 2, CPU, transform=lambda batch: replace(batch, values=2 * batch.values))
    batches = [batch for batch, _, _ in source.batches()]
    assert [batch.values.shape[1] for batch in batches] == [3, 9]
    assert all(batch.values.max() == 2 for batch in batches)
    assert source.is_ragged


@pytest.mark.parametrize("processes", [1, 2])
def test_batches_padded_to_their_bucket_end_where_it_does(processes):
    """Each share of each batch, whatever is in it: truncated gradients are cut alike in any number of processes."""
    data = SequenceBatch(torch.ones(7, 9, 1), torch.tensor([2, 3, 9, 1, 8, 4, 7]))
    for process in range(processes):
        options = {"process": process, "num_processes": processes, "borders": (4,), "pads_to_bucket": True}
        source = BatchSource(data, 2, CPU, transform=lambda batch: replace(batch, values=2 * batch.values), **options)
        ends = {1: 4, 2: 4, 3: 4, 4: 4, 7: 9, 8: 9, 9: 9}
        for batch, counts, whole in source.batches(1):
            assert len(batch) == len(counts) <= len(whole)
            assert {ends[length] for length in batch.lengths.tolist()} == {batch.values.shape[1]}
            assert batch.values.max() == 2


@given(st.lists(st.integers(1, 15), min_size=1, max_size=5), st.integers(1, 12), st.integers(0, 99))
def test_subsampling_keeps_order_and_adds_up_spans(lengths: list[int], count: int, seed: int):
    torch.manual_seed(seed)
    steps = max(lengths)
    places = torch.arange(1, steps + 1, dtype=torch.float64).expand(len(lengths), -1)
    mask = places <= torch.tensor(lengths)[:, None]
    spans = (torch.rand(len(lengths), steps, dtype=torch.float64) + 0.1) * mask
    batch = SequenceBatch(
        (places * mask)[..., None], torch.tensor(lengths), (10 * places * mask)[..., None], spans, has_step_targets=True
    )
    kept = subsample_steps(batch, count)
    assert kept.lengths.tolist() == [min(length, count) for length in lengths]
    assert kept.values.shape[1] == min(steps, count)
    times = spans.cumsum(1)
    assert kept.targets is not None
    assert kept.timespans is not None
    for row, length in enumerate(kept.lengths.tolist()):
        chosen = kept.values[row, :length, 0].long() - 1
        assert chosen.tolist() == sorted(set(chosen.tolist()))
        assert int(chosen.max()) < lengths[row]
        torch.testing.assert_close(kept.targets[row, :length, 0], 10 * kept.values[row, :length, 0])
        torch.testing.assert_close(kept.timespans[row, :length].cumsum(0), times[row, chosen])
        assert kept.values[row, length:].count_nonzero() == 0
        torch.testing.assert_close(kept.timespans[row, length:].abs().sum().item(), 0.0, atol=1e-12, rtol=0)


def test_subsampling_draws_every_moment_equally():
    batch = SequenceBatch(torch.arange(6.0).reshape(1, 6, 1).expand(3000, -1, -1), torch.full((3000,), 6))
    kept = subsample_steps(batch, 2)
    counts = torch.bincount(kept.values.flatten().long(), minlength=6)
    assert bool(((counts - 1000).abs() < 130).all())


def test_one_target_a_sequence_is_left_alone_and_long_enough_is_long_enough():
    batch = numbered(4, steps=5)
    assert subsample_steps(batch, 5) is batch
    assert torch.equal(subsample_steps(batch, 2).targets, batch.targets)  # pyright: ignore[reportArgumentType]


def test_batches_gathered_together_are_those_gathered_alone(monkeypatch):
    lengths = torch.tensor([2, 3, 9, 1, 5, 4, 7])
    data = SequenceBatch(torch.rand(7, 9, 2), lengths, torch.arange(7), torch.rand(7, 9))
    monkeypatch.setattr("sostenuto.training.batches.GATHERED_BYTES", 0)
    alone = list(BatchSource(data, 2, CPU).batches(epoch=1))
    for size in (300, 1 << 22):
        monkeypatch.setattr("sostenuto.training.batches.GATHERED_BYTES", size)
        together = list(BatchSource(data, 2, CPU).batches(epoch=1))
        for (batch, counts, whole), (other, other_counts, other_whole) in zip(together, alone, strict=True):
            assert torch.equal(whole, other_whole)
            assert torch.equal(counts, other_counts)
            for name in ("values", "lengths", "targets", "timespans"):
                assert torch.equal(getattr(batch, name), getattr(other, name)), name
