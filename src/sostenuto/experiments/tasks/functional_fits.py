"""Networks fitted to functionals of known memory, and the error that is left when their weights move (wang2024)."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from sostenuto.audits import perturbation_error
from sostenuto.data.dataset import Dataset, SequenceSet
from sostenuto.data.tasks.linear_functional import linear_functional
from sostenuto.experiments.tasks.device_training import train_cell, trained_model
from sostenuto.experiments.tasks.recipe import Recipe, make_recipe
from sostenuto.experiments.workbench import Workbench
from sostenuto.training.run_folder import StoredModel

PART_SIZES = {"num_validation": 1280, "num_test": 1280}


def functional(seed: int, *, num_train: int, num_steps: int, gain: float = 0.0, **memory: Any) -> Dataset:
    """Draw inputs and a functional of them: y = ∫ρ x, or tanh(gain · ∫ρ x) where ``gain`` is above 0.

    The second is nonlinear with the same memory: its answer to a step moves by sech²(·)·gain·ρ(t).

    >>> data = functional(0, num_train=2, num_steps=8, gain=3.0, memory="polynomial", exponent=1.5, step_size=0.1)
    >>> data.train.targets[0].shape, bool(abs(data.train.targets[0]).max() < 1)
    ((8, 1), True)
    """
    drawn = linear_functional(seed, num_train=num_train, num_steps=num_steps, **PART_SIZES, **memory)

    def bent(part: SequenceSet | None) -> SequenceSet | None:
        if part is None or gain == 0 or part.targets is None:
            return part
        return replace(part, targets=[np.tanh(gain * target) for target in part.targets])

    train = bent(drawn.train)
    assert train is not None
    return replace(drawn, train=train, validation=bent(drawn.validation), test=bent(drawn.test))


def functional_recipe(settings: Mapping[str, Any], layer: str, width: int, *, seed: int = 0, **options: Any) -> Recipe:
    """Build the paper's training: Adam, mean squared error, nothing scaled or clipped."""
    training = {name: settings[name] for name in ("epochs", "batch_size", "learning_rate", "schedule")}
    device = {"graph": settings["graph"], "evaluate_every": settings["evaluate_every"]}
    chosen = {"hidden_size": width, "num_layers": 1, "step_size": settings["step_size"], **options}
    fixed = {"layer": layer, "optimizer": "adam", "gradient_clip": 0.0, "scaling": "none", "seed": seed}
    return make_recipe({**fixed, **training, **device, **chosen})


def fitted_width(
    bench: Workbench, settings: Mapping[str, Any], key: str, data: Dataset, recipe: Recipe
) -> tuple[float, dict[str, Any]]:
    """Train one width; give its validation error, and E(β) on the test part at the ``settings``' betas."""
    error = train_cell(bench, key, data, recipe)["validation"]
    return error, curve_cell(bench, settings, key, data, recipe, data.test)


def curve_cell(
    bench: Workbench,
    settings: Mapping[str, Any],
    key: str,
    data: Dataset,
    recipe: Recipe,
    part: SequenceSet | None,
    name: str = "curve",
) -> dict[str, Any]:
    """Measure E(β) of what `train_cell` trained under ``key``, on a part of this or of a longer functional."""
    assert part is not None

    def measure() -> dict[str, Any]:
        stored = trained_model(bench, key, data, recipe)
        search = {"draws": settings["draws"], "ascent_steps": settings["ascent_steps"], "seed": bench.seed}
        return error_curve(stored, part, betas_of(settings), **search)

    return bench.cell(f"{key}/{name}", measure)


def betas_of(settings: Mapping[str, Any]) -> list[float]:
    """List the sizes of a change, each √2 times the one before."""
    return [settings["first_beta"] * 2 ** (power / 2) for power in range(settings["num_betas"])]


def error_curve(
    stored: StoredModel,
    part: SequenceSet,
    betas: list[float],
    *,
    draws: int,
    ascent_steps: int,
    seed: int,
    count: int = 128,
) -> dict[str, Any]:
    """Return E(β) of a fitted model on the first ``count`` sequences, and the error without a change.

    Errors are the largest over sequences and steps, over the largest input. Definition 3.4 asks for the worst change,
    so every draw is climbed from: in a wide network a change drawn at random all but misses the few that matter.
    """
    batch = stored.encoding.encode(part.take(np.arange(count)))
    model = stored.model.cpu()
    found = perturbation_error(
        model, betas, batch.values, target=batch.targets, draws=draws, ascent_steps=ascent_steps, seed=seed
    )
    return {"still": found.start, "errors": list(found.error)}
