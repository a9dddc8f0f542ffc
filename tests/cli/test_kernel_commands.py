"""``sostenuto gram`` and ``sostenuto fit --model rntk``: from a file to a matrix, a run, a page and predictions."""

import csv
import io
import json

import numpy as np
import pytest

from sostenuto.estimators import OscillatorFeatures
from sostenuto.estimators.rntk.base import unit_norm
from sostenuto.kernels import NTK, RBF, Polynomial, RecurrentNTK, Signature
from tests.cli.small import call, said, write_waves
from tests.report.html_check import Page

FAST = ("--quiet", "--model", "rntk", "-o", "search=none", "-o", "sigma_w=1.4", "-o", "folds=3")


class TestGram:
    def test_it_is_the_matrix_of_the_training_part(self, tmp_path):
        data = write_waves(tmp_path / "waves.npz", 12)
        out = tmp_path / "gram.npy"
        result = call("gram", data, "--kernel", "rntk", "-o", "sigma_w=1.4", "--out", out, "--quiet")
        assert result.exit_code == 0, result.stderr
        assert "[12, 12]" in result.stdout
        sequences = [unit_norm(x) for x in np.load(data)["X"]]
        np.testing.assert_allclose(np.load(out), RecurrentNTK(sigma_w=1.4)(sequences), rtol=1e-12)

    @pytest.mark.parametrize(
        ("name", "options", "kernel"),
        [
            ("ntk", ("num_layers=2", "sigma_b=0.1"), NTK(2, sigma_b=0.1)),
            (
                "signature",
                ("level=3", "scale=0.5", "time_augmentation=false"),
                Signature(3, scale=0.5, time_augmentation=False),
            ),
            ("polynomial", ("degree=3", "offset=0.5"), Polynomial(3, 0.5)),
            ("rbf", ("length_scale=0.7",), RBF(0.7)),
        ],
    )
    def test_every_kernel_by_its_name(self, tmp_path, name, options, kernel):
        data = write_waves(tmp_path / "waves.npz", 6)
        given = [part for option in options for part in ("-o", option)]
        result = call("gram", data, "--kernel", name, *given, "--out", tmp_path / "gram.npy", "--quiet")
        assert result.exit_code == 0, result.stderr
        expected = kernel([unit_norm(x) for x in np.load(data)["X"]])
        np.testing.assert_allclose(np.load(tmp_path / "gram.npy"), expected, rtol=1e-12)

    def test_that_of_oscillators_is_of_a_whole_however_it_is_cut(self, tmp_path):
        data = write_waves(tmp_path / "waves.npz", 12)
        options = ("--kernel", "oscillators", "-o", "n_units=40", "--tile-size", 5, "--quiet")
        result = call("gram", data, *options, "--out", tmp_path / "gram.npy")
        assert result.exit_code == 0, result.stderr
        sequences = np.load(data)["X"]
        features = OscillatorFeatures(40, random_state=0).fit_transform(list(sequences))
        varying = features[:, features.std(0) > 1e-6]
        standard = (varying - varying.mean(0)) / varying.std(0)
        np.testing.assert_allclose(
            np.load(tmp_path / "gram.npy"), standard @ standard.T / standard.shape[1], rtol=1e-3, atol=1e-4
        )

    def test_parts_raw_values_and_json(self, tmp_path):
        zarr = pytest.importorskip("zarr")
        out = tmp_path / "cross.zarr"
        options = ("--kernel", "rbf", "-o", "length_scale=3", "--part", "cross", "--no-unit-norm", "--json")
        result = call("gram", "task/spirals", "--out", out, "--tile-size", 64, *options)
        assert result.exit_code == 0, result.stderr
        found = json.loads(result.stdout)
        assert found["shape"] == list(zarr.open_array(out, mode="r").shape)

    def test_a_cluster_by_its_address(self, tmp_path):
        distributed = pytest.importorskip("distributed")
        data = write_waves(tmp_path / "waves.npz", 12)
        options = {"threads_per_worker": 1, "processes": False, "dashboard_address": None}
        with (
            distributed.LocalCluster(n_workers=1, **options) as cluster,
            distributed.Client(cluster, set_as_default=False),
        ):
            address = cluster.scheduler_address
            result = call("gram", data, "--kernel", "rbf", "--out", tmp_path / "a.npy", "--scheduler", address)
            assert result.exit_code == 0, result.stderr
        expected = RBF()([unit_norm(x) for x in np.load(data)["X"]])
        np.testing.assert_allclose(np.load(tmp_path / "a.npy"), expected, rtol=1e-14)

    def test_refusals(self, tmp_path):
        data = write_waves(tmp_path / "waves.npz", 12)
        assert "expected kernel to be one of 'rntk', 'ntk', 'oscillators', 'signature', 'rbf', 'polynomial'" in said(
            call("gram", data, "--kernel", "x", "--out", tmp_path / "a.npy")
        )
        assert "expected options of RBF" in said(
            call("gram", data, "--kernel", "rbf", "-o", "scale=1", "--out", tmp_path / "a.npy")
        )
        assert "expected out to end in .zarr or .npy" in said(
            call("gram", data, "--out", tmp_path / "a.txt", "--quiet")
        )
        assert "expected a test part" in said(call("gram", data, "--out", tmp_path / "a.npy", "--part", "test"))
        assert "expected sigma_w" in said(
            call("gram", data, "--out", tmp_path / "a.npy", "-o", "sigma_w=-1", "--quiet")
        )


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kernel")
    train, test = write_waves(folder / "train.npz"), write_waves(folder / "test.npz", 9, seed=1)
    result = call("fit", train, "--test", test, *FAST, "--out", folder / "run")
    assert result.exit_code == 0, result.stderr
    return folder, result


