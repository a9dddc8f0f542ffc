"""`Forecaster`: no look ahead, no worse than the simple forecasts, intervals that hold, files, covariates, times."""

from copy import copy

import numpy as np
import pytest
from sklearn.base import clone

import sostenuto as so
from sostenuto.checks import InputError
from sostenuto.estimators.forecast.backtest import LagRidge
from sostenuto.estimators.forecast.mixture import conformal_quantile, recent_change, rising
from sostenuto.estimators.forecast.series import MOMENT, calendar_season, find_seasons
from sostenuto.estimators.forecast.smoothing import SMOOTHERS, smoothed_forecasts

HORIZON = 8


def seasonal(steps=240, seed=0):
    generator = np.random.default_rng(seed)
    time = np.arange(steps)
    return 2 * np.sin(2 * np.pi * time / 12) + 0.05 * time + 0.3 * generator.normal(size=steps)


def small(**options):
    return so.Forecaster(**{"horizon": HORIZON, "n_units": 32, "folds": 3, "random_state": 0, **options})


@pytest.fixture(scope="module")
def fitted():
    return small().fit(seasonal()[:200])


def rmse(errors):
    return float(np.sqrt(np.mean(np.square(errors))))


def test_a_seasonal_series_with_a_trend_beats_the_simple_forecasts(fitted):
    series = seasonal()
    origins = range(200, 240 - HORIZON)
    ridge = LagRidge(12, HORIZON).fit(series[:200, None])
    errors = {"own": [], "previous": [], "season": [], "lags": []}
    for origin in origins:
        truth = series[origin : origin + HORIZON]
        errors["own"].append(fitted.predict(series[:origin])[:, 0] - truth)
        errors["previous"].append(series[origin - 1] - truth)
        errors["season"].append(series[origin - 12 : origin - 12 + HORIZON] - truth)
        errors["lags"].append(ridge.predict(series[:origin, None])[:, 0] - truth)
    found = {name: rmse(each) for name, each in errors.items()}
    assert fitted.seasons_ == (12,)
    assert found["own"] < 0.5 * found["season"]
    assert found["own"] < 0.2 * found["previous"]
    assert found["own"] < 1.05 * found["lags"]


@pytest.mark.parametrize("seed", range(4))
def test_a_random_walk_is_forecast_by_its_previous_value(seed):
    walk = 100 + np.cumsum(np.random.default_rng(seed).normal(size=500))
    made = small().fit(walk[:400]).predict(walk)
    step = np.abs(np.diff(walk)).mean()
    assert np.abs(made - walk[-1]).max() < 0.35 * step * np.sqrt(HORIZON)


def test_the_future_changes_no_past_forecast(fitted):
    series = seasonal()
    changed = series.copy()
    changed[220:] = 1e3
    np.testing.assert_array_equal(fitted.predict(series[:220]), fitted.predict(changed[:220]))
    one, other = small().fit(series[:220]), small().fit(changed[:220])
    np.testing.assert_array_equal(one.predict(), other.predict())


def test_a_fit_on_the_past_of_a_fold_sees_nothing_of_it():
    """Errors of a backtest up to an origin are those of a series that ends there."""
    series = seasonal(120)
    changed = series.copy()
    changed[-1] += 100
    first, second = (small().backtest(each, folds=1).methods[0].rmse_by_horizon for each in (series, changed))
    # Only the last origin's last step meets the changed value.
    np.testing.assert_array_equal(first[:-1], second[:-1])
    assert first[-1] != second[-1]


def test_continues_the_training_series_by_default(fitted):
    np.testing.assert_allclose(fitted.predict(), fitted.predict(seasonal()[:200]), rtol=1e-12)


def test_a_window_of_the_past_is_enough(fitted):
    """No clock is needed: the end of a series gives nearly the forecast of all of it."""
    whole, window = fitted.predict(seasonal()[:205]), fitted.predict(seasonal()[85:205])
    assert rmse(whole - window) < 0.1


def test_an_added_level_moves_the_forecast_with_it():
    series = seasonal()[:200]
    low, high = (small().fit(series + level) for level in (-1000.0, -2000.0))
    np.testing.assert_allclose(low.predict() + 1000, high.predict() + 2000, atol=1e-2)


def test_intervals_hold_about_what_they_promise():
    held = []
    for seed in range(6):
        series = seasonal(400, seed)
        fitted = small(coverage=0.8).fit(series[:300])
        for origin in range(300, 400 - HORIZON, 4):
            low, high = fitted.predict_interval(series[:origin])
            truth = series[origin : origin + HORIZON, None]
            held.append((low <= truth) & (truth <= high))
    assert 0.7 < np.mean(held) < 0.92


