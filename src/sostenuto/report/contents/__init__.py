"""What the page of a fit says, one section per file: `FitResult` in, `Section` out."""
