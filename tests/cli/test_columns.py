"""Columns by name: channels that are matched, left out, or made of text; classes that training did not know."""

import csv
import io
import json

import numpy as np
import pytest

from tests.cli.small import TINY, call, said, same_answers, write_waves

QUIET = ("--quiet", "--device", "cpu")
LONG = ("--series", "id", "--target", "kind")
STEPS = 6


def write(path, columns, *, count=16, kinds=("slow", "fast"), colors=("red", "blue"), seed=0):
    """Write a long table with the columns that are named, in that order."""
    rng = np.random.default_rng(seed)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, extrasaction="ignore")
        writer.writeheader()
        for index in range(count):
            for step in range(STEPS):
                row = {"id": f"s{index}", "x": rng.normal(), "z": 100 + 10 * np.sin(step + index), "note": "n/a"}
                row |= {"kind": kinds[index % len(kinds)], "color": colors[(index + step) % len(colors)], "w": step}
                writer.writerow(row)
    return path


def answers(text):
    return list(csv.DictReader(io.StringIO(text)))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("columns")
    train = write(folder / "train.csv", ("id", "kind", "x", "z"))
    assert call("fit", train, *LONG, *TINY, "--out", folder / "run").exit_code == 0
    return folder / "run"


def test_channels_in_another_order_are_put_in_order(run, tmp_path):
    straight = write(tmp_path / "straight.csv", ("id", "kind", "x", "z"), count=5, seed=1)
    swapped = write(tmp_path / "swapped.csv", ("z", "id", "x", "kind"), count=5, seed=1)
    expected = call("predict", run, straight, *QUIET)
    assert expected.exit_code == 0
    assert call("predict", run, swapped, *QUIET).stdout == expected.stdout


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (("x", "w"), "expected the channels 'x', 'z' of training, got those without 'z', with 'w'; rename them."),
        (("x",), "expected the channels 'x', 'z' of training, got those without 'z'; add them."),
        (("x", "w", "z"), "expected the channels 'x', 'z' of training, got those with 'w'; pass --ignore w."),
    ],
    ids=["renamed", "missing", "unknown"],
)
def test_other_channels_are_refused(run, tmp_path, columns, message):
    result = call("predict", run, write(tmp_path / "new.csv", ("id", "kind", *columns)), *QUIET)
    assert result.exit_code == 2
    assert said(result) == message


def test_ignored_columns(run, tmp_path):
    more = write(tmp_path / "more.csv", ("id", "kind", "note", "x", "w", "z"))
    refused = call("fit", more, *LONG, *TINY, "--out", tmp_path / "none")
    assert "expected a number in column 'note', got 'n/a'; correct it, or pass --ignore note or" in said(refused)
    absent = call("fit", more, *LONG, *TINY, "--ignore", "nothing", "--out", tmp_path / "none")
    assert "expected a column named 'nothing' as --ignore nothing says" in said(absent)
    left_out = ("--ignore", "note", "--ignore", "w")
    assert call("fit", more, *LONG, *TINY, *left_out, "--out", tmp_path / "run").exit_code == 0
    stored = (tmp_path / "run" / "predictions.csv").read_text()
    assert stored == (run / "predictions.csv").read_text()
    # The ignored columns may be absent, and further ones may be named.
    plain = write(tmp_path / "plain.csv", ("id", "x", "z"), count=3)
    assert call("predict", tmp_path / "run", plain, *QUIET).exit_code == 0
    assert call("predict", run, more, *left_out, *QUIET).exit_code == 0


def test_categorical_columns(tmp_path):
    columns = ("id", "kind", "x", "color")
    train = write(tmp_path / "train.csv", columns)
    named = (*LONG, "--categorical", "color")
    assert call("fit", train, *named, *TINY, "--out", tmp_path / "run", "--json").exit_code == 0
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["data"]["channel_names"] == ["x", "color=blue", "color=red"]
    full = answers(call("predict", tmp_path / "run", train, *QUIET).stdout)
    stored = answers((tmp_path / "run" / "predictions.csv").read_text())
    assert all(any(same_answers(row, one) for one in full) for row in stored)
    # A category that a file lacks is one of zeros.
    red = write(tmp_path / "red.csv", columns, count=4, colors=("red",))
    assert call("predict", tmp_path / "run", red, *QUIET).exit_code == 0
    green = call("predict", tmp_path / "run", write(tmp_path / "green.csv", columns, colors=("red", "green")), *QUIET)
    assert green.exit_code == 2
    expected = "expected the categories of training ('blue', 'red') in column 'color', got 'green'"
    assert expected in said(green)


@pytest.mark.filterwarnings("default")
def test_an_unknown_class_is_predicted_and_named(run, tmp_path):
    path = write(tmp_path / "new.csv", ("id", "kind", "x", "z"), count=9, kinds=("slow", "fast", "still"))
    result = call("predict", run, path, "--device", "cpu", "--out", tmp_path / "out.csv")
    assert result.exit_code == 0
    found = answers((tmp_path / "out.csv").read_text())
    assert [row["actual"] for row in found] == ["slow", "fast", "still"] * 3
    right = sum(row["predicted"] == row["actual"] for row in found) / 6
    assert "3 of 9 sequences have a class that training did not know ('still')" in result.stderr
    assert f"accuracy {right:.4f} on 6 of 9" in result.stderr
    told = json.loads(call("predict", run, path, "--json", *QUIET).stdout)
    assert told["score"] == {"metric": "accuracy", "value": right, "count": 6, "unknown_classes": ["still"]}
    assert told["sequences"][0] == "s0"
    assert np.allclose(np.sum(told["probabilities"], axis=1), 1)
    assert told["classes"] == ["fast", "slow"]


