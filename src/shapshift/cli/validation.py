"""``shapshift cases`` and ``design``: a look at the validation points themselves."""

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
HOLDOUT = 10
_TITLES = {
    "shift": "shift under noise",
    "distance": "distance to the values of all rows",
    "total": "both together",
    "spearman": "rank agreement under noise",
}


@dataclass(frozen=True)
class Sets:
    """Which points are followed."""

    panel: ClassVar[str] = Method.panel
    points: int = option(10, "Points of each kind, and pairs, to follow.", metavar="N", min=1)
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
    """Look at one (Case I) and two (Case II) validation points to see why values move.

    Case I follows the values that a single validation point gives as noise on that point grows, for boundary points
    and others. Case II counts rows whose value changes sign on pairs of points of different classes: two boundary
    points (BB), two others (NN), one of each (BN).

    Writes [bold]case_one.csv[/], [bold]case_two.csv[/] and [bold]manifest.json[/].
    """
    from shapshift.mechanism import KINDS, SCENARIOS, case_one, case_two

    sets, noise = run[Sets], run[Noise]
    drawn = [f"{name}.{kind}" for name in ("case_one", "case_two", "case_two_levels") for kind in ("png", "svg")]
    run.will_write("case_one.csv", "case_two.csv", *(drawn if sets.figures else ()))
    if noise.perturb:
        raise CommandError("--perturb does not go with this command; give levels of --noise, such as 0.1,0.5.")
    levels = parse_levels(noise.noise or LEVELS)
    data = load(run, "class")
    model = fit_model(run, data)
    model.progress = False  # a bar for every single point would flicker
    plan: dict[str, Any] = {"noise": levels, "repeats": noise.repeats, "random_state": run.seed}
    if noise.relative:
        plan["perturbation"] = _relative_noise(model)
    ones, twos = [], []
    with progress_bar("Following points", len(KINDS) + len(SCENARIOS), run.terminal.progress) as advance:
        for kind in KINDS:
            ones += _if_any(run, case_one, model, data, kind=kind, n_points=sets.points, **plan)
            advance(1)
        for scenario in SCENARIOS:
            more = {"scenario": scenario, "n_pairs": sets.points, "X_train": data.arrays.X_train}
            twos += _if_any(run, case_two, model, data, **more, **plan)
            advance(1)
    run.write_table("case_one.csv", _table(ones, "kind"))
    run.write_table("case_two.csv", _table(twos, "scenario"))
    if sets.figures:
        _draw(run, ones, twos)
    run.result = {
        "case_one": {case.kind: _describe(case, ("std_ratio", "positive_count")) for case in ones},
        "case_two": {
            case.scenario: _describe(case, ("positive_to_negative", "negative_to_positive", "std_ratio"))
            for case in twos
        },
    }
    run.parameters["cases"] = {"one": [dict(c.parameters) for c in ones], "two": [dict(c.parameters) for c in twos]}
    _show_cases(run, ones, twos)


def _relative_noise(model: Any) -> Any:
    from shapshift.perturb import GaussianNoise

    return lambda level: GaussianNoise(level, relative=True).bind(model)


def _if_any(run: Run, follow: Any, model: Any, data: Data, **plan: Any) -> list[Any]:
    """One result, or none with a note where the validation set has no such points."""
    try:
        return [follow(model, *data.points, **plan)]
    except ValueError as error:
        if not str(error).startswith("There is no"):
            raise
        run.terminal.warning(str(error))
        return []


def _table(found: list[Any], key: str) -> Any:
    if not found:
        return frame({key: np.array([], dtype=str)})
    names = list(found[0].samples)
    columns: dict[str, Any] = {key: np.repeat([getattr(case, key) for case in found], [c.noise.size for c in found])}
    columns["noise"] = np.concatenate([case.noise for case in found])
    for name in names:
        parts = [case.interval(name) for case in found]
        for place, end in enumerate(("", "_low", "_high")):
            columns[name + end] = np.concatenate([part[place] for part in parts])
    return frame(columns)


def _describe(case: Any, names: tuple[str, ...]) -> dict[str, Any]:
    said: dict[str, Any] = {"noise": case.noise, "sets": len(case.points)}
    return said | {name: case.interval(name)[0] for name in names if name in case.samples}


def _show_cases(run: Run, ones: list[Any], twos: list[Any]) -> None:
    rows = []
    for case in ones:
        ratio, positive = case.interval("std_ratio")[0], case.interval("positive_count")[0]
        for i, level in enumerate(case.noise):
            rows.append([case.kind, f"{level:g}", number(ratio[i], ".3f"), f"{positive[i]:,.1f}"])
    run.terminal.table("Case I: one validation point", ["point", ">noise", ">spread to clean", ">positive rows"], rows)
    rows = []
    for case in twos:
        lost, gained = (case.interval(name)[0] for name in ("positive_to_negative", "negative_to_positive"))
        for i, level in enumerate(case.noise):
            rows.append([case.scenario, f"{level:g}", f"{lost[i]:,.1f}", f"{gained[i]:,.1f}"])
    run.terminal.table("Case II: two validation points", ["pair", ">noise", ">lose their sign", ">gain it"], rows)


def _draw(run: Run, ones: list[Any], twos: list[Any]) -> None:
    from shapshift.plots._figure import save_figure

    if ones:
        save_figure(ones[0].plot(*ones[1:]), run.path("case_one"), close=True)
    if twos:
        save_figure(twos[0].plot(*twos[1:]), run.path("case_two"), close=True)
        save_figure(twos[0].plot_levels(*twos[1:]), run.path("case_two_levels"), close=True)


@dataclass(frozen=True)
class Selection:
    """What to select."""

    panel: ClassVar[str] = "Selection"
    select: int | None = option(None, "Number of rows of VAL to select.", "-m", metavar="N", min=1)
    fidelity: float = option(0.25, "Weight of staying near the values of all rows of VAL.", min=0)


@command(
    "design",
    *(Files, Columns, Method, Selection, Noise, Tables, Output),
    examples=[
        "shapshift design train.parquet val.parquet --label y",
        "shapshift design train.csv pool.csv --label y --select 500 --noise 0.5",
    ],
)
def design(run: Run) -> None:
    """Judge a validation set, or select one whose values move least.

    Compares how near the validation points lie to the class boundaries with the training rows themselves. With
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
            data.arrays.X_train, data.arrays.y_train, *data.points, metric=run[Method].metric, random_state=run.seed
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
        [title, *(number(float(np.mean(side[name])), ".3f") for side in sides.values())]
        for name, title in _TITLES.items()
    ]
    run.terminal.table("On fresh noise", ["", *(f">{side}" for side in sides)], rows)
    run.terminal.line(f"The selection {found.verdict}.", "green" if found.beats_random else "yellow")


def _check_names(run: Run, table: str, selected: Any, data: Data) -> None:
    """Refuse a CSV file from which labels, ids or owners would come back as others, such as the text "NA"."""
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
