"""What `UnICORNN(memory="recompute")` saves in memory and costs in time.

Every measurement is a fresh interpreter with torch's own settings. One small call loads the compiled kernels, the peak
of resident memory is reset (Linux keeps it in /proc) and one forward and backward pass gives the peak above what was
resident before; the time is the median of the passes after it.

Two losses. Of the final state (`UnICORNN.final_state`): what recomputes makes no outputs for it. Of all outputs: the
caller keeps them, T·B·H numbers, and hands in their gradient, made before the measurement; the ratio of what lies
beside the outputs is given too.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tqdm import tqdm

from sostenuto.checks import require

TITLE = "UnICORNN that recomputes its states against one that stores them: peak memory and time"
TIMED = True

SHAPE = {"steps": 16000, "batch": 8, "hidden": 256, "layers": 3, "channels": 1}
_MODES = ("store", "recompute")
_LOSSES = ("final state", "all outputs")
_ROUNDS = 3


def run(progress: bool = True, shape: dict[str, int] | None = None) -> dict[str, Any]:
    """Return peak bytes and seconds of both modes for both losses, and the ratios of recompute to store."""
    shape = SHAPE if shape is None else shape
    environment = {name: value for name, value in os.environ.items() if name != "GOMP_SPINCOUNT"}
    results: dict[str, dict[str, Any]] = {loss: {} for loss in _LOSSES}
    for loss, mode in tqdm([(loss, mode) for loss in _LOSSES for mode in _MODES], disable=not progress):
        program = f"from {__name__} import measure_here as m; m({mode!r}, {loss!r}, {shape!r})"
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment
        )
        results[loss][mode] = json.loads(done.stdout)
    ratios = {loss: _ratios(modes) for loss, modes in results.items()}
    ratios["all outputs"]["peak_bytes_beside_outputs"] = _beside_outputs(results["all outputs"], shape)
    return {"shape": shape, "measured": results, "recompute_over_store": ratios}


def _ratios(modes: dict[str, dict[str, Any]]) -> dict[str, float]:
    store, recompute = (modes[mode] for mode in _MODES)
    return {
        "peak_bytes": recompute["peak_bytes"] / store["peak_bytes"],
        "kept_bytes": recompute["kept_bytes"] / store["kept_bytes"],
        "seconds": recompute["median_seconds"] / store["median_seconds"],
    }


def _beside_outputs(modes: dict[str, dict[str, Any]], shape: dict[str, int]) -> float:
    """Return the ratio of what lies beside the outputs, which both modes make: that is the modes' own."""
    outputs = 4 * shape["steps"] * shape["batch"] * shape["hidden"]
    store, recompute = (modes[mode]["peak_bytes"] - outputs for mode in _MODES)
    return recompute / store


def measure_here(mode: str, loss: str, shape: dict[str, int]) -> None:
    """Print, as JSON, the peak bytes, the bytes kept between the passes and the seconds of one mode."""
    import torch

    from sostenuto.nn import UnICORNN

    torch.manual_seed(0)
    layer = UnICORNN(shape["channels"], shape["hidden"], shape["layers"], memory=mode)
    # enough rows for the kernels of the measured pass, so that those are loaded, or compiled, here
    rows = (64, shape["batch"])
    _pass(layer, torch.randn(*rows, shape["channels"]), loss, torch.ones(*rows, shape["hidden"]))
    x = torch.randn(shape["steps"], shape["batch"], shape["channels"])
    gradient = torch.randn(shape["steps"], shape["batch"], shape["hidden"])
    before = _reset_peak()
    kept = _pass(layer, x, loss, gradient)["kept"]
    peak = _memory("VmHWM") - before
    seconds = [_pass(layer, x, loss, gradient)["seconds"] for _ in range(_ROUNDS)]
    restarted = sum(drift.restarted for drift in layer.last_drift)
    record = {"peak_bytes": peak, "kept_bytes": kept - before, "median_seconds": statistics.median(seconds)}
    print(json.dumps({**record, "seconds": seconds, "chunks_restarted": restarted}))


def _pass(layer: Any, x: Any, loss: str, gradient: Any) -> dict[str, float]:
    layer.zero_grad()
    start = time.perf_counter()
    root = _root(layer, x, loss)
    kept = _memory("VmRSS")
    root.backward(gradient if loss == "all outputs" else None)
    return {"seconds": time.perf_counter() - start, "kept": kept}


def _root(layer: Any, x: Any, loss: str) -> Any:
    return layer(x)[0] if loss == "all outputs" else layer.final_state(x)[0][-1].square().mean()


def _reset_peak() -> int:
    """Set the peak of resident memory to what is resident now, and return that in bytes."""
    switch = Path("/proc/self/clear_refs")
    require(switch.exists(), "expected Linux, which keeps a peak of memory that can be reset", f"got {sys.platform}")
    switch.write_text("5", encoding="utf-8")
    return _memory("VmRSS")


def _memory(field: str) -> int:
    """Read a number of bytes from the process's status."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return 1024 * int(value.split()[0])
    return 0
