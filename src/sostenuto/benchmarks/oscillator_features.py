"""How well and how fast `OscillatorClassifier` does on the UCR archive beside aeon's MiniRocket, MultiRocket-Hydra.

Default settings, the archive's own training and test parts, every method with its `SEEDS`. The settings were fixed
on `CHOSEN_ON`, on three draws of their parts; the other sets were looked at once. aeon pins packages of its own, so it
runs in the interpreter that the environment variable ``SOSTENUTO_PEERS`` names, set by set beside ours, with as many
threads; without it ours are measured alone. A missing value is drawn through by a straight line for all. Seconds are
the processor's, of fit and predict, compiled code warm. With ``SOSTENUTO_RESUME`` naming a file, what is measured is
kept there, and a run that was ended goes on with the next set.
"""

import json
import os
import subprocess
import tempfile
import time
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64
from scipy.stats import rankdata, studentized_range
from tqdm import tqdm

from sostenuto import datasets
from sostenuto.checks import require
from sostenuto.data.batch import interpolate
from sostenuto.estimators import OscillatorClassifier

TITLE = "OscillatorClassifier beside MiniRocket and MultiRocket-Hydra (aeon) on the UCR archive"
CHOSEN_ON = (
    "Adiac", "Beef", "CBF", "Chinatown", "Computers", "CricketX", "DistalPhalanxTW", "ECG200", "Earthquakes",
    "FaceFour", "FiftyWords", "GunPoint", "Ham", "Lightning7", "MedicalImages", "OSULeaf", "PigCVP",
    "SmallKitchenAppliances", "SyntheticControl", "Worms",
)  # fmt: skip
OURS, PEERS = "OscillatorClassifier", ("MiniRocketClassifier", "MultiRocketHydraClassifier")
SEEDS = {OURS: 3, PEERS[0]: 3, PEERS[1]: 1}
"""Seeds 0, 1, … of every method: one takes twenty times as long as the others."""
_PEER_PROGRAM = """
import json, platform, sys, time, warnings
from importlib.metadata import version
warnings.filterwarnings("ignore")
import numpy as np
import torch
from aeon.classification import convolution_based
threads = int(sys.argv[1])
torch.set_num_threads(threads)
packages = ("aeon", "numba", "numpy", "scikit-learn", "torch")
print(json.dumps({"python": platform.python_version()} | {name: version(name) for name in packages}), flush=True)
for line in sys.stdin:
    path, name, seed = json.loads(line)
    data = np.load(path)
    model = getattr(convolution_based, name)(random_state=seed, n_jobs=threads)
    began = time.process_time()
    model.fit(data["train"][:, None], data["train_labels"])
    right = model.predict(data["test"][:, None]) == data["test_labels"]
    print(json.dumps({"accuracy": float(right.mean()), "seconds": time.process_time() - began}), flush=True)
"""


def run(
    progress: bool = True, sets: tuple[str, ...] | None = None, peers: str | None = None, data_dir: str | None = None
) -> dict[str, Any]:
    """Return accuracy and seconds of every method on every set, their means, and how often each is ahead."""
    peers = peers or os.environ.get("SOSTENUTO_PEERS")
    sets = sets or at_hand(data_dir)
    kept = Path(os.environ["SOSTENUTO_RESUME"]) if "SOSTENUTO_RESUME" in os.environ else None
    lines = kept.read_text(encoding="utf-8").splitlines() if kept and kept.exists() else []
    results = {(seed, name): row for seed, name, row in map(json.loads, lines)}
    wanted = [pair for pair in product(range(max(SEEDS.values())), sets) if pair not in results]
    with tempfile.TemporaryDirectory() as folder, _Peers(peers) as others:
        path = Path(folder) / "set.npz"
        warm = [(0, sets[0])] if wanted else []  # compiles what is timed then
        for turn, (seed, name) in enumerate(tqdm([*warm, *wanted], desc=TITLE, unit="set", disable=not progress)):
            data = parts(name, data_dir)
            np.savez(path, **data)
            asked = [peer for peer in (PEERS if peers else ()) if seed < SEEDS[peer]]
            row = {OURS: _ours(data, seed)} | {peer: others.ask(path, peer, seed) for peer in asked}
            if turn:
                results[seed, name] = row
                if kept:
                    with kept.open("a", encoding="utf-8") as file:
                        print(json.dumps([seed, name, row]), file=file)
    rows = {
        name: _over_seeds([row for (_, set_name), row in sorted(results.items()) if set_name == name]) for name in sets
    }
    versions = {"peer_versions": others.versions} if peers else {}
    return {"chosen_on": list(CHOSEN_ON), "seeds": SEEDS, **versions, "sets": rows, **summary(rows)}