@pytest.mark.parametrize("overlapping", [True, False])
def test_errors_that_origins_share_widen_intervals(overlapping):
    """A random walk's errors 9 to 12 steps ahead, from 40 origins: taken as independent, 88 % instead of 90 %."""
    generator, inside, ahead = np.random.default_rng(0), [], np.arange(1, 13)
    for _ in range(600):
        steps = generator.normal(size=(40 + 12, 1 if overlapping else 12))
        walk = np.concatenate([np.zeros_like(steps[:1]), steps.cumsum(0)])
        errors = (walk[ahead + np.arange(40)[:, None], 0] - walk[:40]) if overlapping else steps[:40]
        truth = generator.normal(size=12)
        truth = truth.cumsum() if overlapping else truth
        inside.append(np.abs(truth) <= conformal_quantile(np.abs(errors)[..., None], 0.9)[:, 0])
    covered = np.mean(inside, 0)
    assert 0.9 < covered[-4:].mean() < 0.95
    assert 0.87 < covered[0] < 0.93  # one step ahead nothing is shared


def test_a_wider_coverage_has_wider_intervals(fitted):
    narrow, wide = (fitted.predict_interval(coverage=share) for share in (0.5, 0.95))
    assert (wide[1] - wide[0] > narrow[1] - narrow[0]).all()


def test_backtest_reports_errors_by_horizon_beside_simple_forecasts():
    found = small().backtest(seasonal(), folds=2)
    names = [each.name for each in found.methods]
    assert names == ["forecaster", "previous value", "seasonal naive", "ridge on lags"]
    own = found.methods[0]
    assert len(own.rmse_by_horizon) == len(own.mase_by_horizon) == len(found.covered_by_horizon) == HORIZON
    assert own.rmse < min(found.methods[1].rmse, found.methods[2].rmse)
    assert type(found).from_dict(found.to_dict()) == found
    assert 0.5 < found.covered <= 1


def test_several_channels_are_forecast_together():
    first = seasonal()
    both = np.stack([first, np.roll(first, 3) * 100], 1)
    made = small().fit(both[:200]).predict()
    assert made.shape == (HORIZON, 2)
    assert rmse(made[:, 0] - first[200 : 200 + HORIZON]) < 0.8
    turned = small(layout="bct").fit(both[:200].T).predict()
    np.testing.assert_array_equal(made, turned)


def test_several_series_of_any_lengths_share_one_model():
    lists = [seasonal(150, 1), 1000 * seasonal(170, 2), seasonal(30, 3)]
    fitted = small().fit(lists)
    made = fitted.predict()
    assert made.shape == (3, HORIZON, 1)
    alone = fitted.predict(1000 * seasonal(190, 2)[:170])
    np.testing.assert_allclose(alone, made[1], rtol=1e-9)
    assert fitted.predict_interval().shape == (3, 2, HORIZON, 1)


def test_missing_values_are_bridged():
    series = seasonal()[:200]
    holed = series.copy()
    holed[np.random.default_rng(0).permutation(200)[:20]] = np.nan
    assert rmse(small().fit(holed).predict() - small().fit(series).predict()) < 0.5


def test_a_past_covariate_that_leads_helps():
    generator = np.random.default_rng(0)
    lead = np.convolve(generator.normal(size=420), np.ones(4) / 2, "valid")[:400]
    series = np.concatenate([np.zeros(HORIZON), lead[:-HORIZON]]) + 0.1 * generator.normal(size=400)
    without = small(season=None).fit(series[:300])
    knowing = small(season=None).fit(series[:300], lead[:300])
    truth = [series[origin : origin + HORIZON] for origin in range(300, 390, 3)]
    blind = [without.predict(series[:o])[:, 0] - t for o, t in zip(range(300, 390, 3), truth, strict=True)]
    seeing = [knowing.predict(series[:o], lead[:o])[:, 0] - t for o, t in zip(range(300, 390, 3), truth, strict=True)]
    assert rmse(seeing) < 0.5 * rmse(blind)
    with pytest.raises(InputError, match="expected 1 covariates, as in fit, got 0"):
        knowing.predict(series[:320])


