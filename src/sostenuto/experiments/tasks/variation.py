"""What a training batch gets on its way to the model: other views of its images, noise after them, mixtures."""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from sostenuto.checks import require
from sostenuto.data.batch import SequenceBatch
from sostenuto.experiments.tasks.recipe import VariationConfig

_KNOTS = 5
"""Random displacements a side of an image; between them a bent view is smooth, so that strokes bend as a whole."""


@dataclass(frozen=True, eq=False)
class Variation:
    """What a training batch gets on its way to the model: views of its images, noise after the signal, mixtures.

    Step t of a sequence is pixel ``order[t]`` where an order is given; ``classes`` counts those of the targets.
    """

    config: VariationConfig
    order: Int[Tensor, " time"] | None = None
    classes: int = 0

    def __call__(self, batch: SequenceBatch) -> SequenceBatch:
        """Vary a batch."""
        if self.config.views:
            batch = batch.replaced(values=viewed(batch.values, self.config, self.order))
        return mixed(with_noise_after(batch, self.config.noise_steps), self.config.mixing, self.classes)


def with_noise_after(batch: SequenceBatch, steps: int) -> SequenceBatch:
    """Append standard normal noise up to ``steps`` to sequences of one length; 0 for none."""
    values = batch.values
    more = steps - values.shape[1]
    if more <= 0:
        return batch
    noise = torch.randn(len(values), more, *values.shape[2:], device=values.device, dtype=values.dtype)
    lengths = torch.full_like(batch.lengths, steps)
    return batch.replaced(values=torch.cat([values, noise], dim=1), lengths=lengths)


def viewed(
    values: Float[Tensor, "batch time channel"], config: VariationConfig, order: Int[Tensor, " time"] | None = None
) -> Float[Tensor, "batch time channel"]:
    """Look at every image of a batch a little differently, as far as the settings allow.

    It is mirrored, turned, zoomed, shifted, bent. A step may be a pixel or a row of pixels; channels of a pixel stay
    together. What comes in from beyond the border is the border's value.

    >>> image = torch.tensor([[1.0, 2.0, 3.0, 4.0]]).expand(64, -1)[..., None]
    >>> set(map(tuple, viewed(image, VariationConfig(image_width=2, mirror=True))[..., 0].tolist()))
    {(1.0, 2.0, 3.0, 4.0), (2.0, 1.0, 4.0, 3.0)}
    """
    steps, channels = values.shape[1:]
    width = config.image_width
    depth = channels if channels < width else channels // width
    fits = steps * channels % (width * depth) == 0
    hint = "set image_width to the pixels of a row"
    require(fits, f"expected rows of {width} pixels", f"got {steps} steps of {channels} numbers", hint)
    if order is not None:
        values = torch.empty_like(values).index_copy_(1, order, values)
    rows = values.reshape(len(values), -1, width, depth)
    if config.mirror:
        chance = torch.rand(len(values), 1, 1, 1, device=values.device) < 0.5
        rows = torch.where(chance, rows.flip(2), rows)
    if config.moves:
        rows = _moved(rows, config)
    values = rows.reshape(values.shape)
    return values if order is None else values.index_select(1, order)


def _moved(
    rows: Float[Tensor, "batch height width depth"], config: VariationConfig
) -> Float[Tensor, "batch height width depth"]:
    mode = "nearest" if config.whole_pixels else "bilinear"
    grid = _places(rows, config)
    moved = F.grid_sample(rows.permute(0, 3, 1, 2), grid, mode, padding_mode="border", align_corners=False)
    moved = moved.permute(0, 2, 3, 1)
    if config.view_share == 1:
        return moved
    chance = torch.rand(len(rows), 1, 1, 1, device=rows.device) < config.view_share
    return torch.where(chance, moved, rows)


def _places(rows: Float[Tensor, "batch height width depth"], config: VariationConfig) -> Float[Tensor, "batch h w 2"]:
    """Say where each pixel of a view is taken from, in grid_sample's coordinates: −1 to 1 from border to border."""
    count, height, width = rows.shape[:3]

    def drawn(most: float) -> Float[Tensor, "batch 1 1"]:
        return most * (2 * torch.rand(count, 1, 1, device=rows.device, dtype=rows.dtype) - 1)

    down = torch.arange(height, device=rows.device, dtype=rows.dtype)[:, None] - (height - 1) / 2
    right = torch.arange(width, device=rows.device, dtype=rows.dtype) - (width - 1) / 2
    angle, scale = math.radians(1) * drawn(config.turn), 1 + drawn(config.zoom)
    x = scale * (angle.cos() * right - angle.sin() * down) + drawn(config.shift)
    y = scale * (angle.sin() * right + angle.cos() * down) + drawn(config.shift)
    if config.bend:
        field = config.bend * torch.randn(count, 2, _KNOTS, _KNOTS, device=rows.device, dtype=rows.dtype)
        bent = F.interpolate(field, (height, width), mode="bicubic", align_corners=True)
        x, y = x + bent[:, 0], y + bent[:, 1]
    return torch.stack([2 * x / width, 2 * y / height], dim=-1)


def mixed(batch: SequenceBatch, most: float, classes: int) -> SequenceBatch:
    """Mix each sequence, and its class, with its opposite in the batch, by shares drawn evenly up to ``most``."""
    if not most:
        return batch
    values, targets = batch.values, batch.targets
    mixable = values.is_floating_point() and targets is not None and not targets.is_floating_point()
    require(mixable, "expected sequences of numbers with a class each for mixing", "got others", "set mixing to 0")
    assert targets is not None
    share = most * torch.rand(len(values), device=values.device)
    weight = share.reshape(-1, *[1] * (values.ndim - 1))
    shares = values.new_zeros(len(values), classes).scatter_(1, targets[:, None], 1.0)
    return batch.replaced(
        values=values.lerp(values.flip(0), weight.to(values.dtype)),
        targets=shares.lerp(shares.flip(0), share[:, None].to(values.dtype)),
    )
