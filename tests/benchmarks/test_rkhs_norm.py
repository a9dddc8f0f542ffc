from sostenuto.benchmarks import rkhs_norm


def test_record_has_times_draws_and_errors():
    record = rkhs_norm.run(
        progress=False,
        exact={"hidden": 4, "channels": 1, "order": 2},
        stochastic={"hidden": 6, "channels": 2, "order": 4},
    )
    assert record["exact"]["median_seconds"] > 0
    for found in record["stochastic"]["by_weight_scale"].values():
        assert found["relative_standard_error"] < 0.08
        assert found["draws"] >= 200
        assert len(found["squared_by_level"]) == 4
