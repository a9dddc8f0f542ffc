"""A whole run for every task: the folder it leaves, and the model in it."""

import csv
import json
import math
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sostenuto.checks import FileFormatError, InputError
from sostenuto.data.dataset import Dataset, SequenceSet
from sostenuto.data.parts import divide
from sostenuto.data.tasks import forecast, generate
from sostenuto.report.judgment import judge
from sostenuto.results import FitResult
from sostenuto.training import summary
from sostenuto.training.checkpoint import CheckpointError
from sostenuto.training.config import DataConfig, ModelConfig, RunConfig, TrainingConfig
from sostenuto.training.predict import predictions, raw_predictions
from sostenuto.training.run import run
from sostenuto.training.run_folder import (
    MODEL,
    load_model,
    open_folder,
    pack_model,
    predictions_csv,
    run_folder,
    unpack_model,
)

FILES = {
    "config.toml",
    "model.safetensors",
    "metrics.jsonl",
    "predictions.csv",
    "result.json",
    "split.json",
    "checkpoints",
}


def spirals() -> Dataset:
    return generate("spirals", num_train=24, num_test=10, num_steps=12)


def adding() -> Dataset:
    return generate("adding", num_train=24, num_validation=8, num_test=10, num_steps=10)


def copying() -> Dataset:
    return generate("copying", num_train=16, num_validation=4, num_test=6, delay=3, num_items=2, num_symbols=3)


def functional() -> Dataset:
    return generate("linear_functional", num_train=16, num_validation=4, num_test=6, num_steps=9)


def sinusoid() -> Dataset:
    return generate("sinusoid", num_train=20, num_test=8)


def channels() -> Dataset:
    steps = np.arange(120)
    series = np.stack([np.sin(steps / 5), np.cos(steps / 7)], axis=1)
    return forecast(series, 10, horizon=3, validation_fraction=0.2, name="waves")


def words() -> Dataset:
    rng = np.random.default_rng(0)

    def part(count: int) -> SequenceSet:
        kinds = np.arange(count) % 2
        texts = [rng.integers(1 + 5 * kind, 7 + 5 * kind, rng.integers(3, 8)) for kind in kinds]
        return SequenceSet(texts, np.array(["bad", "good"])[kinds], "classification")

    vectors = rng.normal(size=(14, 5)).astype(np.float32)
    extras = {"vocabulary": [str(i) for i in range(14)], "embedding": vectors}
    return Dataset("words", part(20), part(7), part(6), extras=extras)


DATASETS = {f.__name__: f for f in (spirals, adding, copying, functional, sinusoid, channels, words)}


def settings(epochs: int = 2, **training: Any) -> RunConfig:
    model = ModelConfig("unicornn", embedding_size=5, options={"hidden_size": 5, "step_size": 0.5})
    return RunConfig(DataConfig(), model, TrainingConfig(epochs=epochs, batch_size=8, **training))


def fit(dataset: Dataset, folder: Path, config: RunConfig | None = None, **options: Any) -> FitResult:
    result = run(dataset, config or settings(), folder, device="cpu", progress=False, **options)
    assert result is not None
    return result


def table(folder: Path) -> list[dict[str, str]]:
    with (folder / "predictions.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> dict[str, tuple[Dataset, Path, FitResult]]:
    """Train once for each task."""
    torch.set_num_threads(1)
    done = {}
    for name, make in DATASETS.items():
        folder = tmp_path_factory.mktemp(name)
        dataset = make()
        done[name] = dataset, folder, fit(dataset, folder)
    return done


@pytest.mark.parametrize("name", DATASETS)
def test_the_folder_is_whole(runs, name):
    dataset, folder, result = runs[name]
    assert {path.name for path in folder.iterdir()} == FILES
    assert FitResult.from_dict(json.loads((folder / "result.json").read_text())).to_dict() == result.to_dict()
    stored = RunConfig.load(folder / "config.toml")
    assert stored.data.checksum == dataset.train.checksum() == result.data.checksum
    assert (result.evaluated_on, result.model, result.curve.epochs) == ("test", "unicornn", (1, 2))
    assert math.isfinite(result.score)
    assert len(result.baselines) >= 1
    assert all(math.isfinite(baseline.score) for baseline in result.baselines)
    assert result.environment["seed"] == "0"
    assert result.data.num_test == len(dataset.test or [])


@pytest.mark.parametrize("name", DATASETS)
def test_a_stored_model_gives_the_predictions_of_the_run(runs, name):
    dataset, folder, _ = runs[name]
    stored = load_model(folder / MODEL)
    batch = stored.encoding.encode(dataset.test)
    answers = predictions(stored.encoding, raw_predictions(stored.model, batch), batch.lengths)
    text = predictions_csv(stored.encoding, answers, dataset.test)
    assert text == (folder / "predictions.csv").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["spirals", "words"])
