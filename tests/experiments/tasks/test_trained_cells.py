"""Trainings as cells: views, noise and mixtures of batches, stopped and taken up, scored apart."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from sostenuto import datasets
from sostenuto.checks import InputError
from sostenuto.data.batch import SequenceBatch
from sostenuto.data.encoding import Encoding
from sostenuto.experiments.catalog import Experiment
from sostenuto.experiments.tasks.contest import candidates, compete
from sostenuto.experiments.tasks.long_data import cut, pooled, rate_stand_in, wave_stand_in, word_stand_in
from sostenuto.experiments.tasks.recipe import VariationConfig, make_recipe, with_seed
from sostenuto.experiments.tasks.trained_cells import prepare, scored_cell, train_cell, trained_model
from sostenuto.experiments.tasks.variation import Variation, mixed, viewed
from sostenuto.experiments.workbench import StoppedError, Workbench
from sostenuto.models.prediction import SequenceClassifier
from sostenuto.nn import GRU
from sostenuto.training.objective import Objective
from sostenuto.training.optimizers import set_learning_rate

SETTINGS = {
    "layer": "unicornn",
    "hidden_size": 4,
    "num_layers": 2,
    "dropout": 0.2,
    "readout_dropout": 0.1,
    "epochs": 3,
    "batch_size": 32,
    "ema_decay": 0.9,
    "weight_decay": 0.01,
    "validation": 0.3,
    "checkpoint_seconds": 0.0,
}


def images(values: torch.Tensor, dtype=None, targets: torch.Tensor | None = None) -> SequenceBatch:
    count, steps = values.shape[:2]
    targets = torch.zeros(count, dtype=torch.long) if targets is None else targets
    return SequenceBatch(values.to(dtype or values.dtype), torch.full((count,), steps), targets)


@pytest.fixture
def make_bench(write_toy, tmp_path):
    experiment = Experiment.read(write_toy() / "toy2009" / "figure_1")

    def make(name: str) -> Workbench:
        settings = experiment.settings("quick")
        return Workbench(experiment, settings, protocol="quick", folder=tmp_path / name, progress=False, device="cpu")

    return make


@pytest.fixture(scope="module")
def digits():
    whole = datasets.load("digits")
    return replace(whole, train=whole.train.take(np.arange(200)), test=whole.test.take(np.arange(60)))


class TestParts:
    def test_padding_is_not_looked_at(self):
        torch.manual_seed(0)
        model = SequenceClassifier(GRU(1, 5, batch_first=True), 3).eval()
        values, lengths = torch.randn(4, 9, 1), torch.tensor([3, 9, 5, 1])
        alone = torch.cat([model(values[i : i + 1, : lengths[i]]) for i in range(4)])
        model.packs = False
        torch.testing.assert_close(model(values, lengths), alone)

    def test_noise_comes_after_the_signal_and_anew(self):
        variation, batch = Variation(VariationConfig(noise_steps=12)), images(torch.ones(5, 4, 2))
        one, other = variation(batch), variation(batch)
        assert one.values.shape == (5, 12, 2)
        assert one.lengths.tolist() == 5 * [12]
        assert torch.equal(one.values[:, :4], batch.values)
        assert not torch.equal(one.values[:, 4:], other.values[:, 4:])

    def test_a_part_is_scored_with_the_same_noise_every_time(self, digits):
        training = prepare(digits, make_recipe({**SETTINGS, "noise_steps": 70, "epochs": 1}), "cpu")
        one, other = (training.trainer._evaluate(training.trainer.validation_source) for _ in range(2))
        assert one == other


class TestVariation:
    def test_mirrors_keep_rows_and_the_channels_of_a_pixel(self):
        image = torch.arange(2 * 3 * 2.0).reshape(1, 2, 3, 2)
        turned = image.flip(2)
        for shape in ((6, 2), (2, 6)):
            settings = VariationConfig(image_width=3, mirror=True)
            drawn = viewed(image.reshape(1, *shape).expand(64, -1, -1), settings).reshape(64, 2, 3, 2)
            as_it_was, as_turned = ((drawn == one).flatten(1).all(1) for one in (image, turned))
            assert bool((as_it_was ^ as_turned).all())
            assert 0 < as_turned.sum() < 64
        with pytest.raises(InputError, match="rows of 4 pixels"):
            viewed(torch.zeros(1, 6, 1), VariationConfig(image_width=4, mirror=True))
        with pytest.raises(InputError, match="expected an image_width for views of images"):
            make_recipe(SETTINGS | {"shift": 1.0})

    def test_views_move_the_middle_of_an_image_no_further_than_they_may(self):
        """A bright square stays bright, its centroid moves by at most the shift, and turning keeps it where it is."""
        image = torch.zeros(1, 12, 12, 1)
        image[:, 4:8, 4:8] = 1.0
        image = image.expand(200, -1, -1, -1).reshape(200, 144, 1)
        places = torch.arange(12.0) - 5.5

        def centroids(settings: VariationConfig) -> torch.Tensor:
            views = viewed(image, settings).reshape(200, 12, 12)
            mass = views.sum((1, 2))
            return torch.stack([(views.sum(2) * places).sum(1), (views.sum(1) * places).sum(1)], 1) / mass[:, None]

        moved = centroids(VariationConfig(image_width=12, shift=1.5)).abs()
        assert 1.2 < moved.max() <= 1.5 + 1e-5
        assert centroids(VariationConfig(image_width=12, turn=30.0)).abs().max() < 1e-5
        masses = viewed(image, VariationConfig(image_width=12, zoom=0.2)).sum((1, 2)) / 16
        assert 1 / 1.2**2 - 0.1 < masses.min() < 0.8
        assert 1.3 < masses.max() < 1 / 0.8**2 + 0.1

    def test_bent_views_move_pixels_as_far_as_asked_and_neighbors_alike(self):
        """Pixels that hold their own place tell where they were taken from, away from the border that ends them."""
        side = 24
        place = torch.arange(float(side)).expand(side, side)
        image = torch.stack([place, place.T], -1).reshape(1, side * side, 2).expand(300, -1, -1)
        moved = (viewed(image, VariationConfig(image_width=side, bend=0.8)) - image).reshape(300, side, side, 2)
        inner = moved[:, 6:-6, 6:-6]
        assert inner.mean().abs() < 0.05
        assert 0.5 < inner.std() < 0.9
        assert inner.diff(dim=1).std() < 0.3 * inner.std()
        with pytest.raises(InputError, match="bend of at least 0"):
            VariationConfig(image_width=side, bend=-1.0)

    def test_views_of_whole_pixels_hold_no_other_values_and_a_share_of_images_stays_as_it_is(self):
        images = torch.randint(5, (400, 36, 1)).float()
        settings = VariationConfig(image_width=6, shift=1.5, turn=10.0, whole_pixels=True, view_share=0.25)
        views = viewed(images, settings)
        assert set(views.unique().tolist()) == {0.0, 1.0, 2.0, 3.0, 4.0}
        assert 0.15 < (views != images).flatten(1).any(1).float().mean() < 0.3
        blurred = viewed(images, VariationConfig(image_width=6, shift=1.5))
        assert len(blurred.unique()) > 1000
        assert not VariationConfig(image_width=6, shift=1.5, view_share=0.0).views

    def test_views_of_permuted_images_are_permuted_views(self):
        order, images = torch.randperm(30), torch.rand(7, 30, 1)
        settings = VariationConfig(image_width=6, mirror=True, shift=1.0, turn=10.0, zoom=0.1, bend=0.5)
        torch.manual_seed(4)
        plain = viewed(images, settings)
        torch.manual_seed(4)
        assert torch.equal(viewed(images[:, order], settings, order), plain[:, order])

    def test_the_order_of_permuted_pixels_reaches_the_training(self):
        recipe = make_recipe(SETTINGS | {"image_width": 8, "shift": 1.0})
        for name in ("digits", "digits/permuted"):
            whole = datasets.load(name)
            source = prepare(replace(whole, train=whole.train.take(np.arange(80))), recipe, "cpu").trainer.train_source
            assert (source.transform.order is None) == (name == "digits")
        plain = datasets.load("digits").train.sequences[0]
        assert np.array_equal(whole.train.sequences[0], plain[whole.extras["order"]])

    def test_mixing_mixes_values_as_its_shares_say(self):
        values, classes = torch.randn(6, 5, 2, dtype=torch.float64), torch.arange(6) % 3
        batch = SequenceBatch(values, torch.full((6,), 5), classes)
        blend = mixed(batch, 0.4, 3)
        own = torch.eye(3, dtype=torch.float64)[classes]
        share = (blend.targets - own)[:, :, None].norm(dim=1) / (own.flip(0) - own)[:, :, None].norm(dim=1)
        changed = classes != classes.flip(0)
        assert 0 <= share[changed].min() < share[changed].max() <= 0.4
        weight = share[changed][:, :, None]
        torch.testing.assert_close(
            blend.values[changed], ((1 - weight) * values[changed] + weight * values.flip(0)[changed])
        )
        torch.testing.assert_close(blend.targets.sum(1), torch.ones(6, dtype=torch.float64))
        scores = torch.randn(6, 3, dtype=torch.float64)
        objective = Objective(classes=True, steps=False, label_smoothing=0.1)
        weight = torch.where(changed, share[:, 0], 0.0).double()
        apart = [objective.losses(scores, one) for one in (batch, batch.replaced(targets=classes.flip(0)))]
        torch.testing.assert_close(objective.losses(scores, blend), torch.lerp(*apart, weight))
        assert mixed(batch, 0.0, 3) is batch
        for unfit in (images(torch.ones(6, 3), torch.int32), images(values, targets=torch.ones(6))):
            with pytest.raises(InputError, match="set mixing to 0"):
                mixed(unfit, 0.4, 3)

    def test_a_mixed_training_learns(self, digits):
        recipe = make_recipe(SETTINGS | {"mixing": 0.3, "epochs": 6, "learning_rate": 0.02})
        history = prepare(digits, recipe, "cpu").run().history
        assert history[-1]["train_loss"] < history[0]["train_loss"]

    def test_a_training_that_loses_its_way_ends_with_its_best_weights(self, digits):
        said = []

        def spoil(text: str) -> None:
            said.append(text)
            training.trainer.step.loss_sum.fill_(torch.nan)

        training = prepare(digits, make_recipe(SETTINGS), "cpu", say=spoil)
        progress = training.run()
        assert "expected a finite loss, got nan" in progress.diverged
        assert (len(said), len(progress.history), progress.best_epoch) == (1, 1, 1)


class TestCells:
    @pytest.mark.parametrize("more", [{}, {"optimizer": "muon", "hidden_size": 16}], ids=["adamw", "muon"])
    def test_stopped_and_taken_up_ends_with_the_same_weights(self, make_bench, digits, monkeypatch, more):
        recipe = make_recipe(SETTINGS | more)
        whole, sliced = make_bench("whole"), make_bench("sliced")
        alone = train_cell(whole, "fit", digits, recipe)
        asked = iter(range(8))

        def out_of_time() -> None:
            if next(asked, None) == 7:
                raise StoppedError("stopped")

        monkeypatch.setattr(sliced, "check_time", out_of_time)
        with pytest.raises(StoppedError):
            train_cell(sliced, "fit", digits, recipe)
        later = make_bench("sliced")
        found = train_cell(later, "fit", digits, recipe)
        assert [row["train_loss"] for row in found["history"]] == [row["train_loss"] for row in alone["history"]]
        ours, theirs = (trained_model(bench, "fit", digits, recipe).model.state_dict() for bench in (later, whole))
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
        assert scored_cell(later, "fit", digits, recipe) == scored_cell(whole, "fit", digits, recipe)

    def test_seeds_share_the_validation_part(self, digits):
        recipes = (with_seed(make_recipe(SETTINGS), seed) for seed in (0, 1))
        one, other = (prepare(digits, recipe, "cpu") for recipe in recipes)
        parts = [training.trainer.validation_source.data.values for training in (one, other)]
        assert torch.equal(*parts)
        weights = [training.model.head.weight for training in (one, other)]
        assert not torch.equal(*weights)

    def test_lost_weights_are_told_of(self, make_bench, digits):
        with pytest.raises(InputError, match="remove the cell fit to train it again"):
            trained_model(make_bench("run"), "fit", digits, make_recipe(SETTINGS))

    def test_words_waves_and_rates_are_learned(self):
        """Tokens of unequal length, long waves and a regression all go through the same loop."""
        shared = {**SETTINGS, "epochs": 2, "batch_size": 16, "learning_rate": 0.02}
        words = make_recipe({**shared, "embedding_size": 8, "buckets": [30]})
        found = prepare(cut(word_stand_in(0), 50), words, "cpu").run()
        assert found.history[-1]["train_loss"] < 0.72
        waves = make_recipe({**shared, "subsample": 20, "test_fraction": 0.2})
        assert prepare(pooled(wave_stand_in(0, count=60, steps=80)), waves, "cpu").run().best_epoch is not None
        rates = make_recipe({**shared, "task": "regression", "test_fraction": 0.2})
        training = prepare(rate_stand_in(0, count=60, steps=80), rates, "cpu")
        assert 0 < -training.run().best_score[0] < 20
        assert isinstance(training.encoding, Encoding)


def test_contest_chooses_on_validation_and_tests_the_chosen(make_bench, digits):
    settings = {
        **{f"all.{name}": value for name, value in SETTINGS.items() if name != "hidden_size"},
        "seeds": 2,
        "small.hidden_size": 2,
        "wide.try.hidden_size": [3, 6],
        "easy.batch_size": 50,
    }
    assert list(candidates(settings, "wide")) == ["wide/hidden_size=3", "wide/hidden_size=6"]
    assert candidates(settings, "small", "easy")["small"].run.training.batch_size == 50
    apart = settings | {"easy.small.batch_size": 20, "easy.small.try.epochs": [1, 2]}
    found = candidates(apart, "small", "easy")
    assert list(found) == ["small/epochs=1", "small/epochs=2"]
    assert {one.run.training.batch_size for one in found.values()} == {20}
    assert candidates(apart, "wide", "easy") == candidates(settings, "wide", "easy")
    assert candidates(apart, "small") == candidates(settings, "small")
    bench = make_bench("contest")
    found = compete(bench, settings, digits, {"small": "a small one", "wide": "a wide one"}, part="easy")
    assert len(found["wide"].scores) == 2
    assert found["wide"].records[0]["validation"] == max(
        train_cell(bench, f"easy/{key}/seed=0", digits, recipe)["validation"]
        for key, recipe in candidates(settings, "wide", "easy").items()
    )
    tested = [path.name for path in (bench.folder / "cells").rglob("test.*.json")]
    assert len(tested) == 4
    assert len(bench.tables[0].rows) == 4


def test_word_vectors_learn_at_their_own_rate():
    """At rate 0 they stay as given while the rest moves; at rate 1 they move too."""
    words = word_stand_in(0)
    moved = {}
    for rate in (0.0, 1.0):
        recipe = make_recipe(
            SETTINGS | {"embedding_size": 4, "epochs": 1, "weight_decay": 0.0, "embedding_rate": rate, "ema_decay": 0.0}
        )
        training = prepare(words, recipe, "cpu")
        before = {name: value.clone() for name, value in training.model.state_dict().items()}
        training.run()
        after = training.model.state_dict()
        moved[rate] = {name: not torch.equal(after[name], before[name]) for name in before}
    assert not moved[0.0].pop("embedding.weight")
    assert all(moved[0.0].values())
    assert all(moved[1.0].values())


def test_rare_words_move_less_than_frequent_ones_where_they_share_a_moment():
    words = word_stand_in(0)
    settings = SETTINGS | {"embedding_size": 4, "epochs": 1, "weight_decay": 0.0, "ema_decay": 0.0}
    training = prepare(words, make_recipe(settings | {"even_words": True}), "cpu")
    table, optimizer = training.model.embedding.weight, training.trainer.state.optimizer
    frequent, rare, unseen = 1, 2, 3
    table.grad = torch.zeros_like(table)
    for word, gradient in ((frequent, 1.0), (rare, 0.01)):
        table.grad[word] = gradient
    before = table.detach().clone()
    set_learning_rate(optimizer, 0.1)
    optimizer.step()
    moved = (before - table).detach()
    torch.testing.assert_close(moved[rare], moved[frequent] / 100)
    assert not moved[unseen].any()
    with pytest.raises(InputError, match="expected adamw with even_words, got 'adam'"):
        make_recipe(settings | {"even_words": True, "optimizer": "adam"})
