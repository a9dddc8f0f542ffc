import numpy as np
import pytest

from sostenuto.benchmarks import forecast_intervals, forecasting


@pytest.mark.parametrize("name", [*forecasting.CLASSICS, *forecasting.GENERATED])
def test_every_series_is_whole(name):
    values, horizon, season = forecasting.load(name)
    assert np.isfinite(values).all()
    assert len(values) > 5 * max(horizon, season)


def test_measures_the_forecaster_beside_simple_forecasts():
    record = forecasting.run(progress=False, names=("nottingham",))
    row = record["series"]["nottingham"]
    assert set(row["ratios"]) == {"previous value", "seasonal naive", "ridge on lags"}
    assert row["ratios"]["seasonal naive"] < 0.9
    assert row["ratios"]["ridge on lags"] < 1
    assert record["ahead_of_all"] == 1


def test_intervals_are_judged_by_law_and_on_classic_series():
    record = forecast_intervals.run(progress=False, draws=2, lengths=(30,), names=("lake huron",))
    assert record["laws"].keys() == forecast_intervals.LAWS.keys()
    walk, lake = record["laws"]["random walk"]["30"]["0.8"], record["classics"]["lake huron"]["0.95"]
    assert len(walk["by_horizon"]) == forecast_intervals.AHEAD
    assert walk["mean"] == np.mean(walk["by_horizon"])
    assert 0.8 < lake["mean"] <= record["mean_classics"]["0.95"] == lake["mean"]
    assert 0.5 < record["mean"]["30"]["0.8"] <= record["mean"]["30"]["0.95"] <= 1


def test_a_series_that_is_not_at_hand_is_named(monkeypatch, tmp_path):
    monkeypatch.delenv("SOSTENUTO_DATA", raising=False)
    monkeypatch.setenv("SOSTENUTO_CACHE", str(tmp_path))
    record = forecasting.run(progress=False, names=("google",), data_dir=str(tmp_path))
    assert list(record["left_out"]) == ["google"]


def test_the_settings_were_chosen_on_about_half():
    assert set(forecasting.CHOSEN_ON) < set(forecasting.NAMES)
    assert len(forecasting.NAMES) >= len(forecasting.CHOSEN_ON) + 8
