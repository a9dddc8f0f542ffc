"""Independent undamped oscillators (UnICORNN): one scan, a stack that recomputes its states, and its inverse."""

from sostenuto.ops.oscillator.cell import Cell, Drift
from sostenuto.ops.oscillator.maximum import time_max
from sostenuto.ops.oscillator.scan import BACKENDS, oscillator_scan
from sostenuto.ops.oscillator.stack import StackResult, oscillator_stack, oscillator_stack_inverse
from sostenuto.ops.oscillator.tiles import oscillator_tiles, takes_tiles

__all__ = [
    "BACKENDS",
    "Cell",
    "Drift",
    "StackResult",
    "oscillator_scan",
    "oscillator_stack",
    "oscillator_stack_inverse",
    "oscillator_tiles",
    "takes_tiles",
    "time_max",
]
