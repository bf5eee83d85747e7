"""Import of matplotlib, and the common style of all figures."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from shapshift.checks.names import visible
from shapshift.exceptions import InputError, MissingLibraryError
from shapshift.io.files import write_atomically

# Okabe and Ito's colours: distinguishable with every common kind of colour blindness, and in grey.
CLEAN = "#000000"
NOISY = "#D55E00"
CORRECTED = "#0072B2"
BOUNDARY = "#CC79A7"
NONBOUNDARY = "#009E73"

STYLE: dict[str, Any] = {
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.labelsize": 10,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 11,
    "figure.dpi": 100,
    "font.size": 10,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.6,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "savefig.dpi": 150,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    # Text stays text in an SVG, and the same figure gives the same bytes.
    "svg.fonttype": "none",
    "svg.hashsalt": "shapshift",
}


def pyplot() -> Any:
    """Import ``matplotlib.pyplot`` when the first figure is drawn.

    Returns
    -------
    module
        Without a screen, Matplotlib itself chooses a backend without windows.

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    """
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise MissingLibraryError(
            'Plotting needs matplotlib, which is not installed. Install it with: pip install "shapshift[plot]"'
        ) from error
    return plt


@contextmanager
def style() -> Iterator[Any]:
    """Draw in the common style without changing the caller's matplotlib settings; yields ``matplotlib.pyplot``.

    ``rc_context`` would restore all settings. The first figure loads the backend, and a notebook's backend switches
    interactive mode on when it is loaded: restoring that too would switch it off again, and no later figure would show.
    """
    plt = pyplot()
    before = {name: plt.rcParams[name] for name in STYLE}
    plt.rcParams.update(STYLE)
    try:
        yield plt
    finally:
        plt.rcParams.update(before)


def new_axes(rows: int = 1, columns: int = 1, *, size: tuple[float, float] = (4.6, 3.4), **options: Any) -> Any:
    """Make one Axes, or an array of them, in the common style.

    Parameters
    ----------
    rows, columns : int
        Layout of the figure.
    size : (float, float)
        Width and height of each panel in inches.
    **options
        Passed on to ``matplotlib.pyplot.subplots``, for example ``sharey=True``.

    Returns
    -------
    Axes or ndarray of Axes of shape (rows, columns)
        One Axes for one panel. The figure is at ``.figure``.
    """
    with style() as plt:
        _, axes = plt.subplots(
            rows,
            columns,
            figsize=(size[0] * columns, size[1] * rows),
            layout="constrained",
            squeeze=rows == columns == 1,
            **options,
        )
    return axes


def panels(ax: Any, rows: int, columns: int, **options: Any) -> Any:
    """Return the caller's Axes, or new ones.

    Parameters
    ----------
    ax : Axes, array or sequence of Axes, or None
        One per panel, row by row; None makes a figure.
    rows, columns, **options
        As in :func:`new_axes`.

    Returns
    -------
    ndarray of Axes of shape (rows, columns)
    """
    found = np.asarray(new_axes(rows, columns, **options) if ax is None else ax, dtype=object)
    wanted = "one matplotlib Axes" if rows == columns == 1 else f"an array of {rows * columns} matplotlib Axes"
    if not all(hasattr(one, "add_patch") for one in found.flat):  # which a Figure does not have
        raise InputError(f"The 'ax' parameter must be {wanted}. Got {type(ax).__name__} instead.")
    if found.size != rows * columns:
        raise InputError(f"The 'ax' parameter must be {wanted}. Got {found.size} instead.")
    return found.reshape(rows, columns)


def tidy(ax: Any, *, xlabel: str = "", ylabel: str = "", title: str = "", legend: bool = False) -> Any:
    """Add labels and a light grid to an Axes.

    Parameters
    ----------
    ax : Axes
    xlabel, ylabel, title : str
        Empty keeps the existing text.
    legend : bool
        Whether to add a legend, without a frame.

    Returns
    -------
    Axes
        The same one.
    """
    for text, write in ((xlabel, ax.set_xlabel), (ylabel, ax.set_ylabel)):
        if text:
            write(text, fontsize=STYLE["axes.labelsize"])
    if title:
        ax.set_title(title, fontsize=STYLE["axes.titlesize"], loc="left")
    ax.grid(True, color=STYLE["grid.color"], linewidth=STYLE["grid.linewidth"])
    ax.set_axisbelow(True)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    ax.tick_params(labelsize=STYLE["xtick.labelsize"])
    if legend:
        ax.legend(frameon=False, fontsize=STYLE["legend.fontsize"])
    return ax


def save_figure(fig: Any, path: str | os.PathLike[str], *, close: bool = False) -> tuple[Path, Path]:
    """Write a figure as PNG and as SVG, atomically; the same figure gives the same bytes.

    Parameters
    ----------
    fig : Figure, Axes or array of Axes
        Result of a plotting function.
    path : path-like
        Where to write. A suffix ``.png`` or ``.svg`` is replaced; both files are always written.
    close : bool, default=False
        Whether to close the figure afterwards, to save memory in runs that write many.

    Returns
    -------
    (Path, Path)
        The PNG and the SVG file.
    """
    figure = _figure_of(fig)
    target = Path(path)
    base = target.with_suffix("") if target.suffix in (".png", ".svg") else target
    written = []
    for suffix, metadata in ((".png", {"Software": None}), (".svg", {"Date": None, "Creator": None})):
        file_path = base.with_name(base.name + suffix)

        def write(file: BinaryIO, suffix: str = suffix, metadata: dict[str, None] = metadata) -> None:
            with style():
                figure.savefig(file, format=suffix[1:], metadata=metadata)

        write_atomically(file_path, write)
        written.append(file_path)
    if close:
        pyplot().close(figure)
    return written[0], written[1]


def as_written(name: Any, length: int | None = None) -> str:
    """Format a name from the data: hidden characters escaped, cut to ``length``, and never read as a formula."""
    text = visible(str(name), keep="")
    if length is not None and len(text) > length:
        text = text[: length - 1] + "…"
    return text.replace("$", r"\$")


def _figure_of(drawn: Any) -> Any:
    if hasattr(drawn, "savefig"):
        return drawn
    if hasattr(drawn, "flat"):  # an array of Axes: they share one figure
        return drawn.flat[0].figure
    return drawn.figure
