"""``shapshift suspects``: which rows of a table have a label that is probably wrong."""

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from shapshift.cli._commands import command
from shapshift.cli._data import Data, load
from shapshift.cli._errors import CommandError
from shapshift.cli._options import Checked, Columns, Method, Output, option
from shapshift.cli._run import Run
from shapshift.cli._terminal import Terminal

if TYPE_CHECKING:
    from shapshift.suspects import Suspects

SHOWN = 10


@dataclass(frozen=True)
class Search:
    """Rows to flag, and the model that judges them."""

    panel: ClassVar[str] = Method.panel
    error: float = option(0.1, "Allowed share of correct labels among the flagged rows, such as 0.1 or 0.2.")
    model: Literal["neighbors", "forest", "boosting", "logistic"] | None = option(
        None,
        "Model that predicts the labels of rows it has not seen; neighbors: only the nearest rows.",
        show_default="nearest rows, a linear model and a forest",
    )


@dataclass(frozen=True)
class Task:
    """Kind of the labels."""

    panel: ClassVar[str] = Method.panel
    task: Literal["class", "number", "set"] | None = option(
        None,
        "What the label is: a class, a number to predict, or a set of labels.",
        show_default="detected from the label",
    )


@command(
    "suspects",
    *(Checked, Columns, Search, Task, Output),
    examples=[
        "shapshift suspects table.csv --label y",
        "shapshift suspects table.parquet --label y --error 0.2 --model forest",
        "shapshift suspects train.csv --val checked.csv --label class --id row --drop date,notes --impute median",
        "shapshift suspects songs.csv --label happy,sad,calm",
    ],
)
def suspects(run: Run) -> None:
    """Find the rows whose label is probably wrong.

    Compares every row with what the other rows predict for it, and gives the probability that its label is wrong, a
    better label, and the reason. Flags as many rows as --error allows: with 0.1, at most one in ten of them is expected
    to have a correct label. Look at them before you change anything.

    A label is a number to predict if it has fractions, or more than 30 different values that are more than 5% of the
    rows; --task says otherwise. Several label columns of 0 and 1, or a column of lists, are a multi-label table.

    Writes [bold]suspects.csv[/] (one line per row), [bold]suspects.npz[/] (for Suspects.load) and
    [bold]manifest.json[/].
    """
    check_search(run, run[Task].task)
    run.will_write("suspects.csv", "suspects.npz")
    data = load(run, run[Task].task or "seen")
    with run.terminal.busy("Comparing rows"):
        found = search(run, data)
    run.write_table("suspects.csv", _with_texts(found))
    found.save(run.path("suspects.npz"))
    run.parameters["suspects"] = dict(found.parameters)
    run.result = show_suspects(run.terminal, found)
    if found.flagged.any():
        run.terminal.line("Next: look at the flagged rows in suspects.csv.")
        if found.task != "set":
            run.terminal.line("Then drop or relabel rows, and measure the effect on held-out data:")
            run.terminal.line(f"  shapshift clean {given_options(run)}")


def given_options(run: Run) -> str:
    """Return the table and the given options as written in a shell."""
    words = [str(run[Checked].train)]
    given: dict[str, Any] = {"val": run[Checked].val} | vars(run[Columns]) | vars(run[Search]) | vars(run[Task])
    usual: dict[str, Any] = {"val": None} | vars(Columns()) | vars(Search()) | vars(Task())
    for name, entry in given.items():
        if entry != usual[name] and entry is not None and entry != []:
            for one in entry if isinstance(entry, list) else [entry]:
                words += [f"--{name.replace('_', '-')}", str(one)]
    return shlex.join(words)


def check_search(run: Run, task: str | None) -> None:
    """Refuse options that are wrong for any table."""
    asked = run[Search]
    if not 0 < asked.error < 1:
        raise CommandError(f"--error must be above 0 and below 1, such as 0.1. Got {asked.error:g}.")
    if task == "number" and asked.model == "logistic":
        raise CommandError("--model logistic is for classes. Use neighbors, forest or boosting with --task number.")


def search(run: Run, data: Data) -> "Suspects":
    """Find suspects among prepared rows."""
    from shapshift.suspects.find import suspects_of
    from shapshift.tables.preparing import Features

    asked, arrays, has_val = run[Search], data.arrays, run[Checked].val is not None
    rows = Features(arrays.X_train, arrays.X_val if has_val else None, "pyarrow")
    return suspects_of(
        rows,
        arrays.y_train,
        arrays.y_val if has_val else None,
        (rows.X, rows.X_val),
        model=asked.model,
        ids=arrays.ids,
        error=asked.error,
        task=arrays.spec["target"],
        random_state=run.seed,
        progress=False,
    )


def show_suspects(terminal: Terminal, found: "Suspects") -> dict[str, Any]:
    """Print which rows to act on first, and how many of each class are flagged; return these facts."""
    for line in found.findings():
        terminal.line(line)
    shown = found.ranking()[: min(SHOWN, int(found.flagged.sum()))].tolist()
    rows = [
        {
            "row": found.ids[i],
            "label": _written(found.label[i]),
            "": "→",
            "suggested": _written(found.suggested[i]),
            ">probability": f"{found.probability[i]:.2f}",
            "reason": found.reason[i],
        }
        for i in shown
    ]
    terminal.table("Rows to act on first", rows)
    classes = found.class_rows()
    by_class = [
        {
            "label" if found.task == "set" else "class": one["label"],
            ">rows": f"{one['rows']:,}",
            ">flagged": f"{one['flagged']:,}",
        }
        | {">share": f"{one['share']:.1%}"}
        for one in found.most_flagged()
    ]
    more = len(classes) - len(by_class)
    title = "By label" if found.task == "set" else "By class"
    terminal.table(f"{title} (most flagged; {more:,} more)" if more else title, by_class)
    for note in found.notes:
        terminal.line(f"Note: {note}", "yellow")
    return {
        "rows": int(found.ids.size),
        "flagged": int(found.flagged.sum()),
        "error": found.error,
        "expected_error": found.expected_error,
        "expected_wrong": float(found.probability.sum()),
        "first": [
            {"id": found.ids[i], "label": found.label[i], "suggested": found.suggested[i]}
            | {"probability": float(found.probability[i]), "reason": found.reason[i]}
            for i in shown
        ],
        "classes": classes,
        "notes": list(found.notes),
    }


def _with_texts(found: "Suspects") -> Any:
    """Return the table of all rows, with label sets as texts: a CSV file has no lists."""
    import pyarrow as pa

    table = found.to_frame("pyarrow")
    if found.task == "set":
        for name, sets in (("label", found.label), ("suggested", found.suggested)):
            texts = pa.array([", ".join(map(str, each)) for each in sets.tolist()])
            table = table.set_column(table.column_names.index(name), name, texts)
    return table


def _written(label: Any) -> str:
    if isinstance(label, tuple):
        return ", ".join(map(str, label)) or "(none)"
    return f"{label:.6g}" if isinstance(label, float) else str(label)
