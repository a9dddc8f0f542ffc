"""What the papers prove of recurrent networks, as functions: signatures, expansions, norms, bounds; one per file.

Names are imported here at once, not when first used: a function and its file may share a name, and the function wins.
"""

from sostenuto.theory.bound import Assumption, Bound
from sostenuto.theory.bounds import remainder_bound, rkhs_norm_bound, signature_norm_bound, star_product_bound
from sostenuto.theory.discretization import discretization_bound, discretization_error, runge_kutta_bound
from sostenuto.theory.generalization import embedding_bound, generalization_bound
from sostenuto.theory.jackson import jackson_bound
from sostenuto.theory.kernel_dynamics import Drift, kernel_drift, learning_rate_limit, mean_prediction
from sostenuto.theory.lyapunov import LyapunovMatrix, lyapunov
from sostenuto.theory.memory import TrajectoryMemory, answer_window, memory_along, slow_input_share
from sostenuto.theory.memory_decay import (
    contraction_fading_gain,
    fading_memory_gain,
    inherited_decay_bound,
    response_decay_bound,
)
from sostenuto.theory.ode import discretize, solve
from sostenuto.theory.oscillator_gradients import (
    LayerGradientBound,
    OscillatorLayer,
    gradient_hamiltonian,
    loss_gradient_bound,
)
from sostenuto.theory.path_scale import PathScale, path_lengths, scale_paths
from sostenuto.theory.risk_bounds import binary_bound, multiclass_bound, sequence_bound
from sostenuto.theory.rkhs import RKHSNorm, rkhs_norm
from sostenuto.theory.signature import PathSignature, signature
from sostenuto.theory.stability import PredictionStability, prediction_stability, signature_distance_bound
from sostenuto.theory.star_product import star_products
from sostenuto.theory.taylor import coefficients, taylor
from sostenuto.theory.tensor_field import RNNField, TensorField, rnn_field, tensor_field
from sostenuto.theory.transient import TransientGrowth, transient_growth

__all__ = [
    "Assumption",
    "Bound",
    "Drift",
    "LayerGradientBound",
    "LyapunovMatrix",
    "OscillatorLayer",
    "PathScale",
    "PathSignature",
    "PredictionStability",
    "RKHSNorm",
    "RNNField",
    "TensorField",
    "TrajectoryMemory",
    "TransientGrowth",
    "answer_window",
    "binary_bound",
    "coefficients",
    "contraction_fading_gain",
    "discretization_bound",
    "discretization_error",
    "discretize",
    "embedding_bound",
    "fading_memory_gain",
    "generalization_bound",
    "gradient_hamiltonian",
    "inherited_decay_bound",
    "jackson_bound",
    "kernel_drift",
    "learning_rate_limit",
    "loss_gradient_bound",
    "lyapunov",
    "mean_prediction",
    "memory_along",
    "multiclass_bound",
    "path_lengths",
    "prediction_stability",
    "remainder_bound",
    "response_decay_bound",
    "rkhs_norm",
    "rkhs_norm_bound",
    "rnn_field",
    "runge_kutta_bound",
    "scale_paths",
    "sequence_bound",
    "signature",
    "signature_distance_bound",
    "signature_norm_bound",
    "slow_input_share",
    "solve",
    "star_product_bound",
    "star_products",
    "taylor",
    "tensor_field",
    "transient_growth",
]
