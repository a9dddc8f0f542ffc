"""The independently recurrent network: every unit reads only its own past (Li et al. 2018)."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from sostenuto.checks import check_choice
from sostenuto.nn import certificates
from sostenuto.nn.base import Below, Lengths, weight_name
from sostenuto.nn.certificates import Certificate, MemoryCertificate
from sostenuto.nn.fused import FusedLayer, check_backend
from sostenuto.nn.map_memory import CertifiedMap, Ends, map_memory
from sostenuto.ops.activation import SLOPES
from sostenuto.ops.diagonal import diagonal_scan

STACKINGS = ("plain", "residual", "dense")


class IndRNN(FusedLayer):
    """A recurrent unit with a scalar recurrent weight instead of a matrix, so that deep stacks train on long sequences.

    Discrete map: h ← σ(w ⊙ h + V u_t + b). It is no step of a differential equation: there are no ``timespans``, no
    vector field. Reference: Li et al. 2018 (IndRNN), eq. (2); Li et al. 2019 for residual and dense stacks.

    `certificate`: ``discrete`` holds where s·max|wᵢ| < 1, s the largest slope of σ.

    Sizes, ``bias``, layout, ``dropout``, directions, ``device`` and ``dtype`` are those of `RecurrentLayer`.

    Args:
        activation: σ: ``"relu"``, ``"tanh"``, ``"hardtanh"``, ``"logistic"`` or ``"identity"``.
        batch_norm: normalize V u_t over all steps and sequences of a batch (padding left out), with running
            statistics in eval mode; b comes after it. In training a step then depends on the whole batch.
        stacking: ``"plain"``, ``"residual"`` (each layer but the first adds what it reads to its output) or ``"dense"``
            (each layer reads the input and the outputs of all layers below, side by side).
        backend: ``"auto"``, ``"reference"``, ``"cpu"`` or ``"gpu"``.

    Parameters of layer ℓ: ``weight_ih_l{ℓ}`` V, ``weight_hh_l{ℓ}`` w (a vector), ``bias_ih_l{ℓ}`` b and, with
    ``batch_norm``, ``norm_scale_l{ℓ}``; per layer N(d + 2) numbers and N more with ``batch_norm``.

    >>> layer = IndRNN(2, 8, num_layers=3, stacking="dense", batch_first=True)
    >>> layer(torch.zeros(3, 50, 2))[0].shape, layer.weight_ih_l2.shape
    (torch.Size([3, 50, 8]), torch.Size([8, 18]))
    """

    continuous = False
    momentum = 0.1
    """Share of a batch in the running statistics, as in torch."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        *,
        activation: str = "relu",
        batch_norm: bool = False,
        stacking: str = "plain",
        backend: str = "auto",
        proj_size: int = 0,  # noqa: ARG002
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        check_choice("activation", activation, SLOPES)
        check_choice("stacking", stacking, STACKINGS)
        self.activation, self.batch_norm, self.stacking = activation, batch_norm, stacking
        self.backend = check_backend(backend)
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, device=device, dtype=dtype
        )

    def build(self, layer: int, reverse: bool) -> None:
        """Create V, w, b and what normalization keeps."""
        self.new_parameter("weight_ih", layer, reverse, self.hidden_size, self.fan_in(layer))
        self.new_parameter("weight_hh", layer, reverse, self.hidden_size)
        if self.bias:
            self.new_parameter("bias_ih", layer, reverse, self.hidden_size)
        if self.batch_norm:
            self.new_parameter("norm_scale", layer, reverse, self.hidden_size)
            for name, value in (("norm_mean", 0.0), ("norm_variance", 1.0)):
                kept = torch.full((self.hidden_size,), value, **self._factory)
                self.register_buffer(weight_name(name, layer, reverse), kept)

    def fan_in(self, layer: int) -> int:
        """Count what a layer reads: with dense stacking the input and every output below."""
        if self.stacking == "dense":
            return self.input_size + layer * self.output_size
        return super().fan_in(layer)

    def reset_parameters(self) -> None:
        """Draw w from U(0, 1), V Kaiming-uniform, b = 0; normalization starts as the identity."""
        with torch.no_grad():
            for cell in self.cells():
                nn.init.kaiming_uniform_(self.weight("weight_ih", *cell), nonlinearity="relu")
                self.weight("weight_hh", *cell).uniform_(0, 1)
                if self.bias:
                    self.weight("bias_ih", *cell).zero_()
                if self.batch_norm:
                    for name, value in (("norm_scale", 1.0), ("norm_mean", 0.0), ("norm_variance", 1.0)):
                        self.weight(name, *cell).fill_(value)

    def drive(
        self, layer: int, reverse: bool, below: list[Float[Tensor, "*batch _"]], lengths: Lengths = None
    ) -> Float[Tensor, "*batch G"]:
        """Project the input, normalize it with ``batch_norm``, add b."""
        read = torch.cat(below, dim=-1) if self.stacking == "dense" else below[-1]
        drive = F.linear(read, self.weight("weight_ih", layer, reverse))
        if self.batch_norm:
            drive = self._normalize(layer, reverse, drive, lengths)
        return drive + self.weight("bias_ih", layer, reverse) if self.bias else drive

    def trajectory(
        self, layer: int, reverse: bool, entering: Float[Tensor, "T B G"], start: Float[Tensor, "B S"]
    ) -> Float[Tensor, "T B S"]:
        """Run the diagonal scan with no linear part."""
        weight = self.weight("weight_hh", layer, reverse)
        zero, one = torch.zeros_like(weight), torch.ones_like(weight)
        states, _ = diagonal_scan(entering, start, weight, zero, one, activation=self.activation, backend=self.backend)
        return states

    def emit(
        self,
        layer: int,
        reverse: bool,
        below: Below,
        states: Float[Tensor, "T B S"],
        start: Float[Tensor, "B S"],  # noqa: ARG002
    ) -> Float[Tensor, "T B H"]:
        """Return the states; with residual stacking, plus what this direction of the layer below gave."""
        if self.stacking != "residual" or layer == 0:
            return states
        first = self.hidden_size if reverse else 0
        return states + below[-1][..., first : first + self.hidden_size]

    def _certify(self, kind: str, layer: int, reverse: bool, spans: tuple[float, float]) -> Certificate:
        """Test the map by ``discrete``; the other kinds are about differential equations."""
        if kind != "discrete":
            return super()._certify(kind, layer, reverse, spans)
        weight = torch.diag(self.weight("weight_hh", layer, reverse))
        return certificates.discrete(torch.zeros_like(weight), weight, self.activation)

    def _certify_memory(self, spans: tuple[float, float], drive: float | None) -> MemoryCertificate:
        """Return every unit's own factor s·wᵢ."""
        maps: list[list[Ends]] = [[] for _ in range(self.num_layers)]
        for layer, reverse in self.cells():
            weight = torch.diag(self.weight("weight_hh", layer, reverse))
            entering = self.weight("weight_ih", layer, reverse)
            unit = CertifiedMap(
                torch.zeros_like(weight), weight, torch.eye(len(weight)), entering, self.activation, self.hidden_size
            )
            maps[layer].append(Ends(unit, unit))
        return map_memory(maps, spans, drive, passes=self.stacking == "plain" and not self.batch_norm)

    @torch.no_grad()
    def space_time_scales(self, layer: int, scales: Float[Tensor, " H"]) -> None:
        """Set the units' own weights."""
        self.weight("weight_hh", layer, False).copy_(torch.exp(-1 / scales))

    def extra_repr(self) -> str:
        """Show the unit's settings too."""
        norm = ", batch_norm=True" if self.batch_norm else ""
        return f"{super().extra_repr()}, activation={self.activation}, stacking={self.stacking}{norm}"

    def _normalize(self, layer: int, reverse: bool, drive: Tensor, lengths: Tensor | None) -> Tensor:
        mean, variance = (self.weight(name, layer, reverse) for name in ("norm_mean", "norm_variance"))
        if self.training and drive.numel() > 0:  # an empty batch has no statistics
            inside = drive.flatten(0, -2)
            if lengths is not None:
                steps = torch.arange(drive.shape[0], device=drive.device)
                inside = drive[steps[:, None] < lengths]
            batch_mean, spread = inside.mean(0), inside.var(0, correction=0)
            with torch.no_grad():
                count = inside.shape[0]
                mean.lerp_(batch_mean.to(mean.dtype), self.momentum)
                variance.lerp_(spread.to(mean.dtype) * count / max(count - 1, 1), self.momentum)
            mean, variance = batch_mean, spread
        scale = self.weight("norm_scale", layer, reverse) * torch.rsqrt(variance + 1e-5)
        return (drive - mean) * scale
