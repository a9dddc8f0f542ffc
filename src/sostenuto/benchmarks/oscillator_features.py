"""How well and how fast `OscillatorClassifier` does on the UCR archive beside aeon's MiniRocket, MultiRocket-Hydra.

Default settings, one seed, the archive's own training and test parts. The settings were fixed on `CHOSEN_ON`, on three
draws of their parts; the other sets were looked at once. aeon pins packages of its own, so it runs in the interpreter
that the environment variable ``SOSTENUTO_PEERS`` names, set by set beside ours, with as many threads; without it ours
are measured alone. A missing value is drawn through by a straight line for all. Times are of fit and predict, compiled
code warm.
"""

import json
import os
import subprocess
import tempfile
import time
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
PEERS = ("MiniRocketClassifier", "MultiRocketHydraClassifier")
_PEER_PROGRAM = """
import json, sys, time, warnings
warnings.filterwarnings("ignore")
import numpy as np
from aeon.classification import convolution_based
threads = int(sys.argv[1])
for line in sys.stdin:
    path, name = json.loads(line)
    data = np.load(path)
    model = getattr(convolution_based, name)(random_state=0, n_jobs=threads)
    began = time.perf_counter()
    model.fit(data["train"][:, None], data["train_labels"])
    right = model.predict(data["test"][:, None]) == data["test_labels"]
    print(json.dumps({"accuracy": float(right.mean()), "seconds": time.perf_counter() - began}), flush=True)
"""


def run(
    progress: bool = True, sets: tuple[str, ...] | None = None, peers: str | None = None, data_dir: str | None = None
) -> dict[str, Any]:
    """Return accuracy and seconds of every method on every set, their means, and how often each is ahead."""
    peers = peers or os.environ.get("SOSTENUTO_PEERS")
    sets = sets or _at_hand(data_dir)
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, _Peers(peers) as others:
        for name in tqdm(["CBF", *sets], desc="oscillators on UCR", unit="set", disable=not progress):
            train, train_labels, test, test_labels = _parts(name, data_dir)
            began = time.perf_counter()
            classifier = OscillatorClassifier(random_state=0).fit(train, train_labels)
            accuracy = float(classifier.score(test, test_labels))
            seconds = time.perf_counter() - began
            row = {"OscillatorClassifier": {"accuracy": accuracy, "seconds": seconds}}
            path = Path(folder) / "set.npz"
            np.savez(path, train=train, train_labels=train_labels, test=test, test_labels=test_labels)
            results[name] = row | {peer: others.ask(path, peer) for peer in (PEERS if peers else ())}
    # CBF was first to warm compiled code up, and is in `sets` again where it belongs.
    results = {name: results[name] for name in sets}
    return {"chosen_on": list(CHOSEN_ON), "sets": results, **summary(results)}


def summary(found: dict[str, Any]) -> dict[str, Any]:
    """Average accuracies and times over all sets, those settings were chosen on, and the others; count wins.

    Mean ranks over all sets (1 is best, equals share) differ if they are further apart than the critical difference of
    Nemenyi's test at 5 % (Demšar 2006, eq. 7 and Table 5).
    """
    groups = {
        "all": list(found),
        "chosen_on": [name for name in found if name in CHOSEN_ON],
        "others": [name for name in found if name not in CHOSEN_ON],
    }
    methods = list(next(iter(found.values())))
    means = {
        group: {
            method: {
                key: float(np.mean([found[name][method][key] for name in names])) for key in ("accuracy", "seconds")
            }
            for method in methods
        }
        for group, names in groups.items()
        if names
    }
    ours = methods[0]
    ahead = {}
    for method in methods[1:]:
        lead = np.array([found[name][ours]["accuracy"] - found[name][method]["accuracy"] for name in found])
        counts = {"ahead": lead > 0, "equal": lead == 0, "behind": lead < 0}
        ahead[method] = {word: int(sets.sum()) for word, sets in counts.items()}
    scores = np.array([[row[method]["accuracy"] for method in methods] for row in found.values()])
    return {"mean": means, "against": ahead} | mean_ranks(methods, scores)


def mean_ranks(methods: list[str], scores: Float64[np.ndarray, "set method"]) -> dict[str, Any]:
    """Give every method's mean rank, and how far apart two must be to differ.

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
        return self

    def __exit__(self, *_: object) -> None:
        if self._python:
            self._process.communicate()

    def ask(self, path: Path, name: str) -> dict[str, float]:
        """Fit the named classifier on the set in the file."""
        reader, writer = self._process.stdout, self._process.stdin
        assert reader is not None
        assert writer is not None
        print(json.dumps([str(path), name]), file=writer, flush=True)
        return json.loads(reader.readline())


def _at_hand(data_dir: str | None) -> tuple[str, ...]:
    """List the sets of the archive that are on this machine."""
    folder = Path(data_dir or os.environ.get("SOSTENUTO_DATA", "")) / "ucr"
    require(folder.is_dir(), f"expected the UCR archive in {folder}", "got no folder", "name its parent SOSTENUTO_DATA")
    return tuple(sorted(path.name for path in folder.iterdir() if path.is_dir()))


def _parts(name: str, data_dir: str | None) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    data = datasets.load(f"ucr/{name}", data_dir=data_dir)
    assert data.test is not None, "the archive has a test part for every set"
    sides = [np.stack([interpolate(x)[:, 0] for x in part.sequences]) for part in (data.train, data.test)]
    labels = [np.asarray(part.targets) for part in (data.train, data.test)]
    return sides[0], labels[0], sides[1], labels[1]
