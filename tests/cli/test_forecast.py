"""``sostenuto fit --task forecast``: a forecaster, its page, and forecasts of other files."""

import csv
import json

import numpy as np
import pytest

from tests.cli.small import call, said
from tests.report.html_check import Page


def write_series(path, steps=200, *, several=False, beside=True):
    """Write a weekly season on a line, a column beside it, and dates."""
    generator = np.random.default_rng(0)
    days = np.arange(np.datetime64("2024-01-01"), np.datetime64("2024-01-01") + np.timedelta64(steps, "D"))
    head = ["date", "price", *(["cov"] if beside else []), *(["shop"] if several else [])]
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(head)
        for shop in ("north", "south") if several else ("",):
            price = 10 + 0.02 * np.arange(steps) + 3 * np.sin(2 * np.pi * np.arange(steps) / 7)
            price += 0.3 * generator.normal(size=steps)
            for day, value in zip(days, price, strict=True):
                extra = [generator.normal()] if beside else []
                writer.writerow([day, value, *extra, *([shop] if several else [])])
    return path


COLUMNS = ("--task", "forecast", "--time", "date", "--horizon", 7)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("forecast")
    data = write_series(folder / "sales.csv")
    result = call("fit", data, *COLUMNS, "--target", "price", "--out", folder / "run", "--json")
    assert result.exit_code == 0, result.stderr
    return folder, json.loads(result.stdout)


def rows_of(text):
    return list(csv.DictReader(text.splitlines()))


def test_the_target_is_forecast_better_than_by_simple_means(run):
    folder, found = run
    assert found["model"] == "forecaster"
    assert found["score"] < 0.6 * found["methods"]["previous value"]
    rows = rows_of((folder / "run" / "predictions.csv").read_text())
    assert [row["time"] for row in rows] == [
        str(np.datetime64("2024-07-19") + np.timedelta64(i, "D")) for i in range(7)
    ]
    assert {row["channel"] for row in rows} == {"price"}
    truth = 10 + 0.02 * np.arange(200, 207) + 3 * np.sin(2 * np.pi * np.arange(200, 207) / 7)
    forecast = np.array([float(row["forecast"]) for row in rows])
    assert np.abs(forecast - truth).max() < 1.0
    assert all(float(row["low"]) < float(row["forecast"]) < float(row["high"]) for row in rows)


def test_the_page_shows_it(run):
    page = (run[0] / "run" / "report.html").read_text()
    assert Page(page).faults == []
    assert "mean error over that of the seasonal naive forecast" in page
    for words in ("What comes next", "How far off was it?", "seasonal naive", "Inside intervals", "7 steps"):
        assert words in page


def test_predict_repeats_it_and_forecasts_other_files(run, tmp_path):
    folder, _ = run
    result = call("predict", folder / "run", folder / "sales.csv")
    assert result.exit_code == 0, result.stderr
    assert result.stdout == (folder / "run" / "predictions.csv").read_text()
    shorter = write_series(tmp_path / "shorter.csv", 150)
    found = json.loads(call("predict", folder / "run", shorter, "--json").stdout)
    assert found["times"][0][0] == "2024-05-30"
    other = write_series(tmp_path / "other.csv", beside=False)
    assert "expected the columns beside them of the run, ('cov',), got ()" in said(
        call("predict", folder / "run", other)
    )
    before = (folder / "run" / "model.safetensors").read_bytes()
    assert call("fit", "--resume", folder / "run").exit_code == 0
    assert (folder / "run" / "model.safetensors").read_bytes() == before


def test_a_date_and_a_value_alone_and_several_series(tmp_path):
    alone = write_series(tmp_path / "alone.csv", beside=False)
    result = call("fit", alone, *COLUMNS[:-2], "--out", tmp_path / "alone")
    assert result.exit_code == 0
    assert "forecaster, 1 step ahead" in result.stdout
    assert "Error by horizon" not in (tmp_path / "alone" / "report.html").read_text()  # a line of one point
    several = write_series(tmp_path / "several.csv", several=True, beside=False)
    result = call("fit", several, *COLUMNS, "--series", "shop", "--out", tmp_path / "several")
    assert result.exit_code == 0, result.stderr
    rows = rows_of((tmp_path / "several" / "predictions.csv").read_text())
    assert {row["series"] for row in rows} == {"north", "south"}


def test_options_of_a_network_still_train_one(tmp_path):
    data = write_series(tmp_path / "sales.csv", beside=False)
    options = ("--epochs", 1, "--hidden-size", 4, "--window", 20, "--quiet")
    result = call("fit", data, *COLUMNS, *options, "--out", tmp_path / "run")
    assert result.exit_code == 0, result.stderr
    assert 'layer = "stack"' in (tmp_path / "run" / "config.toml").read_text()


def test_a_series_too_short_leaves_nothing_behind(tmp_path):
    data = write_series(tmp_path / "sales.csv", 6, beside=False)
    assert "expected at least" in said(call("fit", data, *COLUMNS, "--out", tmp_path / "run"))
    assert not (tmp_path / "run").exists()
