"""What models of sentiment make of one word said again and again (wang2024, appendix B, figures 5 and 6)."""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from sostenuto.audits.memory.tokens import token_memory
from sostenuto.checks import require
from sostenuto.data.dataset import Dataset
from sostenuto.data.encoding import Encoding
from sostenuto.data.parts import divide
from sostenuto.experiments.tasks.contest import candidates
from sostenuto.experiments.tasks.recipe import Recipe, with_seed
from sostenuto.experiments.tasks.trained_cells import prepare, score, word_vectors
from sostenuto.experiments.workbench import Workbench
from sostenuto.models.tokens import TokenClassifier
from sostenuto.report.figures.plot import lines

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
    """Return sines and cosines of every place, wavelengths from 2π to 20 000π.

    >>> places(3, 4)[0].tolist()
    [0.0, 0.0, 1.0, 1.0]
    """
    rates = torch.exp(-math.log(_WAVELENGTHS) * torch.arange(width // 2, dtype=torch.float64) / (width // 2))
    angles = torch.arange(steps, dtype=torch.float64)[:, None] * rates
    return torch.cat([angles.sin(), angles.cos()], dim=1)


def text_encoder(encoding: Encoding, recipe: Recipe, dataset: Dataset) -> TokenClassifier:
    """Build the encoder of a recipe: word vectors, attention, the mean over the words, one score per class."""
    model = recipe.run.model
    require(model.layer == ATTENTION, f"expected the layer {ATTENTION!r}", f"got {model.layer!r}")
    require(model.readout != "last", "expected a read-out of all words, mean or max", f"got {model.readout!r}")
    classifier = TokenClassifier(
        AttentionLayer(model.embedding_size, **model.options),
        encoding.vocabulary_size,
        encoding.output_size,
        model.readout,
        embedding_dropout=model.embedding_dropout,
        embedding=word_vectors(dataset, recipe),
    )
    classifier.readout_dropout = model.readout_dropout
    return classifier


FLOOR = 1e-9
"""What is below this share of the largest is not looked at: rounding would pass for fluctuation."""


class Sentiment(nn.Module):
    """The score of a classifier of two classes: the logarithm of the odds of the second, "positive"."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Int[Tensor, "batch time"]) -> Float[Tensor, "batch 1"]:
        """Return one score a text."""
        scores = self.model(ids)
        return scores[:, 1:2] - scores[:, :1]


def sentiment_models(
    bench: Workbench, settings: Mapping[str, Any], dataset: Dataset, models: Iterable[str]
) -> dict[str, list[dict[str, Any]]]:
    """Train each of the models (prefixes of their settings) with ``seeds`` seeds: a list of `sentiment_cell` each."""
    asked = {"words": settings["words"], "horizon": settings["repetitions"]}
    recipes = {prefix: candidates(settings, prefix)[prefix] for prefix in models}
    cells = {
        prefix: [
            partial(sentiment_cell, bench, f"{prefix}/seed={seed}", dataset, with_seed(recipe, seed), **asked)
            for seed in bench.seeds(settings["seeds"])
        ]
        for prefix, recipe in recipes.items()
    }
    bench.ahead(cell for some in cells.values() for cell in some)
    return {prefix: [cell() for cell in some] for prefix, some in cells.items()}


def sentiment_cell(
    bench: Workbench, key: str, dataset: Dataset, recipe: Recipe, *, words: Sequence[str], horizon: int
) -> dict[str, Any]:
    """Train a model of sentiment, score it on the test part, and measure its memory of repeated ``words``: one cell.

    Returns ``validation`` and ``test`` (accuracies), ``seconds`` of training, and ``words``: for each its
    ``memory`` at 2 … ``horizon`` repetitions, and ``kind`` and ``rate`` of the tail, measured in double precision.
    """
    bench.checksums.setdefault(dataset.name, dataset.train.checksum())
    depends = {"recipe": recipe.to_dict(), "data": bench.checksums[dataset.name], "words": words, "horizon": horizon}
    depends |= {"steps": sum(map(len, dataset.train.sequences))}

    def work() -> dict[str, Any]:
        training = prepare(
            dataset,
            recipe,
            bench.device,
            bench.scratch(key, depends=depends),
            after_checkpoint=bench.check_time,
            say=lambda text: bench.say(f"{key}: {text}"),
            build=text_encoder if recipe.run.model.layer == ATTENTION else None,
        )
        progress = training.run()
        test = divide(dataset, recipe.run.data, seed=0).test
        require(test is not None, f"expected a test part of {dataset.name}", "got none")
        assert test is not None
        accuracy = score(training.model, training.encoding, test, recipe, bench.device)[1]
        model = Sentiment(training.model.cpu().double())
        return {
            "validation": abs((progress.best_score or [0.0])[0]),
            "test": accuracy,
            "seconds": progress.seconds,
            "words": remembered_words(model, ids_of(dataset, words), words, horizon),
        }

    return bench.cell(key, work, depends=depends, tests=True)


def remembered_words(model: nn.Module, ids: Sequence[int], names: Sequence[str], horizon: int) -> dict[str, Any]:
    """Measure the memory of each word repeated, and the law of its tail."""
    memory = token_memory(model, ids, horizon, names=names)
    return {
        token.name: {"memory": list(token.memory), "kind": token.tail.kind, "rate": token.tail.rate}
        for token in memory.tokens
    }


def ids_of(dataset: Dataset, words: Sequence[str]) -> list[int]:
    """Look words up in the data set's vocabulary; where it has none, words are ids themselves.

    >>> from sostenuto.experiments.tasks.long_data import word_stand_in
    >>> ids_of(word_stand_in(0), ["45", "2"])
    [45, 2]
    """
    vocabulary = dataset.extras.get("vocabulary")
    if vocabulary is None:
        return [int(word) for word in words]
    known = {word: index for index, word in enumerate(vocabulary)}
    unknown = [word for word in words if word not in known]
    require(not unknown, f"expected words of the vocabulary of {dataset.name}", f"got {unknown}")
    return [known[word] for word in words]


def repetitions_to_forget(memory: Sequence[float], share: float = 0.01) -> int:
    """Count the repetitions from which on one more changes less than ``share`` of the largest change.

    >>> repetitions_to_forget([1.0, 0.5, 0.02, 0.001, 0.0001])
    5
    """
    alive = np.flatnonzero(np.asarray(memory) >= share * max(memory))
    return int(alive[-1]) + 3


def left_at_the_end(memory: Sequence[float]) -> float:
    """Return the largest change in the last quarter of the repetitions, as a share of the largest of all.

    >>> left_at_the_end([4.0, 2.0, 2.0, 1.0])
    0.25
    """
    return max(memory[-max(len(memory) // 4, 1) :]) / max(memory)


def fluctuation(memory: Sequence[float]) -> float:
    """Sum up the rises of log₁₀ M from each repetition to the next: 0 for a memory that only falls.

    >>> round(fluctuation([1.0, 0.1, 1.0, 0.01]), 6)
    1.0
    """
    logs = np.log10(np.maximum(np.asarray(memory), FLOOR * max(memory)))
    return float(np.maximum(np.diff(logs), 0).sum())


def draw_words(bench: Workbench, name: str, results: Mapping[str, Any]) -> None:
    """Draw the memory of every word over the repetitions, those of one training."""
    series = {word: [max(value, 1e-18) for value in result["memory"]] for word, result in results.items()}
    steps = list(range(2, 2 + len(next(iter(series.values())))))
    labels = ("repetitions", "change of the score")
    bench.figure(f"Memory of repeated words, {name}", partial(lines, x=steps, series=series, labels=labels, log="y"))
