"""What ``fit`` stored for a test file is what ``predict`` says of it: every task and format, uneven times too."""

import csv
import io
from datetime import date, timedelta

import numpy as np
import pytest

from tests.cli.small import TINY, call, same_answers

QUIET = ("--quiet", "--device", "cpu")
STEPS = 12
STARTS = {"train": (20, 0), "test": (7, 1)}


def rows(part, *, uneven=True):
    """Make rows of long tables: two channels, a class, a number and a target per step, with uneven days."""
    count, seed = STARTS[part]
    rng = np.random.default_rng(seed)
    made = []
    for index in range(count):
        # The parts differ in their median step, so that each file's own unit would give another answer.
        gaps = rng.integers(1, 4 + 3 * seed, STEPS) if uneven else np.ones(STEPS, dtype=int)
        day = date(2024, 1, 1)
        for step in range(STEPS):
            day += timedelta(days=int(gaps[step]))
            wave = np.sin((0.3 + 0.5 * (index % 2)) * step + index)
            made.append(
                {
                    "name": f"{part}-{index}",
                    "day": day.isoformat(),
                    "x": f"{wave:.4f}",
                    "z": f"{wave + rng.normal():.4f}",
                    "kind": ["slow", "fast"][index % 2],
                    "level": f"{index % 2 + 0.25 * (index % 5):.2f}",
                    "sum": f"{wave + step / 3:.4f}",
                }
            )
    return made


def write_long(path, table, columns):
    if path.suffix == ".csv":
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, columns, extrasaction="ignore")
            writer.writeheader()
            writer.writerows(table)
        return path
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    numbers = ("x", "z", "level", "sum")
    typed = {
        name: [
            float(row[name]) if name in numbers else date.fromisoformat(row[name]) if name == "day" else row[name]
            for row in table
        ]
        for name in columns
    }
    parquet.write_table(pyarrow.table(typed), path)
    return path


def read_csv(text):
    return list(csv.DictReader(io.StringIO(text)))


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize(
    ("target", "task"), [("kind", "classification"), ("level", "regression"), ("sum", "sequence")], ids=lambda x: x
)
def test_long_tables(tmp_path, suffix, target, task):
    columns = ("name", "day", "x", "z", target)
    train, test = (write_long(tmp_path / (part + suffix), rows(part), columns) for part in STARTS)
    named = ("--series", "name", "--time", "day", "--target", target, "--task", task)
    assert call("fit", train, "--test", test, *named, *TINY, "--out", tmp_path / "run").exit_code == 0
    stored = (tmp_path / "run" / "predictions.csv").read_text()
    assert call("predict", tmp_path / "run", test, *QUIET).stdout == stored
    found = read_csv(stored)
    assert {row["sequence"] for row in found} == {f"test-{index}" for index in range(7)}
    if task == "sequence":
        assert [row["time"][:10] for row in found[:STEPS]] == [row["day"] for row in rows("test")[:STEPS]]
    if task == "classification":
        assert float(found[0]["probability:slow"]) + float(found[0]["probability:fast"]) == pytest.approx(1)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("uneven", [True, False])
def test_forecasts(tmp_path, suffix, uneven):
    columns = ("name", "day", "z", "x")
    train, test = (write_long(tmp_path / (part + suffix), rows(part, uneven=uneven), columns) for part in STARTS)
    named = ("--series", "name", "--time", "day", "--target", "x", "--task", "forecast", "--window", 5)
    fitted = call("fit", train, "--test", test, *named, *TINY, "--set", "data.validation=0", "--out", tmp_path / "run")
    assert fitted.exit_code == 0
    stored = read_csv((tmp_path / "run" / "predictions.csv").read_text())
    assert list(stored[0]) == ["sequence", "last_time", "predicted", "actual"]
    table = rows("test", uneven=uneven)
    assert [row["actual"] for row in stored[:2]] == [f"{float(row['x']):.9g}" for row in table[5:7]]
    # The forecast after each window is that of the file that ends there.
    for length in (5, 8, STEPS - 1):
        ends = [row for index, row in enumerate(table) if index % STEPS < length]
        short = write_long(tmp_path / f"short{suffix}", ends, columns)
        said = read_csv(call("predict", tmp_path / "run", short, *QUIET).stdout)
        assert len(said) == 7
        for row in said:
            same = [s for s in stored if (s["sequence"], s["last_time"]) == (row["sequence"], row["last_time"])]
            assert len(same) == 1
            assert same_answers({"predicted": row["predicted"]}, {"predicted": same[0]["predicted"]})


@pytest.mark.parametrize(
    ("task", "target"), [("classification", "kind"), ("regression", "level")], ids=("classification", "regression")
)
@pytest.mark.parametrize("suffix", [".csv", ".ts", ".tsv"])
def test_one_sequence_per_line(tmp_path, suffix, task, target):
    comma = "\t" if suffix == ".tsv" else ","
    for part in STARTS:
        table = rows(part)
        lines = []
        for start in range(0, len(table), STEPS):
            values, label = [row["x"] for row in table[start : start + STEPS]], table[start][target]
            lines.append(f"{comma.join(values)}:{label}" if suffix == ".ts" else comma.join([label, *values]))
        header = {
            ".csv": "target," + ",".join(map(str, range(STEPS))) + "\n",
            ".ts": "@problemName waves\n@univariate true\n"
            + ("@classLabel true slow fast\n" if task == "classification" else "@targetLabel true\n")
            + "@data\n",
            ".tsv": "",
        }[suffix]
        (tmp_path / (part + suffix)).write_text(header + "\n".join(lines) + "\n")
    train, test = (tmp_path / (part + suffix) for part in STARTS)
    assert call("fit", train, "--test", test, "--task", task, *TINY, "--out", tmp_path / "run").exit_code == 0
    stored = (tmp_path / "run" / "predictions.csv").read_text()
    assert call("predict", tmp_path / "run", test, *QUIET).stdout == stored


def test_the_sequences_of_an_own_split_keep_their_place_in_the_file(tmp_path):
    path = write_long(tmp_path / "all.csv", rows("train"), ("name", "day", "x", "kind"))
    named = ("--series", "name", "--time", "day", "--target", "kind")
    assert call("fit", path, *named, *TINY, "--out", tmp_path / "run").exit_code == 0
    stored = read_csv((tmp_path / "run" / "predictions.csv").read_text())
    said = {row["sequence"]: row for row in read_csv(call("predict", tmp_path / "run", path, *QUIET).stdout)}
    assert len(said) == 20
    assert 0 < len(stored) < 20
    assert all(same_answers(said[row["sequence"]], row) for row in stored)
