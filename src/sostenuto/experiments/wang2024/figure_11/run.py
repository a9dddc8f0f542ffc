"""Figure 11 of wang2024: tanh RNNs whose memory does not decay."""

from functools import partial
from typing import Any

import numpy as np

from sostenuto.experiments import Settings, Workbench
from sostenuto.report.figures.plot import lines

MATRIX = np.array([[1.0, 1.0], [-4.0, -3.0]])


def run(settings: Settings, bench: Workbench) -> None:
    """Follow the paper's network after small and large steps, and random ones after a step of 1."""
    turns = np.linspace(0, 2 * np.pi, settings.directions, endpoint=False)
    circle = np.stack([np.cos(turns), np.sin(turns)], axis=1)
    results = {}
    for size in ("small", "large"):
        work = partial(follow, settings, MATRIX, settings[size] * circle)
        results[size] = bench.cell(f"step/{size}", work)
    at_rest = np.abs(results["small"]["then"]).max()
    bench.law("small steps are forgotten", bool(at_rest < 1e-3), f"largest speed {at_rest:.2g}")
    then = np.asarray(results["large"]["then"])
    moving = np.abs(then).max(1) > 0.9
    told = f"{int(moving.sum())} of {len(then)} directions"
    bench.law("large steps keep it moving", bool(moving.mean() > 0.5), told)
    opposite = (then[moving].prod(1) < 0).all()
    bench.law(
        "it moves along ±(1, −1)", bool(moving.any() and opposite), f"e.g. {np.round(then[moving][:1], 3).tolist()}"
    )
    speeds = bench.cell("random", partial(random_speeds, settings, bench.seed))
    share = float(np.mean(np.asarray(speeds) > 0.01))
    bench.law("some random networks never rest", share > 0, f"{100 * share:.0f} % of {len(speeds)}")
    bench.number("share of random networks that move", 100 * share)
    series = {f"step of {settings[size]:g}": results[size]["speeds"] for size in results}
    draw = partial(lines, x=results["small"]["times"], series=series, labels=("t", "largest |dh/dt|"), log="y")
    bench.figure("Speed after a step", draw, caption="Largest over the directions of the step.")


def follow(settings: Settings, matrix: np.ndarray, inputs: np.ndarray) -> dict[str, Any]:
    """Integrate dh/dt = tanh(W h + x) from rest, one row of ``inputs`` each; give speeds, and dh/dt at the moment."""
    state, times, speeds, then = np.zeros_like(inputs), [], [], np.zeros_like(inputs)
    for count in range(round(settings.until / settings.step)):
        rate = np.tanh(state @ matrix.T + inputs)
        state = state + settings.step * rate
        if count == round(settings.moment / settings.step):
            then = rate
        if count % 25 == 0:
            times.append(count * settings.step)
            speeds.append(max(float(np.abs(rate).max()), 1e-16))
    return {"then": then, "times": times, "speeds": speeds}


def random_speeds(settings: Settings, seed: int) -> list[float]:
    """Draw W normal with deviation gain/√m, put a step of 1 on every unit, and give each network's speed later."""
    rng = np.random.default_rng(seed)
    width = settings.hidden_size
    drawn = [rng.normal(0, settings.gain / np.sqrt(width), (width, width)) for _ in range(settings.random_networks)]
    inputs = rng.choice([-1.0, 1.0], (1, width))
    return [float(np.abs(follow(settings, matrix, inputs)["then"]).max()) for matrix in drawn]
