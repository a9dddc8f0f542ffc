"""Read what a forecaster is given: one series or several, with covariates and times."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Shaped

from sostenuto.checks import InputError, check_choice, require
from sostenuto.data.batch import interpolate
from sostenuto.estimators.forecast_times import read_times, step_spans
from sostenuto.estimators.sequences import is_list_of_sequences


@dataclass(frozen=True, eq=False)
class ForecastSeries:
    """A series without gaps, with what is known beside it: past covariates, known ones (ahead too), moments."""

    values: Float[np.ndarray, "time channel"]
    past: Float[np.ndarray, "time past"]
    known: Float[np.ndarray, "later known"]
    times: Shaped[np.ndarray, " time"] | None = None

    @property
    def spans(self) -> np.ndarray | None:
        """The time before each step in units of the median; None where steps are regular."""
        return None if self.times is None else step_spans(self.times)


def read_series(
    y: Any, covariates: Any, times: Any, future_covariates: Any, layout: str
) -> tuple[list[ForecastSeries], bool]:
    """Read one series or a list; say which. A 2-D array is one series (time, channel), a 3-D one several.

    NaN is filled by a straight line in time, and by the last value at the end.
    """
    check_choice("layout", layout, ("btc", "bct"))
    several = _is_several(y)
    count = len(y) if several else 1
    parts = [_listed(name, part, several, count) for name, part in _named(y, covariates, times, future_covariates)]
    series = []
    for own, past, moments, known in zip(*parts, strict=True):
        values = _steps("y", own, layout)
        stamps = None if moments is None else read_times(moments, len(values))
        spans = None if stamps is None else step_spans(stamps)
        require(not np.isnan(values).all(0).any(), "expected a value in every channel", "got one of NaN alone")
        beside = np.zeros((len(values), 0)) if past is None else _steps("covariates", past, layout)
        got = f"got {len(beside)}"
        require(len(beside) == len(values), f"expected covariates for {len(values)} steps", got)
        ahead = np.zeros((0, 0)) if known is None else _steps("future_covariates", known, layout)
        series.append(ForecastSeries(_filled(values, spans), _filled(beside, spans), _filled(ahead, None), stamps))
    for name in ("values", "past", "known"):
        widths = {getattr(each, name).shape[1] for each in series}
        require(len(widths) == 1, "expected the same channels in every series", f"got {sorted(widths)} ({name})")
    return series, several


def _named(y: Any, covariates: Any, times: Any, future_covariates: Any) -> list[tuple[str, Any]]:
    return [("y", y), ("covariates", covariates), ("times", times), ("future_covariates", future_covariates)]


def _is_several(y: Any) -> bool:
    return is_list_of_sequences(y) or getattr(y, "ndim", 0) == 3


def _listed(name: str, part: Any, several: bool, count: int) -> list[Any]:
    if part is None:
        return [None] * count
    items = list(part) if several else [part]
    require(len(items) == count, f"expected {name} for {count} series", f"got {len(items)}")
    return items


def _steps(name: str, given: Any, layout: str) -> np.ndarray:
    held = given.detach().cpu() if hasattr(given, "detach") else given
    try:
        array = np.asarray(held, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"expected {name} to be numbers, got {error}; drop columns of text.") from error
    require(array.ndim in (1, 2), f"expected {name} of shape (time,) or (time, channel)", f"got {array.shape}")
    array = array[:, None] if array.ndim == 1 else array.T if layout == "bct" else array
    require(len(array) > 0, f"expected at least one step of {name}", "got none")
    require(not np.isinf(array).any(), f"expected finite {name} or NaN", "got infinity", "clip or drop it")
    return array


def _filled(array: np.ndarray, spans: np.ndarray | None) -> np.ndarray:
    return interpolate(array, spans) if np.isnan(array).any() else array
