"""Malformed inputs, one row each: what a person may hand over, and what the message must say.

Rows of stage "read" are refused by the reader; rows of stage "fit" are well-formed files that nothing can be
trained on, so they read without a word and are refused later.
"""

import gzip
import io
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest


@dataclass(frozen=True)
class Malformed:
    """One input: its file, how to make it, a fragment of the message, and the line it must name."""

    id: str
    filename: str
    content: Callable[[], bytes]
    fragment: str
    stage: Literal["read", "fit"] = "read"
    line: int | None = None
    kind: Literal["file", "folder", "absent"] = "file"
    options: dict[str, Any] = field(default_factory=dict)

    def make(self, folder: Path) -> Path:
        """Write the input into ``folder`` and return its path; skip the test where its reader needs an extra."""
        if self.filename.endswith(".parquet"):
            pytest.importorskip("pyarrow")
        path = folder / self.filename
        if self.kind == "folder":
            path.mkdir()
        elif self.kind == "file":
            path.write_bytes(self.content())
        return path


def nothing() -> bytes:
    return b""


def text(*lines: str) -> Callable[[], bytes]:
    return lambda: "\n".join(lines).encode() + b"\n"


def raw(content: bytes) -> Callable[[], bytes]:
    return lambda: content


def ts(*cases: str, classes: str = "true a b", dimensions: int = 1, extra: tuple[str, ...] = ()) -> Callable[[], bytes]:
    """Make a .ts file whose cases begin at line 5 (plus the extra header lines)."""
    header = ("@problemName broken", f"@dimensions {dimensions}", f"@classLabel {classes}", *extra, "@data")
    return text(*header, *cases)


def npz(**arrays: Any) -> Callable[[], bytes]:
    def build() -> bytes:
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)
        return buffer.getvalue()

    return build


def npy() -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.zeros((2, 3)))
    return buffer.getvalue()


def parquet(**columns: Any) -> Callable[[], bytes]:
    def build() -> bytes:
        pyarrow = pytest.importorskip("pyarrow")
        written = pytest.importorskip("pyarrow.parquet")
        buffer = io.BytesIO()
        written.write_table(pyarrow.table(columns), buffer)
        return buffer.getvalue()

    return build


def cut(build: Callable[[], bytes], part: float = 0.6) -> Callable[[], bytes]:
    def shorter() -> bytes:
        content = build()
        return content[: int(len(content) * part)]

    return shorter


def packed(build: Callable[[], bytes]) -> Callable[[], bytes]:
    return lambda: gzip.compress(build(), mtime=0)


def damaged(build: Callable[[], bytes]) -> Callable[[], bytes]:
    """Overwrite the middle of the content."""

    def worse() -> bytes:
        content = bytearray(build())
        middle = len(content) // 2
        content[middle : middle + 20] = b"\xff" * 20
        return bytes(content)

    return worse


def objects() -> np.ndarray:
    ragged = np.empty(2, dtype=object)
    ragged[:] = [np.zeros(3), np.zeros(2)]
    return ragged


NAN, INF = float("nan"), float("inf")
GOOD_TS = ts(*[f"1,2,{n}:a" for n in range(300)])
GOOD_NPZ = npz(X=np.arange(2000.0).reshape(100, 20), y=np.arange(100) % 2)
GOOD_PARQUET = parquet(target=[n % 2 for n in range(1000)], a=[n / 7 for n in range(1000)])
WAVES = np.sin(np.arange(120.0)).reshape(12, 10)


def row(id: str, filename: str, content: Callable[[], bytes], fragment: str, **more: Any) -> Malformed:
    return Malformed(id, filename, content, fragment, **more)


