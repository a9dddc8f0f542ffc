"""Table 4 of erichson2021: test accuracies of the Lipschitz RNN over seeds."""

from sostenuto.experiments import Settings, Workbench
from sostenuto.experiments.tasks.contest import compete, report

NAMES = {"lipschitz": "Lipschitz RNN, 128 units"}


def run(settings: Settings, bench: Workbench) -> None:
    """Train with every seed, test each once."""
    spans = {}
    for task in ("ordered", "permuted"):
        trained = compete(bench, settings, bench.data(settings[task]), NAMES, part=task)
        scores = [100 * score for score in trained["lipschitz"].scores]
        report(bench, f"{task}: mean", trained["lipschitz"])
        bench.number(f"{task}: least", min(scores))
        bench.number(f"{task}: largest", max(scores))
        spans[task] = max(scores) - min(scores)
    evidence = ", ".join(f"{task} {span:.2f} points" for task, span in spans.items())
    bench.law("seeds matter little", max(spans.values()) <= 2, evidence, seeds=settings.seeds)