def test_a_covariate_known_ahead_helps():
    generator = np.random.default_rng(1)
    holiday = (generator.uniform(size=400) < 0.15).astype(float)
    series = 10 + 5 * holiday + 0.2 * generator.normal(size=400)
    fitted = small(season=None).fit(series[:300], future_covariates=holiday[:300])
    made = fitted.predict(future_covariates=holiday[300 : 300 + HORIZON])
    np.testing.assert_array_equal(made, fitted.predict(series[:300], future_covariates=holiday[: 300 + HORIZON]))
    assert rmse(made[:, 0] - series[300 : 300 + HORIZON]) < 1.0
    with pytest.raises(InputError, match="expected future_covariates for 308 steps, got 300"):
        fitted.predict()


def test_irregular_times_drive_the_oscillators():
    generator = np.random.default_rng(0)
    times = np.cumsum(generator.exponential(size=300))
    series = np.sin(times / 5)
    fitted = small(season=None).fit(series[:250], times=times[:250])
    even = small(season=None).fit(series[:250])
    assert not np.allclose(fitted.predict(), even.predict())
    np.testing.assert_allclose(fitted.future_times()[0], times[249] + np.median(np.diff(times[:250])))
    with pytest.raises(InputError, match="expected times, as in fit, where they were irregular, got none"):
        fitted.predict(series)


@pytest.mark.parametrize(
    ("start", "unit", "count", "expected"),
    [
        ("2020-01", "M", 60, ["2025-01-01", "2025-02-01"]),
        ("2024-01-01", "D", 60, ["2024-03-01", "2024-03-02"]),
        ("2024-01-01T00", "h", 48, ["2024-01-03", "2024-01-03"]),
        ("2024-02-28T23:59:59.5", "ms", 60, ["2024-02-28", "2024-02-28"]),
    ],
)
def test_dates_go_on(start, unit, count, expected):
    times = np.datetime64(start, unit) + np.arange(count).astype(f"timedelta64[{unit}]")
    fitted = small(horizon=2).fit(np.arange(float(count)), times=times)
    assert fitted.future_times().astype("datetime64[D]").astype(str).tolist() == expected


def test_moments_with_zones_are_counted_in_utc_over_a_change_of_the_clock():
    texts = [f"2024-03-31T{hour:02}:00+01:00" for hour in range(2)] + [
        f"2024-03-31T{hour:02}:00+02:00" for hour in range(3, 24)
    ]
    fitted = small(horizon=2).fit(np.arange(23.0), times=texts)
    assert not fitted.irregular_
    assert fitted.future_times().astype(str).tolist() == ["2024-03-31T22:00:00.000000", "2024-03-31T23:00:00.000000"]


@pytest.mark.parametrize(
    ("times", "message"),
    [
        (["2024-01-01", "2024-01-01", "2024-01-02"], "got 2024-01-01T00:00:00.000000 after 2024-01-01.* at step 1"),
        ([1.0, 3.0, 2.0], "expected rising times, got 2.0 after 3.0 at step 2; sort .*give a moment one step"),
        (["2024-01-01", "NaT", "2024-01-02"], "got NaT"),
        (["Monday", "Tuesday", "Friday"], "expected times as numbers, dates or texts such as 2024-01-31"),
    ],
)
def test_times_that_cannot_be_are_named(times, message):
    with pytest.raises(InputError, match=message):
        small(horizon=1).fit(np.arange(3.0), times=times)


def test_days_of_trade_skip_weekends():
    days = np.datetime64("2024-01-01") + np.arange(40).astype("timedelta64[D]")
    days = days[np.is_busday(days)]
    walk = np.cumsum(np.random.default_rng(0).normal(size=len(days)))
    fitted = small(horizon=3).fit(walk, times=days.astype(str))
    assert np.is_busday(fitted.future_times().astype("datetime64[D]")).all()


def test_saves_and_loads(fitted, tmp_path):
    fitted.save(tmp_path / "forecaster.safetensors")
    loaded = so.Forecaster.load(tmp_path / "forecaster.safetensors")
    np.testing.assert_array_equal(loaded.predict(), fitted.predict())
    np.testing.assert_array_equal(loaded.predict_interval(seasonal()), fitted.predict_interval(seasonal()))
    assert loaded.seasons_ == fitted.seasons_


def test_a_forecaster_of_an_earlier_version_is_to_be_fitted_again(fitted, tmp_path):
    earlier = copy(fitted)
    del earlier.reach_
    earlier.save(tmp_path / "earlier.safetensors")
    with pytest.raises(InputError, match="got one of an earlier version, whose mixtures were others; fit it again"):
        so.Forecaster.load(tmp_path / "earlier.safetensors").predict()


