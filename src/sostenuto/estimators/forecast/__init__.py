"""Forecasts of the next values of a series, with intervals."""
