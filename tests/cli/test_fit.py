import json

import numpy as np
import pytest

from sostenuto.training.config import RunConfig
from sostenuto.training.run_folder import load_model
from tests.cli.small import TINY, call, said, write_waves

FILES = {
    "config.toml",
    "model.safetensors",
    "metrics.jsonl",
    "predictions.csv",
    "result.json",
    "split.json",
    "report.html",
    "checkpoints",
}


@pytest.fixture
def waves(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return write_waves(tmp_path / "waves.npz")


def test_a_table_and_a_folder(waves, tmp_path):
    result = call("fit", waves, *TINY)
    assert result.exit_code == 0
    assert result.stderr == ""
    folder = tmp_path / "runs" / "waves.npz-stack"
    assert {path.name for path in folder.iterdir()} == FILES
    rows = [line.split("  ")[0].strip() for line in result.stdout.splitlines()]
    assert rows[:3] == ["data", "model", "test accuracy"]
    assert {"training", "report"} <= set(rows)
    assert "waves.npz: 16 + 3 + 5 sequences" in result.stdout
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert page.startswith("<!")
    assert "waves.npz" in page
    assert "accuracy" in page


def test_json_is_one_object_and_nothing_else(waves, tmp_path):
    result = call("fit", waves, *TINY, "--json", "--out", "here")
    assert result.exit_code == 0
    assert len(result.stdout.splitlines()) == 1
    found = json.loads(result.stdout)
    assert found["run"] == "here"
    assert found["data"] == "waves.npz"
    assert (tmp_path / found["report"]).is_file()
    stored = json.loads((tmp_path / "here" / "result.json").read_text())
    assert found["score"] == stored["score"]
    assert {baseline["name"] for baseline in found["baselines"]} == {b["name"] for b in stored["baselines"]}


def test_without_quiet_there_is_a_progress_bar_on_the_side(waves):
    result = call("fit", waves, *TINY[1:])
    assert result.exit_code == 0
    assert "training: 100%" in result.stderr
    assert "100%" not in result.stdout


def test_each_new_run_has_its_own_folder(waves, tmp_path):
    for _ in range(2):
        assert call("fit", waves, *TINY).exit_code == 0
    names = sorted(path.name for path in (tmp_path / "runs").iterdir())
    assert names == ["waves.npz-stack", "waves.npz-stack-2"]


def test_an_existing_folder_is_refused_overwritten_or_resumed(waves, tmp_path):
    assert call("fit", waves, *TINY, "--out", "run").exit_code == 0
    before = (tmp_path / "run" / "model.safetensors").read_bytes()
    refused = call("fit", waves, *TINY, "--out", "run")
    assert refused.exit_code == 2
    assert said(refused) == (
        "run: expected a new or empty folder, got one with an earlier run; "
        "pass --overwrite to replace it or --resume to continue it."
    )
    replaced = call("fit", waves, *TINY, "--out", "run", "--overwrite", "--seed", "3")
    assert replaced.exit_code == 0
    assert (tmp_path / "run" / "model.safetensors").read_bytes() != before
    resumed = call("fit", "--resume", "run", "--quiet", "--device", "cpu")
    assert resumed.exit_code == 0
    assert "report" in resumed.stdout


@pytest.mark.parametrize(
    "arguments", [("-o", "color=red"), ("--epochs", "0"), ("--test", "unseen.npz"), ("--set", "training.epoch=3")]
)
def test_overwriting_with_a_mistake_keeps_the_earlier_run(waves, tmp_path, arguments):
    assert call("fit", waves, *TINY, "--out", "run").exit_code == 0
    arrays = dict(np.load(waves, allow_pickle=False))
    np.savez(tmp_path / "unseen.npz", X=arrays["X"], y=np.array(["unheard-of"] * len(arrays["X"])))
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    assert call("fit", waves, *TINY, "--out", "run", "--overwrite", *arguments).exit_code == 2
    assert {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()} == before


def test_other_files_are_never_overwritten(waves, tmp_path):
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "thesis.txt").write_text("years of work")
    result = call("fit", waves, *TINY, "--out", "precious", "--overwrite")
    assert result.exit_code == 2
    assert "got one with other files; choose another --out" in said(result)
    assert (tmp_path / "precious" / "thesis.txt").read_text() == "years of work"


def test_what_was_said_is_what_is_stored(waves, tmp_path):
    options = ("--model", "gru", "--readout", "mean", "--batch-size", "5", "--learning-rate", "0.003", "--seed", "7")
    more = ("--scaling", "minmax", "--validation", "0.25", "--split", "random", "--set", "training.ema_decay=0.9")
    assert call("fit", waves, *TINY, *options, *more, "--out", "run").exit_code == 0
    config = RunConfig.load(tmp_path / "run" / "config.toml")
    assert (config.model.layer, config.model.readout) == ("gru", "mean")
    assert config.model.options == {"hidden_size": 4, "num_layers": 1}
    training = config.training
    assert (training.epochs, training.batch_size, training.learning_rate, training.seed) == (2, 5, 0.003, 7)
    assert training.ema_decay == 0.9
    assert (config.data.scaling, config.data.validation, config.data.split) == ("minmax", 0.25, "random")
    assert config.data.source == str(waves)


