"""``shapshift explain``: why rows have the values they have."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from shapshift._facts import explanation_facts
from shapshift.checks.names import some
from shapshift.cli._commands import command
from shapshift.cli._data import fit_model, load, make_model
from shapshift.cli._errors import CommandError
from shapshift.cli._options import Columns, Files, Method, Output, Tables, Weights, option
from shapshift.cli._run import Run
from shapshift.cli._show import how_points_count, with_point_ids
from shapshift.cli._terminal import Terminal

if TYPE_CHECKING:
    from shapshift.knn.explain import Explanation

# Rows that are explained when none is named, and rows up to which all points and neighbours are shown.
LOWEST, DETAILED = 10, 3


@dataclass(frozen=True)
class Rows:
    """Rows to explain, and the detail of their explanations."""

    panel: ClassVar[str] = "Rows"
    row: list[str] | None = option(
        None, "Id of a row to explain; repeat the option for more. Without --id, its number from 0 on.", metavar="ID"
    )
    lowest: int | None = option(
        None, "Explain this number of rows with the lowest values; 10 if no row is named.", metavar="N", min=1
    )
    points: int = option(
        5, "Number of validation points to list where a row gains most, and where it loses most.", metavar="N", min=1
    )
    nearest: int = option(5, "Number of nearest training rows to list; changes no value.", metavar="N", min=0)


@command(
    "explain",
    *(Files, Columns, Weights, Rows, Method, Tables, Output),
    examples=[
        "shapshift explain train.csv val.csv --label y --lowest 10",
        "shapshift explain train.csv val.csv --label y --id row --row r17 --row r99",
        "shapshift explain loans.csv recent.csv --label default --point-weight balanced --lowest 3",
        "shapshift explain train.csv val.csv --label price --method regression --row 4 --points 10",
    ],
)
def explain(run: Run) -> None:
    """Explain the values of training rows.

    For each row: the validation points on which it gains and loses most (its value there, the point's label, their
    distance, and the row's rank by distance there), its own nearest training rows, and one plain sentence. Choose rows
    by id, or those with the lowest values.

    The results show validation points: they are for the owner of these, not for the owners of training rows.

    Writes [bold]rows.parquet[/] (one line per row, with its sentence), [bold]points.parquet[/] (one line per row and
    point), [bold]neighbors.parquet[/], [bold]explanation.npz[/] (for Explanation.load) and [bold]manifest.json[/].
    """
    names = [run.table_name(stem) for stem in ("rows", "points", "neighbors")]
    run.will_write(*names, "explanation.npz")
    if not hasattr(make_model(run), "explain"):
        raise CommandError(
            f"--method {run[Method].method} has no explanations: its values do not come from neighbours. Choose knn, "
            "regression, threshold, weighted or another nearest-neighbour method of 'shapshift methods'."
        )
    data, asked = load(run), run[Rows]
    model = fit_model(run, data)
    ids, lowest = _find(asked.row or (), data.arrays.ids, data.arrays.y_train.size), asked.lowest
    if lowest is None and not ids:
        lowest = LOWEST
    if lowest is not None:
        valuation = model.value(*data.points)
        ids += valuation.ids[np.argsort(valuation.values, kind="stable")[:lowest]].tolist()
    found = with_point_ids(model.explain(*data.points, ids, n_points=asked.points, n_neighbors=asked.nearest), data)
    for name, table in zip(names, (found.rows_frame, found.to_frame, found.neighbors_frame), strict=True):
        run.write_table(name, table("pyarrow"))
    found.save(run.path("explanation.npz"))
    run.parameters["valuation"] = dict(found.parameters)
    run.result = show_explanation(run.terminal, found)


def _find(asked: Sequence[str], ids: Any, n_rows: int) -> list[Any]:
    """Return the ids of the command line in the types of the table."""
    known = {str(entry): entry for entry in (range(n_rows) if ids is None else ids.tolist())}
    unknown = [text for text in asked if text not in known]
    if unknown:
        where = (
            "Rows are numbered from 0 on; name a column of ids with --id"
            if ids is None
            else "Ids are those of the --id column"
        )
        raise CommandError(
            f"--row must name training rows, such as {some(list(known)[:3])}. Got {some(unknown)}. {where}."
        )
    return [known[text] for text in asked]


def show_explanation(terminal: Terminal, explanation: "Explanation") -> dict[str, Any]:
    """Print a sentence for each row, and all details of a few rows; return the facts."""
    rows = explanation_facts(explanation)
    for row in rows:
        terminal.line(row["sentence"], "green" if row["value"] > 0 else "red" if row["value"] < 0 else "")
        terminal.line(
            f"  Value {row['value']:+.3e}: {row['gain']:+.3e} from {row['positive']:,} and {row['loss']:+.3e} from "
            f"{row['negative']:,} of {explanation.n_val:,} validation points."
        )
        if len(rows) > DETAILED:
            continue
        terminal.table(
            "Validation points on which it gains and loses most",
            [
                {"point": one["id"], "label": one["label"], ">value there": f"{one['value']:+.3e}"}
                | {">distance": f"{one['distance']:.4g}", ">rank": f"{one['rank']:,.4g}"}
                for one in row["points"]
            ],
            ["green" if one["value"] > 0 else "red" for one in row["points"]],
        )
        terminal.table(
            "Its nearest training rows",
            [
                {"row": one["id"], "label": one["label"], ">distance": f"{one['distance']:.4g}"}
                for one in row["neighbors"]
            ],
        )
    if len(rows) > DETAILED:
        terminal.line("Their points and nearest training rows are in the tables; name one with --row to see its own.")
    weights = explanation.parameters.get("point_weight")
    if weights is not None:
        terminal.line(how_points_count(weights))
    return {"n_val": explanation.n_val, "point_weight": weights, "rows": rows}
