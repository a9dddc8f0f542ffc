import math
from dataclasses import replace

import numpy as np
import pytest

from sostenuto.report.judgment import best_baseline, headline, judge, rare_classes
from sostenuto.results import BaselineScore, FitResult
from tests.report import samples


def against(*scores: float, result: FitResult | None = None) -> FitResult:
    base = result or samples.digits()
    return replace(base, baselines=tuple(BaselineScore("nearest", "", base.metric, score, 0.1) for score in scores))


def plain(text: str) -> str:
    return text.replace("\u202f", " ")


def test_a_model_ahead_is_said_to_be_ahead() -> None:
    judgment = judge(against(0.9417, 0.5))
    assert judgment.outcome == "good"
    assert plain(judgment.sentence) == (
        "97.5 % of 360 test sequences are classified correctly; the best cheap baseline reaches 94.2 %."
    )
    assert judgment.remarks == ()


def test_a_baseline_that_wins_is_named() -> None:
    judgment = judge(against(0.9999, 0.5))
    assert judgment.outcome == "bad"
    assert "nearest, a cheap baseline, does better" in judgment.sentence


@pytest.mark.parametrize("score", [0.97, 0.98])
def test_a_difference_that_could_be_chance_is_not_a_win(score: float) -> None:
    judgment = judge(against(score))
    assert judgment.outcome == "caution"
    assert "could be chance" in judgment.sentence


def test_an_equal_score_is_not_blamed_on_chance() -> None:
    judgment = judge(against(samples.digits().score))
    assert judgment.outcome == "caution"
    assert "chance" not in judgment.sentence


def test_smaller_errors_win() -> None:
    regression = samples.regression()
    assert judge(against(99.0, result=regression)).outcome == "good"
    assert judge(against(99.0, 0.1, result=regression)).outcome == "bad"
    assert "heart rate" in judge(regression).sentence


def test_only_finite_scores_of_the_same_metric_count() -> None:
    result = replace(
        samples.digits(),
        baselines=(
            BaselineScore("broken", "", "accuracy", math.nan, 0.1),
            BaselineScore("other", "", "log_loss", 5.0, 0.1),
        ),
    )
    assert best_baseline(result) is None
    assert judge(result).outcome == "unknown"


def test_no_finite_score_is_a_failure() -> None:
    judgment = judge(replace(samples.digits(), score=math.nan))
    assert judgment.outcome == "bad"
    assert "not a finite number" in judgment.sentence


@pytest.mark.parametrize(("part", "words"), [("validation", "no test part"), ("train", "nothing about new data")])
def test_a_score_not_from_a_test_part_carries_a_warning(part: str, words: str) -> None:
    assert any(words in remark for remark in judge(replace(samples.digits(), evaluated_on=part)).remarks)


def test_rare_classes_that_are_not_found_are_in_the_first_sentence_and_the_headline() -> None:
    scores = samples.scored(("normal", "anomaly"), np.array([[974, 0], [87, 0]]))
    result = replace(samples.digits(), classification=scores, score=scores.accuracy)
    assert [one.name for one in rare_classes(result)] == ["anomaly"]
    assert "91.8\u202f% of 1061 test sequences are classified correctly, with 0 of 87 of class 'anomaly' found" in (
        judge(result).sentence.replace(",061", "061").replace("1\u202f061", "1061")
    )
    cards = {card.label: card for card in headline(result).cards}
    assert cards["recall of anomaly"].note == "0 of 87 found; a rare class"
    assert cards["balanced accuracy"].value == "50.0\u202f%"
    assert cards["most common class"].value == "91.8\u202f%"
    assert rare_classes(samples.digits()) == []


def test_a_diverged_training_is_named_first() -> None:
    judgment = judge(replace(samples.digits(), diverged="expected finite weights, got NaN in epoch 2."))
    assert (judgment.outcome, judgment.label) == ("bad", "Training diverged")
    assert judgment.remarks[0] == "Training diverged: expected finite weights, got NaN in epoch 2."


def test_a_negative_r2_and_a_small_sample_are_pointed_out() -> None:
    base = samples.regression()
    assert base.regression is not None
    few = replace(base, metric="r2", score=-0.5, higher_is_better=True, regression=replace(base.regression, count=12))
    remarks = " ".join(judge(few).remarks)
    assert "worse than always answering the average" in remarks
    assert "Only 12 cases" in remarks
