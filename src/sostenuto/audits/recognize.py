"""What users bring, turned into what checks read: estimators, token ids, names of classes, and answers of other forms.

Each form that is recognized leaves a sentence that the page shows. One that could mean two things is refused with the
line to write.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sostenuto.audits.adapter import adapt
from sostenuto.audits.batches import is_real
from sostenuto.audits.model import audited, forward_arguments, place_of, takes_lengths
from sostenuto.checks import InputError, require

PROBED = 8
LENGTH_NAMES = ("lens", "seq_len", "seq_lens", "seq_lengths", "seq_length", "sequence_lengths", "input_lengths")
OUTPUT_NAMES = ("logits", "scores", "prediction_logits", "output", "outputs", "predictions")


class Recognized(NamedTuple):
    """A module on ``(batch, time, channel)``, its data, the names of its classes, and what was recognized."""

    model: nn.Module
    X: Any
    y: Any
    lengths: Any
    name: str
    classes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class TokenModel(nn.Module):
    """A model of token ids, read at its embedding: it takes the embedded sequences in place of the ids.

    Where the model looks at the ids themselves too, as for a padding mask, it gets those of the nearest tokens.
    """

    def __init__(self, model: nn.Module, embedding: nn.Embedding) -> None:
        super().__init__()
        self.model, self.reads_ids = model, True
        self.embedding_of = [embedding]  # a list, lest the embedding be registered twice

    def forward(self, x: Tensor) -> Any:
        """Ask the model, and put the embedded values in the place of those of the ids."""
        embedding = self.embedding_of[0]
        ids = torch.zeros(x.shape[:2], dtype=torch.long, device=x.device)
        if self.reads_ids:
            table = embedding.weight.detach()
            ids = torch.stack([(row.detach() @ table.T - table.square().sum(1) / 2).argmax(-1) for row in x])
        object.__setattr__(embedding, "forward", lambda ids: x)  # noqa: ARG005
        try:
            return self.model(ids)
        finally:
            object.__delattr__(embedding, "forward")

    def look(self, x: Tensor) -> None:
        """Find out whether the ids themselves matter."""
        with audited(self, 0):
            answers = []
            for self.reads_ids in (False, True):
                answer = self(x)
                answers.append(answer if isinstance(answer, Tensor) else None)
        self.reads_ids = None in answers or not torch.equal(*answers)


class BlackBox(nn.Module):
    """A fitted estimator that is no torch module: answers without gradients, asked in float64 as it was fitted."""

    number_format: Tensor

    def __init__(self, estimator: Any) -> None:
        super().__init__()
        self.estimator = estimator
        self.register_buffer("number_format", torch.zeros(1, dtype=torch.float64), persistent=False)

    @property
    def note(self) -> str:
        """Say what such a model lacks."""
        name = type(self.estimator).__name__
        lacks = "has no gradients, so what needs them was not measured and attacks ask for answers alone"
        return f"The fitted {name} {lacks}."

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Ask for probabilities where there are any, else for numbers; for sequences of their true lengths if given."""
        values: Any = x.detach().cpu().double().numpy()
        if lengths is not None:
            values = [row[:length] for row, length in zip(values, lengths.tolist(), strict=True)]
        if hasattr(self.estimator, "predict_proba"):
            return torch.as_tensor(self.estimator.predict_proba(values)).clamp_min(1e-12).log().to(x)
        answers = torch.as_tensor(np.asarray(self.estimator.predict(values))).to(x)
        return answers[:, None] if answers.ndim == 1 else answers


def recognize(model: Any, X: Any, y: Any, lengths: Any, more: Any = None) -> Recognized:  # noqa: N803
    """Bring a model and its data to the form that checks read; what needs no change is passed on as it is.

    ``more`` are classes of other sequences, which are numbered together with those of ``y``.
    """
    name = type(model).__name__
    if not isinstance(model, nn.Module):
        return _estimator(model, X, y, lengths, name)
    y, classes, notes = _named_classes(y, more)
    embedding = _embedding(model, X)
    if embedding is not None:
        ids = torch.as_tensor(np.asarray(X))
        device, dtype = place_of(model)
        with torch.no_grad():
            X = F.embedding(ids.long().to(device), embedding.weight).to(dtype).cpu()  # noqa: N806
        model = TokenModel(model, embedding)
        model.look(X[:PROBED].to(device))
        notes += ("Token ids were embedded by the model, and every check changes the embedded sequences.",)
        if model.reads_ids:
            notes += ("It also looks at the ids themselves, and was given those of the nearest tokens.",)
    reads_lengths = _lengths_argument(model)
    needed = reads_lengths and forward_arguments(model)[reads_lengths]
    if reads_lengths and (needed or reads_lengths != "lengths"):
        model = adapt(model, lengths=reads_lengths)
        notes += (f"The model's argument {reads_lengths} was given the lengths.",)
    if y is None:
        return Recognized(model, X, y, lengths, name, classes, notes)
    output, said = _output(model, X, y, lengths)
    if output is not None:
        model = adapt(model, output=output, lengths="lengths" if reads_lengths else "")
        notes += (said,)
    return Recognized(model, X, y, lengths, name, classes, notes)


