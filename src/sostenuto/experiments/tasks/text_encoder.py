"""A small transformer encoder that reads token sequences like a recurrent layer, to stand beside recurrent ones."""

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from sostenuto.checks import require
from sostenuto.data.dataset import Dataset
from sostenuto.data.encoding import Encoding
from sostenuto.experiments.tasks.recipe import Recipe
from sostenuto.models.tokens import TokenClassifier

ATTENTION = "attention"
"""The layer's name in a recipe."""
_WAVELENGTHS = 10_000.0


class AttentionLayer(nn.Module):
    """Blocks of self-attention over a whole sequence, with a recurrent layer's call: states out, and no final state.

    Every step attends to every step of its own sequence, padding left out; sines and cosines tell the places (Vaswani
    et al. 2017), and layers are normalized first.

    >>> AttentionLayer(6, 8)(torch.zeros(2, 5, 6))[0].shape
    torch.Size([2, 5, 8])
    """

    batch_first = True
    bidirectional = True

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 2, *, heads: int = 4, dropout: float = 0.1
    ) -> None:
        super().__init__()
        self.input_size, self.hidden_size, self.output_size = input_size, hidden_size, hidden_size
        self.enter = nn.Linear(input_size, hidden_size)
        block = nn.TransformerEncoderLayer(
            hidden_size, heads, 4 * hidden_size, dropout, activation="gelu", batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(
            block, num_layers, norm=nn.LayerNorm(hidden_size), enable_nested_tensor=False
        )

    def forward(self, input: Float[Tensor, "batch time channel"] | PackedSequence) -> tuple[Any, None]:
        """Attend; packed sequences come back packed."""
        if not isinstance(input, PackedSequence):
            return self._attended(input, None), None
        values, lengths = pad_packed_sequence(input, batch_first=True)
        steps = torch.arange(values.shape[1], device=values.device)
        states = self._attended(values, steps >= lengths.to(values.device)[:, None])
        return pack_padded_sequence(states, lengths, batch_first=True, enforce_sorted=False), None

    def _attended(self, values: Tensor, outside: Tensor | None) -> Tensor:
        entered = self.enter(values)
        return self.blocks(
            entered + places(values.shape[1], self.hidden_size).to(entered), src_key_padding_mask=outside
        )


def places(steps: int, width: int) -> Float[Tensor, "time feature"]:
    """Give sines and cosines of every place, wavelengths from 2π to 20 000π.

    >>> places(3, 4)[0].tolist()
    [0.0, 0.0, 1.0, 1.0]
    """
    rates = torch.exp(-math.log(_WAVELENGTHS) * torch.arange(width // 2, dtype=torch.float64) / (width // 2))
    angles = torch.arange(steps, dtype=torch.float64)[:, None] * rates
    return torch.cat([angles.sin(), angles.cos()], dim=1)


def text_encoder(encoding: Encoding, recipe: Recipe, dataset: Dataset) -> TokenClassifier:
    """Build the encoder of a recipe: word vectors, attention, the mean over the words, one score a class."""
    model = recipe.run.model
    require(model.layer == ATTENTION, f"expected the layer {ATTENTION!r}", f"got {model.layer!r}")
    require(model.readout != "last", "expected a read-out of all words, mean or max", f"got {model.readout!r}")
    vectors = dataset.extras.get("embedding")
    fits = vectors is not None and vectors.shape[1] == model.embedding_size
    return TokenClassifier(
        AttentionLayer(model.embedding_size, **model.options),
        encoding.vocabulary_size,
        encoding.output_size,
        model.readout,  # pyright: ignore[reportArgumentType]
        embedding_dropout=model.embedding_dropout,
        embedding=torch.as_tensor(vectors) if fits else None,
    )
