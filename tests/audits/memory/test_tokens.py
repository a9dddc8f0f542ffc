import pytest
import torch
from torch import nn

from sostenuto.audits.memory.tokens import token_memory
from sostenuto.checks import InputError


class Sentiment(nn.Module):
    def __init__(self, at_end=True):
        super().__init__()
        self.embedding, self.layer, self.head = nn.Embedding(9, 4), nn.LSTM(4, 6, batch_first=True), nn.Linear(6, 2)
        self.at_end = at_end

    def forward(self, ids):
        states = self.layer(self.embedding(ids))[0]
        return self.head(states[:, -1] if self.at_end else states)


def test_a_curve_a_token_and_its_law():
    torch.manual_seed(0)
    model = Sentiment().double()
    found = token_memory(model, [1, 4], 40, names=["good", "bad"])
    assert [one.name for one in found.tokens] == ["good", "bad"]
    assert all(one.tail.kind == "exponential" for one in found.tokens)
    assert found.summary().startswith("What one more repetition of a token still changes, up to 40 of them: good: ")
    with torch.no_grad():
        once, twice = (model(torch.full((1, n), 4)) for n in (1, 2))
    assert found.tokens[1].memory[0] == pytest.approx(float((twice - once).abs().max()))
    assert token_memory(model, [1, 4], 40, names=["good", "bad"]) == found
    assert type(found).from_dict(found.to_dict()) == found


def test_answers_at_every_step_are_read_at_the_last():
    torch.manual_seed(0)
    model = Sentiment().double()
    found = token_memory(model, [2], 12)
    model.at_end = False
    assert token_memory(model, [2], 12).tokens[0].memory == pytest.approx(found.tokens[0].memory)


def test_bad_input_is_refused():
    with pytest.raises(InputError, match="expected at least one token, got none"):
        token_memory(Sentiment(), [], 10)
    with pytest.raises(InputError, match="expected 1 names, one per token, got 2"):
        token_memory(Sentiment(), [1], 10, names=["a", "b"])