def test_predicted_classes(runs, name):
    dataset, folder, result = runs[name]
    rows = table(folder)
    names = result.data.classes
    assert list(rows[0]) == ["sequence", "predicted", "actual", *(f"probability:{name}" for name in names)]
    assert [row["actual"] for row in rows] == dataset.test.targets.tolist()
    right = np.mean([row["predicted"] == row["actual"] for row in rows])
    assert right == pytest.approx(result.score)
    for row in rows:
        chances = {name: float(row[f"probability:{name}"]) for name in names}
        assert sum(chances.values()) == pytest.approx(1.0, abs=1e-6)
        assert max(chances, key=lambda key: chances[key]) == row["predicted"]


def test_predicted_numbers(runs):
    dataset, folder, result = runs["adding"]
    rows = table(folder)
    assert list(rows[0]) == ["sequence", "predicted", "actual"]
    predicted, actual = (np.array([float(row[key]) for row in rows]) for key in ("predicted", "actual"))
    assert actual == pytest.approx(dataset.test.targets)
    assert math.sqrt(np.mean((predicted - actual) ** 2)) == pytest.approx(result.score, rel=1e-5)
    assert result.regression is not None
    assert result.regression.rmse == result.score


def test_predicted_steps(runs):
    dataset, folder, result = runs["functional"]
    rows = table(folder)
    assert list(rows[0]) == ["sequence", "step", "predicted", "actual"]
    assert len(rows) == 6 * 9
    assert [float(row["actual"]) for row in rows] == pytest.approx(np.concatenate(dataset.test.targets)[:, 0], abs=1e-8)
    errors = [float(row["predicted"]) - float(row["actual"]) for row in rows]
    assert math.sqrt(np.mean(np.square(errors))) == pytest.approx(result.score, rel=1e-5)


def test_predicted_classes_of_steps(runs):
    _, folder, result = runs["copying"]
    rows = table(folder)
    assert list(rows[0])[:4] == ["sequence", "step", "predicted", "actual"]
    assert np.mean([row["predicted"] == row["actual"] for row in rows]) == pytest.approx(result.score)
    assert sum(result.data.class_counts) == 16 * 7


def test_predicted_forecasts(runs):
    dataset, folder, result = runs["channels"]
    rows = table(folder)
    places = [f"{channel}:+{step}" for step in (1, 2, 3) for channel in (0, 1)]
    names = [f"{kind}:{place}" for kind in ("predicted", "actual") for place in places]
    assert list(rows[0]) == ["sequence", *names]
    actual = np.array([[float(row[f"actual:{place}"]) for place in places] for row in rows])
    assert actual == pytest.approx(np.asarray(dataset.test.targets).reshape(len(rows), 6), abs=1e-8)
    predicted = np.array([[float(row[f"predicted:{place}"]) for place in places] for row in rows])
    assert math.sqrt(np.mean((predicted - actual) ** 2)) == pytest.approx(result.score, rel=1e-5)
    assert result.baselines[0].name == "previous value"


