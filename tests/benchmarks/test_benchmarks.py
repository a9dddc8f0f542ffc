"""Every benchmark keeps the convention, and what is stored can be read back."""

import json
import math
import sys

import pytest

import sostenuto as so
from sostenuto import benchmarks
from sostenuto.benchmarks import import_time
from sostenuto.checks import InputError
from sostenuto.version import commit


@pytest.mark.parametrize("name", benchmarks.names())
def test_a_benchmark_has_a_title_of_one_line(name: str) -> None:
    title = benchmarks.title(name)
    assert title
    assert title == title.strip()
    assert "\n" not in title


def test_an_unknown_benchmark_is_refused_with_the_list() -> None:
    with pytest.raises(InputError, match=r"one of .*'import_time'.*got 'speed'"):
        benchmarks.run("speed")


def test_a_stored_record_carries_date_device_and_versions(tmp_path) -> None:
    path = benchmarks.store("import_time", {"ratio": 1.25, "runs": 5}, tmp_path / "new")
    page = json.loads(path.read_text(encoding="utf-8"))
    assert path == tmp_path / "new" / "import_time.json"
    assert page["record"] == {"ratio": 1.25, "runs": 5}
    assert page["benchmark"] == "import_time"
    assert page["device"]["cores"] >= 1
    assert page["versions"]["torch"] != "not installed"
    assert page["date"].endswith("+00:00")
    assert page["commit"] == commit()
    assert [entry.name for entry in path.parent.iterdir()] == ["import_time.json"]


def test_a_record_that_is_no_json_leaves_the_old_one(tmp_path) -> None:
    path = benchmarks.store("import_time", {"ratio": 1.0, "runs": 5}, tmp_path)
    with pytest.raises(ValueError, match="not JSON compliant"):
        benchmarks.store("import_time", {"ratio": math.nan, "runs": 5}, tmp_path)
    assert json.loads(path.read_text(encoding="utf-8"))["record"] == {"ratio": 1.0, "runs": 5}


def test_times_are_stored_as_medians_of_several_runs(monkeypatch, tmp_path) -> None:
    found = iter([5.0, 1.0, 2.0, 9.0, 3.0])
    monkeypatch.setattr(import_time, "run", lambda progress: {"ratio": next(found), "rounds": 0 if progress else 7})
    record = benchmarks.run("import_time", runs=5, progress=False)
    assert record == {"ratio": 3.0, "rounds": 7, "runs": 5, "spread": {"ratio": [1.0, 9.0]}}
    benchmarks.store("import_time", record, tmp_path)
    with pytest.raises(InputError, match="medians of at least 5 runs of 'import_time', got 1; measure with runs=5"):
        benchmarks.store("import_time", {"ratio": 1.0}, tmp_path)


def test_import_time_reports_every_side(monkeypatch) -> None:
    warm = {"torch": 2.0, "sostenuto": 0.5, "sostenuto.nn": 3.0}
    times = {name: iter([9.0] + [seconds] * 7) for name, seconds in warm.items()}
    monkeypatch.setattr(import_time, "import_seconds", lambda name: next(times[name]))
    record = benchmarks.run("import_time", progress=False)
    assert record["median_seconds"] == warm
    assert record["ratio_to_torch"] == {"torch": 1.0, "sostenuto": 0.25, "sostenuto.nn": 1.5}
    assert len(record["seconds"]["torch"]) == 7


def test_the_choice_is_put_beside_its_candidates(real_data):
    from sostenuto.benchmarks import default_choice

    record = default_choice.run(progress=False, sets=("ucr/Chinatown",), budget=0.5, data_dir=str(real_data))
    row = record["sets"]["ucr/Chinatown"]
    assert row["chosen"] in row["candidates"]
    assert row["accuracy"] == row["candidates"][row["chosen"]]["accuracy"] > 0.9
    assert row["best_accuracy"] == max(one["accuracy"] for one in row["candidates"].values())
    assert record["mean"]["all"]["sets"] == 1


def test_candidates_for_numbers_are_compared_by_the_share_they_explain(real_data):
    from sostenuto.benchmarks import default_choice
    from sostenuto.data.config import DataConfig

    tecator = so.datasets.load("tser/Tecator", data_dir=str(real_data))
    config = default_choice.candidate_configs(tecator, DataConfig(validation=0.0))["oscillators"]
    assert 0.99 < default_choice._fitted(tecator, config)[0] <= 1  # rmse is 0.75, and less would be better


def test_costs_of_oscillators_at_a_small_size():
    from sostenuto.benchmarks import oscillator_scale

    record = oscillator_scale.run(progress=False, sizes=(30, 10, 50, 32), streamed=200, series=60, part=20)
    assert record["floor"]["fit_and_predict_over_floor"] > 1
    assert record["stream"]["largest_difference"] < 1e-6
    assert len(record["many"]["seconds_per_part_by_tenths"]) == 2


def test_peers_stand_beside_oscillators_and_a_run_that_ended_goes_on(real_data, tmp_path, monkeypatch):
    from sostenuto.benchmarks import oscillator_features

    peer = """
import json, sys
print(json.dumps({"aeon": "0"}), flush=True)
for line in sys.stdin:
    path, name, seed = json.loads(line)
    print(json.dumps({"accuracy": 0.5 + seed / 10, "seconds": 1.0}), flush=True)
"""
    monkeypatch.setattr(oscillator_features, "_PEER_PROGRAM", peer)
    monkeypatch.setattr(oscillator_features, "SEEDS", dict(zip(oscillator_features.SEEDS, (2, 2, 1), strict=True)))
    monkeypatch.setenv("SOSTENUTO_RESUME", str(tmp_path / "rows.jsonl"))
    settings = {"progress": False, "sets": ("Chinatown",), "peers": sys.executable, "data_dir": str(real_data)}
    record = oscillator_features.run(**settings)
    ours, rocket, hydra = record["sets"]["Chinatown"].values()
    assert min(ours["by_seed"]) > 0.9
    assert (rocket["accuracy"], rocket["by_seed"], hydra["by_seed"]) == (0.55, [0.5, 0.6], [0.5])
    assert record["peer_versions"] == {"aeon": "0"}
    assert record["against"]["MiniRocketClassifier"] == {"ahead": 1, "equal": 0, "behind": 0}
    monkeypatch.setattr(oscillator_features, "_ours", None)  # nothing is left to measure
    assert oscillator_features.run(**settings) == record


def test_steps_are_dropped_and_read_in_two_ways(real_data):
    from sostenuto.benchmarks import dropped_steps

    record = dropped_steps.run(progress=False, sets=("Chinatown", "GunPoint"), draws=1, data_dir=str(real_data))
    row = record["sets"]["GunPoint"]
    assert row["whole"] >= 0.95
    assert min(row["irregular"] + row["grid"]) > 0.8
    assert record["differences"]["whole − grid"]["mean"] == pytest.approx(
        record["mean"]["whole"] - record["mean"]["grid"]
    )
