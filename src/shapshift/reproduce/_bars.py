"""What the correction without clean data has to reach, and whether it does."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from shapshift.reproduce._settings import REAL
from shapshift.reproduce._summary import Interval, Table, interval, select

#: A cell is a dataset, a protocol and a level of noise; its number is a mean over seeds.
Cell = tuple[str, str, float]

TOLERATED = 0.005
WANTED_GAIN = 0.15
WANTED_SHARE = 0.9


@dataclass(frozen=True)
class Bar:
    """A bar, and what was found.

    Attributes
    ----------
    bar : str
        What is asked for.
    found : str
        The number that decides.
    holds : bool
    exceptions : tuple of str
        Cells on the wrong side.
    """

    bar: str
    found: str
    holds: bool
    exceptions: tuple[str, ...] = ()

    def record(self) -> dict[str, Any]:
        """Return the bar as a row of a table."""
        said = "holds" if self.holds else "does not hold"
        return {"bar": self.bar, "found": self.found, "verdict": said, "exceptions": "; ".join(self.exceptions)}


def cell_means(table: Table, statistic: str, **where: Any) -> dict[Cell, float]:
    """Mean of a statistic over seeds in every cell."""
    found: dict[Cell, list[float]] = {}
    for row in select(table, **where):
        found.setdefault((row["dataset"], row["protocol"], row["sigma"]), []).append(row[statistic])
    return {cell: float(np.mean(numbers)) for cell, numbers in found.items()}


def judge_bars(values: Table, labels: Table) -> list[Bar]:
    """Judge every bar from the tables of the benchmark.

    Parameters
    ----------
    values : list of dict
        Agreement with the clean values, by method.
    labels : list of dict
        Areas under the curve for mislabelled rows.
    """
    order = {method: cell_means(values, "spearman", method=method) for method in ("noisy", "posterior")}
    error = {method: cell_means(values, "rmse", method=method) for method in ("noisy", "boundary", "posterior")}
    area = {method: cell_means(labels, method) for method in ("clean", "noisy", "posterior")}
    gain = {cell: order["posterior"][cell] - before for cell, before in order["noisy"].items()}
    bars = [_never_worse(gain)]
    strong = [gain[cell] for cell in gain if cell[0] in REAL and cell[2] >= 0.8]
    if strong:
        mean = float(np.mean(strong))
        bars.append(
            Bar(
                f"Mean gain in Spearman at noise 0.8 and more, over the real datasets: at least {WANTED_GAIN}",
                f"{mean:+.3f}",
                mean >= WANTED_GAIN,
            )
        )
    bars.append(_smaller_error(error))
    if area["noisy"]:
        bars += _detection(area, labels)
    return bars


def _never_worse(gain: dict[Cell, float]) -> Bar:
    worse = [cell for cell, number in gain.items() if number < -TOLERATED]
    lowest = min(gain, key=lambda cell: gain[cell])
    return Bar(
        f"Spearman with the clean values at least that of the noisy values - {TOLERATED} in every cell",
        f"{len(gain) - len(worse)} of {len(gain)} cells; least {gain[lowest]:+.4f} ({show_cell(lowest)})",
        not worse,
        tuple(f"{show_cell(cell)}: {gain[cell]:+.4f}" for cell in worse),
    )


def _smaller_error(error: dict[str, dict[Cell, float]]) -> Bar:
    cells = [cell for cell in error["posterior"] if cell[2] >= 0.4]
    above = [cell for cell in cells if error["posterior"][cell] >= min(error["noisy"][cell], error["boundary"][cell])]
    share = 1 - len(above) / len(cells) if cells else 1.0
    return Bar(
        f"Error below that of the noisy and of the boundary-corrected values in {WANTED_SHARE:.0%} of the cells with "
        "noise 0.4 and more",
        f"{len(cells) - len(above)} of {len(cells)} cells ({share:.0%})",
        share >= WANTED_SHARE,
        tuple(
            f"{show_cell(cell)}: {error['posterior'][cell]:.3f} against {error['noisy'][cell]:.3f} (noisy), "
            f"{error['boundary'][cell]:.3f} (boundary)"
            for cell in above
        ),
    )


def _detection(area: dict[str, dict[Cell, float]], labels: Table) -> list[Bar]:
    gain = {cell: area["posterior"][cell] - before for cell, before in area["noisy"].items()}
    worse = [cell for cell, number in gain.items() if number < 0]
    # The interval of a single seed has no width: it cannot tell chance from more.
    spread = {cell: _over_seeds(labels, cell) for cell in gain}
    below = [cell for cell in worse if spread[cell].low < spread[cell].high < 0]
    above = [cell for cell in gain if 0 < spread[cell].low < spread[cell].high]
    aim = [cell for cell in worse if area["clean"][cell] < area["noisy"][cell]]
    mean = float(np.mean(list(gain.values())))
    return [
        Bar(
            "Mislabelled rows: area under the curve not below that of the noisy values in any cell",
            f"{len(gain) - len(worse)} of {len(gain)} cells. By more than chance over seeds (95%), {len(below)} are "
            f"below and {len(above)} above. In {len(aim)} of the {len(worse)} below, the clean values are below too",
            not worse,
            tuple(
                f"{show_cell(cell)}: {gain[cell]:+.4f} [{spread[cell].low:+.4f}, {spread[cell].high:+.4f}]"
                f"{' (clearly)' if cell in below else ''}, noisy {area['noisy'][cell]:.4f}, clean "
                f"{area['clean'][cell]:.4f}"
                for cell in worse
            ),
        ),
        Bar("Mislabelled rows: area under the curve better on average", f"{mean:+.4f}", mean > 0),
    ]


def _over_seeds(labels: Table, cell: Cell) -> Interval:
    rows = select(labels, dataset=cell[0], protocol=cell[1], sigma=cell[2])
    return interval(row["posterior"] - row["noisy"] for row in rows)


def show_cell(cell: Cell) -> str:
    """Name a cell."""
    return f"{cell[0]} {cell[1]} {cell[2]:g}"
