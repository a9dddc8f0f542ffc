"""What each metric is called, how it is written, and what it means in plain words."""

from dataclasses import dataclass

from sostenuto.report.numbers import number, percent


@dataclass(frozen=True)
class Metric:
    """A metric's name for readers, whether it is a share of one, and its meaning."""

    label: str
    is_share: bool
    meaning: str

    def write(self, value: float) -> str:
        """Write a value of this metric."""
        return percent(value) if self.is_share else number(value, digits=3, aligned=True)


_KNOWN = {
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
    return _KNOWN.get(name.lower(), Metric(name.replace("_", " "), False, ""))
