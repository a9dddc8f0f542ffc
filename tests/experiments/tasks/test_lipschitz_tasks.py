"""What the figures of erichson2021 share: sweeps of one setting, flows in the plane, units that learn a pendulum."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from sostenuto import datasets
from sostenuto.experiments.catalog import Experiment
from sostenuto.experiments.tasks import sweeps
from sostenuto.experiments.tasks.planar_flows import (
    circle,
    draw_flow,
    flow_trajectories,
    learn_swings,
    lipschitz_flow,
    silent_flow,
    swings,
    two_units,
)
from sostenuto.experiments.workbench import Workbench
from sostenuto.report.figures.plot import plotted
from sostenuto.training.trainer import DivergedError

SETTINGS = {
    "all.layer": "lipschitz",
    "all.hidden_size": 4,
    "all.epochs": 2,
    "all.batch_size": 64,
    "all.validation": 0.2,
    "some.try.beta": [0.5, 1.0],
}


@pytest.fixture
def bench(write_toy, tmp_path):
    experiment = Experiment.read(write_toy() / "toy2009" / "figure_1")
    settings = experiment.settings("quick")
    return Workbench(experiment, settings, protocol="quick", folder=tmp_path / "out", progress=False, device="cpu")


class TestSweep:
    def test_every_value_is_trained_and_tested(self, bench):
        whole = datasets.load("digits")
        data = replace(whole, train=whole.train.take(np.arange(320)), test=whole.test.take(np.arange(160)))
        found = sweeps.sweep(bench, SETTINGS, data, "some", probe=lambda model: {"units": model.layer.hidden_size})
        assert [one.value for one in found] == [0.5, 1.0]
        assert [[row["units"] for row in one.history] for one in found] == [[4, 4], [4, 4]]
        for one in found:
            assert not one.diverged
            assert 0 < one.test <= 100
            assert one.validation == pytest.approx(100 * max(row["validation"] for row in one.history))
        assert found[0].test != found[1].test

    def test_a_training_that_is_lost_is_remembered(self, bench, monkeypatch):
        tried = []

        def lose(bench, key, dataset, recipe, probe=None):
            tried.append(key)
            raise DivergedError("expected a finite loss, got nan in epoch 1.")

        monkeypatch.setattr(sweeps, "train_cell", lose)
        data = datasets.load("digits")
        for _ in range(2):
            found = sweeps.sweep(bench, SETTINGS, data, "some")
            assert [(one.test, one.diverged, one.history) for one in found] == [(0.0, True, [])] * 2
        assert tried == ["some/beta=0.5", "some/beta=1.0"]
        assert "got nan" in bench.notes[0]


class TestFlows:
    def test_a_linear_flow_is_followed_to_the_fourth_order(self):
        turn = torch.tensor([[-0.2, 1.0], [-1.0, -0.2]], dtype=torch.float64)
        flow, starts = lipschitz_flow(turn, torch.zeros_like(turn)), circle(1.0, 5)
        exact = starts @ torch.linalg.matrix_exp(2 * turn).mT
        errors = [
            float((flow_trajectories(flow, starts, duration=2.0, step=s)[:, -1] - exact).abs().max())
            for s in (0.1, 0.05)
        ]
        assert np.log2(errors[0] / errors[1]) == pytest.approx(4, abs=0.2)

    def test_systems_are_followed_side_by_side(self):
        torch.manual_seed(0)
        linear, weight = torch.randn(2, 3, 2, 2, dtype=torch.float64)
        starts = circle(1.0, 4)
        together = flow_trajectories(lipschitz_flow(linear, weight), starts.expand(3, -1, -1), duration=1.0, step=0.1)
        for index in range(3):
            alone = flow_trajectories(lipschitz_flow(linear[index], weight[index]), starts, duration=1.0, step=0.1)
            torch.testing.assert_close(together[index], alone)

    def test_a_portrait_shows_every_path(self):
        flow = lipschitz_flow(-torch.eye(2, dtype=torch.float64), torch.eye(2, dtype=torch.float64))
        paths = flow_trajectories(flow, circle(1.0, 3), duration=1.0, step=0.1).numpy()
        figure = plotted(lambda axes: draw_flow(axes, flow, paths, extent=2.0))
        assert len(figure.axes[0].lines) == 6


class TestPendulum:
    def test_swings_keep_their_energy(self):
        paths = swings(8, reach=1.5, duration=5.0, step=0.05, seed=1)
        energy = paths[..., 1] ** 2 / 2 - paths[..., 0].cos()
        assert float(paths[:, 0].norm(dim=-1).max()) <= 1.5
        assert float((energy - energy[:, :1]).abs().max()) < 1e-6

    def test_learning_brings_the_unit_near(self):
        torch.manual_seed(0)
        paths = swings(6, reach=1.0, duration=2.0, step=0.1, seed=0)
        layer = two_units(1.0, 0.0, 0.1)
        first = learn_swings(layer, paths, {"iterations": 1, "learning_rate": 0.05})
        last = learn_swings(layer, paths, {"iterations": 40, "learning_rate": 0.05})
        assert last < first / 3
        follows = flow_trajectories(silent_flow(layer), paths[:, 0], duration=2.0, step=0.1)
        assert float((follows - paths).square().mean().sqrt()) == pytest.approx(last, rel=0.2)
