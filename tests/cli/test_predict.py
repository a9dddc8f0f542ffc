import csv
import io
import json
import shutil

import numpy as np
import pytest
import torch

from tests.cli.small import TINY, call, said, write_waves

QUIET = ("--quiet", "--device", "cpu")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Train one run with a test file; it is only read."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("predict")
    train, test = write_waves(folder / "train.npz"), write_waves(folder / "test.npz", 9, seed=1)
    assert call("fit", train, "--test", test, *TINY, "--out", folder / "run").exit_code == 0
    return folder


def test_predictions_are_those_of_the_run(trained):
    result = call("predict", trained / "run", trained / "test.npz", *QUIET)
    assert result.exit_code == 0
    assert result.stdout == (trained / "run" / "predictions.csv").read_text(encoding="utf-8")
    assert result.stderr == ""


def test_predictions_of_a_named_data_set_are_those_of_its_test_part(tmp_path):
    assert call("fit", "task/spirals", *TINY, "--out", tmp_path / "run").exit_code == 0
    result = call("predict", tmp_path / "run", "task/spirals", *QUIET)
    assert result.stdout == (tmp_path / "run" / "predictions.csv").read_text(encoding="utf-8")


@pytest.mark.parametrize("targets", ["numbers", "steps"])
def test_numbers_and_steps_are_reproduced_too(tmp_path, targets):
    train = write_waves(tmp_path / "train.npz", targets=targets)
    test = write_waves(tmp_path / "test.npz", 7, seed=1, targets=targets)
    task = ("--task", "sequence") if targets == "steps" else ()
    assert call("fit", train, "--test", test, *task, *TINY, "--out", tmp_path / "run").exit_code == 0
    result = call("predict", tmp_path / "run", test, *QUIET)
    assert result.stdout == (tmp_path / "run" / "predictions.csv").read_text(encoding="utf-8")


def test_json_and_a_file(trained, tmp_path):
    result = call("predict", trained / "run", trained / "test.npz", "--json", *QUIET)
    found = json.loads(result.stdout)
    assert found["count"] == len(found["predictions"]) == 9
    assert set(found["predictions"]) <= {"slow", "fast"}
    written = call("predict", trained / "run", trained / "test.npz", "--out", tmp_path / "a" / "b.csv", *QUIET)
    assert written.exit_code == 0
    assert written.stdout == ""
    assert (tmp_path / "a" / "b.csv").read_text() == (trained / "run" / "predictions.csv").read_text()


@pytest.mark.parametrize("name", ["test.npz", "run/model.safetensors", "run/config.toml", "link.csv"])
def test_what_is_read_is_not_written_over(trained, tmp_path, name):
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    (tmp_path / "link.csv").symlink_to(tmp_path / "test.npz")
    before = (tmp_path / name).read_bytes()
    refused = call("predict", tmp_path / "run", tmp_path / "test.npz", "--out", tmp_path / name, *QUIET)
    assert refused.exit_code == 2
    assert "expected a file of its own to write, got one of the data or the run; choose another --out" in said(refused)
    assert (tmp_path / name).read_bytes() == before


def test_a_folder_is_no_file_for_predictions(trained, tmp_path):
    refused = call("predict", trained / "run", trained / "test.npz", "--out", tmp_path, *QUIET)
    assert refused.exit_code == 2
    assert "expected a file to write, got a folder; name a file in it" in said(refused)
    assert list(tmp_path.iterdir()) == []


def test_targets_are_not_needed(trained, tmp_path):
    path = write_waves(tmp_path / "new.npz", 4, targets=None)
    result = call("predict", trained / "run", path, *QUIET)
    assert result.exit_code == 0
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    assert len(rows) == 4
    assert "actual" not in rows[0]


def test_one_sequence_of_another_length(trained, tmp_path):
    np.savez(tmp_path / "one.npz", X=np.zeros((1, 3, 2)))
    assert call("predict", trained / "run", tmp_path / "one.npz", *QUIET).exit_code == 0


def test_the_number_of_channels_must_be_that_of_training(trained, tmp_path):
    path = write_waves(tmp_path / "wide.npz", 4, channels=3)
    result = call("predict", trained / "run", path, *QUIET)
    assert result.exit_code == 2
    assert said(result) == "expected 2 channels, as in training, got 3; bring the channels used in training."


@pytest.mark.parametrize(
    ("name", "fragment"),
    [
        ("absent.npz", "absent.npz: expected a file, found nothing there"),
        ("absent", "expected the name of a data set, got 'absent'"),
        ("digits", "expected 2 channels, as in training, got 1"),
    ],
)
def test_data_that_is_not_there_or_not_right(trained, name, fragment):
    result = call("predict", trained / "run", name, *QUIET)
    assert result.exit_code == 2
    assert fragment in said(result)


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty", "missing", "other"])
def test_a_damaged_model_is_refused(trained, tmp_path, damage):
    shutil.copytree(trained / "run", tmp_path / "run")
    path = tmp_path / "run" / "model.safetensors"
    content = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        flipped = content[:-9] + bytes([content[-9] ^ 1]) + content[-8:]
        path.write_bytes(
            {"truncated": content[:-40], "flipped": flipped, "empty": b"", "other": b"not a model"}[damage]
        )
    result = call("predict", tmp_path / "run", trained / "test.npz", *QUIET)
    assert result.exit_code == 2
    expected = "expected a trained model, got No such file" if damage == "missing" else "got a damaged file"
    assert expected in said(result)
    assert "model.safetensors" in said(result)


def test_a_folder_that_is_no_run(trained, tmp_path):
    result = call("predict", tmp_path, trained / "test.npz", *QUIET)
    assert result.exit_code == 2
    assert "expected a run folder with a config.toml, got none" in said(result)


def test_a_damaged_config_is_refused(trained, tmp_path):
    shutil.copytree(trained / "run", tmp_path / "run")
    (tmp_path / "run" / "config.toml").write_text("[data\n")
    result = call("predict", tmp_path / "run", trained / "test.npz", *QUIET)
    assert result.exit_code == 2
    assert "config.toml: expected TOML" in said(result)


def test_no_cell_of_the_predictions_is_a_formula(tmp_path):
    labels = np.array(["=1+1", "-2", "up"])
    waves = np.sin(np.arange(20) * (0.3 + 0.4 * (np.arange(30) % 3))[:, None])
    np.savez(tmp_path / "train.npz", X=waves[:, :, None], y=labels[np.arange(30) % 3])
    options = ("--model", "oscillators", "-o", "n_units=30", "--out", tmp_path / "run", "--quiet")
    assert call("fit", tmp_path / "train.npz", *options).exit_code == 0
    found = call("predict", tmp_path / "run", tmp_path / "train.npz", "--quiet").stdout
    assert "'=1+1" in found
    assert not any(cell.startswith("=") for line in found.splitlines() for cell in line.split(","))
    assert ",-2," in found  # a number