def test_a_promised_half_life_is_kept(waves, tmp_path):
    assert call("fit", waves, *TINY, "--half-life", "300").exit_code == 0
    model = load_model(tmp_path / "runs" / "waves.npz-stack" / "model.safetensors").model
    assert model.layer.memory_certificate().remembers_at_least >= 300


def test_a_half_life_in_seconds_is_kept(waves, tmp_path):
    rows = "".join(f"{i // 20},{0.05 * (i % 20)},{(i % 7) / 7},{'ab'[i // 20 % 2]}\n" for i in range(240))
    (tmp_path / "timed.csv").write_text("series,seconds,x,label\n" + rows, encoding="utf-8")
    named = ("--time", "seconds", "--series", "series", "--target", "label")
    assert call("fit", "timed.csv", *named, *TINY, "--half-life", "2.5s").exit_code == 0
    layer = load_model(tmp_path / "runs" / "timed.csv-stack" / "model.safetensors").model.layer
    proved = layer.memory_certificate()
    assert 50 <= proved.remembers_at_least < 51
    result = call("fit", waves, *TINY, "--half-life", "2.5s")
    assert result.exit_code == 2
    assert "expected data with times for a half-life in seconds" in said(result)


def test_a_config_repeats_a_run_and_options_go_before_it(waves, tmp_path):
    assert call("fit", waves, *TINY, "--out", "one").exit_code == 0
    again = ("fit", "--config", "one/config.toml", "--quiet", "--device", "cpu")
    assert call(*again, "--out", "two").exit_code == 0
    models = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("one", "two")]
    assert models[0] == models[1]
    assert call(*again, "--epochs", "1", "--out", "three").exit_code == 0
    assert RunConfig.load(tmp_path / "three" / "config.toml").training.epochs == 1


def test_a_test_file(waves, tmp_path):
    test = write_waves(tmp_path / "test.npz", 9, seed=1)
    result = call("fit", waves, "--test", test, *TINY, "--out", "run")
    assert result.exit_code == 0
    assert "20 + 4 + 9 sequences" in result.stdout
    wrong = write_waves(tmp_path / "wrong.npz", 9, channels=3)
    refused = call("fit", waves, "--test", wrong, *TINY)
    assert refused.exit_code == 2
    assert "expected 2 channels as in" in said(refused)


@pytest.mark.parametrize("targets", ["numbers", "steps"])
def test_other_tasks(tmp_path, targets):
    path = write_waves(tmp_path / "waves.npz", targets=targets)
    task = ("--task", "sequence") if targets == "steps" else ()
    result = call("fit", path, *TINY, *task, "--out", tmp_path / "run", "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["metric"] == "rmse"
    assert (tmp_path / "run" / "report.html").is_file()


def test_forecasts_of_a_table(tmp_path):
    steps = np.arange(120)
    lines = ["time,a,b", *(f"{t},{np.sin(t / 5)},{np.cos(t / 9)}" for t in steps)]
    path = tmp_path / "series.csv"
    path.write_text("\n".join(lines) + "\n")
    options = ("--task", "forecast", "--time", "time", "--window", "8", "--horizon", "2")
    result = call("fit", path, *TINY, *options, "--out", tmp_path / "run", "--json")
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert found["baselines"][0]["name"] == "previous value"
    answer = call("predict", tmp_path / "run", path, "--json", "--quiet", "--device", "cpu")
    assert answer.exit_code == 0
    assert np.asarray(json.loads(answer.stdout)["predictions"]).shape == (1, 2, 2)


def test_missing_values_are_refused_masked_or_filled(tmp_path):
    path = write_waves(tmp_path / "waves.npz")
    arrays = dict(np.load(path, allow_pickle=False))
    arrays["X"][3, 4, 1] = np.nan
    np.savez(path, **arrays)
    refused = call("fit", path, *TINY, "--out", tmp_path / "refused")
    assert refused.exit_code == 2
    assert "--missing mask or --missing interpolate" in said(refused)
    assert not (tmp_path / "refused").exists()
    for missing in ("mask", "interpolate"):
        assert call("fit", path, *TINY, "--missing", missing, "--out", tmp_path / missing).exit_code == 0


def test_probes_are_logged(waves, tmp_path):
    result = call("fit", waves, *TINY, "--probe", "weight_norms", "--probe", "recurrent_spectra", "--out", "run")
    assert result.exit_code == 0
    row = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[0])
    assert any(key.startswith("weight_norms/") for key in row)
    assert any(key.startswith("recurrent_spectra/") for key in row)