def _estimator(model: Any, X: Any, y: Any, lengths: Any, name: str) -> Recognized:  # noqa: N803
    """Open a fitted estimator: its own module with the data it encodes, or its answers alone."""
    if hasattr(model, "model_") and hasattr(model, "encoding_"):
        from sostenuto.data.dataset import SequenceSet

        sequences = model._sequences(X, None, reset=False).sequences
        encoding = model.encoding_
        targets = None if y is None else np.asarray(y)
        if targets is not None and encoding.classes:
            targets = targets.astype(str)
        batch = encoding.encode(SequenceSet(sequences, targets=targets, task=encoding.task))
        known = batch.lengths if bool((batch.lengths != batch.values.shape[1]).any()) else None
        note = f"The network of the fitted {name} was audited on the sequences as it encodes them."
        return Recognized(model.model_, batch.values, batch.targets, known, name, encoding.classes, (note,))
    fitted = hasattr(model, "predict") and (hasattr(model, "classes_") or hasattr(model, "n_features_in_"))
    require(
        fitted,
        "expected a torch module",
        f"got {name}",
        "pass a fitted estimator's model_, with X and y as its encoding_ encodes them",
    )
    classes: tuple[str, ...] = ()
    if y is not None and hasattr(model, "classes_"):
        known = list(np.asarray(model.classes_))
        classes = tuple(str(label) for label in known)
        places = {label: index for index, label in enumerate(known)}
        unknown = sorted({str(label) for label in np.asarray(y).tolist() if label not in places})
        require(not unknown, f"expected classes among {', '.join(classes)}", f"got {', '.join(unknown)}")
        y = np.array([places[label] for label in np.asarray(y).tolist()])
    box = BlackBox(model)
    return Recognized(box, X, y, lengths, name, classes, (box.note,))


def _named_classes(y: Any, more: Any) -> tuple[Any, tuple[str, ...], tuple[str, ...]]:
    """Replace names of classes by their places in sorted order."""
    if y is None or isinstance(y, Tensor):
        return y, (), ()
    labels = np.asarray(y)
    if labels.dtype == bool:
        return labels.astype(int), ("False", "True"), ()
    if labels.dtype.kind not in "USO":
        return y, (), ()
    others = np.asarray([] if more is None else more).astype(str).reshape(-1)
    names = np.unique(np.concatenate([labels.astype(str).reshape(-1), others]))
    numbers = np.searchsorted(names, labels.astype(str))
    note = f"The model's scores were taken to stand for the classes in sorted order: {', '.join(names[:8])}"
    return numbers, tuple(names.tolist()), (note + ("…" if len(names) > 8 else "."),)


def _embedding(model: nn.Module, X: Any) -> nn.Embedding | None:  # noqa: N803
    """Find the embedding that reads ids ``(n, time)``; None where the sequences are no ids."""
    if not (isinstance(X, (Tensor, np.ndarray)) and X.ndim == 2):
        return None
    whole = not X.is_floating_point() if isinstance(X, Tensor) else np.issubdtype(X.dtype, np.integer)
    tables = [module for module in model.modules() if isinstance(module, nn.Embedding)]
    if not (whole and tables):
        return None
    seen: list[nn.Embedding] = []
    ids = torch.as_tensor(X[:1]).long().to(place_of(model)[0])

    def keep(module: nn.Module, given: tuple[Tensor, ...]) -> None:
        if isinstance(module, nn.Embedding) and torch.equal(given[0].reshape(-1), ids.reshape(-1)):
            seen.append(module)

    handles = [table.register_forward_pre_hook(keep) for table in tables]
    try:
        with audited(model, 0):
            model(ids)
    except Exception as error:
        reason = next(iter(str(error).splitlines()), "") or "no message"
        raise InputError(
            f"expected the model to read token ids of shape {tuple(ids.shape)}, got {type(error).__name__}: {reason}."
        ) from error
    finally:
        for handle in handles:
            handle.remove()
    require(
        len(seen) == 1,
        "expected one embedding that reads the token ids",
        f"got {len(seen)}",
        "embed them yourself and pass a module on (batch, time, channel)",
    )
    return seen[0]


def _lengths_argument(model: nn.Module) -> str:
    """Name the argument of ``forward`` that takes lengths; empty if there is none."""
    names = forward_arguments(model)
    return next((name for name in ("lengths", *LENGTH_NAMES) if name in names), "")


def _output(model: nn.Module, X: Any, y: Any, lengths: Any) -> tuple[Callable[[Any], Tensor] | None, str]:  # noqa: N803
    """Find how scores come out of what the model returns; None where it returns them as they are."""
    probe = _probe(model, X, lengths)
    if probe is None:
        return None, ""  # the model itself says better what is wrong
    answer, shorter = probe
    pick, said = _picked(answer)
    scores = answer if pick is None else pick(answer)
    if not isinstance(scores, Tensor) or not scores.is_floating_point():
        return None, ""
    steps = len(X[0])
    read, how = _read(model, scores, None if shorter is None or pick is None else pick(shorter), shorter, y, steps)
    if read is None:
        return pick, said
    chosen = pick
    together = read if chosen is None else (lambda output: read(chosen(output)))
    return together, f"{said} {how}".strip()


