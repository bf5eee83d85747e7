"""One page that says what the rows are worth and how far to trust it.

:func:`build_report` writes a single HTML file that works from disk with no network. Charts are drawn by Apache ECharts,
which travels inside the file: it is kept by the Apache Software Foundation under Apache-2.0, draws tens of thousands of
points on a canvas without delay, has the bands and whiskers that an audit needs, can be reduced to the parts used
(0.6 MB), and needs neither ``eval`` nor a server, so that the page can forbid everything but its own code. How the
reduced library is made stands in ``vendor/README.md``.
"""

from shapshift.report._build import build_report

__all__ = ["build_report"]
