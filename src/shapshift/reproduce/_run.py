"""Run the cells, keep what is done, and write tables, figures and the page."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from shapshift._progress import progress_bar
from shapshift.reproduce import _experiments as experiments
from shapshift.reproduce import _figures as figures
from shapshift.reproduce._cells import stored, write_csv
from shapshift.reproduce._claims import judge
from shapshift.reproduce._page import write_page
from shapshift.reproduce._settings import CASES, FULL, HARD, Settings, protocols


class Cell(NamedTuple):
    """One piece of work; ``kind`` is a utility for shift and correction, or "cases"."""

    dataset: str
    protocol: str
    kind: str
    seed: int


def run_reproduction(
    folder: str | Path = "reproduction",
    *,
    settings: Settings = FULL,
    data_dir: str | None = None,
    page: str | Path | None = None,
    progress: bool | None = None,
) -> Path:
    """Re-run every experiment of the paper and judge its claims.

    Parameters
    ----------
    folder : path-like, default="reproduction"
        Gets ``tables/`` (CSV), ``figures/`` (PNG and SVG, one per figure of the paper) and ``cells/``, the finished
        pieces of work. An interrupted run goes on from those; cells of other settings are computed again.
    settings : Settings, default=FULL
        ``QUICK`` gives a first impression in a minute or two.
    data_dir : str, optional
        Folder of the real datasets, see :func:`shapshift.data.load_dataset`.
    page : path-like, optional
        Where to write the page of claims; ``reproduction.md`` in the folder by default.
    progress : bool, optional
        Show a progress bar; None shows it in a terminal only.

    Returns
    -------
    pathlib.Path
        The page.
    """
    out = Path(folder)
    for part in ("tables", "figures", "cells"):
        (out / part).mkdir(parents=True, exist_ok=True)
    checksums = {name: _checksum(name, settings, data_dir) for name in settings.datasets}
    cells = _cells(settings, data_dir)
    results: dict[Cell, Any] = {}
    with progress_bar("Reproducing", len(cells), progress) as advance:
        for cell, compute in cells.items():
            key = f"{settings.digest}-{checksums[cell.dataset][:16]}"
            results[cell] = stored(out / "cells" / f"{'-'.join(map(str, cell))}.json", key, compute)
            advance(1)
    shift = [
        {"dataset": cell.dataset, "protocol": cell.protocol, "utility": cell.kind, "seed": cell.seed, **record}
        for cell, result in results.items()
        if cell.kind != "cases"
        for record in result["records"]
    ]
    cases = [
        {"dataset": cell.dataset, "protocol": cell.protocol, "seed": cell.seed, **record}
        for cell, result in results.items()
        if cell.kind == "cases"
        for record in result
    ]
    examples = {
        (cell.dataset, cell.protocol): result["example"]
        for cell, result in results.items()
        if cell.kind == "soft" and cell.seed == 0
    }
    write_csv(out / "tables" / "shift_and_correction.csv", shift)
    write_csv(out / "tables" / "cases.csv", cases)
    figures.draw_all(out / "figures", shift, cases, examples, settings)
    claims = judge(shift, cases, settings)
    summary = [{"claim": c.claim, "test": c.test, "verdict": c.verdict, "where": c.because} for c in claims]
    write_csv(out / "tables" / "claims.csv", summary)
    return write_page(page or out / "reproduction.md", out, claims, settings)


def _cells(settings: Settings, data_dir: str | None) -> dict[Cell, Callable[[], Any]]:
    cells: dict[Cell, Callable[[], Any]] = {}
    for name in settings.datasets:
        for protocol in protocols(name):
            for seed in range(settings.seeds):
                for utility in ("soft", "hard") if name in HARD else ("soft",):
                    cells[Cell(name, protocol, utility, seed)] = partial(
                        experiments.shift_and_correction, name, protocol, utility, seed, settings, data_dir
                    )
                if name in CASES:
                    cells[Cell(name, protocol, "cases", seed)] = partial(
                        experiments.case_records, name, protocol, seed, settings, data_dir
                    )
    return cells


def _checksum(name: str, settings: Settings, data_dir: str | None) -> str:
    """Checksum of a dataset's source, so that cells of other data are not taken for this one's."""
    return experiments.load(name, "natural", 0, settings, data_dir).sha256
