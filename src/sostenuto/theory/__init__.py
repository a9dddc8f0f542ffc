"""What the papers prove of recurrent networks, as functions: signatures, expansions, norms, bounds; one a file."""
