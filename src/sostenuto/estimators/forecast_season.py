"""Find the seasons of a series: periods whose mean profile predicts values that were left out of it."""

import numpy as np
from jaxtyping import Float

LEAST_SHARE = 0.25
"""A season explains at least this share of the variance around a moving average."""
_CANDIDATES = 8
_TOLERANCE = 1.1
"""The shortest period counts whose unexplained variance is within this factor of the least."""
_INNER = 0.3


def find_seasons(values: Float[np.ndarray, "time channel"], longest: int = 400) -> tuple[int, ...]:
    """Give the season of the channels' mean, in steps, and a shorter one inside it (a day in a week); often none.

    Candidates are peaks of the autocorrelation of the series without its line, and of its differences, and whole
    parts of them. Each is judged
    by the share of variance around a moving average over one period that the mean profile explains, every value left
    out of its own mean; at least three periods must be there.

    >>> steps = np.arange(120)[:, None]
    >>> find_seasons(np.sin(2 * np.pi * steps / 12) + 0.1 * steps), find_seasons(steps**2 / 100)
    ((12,), ())
    """
    scale = values.std(0)
    series = (values / np.where(scale > 0, scale, 1.0)).mean(1)
    steps, most = np.arange(len(series)), min(longest, len(series) // 3)
    if most < 2:
        return ()
    line = np.polynomial.Polynomial.fit(steps, series, 1)(steps)
    peaks = [*_peaks(series - line, most), *_peaks(np.diff(series), most)]
    # Many multiples of a short season have peaks as high as its own, so that it may not be among the highest.
    around = {period for peak in peaks for period in (peak - 1, peak, peak + 1)}
    parts = {peak // part for peak in peaks for part in range(2, peak // 2 + 1) if peak % part == 0}
    candidates = {period for period in around | parts if 2 <= period <= most}
    shares = {period: explained_share(series, period) for period in sorted(candidates)}
    best = max(shares.values(), default=0.0)
    if best < LEAST_SHARE:
        return ()
    season = min(period for period, share in shares.items() if 1 - share <= _TOLERANCE * (1 - best) + 1e-12)
    inner = [
        period
        for period, share in shares.items()
        if period < season and season % period == 0 and share > _INNER * shares[season]
    ]
    return (season, max(inner, key=shares.__getitem__)) if inner else (season,)


def explained_share(series: Float[np.ndarray, " time"], period: int) -> float:
    """Give the share of variance around a moving average that the mean of the other values at the phase explains."""
    window = np.ones(period + 1 - period % 2)
    if period % 2 == 0:
        window[[0, -1]] = 0.5
    half = len(window) // 2
    if len(series) < len(window) + 2 * period - 1:
        return 0.0
    rest = series[half : len(series) - half] - np.convolve(series, window / window.sum(), "valid")
    phase = np.arange(len(rest)) % period
    count = np.bincount(phase, minlength=period)
    mean = np.bincount(phase, rest, minlength=period) / np.maximum(count, 1)
    left_out = (rest - mean[phase]) * (count / np.maximum(count - 1, 1))[phase]
    total = float(np.square(rest).sum())
    # Rounding alone is no season: a straight line leaves 1e-16 of itself around its moving average.
    if total <= 1e-18 * float(np.square(series).sum()):
        return 0.0
    return 1 - float(np.square(left_out).sum()) / total


def _peaks(series: np.ndarray, most: int) -> list[int]:
    """Give the lags of the highest peaks of the autocorrelation that stand out of noise."""
    centered, length = series - series.mean(), len(series)
    spectrum = np.abs(np.fft.rfft(centered, 2 * length)) ** 2
    correlation = np.fft.irfft(spectrum)[: most + 2] * length / (length - np.arange(most + 2))
    if correlation[0] <= 0:
        return []
    correlation = correlation / correlation[0]
    inside = correlation[2:-1]
    high = (inside > correlation[1:-2]) & (inside >= correlation[3:]) & (inside > 2 / np.sqrt(length))
    lags = np.flatnonzero(high) + 2
    return lags[np.argsort(-correlation[lags])][:_CANDIDATES].tolist()
