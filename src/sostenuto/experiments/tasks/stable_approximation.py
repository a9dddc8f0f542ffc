"""Networks of growing width fitted to functionals of known memory, and how far their weights may move (wang2024).

One criterion of stable approximation serves every figure. E(β) is the error when every parameter has moved by β. The
limit is one number for all widths: `ERRORS` times the error of the first width, at least `FLOOR` of the error of
answering zero. The radius of a width is the largest β up to which E(β) is within the limit. The approximation is stable
where every width keeps `SHARE` of the first width's radius, and loses its stability otherwise.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from sostenuto.audits import perturbation_error
from sostenuto.data.dataset import Dataset, SequenceSet
from sostenuto.data.tasks.linear_functional import linear_functional
from sostenuto.experiments.tasks.recipe import Recipe, make_recipe
from sostenuto.experiments.tasks.trained_cells import train_cell, trained_model
from sostenuto.experiments.workbench import Workbench
from sostenuto.report.figures.plot import lines
from sostenuto.report.palette import MUTED
from sostenuto.training.run_folder import StoredModel

PART_SIZES = {"num_validation": 1280, "num_test": 1280}
ERRORS, FLOOR, SHARE = 2.0, 0.001, 0.25
COUNT = 128
"""Test sequences that E(β) is measured on."""


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
    count: int = COUNT,
) -> dict[str, Any]:
    """Return E(β) of a fitted model on the first ``count`` sequences, and the error without a change.

    Errors are the largest over sequences and steps, over the largest input. Definition 3.4 asks for the worst change,
    so every draw is climbed from: in a wide network a change drawn at random all but misses the few that matter.
    """
    batch = stored.encoding.encode(part.take(np.arange(count)))
    model = stored.model.cpu()
    errors = perturbation_error(
        model, betas, batch.values, target=batch.targets, draws=draws, ascent_steps=ascent_steps, seed=seed
    )
    return {"still": errors.start, "errors": list(errors.error)}


DRAWN = "The level line is the limit that all widths share; the paper draws its curves without numbers."


def common_limit(first: float, zero: float) -> float:
    """Return the error that all widths must stay within, from the first width's and that of answering zero.

    >>> common_limit(0.2, 1.0), common_limit(0.0, 1.0)
    (0.4, 0.001)
    """
    return max(ERRORS * first, FLOOR * zero)


def keeps(radii: Sequence[float], share: float = SHARE) -> bool:
    """Return whether the radius at every width is at least ``share`` of the first's, and the first has one.

    >>> keeps([1.0, 0.5, 2.0]), keeps([1.0, 0.1]), keeps([0.0, 0.0])
    (True, False, False)
    """
    return radii[0] > 0 and min(radii) >= share * radii[0]


def error_of_zero(part: SequenceSet) -> float:
    """Measure, as E(β) is measured, the error of answering zero: the largest target over the largest input."""
    some = part.take(np.arange(min(COUNT, len(part))))
    sizes = (
        float(np.abs(target).max() / np.abs(values).max())
        for target, values in zip(some.targets or (), some.sequences, strict=True)
    )
    return max(sizes)


def draw_errors(axes: Any, *, betas: list[float], curves: Mapping[str, Sequence[float]], limit: float) -> None:
    """Draw E(β), one line a width, and the limit."""
    lines(axes, betas, curves, labels=("β", "E(β)"), log="xy")
    axes.axhline(limit, color=MUTED, linewidth=0.8, linestyle=(0, (2, 2)))


def stable_up_to(betas: Sequence[float], errors: Sequence[float], limit: float) -> float:
    """Return the largest β of a rising list up to which every error is at most ``limit``; 0 where none is.

    >>> stable_up_to([0.1, 0.2, 0.4, 0.8], [0.0, 0.5, 2.0, 0.1], limit=1.0)
    0.2
    """
    good = np.asarray(errors, dtype=float) <= limit
    count = len(good) if good.all() else int(np.argmin(good))
    return float(betas[count - 1]) if count else 0.0


def crossing(betas: Sequence[float], narrow: Sequence[float], wide: Sequence[float]) -> float | None:
    """Return the least β from which the wider model errs more than the narrower one, if there is any.

    >>> crossing([0.1, 0.2, 0.4], [1.0, 1.0, 1.0], [0.1, 2.0, 3.0])
    0.2
    """
    passed = np.asarray(wide, dtype=float) > np.asarray(narrow, dtype=float)
    return float(betas[int(np.argmax(passed))]) if passed.any() else None


def falls(values: Sequence[float]) -> bool:
    """Return whether every value is below the one before it.

    >>> falls([3.0, 2.0, 1.0]), falls([3.0, 3.0])
    (True, False)
    """
    return all(later < earlier for earlier, later in itertools.pairwise(values))


def radii_of_widths(
    bench: Workbench, settings: Mapping[str, Any], data: Dataset, name: str, layer: str, **options: Any
) -> dict[str, list[float]]:
    """Train every width in ``settings``, move its weights, and draw E(β) under ``name``.

    Returns, one number a width: ``error``, what approximation left; ``still``, the largest error without a change;
    ``radius``; and ``doubled``, the β that doubles a width's own ``still``, which shrinks by mere approximating better.
    Weights that move are the trained ones: the free parameter behind a stable matrix, where there is one. ``widest`` is
    E(β) of the last width.
    """
    bench.checksums.setdefault(data.name, data.train.checksum())
    assert data.test is not None
    betas, zero, limit = betas_of(settings), error_of_zero(data.test), 0.0
    results: dict[str, list[float]] = {"error": [], "still": [], "radius": [], "doubled": []}
    curves: dict[str, Sequence[float]] = {}
    trainings = {
        width: (
            f"{name.replace(' ', '-')}/width={width}",
            data,
            functional_recipe(settings, layer, width, seed=bench.seed, **options),
        )
        for width in settings["widths"]
    }
    bench.ahead(partial(train_cell, bench, *training) for training in trainings.values())
    for width, training in trainings.items():
        error, curve = fitted_width(bench, settings, *training)
        results["error"].append(error)
        results["still"].append(curve["still"])
        limit = common_limit(results["still"][0], zero)
        results["radius"].append(stable_up_to(betas, curve["errors"], limit))
        results["doubled"].append(stable_up_to(betas, curve["errors"], 2 * curve["still"]))
        curves[f"m = {width}"] = curve["errors"]
    bench.figure(f"E(β), {name}", partial(draw_errors, betas=betas, curves=curves, limit=limit), caption=DRAWN)
    rows = list(zip(settings["widths"], *results.values(), strict=True))
    lengths = ("radius: β up to the limit", "β up to twice its own error")
    bench.table(name, ("width", "error of approximation", "largest error", *lengths), rows)
    return results | {"widest": list(curves[f"m = {settings['widths'][-1]}"])}


def told(radii: Sequence[float]) -> str:
    """Write radii for a law's evidence.

    >>> told([0.1, 0.25])
    'β ≤ 0.1, 0.25'
    """
    return "β ≤ " + ", ".join(f"{radius:.2g}" for radius in radii)
