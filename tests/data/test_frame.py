"""Long data frames of any library."""

from datetime import date, datetime

import numpy as np
import pytest

from sostenuto import datasets
from sostenuto.checks import InputError
from sostenuto.estimators import RecurrentClassifier


class Column:
    """A column as pandas has it."""

    def __init__(self, values):
        self.values = values

    def tolist(self):
        return list(self.values)


class Frame:
    """A frame as pandas has it: an index of names, and columns by name."""

    def __init__(self, columns):
        self.held, self.columns = columns, np.array(list(columns), dtype=object)

    def __getitem__(self, name):
        return Column(self.held[name])


def arrow(columns):
    """Make a table of pyarrow's."""
    return pytest.importorskip("pyarrow").table(columns)


COLUMNS = {
    "id": [2, 1, 2, 1, 2],
    "when": [datetime(2024, 1, day) for day in (2, 1, 1, 3, 5)],
    "x": [1.0, 2.0, None, 4.0, 5.0],
    "flag": [True, False, True, True, False],
    "color": ["red", "red", "blue", "red", "red"],
    "note": ["a", "b", "c", "d", "e"],
    "kind": ["up", "down", "up", "down", "up"],
}


@pytest.mark.parametrize("make", [dict, Frame, arrow], ids=["dict", "pandas", "pyarrow"])
def test_a_long_frame(make):
    frame = make(COLUMNS)
    data = datasets.from_frame(frame, series="id", time="when", target="kind", ignore=["note"], categorical=["color"])
    assert data.ids.tolist() == ["2", "1"]
    assert data.targets.tolist() == ["up", "down"]
    assert data.channel_names == ("x", "flag", "color=blue", "color=red")
    np.testing.assert_array_equal(data.sequences[0], [[np.nan, 1, 1, 0], [1, 1, 0, 1], [5, 0, 0, 1]])
    np.testing.assert_array_equal(data.timespans[0], [1, 0.5, 1.5])
    assert data.time_unit == 2 * 86400


def test_an_estimator_learns_from_a_frame():
    rng = np.random.default_rng(0)
    rows = [(f"s{i}", t, rng.normal() + 4 * (i % 2), "high" if i % 2 else "low") for i in range(12) for t in range(5)]
    frame = Frame(dict(zip(("id", "t", "x", "kind"), zip(*rows, strict=True), strict=True)))
    data = datasets.from_frame(frame, series="id", time="t", target="kind")
    classifier = RecurrentClassifier("gru", hidden_size=4, num_layers=1, epochs=40, random_state=0, device="cpu")
    classifier.fit(data.sequences, data.targets, timespans=data.timespans)
    assert classifier.score(data.sequences, data.targets) == 1


def test_what_is_wrong_is_named():
    with pytest.raises(InputError, match="expected a data frame with columns named by text, got ndarray"):
        datasets.from_frame(np.zeros((2, 2)), series="id")
    with pytest.raises(InputError, match="expected the name of a column of series or of times, got neither"):
        datasets.from_frame({"x": [1], "target": [1]})
    with pytest.raises(
        InputError, match=r"the data frame: in row 0.*expected a number in column 'note', got 'a'.*ignore="
    ):
        datasets.from_frame({**COLUMNS, "color": [1] * 5}, series="id", target="kind", time="when")
    with pytest.raises(InputError, match=r"expected columns of one length above 0, got lengths \[1, 2\]"):
        datasets.from_frame({"series": ["a"], "target": [1, 1], "x": [1, 2]})
    assert datasets.from_frame({"day": [date(2024, 1, 1)], "x": [1]}, time="day", task="forecast").channel_names == (
        "x",
    )
