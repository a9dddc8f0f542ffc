"""A tail that is told no law decides nothing: neither that a memory is exponential nor that it is not."""

import pytest

from sostenuto.experiments.catalog import find
from sostenuto.experiments.tasks.tails import is_exponential, is_otherwise, shares, why_undecided
from sostenuto.experiments.wang2024.figure_12 import run as figure_12
from sostenuto.experiments.workbench import Workbench

POWER, UNTOLD = "polynomial", "no law"
CASES = (
    (["exponential"] * 2, "law fails"),
    ([POWER] * 2, "law holds"),
    ([UNTOLD] * 2, "undecided"),
    ([POWER, POWER, UNTOLD], "law holds"),
    (["exponential", "exponential", UNTOLD], "law fails"),
    ([POWER, UNTOLD, "exponential"], "undecided"),
)


@pytest.mark.parametrize(("kinds", "verdict"), CASES)
def test_most_memories_are_not_exponential(kinds, verdict, tmp_path):
    experiment = find("wang2024/figure-6")
    bench = Workbench(experiment, experiment.settings("ours"), protocol="ours", folder=tmp_path, device="cpu")
    least, most = (share > 0.5 for share in shares(kinds, is_otherwise))
    law = "its memory does not decay exponentially"
    bench.law(law, least, seeds=2, undecided=why_undecided(least, most, kinds))
    assert bench.numbers[law].verdict == verdict


def test_the_transformer_that_is_told_no_law_is_not_told_otherwise(monkeypatch, tmp_path):
    experiment = find("wang2024/figure-12")
    settings = experiment.settings("reduced")
    bench = Workbench(experiment, settings, protocol="reduced", folder=tmp_path, device="cpu")
    radii = {"error": [1.0, 0.9], "radius": [1.0, 1.0]}
    monkeypatch.setattr(figure_12, "radii_of_widths", lambda *_, **__: radii)
    monkeypatch.setattr(bench, "cell", lambda *_, **__: {"kind": UNTOLD, "memory": [1.0, 0.5], "lags": [1, 2]})
    figure_12.run(settings, bench)
    assert bench.numbers["the transformer does not forget exponentially"].verdict == "undecided"


def test_a_share_counts_the_untold_on_either_side():
    assert shares([UNTOLD, "exponential"], is_exponential) == (0.5, 1.0)
    assert shares([UNTOLD, "exponential"], is_otherwise) == (0.0, 0.5)
