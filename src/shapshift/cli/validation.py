"""``shapshift cases`` and ``design``: analysis of the validation points themselves."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from shapshift._progress import progress_bar
from shapshift.cli._commands import command
from shapshift.cli._data import Data, fit_model, load, named_columns, parse_levels, parse_perturbation
from shapshift.cli._errors import CommandError
from shapshift.cli._options import Columns, Files, Method, Noise, Output, Tables, option
from shapshift.cli._run import Run, frame
from shapshift.cli._show import number

LEVELS = "0.1,0.2,0.5,1,2"
# For each case: its title, what distinguishes its results, in code and in words, and the statistics that are shown.
_CASES = {
    "case_one": (
        *("Case I: one validation point", "kind", "point"),
        {"std_ratio": ("spread (clean = 1)", ".3f"), "positive_count": ("positive rows", ",.1f")},
    ),
    "case_two": (
        *("Case II: two validation points", "scenario", "pair"),
        {
            "positive_to_negative": ("positive to negative", ",.1f"),
            "negative_to_positive": ("negative to positive", ",.1f"),
        },
    ),
}
HOLDOUT = 10
_TITLES = {
    "shift": "shift under noise",
    "distance": "distance to the values of all rows",
    "total": "both together",
    "spearman": "rank agreement under noise",
}


@dataclass(frozen=True)
class Sets:
    """Points to follow."""

    panel: ClassVar[str] = Method.panel
    points: int = option(10, "Number of points of each kind, and of pairs, to follow.", metavar="N", min=1)
    figures: bool = option(False, "Also draw the figures (needs matplotlib).", rich_help_panel=Output.panel)


@command(
    "cases",
    *(Files, Columns, Method, Sets, Noise, Output),
    examples=[
        "shapshift cases train.parquet val.parquet --label y",
        "shapshift cases train.csv val.csv --label y --points 30 --noise 0.2,1,5 --figures",
    ],
)
def cases(run: Run) -> None:
    """Follow one (Case I) and two (Case II) validation points to see why values move.

    Case I follows the values that a single validation point gives as noise on that point grows, for boundary points
    and others. Case II counts rows whose value changes sign on pairs of points of different classes: two boundary
    points (BB), two others (NN), one of each (BN).

    Writes [bold]case_one.csv[/], [bold]case_two.csv[/] and [bold]manifest.json[/].
    """
    from shapshift.mechanism import KINDS, SCENARIOS, case_one, case_two
    from shapshift.perturb import GaussianNoise

    sets, noise = run[Sets], run[Noise]
    drawn = [f"{name}.{kind}" for name in (*_CASES, "case_two_levels") for kind in ("png", "svg")]
    run.will_write("case_one.csv", "case_two.csv", *(drawn if sets.figures else ()))
    if noise.perturb:
        raise CommandError("--perturb does not go with this command; give levels of --noise, such as 0.1,0.5.")
    plan: dict[str, Any] = {"noise": parse_levels(noise.noise or LEVELS), "repeats": noise.repeats}
    data = load(run, "class")
    model = fit_model(run, data)
    model.progress = False  # a bar for every single point would flicker
    plan["random_state"] = run.seed
    if noise.relative:
        plan["perturbation"] = lambda level: GaussianNoise(level, relative=True).bind(model)
    asked: list[tuple[Any, dict[str, Any]]] = [(case_one, {"kind": kind, "n_points": sets.points}) for kind in KINDS]
    pairs = {"n_pairs": sets.points, "X_train": data.arrays.X_train}
    asked += [(case_two, {"scenario": scenario, **pairs}) for scenario in SCENARIOS]
    found: dict[str, list[Any]] = {name: [] for name in _CASES}
    with progress_bar("Following points", len(asked), run.terminal.progress) as advance:
        for follow, chosen in asked:
            try:
                found[follow.__name__].append(follow(model, *data.points, **chosen, **plan))
            except ValueError as error:
                if not str(error).startswith("There is no"):
                    raise
                run.terminal.warning(str(error))  # the validation set has no such points
            advance(1)
    for name, results in found.items():
        _write_case(run, name, results)
    numbers = {"case_one": "one", "case_two": "two"}
    run.parameters["cases"] = {numbers[name]: [dict(one.parameters) for one in ones] for name, ones in found.items()}
    if sets.figures:
        _draw(run, **found)


def _write_case(run: Run, name: str, found: list[Any]) -> None:
    """Write and show the results of one case."""
    import pyarrow as pa

    title, key, heading, columns = _CASES[name]
    tables = [frame({key: np.array([], dtype=str)})] if not found else []
    rows, run.result[name] = [], {}
    for case in found:
        kind, table = getattr(case, key), case.to_frame("pyarrow")
        tables.append(table.add_column(0, key, pa.array([kind] * table.num_rows)))
        means = {name: case.interval(name)[0] for name in dict.fromkeys((*columns, "std_ratio"))}
        run.result[name][kind] = {"noise": case.noise, "sets": len(case.points), **means}
        for i, level in enumerate(case.noise):
            row = {heading: kind, ">noise": f"{level:g}"}
            rows.append(row | {f">{said}": number(means[each][i], form) for each, (said, form) in columns.items()})
    run.write_table(f"{name}.csv", pa.concat_tables(tables))
    run.terminal.table(title, rows)


def _draw(run: Run, case_one: list[Any], case_two: list[Any]) -> None:
    from shapshift.plots._figure import save_figure

    if case_one:
        save_figure(case_one[0].plot(*case_one[1:]), run.path("case_one"), close=True)
    if case_two:
        save_figure(case_two[0].plot(*case_two[1:]), run.path("case_two"), close=True)
        save_figure(case_two[0].plot_levels(*case_two[1:]), run.path("case_two_levels"), close=True)


@dataclass(frozen=True)
class Selection:
    """Rows to select."""

    panel: ClassVar[str] = "Selection"
    select: int | None = option(None, "Number of rows of VAL to select.", "-m", metavar="N", min=1)
    fidelity: float = option(0.25, "Weight of the distance to the values of all rows of VAL.", min=0)


@command(
    "design",
    *(Files, Columns, Method, Selection, Noise, Tables, Output),
    examples=[
        "shapshift design train.parquet val.parquet --label y",
        "shapshift design train.csv pool.csv --label y --select 500 --noise 0.5",
    ],
)
def design(run: Run) -> None:
    """Assess a validation set, or select one whose values move least.

    Compares how near validation points and training rows lie to the class boundaries. With
    --select, VAL is a pool: chooses rows whose values a stated noise (one --noise, by default 0.5, or one --perturb)
    shifts least, and says whether that beats random choices.

    Writes [bold]profile.csv[/], with --select also [bold]selected.parquet[/] (rows of VAL as they were read) and
    [bold]design.csv[/], and [bold]manifest.json[/].
    """
    from shapshift.design import design_validation, entropy_profile
    from shapshift.tables.labels import with_whole_numbers

    selection, noise, table = run[Selection], run[Noise], run.table_name("selected")
    run.will_write("profile.csv", *((table, "design.csv") if selection.select else ()))
    data = load(run, "class")
    with run.terminal.busy("Comparing with the training rows"):
        profile = entropy_profile(
            data.arrays.X_train,
            data.arrays.y_train,
            *data.points,
            n_neighbors=run[Method].boundary_neighbors,
            boundary_entropy=run[Method].boundary_entropy,
            metric=run[Method].metric,
            random_state=run.seed,
        )
    run.write_table("profile.csv", profile.to_frame("pyarrow"))
    run.result["profile"] = {
        "representative": profile.representative,
        "verdict": profile.verdict,
        "distance": profile.distance,
        "boundary_fraction": profile.validation.boundary_fraction,
        "training_boundary_fraction": profile.training.boundary_fraction,
    }
    run.terminal.line(f"The validation set is {profile.verdict}.", "green" if profile.representative else "yellow")
    if selection.select is None:
        return
    model = fit_model(run, data)
    length = len(data.arrays.y_val) * (2 + noise.repeats + HOLDOUT)
    with progress_bar("Selecting", length, run.terminal.progress) as advance:
        found = design_validation(
            _Counted(model, advance),
            *data.points,
            selection.select,
            noise=_one_perturbation(noise, data.classes),
            repeats=noise.repeats,
            holdout=HOLDOUT,
            fidelity=selection.fidelity,
            random_state=run.seed,
        )
    selected = with_whole_numbers(data.val.take(found.indices))
    run.write_table(table, selected, as_input=True)
    _check_names(run, table, selected, data)
    run.write_table("design.csv", found.to_frame("pyarrow"))
    run.parameters["design"] = dict(found.parameters)
    run.result["selection"] = {"verdict": found.verdict, "gain": found.gain, "beats_random": found.beats_random}
    sides: dict[str, Any] = {"selected": found.chosen, "random": found.random, "stratified": found.stratified}
    rows = [
        {"": title, **{f">{side}": number(float(np.mean(draws[name])), ".3f") for side, draws in sides.items()}}
        for name, title in _TITLES.items()
    ]
    run.terminal.table("On fresh noise", rows)
    run.terminal.line(f"The selection {found.verdict}.", "green" if found.beats_random else "yellow")


def _check_names(run: Run, table: str, selected: Any, data: Data) -> None:
    """Refuse a CSV file from which labels, ids or owners would be read as others, such as the text "NA"."""
    from shapshift.tables import TableSpec, read_table

    if not table.endswith(".csv"):
        return
    names = [name for name in named_columns(TableSpec(**data.arrays.spec), "class") if name in selected.column_names]
    again = read_table(run.path(table), text=names)
    for name in names:
        pairs = zip(selected[name].to_pylist(), again[name].to_pylist(), strict=True)
        changed = [old for old, new in pairs if old is not None and str(old) != str(new)]
        if changed:
            raise CommandError(
                f"Column {name!r} of the selected rows cannot be written as CSV, which has no types: {changed[0]!r} "
                "would be read as another value. Use --format parquet."
            )


def _one_perturbation(noise: Noise, classes: list[Any]) -> Any:
    if noise.perturb and noise.noise is None and len(noise.perturb) == 1:
        return parse_perturbation(noise.perturb[0], classes)
    levels = parse_levels(noise.noise or "0.5")
    if noise.perturb or len(levels) != 1:
        raise CommandError("--select works for one level: give one number with --noise, or one --perturb.")
    return parse_perturbation(f"gaussian:{levels[0]},relative={str(noise.relative).lower()}", classes)


class _Counted:
    """A model that advances a progress bar by the points it values."""

    def __init__(self, model: Any, advance: Callable[[int], None]) -> None:
        self._model, self._advance = model, advance
        model.progress = False

    def value(self, X_val: Any, y_val: Any, **more: Any) -> Any:
        """Value and advance."""
        valuation = self._model.value(X_val, y_val, **more)
        self._advance(valuation.n_val)
        return valuation

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._model, name)
