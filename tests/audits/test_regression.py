# ruff: noqa: N806 (X is the name of the contract)
"""Regressors are asked everything that classifiers are, in the target's own unit."""

import json

import pytest
import torch
from torch import nn

from sostenuto.audits import (
    adapt,
    generalization_gap,
    gradient_flow,
    hessian_spectrum,
    noise_accuracy,
    perturbation_error,
)
from sostenuto.audits.audit import AuditReport, audit
from sostenuto.audits.page import render
from sostenuto.checks import InputError
from sostenuto.models.prediction import SequenceRegressor
from sostenuto.nn import GRU

NOT_FOR_NUMBERS = {"calibration", "certified"}


class Mean(nn.Module):
    """The mean over time of every channel, times a weight; exact formulas are known for it."""

    def __init__(self, weight=1.0):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(weight))

    def forward(self, x, lengths=None):
        return self.weight * x.mean(1)


@pytest.fixture(scope="module")
def data():
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(24, 20, 2, generator=generator)
    return X, X[:, :, 0].sum(1) / 4


@pytest.fixture(scope="module")
def report(data):
    torch.manual_seed(0)
    model = SequenceRegressor(GRU(2, 4, batch_first=True))
    return audit(model, *data, train=data, target_scale=5.0, target_unit="kPa", progress=False)


def test_every_check_but_those_of_classes_answers(report):
    assert set(report.refused) == NOT_FOR_NUMBERS
    assert all(reason.startswith("not applicable: ") for reason in report.refused.values())
    assert report.task == "regression"


def test_errors_are_in_the_targets_own_unit(report, data):
    assert report.noise.guess == pytest.approx(5 * float(data[1].std(correction=0)), rel=1e-5)
    assert report.noise.clean_score == pytest.approx(report.attack.clean_score)
    assert report.perturbation.start == pytest.approx(report.noise.clean_score, rel=1e-5)
    assert report.generalization.test.score == pytest.approx(report.noise.clean_score)
    for name in ("noise", "attack", "generalization", "perturbation"):
        assert " kPa" in report.results[name].summary()


def test_the_page_reads_well_without_classes(report):
    page = render(report)
    assert "accuracy" not in page.lower()
    assert "root mean square error, kPa" in page
    assert "Does not apply" in page
    for name in report.results:
        assert report.verdicts[name].label in page


def test_the_report_survives_json(report):
    assert AuditReport.from_dict(json.loads(report.to_json())) == report


def test_noise_and_perturbation_of_a_mean_are_known():
    """Noise of one deviation s moves a mean over T steps by s/√T; a change β of the weight moves it by β|x̄|."""
    X = torch.randn(400, 16, 1, generator=torch.Generator().manual_seed(0))
    y = X.mean(1)
    found = noise_accuracy(Mean(), X, y, levels=(0, 1.0), repeats=4)
    assert found.score[0] == pytest.approx(0.0, abs=1e-7)
    assert found.score[1] == pytest.approx(float(X.std(correction=0)) / 4, rel=0.1)
    moved = perturbation_error(Mean(), [0.5], X, y=y, norm="loss", target_scale=2.0)
    assert moved.error[0] == pytest.approx(2 * 0.5 * float(y.square().mean().sqrt()), rel=1e-3)
    assert moved.measure == "error"


def test_the_hessian_of_a_squared_error_is_known():
    X = torch.randn(40, 8, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = hessian_spectrum(Mean().double(), X, torch.zeros(40), top=1, target_scale=3.0)
    assert found.exact
    assert found.top[0] == pytest.approx(9 * 2 * float(X.mean(1).square().mean()), rel=1e-9)
    assert "squared error" in found.method


def test_the_gap_and_its_error_by_hand():
    X = torch.zeros(50, 4, 1)
    small, large = torch.full((50,), 0.1), torch.cat([torch.full((25,), 0.3), torch.full((25,), 0.5)])
    found = generalization_gap(Mean(), X, small, X, large, target_scale=2.0, target_unit="m")
    assert found.train.score == pytest.approx(0.2)
    assert found.gap == pytest.approx(2 * (0.17**0.5 - 0.1))
    spread = 4 * torch.tensor([0.09, 0.25]).repeat(25).double().std() / 50**0.5
    assert found.gap_error == pytest.approx(float(spread) / (2 * found.test.score), rel=1e-5)
    assert "does worse than always answering their mean" in found.summary()


def test_gradients_of_numbers_and_classes_differ_by_their_loss_alone(data):
    torch.manual_seed(0)
    model = SequenceRegressor(GRU(2, 4, batch_first=True))
    found = gradient_flow(model, *data)
    loss = (model(data[0])[:, 0] - data[1]).square().mean()
    expected = torch.autograd.grad(loss, model.head.weight)[0].norm()
    assert found.parameters["head.weight"] == pytest.approx(float(expected), rel=1e-4)


@pytest.mark.parametrize("flat", [False, True])
def test_numbers_at_every_step_are_handled_and_padding_counts_for_nothing(flat):
    torch.manual_seed(0)
    model = adapt(nn.GRU(2, 1 if flat else 3, batch_first=True))
    X, lengths = torch.randn(12, 9, 2), torch.arange(12) % 5 + 5
    y = torch.randn(12, 9) if flat else torch.randn(12, 9, 3)
    padding = torch.arange(9) >= lengths[:, None]
    y[padding] = float("nan")
    checks = ["noise", "attack", "perturbation", "curvature", "generalization", "gradients"]
    found = audit(model, X, y, lengths=lengths, train=(X, y, lengths), checks=checks, progress=False)
    assert found.refused == {}
    assert found.noise.count == int(lengths.sum())
    answers = model(X).reshape(12, 9, -1)
    squares = (answers - y.reshape(12, 9, -1)).square().mean(-1)[~padding]
    assert found.noise.clean_score == pytest.approx(float(squares.mean().sqrt().detach()), rel=1e-5)


@pytest.mark.parametrize(
    ("y", "options", "message"),
    [
        (
            torch.zeros(24, 7),
            {},
            r"expected answers of shape \(2, 7\), as y has 7 number\(s\) a sequence, got \(2, 1\)",
        ),
        (torch.zeros(24, 5, 1), {}, r"expected y of shape \(24,\) or \(24, out\), or \(24, 20, out\)"),
        (torch.arange(24), {}, "for a regression pass y as floating-point numbers"),
        (torch.full((24,), float("inf")), {}, "expected finite numbers in y"),
        (torch.zeros(24), {"target_scale": (1.0, 2.0)}, "expected one target_scale or 1, one an output, got 2"),
        (torch.zeros(24), {"target_scale": 0.0}, "expected target_scale"),
        (torch.zeros(24), {"train": (torch.zeros(3, 20, 2), [0, 1, 0])}, "got classes in one and numbers in the other"),
        (torch.zeros(24), {"train": torch.zeros(3)}, r"expected train=\(X, y\) or \(X, y, lengths\), got Tensor"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(data, y, options, message):
    model = SequenceRegressor(GRU(2, 4, batch_first=True))
    with pytest.raises(InputError, match=message) as caught:
        audit(model, data[0], y, progress=False, **options)
    assert "\n" not in str(caught.value)


def test_an_estimator_is_told_what_to_pass(data):
    with pytest.raises(InputError, match="expected a torch module, got dict; pass a fitted estimator's model_"):
        audit({}, *data)
