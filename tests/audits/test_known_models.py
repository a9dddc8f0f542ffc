"""No badge says of a model what is known to be false of it."""

import pytest
import torch

import sostenuto as so
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
}


@pytest.mark.parametrize("name", QUICK)
def test_no_false_verdict(name):
    torch.manual_seed(0)
    case = KNOWN[name]
    report = so.audit(*case.make(), checks=QUICK[name], progress=False)
    assert not falsehoods(case, report), {check: verdict.label for check, verdict in report.verdicts.items()}


def test_what_is_true_is_still_told():
    """Rules that decide nothing would be never wrong."""
    told = {"sum": "Long memory", "delay of 10": "Short memory", "turns inward": "Settles", "Henon map": "Sensitive"}
    for name, label in told.items():
        torch.manual_seed(0)
        check = "lyapunov" if name in ("turns inward", "Henon map") else "memory"
        report = so.audit(*KNOWN[name].make(), checks=[check], progress=False)
        assert report.verdicts[check].label == label


def test_falsehoods_are_counted():
    row = {
        "labels": {"skill": ["Undecided", "Steady"]},
        "false": ["skill: Steady"],
        "disagree": [],
        "budgets_disagree": [],
    }
    found = counted({"one": row}, 2)
    assert (found["models"], found["verdicts"], found["decided"], found["false"]) == (1, 2, 1, 1)
