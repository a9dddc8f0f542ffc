"""The benchmark of the kernel classifier, at a size that takes seconds."""

from sostenuto.benchmarks import rntk_classifier


def test_both_searches_are_measured(real_data):
    options = {"sigma_w": 1.4, "sigma_b": 0.1, "sigma_h": 0.0, "folds": 3}
    record = rntk_classifier.run(progress=False, sets=("ucr/SmoothSubspace",), data_dir=str(real_data), **options)
    found = record["ucr/SmoothSubspace"]
    assert found["grid"]["test_accuracy"] > 60
    assert found["evidence"]["sigma_w"] == 1.4
    assert found["grid_over_evidence_seconds"] > 0
