"""Several commands at once on one run folder or one Gram matrix: one works, the others are refused in a sentence."""

import json
import random
import shutil
import time
from pathlib import Path

from tests.attacks.forked import Ended, finish, prepare, run, start
from tests.attacks.full_disk import KEPT, NETWORK, OFTEN
from tests.attacks.outcome import Bound, Outcome
from tests.cli.small import write_waves

PROMISE = "one works, the others are refused with exit code 2 and a sentence; its results are those of one alone"
WRITERS = 4


def attack(bound: Bound, folder: Path) -> Outcome:
    """Start four writers at nearly the same moment."""
    outcome = Outcome("several writers at once", PROMISE)
    prepare()
    rng = random.Random(bound.seed)
    data = write_waves(folder / "waves.npz")
    fit = ["fit", str(data), *NETWORK, *OFTEN, "--quiet", "--device", "cpu"]
    gram = ["gram", str(data), "--kernel", "rbf", "--tile-size", "3", "--quiet"]
    kinds = [(fit, "run"), ([*fit, "--overwrite"], "run"), (gram, "gram.npy"), (gram, "gram.zarr")]
    place, log = folder / "place", folder / "alone.log"
    alone = {}
    for index, (command, name) in enumerate(kinds):
        shutil.rmtree(place, ignore_errors=True)
        assert run([*command, "--out", str(place / name)], log).code == 0, log.with_suffix(".err").read_text()
        alone[index] = _content(place / name)
    for number in bound.numbers():
        index = number % len(kinds)
        command, name = kinds[index]
        shutil.rmtree(place, ignore_errors=True)
        children = []
        for writer in range(WRITERS):
            own = folder / f"writer{writer}.log"
            children.append((start([*command, "--out", str(place / name)], own), own))
            time.sleep(rng.random() ** 3 * 0.3)
        ended = [finish(child, own) for child, own in children]
        problem = _problem(ended)
        if not problem and _content(place / name) != alone[index]:
            problem = "expected what one writer alone gives"
        if problem:
            said = [(one.code, one.err[-500:]) for one in ended]
            outcome.fail("broken promise", f"{' '.join(command[:1])} {name}: {problem}; {said}")
        else:
            outcome.add(f"{sum(one.code == 2 for one in ended)} of {WRITERS} refused")
    return outcome


def _problem(ended: list[Ended]) -> str:
    if not any(one.code == 0 for one in ended):
        return "expected one of them to work"
    for one in ended:
        if one.code not in (0, 2) or (one.code == 2 and not one.is_sentence()):
            return "expected the others to be refused in a sentence"
    return ""


def _content(place: Path) -> dict[str, bytes]:
    if place.is_file():
        return {"matrix": place.read_bytes()}
    if (place / "zarr.json").exists():
        assert json.loads((place / "zarr.json").read_text())["attributes"]["complete"]
        return {str(path.relative_to(place)): path.read_bytes() for path in place.glob("c/*/*")}
    return {name: (place / name).read_bytes() for name in KEPT}
