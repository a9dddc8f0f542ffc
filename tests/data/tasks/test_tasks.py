"""What every generated task promises."""

import json
from typing import Any

import numpy as np
import pytest

from sostenuto.checks import InputError
from sostenuto.data.dataset import SequenceSet
from sostenuto.data.encoding import Encoding, check_learnable
from sostenuto.data.tasks import TASKS, generate

SMALL: dict[str, dict[str, Any]] = {
    "adding": {"num_steps": 20},
    "copying": {"delay": 5},
    "linear_functional": {"num_steps": 20},
    "lorenz96": {"num_steps": 30, "horizon": 3},
    "pendulum": {"num_steps": 20},
    "sinusoid": {},
    "spirals": {"num_steps": 20},
}


def small(name: str, seed: int = 0, **sizes: int) -> Any:
    counts = {"num_train": 6, "num_validation": 4, "num_test": 5} | sizes
    return generate(name, seed, **counts, **SMALL[name])


def test_every_task_is_listed_here() -> None:
    assert set(SMALL) == set(TASKS)


@pytest.mark.parametrize("name", TASKS)
def test_parts_have_their_sizes_and_can_be_learned(name: str) -> None:
    data = small(name)
    assert (len(data.train), len(data.validation), len(data.test)) == (6, 4, 5)
    assert data.name == f"task/{name}"
    assert data.description.endswith(".")
    assert data.origin.startswith("generated: ")
    check_learnable(data.train)
    encoding = Encoding.fit(data.train)
    for part in (data.train, data.validation, data.test):
        batch = encoding.encode(part)
        assert batch.targets is not None
        assert len(part.channel_names) == part.num_channels
    json.dumps(encoding.to_dict())


@pytest.mark.parametrize("name", TASKS)
def test_a_seed_repeats_and_another_seed_differs(name: str) -> None:
    assert small(name).train.checksum() == small(name).train.checksum()
    assert small(name).train.checksum() != small(name, seed=1).train.checksum()


@pytest.mark.parametrize("name", TASKS)
def test_no_part_repeats_another_and_none_depends_on_the_size_of_the_next(name: str) -> None:
    data = small(name)
    parts: list[SequenceSet] = [data.train, data.validation, data.test]
    whole = {(row.tobytes(), row.shape) for part in parts for row in map(np.ascontiguousarray, part.sequences)}
    assert len(whole) == 15
    assert small(name, num_validation=2).train.checksum() == data.train.checksum()


@pytest.mark.parametrize("name", TASKS)
def test_parts_can_be_left_out_but_not_the_training_part(name: str) -> None:
    data = small(name, num_validation=0, num_test=0)
    assert data.validation is None
    assert data.test is None
    with pytest.raises(InputError, match="expected num_train to be a whole number of at least 1, got 0"):
        small(name, num_train=0)


def test_an_unknown_task_or_option_is_named() -> None:
    with pytest.raises(InputError, match=r"expected task to be one of 'adding', .*, got 'spiral'"):
        generate("spiral")
    with pytest.raises(InputError, match=r"expected option of task 'adding' to be one of .*'num_steps', got 'length'"):
        generate("adding", length=3)
