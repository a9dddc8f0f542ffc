"""One class per token sequence: an embedding, a recurrent layer, a read-out."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sostenuto.checks import check_count, check_fraction, require
from sostenuto.choices import Readout
from sostenuto.models.base import SequenceModel, linear_head
from sostenuto.types import Lengths, Timespans, Tokens


class TokenClassifier(SequenceModel):
    """Embed token ids, read them, return one score per class.

    ``embedding_dropout`` drops whole words: a token's vector is zero wherever it occurs in the batch (rusch2021's IMDB
    setting). Id 0 is padding.

    >>> from sostenuto.nn import GRU
    >>> model = TokenClassifier(GRU(6, 8, batch_first=True), vocabulary_size=20, num_classes=2)
    >>> model(torch.randint(1, 20, (3, 9))).shape
    torch.Size([3, 2])
    """

    def __init__(
        self,
        layer: Any,
        vocabulary_size: int,
        num_classes: int,
        readout: Readout = "last",
        *,
        embedding_dropout: float = 0.0,
        embedding: Float[Tensor, "vocabulary feature"] | None = None,
    ) -> None:
        super().__init__(layer)
        check_count("vocabulary_size", vocabulary_size)
        check_fraction("embedding_dropout", embedding_dropout)
        self.readout: Readout = readout
        self.embedding_dropout = embedding_dropout
        self.embedding = nn.Embedding(vocabulary_size, layer.input_size, padding_idx=0)
        if embedding is not None:
            expected, got = tuple(self.embedding.weight.shape), tuple(embedding.shape)
            require(got == expected, f"expected word vectors of shape {expected}", f"got {got}")
            with torch.no_grad():
                self.embedding.weight.copy_(embedding)
        self.head = linear_head(layer.output_size, num_classes)

    def forward(
        self, values: Tokens, lengths: Lengths | None = None, timespans: Timespans | None = None
    ) -> Float[Tensor, "batch class"]:
        """Return logits."""
        return self.head(self.pooled(self.embed(values), lengths, timespans, self.readout))

    def embed(self, tokens: Tensor) -> Tensor:
        """Return the words' vectors; in training, words are dropped."""
        vectors = self.embedding(tokens)
        if not self.training or self.embedding_dropout == 0:
            return vectors
        keep = nn.functional.dropout(
            self.embedding.weight.new_ones(self.embedding.num_embeddings), self.embedding_dropout
        )
        return vectors * keep[tokens][..., None]
