"""Sphinx settings: pages in MyST Markdown, the reference from the docstrings."""

import importlib
import re
import sys
from pathlib import Path

from docutils import nodes
from sphinx.util.nodes import make_refnode

from sostenuto import __version__
from sostenuto.experiments.summary import write_pages

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
benchmark_history = importlib.import_module("benchmark_history")
reference_pages = importlib.import_module("reference_pages")

project = "sostenuto"
author = "The sostenuto authors"
copyright = "The sostenuto authors"
version = release = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "executed",
]
myst_enable_extensions = ["amsmath", "colon_fence", "dollarmath"]
myst_heading_anchors = 3
exclude_patterns = ["_build", "_executed"]
html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["executed.css"]
html_title = f"sostenuto {release}"

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
napoleon_numpy_docstring = False
python_maximum_signature_line_length = 100
# A single backtick in a docstring names an object; one that has no page of its own is shown as code.
default_role = "py:obj"

write_pages(HERE.parent / "results" / "experiments", HERE / "results")
benchmark_history.write_page(HERE / "results" / "benchmarks.md")
PLACES = reference_pages.write_pages(HERE / "reference")


def escape_bars(*arguments):
    """Read |x| in a docstring as an absolute value, not as reStructuredText's substitution."""
    lines = arguments[-1]
    for index, line in enumerate(lines):
        if not line.lstrip().startswith((">>>", "...")):
            lines[index] = re.sub(r"(?<![`\\])\|(?!`)", r"\\|", line)


def skip_routing(_app, _what, name, _obj, skip, _options):
    """Leave out the metadata setters of scikit-learn's estimators, whose text refers to its own documentation."""
    return True if re.fullmatch(r"set_\w+_request", name) else skip


def link_public_name(app, _env, node, content):
    """Lead a name in a docstring to its public page: `UnICORNN`, or the file it is defined in."""
    target = node.get("reftarget", "")
    ours = "." not in target or target.startswith("sostenuto.")
    name = PLACES.get(target) if ours else PLACES.get(re.sub(r"^so\.", "sostenuto.", target))
    if node.get("refdomain") != "py" or name is None:
        return None
    return make_refnode(app.builder, node["refdoc"], f"reference/{name}", name, content, name)


def link_code(app, doctree, page):
    """Lead `so.nn.UnICORNN` in the text of a page to its reference."""
    for node in list(doctree.findall(nodes.literal)):
        written = re.match(r"so(\.\w+)+", node.astext())
        name = PLACES.get(f"sostenuto{written[0][2:]}") if written else None
        if name and name.startswith("sostenuto.") and not isinstance(node.parent, nodes.reference):
            place = app.builder.get_relative_uri(page, f"reference/{name}") if app.builder.format == "html" else ""
            if place and page != f"reference/{name}":
                node.replace_self(nodes.reference("", "", node.deepcopy(), internal=True, refuri=place))


def setup(app):
    app.connect("doctree-resolved", link_code)
    app.connect("missing-reference", link_public_name)
    app.connect("autodoc-skip-member", skip_routing)
    app.connect("autodoc-process-docstring", escape_bars)
