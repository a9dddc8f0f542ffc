"""A recipe: all that a training of an experiment depends on, as plain data."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from sostenuto.checks import check_count, check_fraction, require
from sostenuto.training.config import DataConfig, ModelConfig, RunConfig, TrainingConfig, overlaid

_TRAINING = TrainingConfig(
    checkpoint_seconds=20.0, graph=True, drop_last=True, decayed="matrices", evaluation_batch=1000
)


@dataclass(frozen=True)
class VariationConfig:
    """How the sequences of a training batch are varied, each time they are drawn.

    Args:
        mixing: mix each training sequence with another of its batch, and the loss alike, by a share drawn evenly
            between 0 and this (after mixup, Zhang et al. 2018); for classes.
        image_width: pixels of a row, where sequences are images read row by row (or in the data set's own order); the
            settings that follow give training images, whenever they are drawn, another view.
        view_share: share of the images, by chance, that are shifted, turned, zoomed and bent.
        whole_pixels: take the nearest pixel for a view instead of a mixture of four, which blurs.
        mirror: mirror half of the images, by chance, left to right.
        shift: move images by up to so many pixels along both axes.
        turn: turn images by up to so many degrees.
        zoom: make images larger or smaller by up to this share.
        bend: move pixels by a smooth random field of about so many pixels (after Simard, Steinkraus and Platt 2003).
        noise_steps: append standard normal noise, drawn anew for every batch, up to so many steps; 0 for none.
    """

    mixing: float = 0.0
    image_width: int = 0
    view_share: float = 1.0
    whole_pixels: bool = False
    mirror: bool = False
    shift: float = 0.0
    turn: float = 0.0
    zoom: float = 0.0
    bend: float = 0.0
    noise_steps: int = 0

    def __post_init__(self) -> None:
        check_fraction("mixing", self.mixing)
        check_count("image_width", self.image_width, least=0)
        check_fraction("view_share", self.view_share, one=True)
        check_fraction("zoom", self.zoom)
        for name in ("shift", "turn", "bend"):
            most = getattr(self, name)
            require(most >= 0, f"expected {name} of at least 0", f"got {most}")
        check_count("noise_steps", self.noise_steps, least=0)
        hint = "set image_width to the pixels of a row"
        require(self.image_width > 0 or not self.views, "expected an image_width for views of images", "got none", hint)

    @property
    def views(self) -> bool:
        """Whether training images are looked at differently each time."""
        return self.mirror or self.moves

    @property
    def moves(self) -> bool:
        """Whether some training images are shifted, turned, zoomed or bent."""
        return self.view_share > 0 and max(self.shift, self.turn, self.zoom, self.bend) > 0


@dataclass(frozen=True)
class Recipe:
    """Data, model and training, and how training batches are varied.

    >>> recipe = make_recipe({"layer": "unicornn", "hidden_size": 8, "epochs": 2, "tf32": True})
    >>> recipe.run.model.options, recipe.run.training.epochs, recipe.run.training.precision
    ({'hidden_size': 8}, 2, 'tf32')
    """

    run: RunConfig = field(default_factory=RunConfig)
    variation: VariationConfig = field(default_factory=VariationConfig)

    def to_dict(self) -> dict[str, Any]:
        """Return nested dicts of plain values; how often a checkpoint is written changes nothing and is left out."""
        values = {**self.run.to_dict(), "variation": asdict(self.variation)}
        values["training"].pop("checkpoint_seconds")
        return values


def with_seed(recipe: Recipe, seed: int) -> Recipe:
    """Return the recipe with another seed of weights, order and dropout.

    >>> with_seed(Recipe(), 3).run.training.seed
    3
    """
    return replace(recipe, run=replace(recipe.run, training=replace(recipe.run.training, seed=seed)))


def in_words(recipe: Recipe) -> str:
    """Say what a training does, views of images named as such.

    >>> in_words(make_recipe({"layer": "lstm", "epochs": 3, "batch_size": 8, "learning_rate": 0.01}))
    'without views; AdamW, 3 epochs of batches of 8, one-cycle up to 0.01, gradients clipped at 1'
    """
    training, variation = recipe.run.training, recipe.variation
    names = {"adamw": "AdamW", "adam": "Adam", "sgd": "SGD", "muon": "Muon"}
    rate = f"{training.schedule} {'up to' if training.schedule == 'one-cycle' else 'from'} {training.learning_rate:g}"
    told = [names.get(training.optimizer, training.optimizer)]
    told += [f"{training.epochs} epochs of batches of {training.batch_size}", rate]
    further = {
        "weight decay": training.weight_decay,
        "gradients clipped at": training.gradient_clip,
        "weights averaged with decay": training.ema_decay,
        "input noise": training.input_noise,
        "mixing": variation.mixing,
    }
    told += [f"{what} {value:g}" for what, value in further.items() if value]
    return f"{_view_words(variation)}; {', '.join(told)}"


def _view_words(variation: VariationConfig) -> str:
    """Name the views of training images, or say that there are none."""
    if not variation.views:
        return "without views"
    said = ["mirrored"] if variation.mirror else []
    if variation.moves:
        parts = {"shift": " pixels of shift", "turn": "° of turn", "bend": " pixels of bend"}
        said += [f"{getattr(variation, name):g}{unit}" for name, unit in parts.items() if getattr(variation, name)]
        said += [f"{100 * variation.zoom:g} % of zoom"] if variation.zoom else []
        said += [f"{100 * variation.view_share:g} % of the images"] if variation.view_share < 1 else []
    return f"with views ({', '.join(said)})"


def make_recipe(settings: Mapping[str, Any]) -> Recipe:
    """Read a recipe from flat settings: names of the fields of the configs, else options of the layer.

    ``layer``, ``readout``, ``readout_dropout``, ``embedding_size`` and ``embedding_dropout`` are the model's own;
    ``option.NAME`` is the layer's where another has that name too (``option.precision``); ``tf32`` is a precision. A
    validation part of 5 % and unscaled values are the defaults, as pixels in [0, 1] want no scaling; steps are graphs
    of whole batches, and weight decay is for matrices.
    """
    kinds = {"data": DataConfig, "model": ModelConfig, "training": TrainingConfig, "variation": VariationConfig}
    groups: dict[str, dict[str, Any]] = {name: {} for name in (*kinds, "options")}
    for name, value in settings.items():
        home = next((key for key, kind in kinds.items() if name in kind.__dataclass_fields__), "options")
        groups[home][name.removeprefix("option.")] = value
    require("layer" in settings, "expected a layer in a recipe", f"got {sorted(settings)}")
    if groups["options"].pop("tf32", False):
        groups["training"]["precision"] = "tf32"
    data = overlaid(DataConfig(scaling="none", validation=0.05), groups["data"])
    model = replace(overlaid(ModelConfig(), groups["model"]), options=groups["options"])
    return Recipe(
        RunConfig(data, model, overlaid(_TRAINING, groups["training"])), VariationConfig(**groups["variation"])
    )
