"""The texts that settings choose from, each listed once. Nothing is imported here, so that help is quick."""

from typing import Literal

Layout = Literal["btc", "bct"]
Missing = Literal["refuse", "mask", "interpolate"]
Scaling = Literal["standard", "minmax", "none"]
Split = Literal["stratified", "random", "group", "time"]
Separator = Literal["comma", "semicolon", "tab"]
Decimal = Literal["point", "comma"]
Spacing = Literal["use", "ignore"]
"""What becomes of uneven times: time spans, or evenly spaced steps in their order."""
Task = Literal["classification", "regression", "sequence", "forecast"]
NamedTask = Literal[
    "", "classification", "regression", "sequence", "step-classification", "step-regression", "forecast"
]
"""A task as requested; the empty one is inferred from the targets."""
DataPart = Literal["train", "validation", "test"]
Readout = Literal["last", "mean", "max"]
Optimizer = Literal["adamw", "adam", "sgd", "muon"]
Schedule = Literal["constant", "step", "cosine", "one-cycle"]
Selection = Literal["best", "last"]
ClassWeights = Literal["none", "balanced"]
Precision = Literal["float32", "tf32", "bf16"]
Decayed = Literal["all", "matrices"]
NormMethod = Literal["exact", "stochastic"]
Budget = Literal["quick", "full"]
