"""Experiments: every table and figure of the five papers, found by name and run again.

An experiment is a folder ``<paper>/<item>`` here, such as ``rusch2021/figure_2``, with two files:

- ``item.toml``: what it is, what it needs and what was found, its settings by protocol (paper, reduced, ours, quick),
  and the paper's numbers and laws, and
- ``run.py`` with ``run(settings, bench)``, which measures.

`sostenuto.experiments.catalog` finds them, `sostenuto.experiments.runner` runs them, `sostenuto.experiments.workbench`
is what ``run.py`` works with; code that several share lives in `sostenuto.experiments.tasks`. ``docs/experiments.md``
says how to add one.
"""

from sostenuto.experiments.runner import reproduce
from sostenuto.experiments.settings import Settings
from sostenuto.experiments.workbench import Workbench

__all__ = ["Settings", "Workbench", "reproduce"]
