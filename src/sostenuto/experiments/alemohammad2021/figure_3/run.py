"""Figure 3 of alemohammad2021: which steps the recurrent NTK is sensitive to, as each σ is varied."""

from functools import partial

import numpy as np

from sostenuto.experiments import Settings, Workbench
from sostenuto.experiments.tasks.wide_networks import mean_sensitivity
from sostenuto.kernels import RecurrentNTK
from sostenuto.report.figures.plot import lines

Curves = dict[float, np.ndarray]


def run(settings: Settings, bench: Workbench) -> None:
    """Vary each σ of both activations, then compare the first steps with the last."""
    results = {(phi, letter): curves(settings, bench, phi, letter) for phi in ("relu", "erf") for letter in "wubh"}
    relu, erf = results["relu", "w"], results["erf", "w"]
    low, high = first_over_last(relu[min(relu)]), first_over_last(relu[max(relu)])
    said = f"first over last: {low:.2g} at σ_w = {min(relu):g}, {high:.2g} at {max(relu):g}"
    name = "ReLU: a smaller σ_w looks at the last steps, a larger one at the first"
    bench.law(name, low < 0.5 and high > 2, said)
    weighed = {value: first_over_last(curve) for value, curve in erf.items()}
    base = weighed[settings.erf[0]]
    said = "first over last: " + ", ".join(f"{share:.2g} at {value:g}" for value, share in weighed.items())
    changed = [share for value, share in weighed.items() if value != settings.erf[0]]
    bench.law("erf: any change of σ_w looks at the last steps", max(changed) < base, said)
    falls = {}
    for phi, shown in (("relu", "ReLU"), ("erf", "erf")):
        by_h = results[phi, "h"]
        none, much = first_share(by_h[0.0]), first_share(by_h[max(by_h)])
        falls[phi] = none / much
        said = f"{100 * none:.2f} % without, {100 * much:.2f} % at σ_h = {max(by_h):g}"
        bench.law(f"σ_h takes weight from the first steps, {shown}", much < none, said)
        base = results[phi, "w"][settings[phi][0]]
        bench.number(f"first tenth over last tenth, {shown} at its base", first_over_last(base))
    said = f"by {falls['relu']:.2f} with ReLU, by {falls['erf']:.2f} with erf"
    bench.law("erf changes more with σ_h than ReLU", falls["erf"] > falls["relu"], said)
    flat = {phi: np.mean([flatness(c) for (p, _), each in results.items() if p == phi for c in each.values()])
            for phi in ("relu", "erf")}  # fmt: skip
    said = f"smallest over largest tenth: {flat['relu']:.2f} with ReLU, {flat['erf']:.2f} with erf"
    bench.law("ReLU is flatter than erf", bool(flat["relu"] > flat["erf"]), said)
    times = list(range(1, settings.steps + 1))
    for (phi, letter), each in results.items():
        series = {f"σ_{letter} = {value:.4g}": curve.tolist() for value, curve in each.items()}
        title = f"{'ReLU' if phi == 'relu' else 'erf'}, σ_{letter}"
        bench.figure(title, partial(lines, x=times, series=series, labels=("step t", "mean of s(t)/max s")))


def curves(settings: Settings, bench: Workbench, phi: str, letter: str) -> Curves:
    """Return the mean sensitivity for every value of one σ, the others at their base."""
    base = dict(zip("wubh", settings[phi], strict=True))
    needed = {"steps": settings.steps, "pairs": settings.pairs}
    made = {}
    for value in bench.progress(settings[f"{phi}_{letter}"], f"{phi}, σ_{letter}"):
        sigmas = {f"sigma_{name}": item for name, item in (base | {letter: value}).items()}
        measure = partial(
            mean_sensitivity, RecurrentNTK(activation=phi, **sigmas), settings.steps, settings.pairs, bench.seed
        )
        key = f"{phi}/" + ",".join(f"{name}={sigma:.6g}" for name, sigma in sigmas.items())
        made[value] = np.asarray(bench.cell(key, measure, depends=needed))
    return made


def first_over_last(curve: np.ndarray) -> float:
    """Compare the mean over the first tenth of the steps with that over the last."""
    tenth = max(1, len(curve) // 10)
    return float(curve[:tenth].mean() / max(curve[-tenth:].mean(), 1e-300))


def first_share(curve: np.ndarray) -> float:
    """Return which part of the whole sensitivity the first tenth of the steps has."""
    return float(curve[: max(1, len(curve) // 10)].sum() / curve.sum())


def flatness(curve: np.ndarray) -> float:
    """Return the smallest mean over a tenth of the steps over the largest."""
    tenth = max(1, len(curve) // 10)
    means = curve[: len(curve) // tenth * tenth].reshape(-1, tenth).mean(axis=1)
    return float(means.min() / means.max())
