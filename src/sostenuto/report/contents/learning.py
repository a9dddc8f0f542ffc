"""How training went: loss and metric by epoch."""

from sostenuto.report.figures.curves import loss_curve, metric_curve
from sostenuto.report.metrics import metric
from sostenuto.report.numbers import count, number
from sostenuto.report.section import Figures, LegendItem, Part, Picture, Prose, Section
from sostenuto.results import LearningCurve


def learning_section(curve: LearningCurve) -> Section:
    """Return the section on training."""
    return Section("How it learned", "learning", _parts(curve), short_title="Learning")


def _parts(curve: LearningCurve) -> tuple[Part, ...]:
    pictures = []
    loss = loss_curve(curve)
    if loss is not None:
        pictures.append(Picture(loss, f"Loss by epoch. {_ends(curve.train_loss)}", "Loss: what training minimizes"))
    scores = metric_curve(curve)
    kind = metric(curve.metric)
    if scores is not None:
        ends = f"It ends at {kind.write(curve.validation_metric[-1])}."
        heading = f"{kind.label[:1].upper()}{kind.label[1:]} on the validation part"
        pictures.append(Picture(scores, f"Validation {kind.label} by epoch. {ends}", heading))
    if not pictures:
        return (Prose("There is no learning curve: no epoch ended with a finite loss."),)
    parts: list[Part] = [Figures(tuple(pictures), _caption(curve), legend=_legend(curve))]
    if not curve.validation_loss and not curve.validation_metric:
        parts.append(
            Prose(
                "No validation part was held out, so nothing here shows when learning turns into memorizing.", note=True
            )
        )
    return tuple(parts)


def _caption(curve: LearningCurve) -> str:
    if len(curve.epochs) == 1:
        return "One epoch was trained, so each curve is a single point."
    if curve.best_epoch is None:
        return f"{count(len(curve.epochs))} epochs. Where the validation loss rises again, the model memorizes."
    return (
        f"{count(len(curve.epochs))} epochs; the weights of epoch {curve.best_epoch} were kept, the best on the "
        "validation part. Where the validation loss rises again, the model memorizes."
    )


def _ends(losses: tuple[float, ...]) -> str:
    return f"The training loss goes from {number(losses[0])} to {number(losses[-1])}." if losses else ""


def _legend(curve: LearningCurve) -> tuple[LegendItem, ...]:
    training = (LegendItem("training", "series-2", dashed=True),) if curve.train_loss else ()
    validation = (LegendItem("validation", "series-1"),) if curve.validation_loss or curve.validation_metric else ()
    return training + validation
