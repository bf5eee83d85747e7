"""``shapshift clean``: change suspect rows, and measure the effect on held-out data."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from shapshift.cli._commands import command
from shapshift.cli._data import Data, load, load_other
from shapshift.cli._errors import CommandError
from shapshift.cli._options import Checked, Columns, Output, option
from shapshift.cli._run import Run
from shapshift.cli._show import number
from shapshift.cli.suspects import SHOWN, Search, check_search, search
from shapshift.exceptions import InputError

if TYPE_CHECKING:
    from shapshift.cleaning import CleaningEffect, Decisions
    from shapshift.cleaning.decisions import Plan

# Fewest rows of which a fifth can be held out.
FEWEST_ROWS = 20
REPEATS, CROSS_REPEATS = 5, 2


@dataclass(frozen=True)
class OneTask:
    """Kind of the labels, one for each row."""

    panel: ClassVar[str] = Search.panel
    task: Literal["class", "number"] | None = option(
        None, "What the label is: a class, or a number to predict.", show_default="detected from the label"
    )


@dataclass(frozen=True)
class Act:
    """Changes to the flagged rows."""

    panel: ClassVar[str] = "Cleaning"
    action: Literal["drop", "relabel", "weight"] = option(
        "drop",
        "Drop flagged rows, give them the suggested label, or add a column with the probability that their label is "
        "right.",
    )
    decisions: Path | None = option(
        None,
        "Apply these decisions instead of looking for suspects: a decisions.csv of an earlier run, edited or not.",
        metavar="FILE",
    )
    lose_classes: bool = option(False, "Allow a class to lose its last row.")
    new_classes: bool = option(False, "Allow decisions to give rows a class that TABLE does not have.")


@dataclass(frozen=True)
class Measure:
    """Measurement of the effect."""

    panel: ClassVar[str] = "Effect"
    test: Path | None = option(
        None,
        "Held-out rows, with the same columns. Without --test, parts of TABLE are held out in turn, and suspects are "
        "found anew among the other parts.",
        metavar="FILE",
    )
    models: str = option(
        "logistic,forest,boosting", "Models to measure: logistic, forest, boosting; or none.", metavar="NAMES"
    )
    repeats: int | None = option(
        None,
        "Number of seeds of the models and of draws of random rows.",
        metavar="N",
        min=1,
        show_default=f"{REPEATS}, {CROSS_REPEATS} without --test",
    )


@command(
    "clean",
    *(Checked, Columns, Search, OneTask, Act, Measure, Output),
    examples=[
        "shapshift clean train.csv --label y --test test.csv",
        "shapshift clean train.csv --label y --action relabel --error 0.05 --model forest",
        "shapshift clean train.csv --label y --decisions shapshift-clean/decisions.csv --out replayed",
        "shapshift clean train.parquet --label y --action weight --models none",
    ],
)
def clean(run: Run) -> None:
    """Drop, relabel or weight rows whose label is probably wrong, and measure the effect.

    Finds rows as [bold]suspects[/] does. Writes the table without them (or with new labels or weights), in its own
    format and with all other cells unchanged, and a list of decisions. To apply an edited list, pass it to
    --decisions; of several lines about one row, the last one counts.

    Fits models before, after, and without the same number of random rows, and compares them on held-out rows:
    balanced accuracy and the recall of the rarest class, or R2 for numbers, with 95% intervals.

    Writes [bold]cleaned.csv[/] (with the ending of TABLE), [bold]decisions.csv[/], [bold]effect.csv[/],
    [bold]classes.csv[/] and [bold]manifest.json[/]. TABLE itself is never changed.
    """
    from shapshift.cleaning import Decisions
    from shapshift.cleaning.effect import class_notes, class_table
    from shapshift.tables.writing import cleaned_names

    act, asked = run[Act], run[OneTask].task
    check_search(run, asked)
    models = _models(run[Measure].models)
    if act.decisions is not None:
        _check_replay(run)
    files = cleaned_names(run[Checked].train, "cleaned")
    run.will_write(*files, "decisions.csv", "effect.csv", "classes.csv")
    given = None
    if act.decisions is not None:
        given = Decisions.read_csv(run.input("decisions", act.decisions))
    data = load(run, asked or "seen")
    task = data.arrays.spec["target"]
    if task == "set":
        raise CommandError("'shapshift clean' acts on tables with one label per row. Name one column with --label.")
    features, labels, ids = data.train.select(data.feature_columns()), data.arrays.y_train, data.arrays.ids
    if given is None:
        with run.terminal.busy("Comparing rows"):
            found = search(run, data)
        for line in found.findings():
            run.terminal.line(line)
        for note in found.notes:
            run.terminal.note(note)
        given = Decisions.from_suspects(found, features, labels, action=act.action)
        run.parameters["suspects"] = dict(found.parameters)
    decisions = given.effective()
    allowed = {"lose_classes": act.lose_classes, "new_classes": act.new_classes}
    try:
        plan = decisions.plan(features, labels, ids=ids, task=task, **allowed)
    except InputError as error:
        told = re.sub(r"(lose|new)_classes=True", r"--\1-classes", str(error))
        raise CommandError(told) from error
    _write(run, data, plan, files)
    decisions.to_csv(run.path("decisions.csv"))
    table = class_table(plan, labels) if task == "class" else {}
    effect = _measure(run, data, decisions, plan, models, act.action)
    if table:
        run.write_table("classes.csv", _frame(table))
    if effect is not None:
        run.write_table("effect.csv", effect.to_frame("pyarrow"))
    notes = effect.notes if effect is not None else tuple(class_notes(table)) if table else ()
    _show(run, plan, table, effect, notes)


def _check_replay(run: Run) -> None:
    """Refuse options about finding suspects if the decisions are given."""
    asked, usual = run[Search], Search()
    given = {
        "--action": run[Act].action != Act().action,
        "--error": asked.error != usual.error,
        "--model": asked.model != usual.model,
        "--val": run[Checked].val is not None,
    }
    wrong = [name for name, holds in given.items() if holds]
    if wrong:
        raise CommandError(f"{wrong[0]} does not go with --decisions, which lists the rows and what is done to each.")


def _models(text: str) -> list[str]:
    from shapshift.cleaning.effect import MODELS

    names = [part.strip() for part in text.split(",") if part.strip()]
    if names == ["none"]:
        return []
    wrong = [name for name in names if name not in MODELS]
    if wrong or not names:
        raise CommandError(
            f"--models must be names out of {', '.join(MODELS)}, separated by commas, or none. Got {text!r}."
        )
    return list(dict.fromkeys(names))


def _write(run: Run, data: Data, plan: "Plan", files: Mapping[str, Path]) -> None:
    """Write the changed table, and check that it reads back correctly."""
    from shapshift.tables import read_table
    from shapshift.tables.writing import Changes, rewrite

    spec = data.arrays.spec
    column = data.train[spec["label"]]
    new = {int(row): _raw_label(plan.labels[row], data, column) for row in np.flatnonzero(plan.actions == "relabel")}
    names = data.train.column_names
    weight = next(
        name for k in range(1, len(names) + 2) if (name := "weight" if k == 1 else f"weight_{k}") not in names
    )
    weighted = bool((plan.actions == "weight").any())
    changes = Changes(plan.actions != "drop", new, spec["label"], plan.weights if weighted else None, weight)
    start = 0
    with run.terminal.busy("Writing the table"):
        for name, file in files.items():
            start += rewrite(file, run.path(name), changes, start)
        written = next(iter(files))
        if len(files) == 1 and "/" not in written:
            again = read_table(run.path(written), text=[spec["label"]] if spec["target"] == "class" else [])
            kept = plan.kept
            same = start == data.train.num_rows and again.num_rows == kept.size
            if same and spec["target"] == "class":
                entries = column.to_pylist()
                expected = [str(new.get(row, entries[row])) for row in kept.tolist()]
                same = list(map(str, again[spec["label"]].to_pylist())) == expected
        else:
            same = start == data.train.num_rows
    if not same:
        raise CommandError(
            f"{run[Checked].train.name!r} cannot be written so that it reads back the same, for instance because of a "
            "label 'NA' that is read as missing. Convert it to Parquet and clean that."
        )


def _raw_label(label: Any, data: Data, column: Any) -> Any:
    """Return a label as the table writes it; text or a number if the table does not have it."""
    rows = np.flatnonzero(data.arrays.y_train == label)
    if rows.size:
        return column[int(rows[0])].as_py()
    label = label.item() if isinstance(label, np.generic) else label
    whole = isinstance(label, float) and label.is_integer() and (data.arrays.y_train % 1 == 0).all()
    return int(label) if whole else label


def _measure(
    run: Run, data: Data, decisions: "Decisions", plan: "Plan", models: list[str], action: str
) -> "CleaningEffect | None":
    """Measure the effect; None, with the reason printed, if that is impossible."""
    from shapshift._arrays import object_array
    from shapshift.cleaning import Decisions, measure_cleaning

    arrays, asked = data.arrays, run[Measure]
    if not models:
        return None
    X_test = y_test = None
    if asked.test is not None:
        X_test, y_test = load_other(run, "test", asked.test, data)
        if arrays.spec["target"] == "class":  # labels of files with and without types, by their text
            known = {str(label): label for label in arrays.y_train.tolist()}
            y_test = object_array([known.get(str(label), label) for label in y_test.tolist()])
        _tell_shared(run, (arrays.X_train, arrays.y_train), (X_test, y_test))
    why = ""
    if not (plan.actions != "keep").any():
        why = "no row is changed"
    elif asked.test is None and run[Act].decisions is not None:
        why = "decisions that are based on all rows need held-out rows. Name them with --test"
    elif asked.test is None and arrays.y_train.size < FEWEST_ROWS:
        why = f"{arrays.y_train.size} rows are too few to hold some out. Name other rows with --test"
    if why:
        run.terminal.line(f"The effect was not measured: {why}.")
        return None

    def find_again(X: Any, y: Any, ids: Any) -> Decisions:
        distinct = len(set(y.tolist()))
        if distinct < 2 or (arrays.spec["target"] == "class" and distinct > y.size / 2):
            return Decisions.of(X, y, ids=[], actions=[])  # nothing to compare
        part = replace(arrays, X_train=X, y_train=y, ids=ids)
        return Decisions.from_suspects(search(run, replace(data, arrays=part)), X, y, action=action)

    # The rows were compared with the table; here they are features.
    unchecked = replace(decisions, rows=("",) * len(decisions))
    return measure_cleaning(
        unchecked,
        arrays.X_train,
        arrays.y_train,
        X_test,
        y_test,
        models,
        find=find_again,
        ids=arrays.ids,
        task=arrays.spec["target"],
        repeats=asked.repeats or (REPEATS if asked.test is not None else CROSS_REPEATS),
        lose_classes=run[Act].lose_classes,
        new_classes=run[Act].new_classes,
        random_state=run.seed,
        progress=run.terminal.progress,
    )


def _tell_shared(run: Run, rows: tuple[Any, Any], test: tuple[Any, Any]) -> None:
    """Report how many test rows are also rows of the table."""
    from shapshift.cross import count_shared

    (X, y), (X_test, y_test) = rows, test
    shared, n_test = count_shared(X, y.astype(str), X_test, y_test.astype(str)), y_test.size
    if shared:
        say = run.terminal.warning if 2 * shared > n_test else run.terminal.note
        say(
            f"{shared:,} of {n_test:,} rows of --test have the features and label of a row of TABLE. Models have seen "
            "them, so the measured effect is biased. Use other rows."
        )


def _frame(columns: Mapping[str, Any]) -> Any:
    from shapshift.io.results import to_table

    return to_table(dict(columns), None, "pyarrow")


def _show(
    run: Run, plan: "Plan", table: Mapping[str, Any], effect: "CleaningEffect | None", notes: tuple[str, ...]
) -> None:
    """Print how many rows were changed in which way, and the effect."""
    from shapshift.cleaning.effect import DIFFERENCES

    n = plan.actions.size
    counts = {action: int((plan.actions == action).sum()) for action in ("drop", "relabel", "weight")}
    words = {"drop": "dropped", "relabel": "relabelled", "weight": "weighted"}
    done = [f"{count:,} {words[action]}" for action, count in counts.items() if count]
    run.terminal.line(f"Of {n:,} rows: {', '.join(done) or 'none changed'}.", "bold")
    classes = [
        dict(zip(table, entries, strict=True)) for entries in zip(*(c.tolist() for c in table.values()), strict=True)
    ]
    shown = [
        {"class": one["label"]}
        | {f">{name}": f"{one[name]:,}" for name in ("rows", "dropped", "relabelled", "weighted")}
        | {">share": f"{one['share']:.1%}"}
        for one in classes
    ]
    more = len(shown) - SHOWN
    if more > 0:
        most = np.argsort([-one["share"] for one in classes], kind="stable")[:SHOWN]
        shown = [shown[j] for j in most.tolist()]
    run.terminal.table(f"By class (most changed; {more:,} more)" if more > 0 else "By class", shown if done else [])
    measured: list[dict[str, Any]] = []
    if effect is not None:
        measured = effect.to_frame("pyarrow").to_pylist()
        rows: dict[tuple[str, str], dict[str, str]] = {}
        for one in measured:
            row = rows.setdefault((one["model"], one["measure"]), {"model": one["model"], "measure": one["measure"]})
            change = one["what"] in DIFFERENCES
            interval = f" ({number(one['low'], '+.3f')} to {number(one['high'], '+.3f')})" if change else ""
            row[f">{one['what']}"] = number(one["value"], "+.3f" if change else ".3f") + interval
        where = "On the held-out rows" if effect.held_out == "test rows" else "On held-out parts of the table"
        run.terminal.table(f"{where} (95% intervals)", list(rows.values()))
    for note in notes:
        run.terminal.warning(note)
    run.result = {
        "rows": n,
        **{words[action]: count for action, count in counts.items()},
        "classes": classes,
        "held_out": None if effect is None else effect.held_out,
        "effect": measured,
        "notes": list(notes),
    }
