"""Long and wide tables, from .csv and from .parquet alike."""

import csv
import io
from datetime import date, datetime, timedelta

import numpy as np
import pytest

from sostenuto.checks import FileFormatError, MissingExtraError
from sostenuto.data.files import read
from sostenuto.data.files.comma import read_table
from sostenuto.data.files.options import Options


def write_parquet(columns, path):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table(columns), path)


@pytest.fixture(params=["csv", "parquet"])
def write(request, tmp_path):
    """Write columns in either format, and return the path."""

    def to_file(**columns):
        path = tmp_path / f"data.{request.param}"
        if request.param == "parquet":
            write_parquet(columns, path)
        else:
            buffer = io.StringIO()
            writer = csv.writer(buffer)
            writer.writerow(columns)
            writer.writerows(zip(*columns.values(), strict=True))
            path.write_text(buffer.getvalue())
        return path

    return to_file


def test_wide(write):
    data = read(write(a=[1.5, 2], target=["up", "down"], b=[2, None], group=[7, 8], c=[3.0, None]))
    assert data.targets.tolist() == ["up", "down"]
    assert data.groups.tolist() == ["7", "8"]
    assert data.target_name == "target"
    assert [sequence.tolist() for sequence in data.sequences] == [[[1.5], [2.0], [3.0]], [[2.0]]]


