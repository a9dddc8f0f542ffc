import gzip
from datetime import date, timedelta

import numpy as np
import pytest

import sostenuto as so
from sostenuto.checks import FileFormatError

HEAD = "Date,Open,High,Low,Close,Adj Close,Volume"


def lines(count: int = 1000, start: date = date(2013, 12, 30)) -> list[str]:
    """One line a day; the closing price is the day's number from 2014-01-02 on."""
    first = date(2014, 1, 2)
    days = [start + timedelta(days=index) for index in range(count)]
    return [HEAD, *(f"{day},1,3,0.5,{(day - first).days},9,{index}" for index, day in enumerate(days))]


def put(folder, rows: list[str], suffix: str = ".csv") -> None:
    (folder / "google_stock").mkdir(exist_ok=True)
    content = "\n".join(rows).encode()
    path = folder / "google_stock" / f"GOOG{suffix}"
    path.write_bytes(gzip.compress(content) if suffix.endswith(".gz") else content)


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz"])
def test_windows_of_unequal_length_split_in_time(suffix, data_folder):
    put(data_folder, lines(), suffix)
    data = so.datasets.load("google-stock", data_folder)
    assert data.train.task == "forecast"
    assert data.train.targets.shape == (680, 1, 1)
    assert data.test.targets.shape == (255, 1, 1)
    assert data.train.targets[:, 0, 0].tolist() == list(range(20, 700))
    assert data.test.targets[:, 0, 0].tolist() == list(range(720, 975))
    for part, first in ((data.train, 0), (data.test, 700)):
        for window, target in zip(part.sequences, part.targets[:, 0, 0], strict=True):
            assert window[:, 0].tolist() == list(range(int(target) - len(window), int(target)))
            assert window[0, 0] >= first
        assert {len(window) for window in part.sequences} == set(range(10, 21))


def test_the_raw_series_comes_along(data_folder):
    put(data_folder, lines())
    data = so.datasets.load("google-stock", data_folder)
    assert data.extras["columns"] == ("Open", "High", "Low", "Close", "Volume")
    assert data.extras["series"].shape == (975, 5)
    assert data.extras["series"][0].tolist() == [1, 3, 0.5, 0, 3]
    assert (data.extras["dates"][0], data.extras["dates"][-1]) == ("2014-01-02", "2016-09-02")
    assert "2014-01-02" in data.origin


def test_five_channels(data_folder):
    put(data_folder, lines())
    data = so.datasets.load("google-stock/ohlcv", data_folder)
    assert data.train.targets.shape == (680, 1, 5)
    assert data.train.channel_names == ("open", "high", "low", "close", "volume")
    close = so.datasets.load("google-stock", data_folder)
    for five, one in zip(data.test.sequences, close.test.sequences, strict=True):
        assert np.array_equal(five[:, 3:4], one)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: rows[:500], "expected 975 trading days from 2014-01-02, got 496 from 2014-01-02"),
        (
            lambda rows: [HEAD, *rows[5:], *lines(5, date(2016, 9, 25))[1:]],
            "expected 975 trading days from 2014-01-02, got 975 from 2014-01-03",
        ),
        (lambda rows: rows[:0], "expected the columns Date, Open, High, Low, Close, Volume, missed Date"),
        (lambda rows: [HEAD.replace("Volume", "Vol"), *rows[1:]], "missed Volume"),
        (lambda rows: [*rows[:9], "2014-01-06,1,2,x,4,5,6", *rows[9:]], "line 10: .*could not convert string to float"),
        (lambda rows: [*rows[:9], "2014-01-06,1,2", *rows[9:]], "line 10: expected an ISO date and numbers"),
        (lambda rows: [*rows[:9], "06/01/2014,1,2,3,4,5,6", *rows[9:]], "line 10: .*Invalid isoformat"),
        (lambda rows: [*rows[:9], "2014-01-07,nan,2,3,4,5,6", *rows[9:]], "line 10: expected finite numbers"),
        (lambda rows: [*rows[:9], "2014-01-03,1,2,3,4,5,6", *rows[9:]], "line 10: expected days in order"),
    ],
)
def test_a_wrong_file_is_one_sentence(change, message, data_folder):
    put(data_folder, change(lines()))
    with pytest.raises(FileFormatError, match=message):
        so.datasets.load("google-stock", data_folder)


def test_a_damaged_file_is_one_sentence(data_folder):
    put(data_folder, lines(), ".csv.gz")
    path = data_folder / "google_stock" / "GOOG.csv.gz"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(FileFormatError, match="expected comma-separated text, could not read it"):
        so.datasets.load("google-stock", data_folder)


def test_the_real_one(real_data):
    data = so.datasets.load("google-stock")
    assert (len(data.train), len(data.test)) == (680, 255)
    assert data.extras["dates"][0] == "2014-01-02"
    assert data.extras["dates"][-1] < "2018-12-31"
    assert data.extras["series"][0].tolist() == [555.647278, 556.788025, 552.060730, 554.481689, 3656400.0]
