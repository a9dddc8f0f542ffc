"""Fit results to render: the digits, a regression, and some that are as bad as results get."""

import math
from dataclasses import replace
from functools import cache

import numpy as np
from sklearn.datasets import load_digits

from sostenuto.results import (
    BaselineScore,
    ClassificationScores,
    ClassScore,
    DataSummary,
    Example,
    FitResult,
    LearningCurve,
    RegressionScores,
)

ATTACK = "<script>alert('x')</script>&\"$\\frac{1}{2}$"


def scored(classes: tuple[str, ...], confusion: np.ndarray) -> ClassificationScores:
    """Return the scores that belong to a confusion matrix."""
    right = confusion.diagonal().astype(float)
    with np.errstate(invalid="ignore", divide="ignore"):
        precision, recall = right / confusion.sum(0), right / confusion.sum(1)
        f1 = 2 * precision * recall / (precision + recall)
    per_class = tuple(
        ClassScore(name, float(precision[i]), float(recall[i]), float(f1[i]), int(confusion[i].sum()))
        for i, name in enumerate(classes)
    )
    total = int(confusion.sum())
    return ClassificationScores(
        accuracy=float(right.sum() / max(total, 1)),
        balanced_accuracy=float(np.nanmean(recall)) if np.isfinite(recall).any() else math.nan,
        macro_f1=float(np.nanmean(f1)) if np.isfinite(f1).any() else math.nan,
        log_loss=0.0921,
        classes=classes,
        confusion=tuple(tuple(int(v) for v in row) for row in confusion),
        per_class=per_class,
        count=total,
    )


def curve(epochs: int, *, metric: str = "accuracy", seed: int = 0) -> LearningCurve:
    """Return a learning curve of the usual shape."""
    noise = np.random.default_rng(seed)
    steps = np.arange(1, epochs + 1)
    train = 2.2 * np.exp(-steps / 5) + 0.02 + 0.01 * noise.random(epochs)
    validation = 2.1 * np.exp(-steps / 5) + 0.09 + 0.002 * np.maximum(steps - 24, 0) + 0.02 * noise.random(epochs)
    accuracy = 0.975 - 0.85 * np.exp(-steps / 4) + 0.006 * noise.standard_normal(epochs)
    return LearningCurve(
        metric=metric,
        epochs=tuple(int(step) for step in steps),
        train_loss=tuple(map(float, train)),
        validation_loss=tuple(map(float, validation)),
        validation_metric=tuple(map(float, accuracy)),
        learning_rate=tuple(float(0.01 * 0.95**step) for step in steps),
        best_epoch=int(steps[np.argmin(validation)]),
    )


CONFIG = {
    "seed": 0,
    "device": "auto",
    "data": {"name": "digits", "split": "given", "validation_fraction": 0.15, "scaling": "standard"},
    "model": {"layer": "unicornn", "hidden_size": 128, "num_layers": 2, "step_size": [0.1, 0.1], "readout": "last"},
    "training": {
        "epochs": 40,
        "batch_size": 64,
        "optimizer": {"name": "adam", "learning_rate": 0.01, "weight_decay": 0.0},
        "schedule": {"name": "one-cycle", "warmup": 0.3},
        "clip_norm": 1.0,
        "early_stopping": None,
    },
}
ENVIRONMENT = {
    "sostenuto": "0.1.0",
    "python": "3.11.2",
    "torch": "2.13.0",
    "device": "CPU",
    "backend": "reference",
    "platform": "Linux x86_64",
}


