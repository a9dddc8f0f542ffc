import pytest
import torch

from sostenuto.checks import InputError
from sostenuto.models.tokens import TokenClassifier
from sostenuto.nn import GRU

WORDS = 12


def make(**options) -> TokenClassifier:
    return TokenClassifier(GRU(5, 4, batch_first=True), WORDS, 3, **options)


def test_ids_in_the_padding_do_not_matter():
    model, lengths = make(readout="mean").eval(), torch.tensor([6, 2, 4])
    tokens = torch.randint(1, WORDS, (3, 6))
    expected = model(tokens, lengths)
    for other in (0, 7):
        padded = tokens.clone()
        padded[1, 2:], padded[2, 4:] = other, other
        torch.testing.assert_close(model(padded, lengths), expected)


def test_the_padding_word_is_zero_and_is_not_trained():
    model = make()
    model(torch.tensor([[0, 3, 0, 5]])).sum().backward()
    gradient = model.embedding.weight.grad
    assert gradient is not None
    assert model.embedding.weight[0].count_nonzero() == 0
    assert gradient[0].count_nonzero() == 0
    assert gradient[3].count_nonzero() > 0


def test_embedding_dropout_drops_whole_words_everywhere():
    model = make(embedding_dropout=0.5).train()
    tokens = torch.arange(1, WORDS).repeat(2, 2)
    vectors, kept = model.embed(tokens), model.embedding(tokens)
    factor = (vectors / kept).detach()
    assert set(factor.unique().tolist()) == {0.0, 2.0}
    by_word = factor.reshape(2 * 2, WORDS - 1, 5)
    torch.testing.assert_close(by_word, by_word[:1, :, :1].expand_as(by_word))
    assert not torch.equal(model.embed(tokens), vectors)


def test_no_embedding_dropout_in_eval_mode():
    model = make(embedding_dropout=0.9).eval()
    tokens = torch.randint(1, WORDS, (2, 5))
    torch.testing.assert_close(model.embed(tokens), model.embedding(tokens))


def test_given_word_vectors_are_used():
    vectors = torch.randn(WORDS, 5)
    model = make(embedding=vectors)
    torch.testing.assert_close(model.embedding.weight.detach(), vectors)
    assert model.embedding.weight.requires_grad
    with pytest.raises(InputError, match=r"expected word vectors of shape \(12, 5\), got \(12, 4\)"):
        make(embedding=torch.randn(WORDS, 4))


def test_bad_options_are_refused():
    with pytest.raises(InputError, match="embedding_dropout"):
        make(embedding_dropout=1.0)
    with pytest.raises(InputError, match="vocabulary_size"):
        TokenClassifier(GRU(5, 4, batch_first=True), 0, 3)