@pytest.mark.parametrize(
    ("arguments", "fragment"),
    [
        (("--model", "transformer"), "expected model to be one of 'auto', 'oscillators', 'rntk', "),
        (("-o", "colour=red"), "expected options of the layer 'stack' among bias, bidirectional, "),
        (("-o", "hidden_size=0"), "hidden_size"),
        (("-o", "hidden_size"), "expected NAME=VALUE, got 'hidden_size'"),
        (("-o", "readout=mean"), "expected options of the layer alone, got readout"),
        (("-o", "layer=gru"), "expected options of the layer alone, got layer"),
        (("--model", "gru", "-o", "dropout=7"), "dropout"),
        (("--set", "training.epoch=3"), "expected keys of training among"),
        (("--set", "model.layer=gru"), "expected --set data.NAME=VALUE or training.NAME=VALUE"),
        (("--set", "training.optimizer=lion"), "expected optimizer to be one of"),
        (("--readout", "median"), "expected readout to be one of"),
        (("--epochs", "0"), "epochs"),
        (("--probe", "thermometer"), "expected probe to be one of"),
        (("--device", "banana"), "expected a device"),
        (("--device", "cuda:99"), "expected a device that this machine has"),
        (("--precision", "float8"), "precision"),
        (("--layout", "tbc"), "layout"),
        (("--test", "absent.npz"), "absent.npz: expected a file, found nothing there"),
        (("--config", "absent.toml"), "absent.toml: expected a readable config file"),
        (("--resume", "nowhere"), "got others too (source)"),
        (("--resume", "nowhere", "--scaling", "none"), "expected --resume with settings of the training alone"),
        (("--validation", "2"), "validation"),
        (("--split", "group"), "expected groups to divide by"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(waves, tmp_path, arguments, fragment):
    result = call("fit", waves, "--quiet", "--epochs", "1", *arguments)
    assert result.exit_code == 2
    assert fragment in said(result)
    assert not (tmp_path / "runs").exists() or not any((tmp_path / "runs").iterdir())


def test_unknown_names_are_refused_with_a_guess():
    result = call("fit", "digit")
    assert result.exit_code == 2
    assert "expected the name of a data set, got 'digit'; did you mean 'digits'" in said(result)


def test_a_folder_named_like_a_data_set_is_not_in_its_way(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "task" / "spirals").mkdir(parents=True)
    assert call("fit", "task/spirals", *TINY, "--out", "run").exit_code == 0


def test_resume_stands_alone_and_needs_a_run(waves, tmp_path):
    refused = call("fit", "--resume", tmp_path)
    assert refused.exit_code == 2
    assert "expected a run folder with a config.toml, got none" in said(refused)
    for more in (("--seed", "9"), ("--out", "there"), ("--overwrite",), ("--model", "gru")):
        refused = call("fit", "--resume", tmp_path, *more)
        assert refused.exit_code == 2
        assert f"got others too ({more[0].lstrip('-').replace('model', 'layer')})" in said(refused)


def test_resume_with_changed_data_is_refused(waves, tmp_path):
    assert call("fit", waves, *TINY, "--out", "run").exit_code == 0
    write_waves(waves, seed=5)
    refused = call("fit", "--resume", "run", "--quiet")
    assert refused.exit_code == 2
    assert "expected the data the run was started with" in said(refused)


def test_damaged_checkpoints_end_in_exit_code_1(waves, tmp_path):
    assert call("fit", waves, *TINY, "--out", "run").exit_code == 0
    for path in (tmp_path / "run" / "checkpoints").glob("*.safetensors"):
        path.write_bytes(path.read_bytes()[:-5])
    result = call("fit", "--resume", "run", "--quiet", "--device", "cpu")
    assert result.exit_code == 1
    assert "No other checkpoint is whole" in said(result)


def test_a_loss_that_explodes_ends_in_exit_code_4_with_weights_from_before(waves, tmp_path):
    settings = ("optimizer=sgd", "gradient_clip=0", "schedule=constant", "learning_rate=1e38", "epochs=6")
    options = [part for setting in settings for part in ("--set", f"training.{setting}")]
    result = call("fit", waves, *TINY, *options, "--out", "run")
    assert result.exit_code == 4
    assert "training diverged, and the weights from before it were kept: expected" in result.stderr
    weights = load_model(tmp_path / "run" / "model.safetensors").model.state_dict()
    assert all(bool(weight.isfinite().all()) for weight in weights.values())
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Training diverged" in page
    assert json.loads((tmp_path / "run" / "result.json").read_text())["diverged"].startswith("expected ")
    again = call("fit", "--resume", "run", "--quiet", "--device", "cpu")
    assert again.exit_code == 4
    gentler = ("--resume", "run", "--learning-rate", "0.01", "--set", "training.gradient_clip=1.0")
    healed = call("fit", *gentler, "--quiet", "--device", "cpu")
    assert healed.exit_code == 0, healed.output
    assert RunConfig.load(tmp_path / "run" / "config.toml").training.learning_rate == 0.01
    assert json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])["epoch"] == 6
    longer = call("fit", "--resume", "run", "--epochs", "8", "--quiet", "--device", "cpu")
    assert longer.exit_code == 0, longer.output
    assert json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])["epoch"] == 8