ANY_FORMAT = [
    row("missing file", "absent.ts", nothing, "found nothing there", kind="absent"),
    row("folder", "folder.csv", nothing, "got a folder", kind="folder"),
    row("folder without suffix", "folder", nothing, "got a folder", kind="folder"),
    row("unknown suffix", "data.xlsx", text("a,b"), "expected a file ending in .ts, .tsv, .txt, .csv, .npz, .parquet"),
    row("no suffix", "data", text("a,b"), "expected a file ending in"),
    row("only gz suffix", "data.gz", packed(text("a,b")), "expected a file ending in"),
    row("gzip without suffix", "data.ts", packed(GOOD_TS), "let the name end in .gz"),
    row("gzip suffix on plain text", "data.ts.gz", GOOD_TS, "expected gzip data"),
    row("truncated gzip", "data.tsv.gz", cut(packed(text("1\t2\t3", "2\t3\t4"))), "got one that is cut short"),
    row("empty gzip", "data.csv.gz", packed(nothing), "got an empty file"),
]

TS = [
    row("ts empty", "data.ts", nothing, "got an empty file"),
    row("ts blank", "data.ts", text("", "  "), "got an empty file"),
    row("ts non-UTF-8", "data.ts", raw(b"@problemName \n@x \xe9\n"), "expected UTF-8 text, got the byte 0xe9", line=2),
    row("ts UTF-16", "data.ts", raw("@data".encode("utf-16")), "expected UTF-8 text", line=1),
    row("ts no data line", "data.ts", text("@problemName a", "@classLabel true a b"), "expected a line @data"),
    row("ts values before data", "data.ts", text("1,2:a", "@data"), "expected a header line starting with @", line=1),
    row("ts unknown tag", "data.ts", text("@problemName a", "@colour red", "@data"), "got '@colour'", line=2),
    row("ts tag twice", "data.ts", text("@missing true", "@missing true", "@data"), "a second time", line=2),
    row("ts bad flag", "data.ts", text("@missing perhaps", "@data"), "expected true or false after @missing", line=1),
    row("ts bad count", "data.ts", text("@dimensions two", "@data"), "expected a whole number of at least 1", line=1),
    row("ts time stamps", "data.ts", text("@timeStamps true", "@data", "(0,1):a"), "as a long .csv", line=1),
    row("ts no labels declared", "data.ts", text("@problemName a", "@data", "1:a"), "file without labels", line=2),
    row("ts no class names", "data.ts", text("@classLabel true", "@data"), "expected the class names", line=1),
    row("ts class twice", "data.ts", text("@classLabel true a a", "@data"), "expected each class name once", line=1),
    row("ts both label lines", "data.ts", ts("1:a", extra=("@targetLabel true",)), "got both", line=5),
    row("ts univariate", "data.ts", ts("1:a", dimensions=3, extra=("@univariate true",)), "@dimensions 1", line=5),
    row("ts no cases", "data.ts", ts(), "expected at least one case after @data", line=4),
    row("ts truncated line", "data.ts", ts("1,2:a", "1,2"), "expected 1 channel and a label", line=6),
    row("ts label not declared", "data.ts", ts("1,2:a", "1,2:c"), "a label among the declared classes", line=6),
    row("ts label missing", "data.ts", ts("1,2:a", "1,2:?"), "expected a target, got a missing one", line=6),
    row("ts channel missing", "data.ts", ts("1,2:3,4:a", "1,2:b", dimensions=2), "expected 2 channels", line=6),
    row("ts channels of unequal length", "data.ts", ts("1,2:3:a", dimensions=2), "got 1 in channel 1", line=5),
    row("ts zero length", "data.ts", ts("1,2:a", ":b"), "got a sequence of length zero", line=6),
    row("ts empty cell", "data.ts", ts("1,,2:a"), "expected a number in channel 0, step 1, got ''", line=5),
    row("ts not a number", "data.ts", ts("1,x:a"), "expected a number in channel 0, step 1, got 'x'", line=5),
    row("ts digits grouped", "data.ts", ts("1,1_000:a"), "got '1_000'", line=5),
    row("ts infinite", "data.ts", ts("1,2:a", "1,-inf:b"), "expected a finite number", line=6),
    row("ts overflow", "data.ts", ts("1,1e999:b"), "expected a finite number", line=5),
    row("ts unequal length", "data.ts", ts("1,2:a", "1:b", extra=("@equalLength true",)), "expected 2 values", line=7),
    row("ts tag after data", "data.ts", ts("1,2:a", "@data"), "expected values after @data", line=6),
    row("ts target not a number", "data.ts", text("@targetLabel true", "@data", "1,2:high"), "as the target", line=3),
    row("ts target infinite", "data.ts", text("@targetLabel true", "@data", "1,2:inf"), "a finite number", line=3),
    row("ts NaN", "data.ts", ts("1,NaN:a", "1,2:b", "2,1:a", "2,2:b"), "missing", stage="fit"),
    row("ts one class", "data.ts", ts("1,2:a", "1,3:a", "2,3:a", "2,2:a"), "class", stage="fit"),
    row("ts one sample", "data.ts", ts("1,2,3:a"), "sequence", stage="fit"),
    row("ts one step", "data.ts", ts("1:a", "2:b", "3:a", "4:b"), "step", stage="fit"),
]  # fmt: skip

