from sostenuto.benchmarks import signature_levels


def test_record_has_times_and_differences():
    record = signature_levels.run(progress=False, shapes=((3, 5, 2, 3),))
    found = record["shapes"]["3 x 5 x 2, level 3"]
    for part in ("forward", "forward_and_gradient"):
        assert min(found[part]["milliseconds"].values()) > 0
        assert max(found[part]["difference_from_reference"].values()) < 1e-12
        assert found[part]["reference_over_cpu"] > 0