def test_the_summary_counts_classes_whatever_they_are_written_as(tmp_path):
    base = spirals()
    numbers = np.asarray(base.train.targets == "clockwise", dtype=float)
    tested = np.asarray(base.test.targets == "clockwise", dtype=float) if base.test else None
    dataset = replace(
        base, train=replace(base.train, targets=numbers), test=replace(base.test, targets=tested) if base.test else None
    )
    result = fit(dataset, tmp_path, settings(1))
    assert result.data.classes == ("0", "1")
    assert sum(result.data.class_counts) == result.data.num_train
    assert min(result.data.class_counts) > 5
    assert {example.label for example in result.data.examples} == {"0", "1"}
    assert len(result.data.examples) == 12


def test_without_a_test_part_one_is_drawn_and_without_any_the_training_part_is_scored(tmp_path):
    dataset = replace(spirals(), test=None)
    result = fit(dataset, tmp_path / "a", settings(1))
    assert (result.evaluated_on, result.data.num_test) == ("test", 5)
    bare = replace(settings(1), data=DataConfig(test_fraction=0.0, validation=0.0))
    seen = fit(dataset, tmp_path / "b", bare)
    assert seen.evaluated_on == "train"
    assert any("says nothing about new data" in remark for remark in judge(seen).remarks)
    some = replace(settings(1), data=DataConfig(test_fraction=0.0))
    assert fit(dataset, tmp_path / "c", some).evaluated_on == "validation"


def test_baselines_are_fitted_on_all_that_the_model_saw(tmp_path, monkeypatch):
    seen = []
    fitted = summary.baseline_predictions
    monkeypatch.setattr(
        summary, "baseline_predictions", lambda train, *rest, **more: seen.append(train) or fitted(train, *rest, **more)
    )
    for timespans in (None, [np.ones(len(one)) for one in spirals().train.sequences]):
        dataset = spirals()
        dataset = replace(dataset, train=replace(dataset.train, timespans=timespans), test=None)
        result = fit(dataset, tmp_path / str(len(seen)), settings(1))
        assert len(seen[-1]) == result.data.num_train + result.data.num_validation
    some = replace(settings(1), data=DataConfig(test_fraction=0.0))
    result = fit(spirals_without_test(), tmp_path / "validated", some)
    assert len(seen[-1]) == result.data.num_train


def spirals_without_test() -> Dataset:
    return replace(spirals(), test=None)


def test_the_same_run_leaves_the_same_bytes(tmp_path):
    for name in ("a", "b"):
        fit(spirals(), tmp_path / name)
    for file in ("model.safetensors", "predictions.csv", "config.toml"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_bf16_runs_are_scored_by_the_model_that_is_stored(tmp_path):
    dataset = adding()
    fit(dataset, tmp_path, settings(precision="bf16"))
    assert dataset.test is not None
    stored = load_model(tmp_path / MODEL)
    batch = stored.encoding.encode(dataset.test)
    answers = predictions(stored.encoding, raw_predictions(stored.model, batch), batch.lengths)
    assert predictions_csv(stored.encoding, answers, dataset.test) == (tmp_path / "predictions.csv").read_text()


def test_a_run_with_other_settings_or_data_is_not_resumed(tmp_path):
    fit(spirals(), tmp_path)
    stored = RunConfig.load(tmp_path / "config.toml")
    other = replace(stored, model=replace(stored.model, readout="mean"))
    with pytest.raises(InputError, match="expected the settings the run was started with, got others"):
        fit(spirals(), tmp_path, other, resume=True)
    with pytest.raises(InputError, match=r"expected the data the run was started with \(checksum"):
        fit(generate("spirals", 1, num_train=24, num_test=10, num_steps=12), tmp_path, stored, resume=True)
    before = (tmp_path / MODEL).read_bytes()
    fit(spirals(), tmp_path, stored, resume=True)
    assert (tmp_path / MODEL).read_bytes() == before


def test_a_run_whose_checkpoints_are_all_damaged_is_not_resumed(tmp_path):
    fit(spirals(), tmp_path)
    for path in (tmp_path / "checkpoints").iterdir():
        path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CheckpointError):
        fit(spirals(), tmp_path, RunConfig.load(tmp_path / "config.toml"), resume=True)
    assert (tmp_path / "config.toml").exists()