UCR = [
    row("tsv empty", "data.tsv", nothing, "got an empty file"),
    row("tsv truncated", "data.tsv", text("1\t2\t3", "2\t3"), "expected 3 columns as in line 1, got 2", line=2),
    row("tsv label alone", "data.tsv", text("1", "2"), "a label and at least one value, got 1 column", line=1),
    row("tsv wrong separator", "data.tsv", text("1;2;3", "2;3;4"), "expected a label and at least one value", line=1),
    row("tsv not a number", "data.tsv", text("1\t2\t3", "2\t3\tx"), "expected a number in column 2, got 'x'", line=2),
    row("tsv header line", "data.tsv", text("label\tv1\tv2", "1\t2\t3"), "expected a number in column 1", line=1),
    row("tsv infinite", "data.tsv", text("1\t2\tinf"), "expected a finite number in column 2", line=1),
    row("tsv zero length", "data.tsv", text("1\t2\t3", "2\tNaN\tNaN"), "got a sequence of length zero", line=2),
    row("tsv label missing", "data.tsv", text("1\t2\t3", "NaN\t3\t4"), "expected a target", line=2),
    row("tsv non-UTF-8", "data.tsv", raw(b"1\t2\n\xff\t3\n"), "expected UTF-8 text", line=2),
    row("txt wrong column count", "data.txt", text("1 2 3", "2 3 4 5"), "expected 3 columns", line=2),
    row("tsv NaN inside", "data.tsv", text("1\t2\tNaN\t3", *["2\t3\t4\t5", "1\t2\t3\t4"] * 2), "missing", stage="fit"),
    row("tsv one class", "data.tsv", text(*["1\t2\t3"] * 4), "class", stage="fit"),
    row("tsv one sample", "data.tsv", text("1\t2\t3"), "sequence", stage="fit"),
    row("tsv one step", "data.tsv", text("1\t2", "2\t3", "1\t4", "2\t5"), "step", stage="fit"),
    row("tsv a class for each row", "data.tsv", text(*[f"{n}\t{n}.5\t2" for n in range(500)]), "class", stage="fit"),
]

