"""How long `import sostenuto` takes beside `import torch`.

The names of sostenuto are imported when first used, so ``import sostenuto`` alone leaves torch aside; ``sostenuto.nn``,
which brings torch and the layers, is what a user pays before the first model, and is measured too.

Every measurement is a fresh interpreter that times one import statement; they alternate, so that a machine that slows
down slows all. The first round is thrown away: it fills the file cache.
"""

import statistics
import subprocess
import sys
from typing import Any

from tqdm import tqdm

TITLE = "import sostenuto against import torch, each in fresh interpreters"
TIMED = True

_MODULES = ("torch", "sostenuto", "sostenuto.nn")
_ROUNDS = 7
_PROGRAM = "import time; start = time.perf_counter(); import {}; print(time.perf_counter() - start)"


def run(progress: bool = True) -> dict[str, Any]:
    """Return the seconds of every import, their medians, and each median over torch's."""
    seconds: dict[str, list[float]] = {name: [] for name in _MODULES}
    for trial in tqdm(range(_ROUNDS + 1), desc="import time", unit="round", disable=not progress):
        for name in _MODULES:
            took = import_seconds(name)
            if trial > 0:
                seconds[name].append(took)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    return {
        "seconds": seconds,
        "median_seconds": medians,
        "ratio_to_torch": {name: median / medians["torch"] for name, median in medians.items()},
    }


def import_seconds(module: str) -> float:
    """Time ``import module`` in a fresh interpreter.

    >>> import_seconds("json") > 0
    True
    """
    command = [sys.executable, "-c", _PROGRAM.format(module)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
