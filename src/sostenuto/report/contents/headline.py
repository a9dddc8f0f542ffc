"""The key numbers at the top of the page."""

import math

from sostenuto.report.judgment import (
    best_baseline,
    evaluated_count,
    evaluated_things,
    found_words,
    most_common_share,
    rare_classes,
)
from sostenuto.report.metrics import metric
from sostenuto.report.numbers import binomial_interval, count, duration, percent
from sostenuto.report.section import Card, Cards
from sostenuto.report.text import one_line, shorten
from sostenuto.results import FitResult


def headline(result: FitResult) -> Cards:
    """Return the cards: score, recall of rare classes, baseline, finer scores, size, time."""
    scores = (_score(result), *_rare(result), *_baseline(result), *_finer_scores(result))
    return Cards((*scores, _size(result), _time(result)))


def _score(result: FitResult) -> Card:
    kind = metric(result.metric)
    note = f"on {evaluated_things(result)}"
    low, high = binomial_interval(result.score, evaluated_count(result))
    if result.metric == "accuracy" and result.evaluated_on != "train" and math.isfinite(low):
        note += f"; on many more it would likely lie between {percent(low)} and {percent(high)}"
    return Card(kind.label, kind.write(result.score), note)


def _baseline(result: FitResult) -> list[Card]:
    best = best_baseline(result)
    cards = (
        []
        if best is None
        else [Card("best cheap baseline", metric(best.metric).write(best.score), shorten(best.name, 40))]
    )
    share = most_common_share(result)
    said = best is not None and best.name == "most common class"
    if result.metric == "accuracy" and math.isfinite(share) and not said:
        cards.append(Card("most common class", percent(share), "accuracy of always answering it"))
    return cards


def _rare(result: FitResult) -> list[Card]:
    return [
        Card(f"recall of {shorten(one.name, 20)}", percent(one.recall), f"{found_words(one)} found; a rare class")
        for one in rare_classes(result)[:2]
    ]


def _finer_scores(result: FitResult) -> list[Card]:
    rows: list[tuple[str, float]] = []
    if result.classification is not None:
        scores = result.classification
        rows = [
            ("accuracy", scores.accuracy),
            ("balanced_accuracy", scores.balanced_accuracy),
            ("macro_f1", scores.macro_f1),
            ("log_loss", scores.log_loss),
        ]
    elif result.regression is not None:
        rows = [("rmse", result.regression.rmse), ("mae", result.regression.mae), ("r2", result.regression.r2)]
    kinds = [(metric(name), value) for name, value in rows if name != result.metric]
    return [Card(kind.label, kind.write(value), kind.meaning) for kind, value in kinds]


def _size(result: FitResult) -> Card:
    return Card("parameters", count(result.num_parameters), "numbers learned in training")


def _time(result: FitResult) -> Card:
    epochs = len(result.curve.epochs)
    note = f"{count(epochs)} epoch{'' if epochs == 1 else 's'}" if epochs else ""
    device = one_line(result.environment.get("device", ""))
    return Card("training time", duration(result.seconds), " on ".join(part for part in (note, device) if part))
