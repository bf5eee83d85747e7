"""Run the cells, keep what is done, and write tables, figures and the page."""

import csv
import io
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from shapshift._files import write_text
from shapshift._progress import progress_bar
from shapshift.mechanism import CaseOne, CaseTwo
from shapshift.reproduce import _experiments as experiments
from shapshift.reproduce import _figures as figures
from shapshift.reproduce._claims import judge
from shapshift.reproduce._page import write_page
from shapshift.reproduce._settings import CASES, FULL, HARD, Settings, protocols

Cell = tuple[str, Callable[[], Any]]


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
    cells = _cells(settings, data_dir)
    results: dict[str, Any] = {}
    with progress_bar("Reproducing", len(cells), progress) as advance:
        for name, compute in cells:
            results[name] = _stored(out / "cells" / f"{name}.json", settings, compute)
            advance(1)
    shift = _shift_table(results, settings)
    cases = _case_table(results)
    _write_csv(out / "tables" / "shift_and_correction.csv", shift)
    _write_csv(out / "tables" / "cases.csv", cases)
    examples = {name: result["example"] for name, result in results.items() if name.endswith("-seed0")}
    figures.draw_all(out / "figures", shift, examples, settings, data_dir)
    claims = judge(shift, cases, settings)
    _write_csv(out / "tables" / "claims.csv", [claim.record() for claim in claims])
    return write_page(page or out / "reproduction.md", out, claims, shift, settings)


def _cells(settings: Settings, data_dir: str | None) -> list[Cell]:
    cells: list[Cell] = []
    for name in settings.datasets:
        for protocol in protocols(name):
            for utility in ("soft", "hard") if name in HARD else ("soft",):
                for seed in range(settings.seeds):
                    compute = partial(
                        experiments.shift_and_correction, name, protocol, utility, seed, settings, data_dir
                    )
                    cells.append((f"shift-{name}-{protocol}-{utility}-seed{seed}", compute))
            if name in CASES:
                cells.append((f"cases-{name}-{protocol}", partial(_case_records, name, protocol, settings, data_dir)))
    return cells


def _case_records(name: str, protocol: str, settings: Settings, data_dir: str | None) -> list[dict[str, Any]]:
    ones, twos = experiments.cases(name, protocol, settings, data_dir)
    cases: list[CaseOne | CaseTwo] = [*ones, *twos]
    return [record for case in cases for record in experiments.case_records(case)]


def _stored(path: Path, settings: Settings, compute: Callable[[], Any]) -> Any:
    """Return a finished cell, or compute it and keep it."""
    if path.exists():
        try:
            kept = json.loads(path.read_text(encoding="utf-8"))
            if kept["settings"] == settings.digest:
                return kept["result"]
        except (ValueError, KeyError, TypeError):
            pass  # not a whole cell of ours: compute it again
    result = compute()
    write_text(path, json.dumps({"settings": settings.digest, "result": result}))
    return result


def _shift_table(results: dict[str, Any], settings: Settings) -> list[dict[str, Any]]:
    table = []
    for cell, result in results.items():
        if cell.startswith("shift-"):
            _, dataset, protocol, utility, seed = cell.split("-")
            key = {"dataset": dataset, "protocol": protocol, "utility": utility, "seed": int(seed.removeprefix("seed"))}
            table += [{**key, **record} for record in result["records"]]
    return table


def _case_table(results: dict[str, Any]) -> list[dict[str, Any]]:
    table = []
    for cell, records in results.items():
        if cell.startswith("cases-"):
            _, dataset, protocol = cell.split("-")
            table += [{"dataset": dataset, "protocol": protocol, **record} for record in records]
    return table


def _write_csv(path: Path, records: list[dict[str, Any]]) -> None:
    columns = list(dict.fromkeys(key for record in records for key in record))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    write_text(path, text.getvalue())
