"""scikit-learn's own checks of the kernel estimators; what may fail is named with its reason."""

from sklearn.utils.estimator_checks import parametrize_with_checks

from sostenuto.estimators import NystroemRNTK, RNTKClassifier, RNTKRegressor

# One kernel: a grid of 900 would repeat the same path 900 times in each of a hundred fits.
FIXED = {"sigma_w": 1.4, "sigma_b": 0.5}
ESTIMATORS = [
    RNTKClassifier("none", unit_norm=False, scaling="standard", folds=3, **FIXED),
    RNTKClassifier("none", model="gp", unit_norm=False, scaling="standard", **FIXED),
    RNTKRegressor(sigma_h=0.0, **FIXED),
    NystroemRNTK(5, **FIXED),
]
EXPECTED_FAILURES: dict[str, str] = {}


@parametrize_with_checks(ESTIMATORS, expected_failed_checks=lambda _: EXPECTED_FAILURES)
def test_scikit_learn_check(estimator, check):
    check(estimator)
