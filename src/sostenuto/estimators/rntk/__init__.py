"""Estimators with the recurrent neural tangent kernel."""
