"""How far predictions are off."""

import numpy as np

from sostenuto.report.figures.residuals import predicted_against_actual, residual_histogram, shown_pairs
from sostenuto.report.numbers import count, number
from sostenuto.report.section import Figures, Part, Picture, Prose, Section
from sostenuto.report.text import shorten
from sostenuto.results import RegressionScores


def regression_section(scores: RegressionScores) -> Section:
    """Return the section on errors: predicted against actual, and the histogram of residuals."""
    return Section("How far off it is", "errors", _parts(scores), short_title="Errors")


def _parts(scores: RegressionScores) -> tuple[Part, ...]:
    dots, bars = predicted_against_actual(scores), residual_histogram(scores)
    if dots is None or bars is None:
        return (Prose("There is no pair of finite actual and predicted values to draw."),)
    actual, predicted = shown_pairs(scores)
    residuals = predicted - actual
    lower, middle, upper = (float(bound) for bound in np.quantile(residuals, (0.05, 0.5, 0.95)))
    target = shorten(scores.target_name, 40)
    of_target = f" {target}" if target else ""
    told = f"R² {number(scores.r2)}, root-mean-square error {number(scores.rmse)}"
    pictures = (
        Picture(dots, f"Predicted against actual{of_target}: {told}.", "Predicted against actual"),
        Picture(bars, f"Histogram of errors: 90 % lie between {number(lower)} and {number(upper)}.", "Errors"),
    )
    lower_text, middle_text, upper_text = (number(bound, digits=3) for bound in (lower, middle, upper))
    caption = (
        "Predicted against actual: on the dashed line the two agree. Errors: how often each occurs; zero is perfect. "
        f"Nine in ten errors lie between {lower_text} and {upper_text}; the middle one is {middle_text}."
    )
    return (Figures(pictures, caption), *_hidden(scores, actual.size))


def _hidden(scores: RegressionScores, shown: int) -> tuple[Part, ...]:
    lost = len(scores.actual) - shown
    notes = []
    if len(scores.actual) < scores.count:
        notes.append(f"{count(len(scores.actual))} of {count(scores.count)} pairs were kept for the picture.")
    if lost > 0:
        notes.append(f"{count(lost)} of {count(len(scores.actual))} pairs are not finite and cannot be drawn.")
    return (Prose(" ".join(notes), note=True),) if notes else ()
