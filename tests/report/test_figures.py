import math
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.patches import Rectangle

from sostenuto.report.contents.classification import confusion_matrix, frequent_mistakes, most_confused
from sostenuto.report.contents.comparison import Contender, comparison
from sostenuto.report.contents.data import chosen_examples, class_balance, example_panels
from sostenuto.report.contents.learning import loss_curve, metric_curve
from sostenuto.report.contents.regression import predicted_against_actual, residual_histogram
from sostenuto.report.figures.canvas import limits, log_ticks, thin
from sostenuto.report.numbers import metric
from sostenuto.report.svg import inline_svg
from sostenuto.results import Example, LearningCurve, RegressionScores
from tests.report import samples


def svg(figure) -> str:
    return inline_svg(figure, prefix="p", description="")


def texts(figure) -> list[str]:
    return [text.get_text() for axes in figure.axes for text in axes.texts]


def test_examples_take_turns_among_the_classes() -> None:
    chosen = chosen_examples(samples.digits().data)
    assert [example.label for example in chosen] == [str(digit) for digit in range(10)]
    two = replace(
        samples.digits().data, classes=("b", "a"), examples=tuple(Example(c, ((1.0,),)) for c in "aaaaaaaaab")
    )
    assert [example.label for example in chosen_examples(two)] == ["b", *"aaaaaa"]


def test_examples_of_many_classes_stop_at_twelve() -> None:
    assert len(chosen_examples(samples.crowded().data)) == 12


def test_an_example_is_drawn_even_where_values_are_missing_or_lonely() -> None:
    examples = (Example("a", ((1.0, math.nan, 3.0), (math.inf, 2.0, 2.5))), Example("b", ((math.nan,),)))
    first, second = example_panels(examples)
    assert len(first.axes[0].lines) == 2
    assert not second.axes[0].lines


def test_a_long_example_keeps_its_peak_and_becomes_short() -> None:
    values = np.zeros(50_000)
    values[31_234] = 7.0
    (figure,) = example_panels((Example("spike", (tuple(values),)),))
    line = figure.axes[0].lines[0]
    assert np.nanmax(line.get_ydata()) == 7.0
    assert len(svg(figure)) < 20_000


def test_curves_mark_the_best_epoch() -> None:
    curve = samples.curve(40)
    figure = loss_curve(curve)
    assert figure is not None
    assert texts(figure) == [f"best: epoch {curve.best_epoch}"]
    assert figure.axes[0].get_yscale() == "log"
    accuracy = metric_curve(curve)
    assert accuracy is not None
    assert any("%" in label.get_text() for label in accuracy.axes[0].get_yticklabels())


@pytest.mark.parametrize(
    "curve",
    [
        LearningCurve("accuracy", (1,), (0.7,)),
        LearningCurve("accuracy", (1, 2, 3), (0.7, math.nan, 0.5), (math.inf, 1.0, math.nan)),
        LearningCurve("loss", (1, 2), (-3.0, -4.0), best_epoch=99),
        LearningCurve("loss", (1, 2), (0.0, 0.0)),
        LearningCurve("loss", (1, 2), (1e-300, 1e90)),
        LearningCurve("loss", tuple(range(20_000)), tuple(1 / (i + 1) for i in range(20_000))),
    ],
)
def test_odd_curves_are_drawn(curve: LearningCurve) -> None:
    figure = loss_curve(curve)
    assert figure is not None
    assert len(svg(figure)) < 30_000


@pytest.mark.parametrize("curve", [LearningCurve("loss", (), ()), LearningCurve("loss", (1, 2), (math.nan, math.inf))])
def test_a_curve_without_a_finite_value_is_no_figure(curve: LearningCurve) -> None:
    assert loss_curve(curve) is None
    assert metric_curve(curve) is None


def test_counts_are_written_to_twenty_classes() -> None:
    def drawn(size: int) -> list[str]:
        return texts(confusion_matrix([f"c{i}" for i in range(size)], np.full((size, size), 7)))

    assert drawn(20).count("7") == 400
    assert drawn(21).count("7") == 0