def test_saves_dates(tmp_path):
    times = np.datetime64("2020-01", "M") + np.arange(60).astype("timedelta64[M]")
    fitted = small(horizon=2).fit(seasonal(60), times=times)
    fitted.save(tmp_path / "a.safetensors")
    np.testing.assert_array_equal(so.Forecaster.load(tmp_path / "a.safetensors").future_times(), fitted.future_times())


@pytest.mark.parametrize("steps", [10, 14, 25, 40])
def test_a_short_series_has_a_forecast_and_intervals(steps):
    fitted = small().fit(seasonal(steps))
    assert np.isfinite(fitted.predict()).all()
    assert np.isfinite(fitted.predict_interval()).all()


def test_a_constant_series_stays():
    fitted = small().fit(np.full(100, 3.0))
    np.testing.assert_allclose(fitted.predict(), 3.0, atol=1e-6)


def test_plots_history_forecast_and_interval(fitted, tmp_path):
    figure = fitted.plot()
    legend = figure.axes[0].get_legend().get_texts()
    assert [text.get_text() for text in legend] == ["series", "90% interval", "forecast"]
    figure.savefig(tmp_path / "forecast.png")
    dated = small(horizon=2).fit(
        seasonal(60), times=np.datetime64("2020-01", "M") + np.arange(60).astype("timedelta64[M]")
    )
    dated.plot().savefig(tmp_path / "dated.svg")


def test_is_a_scikit_learn_estimator():
    assert clone(small(season=7)).get_params()["season"] == 7


@pytest.mark.parametrize(
    ("options", "series", "message"),
    [
        ({"horizon": 0}, seasonal(), "expected horizon to be a whole number of at least 1, got 0"),
        ({"season": "weekly"}, seasonal(), "expected season to be 'auto', None or steps, got 'weekly'"),
        ({"season": 500}, seasonal(), "expected a season shorter than the series of 240 steps, got 500"),
        ({}, seasonal(8), "expected at least 10 steps, horizon \\+ 2, got 8"),
        ({}, np.full(50, np.nan), "expected a value in every channel"),
        ({}, np.full(50, np.inf), "expected finite y or NaN, got infinity"),
        ({}, ["a", "b"], "expected y to be numbers"),
    ],
)
def test_refuses_with_what_was_expected(options, series, message):
    with pytest.raises(InputError, match=message):
        small(**options).fit(series)


def test_refuses_other_channels_and_too_short_a_past(fitted):
    with pytest.raises(InputError, match="expected 1 channels, as in fit, got 2"):
        fitted.predict(np.zeros((50, 2)))
    with pytest.raises(InputError, match="steps to forecast from, got 3"):
        fitted.predict(np.zeros(3))


@pytest.mark.parametrize("season", [5, 7, 12])
def test_a_short_season_is_found_and_not_a_multiple_of_it(season):
    steps = np.arange(400)
    noise = np.random.default_rng(season).normal(size=400)
    series = 10 + 0.02 * steps + 3 * np.sin(2 * np.pi * steps / season) + 0.4 * noise
    assert find_seasons(series[:, None]) == (season,)


