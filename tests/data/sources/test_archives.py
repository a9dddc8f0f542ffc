"""UCR, UEA and TSER: where their files lie, what they become, how they are fetched."""

import gzip
import io
import json
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest

import sostenuto as so
from sostenuto.checks import FileFormatError, InputError
from sostenuto.data.sources import archive, tser

TSV = "1\t0.5\t1.5\t2.5\n2\t-1\t0\t1\n"
CLASSES = """\
# a comment
@problemName Made
@timestamps false
@missing false
@univariate false
@dimensions 2
@equalLength false
@classLabel true walk run
@data
1,2,3:4,5,6:walk
1,2:4,5:run
"""
NUMBERS = """\
@problemName Made
@timestamps false
@univariate true
@targetlabel true
@data
1,2,3:0.5
4,5,6:-1.25
"""


def put(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())


@pytest.mark.parametrize("suffix", [".tsv", ".tsv.gz", ".txt"])
def test_ucr_reads_tables(suffix, data_folder):
    for part in ("TRAIN", "TEST"):
        put(data_folder, f"ucr/Coffee/Coffee_{part}{suffix}", TSV)
    data = so.datasets.load("ucr/Coffee", data_folder)
    assert data.name == "ucr/Coffee"
    assert data.train.sequences[0].tolist() == [[0.5], [1.5], [2.5]]
    assert data.train.targets.tolist() == ["1", "2"]
    assert data.train.task == "classification"


def test_ucr_finds_its_sets_among_the_uea_ones(data_folder):
    text = CLASSES.replace(":4,5,6", "").replace(":4,5", "").replace("@dimensions 2\n", "").replace("false\n@dim", "")
    text = text.replace("@univariate false", "@univariate true")
    for part in ("TRAIN", "TEST"):
        put(data_folder, f"uea/PLAID/PLAID_{part}.ts.gz", text)
    data = so.datasets.load("ucr/PLAID", data_folder)
    assert [len(sequence) for sequence in data.train.sequences] == [3, 2]


def test_a_set_of_ones_own_needs_only_its_files(data_folder):
    for part in ("TRAIN", "TEST"):
        put(data_folder, f"ucr/Mine/Mine_{part}.tsv", TSV)
    assert len(so.datasets.load("ucr/Mine", data_folder).test) == 2


def test_uea_reads_ts(data_folder):
    for part in ("TRAIN", "TEST"):
        put(data_folder, f"uea/EigenWorms/EigenWorms_{part}.ts", CLASSES)
    data = so.datasets.load("uea/EigenWorms", data_folder)
    assert [sequence.shape for sequence in data.train.sequences] == [(3, 2), (2, 2)]
    assert data.train.sequences[0].tolist() == [[1, 4], [2, 5], [3, 6]]
    assert data.train.targets.tolist() == ["walk", "run"]


def test_uea_reads_npz(data_folder):
    (data_folder / "uea_npz").mkdir()
    arrays = {"X_train": np.ones((4, 5, 2)), "y_train": np.array([1, 2, 1, 2]), "X_test": np.zeros((2, 5, 2))}
    np.savez(data_folder / "uea_npz" / "ERing.npz", **arrays, y_test=np.array([2, 1]))
    data = so.datasets.load("uea/ERing", data_folder)
    assert (len(data.train), len(data.test), data.train.num_channels) == (4, 2, 2)
    assert data.test.targets.tolist() == ["2", "1"]
    np.savez(data_folder / "uea_npz" / "Libras.npz", X=np.ones((4, 5, 2)), y=np.array([1, 2, 1, 2]))
    with pytest.raises(FileFormatError, match="expected the arrays X_train and X_test"):
        so.datasets.load("uea/Libras", data_folder)


@pytest.mark.parametrize("folder", ["tser", "uea"])
def test_tser_reads_numbers(folder, data_folder):
    for part in ("TRAIN", "TEST"):
        put(data_folder, f"{folder}/BIDMC32RR/BIDMC32RR_{part}.ts", NUMBERS)
    data = so.datasets.load("tser/BIDMC32RR", data_folder)
    assert data.train.task == "regression"
    assert data.train.targets.tolist() == [0.5, -1.25]


def test_parts_with_other_channels_are_refused(data_folder):
    put(data_folder, "uea/Mine/Mine_TRAIN.ts", CLASSES)
    one = CLASSES.replace(":4,5,6", "").replace(":4,5", "").replace("@dimensions 2", "@dimensions 1")
    put(data_folder, "uea/Mine/Mine_TEST.ts", one)
    with pytest.raises(FileFormatError, match=r"Mine_TEST\.ts: expected 2 channels as in training, got 1"):
        so.datasets.load("uea/Mine", data_folder)


@pytest.mark.parametrize("name", ["ucr/Coffee/Coffee_TEST.tsv", "ucr/Coffee/Coffee_TEST.tsv.gz"])
def test_a_damaged_file_is_one_sentence(name, data_folder):
    suffix = name.partition("TEST")[2]
    put(data_folder, f"ucr/Coffee/Coffee_TRAIN{suffix}", TSV)
    (data_folder / name).write_bytes(b"\x1f\x8b damaged")
    with pytest.raises(FileFormatError, match=r"Coffee_TEST\.tsv"):
        so.datasets.load("ucr/Coffee", data_folder)


