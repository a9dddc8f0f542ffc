"""What a batch gets on its way to the model: other views of its images, noise, mixtures, fewer steps."""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from sostenuto.checks import require
from sostenuto.experiments.tasks.device_part import Drawn
from sostenuto.experiments.tasks.recipe import DeviceConfig, Recipe

_KNOTS = 5
"""Random displacements a side of an image; between them a bent view is smooth, so that strokes bend as a whole."""


def varied(drawn: Drawn, recipe: Recipe, order: Int[Tensor, " time"] | None = None) -> Drawn:
    """Vary a batch for training: views of its images, noise after the signal and on it, a random choice of steps.

    Step t of a sequence is pixel ``order[t]`` where an order is given.
    """
    training = recipe.run.training
    if recipe.device.views:
        drawn = Drawn(viewed(drawn.values, recipe.device, order), drawn.targets, drawn.lengths)
    drawn = with_noise_after(drawn, recipe.device.noise_steps)
    if training.input_noise and drawn.values.is_floating_point():
        values = drawn.values + training.input_noise * torch.randn_like(drawn.values)
        drawn = Drawn(values, drawn.targets, drawn.lengths)
    return subsampled(drawn, training.subsample) if training.subsample else drawn


def with_noise_after(drawn: Drawn, steps: int, generator: torch.Generator | None = None) -> Drawn:
    """Append standard normal noise up to ``steps``; 0 for none."""
    values = drawn.values
    more = steps - values.shape[1]
    if more <= 0:
        return drawn
    shape = (len(values), more, *values.shape[2:])
    noise = torch.randn(shape, device=values.device, dtype=values.dtype, generator=generator)
    return Drawn(torch.cat([values, noise], dim=1), drawn.targets, drawn.lengths)


def viewed(
    values: Float[Tensor, "batch time channel"], device: DeviceConfig, order: Int[Tensor, " time"] | None = None
) -> Float[Tensor, "batch time channel"]:
    """Look at every image of a batch a little differently, as far as the settings allow.

    It is mirrored, turned, zoomed, shifted, bent. A step may be a pixel or a row of pixels; channels of a pixel stay
    together. What comes in from beyond the border is the border's value.

    >>> image = torch.tensor([[1.0, 2.0, 3.0, 4.0]]).expand(64, -1)[..., None]
    >>> set(map(tuple, viewed(image, DeviceConfig(image_width=2, mirror=True))[..., 0].tolist()))
    {(1.0, 2.0, 3.0, 4.0), (2.0, 1.0, 4.0, 3.0)}
    """
    steps, channels = values.shape[1:]
    width = device.image_width
    depth = channels if channels < width else channels // width
    fits = steps * channels % (width * depth) == 0
    hint = "set image_width to the pixels of a row"
    require(fits, f"expected rows of {width} pixels", f"got {steps} steps of {channels} numbers", hint)
    if order is not None:
        values = torch.empty_like(values).index_copy_(1, order, values)
    rows = values.reshape(len(values), -1, width, depth)
    if device.mirror:
        chance = torch.rand(len(values), 1, 1, 1, device=values.device) < 0.5
        rows = torch.where(chance, rows.flip(2), rows)
    if device.moves:
        rows = _moved(rows, device)
    values = rows.reshape(values.shape)
    return values if order is None else values.index_select(1, order)


def _moved(
    rows: Float[Tensor, "batch height width depth"], device: DeviceConfig
) -> Float[Tensor, "batch height width depth"]:
    mode = "nearest" if device.whole_pixels else "bilinear"
    grid = _places(rows, device)
    moved = F.grid_sample(rows.permute(0, 3, 1, 2), grid, mode, padding_mode="border", align_corners=False)
    moved = moved.permute(0, 2, 3, 1)
    if device.view_share == 1:
        return moved
    chance = torch.rand(len(rows), 1, 1, 1, device=rows.device) < device.view_share
    return torch.where(chance, moved, rows)


def _places(rows: Float[Tensor, "batch height width depth"], device: DeviceConfig) -> Float[Tensor, "batch h w 2"]:
    """Say where each pixel of a view is taken from, in grid_sample's coordinates: −1 to 1 from border to border."""
    count, height, width = rows.shape[:3]

    def drawn(most: float) -> Float[Tensor, "batch 1 1"]:
        return most * (2 * torch.rand(count, 1, 1, device=rows.device, dtype=rows.dtype) - 1)

    down = torch.arange(height, device=rows.device, dtype=rows.dtype)[:, None] - (height - 1) / 2
    right = torch.arange(width, device=rows.device, dtype=rows.dtype) - (width - 1) / 2
    angle, scale = math.radians(1) * drawn(device.turn), 1 + drawn(device.zoom)
    x = scale * (angle.cos() * right - angle.sin() * down) + drawn(device.shift)
    y = scale * (angle.sin() * right + angle.cos() * down) + drawn(device.shift)
    if device.bend:
        field = device.bend * torch.randn(count, 2, _KNOTS, _KNOTS, device=rows.device, dtype=rows.dtype)
        bent = F.interpolate(field, (height, width), mode="bicubic", align_corners=True)
        x, y = x + bent[:, 0], y + bent[:, 1]
    return torch.stack([2 * x / width, 2 * y / height], dim=-1)


def mixed(drawn: Drawn, most: float) -> tuple[Drawn, Float[Tensor, " batch"] | None]:
    """Mix each sequence with its opposite in the batch, by shares drawn evenly up to ``most``; None where none is."""
    if not most:
        return drawn, None
    mixable = drawn.values.is_floating_point() and not drawn.targets.is_floating_point()
    require(mixable, "expected sequences of numbers with a class each for mixing", "got others", "set mixing to 0")
    share = most * torch.rand(len(drawn.values), device=drawn.values.device)
    weight = share.reshape(-1, *[1] * (drawn.values.ndim - 1))
    values = drawn.values.lerp(drawn.values.flip(0), weight.to(drawn.values.dtype))
    return Drawn(values, drawn.targets, drawn.lengths), share


def subsampled(drawn: Drawn, count: int) -> Drawn:
    """Keep ``count`` steps of every sequence, drawn at random and in order; shorter ones are kept whole."""
    values = drawn.values
    if count >= values.shape[1]:
        return drawn
    chance = torch.rand(values.shape[:2], device=values.device).masked_fill(~drawn.mask, torch.inf)
    kept = chance.argsort(1)[:, :count].sort(1).values
    kept = kept.reshape(*kept.shape, *[1] * (values.ndim - 2)).expand(-1, -1, *values.shape[2:])
    lengths = None if drawn.lengths is None else drawn.lengths.clamp(max=count)
    return Drawn(values.gather(1, kept), drawn.targets, lengths)