def test_smoothing_is_holt_and_winters_recursion_step_by_step():
    values, season, horizon = seasonal(60), 12, 4
    made = smoothed_forecasts(values[:, None], horizon, (0, season))[..., 0]
    for place, period in enumerate((0, season)):
        for index, (alpha, beta, damping) in enumerate(SMOOTHERS):
            level = values[:period].mean() if period else 0.0
            profile = list(values[:period] - level) if period else [0.0]
            trend = 0.0
            for step in range(period, len(values)):
                phase, gain = step % len(profile), max(alpha, 1 / (step + 1))
                error = values[step] - level - damping * trend - profile[phase]
                level = level + damping * trend + gain * error
                trend = damping * trend + (max(beta, 1 / max(step, 1)) * error if beta and step else 0.0)
                if period:
                    profile[phase] += max(0.3, 1 / (step // period + 1)) * (1 - gain) * error
            ahead = np.arange(1, horizon + 1)
            expected = [
                level + sum(damping**k for k in range(1, h + 1)) * trend + profile[(step + h) % len(profile)]
                for h in ahead
            ]
            np.testing.assert_allclose(made[place, index, -1], expected, rtol=1e-9, atol=1e-9)
    last = smoothed_forecasts(values[:, None], horizon, (0, season), last=True)
    np.testing.assert_array_equal(last[..., 0, :, 0], made[:, :, -1])


def test_short_series_are_forecast_by_what_their_own_past_favors():
    """Twenty steps leave no room to hold fits out, and yet say that there is a trend."""
    ratios = []
    for seed in range(6):
        line = 2 * np.arange(24) + 2 * np.random.default_rng(seed).normal(size=24)
        made = so.Forecaster(4, random_state=0).fit(line[:20]).predict()[:, 0]
        ratios.append(rmse(made - line[20:]) / rmse(line[19] - line[20:]))
    assert np.median(ratios) < 0.7


def test_ridges_go_no_farther_from_simple_forecasts_than_they_did_before_a_jump():
    series = seasonal(300)
    fitted = small().fit(series[:200])
    series[202:] += 500
    simple = clone(fitted).fit(series[:200])
    simple.members_ = [{**member, "change": 0.0} for member in simple.members_]
    assert fitted.trust_ > 0
    for end in (200, 204, 230):
        moved = np.abs(fitted.predict(series[:end]) - simple.predict(series[:end]))
        assert moved.max() > 0
        recent = recent_change(series[:end, None], 24)[-1]
        assert (moved <= fitted.reach_ * recent * (1 + 1e-9)).all()


def test_a_gap_longer_than_a_season_is_filled_with_the_season():
    series = 10 * np.sin(2 * np.pi * np.arange(300) / 12) + np.random.default_rng(0).normal(size=300)
    holed = series.copy()
    holed[230:262] = np.nan
    whole, bridged = (so.Forecaster(12, random_state=0).fit(each[:288]).predict() for each in (series, holed))
    assert rmse(bridged[:, 0] - series[288:]) < 1.3 * rmse(whole[:, 0] - series[288:])
    later = so.Forecaster(12, random_state=0).fit(series[:200]).predict(holed[:264])
    assert rmse(later[:, 0] - series[264:276]) < 2


def test_the_calendar_suggests_a_season_where_too_few_were_seen():
    months = np.arange("2020-01", "2022-07", dtype="datetime64[M]")
    series = 100 + 20 * np.sin(2 * np.pi * np.arange(36) / 12) + np.random.default_rng(1).normal(size=36)
    plain = so.Forecaster(6, random_state=0).fit(series[:30])
    dated = so.Forecaster(6, random_state=0).fit(series[:30], times=months)
    assert plain.seasons_ == ()
    assert dated.seasons_ == (12,)
    assert rmse(dated.predict()[:, 0] - series[30:]) < 0.8 * rmse(plain.predict()[:, 0] - series[30:])


@pytest.mark.parametrize(
    ("start", "step", "expected"),
    [("2024-01-01", "1D", 7), ("2024-01-01T00", "1h", 24), ("2024-01-01", "7D", 52), ("2024-01-01", "3D", 0)],
)
def test_the_calendar_knows_days_hours_and_weeks(start, step, expected):
    count, unit = int(step[:-1]), step[-1]
    times = np.datetime64(start) + np.arange(20) * np.timedelta64(count, unit)
    assert calendar_season(times.astype(MOMENT)) == expected


def test_intervals_do_not_narrow_with_the_horizon():
    walk = np.random.default_rng(3).normal(size=120).cumsum()
    fitted = so.Forecaster(10, random_state=0).fit(np.stack([walk, walk[::-1] + 5 * np.cos(np.arange(120))], 1))
    for coverage in (0.5, 0.8, 0.95):
        low, high = fitted.predict_interval(coverage=coverage)
        assert (np.diff(high - low, axis=0) >= -1e-9).all()
    scores = np.abs(np.random.default_rng(0).normal(size=(30, 12, 1)))
    own = conformal_quantile(scores, 0.8)
    assert (np.diff(own[:, 0]) < 0).any()
    assert (np.diff(rising(own)[:, 0]) >= 0).all()
    assert (rising(own) >= own).all()  # or a horizon would hold less than its quantile promises


def test_few_stretches_of_a_horizon_widen_intervals():
    """One stretch of ten steps says little of the next: the largest score is not far enough out."""
    scores = np.abs(np.random.default_rng(0).normal(size=(10, 10, 1)))
    quantile = conformal_quantile(scores, 0.9)[:, 0]
    assert quantile[-1] > 1.2 * scores[:, -1, 0].max()
    many = np.abs(np.random.default_rng(0).normal(size=(400, 10, 1)))
    assert (conformal_quantile(many, 0.9)[:, 0] <= many.max(0)[:, 0]).all()
