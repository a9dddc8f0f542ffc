"""Sphinx settings: pages in MyST Markdown, the reference from the docstrings."""

import re
from pathlib import Path

from sostenuto import __version__
from sostenuto.experiments.summary import write_pages

project = "sostenuto"
author = "The sostenuto authors"
copyright = "The sostenuto authors"
version = release = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
]
myst_enable_extensions = ["amsmath", "colon_fence", "dollarmath"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
templates_path = ["templates"]
html_theme = "furo"
html_title = f"sostenuto {release}"

autosummary_generate = True
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
napoleon_numpy_docstring = False
python_maximum_signature_line_length = 100
# A single backtick in a docstring names an object; one that has no page of its own is shown as code.
default_role = "py:obj"


HERE = Path(__file__).parent
write_pages(HERE.parent / "results" / "experiments", HERE / "results")


def escape_bars(*arguments):
    """Read |x| in a docstring as an absolute value, not as reStructuredText's substitution."""
    lines = arguments[-1]
    for index, line in enumerate(lines):
        if not line.lstrip().startswith((">>>", "...")):
            lines[index] = re.sub(r"(?<![`\\])\|(?!`)", r"\\|", line)


def skip_routing(_app, _what, name, _obj, skip, _options):
    """Leave out the metadata setters of scikit-learn's estimators, whose text refers to its own documentation."""
    return True if re.fullmatch(r"set_\w+_request", name) else skip


def setup(app):
    app.connect("autodoc-skip-member", skip_routing)
    app.connect("autodoc-process-docstring", escape_bars)