def _probe(model: nn.Module, X: Any, lengths: Any) -> tuple[Any, Any] | None:  # noqa: N803
    """Ask about a few sequences of the first one's length, and about all but their last step."""
    device, dtype = place_of(model)
    steps = len(X[0])
    rows = [torch.as_tensor(row).to(device, dtype) for row in X[: 4 * PROBED] if len(row) == steps][:PROBED]
    values = torch.stack(rows)
    values = values[:, :, None] if values.ndim == 2 else values

    def answer(given: Tensor) -> Any:
        options = {"lengths": torch.full((len(given),), given.shape[1], device=device)} if takes_lengths(model) else {}
        with audited(model, 0):
            return model(given, **options)

    if lengths is not None:
        values = values[:, : max(int(torch.as_tensor(lengths)[: len(values)].min()), 1)]
    try:
        whole = answer(values)
    except Exception:
        return None  # the audit asks again, and says what went wrong
    try:
        return whole, answer(values[:, :-1]) if values.shape[1] > 1 else None
    except Exception:
        return whole, None  # a model of one length


def _picked(answer: Any) -> tuple[Callable[[Any], Tensor] | None, str]:
    """Find the scores in a dict or a record of outputs, as Hugging Face's models return."""
    if isinstance(answer, Tensor):
        return None, ""
    for name in OUTPUT_NAMES:
        if isinstance(answer, dict) and isinstance(answer.get(name), Tensor):
            return lambda output, name=name: output[name], f"The scores were read from its output {name!r}."
        if not isinstance(answer, (dict, tuple)) and isinstance(getattr(answer, name, None), Tensor):
            return lambda output, name=name: getattr(output, name), f"The scores were read from its output .{name}."
    if isinstance(answer, dict):
        raise InputError(
            f"expected the scores under one of {', '.join(OUTPUT_NAMES)} in what the model returns, got "
            f"{', '.join(map(str, answer)) or 'an empty dict'}; write "
            "so.audits.adapt(model, output=lambda output: output['NAME'])."
        )
    return None, ""


def _read(
    model: nn.Module, scores: Tensor, cut: Tensor | None, shorter: Any, y: Any, steps: int
) -> tuple[Callable[[Tensor], Tensor] | None, str]:
    """Read squeezed answers, one logit of two classes, and probabilities."""
    real, labels = is_real(y), np.asarray(y.cpu() if isinstance(y, Tensor) else y)
    shapes: list[Callable[[Tensor], Tensor]] = []
    said: list[str] = []
    if scores.ndim == 1:
        shapes.append(lambda output: output[:, None])
        said.append("Its one number per sequence was read as one output.")
    elif scores.ndim == 2 and scores.shape[1] == steps > 1:
        cut = shorter if cut is None and isinstance(shorter, Tensor) else cut
        if isinstance(cut, Tensor) and cut.ndim == 2 and cut.shape[1] == steps - 1:
            shapes.append(lambda output: output[:, :, None])
            said.append("Its answers (batch, time) were read as one number at every step.")
    for shape in shapes:
        scores = shape(scores)
    if not real and labels.size:
        turn, how = _classes(model, scores, int(labels.max()))
        if turn is not None:
            shapes.append(turn)
            said.append(how)
    if not shapes:
        return None, ""

    def read(output: Tensor) -> Tensor:
        for shape in shapes:
            output = shape(output)
        return output

    return read, " ".join(said)


def _classes(model: nn.Module, scores: Tensor, highest: int) -> tuple[Callable[[Tensor], Tensor] | None, str]:
    """Turn one logit into two scores, and probabilities into their logarithms."""
    tiny = torch.finfo(torch.float32).tiny
    within = bool(((scores >= 0) & (scores <= 1)).all())
    if scores.shape[-1] == 1 and highest <= 1:
        last = [module for module in model.modules() if not list(module.children())][-1:]
        if within and last and isinstance(last[0], nn.Sigmoid):
            return (
                lambda output: torch.cat([(1 - output).clamp_min(tiny).log(), output.clamp_min(tiny).log()], -1),
                "Its one probability was read as that of class 1.",
            )
        require(
            not within,
            "expected one logit, or a probability from a final nn.Sigmoid, where the model has one output",
            "got numbers between 0 and 1 alone",
            "for probabilities write so.audits.adapt(model, output=lambda p: torch.cat([1 - p, p], -1).log())",
        )
        return lambda output: torch.cat(
            [torch.zeros_like(output), output], -1
        ), "Its one logit was read as that of class 1."
    sums = scores.double().sum(-1)
    if scores.shape[-1] > 1 and within and bool((sums - 1).abs().max() < 1e-3) and len(scores) > 1:
        return lambda output: output.clamp_min(
            tiny
        ).log(), "Its probabilities were read as such, without another softmax."
    return None, ""
