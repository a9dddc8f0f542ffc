"""The hyperbolic tangent inside the compiled scans: vectorised, with a stated error."""
