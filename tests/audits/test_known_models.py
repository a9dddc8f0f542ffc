"""No badge says of a model what is known to be false of it."""

import pytest
import torch

import sostenuto as so
from sostenuto.audits.robustness.score_curve import judge_loss
from sostenuto.benchmarks.audit_verdicts import KNOWN, counted, falsehoods

QUICK = {
    "constant": "all",
    "random GRU": "all",
    "linear, even": ["attack"],
    "masked by rounding": ["attack"],
    "masked by a stop": ["attack"],
    "masked by a false sign, wide": ["attack"],
    "masked by hashed noise": ["attack"],
    "chosen by chance": ["attack"],
    "two scales": ["attack"],
    "one class": "all",
    "four sequences again and again": "all",
    "statistics of the batch": "all",
    "state kept between calls": "all",
    "Lorenz, steps of .02": ["memory", "lyapunov"],
    "Lorenz, from its saddle": ["memory", "lyapunov"],
    "grows late": ["lyapunov"],
    "turns inward": ["lyapunov"],
    "logistic map, 3.6": ["memory"],
    "sum": ["memory"],
    "delay of 10": ["memory"],
    "scores drift together": ["memory"],
    "causal by FFT": ["memory"],
    "two wrongs": ["calibration"],
    "units of signs": ["curvature"],
    "pulse every 12 steps": ["memory"],
    "weakly chaotic": ["memory", "lyapunov"],
    "row of the batch": "all",
    "batch norm in training mode": "all",
    "hidden randomness": "all",
    "by heart": ["attack", "noise"],
    "four sequences, jittered more": "all",
    "thin and sure": ["attack"],
    "too sure": ["calibration"],
    "99 to 1, never told": "all",
    "heavy tails, guessed": "all",
    "small difference of large weights": ["perturbation"],
    "beside the minimum": ["curvature"],
    "tokens with padding": ["skill"],
    "class in the padding": ["skill"],
    "size of the batch": ["attack"],
    "gradients answered otherwise": ["attack"],
    "layer unheard, beside chaos": ["lyapunov", "gradients", "certificates"],
    "layer unheard, beside a sum": ["memory", "lyapunov", "gradients", "certificates"],
    "Lorenz in a loop, .01": ["memory"],
    "bfloat16": ["attack"],
}


@pytest.mark.parametrize("name", QUICK)
def test_no_false_verdict(name):
    torch.manual_seed(0)
    case = KNOWN[name]
    report = so.audit(*case.make(), checks=QUICK[name], progress=False, **case.given)
    assert not falsehoods(case, report), {check: verdict.label for check, verdict in report.verdicts.items()}


def test_what_is_true_is_still_told():
    """Rules that decide nothing would be never wrong."""
    told = {"sum": "Long memory", "delay of 10": "Short memory", "turns inward": "Settles", "Henon map": "Sensitive"}
    for name, label in told.items():
        torch.manual_seed(0)
        check = "lyapunov" if name in ("turns inward", "Henon map") else "memory"
        report = so.audit(*KNOWN[name].make(), checks=[check], progress=False)
        assert report.verdicts[check].label == label


def test_a_rare_class_that_is_fooled_is_not_steady():
    """All of it is lost though the accuracy falls by three points."""
    torch.manual_seed(0)
    model, x, y = KNOWN["97 to 3, fooled where rare"].make()
    result = so.audits.adversarial_accuracy(model, x, y, epsilons=[0.1], relative=True, steps=5)
    assert result.lost < 0.05
    assert result.most_lost == 1.0
    judged = judge_loss(result, {"steady": 0.05, "broken": 0.25})
    assert judged.label == "Undecided"
    assert "One class loses 100" in judged.basis


def test_falsehoods_are_counted():
    row = {
        "labels": {"skill": ["Undecided", "Steady"]},
        "false": ["skill: Steady"],
        "disagree": [],
        "budgets_disagree": [],
    }
    found = counted({"one": row}, 2)
    assert (found["models"], found["verdicts"], found["decided"], found["false"]) == (1, 2, 1, 1)