@pytest.mark.filterwarnings("default")
def test_targets_of_another_kind_are_no_reason_to_refuse_and_are_named(tmp_path):
    """A classifier asked about numbers, and a regressor about classes."""
    paths = {kind: write_waves(tmp_path / f"{kind}.npz", targets=kind) for kind in ("classes", "numbers")}
    for kind, path in paths.items():
        assert call("fit", path, *TINY, "--out", tmp_path / f"fit-{kind}").exit_code == 0
    for kind, other, expected in (
        ("classes", "numbers", "a class that training did not know ('0.084"),
        ("numbers", "classes", "a target that is no number ('slow', 'fast'): predicted, but not scored"),
    ):
        answered = call("predict", tmp_path / f"fit-{kind}", paths[other], "--json", *QUIET)
        assert answered.exit_code == 0
        told = json.loads(answered.stdout)
        assert told["count"] == len(told["predictions"]) == 24
        assert told["score"] is None
        assert f"24 of 24 sequences have {expected}" in answered.stderr
        assert ("predicted, but not scored; it knew 'fast', 'slow'" in answered.stderr) == (kind == "classes")


@pytest.mark.parametrize("split", ["time", "group"])
def test_a_split_that_loses_a_class_says_so(tmp_path, split):
    path = tmp_path / "train.npz"
    kinds = np.array(["a", "b"] * 8 + ["c"] * 4)
    np.savez(path, X=np.random.default_rng(0).normal(size=(20, 5, 1)), y=kinds, groups=np.minimum(np.arange(20), 16))
    result = call("fit", path, *TINY, "--split", split, "--seed", "4", "--out", tmp_path / "run")
    assert result.exit_code == 2
    assert said(result).startswith(f"expected every class in the training part of --split {split}, got none of 'c'")
    assert "pass --split stratified" in said(result)
    assert not (tmp_path / "run").exists()


def test_uneven_times_need_a_model_of_continuous_time(tmp_path):
    path = tmp_path / "uneven.csv"
    times = np.cumsum(1 + np.arange(60) % 3)
    path.write_text("when,x\n" + "".join(f"{t},{np.sin(t)}\n" for t in times))
    asked = ("fit", path, "--task", "forecast", "--time", "when", "--window", 5, "--model", "lstm", *TINY)
    refused = call(*asked, "--out", tmp_path / "run")
    assert refused.exit_code == 2
    assert (
        "expected evenly spaced times for lstm, which is a discrete map, got uneven ones; pass --timespans ignore"
        in (said(refused))
    )
    assert call(*asked, "--timespans", "ignore", "--out", tmp_path / "run").exit_code == 0
    assert call("predict", tmp_path / "run", path, *QUIET).exit_code == 0


@pytest.mark.filterwarnings("default")
def test_exchanged_axes_are_warned_of(tmp_path):
    path = write_waves(tmp_path / "waves.npz", channels=1)
    with np.load(path) as arrays:
        turned, kinds = arrays["X"].transpose(0, 2, 1).repeat(2, axis=1).repeat(3, axis=2), arrays["y"]
    np.savez(tmp_path / "turned.npz", X=turned, y=kinds)
    result = call("fit", tmp_path / "turned.npz", *TINY, "--out", tmp_path / "run")
    assert "read as 2 steps of 30 channels; if they are 30 steps of 2 channels, pass --layout bct" in result.stderr
    quiet = call("fit", tmp_path / "turned.npz", "--layout", "bct", *TINY, "--out", tmp_path / "other")
    assert quiet.stderr == ""


def test_missing_values_in_a_prediction(run, tmp_path):
    path = write(tmp_path / "gap.csv", ("id", "x", "z"), count=2)
    lines = path.read_text().splitlines()
    lines[2] = "s0,,100"
    path.write_text("\n".join(lines) + "\n")
    result = call("predict", run, path, *QUIET)
    assert result.exit_code == 2
    assert said(result) == (
        "sequence 0: expected no missing values, got NaN; train with --missing mask or --missing interpolate, "
        "or fill them in."
    )


@pytest.mark.parametrize(
    "options", [("--time", "t"), ("--ignore", "id", "--time", "t"), ("--ignore", "id", "--time", "u")]
)
def test_a_table_of_several_series_asks_for_the_column_that_names_them(tmp_path, options):
    rows = [
        f"{name},{step},{u + step},{step}.5,{kind}"
        for name, kind, u in (("a", "x", 0), ("b", "y", 9))
        for step in (1, 2)
    ]
    path = tmp_path / "many.csv"
    path.write_text("\n".join(["id,t,u,v,kind", *rows]))
    refused = call("fit", path, "--target", "kind", *options, "--out", tmp_path / "none")
    assert "pass --series" in said(refused)