def packed(name: str) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as file:
        for part in ("TRAIN", "TEST"):
            file.writestr(f"{name}_{part}.ts", CLASSES)
        file.writestr(f"{name}.txt", "about")
    return stream.getvalue()


@pytest.mark.parametrize("name", ["ucr/Coffee", "uea/EigenWorms"])
def test_a_zip_is_fetched_and_its_two_parts_kept(name, site, data_folder, monkeypatch):
    short = name.partition("/")[2]
    site.put(f"{short}.zip", packed(short))
    monkeypatch.setattr(archive, "URL", site.address)
    data = so.datasets.load(name, data_folder)
    assert data.train.checksum() == so.datasets.load(name, data_folder).train.checksum()
    assert len(site.requests) == 1
    kept = data_folder.parent / "cache" / name
    assert sorted(path.name for path in kept.iterdir()) == [f"{short}_TEST.ts", f"{short}_TRAIN.ts"]


def test_a_page_instead_of_a_zip_is_one_sentence(site, data_folder, monkeypatch):
    site.put("Coffee.zip", b"<html>moved</html>")
    monkeypatch.setattr(archive, "URL", site.address)
    with pytest.raises(FileFormatError, match=r"Coffee\.zip: expected a whole archive"):
        so.datasets.load("ucr/Coffee", data_folder)
    assert list((data_folder.parent / "cache" / "ucr" / "Coffee").iterdir()) == []


def test_tser_is_fetched_from_its_record(site, data_folder, monkeypatch):
    monkeypatch.setattr(tser, "URL", site.address)
    for part in ("TRAIN", "TEST"):
        site.put(f"4001463/files/BIDMC32RR_{part}.ts", NUMBERS.encode())
    assert len(so.datasets.load("tser/BIDMC32RR", data_folder).train) == 2
    with pytest.raises(InputError, match=r"no public address.*CardanoSentiment_TEST\.ts of http://tseregression\.org"):
        so.datasets.load("tser/CardanoSentiment", data_folder)


def test_the_real_ucr_sets(real_data):
    data = so.datasets.load("ucr/GunPoint")
    assert (len(data.train), len(data.test), data.train.sequences[0].shape) == (50, 150, (150, 1))
    assert data.train.targets[:4].tolist() == ["2", "2", "1", "1"]
    assert float(data.train.sequences[0][0, 0]) == -0.6478854
    assert max(len(sequence) for sequence in so.datasets.load("ucr/Rock").test.sequences) == 2844


def test_the_real_ucr_sets_have_the_listed_sizes(real_data):
    manifest = (real_data / "ucr" / "MANIFEST.tsv").read_text().splitlines()
    rows = [dict(zip(manifest[0].split("\t"), line.split("\t"), strict=True)) for line in manifest[1:]]
    small = [row for row in rows if int(row["test"]) * int(row["length"]) < 60_000]
    assert len(small) > 10
    for row in small:
        data = so.datasets.load(f"ucr/{row['name']}")
        assert (len(data.train), len(data.test)) == (int(row["train"]), int(row["test"])), row["name"]
        assert len(set(data.train.targets)) == int(row["classes"]), row["name"]


def test_the_real_uea_sets(real_data):
    data = so.datasets.load("uea/BasicMotions")
    assert (len(data.train), len(data.test), data.train.sequences[0].shape) == (40, 40, (100, 6))
    assert sorted(set(data.test.targets)) == ["Badminton", "Running", "Standing", "Walking"]
    vowels = so.datasets.load("uea/JapaneseVowels")
    lengths = [len(sequence) for sequence in [*vowels.train.sequences, *vowels.test.sequences]]
    assert (min(lengths), max(lengths), len(vowels.train), len(vowels.test)) == (7, 29, 270, 370)
    jump = so.datasets.load("uea/StandWalkJump")
    assert (len(jump.train), len(jump.test), jump.train.sequences[0].shape) == (12, 15, (2500, 4))


def test_the_real_tser_sets(real_data):
    data = so.datasets.load("tser/Covid3Month")
    assert (len(data.train), len(data.test), data.train.sequences[0].shape) == (140, 61, (84, 1))
    assert float(data.train.targets[1]) == pytest.approx(0.07758620689655173)
    assert so.datasets.load("tser/CardanoSentiment").train.num_channels == 2


def test_a_later_download_has_to_be_the_same_file(site, data_folder, monkeypatch):
    monkeypatch.setattr(archive, "URL", site.address)
    content = packed("Coffee")
    site.put("Coffee.zip", b"<html>moved</html>")
    with pytest.raises(FileFormatError):
        so.datasets.load("ucr/Coffee", data_folder)  # a page is not what later files are held to
    site.put("Coffee.zip", content)
    so.datasets.load("ucr/Coffee", data_folder)
    cache = data_folder.parent / "cache" / "ucr"
    assert list(json.loads((cache / "checksums.json").read_text())) == [f"{site.address}Coffee.zip"]
    shutil.rmtree(cache / "Coffee")
    site.put("Coffee.zip", content + b" ")
    with pytest.raises(InputError, match="gave another file than expected"):
        so.datasets.load("ucr/Coffee", data_folder)
    site.put("Coffee.zip", content)
    so.datasets.load("ucr/Coffee", data_folder)