class TestFit:
    def test_the_folder_holds_what_a_run_holds(self, run):
        folder, result = run
        names = {path.name for path in (folder / "run").iterdir()}
        assert names == {
            "config.toml", "model.safetensors", "predictions.csv", "report.html", "result.json", "kernel.json",
            "split.json",
        }  # fmt: skip
        assert "rntk" in result.stdout
        stored = json.loads((folder / "run" / "result.json").read_text())
        assert stored["score"] > 0.6
        assert {baseline["name"] for baseline in stored["baselines"]} >= {"1-nearest neighbor"}

    def test_the_page_shows_the_kernel(self, run):
        page = (run[0] / "run" / "report.html").read_text()
        assert Page(page).faults == []
        for words in ("What the kernel sees", "The Gram matrix", "Eigenvalue decay", "kernel alignment", "σ_w = 1.4"):
            assert words in page
        assert "no learning curve" not in page

    def test_predictions_are_those_of_the_run(self, run):
        folder, _ = run
        result = call("predict", folder / "run", folder / "test.npz", "--quiet")
        assert result.exit_code == 0, result.stderr
        assert result.stdout == (folder / "run" / "predictions.csv").read_text()
        rows = list(csv.DictReader(io.StringIO(result.stdout)))
        assert {row["predicted"] for row in rows} <= {"slow", "fast"}
        found = json.loads(call("predict", folder / "run", folder / "test.npz", "--json").stdout)
        assert found["predictions"] == [row["predicted"] for row in rows]

    def test_resuming_gives_the_same_run(self, run):
        folder, _ = run
        before = (folder / "run" / "model.safetensors").read_bytes()
        assert call("fit", "--resume", folder / "run", "--quiet").exit_code == 0
        assert (folder / "run" / "model.safetensors").read_bytes() == before

    @pytest.mark.parametrize("model", ["ridge", "gp"])
    def test_numbers(self, tmp_path, model):
        train = write_waves(tmp_path / "train.npz", targets="numbers")
        options = ("-o", f"model={model}", "-o", "sigma_w=1.4", "-o", "sigma_b=0.1")
        result = call("fit", train, "--model", "rntk", *options, "--out", tmp_path / "run", "--json")
        assert result.exit_code == 0, result.stderr
        assert json.loads(result.stdout)["metric"] == "rmse"
        assert call("predict", tmp_path / "run", train, "--quiet").exit_code == 0

    def test_refusals(self, tmp_path):
        train = write_waves(tmp_path / "train.npz")
        out = ("--out", tmp_path / "run")
        assert "got epochs" in said(call("fit", train, *FAST, "--epochs", 3, *out))
        assert "expected options of RNTKClassifier" in said(call("fit", train, *FAST, "-o", "width=3", *out))
        steps = write_waves(tmp_path / "steps.npz", targets="steps")
        assert "got sequence" in said(call("fit", steps, "--task", "sequence", *FAST, *out))
        assert not (tmp_path / "run").exists()
