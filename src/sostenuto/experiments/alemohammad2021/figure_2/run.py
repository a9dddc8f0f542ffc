"""Figure 2 of alemohammad2021: tangent kernels of finite networks, tied and untied, approach the recurrent NTK."""

from functools import partial
from typing import Any

import numpy as np
import torch

from sostenuto.experiments import Settings, Workbench
from sostenuto.experiments.tasks.wide_networks import tangent_products
from sostenuto.kernels import RecurrentNTK
from sostenuto.kernels.wide_rnn import WideRNN
from sostenuto.report.figures.plot import lines


def run(settings: Settings, bench: Workbench) -> None:
    """Turn the short sequence, then widen the networks."""
    angles = np.linspace(0, 2 * np.pi, settings.angles)
    limit = bench.cell("limit", partial(limit_over_angles, settings, angles))
    turned = {
        width: bench.cell(f"angles/width={width}", partial(over_angles, settings, angles, width, True, 1))[0]
        for width in settings.shown_widths
    }
    away = {width: np.subtract(values, limit) for width, values in turned.items()}
    narrow, wide = away[settings.shown_widths[0]], away[settings.shown_widths[-1]]
    share = 100 * np.abs(wide).max() / np.abs(limit).max()
    bench.number("largest distance to the limit over α, in its largest value", share)
    sizes = [float(np.sqrt((each**2).mean())) for each in (narrow, wide)]
    said = f"{sizes[0]:.3g} at n = {settings.shown_widths[0]}, {sizes[1]:.3g} at n = {settings.shown_widths[-1]}"
    bench.law("the widest network follows the limit over α", sizes[1] < sizes[0] / 3, said)
    compare_lengths(settings, bench, angles, np.asarray(limit))
    compare_widths(settings, bench)
    series = {f"n = {width}": values for width, values in turned.items()} | {"n = ∞": limit}
    bench.figure(
        "Sequences of 3 and 2 steps",
        lambda axes: lines(axes, angles.tolist(), series, labels=("α", "Θ(x, x′)")),
        caption="x = {1, −1, 1}, x′ = {cos α, sin α}; one network a width.",
    )


def compare_lengths(settings: Settings, bench: Workbench, angles: np.ndarray, limit: np.ndarray) -> None:
    """Average tied and untied networks over draws at lengths 3 and 2."""
    width, far = settings.shown_widths[-1], []
    for tied in (True, False):
        name = "tied" if tied else "untied"
        measure = partial(over_angles, settings, angles[::6], width, tied, settings.networks)
        draws = np.asarray(bench.cell(f"lengths/{name}", measure))
        errors = draws.std(axis=0, ddof=1) / len(draws) ** 0.5
        far.append(np.abs(draws.mean(axis=0) - limit[::6]) / errors)
    said = f"at most {far[0].max():.1f} standard errors tied, {far[1].max():.1f} untied ({settings.networks} networks)"
    holds = bool(far[1].max() > 3 and far[1].max() > far[0].max())
    bench.law("untied networks have another limit at unequal lengths", holds, said)


def compare_widths(settings: Settings, bench: Workbench) -> None:
    """Follow the relative error of both kinds as the width grows."""
    errors: dict[str, np.ndarray] = {}
    for tied in (True, False):
        name = "tied" if tied else "untied"
        cells = [
            bench.cell(f"{name}/width={width}", partial(relative_errors, settings, width, tied, bench.seed))
            for width in bench.progress(settings.widths, name)
        ]
        errors[name] = np.log10(np.asarray(cells))
        slope = np.polyfit(np.log10(settings.widths), errors[name].mean(axis=1), 1)[0]
        bench.number(f"exponent of the error in the width, {name}", float(slope))
    means = {name: values.mean(axis=1) for name, values in errors.items()}
    nearest = all(values[-1] == values.min() for values in means.values())
    apart = 10 ** abs(means["tied"][-1] - means["untied"][-1])
    said = f"{10 ** means['tied'][-1]:.3f} tied, {10 ** means['untied'][-1]:.3f} untied at n = {settings.widths[-1]}"
    bench.law("tied and untied networks have the same limit at equal lengths", bool(nearest and apart < 2), said)
    bench.figure(
        "Error against width",
        partial(draw, widths=settings.widths, errors=errors),
        caption=f"log₁₀ of ‖Θ̂ − Θ‖/‖Θ‖ over {settings.signals} Gaussian sequences of {settings.steps} steps; mean and "
        f"deviation over {settings.networks} networks.",
    )


def limit_over_angles(settings: Settings, angles: np.ndarray) -> np.ndarray:
    """Return the recurrent NTK of {1, −1, 1} and {cos α, sin α}."""
    return kernel(settings)([[1.0, -1.0, 1.0]], [[np.cos(a), np.sin(a)] for a in angles])[0]


def over_angles(settings: Settings, angles: np.ndarray, width: int, tied: bool, networks: int) -> list[np.ndarray]:
    """Return the same of finite networks, one row each."""
    x = torch.tensor([[[1.0], [-1.0], [1.0]]], dtype=torch.float64)
    turning = torch.from_numpy(np.stack([np.cos(angles), np.sin(angles)], axis=1)[:, :, None])
    return [tangent_products(network(settings, width, tied, 3), x, turning)[0] for _ in range(networks)]


def relative_errors(settings: Settings, width: int, tied: bool, seed: int) -> list[float]:
    """Return ‖Θ̂ − Θ‖/‖Θ‖ over Gaussian sequences for every network drawn."""
    signals = np.random.default_rng(seed).normal(size=(settings.signals, settings.steps, 1))
    limit, x = kernel(settings)(signals), torch.from_numpy(signals)
    results = [tangent_products(network(settings, width, tied, settings.steps), x, x) for _ in range(settings.networks)]
    return [float(np.linalg.norm(each - limit) / np.linalg.norm(limit)) for each in results]


def kernel(settings: Settings) -> RecurrentNTK:
    """Return the limit."""
    return RecurrentNTK(sigma_w=settings.sigma_w, sigma_u=settings.sigma_u, sigma_b=settings.sigma_b)


def network(settings: Settings, width: int, tied: bool, steps: int) -> WideRNN:
    """Draw a network from torch's generator."""
    sigmas = {name: settings[name] for name in ("sigma_w", "sigma_u", "sigma_b")}
    return WideRNN(1, width, tied=tied, steps=steps, **sigmas)


def draw(axes: Any, *, widths: list[int], errors: dict[str, np.ndarray]) -> None:
    """Draw the logarithm of the error, one line a kind."""
    means = {name: values.mean(axis=1).tolist() for name, values in errors.items()}
    spreads = {name: values.std(axis=1).tolist() for name, values in errors.items()}
    lines(axes, widths, means, spreads=spreads, labels=("width n", "log₁₀ relative error"), log="x", marks=True)