CSV = [
    row("csv empty", "data.csv", nothing, "got an empty file"),
    row("csv header alone", "data.csv", text("target,0,1"), "expected at least one row after the header", line=1),
    row("csv no target", "data.csv", text("0,1,2", "1,2,3"), "expected a column named 'target'", line=1),
    row("csv wrong target", "data.csv", text("target,0,1", "a,1,2"), "expected a column named 'label'", line=1,
        options={"target": "label"}),
    row("csv dates", "data.csv", text("when,x", "2024-01-31,1"), "pass time='when' if it holds the times", line=2,
        options={"task": "forecast"}),
    row("csv semicolons", "data.csv", text("target;0;1", "a;1;2"), "pass separator='semicolon', and decimal='comma'",
        line=1),
    row("csv tabs", "data.csv", text("target\t0", "a\t1"), "'target\\t0'; pass separator='tab'", line=1),
    row("csv commas", "data.csv", text("target,0", "a,1"), "by a semicolon, got the header 'target,0'",
        line=1, options={"separator": "semicolon"}),
    row("csv decimal point", "data.csv", text("target;0;1", "a;1,5;1.234"), "a number with a decimal comma", line=2,
        options={"separator": "semicolon", "decimal": "comma"}),
    row("csv decimal point of a target", "data.csv", text("target;0;1", "1.5;1,5;1"), "in column 'target'", line=2,
        options={"separator": "semicolon", "decimal": "comma"}),
    row("csv thousands", "data.csv", text("target;0;1", "a;1,5;1.234,5"), "got '1.234,5'",
        line=2, options={"separator": "semicolon", "decimal": "comma"}),
    row("csv column without name", "data.csv", text(",target,0", "0,a,1"), "expected a name for every column", line=1),
    row("csv name twice", "data.csv", text("target,0,0", "a,1,2"), "got '0' twice", line=1),
    row("csv no values", "data.csv", text("target,group", "a,g"), "expected a column of values", line=1),
    row("csv truncated", "data.csv", text("target,0,1", "a,1,2", "b,1"), "expected 3 cells as in the header", line=3),
    row("csv cell too many", "data.csv", text("target,0,1", "a,1,2,3"), "got 4", line=2),
    row("csv open quote", "data.csv", text("target,0,1", '"a,1,2'), "expected comma-separated cells", line=2),
    row("csv not a number", "data.csv", text("target,0,1", "a,1,2", "b,1,high"), "in column '1', got 'high'", line=3),
    row("csv decimal comma", "data.csv", text("target,0,1", 'a,"1,5",2'), "got '1,5'", line=2),
    row("csv infinite", "data.csv", text("target,0,1", "a,1,Infinity"), "expected a finite number", line=2),
    row("csv zero length", "data.csv", text("target,0,1", "a,1,2", "b,,"), "got a sequence of length zero", line=3),
    row("csv target missing", "data.csv", text("target,0,1", "a,1,2", ",1,2"), "expected a target", line=3),
    row("csv group missing", "data.csv", text("target,group,0", "a,,1"), "expected a group", line=2),
    row("csv infinite target", "data.csv", text("target,0", "1.5,1", "inf,2"), "expected a finite number", line=3),
    row("csv target not available", "data.csv", text("target,0", "1.5,1", "NA,2"), "a target, got a", line=3,
        options={"task": "regression"}),
    row("csv non-UTF-8", "data.csv", raw(b"target,0\ncaf\xe9,1\n"), "expected UTF-8 text", line=2),
    row("csv NaN inside", "data.csv", text("target,0,1,2", "a,1,,2", *["b,1,2,3", "a,3,2,1"] * 2), "missing",
        stage="fit"),
    row("csv one class", "data.csv", text("target,0,1", *["a,1,2"] * 4), "class", stage="fit"),
    row("csv one sample", "data.csv", text("target,0,1", "a,1,2"), "sequence", stage="fit"),
    row("csv one step", "data.csv", text("target,0", "a,1", "b,2", "a,3", "b,4"), "step", stage="fit"),
    row("csv a class for each row", "data.csv", text("target,0,1", *[f"n{n},{n},1" for n in range(500)]), "class",
        stage="fit"),
    row("long time without series", "data.csv", text("time,target,x", "0,a,1"), "expected a column 'series'", line=1),
    row("long series missing", "data.csv", text("series,target,x", "s,a,1", ",a,1"), "the name of a series", line=3),
    row("long time twice", "data.csv", text("series,time,target,x", "s,1,a,1", "s,2,a,1", "s,1,a,2"),
        "expected each time once within a series", line=4),
    row("long time not a time", "data.csv", text("series,time,target,x", "s,0,a,1", "s,noon,a,1"),
        "expected a number as the time, got 'noon'", line=3),
    row("long time missing", "data.csv", text("series,time,target,x", "s,,a,1"), "as the time, got ''", line=2),
    row("long times mixed", "data.csv", text("series,time,target,x", "s,2024-01-01,a,1", "s,5,a,1"),
        "expected an ISO date as the time, got '5'; write dates as 2024-01-31", line=3),
    row("long times overflow", "data.csv", text("series,time,target,x", "s,-1e308,a,1", "s,1e308,a,1"),
        "expected times within the range"),
    row("long target varies", "data.csv", text("series,target,x", "s,a,1", "s,b,2"), "say task='sequence'", line=3),
    row("long group varies", "data.csv", text("series,group,target,x", "s,g,a,1", "s,h,a,2"),
        "expected one value of 'group' within a series, got 'g' and 'h'", line=3),
    row("long group missing", "data.csv", text("series,group,target,x", "s,,a,1"), "a value in column 'group'", line=2),
    row("long target missing", "data.csv", text("series,target,x", "s,a,1", "r,,2"), "expected a target", line=3),
    row("long not a number", "data.csv", text("series,target,x", "s,a,one"), "in column 'x', got 'one'", line=2),
    row("long no such series", "data.csv", text("id,target,x", "s,a,1"), "expected a column named 'name'", line=1,
        options={"series": "name"}),
    row("long NaN", "data.csv",
        text("series,target,x", "s,a,1", "s,a,", *(f"{n},{'ab'[n % 2]},{n}" for n in range(4) for _ in "12")),
        "missing", stage="fit"),
]  # fmt: skip

