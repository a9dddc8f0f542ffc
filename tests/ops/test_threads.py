import threading
from collections import deque

import pytest

from sostenuto.ops._cpu import threads
from sostenuto.ops._cpu.threads import run_blocks


@pytest.mark.usefixtures("two_threads")
def test_every_block_runs_once_and_two_at_a_time():
    both, seen, names = threading.Barrier(2), [], set()

    def kernel(start, stop):
        if start < 4:
            both.wait(timeout=60)  # passes only if two threads are here at once
        names.add(threading.get_ident())
        seen.append((start, stop))

    run_blocks(kernel, 9, 2)
    assert sorted(seen) == [(0, 2), (2, 4), (4, 6), (6, 8), (8, 9)]
    assert len(names) == 2


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("bad", [0, 2])
@pytest.mark.parametrize("kind", [ZeroDivisionError, KeyboardInterrupt])
def test_an_error_in_any_thread_is_raised(bad, kind):
    both = threading.Barrier(2)

    def kernel(start, _):
        both.wait(timeout=60)
        if start == bad:
            raise kind

    with pytest.raises(kind):
        run_blocks(kernel, 4, 2)


@pytest.mark.usefixtures("two_threads")
def test_a_block_left_undone_is_no_success(monkeypatch):
    monkeypatch.setattr(threads._Blocks, "work", lambda *_: None)
    with pytest.raises(KeyboardInterrupt):
        run_blocks(lambda *_: None, 4, 2)


def test_threads_of_python_can_run_blocks_at_the_same_time():
    totals = []

    def work():
        for _ in range(50):
            parts = deque()
            run_blocks(lambda start, stop, parts=parts: parts.append(stop - start), 8, 3)
            totals.append(sum(parts))

    callers = [threading.Thread(target=work) for _ in range(3)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert totals == [8] * 150
