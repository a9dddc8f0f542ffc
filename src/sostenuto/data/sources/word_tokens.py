"""Text to token ids: words, contractions and punctuation, and a vocabulary of the most frequent."""

import re
from collections import Counter
from collections.abc import Iterable
from itertools import chain

import numpy as np
from jaxtyping import Int

PADDING, UNKNOWN = "<pad>", "<unk>"
"""The words of ids 0 and 1."""

_BREAK = re.compile(r"<br\s*/?>")
_TOKEN = re.compile(r"[^\W_]+(?=n't)|n't|'(?:s|re|ve|ll|m|d)\b|[^\W_]+|[^\w\s]|_")


def tokenize(text: str) -> list[str]:
    """Split lowercased text into words, split-off contractions (as GloVe's own text was) and punctuation marks.

    >>> tokenize("It's not<br />GREAT, I don't think.")
    ['it', "'s", 'not', 'great', ',', 'i', 'do', "n't", 'think', '.']
    """
    return [token for piece in _pieces(text) for token in _TOKEN.findall(piece)]


def _pieces(text: str) -> list[str]:
    return _BREAK.sub(" ", text.lower()).split()


class Vocabulary:
    """The words in order of their ids: padding, unknown, then the most frequent of a text, ties by the alphabet.

    >>> vocabulary = Vocabulary.of(["b a b", "c a b"], size=2)
    >>> vocabulary.words, vocabulary.encode(["a b c"])[0].tolist()
    (('<pad>', '<unk>', 'b', 'a'), [3, 2, 1])
    """

    def __init__(self, words: tuple[str, ...]) -> None:
        self.words = words
        self._ids = {word: index for index, word in enumerate(words)}

    @classmethod
    def of(cls, texts: Iterable[str], size: int) -> "Vocabulary":
        """Keep the ``size`` most frequent tokens of ``texts``."""
        pieces: Counter[str] = Counter()
        for text in texts:
            pieces.update(_pieces(text))
        tokens: Counter[str] = Counter()
        for piece, count in pieces.items():
            for token in _TOKEN.findall(piece):
                tokens[token] += count
        frequent = sorted(tokens, key=lambda token: (-tokens[token], token))[:size]
        return cls((PADDING, UNKNOWN, *frequent))

    def encode(self, texts: Iterable[str]) -> list[Int[np.ndarray, " time"]]:
        """Return the ids of each text's tokens, 1 for a word outside the vocabulary."""
        # What stands between two blanks repeats, so each such piece is cut into tokens once.
        cut: dict[str, list[int]] = {}
        rows = []
        for text in texts:
            pieces = _pieces(text)
            for piece in set(pieces).difference(cut):
                cut[piece] = [self._ids.get(token, 1) for token in _TOKEN.findall(piece)]
            rows.append(np.fromiter(chain.from_iterable(map(cut.__getitem__, pieces)), dtype=np.int64))
        return rows
