"""`NystroemRNTK`: sequences become vectors on which a linear model is a kernel machine."""

from typing import Any

import numpy as np
from jaxtyping import Float64
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin

from sostenuto.checks import check_count
from sostenuto.estimators.rntk.base import KernelEstimator, kernel_starts
from sostenuto.kernels.gram.packed import PackedSequences
from sostenuto.kernels.nystroem import NystroemFeatures, nystroem


class NystroemRNTK(ClassNamePrefixFeaturesOutMixin, TransformerMixin, KernelEstimator):
    """Map sequences of any lengths to vectors Φ(x) whose products approach the recurrent NTK, with n·m values.

    Φ(x) = k(x, Z) K(Z, Z)^(−½) for m landmarks Z chosen among the sequences of `fit`. A linear model on Φ is the kernel
    machine restricted to the span of the landmarks.

    Args:
        n_components: m, the landmarks; all sequences where there are fewer.
        choice: of landmarks: ``"random"``, or ``"greedy"``, each drawn by what the others leave unexplained of it.
        num_layers, activation, kind, pooling, normalize: those of `sostenuto.kernels.RecurrentNTK`.
        sigma_w, sigma_u, sigma_b, sigma_h: numbers; None is √2, 1, 0.1 and 0.
        unit_norm, scaling, layout: as in `RNTKClassifier`.
        chunk: sequences transformed at a time.
        random_state: of the choice of landmarks.

    Fitted attributes: ``whitening_`` (m, m), ``landmark_indices_``, ``rank_``, and those of `KernelEstimator`, of which
    ``sequences_`` holds the landmarks.

    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.svm import LinearSVC
    >>> rising = np.linspace(0, 1, 12)
    >>> X = np.stack([rising, rising[::-1]] * 10)
    >>> pipeline = make_pipeline(NystroemRNTK(4, random_state=0), LinearSVC())
    >>> pipeline.fit(X, ["up", "down"] * 10).predict(X[:2])
    array(['up', 'down'], dtype='<U4')
    """

    whitening_: np.ndarray
    landmark_indices_: np.ndarray
    rank_: int
    search = "none"

    # No annotations: scikit-learn wants any value taken here without a word and judged in `fit`.
    def __init__(
        self,
        n_components=100,
        *,
        choice="random",
        num_layers=1,
        activation="relu",
        sigma_w=None,
        sigma_u=None,
        sigma_b=None,
        sigma_h=None,
        kind="ntk",
        pooling="last",
        normalize=False,
        unit_norm=True,
        scaling="none",
        layout="btc",
        chunk=4096,
        random_state=None,
    ) -> None:
        self.n_components = n_components
        self.choice = choice
        self.num_layers = num_layers
        self.activation = activation
        self.sigma_w = sigma_w
        self.sigma_u = sigma_u
        self.sigma_b = sigma_b
        self.sigma_h = sigma_h
        self.kind = kind
        self.pooling = pooling
        self.normalize = normalize
        self.unit_norm = unit_norm
        self.scaling = scaling
        self.layout = layout
        self.chunk = chunk
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> "NystroemRNTK":  # noqa: N803, ARG002
        """Choose landmarks among ``X`` and learn what whitens them; ``y`` is not looked at."""
        check_count("n_components", self.n_components)
        check_count("chunk", self.chunk)
        sequences = self._learn_sequences(X)
        self.kernel_ = kernel_starts(self, {})[0]
        features = nystroem(self.kernel_, sequences, int(self.n_components), choice=self.choice, seed=self.seed_)
        self.sequences_ = PackedSequences.pack(features.landmarks)
        self.whitening_, self.landmark_indices_, self.rank_ = features.whitening, features.indices, features.rank
        return self

    def transform(self, X: Any) -> Float64[np.ndarray, "n landmark"]:  # noqa: N803
        """Return Φ of every sequence, ``(n, m)``."""
        sequences = self._new_sequences(X)
        landmarks = self.sequences_.cut(0, len(self.sequences_))
        features = NystroemFeatures(self.kernel_, landmarks, self.landmark_indices_, self.whitening_, self.rank_)
        return features.transform(sequences, chunk=self.chunk)

    @property
    def _n_features_out(self) -> int:
        """Count the features, for scikit-learn's names of them."""
        return len(self.whitening_)
