import pytest

from sostenuto import datasets
from sostenuto.data.sources import synthetic
from sostenuto.data.tasks import TASKS


@pytest.mark.parametrize("name", sorted(TASKS))
def test_listed_facts_are_those_of_the_task(name):
    data = datasets.load(f"task/{name}")
    entry = next(entry for entry in datasets.list() if entry.name == f"task/{name}")
    lengths = [len(sequence) for sequence in data.train.sequences]
    assert entry.available
    assert entry.task == data.train.task
    assert entry.channels == str(data.train.num_channels)
    assert entry.sizes == f"{len(data.train)} / {len(data.test)}"
    shortest, longest = (entry.steps.split("–") * 2)[:2]
    assert int(shortest) <= min(lengths) <= max(lengths) <= int(longest)


def test_every_task_is_listed():
    assert set(synthetic._FACTS) == set(TASKS)