NPZ = [
    row("npz empty", "data.npz", nothing, "got an empty file"),
    row("npz text", "data.npz", text("X,y"), "expected an .npz archive, got other data"),
    row("npz is npy", "data.npz", npy, "got a single .npy array"),
    row("npz truncated", "data.npz", cut(GOOD_NPZ), "could not unpack it"),
    row("npz damaged", "data.npz", damaged(GOOD_NPZ), "could not unpack it"),
    row("npz objects", "data.npz", npz(X=objects(), y=[0, 1]), "got Python objects, which are never unpickled"),
    row("npz without X", "data.npz", npz(x=WAVES, y=np.zeros(12)), "expected an array named X, got x, y"),
    row("npz without arrays", "data.npz", npz(), "expected an array named X, got no array"),
    row("npz in parts", "data.npz", npz(X_train=WAVES, y_train=np.zeros(12)), "read it with read_parts"),
    row("npz without y", "data.npz", npz(X=WAVES), "expected an array y of targets"),
    row("npz one axis", "data.npz", npz(X=np.zeros(5), y=np.zeros(5)), "got the shape (5,)"),
    row("npz four axes", "data.npz", npz(X=np.zeros((2, 3, 4, 5)), y=[0, 1]), "got the shape (2, 3, 4, 5)"),
    row("npz text values", "data.npz", npz(X=np.array([["a", "b"]]), y=[0]), "expected X to hold real numbers"),
    row("npz complex", "data.npz", npz(X=np.zeros((2, 3), complex), y=[0, 1]), "got complex128 data"),
    row("npz infinite", "data.npz", npz(X=np.array([[0.0, 1.0], [INF, 1.0]]), y=[0, 1]), "in X row 1"),
    row("npz no sequences", "data.npz", npz(X=np.zeros((0, 3)), y=[]), "expected at least one sequence in X"),
    row("npz no steps", "data.npz", npz(X=np.zeros((2, 0, 3)), y=[0, 1]), "expected at least one step in X"),
    row("npz no channels", "data.npz", npz(X=np.zeros((2, 3, 0)), y=[0, 1]), "expected at least one channel in X"),
    row("npz rows of y", "data.npz", npz(X=WAVES, y=[0, 1]), "expected y to have 12 rows as X, got the shape (2,)"),
    row("npz two axes of y", "data.npz", npz(X=WAVES, y=np.zeros((12, 2))), "say task='sequence'"),
    row("npz y missing", "data.npz", npz(X=WAVES[:2], y=[1.0, NAN]), "expected a target, got a missing one"),
    row("npz y not UTF-8", "data.npz", npz(X=WAVES[:1], y=np.array([b"caf\xe9"])), "expected UTF-8 text in y"),
    row("npz y of dates", "data.npz", npz(X=WAVES[:1], y=np.array(["2024-01-01"], "M8[D]")), "got datetime64[D] (1,)"),
    row("npz lengths zero", "data.npz", npz(X=WAVES, y=[0, 1] * 6, lengths=[0] * 12), "from 1 to 10, got 0"),
    row("npz lengths too long", "data.npz", npz(X=WAVES, y=[0, 1] * 6, lengths=[11] * 12), "from 1 to 10, got 11"),
    row("npz lengths not whole", "data.npz", npz(X=WAVES, y=[0, 1] * 6, lengths=[1.5] * 12), "one whole number"),
    row("npz wrong layout", "data.npz", npz(X=np.zeros((2, 5, 3)), y=[0, 1], lengths=[5, 4]), "from 1 to 3, got 5",
        options={"layout": "bct"}),
    row("npz timespans shape", "data.npz", npz(X=WAVES, y=[0, 1] * 6, timespans=np.ones((12, 9))), "shape (12, 10)"),
    row("npz timespans zero", "data.npz", npz(X=WAVES, y=[0, 1] * 6, timespans=np.zeros((12, 10))), "above 0"),
    row("npz y no text", "data.npz", npz(X=WAVES[:1], y=np.array([0x110000], np.uint32).view("U1")), "code 0x110000"),
    row("npz NaN", "data.npz", npz(X=np.where(WAVES > 0.99, NAN, WAVES), y=[0, 1] * 6), "missing", stage="fit"),
    row("npz one class", "data.npz", npz(X=WAVES, y=[1] * 12), "class", stage="fit"),
    row("npz one sample", "data.npz", npz(X=WAVES[:1], y=[1]), "sequence", stage="fit"),
    row("npz one step", "data.npz", npz(X=WAVES[:, :1], y=[0, 1] * 6), "step", stage="fit"),
    row("npz a class for each row", "data.npz", npz(X=np.zeros((500, 3)), y=np.arange(500)), "class", stage="fit"),
]  # fmt: skip