@pytest.mark.parametrize("kind", ["option", "test class", "one class"])
def test_what_is_refused_is_refused_before_training_and_leaves_nothing(tmp_path, kind, monkeypatch):
    dataset, config = spirals(), settings()
    assert dataset.test is not None
    if kind == "option":
        config = replace(config, model=ModelConfig(options={"hidden_size": 5, "colour": "red"}))
    elif kind == "test class":
        dataset = replace(dataset, test=replace(dataset.test, targets=np.array(["sideways"] * 10)))
    else:
        dataset = replace(dataset, train=replace(dataset.train, targets=np.array(["up"] * 24)))
    monkeypatch.setattr("sostenuto.training.trainer.Trainer.run", lambda _: pytest.fail("training began"))
    with pytest.raises(InputError), run_folder(tmp_path / "run") as folder:
        fit(dataset, folder, config)
    assert not (tmp_path / "run").exists()


def test_word_vectors_of_another_size_are_not_used_in_silence(tmp_path):
    config = replace(settings(1), model=ModelConfig("gru", embedding_size=4, options={"hidden_size": 3}))
    with pytest.warns(UserWarning, match="word vectors of size 5 are not used: embedding_size is 4"):
        fit(words(), tmp_path, config)


class TestFolders:
    def test_a_new_one_is_made_with_its_parents(self, tmp_path):
        with run_folder(tmp_path / "a" / "b") as folder:
            assert folder.is_dir()

    def earlier(self, folder):
        for name in ("config.toml", "result.json", "notes.txt"):
            (folder / name).write_text("old")
        (folder / "checkpoints").mkdir()
        (folder / "checkpoints" / "000001-000000.json").write_text("old")

    def test_an_earlier_run_is_refused_or_replaced(self, tmp_path):
        self.earlier(tmp_path)
        with pytest.raises(InputError, match="got one with an earlier run; pass --overwrite"), run_folder(tmp_path):
            pass
        with run_folder(tmp_path, overwrite=True):
            assert not (tmp_path / "config.toml").exists()
            (tmp_path / "config.toml").write_text("new")
        assert sorted(path.name for path in tmp_path.iterdir()) == ["config.toml", "notes.txt"]
        assert (tmp_path / "config.toml").read_text() == "new"

    @pytest.mark.parametrize("kind", [InputError, OSError, KeyboardInterrupt])
    def test_what_ends_badly_brings_the_earlier_run_back(self, tmp_path, kind):
        self.earlier(tmp_path)
        before = sorted(tmp_path.rglob("*"))
        fails = ExitStack()
        fails.enter_context(pytest.raises(kind))
        fails.enter_context(run_folder(tmp_path, overwrite=True))
        with fails:
            (tmp_path / "config.toml").write_text("new")
            raise kind("no")
        assert sorted(tmp_path.rglob("*")) == before
        assert (tmp_path / "config.toml").read_text() == "old"

    def test_a_run_with_checkpoints_stays_to_be_resumed_and_the_earlier_one_waits(self, tmp_path):
        self.earlier(tmp_path)

        def stop(**options):
            stops = ExitStack()
            stops.enter_context(pytest.raises(KeyboardInterrupt))
            stops.enter_context(run_folder(tmp_path, **options))
            with stops:
                (tmp_path / "config.toml").write_text("new")
                (tmp_path / "checkpoints").mkdir(exist_ok=True)
                (tmp_path / "checkpoints" / "000000-000001.json").write_text("new")
                raise KeyboardInterrupt

        stop(overwrite=True)
        stop(resume=True)
        stop(overwrite=True)
        assert (tmp_path / ".replaced" / "config.toml").read_text() == "old"
        with run_folder(tmp_path, resume=True):
            assert (tmp_path / "config.toml").read_text() == "new"
        assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoints", "config.toml", "notes.txt"]

    def test_one_fit_at_a_time(self, tmp_path):
        with (
            run_folder(tmp_path),
            pytest.raises(InputError, match="got one with another fit in it; wait for it"),
            run_folder(tmp_path, resume=True),
        ):
            pass
        with run_folder(tmp_path):
            pass

    def test_other_files_are_never_replaced(self, tmp_path):
        (tmp_path / "thesis.txt").write_text("x")
        for path, message in (
            (tmp_path, "got one with other files; choose another --out"),
            (tmp_path / "thesis.txt", "got a file"),
            (tmp_path / "thesis.txt" / "run", "expected a folder that can be made, got Not a directory"),
        ):
            with pytest.raises(InputError, match=message), run_folder(path, overwrite=True):
                pass

    def test_a_folder_without_a_config_is_no_run(self, tmp_path):
        with pytest.raises(InputError, match=r"expected a run folder with a config\.toml, got none"):
            open_folder(tmp_path)


