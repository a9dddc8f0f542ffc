import json
import warnings
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from sostenuto.training.checkpoint import (
    Checkpoint,
    CheckpointError,
    newest_checkpoint,
    read_checkpoint,
    write_checkpoint,
)

TENSORS = {
    "model/weight": torch.arange(12.0).reshape(3, 4).t(),
    "optimizer/0/step": torch.tensor(7.0),
    "random/0/0": torch.arange(200, dtype=torch.uint8),
    "counts": torch.tensor([2**62, -1]),
}
VALUES = {"progress": {"epoch": 3, "loss": 0.1 + 0.2, "best": None}, "text": "größe\n"}


def write(folder: Path, epoch: int, batch: int = 0) -> Path:
    values = {**VALUES, "epoch": epoch, "batch": batch}
    return write_checkpoint(folder, Checkpoint(TENSORS, values), epoch, batch)


def flip(path: Path, place: int, bit: int = 0) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1 << bit
    path.write_bytes(content)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_round_trip(tmp_path):
    read = read_checkpoint(write(tmp_path, 3))
    assert read.values == {**VALUES, "epoch": 3, "batch": 0}
    assert read.tensors.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert read.tensors[name].dtype == tensor.dtype
        assert torch.equal(read.tensors[name], tensor)


def test_none_where_none_was_written(tmp_path):
    assert newest_checkpoint(tmp_path / "absent") is None
    assert newest_checkpoint(tmp_path) is None


def test_the_newest_two_are_kept_and_the_newest_is_read(tmp_path):
    for epoch, batch in ((0, 5), (1, 0), (1, 12), (2, 0), (10, 0)):
        write(tmp_path, epoch, batch)
    kept = ("000002-000000", "000010-000000")
    assert names(tmp_path) == [f"{stem}.{suffix}" for stem in kept for suffix in ("json", "safetensors")]
    newest = newest_checkpoint(tmp_path)
    assert newest is not None
    assert newest.values["epoch"] == 10


def test_leftovers_of_a_killed_run_are_cleared(tmp_path):
    """Killed while writing tensors, or between tensors and JSON: both leave a file that no one asks for again."""
    write(tmp_path, 1)
    (tmp_path / ".000002-000000-x1.safetensors").write_bytes(b"half")
    save_file({"a": torch.zeros(1)}, tmp_path / "000002-000000.safetensors")
    newest = newest_checkpoint(tmp_path)
    assert newest is not None
    assert newest.values["epoch"] == 1
    write(tmp_path, 3)
    assert [name.split(".")[0] for name in names(tmp_path)] == ["000001-000000"] * 2 + ["000003-000000"] * 2


def test_a_file_that_was_being_written_is_no_checkpoint(tmp_path):
    """Killed just before a file took its name: the run has no checkpoint yet, and begins from nothing."""
    write(tmp_path, 1).rename(tmp_path / ".000001-000000-abc.json")
    assert newest_checkpoint(tmp_path) is None
    write(tmp_path, 2)
    assert names(tmp_path) == ["000002-000000.json", "000002-000000.safetensors"]


def test_what_lies_after_the_one_resumed_from_is_dropped(tmp_path):
    """A damaged newer checkpoint must neither push out the whole ones nor be taken for the newest."""
    write(tmp_path, 4, 0)
    flip(write(tmp_path, 4, 90), 40)
    write(tmp_path, 4, 3)
    assert names(tmp_path)[::2] == ["000004-000000.json", "000004-000003.json"]


def regions(path: Path) -> dict[str, tuple[Path, range]]:
    """Name the parts of a checkpoint: every byte of the JSON, and the parts of the tensor file."""
    tensors = path.with_suffix(".safetensors")
    content = tensors.read_bytes()
    header = int.from_bytes(content[:8], "little")
    return {
        "json": (path, range(len(path.read_bytes()))),
        "header size": (tensors, range(8)),
        "header": (tensors, range(8, 8 + header)),
        "tensors": (tensors, range(8 + header, len(content))),
    }


@pytest.mark.parametrize("region", ["json", "header size", "header", "tensors"])
def test_every_flipped_bit_is_noticed(tmp_path, region):
    path = write(tmp_path, 1)
    file, places = regions(path)[region]
    whole = file.read_bytes()
    for place in places:
        flip(file, place, bit=place % 8)
        with pytest.raises(CheckpointError, match=r"000001-000000.*expected .*, got .*\."):
            read_checkpoint(path)
        file.write_bytes(whole)
    read_checkpoint(path)


@pytest.mark.parametrize("suffix", [".json", ".safetensors"])
@pytest.mark.parametrize("part", [0.0, 0.01, 0.5, 0.999])
def test_truncated_is_noticed(tmp_path, suffix, part):
    path = write(tmp_path, 1)
    file = path.with_suffix(suffix)
    content = file.read_bytes()
    file.write_bytes(content[: int(part * len(content))])
    with pytest.raises(CheckpointError, match="000001-000000"):
        read_checkpoint(path)


@pytest.mark.parametrize("content", ["[]", "3", "{}", '{"values": 3, "values_sha256": "", "tensors_sha256": ""}'])
def test_other_json_is_no_checkpoint(tmp_path, content):
    path = write(tmp_path, 1)
    path.write_text(content)
    with pytest.raises(CheckpointError, match="expected a whole checkpoint, got a damaged file"):
        read_checkpoint(path)


def test_without_its_tensors_a_checkpoint_is_refused(tmp_path):
    path = write(tmp_path, 1)
    path.with_suffix(".safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"000001-000000\.safetensors: .*got No such file"):
        read_checkpoint(path)


@pytest.mark.parametrize("suffix", [".json", ".safetensors"])
def test_the_one_before_a_damaged_one_is_used_with_a_warning(tmp_path, suffix):
    write(tmp_path, 1)
    damaged = write(tmp_path, 2).with_suffix(suffix)
    flip(damaged, damaged.stat().st_size // 2)
    with pytest.warns(UserWarning, match=r"000002-000000\.json: expected .* Resuming from 000001-000000\.json instead"):
        newest = newest_checkpoint(tmp_path)
    assert newest is not None
    assert newest.values["epoch"] == 1


def test_all_damaged_is_an_error_not_a_fresh_start(tmp_path):
    for epoch in (1, 2):
        flip(write(tmp_path, epoch).with_suffix(".safetensors"), 100)
    with pytest.raises(CheckpointError, match=r"000002-000000.*No other checkpoint is whole; .*--overwrite"):
        newest_checkpoint(tmp_path)


def test_a_whole_newest_one_says_nothing(tmp_path):
    flip(write(tmp_path, 1), 20)
    write(tmp_path, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        newest_checkpoint(tmp_path)


def test_the_digest_is_of_what_was_written(tmp_path):
    path = write(tmp_path, 1)
    envelope = json.loads(path.read_text())
    assert json.loads(envelope["values"])["progress"]["loss"] == 0.1 + 0.2
