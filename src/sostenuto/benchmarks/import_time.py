"""How long `import sostenuto` takes beside `import torch`.

Every measurement is a fresh interpreter that times one import statement; the two alternate, so that a machine that
slows down slows both. The first round is thrown away: it fills the file cache.
"""

import statistics
import subprocess
import sys
from typing import Any

from tqdm import tqdm

TITLE = "import sostenuto against import torch, each in fresh interpreters"

_MODULES = ("torch", "sostenuto")
_ROUNDS = 7
_PROGRAM = "import time; start = time.perf_counter(); import {}; print(time.perf_counter() - start)"


def run(progress: bool = True) -> dict[str, Any]:
    """Return the seconds of every import, their medians, and the ratio sostenuto / torch."""
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
        "ratio": medians["sostenuto"] / medians["torch"],
    }


def import_seconds(module: str) -> float:
    """Time ``import module`` in a fresh interpreter.

    >>> import_seconds("json") > 0
    True
    """
    command = [sys.executable, "-c", _PROGRAM.format(module)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
