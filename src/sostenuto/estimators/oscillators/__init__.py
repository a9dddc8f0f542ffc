"""Random damped oscillators as features, and ridge regression on them."""
