"""What the papers prove of recurrent networks, as functions: signatures, expansions, norms, bounds; one a file.

Names are imported here at once, not when first used: a function and its file may share a name, and the function wins.
"""

from sostenuto.theory.path_scale import PathScale, path_lengths, scale_paths
from sostenuto.theory.signature import PathSignature, signature

__all__ = ["PathScale", "PathSignature", "path_lengths", "scale_paths", "signature"]
