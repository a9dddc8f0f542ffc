"""Conditions under which an audit fails: ``memory<500,attack>0.2`` compares the number of each check."""

import re
from typing import NamedTuple

from sostenuto.audits.audit import AuditReport
from sostenuto.audits.checks import all_checks
from sostenuto.checks import InputError, check_choice
from sostenuto.report.numbers import number

_CONDITION = re.compile(r"\s*([a-z]+)\s*(<|>)\s*([-+]?[0-9.]+(?:e[-+]?[0-9]+)?)\s*")


class Condition(NamedTuple):
    """The audit fails where a check's number is below, or above, a limit."""

    check: str
    sign: str
    limit: float


def read_conditions(text: str) -> list[Condition]:
    """Read conditions separated by commas.

    >>> read_conditions("memory<500, attack>0.2")
    [Condition(check='memory', sign='<', limit=500.0), Condition(check='attack', sign='>', limit=0.2)]
    """
    conditions = []
    for part in text.split(","):
        match = _CONDITION.fullmatch(part)
        if match is None:
            raise InputError(f"expected conditions like memory<500,attack>0.2, got {part.strip()!r}.")
        name, sign, limit = match.groups()
        check_choice("check of a condition", name, [name for name, one in all_checks().items() if one.number])
        conditions.append(Condition(name, sign, float(limit)))
    return conditions


def failures(report: AuditReport, conditions: list[Condition]) -> list[str]:
    """Say which conditions are met; a check without a number meets every condition, since nothing is known of it."""
    said = []
    for name, sign, limit in conditions:
        verdict = report.verdicts.get(name)
        value = None if verdict is None else verdict.number
        if value is None:
            said.append(f"{name} has no number: {report.refused.get(name, 'it was not run, or nothing was reached')}")
        elif value < limit if sign == "<" else value > limit:
            said.append(f"{name} is {number(value)}, {'below' if sign == '<' else 'above'} {number(limit)}")
    return said
