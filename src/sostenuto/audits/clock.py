"""The clock by which an audit estimates and limits its checks."""

import time
from collections.abc import Callable

from torch import nn

from sostenuto.audits.model import place_of
from sostenuto.audits.recognize import BlackBox


def clock_of(model: nn.Module) -> Callable[[], float]:
    """Choose a clock in seconds: the calling thread's processor time where that thread does the work.

    What else the machine does then changes neither an estimate nor how much an audit takes on. Work on a GPU, or in an
    estimator's own processes, is timed by the wall clock.

    >>> clock_of(nn.Linear(1, 1)) is time.thread_time
    True
    """
    at_hand = place_of(model)[0].type == "cpu" and not isinstance(model, BlackBox)
    return time.thread_time if at_hand else time.perf_counter
