"""Experiments: every table and figure of the five papers, found by name and run again.

An experiment is a folder ``<paper>/<item>`` here, such as ``rusch2021/figure_2``, with four files:

- ``config.toml``, what it is, what it needs, and its settings by protocol (paper, reduced, ours, quick),
- ``expected.toml``, the paper's numbers and laws,
- ``run.py`` with ``run(settings, bench)``, which measures, and
- ``README.md``, what it shows, how long it takes, what was found.

`sostenuto.experiments.catalog` finds them, `sostenuto.experiments.runner` runs them, `sostenuto.experiments.workbench`
is what ``run.py`` works with; code that several share lives in `sostenuto.experiments.tasks`. ``docs/experiments.md``
says how to add one.
"""

from sostenuto.experiments.runner import reproduce
from sostenuto.experiments.settings import Settings
from sostenuto.experiments.workbench import Workbench

__all__ = ["Settings", "Workbench", "reproduce"]
