"""Numbers and metrics as a reader wants them: few digits, aligned, never rounded to a claim that is not true."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

NOT_A_NUMBER = "n/a"
_NARROW_SPACE = "\u202f"
_MINUS = "\u2212"
_SUPERSCRIPT = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


def percent(share: float, *, aligned: bool = False) -> str:
    """Write a share of one as a percentage; only exactly 1 is called 100 %.

    ``aligned`` keeps the decimal of 0 and 100.

    >>> percent(0.975), percent(0.99999), percent(1.0)
    ('97.5\u202f%', '>\u202f99.9\u202f%', '100\u202f%')
    """
    if not math.isfinite(share):
        return NOT_A_NUMBER
    value = 100 * share
    if 99.95 <= value < 100:
        return f">{_NARROW_SPACE}99.9{_NARROW_SPACE}%"
    if 0 < value < 0.05:
        return f"<{_NARROW_SPACE}0.1{_NARROW_SPACE}%"
    text = f"{value:.0f}" if value in (0, 100) and not aligned else f"{value:.1f}"
    return f"{text}{_NARROW_SPACE}%".replace("-", _MINUS)


def number(value: float, *, digits: int = 4, aligned: bool = False) -> str:
    """Write a number with ``digits`` significant digits, in powers of ten where it is very large or small.

    ``aligned`` keeps the zeros at the end.

    >>> number(1234.5678), number(-0.01234567), number(3.2e-7), number(float("nan"))
    ('1,235', '−0.01235', '3.2 × 10⁻⁷', 'n/a')
    """
    if not math.isfinite(value):
        return NOT_A_NUMBER
    if value == 0:
        return "0"
    mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
    power = int(exponent)
    if -4 <= power < 6:
        text = f"{value:,.{max(digits - 1 - power, 0)}f}"
        text = text.rstrip("0").rstrip(".") if "." in text and not aligned else text
    else:
        mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
        power_of_ten = f"10{str(power).translate(_SUPERSCRIPT)}"
        plain = {"1": power_of_ten, "-1": f"-{power_of_ten}"}
        text = plain.get(mantissa, f"{mantissa} × {power_of_ten}")
    return text.replace("-", _MINUS)


def with_unit(value: float, unit: str = "", *, digits: int = 3) -> str:
    """Write a number and its unit, where it has one.

    >>> with_unit(2.3456, "kPa"), with_unit(0.5)
    ('2.35 kPa', '0.5')
    """
    return f"{number(value, digits=digits)} {unit}".rstrip()


def count(value: float) -> str:
    """Write a whole number with separators.

    >>> count(1234567)
    '1,234,567'
    """
    return f"{round(value):,}".replace("-", _MINUS) if math.isfinite(value) else NOT_A_NUMBER


def counted(value: int, singular: str, plural: str = "") -> str:
    """Write a count with its noun.

    >>> counted(1, "epoch"), counted(12, "epoch"), counted(2, "class", "classes")
    ('1 epoch', '12 epochs', '2 classes')
    """
    return f"{count(value)} {singular if value == 1 else plural or singular + 's'}"


def duration(seconds: float) -> str:
    """Write a time span in the units a person would use; its spaces do not break.

    >>> [duration(seconds).replace("\u00a0", " ") for seconds in (0.0421, 12.34, 125, 7384)]
    ['42 ms', '12.3 s', '2 min 05 s', '2 h 03 min']
    """
    if not math.isfinite(seconds) or seconds < 0:
        return NOT_A_NUMBER
    return _spelled(seconds).replace(" ", "\u00a0")


def _spelled(seconds: float) -> str:
    if seconds < 0.0005:
        return "under 1 ms"
    if seconds < 0.9995:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{count(hours)} h {minutes:02d} min"


def tick_labels(values: Sequence[float], *, as_percent: bool = False) -> list[str]:
    """Label an axis: every label as short as telling neighbors apart allows.

    >>> tick_labels([0.9, 0.95, 1.0], as_percent=True)
    ['90\u202f%', '95\u202f%', '100\u202f%']
    """
    labels: list[str] = []
    for digits in range(3, 13):
        if as_percent:
            labels = [f"{number(100 * value, digits=digits)}{_NARROW_SPACE}%" for value in values]
        else:
            labels = [number(value, digits=digits) for value in values]
        if len(set(labels)) == len(labels):
            break
    return labels


def binomial_interval(share: float, trials: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share seen in ``trials`` independent trials.

    >>> [round(bound, 3) for bound in binomial_interval(0.5, 100)]
    [0.404, 0.596]
    """
    if trials <= 0 or not 0 <= share <= 1:
        return (math.nan, math.nan)
    z = 1.959964
    weight = 1 + z * z / trials
    center = (share + z * z / (2 * trials)) / weight
    half = z / weight * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    return (max(center - half, 0.0), min(center + half, 1.0))


@dataclass(frozen=True)
class Metric:
    """A metric's name for readers, whether it is a share of one, and its meaning."""

    label: str
    is_share: bool
    meaning: str

    def write(self, value: float) -> str:
        """Write a value of this metric."""
        return percent(value) if self.is_share else number(value, digits=3, aligned=True)


_METRICS = {
    "accuracy": Metric("accuracy", True, "the share of sequences whose class is predicted correctly"),
    "balanced_accuracy": Metric("balanced accuracy", True, "accuracy averaged over classes, so that rare ones count"),
    "macro_f1": Metric("macro F1", True, "balance of precision and recall, averaged over classes"),
    "log_loss": Metric("log-loss", False, "how surprised the model is by the true class; 0 is perfect"),
    "rmse": Metric("root-mean-square error", False, "typical error, in the target's unit; large errors weigh more"),
    "mse": Metric("mean squared error", False, "the average of the squared errors"),
    "mae": Metric("mean absolute error", False, "average error, in the target's unit"),
    "r2": Metric("R²", False, "1 is perfect, 0 is no better than always answering the average"),
    "perplexity": Metric("perplexity", False, "how many choices the model hesitates between; 1 is perfect"),
    "loss": Metric("loss", False, "what training minimizes"),
}


def metric(name: str) -> Metric:
    """Look a metric up; one that is not known is written as a plain number under its own name.

    >>> metric("accuracy").write(0.5), metric("my_score").label
    ('50.0\u202f%', 'my score')
    """
    return _METRICS.get(name.lower(), Metric(name.replace("_", " "), False, ""))