def test_semicolons_and_decimal_commas(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("\ufeffreihe;zeit;größe;ziel\na;0,5;1,25;3,5\na;1,5;-2;3,5\nb, c;0;1e-3;2\n", encoding="utf-8")
    data = read(path, separator="semicolon", decimal="comma", series="reihe", time="zeit", target="ziel")
    assert [sequence.ravel().tolist() for sequence in data.sequences] == [[1.25, -2.0], [1e-3]]
    assert data.targets.tolist() == [3.5, 2.0]
    assert list(data.ids) == ["a", "b, c"]
    assert [list(each) for each in data.times] == [["0.5", "1.5"], ["0"]]


def test_a_decimal_comma_is_for_text_alone(write):
    path = write(a=[1.5, 2], target=["up", "down"])
    if path.suffix == ".parquet":
        with pytest.raises(FileFormatError, match=r"separator and decimal for \.csv files alone, got decimal='comma'"):
            read(path, decimal="comma")


@pytest.mark.parametrize(
    ("targets", "task", "read_as"),
    [
        (["up", "1"], "classification", ["up", "1"]),
        ([1, 2], "classification", ["1", "2"]),
        ([1.0, 2.0], "classification", ["1", "2"]),
        ([1.0, 2.5], "regression", [1.0, 2.5]),
        ([True, False], "classification", ["True", "False"]),
    ],
)
def test_the_rule_of_tasks(write, targets, task, read_as):
    data = read(write(target=targets, a=[1, 2]))
    assert data.task == task
    assert data.targets.tolist() == read_as


def test_task_given(write):
    path = write(target=[1, 2], a=[1, 2])
    assert read(path, task="regression").targets.tolist() == [1.0, 2.0]
    assert read(path, task="forecast").targets is None


def test_prediction(write):
    assert read(write(a=[1, 2]), labeled=False).targets is None
    assert read(write(a=[1, 2]), labeled=False, target="grade").targets is None
    assert read(write(target=["u", "d"], a=[1, 2]), labeled=False).targets.tolist() == ["u", "d"]
    assert read(write(target=[None, None], a=[1, 2]), labeled=False).targets is None
    with pytest.raises(FileFormatError, match="give every sequence a target or none"):
        read(write(target=["u", None], a=[1, 2]), labeled=False)


def test_long(write):
    data = read(
        write(
            series=["s", "r", "s", "r", "s"],
            time=[2, 0, 0, 1, 1],
            x=[3.0, 10.0, 1.0, 20.0, None],
            target=["up", "down", "up", "down", "up"],
            group=["g", "h", "g", "h", "g"],
            z=[6, 30, 4, 40, 5],
        )
    )
    assert data.channel_names == ("x", "z")
    assert data.targets.tolist() == ["up", "down"]
    assert data.groups.tolist() == ["g", "h"]
    assert data.timespans is None
    np.testing.assert_array_equal(data.sequences[0], [[1, 4], [np.nan, 5], [3, 6]])
    np.testing.assert_array_equal(data.sequences[1], [[10, 30], [20, 40]])


def test_long_keeps_the_file_order_without_times(write):
    data = read(write(series=["s", "r", "s"], target=[1, 2, 1], x=[3, 2, 1]))
    assert [sequence.ravel().tolist() for sequence in data.sequences] == [[3, 1], [2]]


def test_other_column_names(write):
    path = write(id=["s", "s", "r"], when=[0, 1, 0], grade=[0.5, 0.5, 1.5], site=["p", "p", "q"], x=[1, 2, 3])
    data = read(path, series="id", time="when", target="grade", group="site")
    assert data.targets.tolist() == [0.5, 1.5]
    assert data.groups.tolist() == ["p", "q"]
    assert data.target_name == "grade"
    assert data.channel_names == ("x",)
    with pytest.raises(FileFormatError, match=r"expected a column named 'day'.*'id', 'when', 'grade', 'site', 'x'"):
        read(path, series="id", time="day", target="grade")
    with pytest.raises(FileFormatError, match="expected each column to play one part"):
        read(path, series="id", target="id")


def test_a_given_name_frees_the_usual_one(write):
    data = read(write(group=["u", "v"], a=[1, 2]), target="group")
    assert data.targets.tolist() == ["u", "v"]
    assert data.groups is None


def test_one_series_by_its_time_column(write):
    data = read(write(day=[3, 1, 2], price=[30, 10, 20]), time="day", task="forecast")
    assert len(data) == 1
    assert data.sequences[0].ravel().tolist() == [10, 20, 30]


def test_uneven_times_become_timespans(write):
    data = read(write(series=[1] * 4 + [2] * 2, time=[0, 2, 4, 7, 5, 6], target=[0] * 6, x=[0] * 6))
    assert data.timespans[0].tolist() == [1, 1, 1, 1.5]
    assert data.timespans[1].tolist() == [1, 0.5]


@pytest.mark.parametrize("offset", [0.0, 1.7e9], ids=["small", "epoch"])
def test_even_times_despite_rounding(write, offset):
    times = [offset + 0.1 * step for step in range(50)]
    assert read(write(series=[1] * 50, time=times, target=[0] * 50, x=[0] * 50)).timespans is None


@pytest.mark.parametrize(
    "times",
    [
        [date(2024, 2, 27) + timedelta(days=days) for days in (0, 1, 2, 5)],
        [datetime(2024, 2, 27, 23) + timedelta(hours=hours) for hours in (0, 1, 2, 5)],
        ["2024-02-28T00:00:00Z", "2024-02-28T01:00:00+00:00", "2024-02-28T04:00:00+02:00", "2024-02-28T05:00"],
        ["2024-02-27", "2024-02-28", "2024-02-29 00:00", "20240303"],
    ],
    ids=["dates", "datetimes", "zones", "mixed forms"],
)
def test_dates(write, times):
    data = read(write(series=["s"] * 4, time=times, target=[0] * 4, x=[1, 2, 3, 4]))
    assert data.sequences[0].ravel().tolist() == [1, 2, 3, 4]
    np.testing.assert_allclose(data.timespans[0], [1, 1, 1, 3])


def test_targets_at_every_step(write):
    path = write(series=["s", "s", "r"], time=[1, 0, 0], target=[1.5, 2, 3], x=[1, 2, 3])
    with pytest.raises(FileFormatError, match=r"expected one value of 'target' within a series.*task='sequence'"):
        read(path)
    data = read(path, task="sequence")
    assert [target.tolist() for target in data.targets] == [[2.0, 1.5], [3.0]]
    named = read(write(series=["s", "s"], target=["noun", "verb"], x=[1, 2]), task="sequence")
    assert named.targets[0].tolist() == ["noun", "verb"]
    absent = read(write(series=["s", "s"], target=[None, None], x=[1, 2]), task="sequence", labeled=False)
    assert absent.targets is None
    with pytest.raises(FileFormatError, match="expected a target for every step, got a missing one"):
        read(write(series=["s", "s"], target=[1, None], x=[1, 2]), task="sequence")


def test_blank_lines_quotes_and_spaces(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text('target , 0,"1"\n\n"up, up", 1,"2"\n   \ndown,3,NA\n')
    data = read(path)
    assert data.targets.tolist() == ["up, up", "down"]
    assert [sequence.ravel().tolist() for sequence in data.sequences] == [[1, 2], [3]]


def test_the_first_wrong_line_is_named(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("target,0,1\na,1,2\nb,x,2\nc,1\n")
    with pytest.raises(FileFormatError, match="line 3"):
        read(path)


def test_many_rows_keep_their_lines(tmp_path):
    path = tmp_path / "data.csv"
    rows = ["s,a,1,2"] * 50_000
    rows[40_000] = "s,a,1,?!"
    path.write_text("series,target,x,y\n" + "\n".join(rows) + "\n")
    with pytest.raises(FileFormatError, match=r"line 40002: expected a number in column 'y', got '\?!'"):
        read(path)


def test_parquet_kinds_of_columns(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    path = tmp_path / "data.parquet"
    columns = {
        "target": pyarrow.array(["u", "d"]).dictionary_encode(),
        "series": pyarrow.array([date(2024, 1, 1), date(2024, 1, 2)]),
        "half": pyarrow.array([1.5, 2.5], pyarrow.float32()),
        "flag": pyarrow.array([True, None]),
        "large": pyarrow.array([2**62, 1], pyarrow.int64()),
        "none": pyarrow.nulls(2),
        "money": pyarrow.array([1, 2]).cast(pyarrow.decimal128(21, 2)),
    }
    write_parquet(columns, path)
    data = read(path)
    assert data.targets.tolist() == ["u", "d"]
    np.testing.assert_array_equal(data.sequences[0], [[1.5, 1, 2.0**62, np.nan, 1]])
    np.testing.assert_array_equal(data.sequences[1], [[2.5, np.nan, 1, np.nan, 2]])


def test_parquet_nanoseconds(tmp_path):
    path = tmp_path / "data.parquet"
    times = np.datetime64("2024-01-01", "ns") + np.array([0, 1, 3], "timedelta64[ns]")
    write_parquet({"series": ["s"] * 3, "time": times, "x": [1, 2, 3], "target": [0] * 3}, path)
    np.testing.assert_allclose(read(path).timespans[0], np.array([1, 1, 2]) / [1, 1.5, 1.5])


def test_parquet_is_an_extra(tmp_path, monkeypatch):
    path = tmp_path / "data.parquet"
    path.write_bytes(b"PAR1")
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'sostenuto\[parquet\]'"):
        read(path)


@pytest.mark.data
def test_a_real_price_series(real_data):
    data = read(real_data / "google_stock" / "GOOG.csv.gz", time="Date", task="forecast")
    assert data.channel_names == ("Open", "High", "Low", "Close", "Adj Close", "Volume")
    assert data.sequences[0].shape == (4109, 6)
    assert data.timespans[0][:3].tolist() == [1, 1, 3]


def test_the_target_of_a_forecast_is_a_channel(write):
    path = write(day=[1, 2, 3], price=[1, 2, 3], cov=[4, 5, 6])
    data = read(path, time="day", target="price", task="forecast")
    assert data.channel_names == ("price", "cov")
    assert data.target_name == "price"
    assert data.targets is None
    with pytest.raises(FileFormatError, match="expected a long table, where target=NAME is the column to forecast"):
        read(path, target="price", task="forecast")
    alone = read(write(day=[1, 2], price=[1, 2]), time="day", target="price", task="forecast")
    assert alone.channel_names == ("price",)
    with pytest.raises(FileFormatError, match="expected a column named 'price' as target='price' says"):
        read(write(day=[1, 2], cov=[1, 2]), time="day", target="price", task="forecast", labeled=False)


def test_ids_times_and_their_unit(write):
    data = read(write(series=["b", "a", "b"], time=[7, 3, 5], target=[1, 2, 1], x=[1, 2, 3]))
    assert data.ids.tolist() == ["b", "a"]
    assert [times.tolist() for times in data.times] == [["5", "7"], ["3"]]
    assert data.time_unit == 2
    days = read(write(series=["s"] * 3, time=[date(2024, 1, day) for day in (1, 2, 4)], target=[0] * 3, x=[1, 2, 3]))
    assert days.time_unit == 1.5 * 86400


def test_ignored_and_categorical_columns(write):
    texts = {"color": ["red", None, "blue"], "note": ["a", "b", "c"]}
    path = write(series=["s", "s", "r"], target=[0, 0, 1], x=[1, 2, 3], **texts)
    data = read(path, ignore=["note"], categorical=["color"])
    assert data.channel_names == ("x", "color=blue", "color=red")
    assert data.categorical == ("color",)
    np.testing.assert_array_equal(data.sequences[0], [[1, 0, 1], [2, np.nan, np.nan]])
    np.testing.assert_array_equal(data.sequences[1], [[3, 1, 0]])
    alone = read(path, ignore=["note", "x"], categorical=["color"])
    assert alone.channel_names == ("color=blue", "color=red")
    with pytest.raises(FileFormatError, match="expected each column to play one part"):
        read(path, ignore=["color"], categorical=["color"])
    with pytest.raises(FileFormatError, match=r"in column 'note', got .*pass ignore='note' or categorical='note'"):
        read(path, categorical=["color"])
    with pytest.raises(FileFormatError, match="expected a long table for categorical columns, got a wide one"):
        read(write(target=[1, 2], x=[1, 2], color=["a", "b"]), categorical=["color"])


@pytest.mark.parametrize("cell", ["NA", "-nan", "+NaN"])
def test_a_target_written_as_not_there_is_none(tmp_path, cell):
    path = tmp_path / "a.csv"
    path.write_text(f"a,b,target\n1,2,0.5\n3,4,{cell}\n")
    with pytest.raises(FileFormatError, match="line 3: expected a target, got a missing one"):
        read(path)


def test_days_of_eight_digits_are_dates(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("time,x\n20240131,1\n20240201,2\n20240202,3\n20240210,4\n")
    data = read(path, task="forecast", time="time")
    np.testing.assert_allclose(data.timespans[0].reshape(-1), [1, 1, 1, 8])
    path.write_text("time,x\n20240131,1\n20240132,2\n20240133,3\n20240141,4\n")
    data = read(path, task="forecast", time="time")  # no days: numbers
    np.testing.assert_allclose(data.timespans[0].reshape(-1), [1, 1, 1, 8])
    assert data.timespans is not None


def test_days_of_eight_digits_are_dates_in_parquet_too(tmp_path):
    path = tmp_path / "a.parquet"
    write_parquet({"time": np.array([20240131, 20240201, 20240202, 20240210]), "x": [1.0, 2.0, 3.0, 4.0]}, path)
    data = read(path, task="forecast", time="time")
    np.testing.assert_allclose(data.timespans[0].reshape(-1), [1, 1, 1, 8])
    assert data.times[0].tolist() == ["20240131", "20240201", "20240202", "20240210"]
    write_parquet({"time": np.array([20240131, 20240132, 20240133, 20240141]), "x": [1.0, 2.0, 3.0, 4.0]}, path)
    np.testing.assert_allclose(read(path, task="forecast", time="time").timespans[0].reshape(-1), [1, 1, 1, 8])
    write_parquet({"time": np.array([20240131, 20240132, 20240133, 20240301]), "x": [1.0, 2.0, 3.0, 4.0]}, path)
    assert read(path, task="forecast", time="time").time_unit == 1  # no days: numbers


def test_centuries_of_nanoseconds_do_not_overflow(tmp_path):
    times = np.array(["1700-01-01", "1900-01-01", "2250-01-01"], dtype="datetime64[ns]")
    write_parquet({"time": times, "x": [1.0, 2.0, 3.0]}, tmp_path / "a.parquet")
    spans = read(tmp_path / "a.parquet", task="forecast", time="time").timespans[0].reshape(-1)
    assert spans[2] / 350 == pytest.approx(2 / (200 + 350), rel=1e-4)


def test_labels_with_nul_are_refused(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("a,target\n1,up\n2,up\0\n3,down\n")
    with pytest.raises(FileFormatError, match=r"expected a label of letters, got 'up\\x00'"):
        read(path)


def test_empty_rows_of_one_column_keep_their_place(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('x\n1.0\n\n2.0\n""\n3.0\n\n\n')
    assert read_table(path, Options(labeled=False)).values[:, 0].tolist()[::2] == [1.0, 2.0, 3.0]
    path.write_text("x,y\n1.0,2\n\n2.0,3\n")
    assert len(read_table(path, Options(labeled=False)).values) == 2


def test_a_file_of_two_quotes_is_refused(tmp_path):
    path = tmp_path / "a.csv"
    for text in ('""', '""\n""\n'):
        path.write_text(text)
        with pytest.raises(FileFormatError, match="expected a name for every column"):
            read(path)
