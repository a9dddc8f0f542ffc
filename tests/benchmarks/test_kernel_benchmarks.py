"""The benchmark of the kernel classifier, at a size that takes seconds."""

import pytest

from sostenuto.benchmarks import rntk_classifier
from sostenuto.checks import InputError


def test_both_searches_are_measured(real_data):
    options = {"sigma_w": 1.4, "sigma_b": 0.1, "sigma_h": 0.0, "folds": 3}
    record = rntk_classifier.run(progress=False, sets=("ucr/SmoothSubspace",), data_dir=str(real_data), **options)
    found = record["ucr/SmoothSubspace"]
    assert found["grid"]["test_accuracy"] > 60
    assert found["evidence"]["sigma_w"] == 1.4
    assert found["grid_over_evidence_seconds"] > 0


def test_the_cluster_of_a_benchmark_listens_to_this_machine_alone():
    pytest.importorskip("distributed")
    import psutil

    from sostenuto.benchmarks.gram_cluster import _cluster

    with _cluster() as (address, processes):
        assert address.startswith("tcp://127.0.0.1:")
        for process in processes.values():
            ports = psutil.Process(process.pid).net_connections(kind="inet")
            listening = {port.laddr.ip for port in ports if port.status == psutil.CONN_LISTEN}
            assert listening == {"127.0.0.1"}


def test_no_scheduler_without_protection_is_recommended():
    pytest.importorskip("distributed")
    from sostenuto.kernels.gram.cluster import connect

    with pytest.raises(
        InputError, match=r"dask scheduler --host 127\.0\.0\.1 --no-dashboard, and one for a network with"
    ):
        connect("nonsense://nowhere")