class TestStoredModel:
    def test_notes_travel_along(self, runs):
        stored = load_model(runs["spirals"][1] / MODEL)
        again = unpack_model(pack_model(replace(stored, notes={"run": "ä", "b": "2"})), "here")
        assert again.notes == {"run": "ä", "b": "2"}
        assert again.encoding == stored.encoding
        assert again.config == stored.config
        assert not again.model.training

    @pytest.mark.parametrize("place", [0, 3, 20, 200, 600, -1, -30])
    def test_an_altered_file_is_refused(self, runs, tmp_path, place):
        content = bytearray((runs["spirals"][1] / MODEL).read_bytes())
        content[place] ^= 4
        path = tmp_path / MODEL
        path.write_bytes(content)
        with pytest.raises(
            FileFormatError, match=r"model\.safetensors: expected a model written by sostenuto, got a dam"
        ):
            load_model(path)

    def test_every_byte_counts(self, runs):
        """Scaling and classes are as much part of an answer as the weights are."""
        content = (runs["adding"][1] / MODEL).read_bytes()
        for place in range(0, len(content), 3):
            altered = bytearray(content)
            altered[place] ^= 1
            with pytest.raises(FileFormatError):
                unpack_model(bytes(altered), "here")

    @pytest.mark.parametrize("content", [b"", b"12", b"\xff" * 50, b"PK\x03\x04 something else entirely"])
    def test_other_content_is_refused(self, content):
        with pytest.raises(FileFormatError, match="here: expected a model written by sostenuto"):
            unpack_model(content, "here")

    def test_a_missing_file_is_named(self, tmp_path):
        with pytest.raises(FileFormatError, match=r"expected a trained model, got No such file or directory; train it"):
            load_model(tmp_path / MODEL)


def test_parts_are_divided_by_the_seed():
    dataset = replace(spirals(), test=None)
    one, two, other = (divide(dataset, DataConfig(), seed=seed) for seed in (0, 0, 1))
    assert one.test is not None
    assert two.test is not None
    assert other.test is not None
    assert one.test.checksum() == two.test.checksum() != other.test.checksum()
    assert one.validation is not None
    assert len(one.train) + len(one.validation) + len(one.test) == 24


RUN_FILES = ("model.safetensors", "metrics.jsonl", "predictions.csv", "result.json", "config.toml")


@pytest.mark.parametrize("number", range(len(RUN_FILES)))
@pytest.mark.parametrize("error", [OSError("broken disk"), KeyboardInterrupt()])
def test_a_run_that_is_moved_aside_is_never_in_two_parts(tmp_path, monkeypatch, number, error):
    """An error brings it back at once; after a kill the next fit moves the rest, and brings all back when it fails."""
    for name in RUN_FILES:
        (tmp_path / name).write_text(name)
    renamed, plain = [], Path.rename

    def rename(path, target):
        renamed.append(path)
        if len(renamed) == number + 1:
            raise error
        return plain(path, target)

    monkeypatch.setattr(Path, "rename", rename)
    with pytest.raises(type(error)), run_folder(tmp_path, overwrite=True):
        pytest.fail("the fit began")
    monkeypatch.undo()
    if isinstance(error, KeyboardInterrupt):
        with ExitStack() as stack:
            stack.enter_context(pytest.raises(InputError))
            stack.enter_context(run_folder(tmp_path, overwrite=True))
            assert {path.name for path in (tmp_path / ".replaced").iterdir()} == set(RUN_FILES)
            raise InputError("a mistake")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {name: name for name in RUN_FILES}
