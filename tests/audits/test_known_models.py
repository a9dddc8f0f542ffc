"""No badge says of a model what is known to be false of it."""

import pytest
import torch

import sostenuto as so
from sostenuto.benchmarks.audit_verdicts import KNOWN

QUICK = ("constant", "random GRU", "linear, even", "masked by rounding", "masked by a stop", "two scales", "one class")


@pytest.mark.parametrize("name", QUICK)
def test_no_false_verdict(name):
    torch.manual_seed(0)
    case = KNOWN[name]
    judged = [check for check in case.never if check != "skill"] or "skill"
    report = so.audit(*case.make(), checks=judged, progress=False)
    told = {check: verdict.label for check, verdict in report.verdicts.items()}
    assert not [(check, label) for check, label in told.items() if label in case.never.get(check, ())], told
    if "skill" in case.never and "Better than guessing" in case.never["skill"]:
        assert all(verdict.outcome != "good" for verdict in report.verdicts.values())
