# ruff: noqa: N803, N806 (X is the name of the contract)
import pytest
import torch

import sostenuto as so
from tests.laws.audit_laws import Answering


def audited(answer, X, y, **options):
    return so.audit(Answering(answer), X, y, checks="skill", progress=False, **options).verdicts["skill"]


@pytest.mark.parametrize(
    ("share", "label"),
    [(0.0, "No better than guessing"), (0.03, "Hardly better than guessing"), (0.3, "Better than guessing")],
)
def test_a_model_that_gains_next_to_nothing_is_told_from_one_that_is_undecided(share, label):
    """It answers the first class always, or knows a few of the second."""
    X = torch.zeros(400, 3, 1)
    y = (torch.arange(400) % 2 == 0).long()
    X[: int(400 * share), :, 0] = 1.0
    X[y == 0] = 0.0
    verdict = audited(lambda x: torch.cat([0.5 - x[:, 0], x[:, 0] - 0.5], 1), X + distinct(400), y)
    assert verdict.label == label
    assert verdict.outcome == ("good" if share > 0.1 else "bad")


def test_one_answer_to_all_is_no_better_than_guessing_whichever_class_it_is():
    X, y = distinct(90).expand(-1, 3, 1), torch.arange(90) % 3
    verdict = audited(lambda x: torch.tensor([0.0, 0.0, 1.0]) + 0 * x[:, 0], X, y)
    assert (verdict.outcome, verdict.label) == ("bad", "No better than guessing")


def test_a_coin_is_not_called_hardly_better_by_few_answers():
    X, y = torch.zeros(100, 3, 1) + distinct(100), torch.arange(100) % 2
    assert audited(lambda x: torch.sin(1e7 * x[:, 0] + torch.tensor([0.0, 1.0])), X, y).label == "Undecided"


def test_a_regressor_that_answers_about_the_mean_is_hardly_better():
    X, y = distinct(200), torch.linspace(-1, 1, 200)[:, None]
    assert audited(lambda x: 10 * x[:, 0], X, y).label == "Hardly better than guessing"


def distinct(count):
    """Differences that keep sequences from counting as copies, and turn no answer."""
    return 1e-2 * torch.randn(count, 1, 1, generator=torch.Generator().manual_seed(0)).expand(-1, 3, -1)


def test_a_page_shows_the_skill_of_answers_at_every_step(tmp_path):
    X = torch.randn(40, 12, 1, generator=torch.Generator().manual_seed(0))
    model = Answering(lambda x: torch.cat([-x, x], 2))
    report = so.audit(model, X, (X[:, :, 0] > 0).long(), checks="skill", progress=False)
    assert "right, %" in report.save(tmp_path / "audit.html").read_text()
