"""Independent undamped oscillators (UnICORNN): one scan, layers of them on each other, and their inverse."""

from sostenuto.ops.oscillator.cell import Cell
from sostenuto.ops.oscillator.chunks import Drift
from sostenuto.ops.oscillator.layers import oscillator_layers
from sostenuto.ops.oscillator.maximum import time_max
from sostenuto.ops.oscillator.recompute import StackResult, oscillator_inverse
from sostenuto.ops.oscillator.scan import oscillator_scan

__all__ = [
    "Cell",
    "Drift",
    "StackResult",
    "oscillator_inverse",
    "oscillator_layers",
    "oscillator_scan",
    "time_max",
]
