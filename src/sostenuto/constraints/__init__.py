"""Weight to constrained weight: torch parametrizations with a ``right_inverse``, one constraint a file."""