def test_a_config_of_one_key_takes_all_else_from_the_recipe(waves, tmp_path):
    (tmp_path / "one.toml").write_text("[training]\nepochs = 1\n")
    assert call("fit", waves, "--config", "one.toml", "--quiet", "--device", "cpu", "--out", "one").exit_code == 0
    assert call("fit", waves, "--epochs", "1", "--quiet", "--device", "cpu", "--out", "two").exit_code == 0
    assert (tmp_path / "one" / "config.toml").read_text() == (tmp_path / "two" / "config.toml").read_text()
    (tmp_path / "layer.toml").write_text('[model]\nlayer = "gru"\n[model.options]\nnum_layers = 2\n')
    done = call("fit", waves, "--config", "layer.toml", "--epochs", "1", "--quiet", "--device", "cpu", "--out", "three")
    assert done.exit_code == 0, done.output
    assert RunConfig.load(tmp_path / "three" / "config.toml").model.options == {"hidden_size": 64, "num_layers": 2}


def test_irregular_times_do_not_make_the_default_model_diverge(tmp_path, monkeypatch):
    """Exponential gaps: the loss rose to 6e10 before spans were kept inside the stability limit."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    rows = ["series,t,x,label"]
    for series in range(40):
        times = 1000 * rng.exponential(size=60).cumsum()
        wave = np.sin(times / 1000 * (0.2 + 0.3 * (series % 2)) + rng.uniform(0, 6))
        rows += [f"{series},{time},{value},c{series % 2}" for time, value in zip(times, wave, strict=True)]
    (tmp_path / "uneven.csv").write_text("\n".join(rows))
    columns = ("--series", "series", "--time", "t", "--target", "label")
    done = call("fit", "uneven.csv", *columns, "--epochs", "15", "--quiet", "--device", "cpu", "--out", "run")
    assert done.exit_code == 0, done.output
    losses = [json.loads(line)["train_loss"] for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert max(losses) < 20
    assert losses[-1] < losses[0]


def test_too_little_data_is_refused_before_training(tmp_path):
    path = write_waves(tmp_path / "two.npz", 2, targets="numbers")
    result = call("fit", path, *TINY, "--out", tmp_path / "run")
    assert result.exit_code == 2
    assert "expected at least 2 training sequences beside the test part, got 1" in said(result)


def test_a_place_that_cannot_be_written_is_named(waves, tmp_path):
    (tmp_path / "file").write_text("x")
    result = call("fit", waves, *TINY, "--out", "file/run")
    assert result.exit_code == 2
    assert "file/run: expected a folder that can be made" in said(result)


def test_warnings_are_one_line_on_the_side(waves):
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("default")
        result = call("fit", waves, *TINY, "-o", "dropout=0.5", "--json")
        assert warnings.showwarning.__module__ != "sostenuto.cli.errors"
    assert result.exit_code == 0
    assert result.stderr.startswith("sostenuto: warning: dropout acts between layers")
    json.loads(result.stdout)


def test_a_0_1_target_at_every_step_is_classified_and_its_rare_class_told(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    rows = ["s,x,y"] + [
        f"{series},{rng.normal()},{int(rng.uniform() < 0.08)}" for series in range(20) for _ in range(30)
    ]
    (tmp_path / "anomalies.csv").write_text("\n".join(rows))
    columns = ("--series", "s", "--target", "y", *TINY)
    done = call("fit", "anomalies.csv", *columns, "--task", "sequence", "--out", "classes")
    assert done.exit_code == 0, done.output
    assert "balanced accuracy" in done.output
    assert "recall of 1" in done.output
    stored = json.loads((tmp_path / "classes" / "result.json").read_text())
    assert stored["data"]["classes"] == ["0", "1"]
    assert stored["baselines"][0]["name"] == "most common class"
    page = (tmp_path / "classes" / "report.html").read_text()
    assert "balanced accuracy" in page
    assert "most common class" in page
    assert "of class &#39;1&#39; found" in page
    assert call("fit", "anomalies.csv", *columns, "--task", "step-regression", "--out", "numbers").exit_code == 0
    assert json.loads((tmp_path / "numbers" / "result.json").read_text())["metric"] == "rmse"
    assert call("predict", "classes", "anomalies.csv", "--quiet", "--device", "cpu").exit_code == 0
