"""``shapshift duplicates``."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from shapshift.cli._commands import command
from shapshift.cli._data import load_raw
from shapshift.cli._options import Columns, OneOrTwo, Output, Tables, option
from shapshift.cli._run import Run
from shapshift.cli._terminal import Terminal

if TYPE_CHECKING:
    from shapshift.duplicates import Duplicates

# Rows that are shown in the terminal.
SHOWN = 12


@dataclass(frozen=True)
class Names:
    """Roles of columns, as in :class:`Columns` without the encoding of features."""

    panel: ClassVar[str] = Columns.panel
    label: str | None = option(None, "Label column, which is not compared.", "-y", metavar="COLUMN")
    id: str | None = option(None, "Row id column.", metavar="COLUMN")
    owner: str | None = option(None, "Owner column.", metavar="COLUMN")
    drop: list[str] | None = option(
        None, "Columns to leave out: repeat the option, or separate by commas.", metavar="COLUMN"
    )
    features: list[str] | None = option(None, "Columns to compare; by default all remaining columns.", metavar="COLUMN")


@dataclass(frozen=True)
class Nearness:
    """Definition of near copies."""

    panel: ClassVar[str] = "Near copies"
    radius: float | None = option(
        None,
        "Largest distance of near copies, in standard deviations of the columns; 0 for exact copies only.",
        metavar="R",
        min=0.0,
        show_default="from the data",
    )


@command(
    "duplicates",
    *(OneOrTwo, Names, Nearness, Tables, Output),
    examples=[
        "shapshift duplicates train.csv val.csv --label y",
        "shapshift duplicates offers.parquet --label y --owner seller --id row",
        "shapshift duplicates train.csv val.csv --label y --radius 0 --format csv",
    ],
)
def duplicates(run: Run) -> None:
    """List rows that occur more than once, exactly or nearly: across owners, TRAIN and VAL, and labels.

    Rows are compared as they are, with text and missing entries; labels, ids and owners are not compared. By default
    the radius of near copies is chosen so that at most 0.1% of the rows would have such a neighbour by chance.

    Writes [bold]duplicates.parquet[/] (one line per row that has a copy), [bold]duplicates.npz[/] (for Duplicates.load)
    and [bold]manifest.json[/].
    """
    from shapshift.duplicates import find_duplicates

    table = run.table_name("duplicates")
    run.will_write(table, "duplicates.npz")
    names = run[Names]
    columns = Columns(label=names.label, id=names.id, owner=names.owner, drop=names.drop, features=names.features)
    train, val, roles = load_raw(run, columns)
    found = find_duplicates(
        train.select(roles.features),
        roles.y_train,
        owners=roles.owners,
        X_val=None if val is None else val.select(roles.features),
        y_val=None if val is None else roles.y_val,
        ids=roles.ids,
        ids_val=None if val is None else roles.ids_val,
        radius=run[Nearness].radius,
        progress=run.terminal.progress,
    )
    run.write_table(table, found.to_frame("pyarrow"))
    found.save(run.path("duplicates.npz"))
    run.parameters["duplicates"] = {"radius": found.radius, "honest": found.honest}
    run.result = show_duplicates(run.terminal, found)


def show_duplicates(terminal: Terminal, found: "Duplicates") -> dict[str, Any]:
    """Print how many duplicates there are and where, and the first ones; return these facts."""
    facts = found.summary()
    n = found.group.size
    near = f"within {facts['radius']:.3g} standard deviations, where {facts['honest']:.2g} rows would be by chance"
    terminal.line(
        f"{facts['rows']:,} of {n:,} rows have a copy, in {facts['groups']:,} groups: {facts['exact']:,} exact, "
        f"{facts['near']:,} near{f' ({near})' * (facts['radius'] > 0)}."
    )
    told = []
    if found.owners is not None:
        told.append(f"{facts['across_owners']:,} groups across owners")
    if found.ids_val.size:
        told.append(f"{facts['across_splits']:,} across TRAIN and VAL ({int(found.across.sum()):,} training rows)")
    told.append(f"{facts['contradicting']:,} training rows with an exact copy of another label")
    worth = facts["across_owners"] + facts["across_splits"] + facts["contradicting"]
    terminal.line(f"{', '.join(told)}.", "yellow" if worth else "green")
    rows = []
    for entry in found.to_frame("pyarrow").slice(0, SHOWN).to_pylist():
        row = {">group": f"{entry['group']:,}", "row": entry["id"], "split": entry["split"]}
        if found.owners is not None:
            row["owner"] = "" if entry["owner"] is None else entry["owner"]
        row |= {"label": entry["label"], ">distance": f"{entry['distance']:.3g}", "kind": entry["kind"]}
        rows.append(row)
    if rows:
        terminal.table("Duplicates" + f", the first {SHOWN} rows of {facts['rows']:,}" * (facts["rows"] > SHOWN), rows)
    return facts
