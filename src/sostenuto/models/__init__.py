"""Layer plus read-out: classify, regress, predict every step, forecast, classify tokens."""
