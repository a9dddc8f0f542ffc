from types import SimpleNamespace

import numpy as np
import pytest
import torch

from sostenuto.benchmarks import _ordinary_tasks, ordinary_tasks
from sostenuto.benchmarks._linear_peers import LRU, Blocks, LinOSS, MinGRU
from sostenuto.benchmarks._ordinary_tasks import adding, copying, irregular_sine, sequential_digits, spoken_digits
from sostenuto.data.dataset import SequenceSet


def test_a_quick_run_has_every_cell():
    record = ordinary_tasks.run(progress=False, settings=ordinary_tasks.QUICK)
    assert [row["task"] for row in record["rows"]] == ["sine at irregular times", "digits, pixel by pixel"]
    for row in record["rows"]:
        assert list(row["columns"]) == list(ordinary_tasks.QUICK.layers)
        for layer, column in row["columns"].items():
            assert len(column["scores"]) == (2 if layer in ("stack", "nn.LSTM") else 1)
            assert column["steps"][0] > 0
    assert sum(record["mean_rank"].values()) == pytest.approx(15, abs=0.1)


@pytest.mark.parametrize("task", [adding(20), copying(5), irregular_sine(9), sequential_digits(3)])
def test_tasks_are_drawn_from_their_seed(task):
    one, other = (task.draw(4, torch.Generator().manual_seed(3), False) for _ in range(2))
    assert torch.equal(one.x, other.x)
    assert torch.equal(one.y, other.y)
    assert one.x.shape[2] == task.channels


def test_permuted_digits_are_the_same_pixels_in_one_order():
    plain, permuted = (
        sequential_digits(permuted=flag).draw(0, torch.Generator(), True).x[..., 0] for flag in (False, True)
    )
    assert not torch.equal(plain, permuted)
    assert torch.equal(plain.sort(1).values, permuted.sort(1).values)
    moved = (plain[:, :, None] == permuted[:, None, :]).all(0)
    assert moved.any(1).all()


def test_spoken_digits_are_the_samples_in_frames(monkeypatch):
    sequences = [np.arange(7.0)[:, None], np.arange(100.0)[:, None]]
    part = SequenceSet(sequences, np.array(["3", "7"]))
    monkeypatch.setattr(_ordinary_tasks, "load", lambda _: SimpleNamespace(train=part, test=part))
    batch = spoken_digits(frame=3, frames=4).draw(0, torch.Generator(), True)
    assert batch.lengths.tolist() == [2, 4]
    assert batch.y.tolist() == [3, 7]
    deviation = np.concatenate(sequences).std()
    torch.testing.assert_close(batch.x[0].flatten() * deviation, torch.tensor([0.0, 1, 2, 3, 4, 5, 0, 0, 0, 0, 0, 0]))
    torch.testing.assert_close(batch.x[1].flatten() * deviation, torch.arange(12.0))


def test_adding_is_the_sum_of_the_marked_numbers():
    batch = adding(20).draw(5, torch.Generator().manual_seed(0), False)
    assert torch.equal(batch.x[..., 1].sum(1), torch.full((5,), 2.0))
    torch.testing.assert_close((batch.x[..., 0] * batch.x[..., 1]).sum(1, keepdim=True), batch.y)


@pytest.mark.parametrize("unit", [MinGRU, LRU, LinOSS])
def test_peers_are_their_recurrences(unit):
    torch.manual_seed(0)
    layer, u = unit(5), torch.randn(6, 2, 5)
    got, h = layer(u), torch.zeros(2, 5)
    s = torch.zeros(2, 5, dtype=torch.complex64)
    for t, u_t in enumerate(u):
        if unit is MinGRU:
            gate, value = layer.maps(u_t).chunk(2, dim=-1)
            h = (1 - torch.sigmoid(gate)) * h + torch.sigmoid(gate) * value
            expected = h
        elif unit is LRU:
            decay, angle, scale = layer.poles()
            s = torch.exp(torch.complex(-decay, angle)) * s + scale * torch.complex(*layer.read(u_t).chunk(2, -1))
            expected = layer.write(torch.cat([s.real, s.imag], -1)) + layer.direct * u_t
        else:
            step = torch.sigmoid(layer.step)
            turn = torch.exp(1j * step * torch.sqrt(layer.stiffness.abs() + 1e-6))
            s = turn * s + 1j * step * layer.read(u_t)
            expected = layer.write(torch.cat([s.real, s.imag], -1)) + layer.direct * u_t
        torch.testing.assert_close(got[t], expected, rtol=1e-4, atol=1e-5)
    assert Blocks(3, 5, unit)(torch.randn(4, 2, 3))[0].shape == (4, 2, 5)
