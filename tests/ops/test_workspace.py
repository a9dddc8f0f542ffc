import gc
import threading

import pytest
import torch

from sostenuto.ops._cpu import workspace

SHAPE = (1200, 1000)


@pytest.fixture(autouse=True)
def _nothing_waits():
    workspace.release()
    yield
    workspace.release()


def make(shape=SHAPE, dtype=torch.float32):
    return workspace.new(shape, dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_is_a_tensor_like_any_other(dtype):
    values = make(dtype=dtype)
    assert values.shape == SHAPE
    assert values.dtype == dtype
    assert values.is_contiguous()
    assert values.data_ptr() % 64 == 0
    values.fill_(2)
    assert values.sum() == 2.4e6
    assert make((3,)).shape == (3,)


@pytest.mark.parametrize("place", [0, 64, 2047, 4095, 3 * 4096 + 130])
def test_begins_at_the_place_asked_for(place):
    values = workspace.new(SHAPE, torch.float32, place=place)
    assert values.data_ptr() % 4096 == place // 64 * 64 % 4096
    values.fill_(2)
    assert values.sum() == 2.4e6
    del values
    assert workspace.new(SHAPE, torch.float32, place=0).data_ptr() % 4096 == 0


def test_memory_comes_back_when_its_tensor_is_gone():
    first = make()
    place = first.data_ptr()
    del first
    assert make().data_ptr() == place


@pytest.mark.parametrize(
    "view",
    [
        lambda t: t[3:5],
        lambda t: t.T,
        lambda t: t.view(torch.int32),
        lambda t: t.numpy(),
        lambda t: t.untyped_storage(),
        lambda t: memoryview(t.numpy()),
        lambda t: t.requires_grad_().exp(),
    ],
    ids=["slice", "transposed", "retyped", "array", "storage", "memory", "graph"],
)
def test_memory_is_never_shared_while_something_sees_it(view):
    first = make().fill_(1.0)
    place = first.data_ptr()
    seen = view(first)
    del first
    gc.collect()
    other = make().fill_(7.0)
    assert other.data_ptr() != place
    del seen
    gc.collect()
    assert make().data_ptr() == place


def test_what_waits_is_bounded(monkeypatch):
    monkeypatch.setattr(workspace, "KEPT_BYTES", 3 * (1 << 22))
    held = [make((1 << 20,)) for _ in range(5)]
    held.clear()
    assert workspace._kept() == 3 * (1 << 22)
    larger = make((1 << 21,))
    del larger
    assert workspace._kept() <= 3 * (1 << 22)
    assert workspace._free[1 << 23]


def test_zero_keeps_nothing(monkeypatch):
    monkeypatch.setattr(workspace, "KEPT_BYTES", 0)
    make()
    assert workspace._kept() == 0


def test_threads_never_get_the_same_memory():
    wrong = []

    def work(number):
        for _ in range(100):
            values = make((1_100_000,))
            values[0] = values[-1] = number
            if not (values[0] == number and values[-1] == number):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_memory_that_nobody_wrote_shows():
    torch.use_deterministic_algorithms(True)
    try:
        assert make().isnan().all()
    finally:
        torch.use_deterministic_algorithms(False)
