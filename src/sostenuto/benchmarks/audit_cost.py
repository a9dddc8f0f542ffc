"""What a quick audit costs: processor seconds of one thread and the most memory, each in a fresh process.

The audit's own clock is that of the processor, too, so that what else the machine does changes neither what is measured
nor how much an audit takes on.

`long_lstm` is an `nn.LSTM` of a million parameters on 200 sequences of 1000 steps, whose classes are its own decisions,
so that no check is spared because a model has no skill; `demo` is the network that `make demo` trains and audits.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

TITLE = "time and memory of a quick audit: an nn.LSTM of a million parameters at 1000 steps, and the demo's network"

CASES = ("long_lstm", "demo")
_MEBIBYTE = 2**20
_COUNTED_IN = 1 if sys.platform == "darwin" else 1024  # bytes, of which ru_maxrss counts


def run(progress: bool = True) -> dict[str, Any]:
    """Return what each audit takes, and which of its checks gave no answer."""
    costs = {}
    variables = {**os.environ, "OMP_NUM_THREADS": "1"}
    for case in CASES:
        command = [sys.executable, "-m", __name__, case, *([] if progress else ["--quiet"])]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=variables)
        costs[case] = json.loads(done.stdout)
    return costs


def cost(case: str, *, progress: bool) -> dict[str, Any]:
    """Audit one model and say what that took, beside what this process held before."""
    with tempfile.TemporaryDirectory() as folder:
        audit = _demo(Path(folder), progress) if case == "demo" else _long_lstm(progress)
        before, started = _most_mebibytes(), time.process_time()
        report = audit()
        seconds = time.process_time() - started
    return {
        "parameters": report.num_parameters,
        "sequences": report.num_sequences,
        "steps": report.num_steps,
        "processor_seconds": round(seconds, 1),
        "peak_mib": round(_most_mebibytes()),
        "peak_mib_before": round(before),
        "verdicts": {name: verdict.label for name, verdict in report.verdicts.items()},
        "refused": report.refused,
    }


def _long_lstm(progress: bool) -> Any:
    import torch
    from torch import nn

    from sostenuto.audits.audit import audit
    from sostenuto.benchmarks._audited_models import Recurrent

    torch.manual_seed(0)
    model, x = Recurrent(nn.LSTM(2, 498, batch_first=True)), torch.randn(200, 1000, 2)
    with torch.no_grad():
        scores = torch.cat([model(part) for part in x.split(20)])
        middle = scores.median(0).values
        model.head.bias.sub_(middle)
    return lambda: audit(model, x, (scores - middle).argmax(1), progress=progress)


def _demo(folder: Path, progress: bool) -> Any:
    from sostenuto.audits.sources import audit_run
    from sostenuto.estimators.runs import load_fitted

    command = [sys.executable, "-m", "sostenuto.cli", "fit", "--out", str(folder / "run"), "--epochs", "10"]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return lambda: audit_run(folder / "run", "", None, {"progress": progress}, load=load_fitted)


def _most_mebibytes() -> float:
    """Return the most memory this process ever held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _COUNTED_IN / _MEBIBYTE


if __name__ == "__main__":
    print(json.dumps(cost(sys.argv[1], progress="--quiet" not in sys.argv)))
