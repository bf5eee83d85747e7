"""One page with the values of the rows and how reliable they are.

:func:`build_report` writes a single HTML file that works from disk with no network. Charts are drawn by Apache ECharts,
which is part of the file. It is maintained by the Apache Software Foundation under Apache-2.0, draws tens of thousands
of points on a canvas without delay, has the bands and whiskers that an audit needs, can be reduced to the parts used
(0.6 MB), and needs neither ``eval`` nor a server, so that the page can forbid everything but its own code.
``vendor/README.md`` tells how the reduced library is made.
"""

from shapshift.report._build import build_report

__all__ = ["build_report"]