@cache
def digits() -> FitResult:
    """Return a fit of the sequential digits as it would come out."""
    images, targets = load_digits(return_X_y=True)
    classes = tuple(str(digit) for digit in range(10))
    examples = tuple(
        Example(str(label), (tuple(map(float, images[i])),))
        for label in range(10)
        for i in np.flatnonzero(targets == label)[:2]
    )
    confusion = np.diag([35, 34, 35, 36, 37, 36, 36, 35, 33, 34])
    for true, said in ((1, 8), (2, 3), (3, 8), (7, 9), (8, 1), (8, 3), (9, 5), (9, 7), (1, 8)):
        confusion[true, said] += 1
    scores = scored(classes, confusion)
    data = DataSummary(
        name="sequential digits",
        task="classification",
        num_train=1221,
        num_validation=216,
        num_test=360,
        num_channels=1,
        shortest=64,
        median_length=64,
        longest=64,
        description="Handwritten digits of 8 × 8 pixels, read pixel by pixel: the model sees one gray value a step and "
        "must remember them all to tell the digit.",
        origin="scikit-learn's copy of the UCI optical digits",
        channel_names=("intensity",),
        classes=classes,
        class_counts=(121, 124, 120, 125, 123, 124, 123, 122, 117, 122),
        checksum="5a1c0f9e77b34d21",
        examples=examples,
    )
    return FitResult(
        run="digits-unicornn",
        model="UnICORNN, 2 × 128",
        num_parameters=34698,
        metric="accuracy",
        score=scores.accuracy,
        higher_is_better=True,
        evaluated_on="test",
        seconds=84.2,
        data=data,
        curve=curve(40),
        classification=scores,
        baselines=(
            BaselineScore("1-nearest-neighbor", "answers with the closest training sequence", "accuracy", 0.9417, 0.21),
            BaselineScore("ridge on summaries", "linear model on mean, spread, slope …", "accuracy", 0.6889, 0.05),
        ),
        config=CONFIG,
        environment=ENVIRONMENT,
    )


@cache
def regression() -> FitResult:
    """Return a regression of two channels and unequal lengths."""
    noise = np.random.default_rng(3)
    actual = noise.normal(72, 12, 480)
    predicted = 72 + 0.93 * (actual - 72) + noise.normal(0, 3.1, 480) + (noise.random(480) < 0.02) * 15
    error = predicted - actual
    time = [np.arange(length) / 25 for length in (400, 320, 360, 250, 390, 400)]
    examples = tuple(
        Example(
            f"{rate:.1f}",
            (tuple(np.sin(t * rate / 9.5) + 0.1 * noise.standard_normal(t.size)), tuple(0.6 * np.cos(t * rate / 40))),
        )
        for rate, t in zip((58.2, 64.0, 71.5, 77.9, 84.1, 92.6), time, strict=True)
    )
    data = DataSummary(
        name="BIDMC32 heart rate",
        task="regression",
        num_train=4200,
        num_validation=900,
        num_test=480,
        num_channels=2,
        shortest=250,
        median_length=375,
        longest=400,
        channel_names=("PPG", "ECG"),
        target_range=(41.0, 112.5),
        missing_fraction=0.0031,
        checksum="0011223344556677",
        origin="https://archive.example.org/BIDMC32",
        examples=examples,
    )
    rmse = float(np.sqrt(np.mean(error**2)))
    scores = RegressionScores(
        rmse=rmse,
        mae=float(np.abs(error).mean()),
        r2=float(1 - error.var() / actual.var()),
        actual=tuple(map(float, actual)),
        predicted=tuple(map(float, predicted)),
        count=480,
        target_name="heart rate (beats per minute)",
    )
    shape = curve(25, metric="rmse", seed=1)
    return FitResult(
        run="heart-rate",
        model="LipschitzRNN, 64",
        num_parameters=8513,
        metric="rmse",
        score=rmse,
        higher_is_better=False,
        evaluated_on="test",
        seconds=732.0,
        data=data,
        curve=replace(shape, validation_metric=tuple(12 * (1.05 - value) + rmse for value in shape.validation_metric)),
        regression=scores,
        baselines=(
            BaselineScore("1-nearest-neighbor", "answers with the closest training sequence", "rmse", 6.9, 4.1),
            BaselineScore("ridge on summaries", "linear model on mean, spread, slope …", "rmse", 2.9, 0.4),
        ),
        config=CONFIG,
        environment=ENVIRONMENT,
    )