def test_a_full_matrix_of_sixty_classes_stays_small() -> None:
    noise = np.random.default_rng(0).integers(1, 90, (60, 60))
    assert len(svg(confusion_matrix([f"class {i}" for i in range(60)], noise))) < 250_000


def test_shortened_class_names_carry_the_full_one() -> None:
    drawing = svg(confusion_matrix(["short", "x" * 99], np.eye(2, dtype=int)))
    assert drawing.count(f"<title>{'x' * 99}</title>") == 2
    assert "<title>short</title>" not in drawing


def test_a_matrix_without_cases_is_drawn_empty() -> None:
    assert texts(confusion_matrix(["a"], np.zeros((1, 1), dtype=int)))


def test_mistakes_are_ranked_and_the_most_confused_classes_kept_in_order() -> None:
    confusion = np.array([[8, 2, 0], [0, 5, 0], [0, 5, 5]])
    assert frequent_mistakes(confusion, 10) == [(2, 1, 5, 0.5), (0, 1, 2, 0.2)]
    assert most_confused(confusion, 2).tolist() == [1, 2]


def test_residuals_show_only_pairs_that_can_be_drawn() -> None:
    scores = RegressionScores(1.0, 1.0, 0.0, (1.0, 2.0, math.nan, 1e300), (1.5, math.inf, 2.0, 0.0), 4)
    dots, bars = predicted_against_actual(scores), residual_histogram(scores)
    assert dots is not None
    assert bars is not None
    assert sum(bar.get_height() for bar in bars.axes[0].patches if isinstance(bar, Rectangle)) == 1
    nothing = RegressionScores(math.nan, math.nan, math.nan, (), (), 0)
    assert predicted_against_actual(nothing) is None
    assert residual_histogram(nothing) is None


def test_two_thousand_dots_stay_small() -> None:
    actual = np.random.default_rng(0).normal(size=2000)
    scores = RegressionScores(1.0, 1.0, 0.0, tuple(actual), tuple(actual + 0.1), 2000)
    figure = predicted_against_actual(scores)
    assert figure is not None
    assert len(svg(figure)) < 90_000


def test_constant_predictions_are_drawn() -> None:
    scores = RegressionScores(0.0, 0.0, math.nan, (3.0, 3.0), (3.0, 3.0), 2)
    assert predicted_against_actual(scores) is not None
    assert residual_histogram(scores) is not None


def test_balance_names_few_classes_and_ranks_many() -> None:
    assert "b" in texts(class_balance(["a", "b"], [1, 0]))
    many = class_balance([f"c{i}" for i in range(3000)], list(range(3000)))
    assert texts(many) == []
    assert len(svg(many)) < 30_000
    assert svg(class_balance(["a", "b"], [0, 0]))


def test_contenders_are_ranked_best_first() -> None:
    rivals = (Contender("model", 3.0, is_model=True), Contender("low", 1.0), Contender("lost", math.nan))
    errors = comparison(rivals, metric("rmse"), higher_is_better=False)
    scores = comparison(rivals, metric("rmse"), higher_is_better=True)
    assert errors is not None
    assert scores is not None
    assert texts(errors) == ["low", "model"]
    assert texts(scores) == ["model", "low"]
    assert comparison((Contender("model", math.nan),), metric("rmse"), higher_is_better=True) is None


@pytest.mark.parametrize("score", [0.0, 1.0, -0.2, 1e99])
def test_equal_contenders_are_drawn(score: float) -> None:
    rivals = (Contender("model", score, is_model=True), Contender("other", score))
    figure = comparison(rivals, metric("accuracy"), higher_is_better=True)
    assert figure is not None
    assert svg(figure)


def test_limits_and_ticks_of_the_smallest_and_largest_numbers() -> None:
    assert limits(np.array([math.nan])) == (0.0, 1.0)
    assert limits() == (0.0, 1.0)
    low, high = limits(np.array([1e-320, 1e-320]))
    assert low < high
    assert log_ticks(1e-30, 1e30)
    x, y = thin(np.arange(5000.0), np.full(5000, math.nan), 50)
    assert len(x) == len(y) <= 60