PARQUET = [
    row("parquet empty", "data.parquet", nothing, "got an empty file"),
    row("parquet text", "data.parquet", text("target,0", "a,1"), "expected a .parquet file"),
    row("parquet truncated", "data.parquet", cut(GOOD_PARQUET), "could not read it"),
    row("parquet damaged", "data.parquet", lambda: GOOD_PARQUET()[:-60] + bytes(52) + GOOD_PARQUET()[-8:],
        "could not read it"),
    row("parquet no rows", "data.parquet", parquet(target=[], x=[]), "expected at least one row"),
    row("parquet no target", "data.parquet", parquet(x=[1.0]), "expected a column named 'target'"),
    row("parquet text values", "data.parquet", parquet(target=["a"], x=["b"]), "expected numbers in column 'x'"),
    row("parquet list values", "data.parquet", parquet(target=["a"], x=[[1.0, 2.0]]), "expected numbers in column 'x'"),
    row("parquet list target", "data.parquet", parquet(target=[["a"]], x=[1.0]), "expected numbers or text in column"),
    row("parquet row index", "data.parquet", parquet(target=["a"], x=[1], __index_level_0__=[3]), "got the row index"),
    row("parquet infinite", "data.parquet", parquet(target=["a", "b"], x=[1.0, INF]), "in row 1"),
    row("parquet zero length", "data.parquet", parquet(target=["a", "b"], x=[1.0, None]), "length zero"),
    row("parquet time missing", "data.parquet", parquet(series=["s"] * 2, time=[1, None], target=["a"] * 2, x=[1, 2]),
        "expected a time in column 'time'"),
    row("parquet time twice", "data.parquet", parquet(series=["s"] * 2, time=[1, 1], target=["a"] * 2, x=[1, 2]),
        "expected each time once"),
    row("parquet one class", "data.parquet", parquet(target=["a"] * 4, x=[1, 2, 3, 4], z=[4, 3, 2, 1]), "class",
        stage="fit"),
]  # fmt: skip

MALFORMED = [*ANY_FORMAT, *TS, *UCR, *CSV, *NPZ, *PARQUET]
