import sys

import pytest

from sostenuto.benchmarks import oscillator_memory


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the peak of memory is read from Linux's /proc")
def test_recomputing_takes_less_memory_for_both_losses():
    shape = {"steps": 2000, "batch": 4, "hidden": 256, "layers": 3, "channels": 1}
    record = oscillator_memory.run(progress=False, shape=shape)
    for loss in ("final state", "all outputs"):
        assert record["recompute_over_store"][loss]["peak_bytes"] < 0.7
        assert record["measured"][loss]["recompute"]["median_seconds"] > 0
    assert record["recompute_over_store"]["all outputs"]["peak_bytes_beside_outputs"] < 0.5
