"""The papers' figures and tables, one folder each as ``<paper>/<item>/``: a config, a run and the numbers expected."""
