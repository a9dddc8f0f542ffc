"""The verdict in one sentence, whether a cheap baseline would have done as well, and the key numbers at the top."""

import math
from dataclasses import dataclass

from sostenuto.choices import DataPart
from sostenuto.report.numbers import binomial_interval, count, counted, duration, metric, percent
from sostenuto.report.section import Card, Cards, Outcome
from sostenuto.report.text import one_line, shorten
from sostenuto.results import BaselineScore, ClassScore, FitResult

_CHANCE = 1.96
"""Standard errors within which a difference of two shares could be chance."""


@dataclass(frozen=True)
class Judgment:
    """The outcome, its label, the sentence, and what the reader should know before believing it."""

    outcome: Outcome
    label: str
    sentence: str
    remarks: tuple[str, ...] = ()


def judge(result: FitResult) -> Judgment:
    """Compare the model with the best baseline and say it plainly."""
    best = best_baseline(result)
    said = _score_sentence(result)
    remarks = _remarks(result)
    if not math.isfinite(result.score):
        rest = (
            f" The best cheap baseline, {one_line(best.name)}, reaches {metric(best.metric).write(best.score)}."
            if best is not None
            else ""
        )
        return Judgment("bad", "No score", f"{said}.{rest}", remarks)
    if best is None:
        return Judgment("unknown", "Not compared", f"{said}; no baseline was measured.", remarks)
    score = metric(best.metric).write(best.score)
    name = one_line(best.name)
    if result.diverged:
        rest = f"{said} with weights from before it; {name}, a cheap baseline, reaches {score}."
        return Judgment("bad", "Training diverged", rest, remarks)
    if _level(result, best):
        chance = "" if best.score == result.score else ", a difference that could be chance"
        return Judgment(
            "caution", "No clear winner", f"{said}; {name}, a cheap baseline, reaches {score}{chance}.", remarks
        )
    if (best.score > result.score) == result.higher_is_better:
        return Judgment("bad", "A baseline wins", f"{said}; {name}, a cheap baseline, does better: {score}.", remarks)
    return Judgment("good", "Ahead of the baselines", f"{said}; the best cheap baseline reaches {score}.", remarks)


def best_baseline(result: FitResult) -> BaselineScore | None:
    """Return the best baseline measured by the model's own metric, if any."""
    finite = [
        baseline for baseline in result.baselines if math.isfinite(baseline.score) and baseline.metric == result.metric
    ]
    if not finite:
        return None
    return (max if result.higher_is_better else min)(finite, key=lambda baseline: baseline.score)


def evaluated_count(result: FitResult) -> int:
    """Return how many predictions the score rests on."""
    scores = result.classification or result.regression
    parts: dict[DataPart, int] = {
        "test": result.data.num_test,
        "validation": result.data.num_validation,
        "train": result.data.num_train,
    }
    return scores.count if scores is not None else parts[result.evaluated_on]


def evaluated_things(result: FitResult) -> str:
    """Return what was scored, as in "360 test sequences"."""
    noun = {"sequence": "step", "forecast": "forecast"}.get(result.data.task, "sequence")
    total = evaluated_count(result)
    part = "training" if result.evaluated_on == "train" else result.evaluated_on
    return counted(total, f"{part} {noun}") if total else f"the {part} part"


def _score_sentence(result: FitResult) -> str:
    kind = metric(result.metric)
    score = kind.write(result.score)
    things = evaluated_things(result)
    if not math.isfinite(result.score):
        return (
            f"The {kind.label} on {things} is not a finite number: training failed, or the metric is not defined here"
        )
    if result.metric == "accuracy":
        verb = "is" if evaluated_count(result) == 1 else "are"
        return f"{score} of {things} {verb} classified correctly{_rare_words(result)}"
    if result.metric in {"rmse", "mae"} and result.regression is not None:
        target = one_line(result.regression.target_name)
        unit = f" of {target}" if target else ""
        return f"Predictions{unit} on {things} are typically off by {score} ({kind.label})"
    return f"The model reaches a {kind.label} of {score} on {things}"


def rare_classes(result: FitResult) -> list[ClassScore]:
    """List the classes of the scored part that have less than half an even share of it, the rarest first."""
    scores = result.classification
    if scores is None:
        return []
    present = [score for score in scores.per_class if score.support]
    rare = [score for score in present if 2 * score.support * len(present) < scores.count]
    return sorted(rare, key=lambda score: score.support)


def found_words(score: ClassScore) -> str:
    """Say how many members of a class were found.

    >>> found_words(ClassScore("b", precision=0.0, recall=0.25, f1=0.0, support=8))
    '2 of 8'
    """
    return f"{count(round(score.recall * score.support))} of {count(score.support)}"


def _rare_words(result: FitResult) -> str:
    rare = rare_classes(result)
    if not rare:
        return ""
    told = [f"{found_words(score)} of class {shorten(score.name, 40)!r}" for score in rare[:2]]
    more = f" (and {count(len(rare) - 2)} more rare classes)" if len(rare) > 2 else ""
    return f", with {' and '.join(told)} found{more}"


def _level(result: FitResult, best: BaselineScore) -> bool:
    """Whether the two scores are the same as written, or so close that chance could part them."""
    kind = metric(result.metric)
    if kind.write(result.score) == kind.write(best.score):
        return True
    total = evaluated_count(result)
    if result.metric != "accuracy" or total == 0:
        return False
    spread = math.sqrt((result.score * (1 - result.score) + best.score * (1 - best.score)) / total)
    return abs(result.score - best.score) < _CHANCE * spread


def _remarks(result: FitResult) -> tuple[str, ...]:
    remarks = [f"Training diverged: {one_line(result.diverged)}"] if result.diverged else []
    if result.evaluated_on == "validation":
        chosen = ", which also chose the epoch to keep" if result.curve.best_epoch is not None else ""
        remarks.append(
            f"There is no test part: the score is that of the validation part{chosen}. Expect less on new data."
        )
    if result.evaluated_on == "train":
        remarks.append("The score is that of the training part itself: it says nothing about new data.")
    total = evaluated_count(result)
    if 0 < total < 100:
        remarks.append(f"Only {counted(total, 'case')} were scored: the number would change with other data.")
    if result.metric == "r2" and result.score < 0:
        remarks.append("An R² below zero is worse than always answering the average.")
    return tuple(remarks)


def most_common_share(result: FitResult) -> float:
    """Return the accuracy of always answering the most common class of the scored part, or NaN."""
    scores = result.classification
    if scores is None or not scores.count:
        return math.nan
    return max((sum(row) for row in scores.confusion), default=0) / scores.count


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
        Card(f"recall of {shorten(score.name, 20)}", percent(score.recall), f"{found_words(score)} found; a rare class")
        for score in rare_classes(result)[:2]
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
    note = counted(epochs, "epoch") if epochs else ""
    device = one_line(result.environment.get("device", ""))
    return Card("training time", duration(result.seconds), " on ".join(part for part in (note, device) if part))
