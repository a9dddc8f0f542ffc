"""What lives is set aside for the time of a training, and no longer."""

import gc

import pytest

from sostenuto.training.processes import gc_frozen


def test_comes_back_also_after_an_error():
    gc.unfreeze()
    with pytest.raises(ValueError, match="inside"), gc_frozen():
        raise ValueError("inside")
    assert gc.get_freeze_count() == 0


def test_what_somebody_else_set_aside_stays():
    gc.freeze()
    try:
        with gc_frozen():
            pass
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()