def _ours(parts: dict[str, np.ndarray], seed: int) -> dict[str, float]:
    began = time.process_time()
    classifier = OscillatorClassifier(random_state=seed).fit(parts["train"], parts["train_labels"])
    accuracy = float(classifier.score(parts["test"], parts["test_labels"]))
    return {"accuracy": accuracy, "seconds": time.process_time() - began}


def _over_seeds(rows: list[dict[str, dict[str, float]]]) -> dict[str, Any]:
    """Average over seeds, with the accuracy of each beside."""
    methods = {method: [row[method] for row in rows if method in row] for method in rows[0]}
    return {
        method: {key: float(np.mean([each[key] for each in seeds])) for key in ("accuracy", "seconds")}
        | {"by_seed": [each["accuracy"] for each in seeds]}
        for method, seeds in methods.items()
    }


def summary(rows: dict[str, Any]) -> dict[str, Any]:
    """Average accuracies and times over all sets, those settings were chosen on, and the others; count wins.

    Mean ranks over all sets (1 is best, equals share) differ if they are further apart than the critical difference of
    Nemenyi's test at 5 % (Demšar 2006, eq. 7 and Table 5).
    """
    groups = {
        "all": list(rows),
        "chosen_on": [name for name in rows if name in CHOSEN_ON],
        "others": [name for name in rows if name not in CHOSEN_ON],
    }
    methods = list(next(iter(rows.values())))
    means = {
        group: {
            method: {
                key: float(np.mean([rows[name][method][key] for name in names])) for key in ("accuracy", "seconds")
            }
            for method in methods
        }
        for group, names in groups.items()
        if names
    }
    ours = methods[0]
    ahead = {}
    for method in methods[1:]:
        lead = np.array([rows[name][ours]["accuracy"] - rows[name][method]["accuracy"] for name in rows])
        counts = {"ahead": lead > 0, "equal": lead == 0, "behind": lead < 0}
        ahead[method] = {word: int(sets.sum()) for word, sets in counts.items()}
    scores = np.array([[row[method]["accuracy"] for method in methods] for row in rows.values()])
    return {"mean": means, "against": ahead} | mean_ranks(methods, scores)


def mean_ranks(methods: list[str], scores: Float64[np.ndarray, "set method"]) -> dict[str, Any]:
    """Return every method's mean rank, and how far apart two must be to differ.

    >>> mean_ranks(["a", "b"], np.array([[0.9, 0.8], [0.7, 0.7]]))["mean_rank"]
    {'a': 1.25, 'b': 1.75}
    """
    sets, count = scores.shape
    ranks = dict(zip(methods, rankdata(-scores, axis=1).mean(0).tolist(), strict=True))
    quantile = studentized_range.ppf(0.95, count, np.inf) / np.sqrt(2) if count > 1 else 0.0
    return {"mean_rank": ranks, "critical_difference": float(quantile * np.sqrt(count * (count + 1) / (6 * sets)))}


class _Peers:
    """One process of the other interpreter, which fits what it is asked to, one after the other."""

    def __init__(self, python: str | None) -> None:
        self._python = python

    def __enter__(self) -> "_Peers":
        if self._python:
            threads = str(torch.get_num_threads())
            self._process = subprocess.Popen(
                [self._python, "-c", _PEER_PROGRAM, threads], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            self.versions = self._read()
        return self

    def __exit__(self, *_: object) -> None:
        if self._python:
            self._process.communicate()

    def ask(self, path: Path, name: str, seed: int) -> dict[str, float]:
        """Fit the named classifier on the set in the file."""
        assert self._process.stdin is not None
        print(json.dumps([str(path), name, seed]), file=self._process.stdin, flush=True)
        return self._read()

    def _read(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())


def at_hand(data_dir: str | None) -> tuple[str, ...]:
    """List the sets of the archive that are on this machine."""
    folder = Path(data_dir or os.environ.get("SOSTENUTO_DATA", "")) / "ucr"
    require(folder.is_dir(), f"expected the UCR archive in {folder}", "got no folder", "name its parent SOSTENUTO_DATA")
    return tuple(sorted(path.name for path in folder.iterdir() if path.is_dir()))


def parts(name: str, data_dir: str | None) -> dict[str, Any]:
    """Load a set, missing values drawn through."""
    data = datasets.load(f"ucr/{name}", data_dir=data_dir)
    assert data.test is not None, "the archive has a test part for every set"
    arrays: dict[str, Any] = {}
    for side, part in (("train", data.train), ("test", data.test)):
        arrays[side] = np.stack([interpolate(x)[:, 0] for x in part.sequences])
        arrays[f"{side}_labels"] = np.asarray(part.targets)
    return arrays
