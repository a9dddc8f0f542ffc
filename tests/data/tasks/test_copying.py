import math
from typing import Any

import numpy as np

from sostenuto.data.encoding import Encoding
from sostenuto.data.tasks.copying import copying

SIZES: dict[str, Any] = {
    "num_train": 20,
    "num_validation": 0,
    "num_test": 0,
    "delay": 12,
    "num_items": 5,
    "num_symbols": 4,
}


def test_inputs_and_targets_have_the_structure_of_the_task() -> None:
    data = copying(**SIZES, tokens=True).train
    assert data.targets is not None
    for ids, answer in zip(data.sequences, data.targets, strict=True):
        assert len(ids) == len(answer) == 12 + 2 * 5
        assert set(ids[:5].tolist()) <= {1, 2, 3, 4}
        assert (ids[5:16] == 0).all()
        assert ids[16] == 5
        assert (ids[17:] == 0).all()
        assert (answer[:17] == 0).all()
        np.testing.assert_array_equal(answer[17:], ids[:5])


def test_channels_are_the_tokens_one_hot() -> None:
    ids, channels = copying(**SIZES, tokens=True).train, copying(**SIZES).train
    np.testing.assert_array_equal(np.stack(list(channels.sequences)).argmax(-1), np.stack(list(ids.sequences)))
    assert (np.stack(list(channels.sequences)).sum(-1) == 1).all()
    assert Encoding.fit(channels).classes == ("0", "1", "2", "3", "4")
    assert Encoding.fit(ids).vocabulary_size == 6


def test_the_memoryless_answer_has_the_known_cross_entropy() -> None:
    data = copying(**SIZES).train
    assert data.targets is not None
    answers = np.stack(list(data.targets))
    chance = np.where(np.arange(22) < 17, 0.0, math.log(4))
    assert np.broadcast_to(chance, answers.shape).mean() == 5 * math.log(4) / (12 + 10)
    assert ((answers > 0) == (chance > 0)).all()
