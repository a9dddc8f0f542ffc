"""Which dual an activation has on given sequences: a closed form, or a quadrature fitted to their variances."""

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor
from torch.autograd import forward_ad

from sostenuto.ops.recurrent_ntk.duals import Dual, Erf, ReLU
from sostenuto.ops.recurrent_ntk.profile import profile
from sostenuto.ops.recurrent_ntk.quadrature import Quadrature
from sostenuto.ops.recurrent_ntk.ragged import Series, by_length
from sostenuto.ops.recurrent_ntk.scales import Scales

Activation = str | Callable[[Tensor], Tensor]


def dual_for(activation: Activation, sequences: Sequence[Series], scales: Scales) -> Dual:
    """Return the closed form of ``"relu"`` or ``"erf"``, or a function's quadrature, accurate on ``sequences``."""
    if isinstance(activation, str):
        return {"relu": ReLU, "erf": Erf}[activation]()
    return Quadrature(activation).fitted(lambda dual: met_variances(dual, sequences, scales))


def met_variances(dual: Dual, sequences: Sequence[Series], scales: Scales) -> Iterable[Tensor]:
    """Yield the variances, of every layer and step, of groups of sequences; those of 0 are left out."""
    plain = Scales(**{name: forward_ad.unpack_dual(value).primal.detach() for name, value in vars(scales).items()})
    with torch.no_grad():
        for indices in by_length(sequences).values():
            for layer in profile(torch.stack([sequences[i].detach() for i in indices]), plain, dual).layers:
                inverse = layer.moments.inverse
                yield inverse[inverse > 0] ** -2
