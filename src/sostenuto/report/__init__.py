"""Results become figures and one self-contained HTML page: see `sostenuto.report.page`."""
