"""Models of sentiment: padding is not looked at in either direction, and what words leave behind is measured."""

import pytest
import torch
from torch import nn

from sostenuto.checks import InputError
from sostenuto.experiments.tasks.long_data import word_stand_in
from sostenuto.experiments.tasks.word_memory import AttentionLayer, Sentiment, ids_of, remembered_words
from sostenuto.models.tokens import TokenClassifier
from sostenuto.nn import LSTM

LAYERS = {
    "attention": lambda: AttentionLayer(6, 8, heads=2),
    "two directions": lambda: LSTM(6, 4, num_layers=2, bidirectional=True, batch_first=True),
}


class Settling(nn.Module):
    """Scores that approach their limit by a factor a word, different for even and odd words."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones((), dtype=torch.float64))

    def forward(self, ids):
        rate = torch.where(ids[:, 0] % 2 == 0, 0.9, 0.5).double() ** ids.shape[1]
        return torch.stack([rate, -rate], dim=1) * self.weight


@pytest.mark.parametrize("name", LAYERS)
def test_padding_is_not_looked_at(name):
    torch.manual_seed(0)
    model = TokenClassifier(LAYERS[name](), 20, 2, "mean").eval()
    ids, lengths = torch.randint(1, 20, (4, 9)), torch.tensor([3, 9, 5, 1])
    alone = torch.cat([model(ids[row : row + 1, : lengths[row]]) for row in range(4)])
    model.packs = False
    torch.testing.assert_close(model(ids, lengths), alone)


def test_every_word_has_its_own_law():
    found = remembered_words(Sentiment(Settling()), [2, 3], ["slow", "fast"], 60)
    assert {name: one["kind"] for name, one in found.items()} == {"slow": "exponential", "fast": "exponential"}
    assert found["slow"]["rate"] == pytest.approx(0.10536, rel=1e-3)
    assert found["fast"]["rate"] == pytest.approx(0.69315, rel=1e-3)
    assert found["slow"]["memory"][0] == pytest.approx(2 * 0.9 * 0.1)


def test_unknown_words_are_told_of():
    data = word_stand_in(0)
    data.extras["vocabulary"] = ("<pad>", "<unk>", "good")
    assert ids_of(data, ["good"]) == [2]
    with pytest.raises(InputError, match="'ha'"):
        ids_of(data, ["good", "ha"])
