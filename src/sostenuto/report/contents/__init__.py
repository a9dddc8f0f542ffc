"""What the page of a fit says, one section a file: `FitResult` in, `Section` out."""