@cache
def hostile() -> FitResult:
    """Return a result whose every text tries to break out of the page, with long names and no finite score."""
    names = (
        ATTACK,
        "$x_1$",
        "日本語のクラス名はとても長いことがあります",
        "a\x00b\x1bc\n\td",
        "\u202eevil",
        "w" * 300,
        "]]>-->",
        "",
        "\ud800",
    )
    base = digits()
    confusion = np.diag([5, 0, 3, 4, 1, 2, 9, 0, 1])
    confusion[0, 2:5] = (3, 1, 7)
    confusion[6, 0] = 12000
    scores = scored(names, confusion)
    nan = math.nan
    data = replace(
        base.data,
        name=ATTACK,
        description=ATTACK * 3,
        origin=ATTACK,
        checksum=ATTACK,
        channel_names=(ATTACK, *(f"channel {'z' * 60} {i}" for i in range(40))),
        num_channels=41,
        classes=names,
        class_counts=(1, 1, 900, 0, 3, 5, 2, 1, 0),
        examples=(
            Example(ATTACK, ((1.0, nan, 3.0), (math.inf, -math.inf, 1e308))),
            Example("w" * 300, ((2.0,),)),
            Example("", ((nan, nan),)),
            Example("none", ()),
            Example("\ud800", (tuple(float(i % 97) for i in range(20000)),)),
        ),
    )
    return replace(
        base,
        run=ATTACK,
        model=ATTACK,
        metric=ATTACK,
        score=nan,
        evaluated_on="validation",
        seconds=nan,
        data=data,
        curve=LearningCurve(ATTACK, (1,), (nan,), (), (), (), 1),
        classification=scores,
        baselines=(
            BaselineScore(ATTACK, ATTACK, ATTACK, nan, nan),
            BaselineScore("x" * 200, "y" * 500, ATTACK, -math.inf, 0.1),
            BaselineScore("other", "", "other_metric", 3.0, 1e9),
        ),
        config={
            ATTACK: {ATTACK: {ATTACK: [ATTACK, {ATTACK: None}]}},
            "path": "/" + "p" * 900,
            "none": None,
            "empty": {},
        },
        environment={ATTACK: ATTACK},
    )


@cache
def crowded(classes: int = 1500) -> FitResult:
    """Return a result with very many classes of very long names."""
    base = digits()
    names = tuple(f"class number {i} {'of a very long family name ' * 4}{i}" for i in range(classes))
    noise = np.random.default_rng(0)
    confusion = np.zeros((classes, classes), dtype=np.int64)
    np.add.at(confusion, (noise.integers(classes, size=4000), noise.integers(classes, size=4000)), 1)
    confusion[np.arange(classes), np.arange(classes)] += 3
    data = replace(
        base.data,
        classes=names,
        class_counts=tuple(int(v) for v in noise.zipf(1.6, classes).clip(1, 4000)),
        examples=tuple(Example(name, ((0.0, 1.0, 0.5),)) for name in names[:400]),
    )
    scores = scored(names, confusion)
    return replace(base, run="crowded", data=data, classification=scores, score=scores.accuracy)


@cache
def bare() -> FitResult:
    """Return the least a fit can say: one epoch, no validation, no test, no baseline, no example."""
    base = digits()
    data = replace(
        base.data,
        num_validation=0,
        num_test=0,
        examples=(),
        classes=(),
        class_counts=(),
        description="",
        origin="",
        checksum="",
    )
    return replace(
        base,
        run="bare",
        evaluated_on="train",
        data=data,
        curve=LearningCurve("accuracy", (1,), (1.5,)),
        classification=None,
        baselines=(),
        config={},
        environment={},
    )


def many(classes: int) -> FitResult:
    """Return a result with as many classes as asked for, some of them confused."""
    base = digits()
    names = tuple(f"word {i}" if i % 3 else f"a rather long word {i}" for i in range(classes))
    noise = np.random.default_rng(1)
    confusion = np.diag(noise.integers(20, 60, classes))
    np.add.at(confusion, (noise.integers(classes, size=9 * classes), noise.integers(classes, size=9 * classes)), 1)
    scores = scored(names, confusion)
    data = replace(base.data, classes=names, class_counts=tuple(int(n) for n in confusion.sum(1)))
    return replace(base, run=f"{classes} classes", data=data, classification=scores, score=scores.accuracy)


def sixty() -> FitResult:
    """Return a result of sixty classes."""
    return many(60)


def twenty() -> FitResult:
    """Return a result of twenty classes."""
    return many(20)


EVERY = {make.__name__: make for make in (digits, regression, hostile, crowded, bare, sixty)}
