"""``shapshift design``."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from shapshift._progress import progress_bar
from shapshift.cli._commands import command
from shapshift.cli._data import Data, fit_model, load, named_columns
from shapshift.cli._errors import CommandError
from shapshift.cli._options import Columns, Files, Method, Noise, Output, Tables, option
from shapshift.cli._run import Run
from shapshift.cli._show import number
from shapshift.cli._specs import parse_levels, parse_perturbation

HOLDOUT = 10
_TITLES = {
    "shift": "shift under noise",
    "distance": "distance to the values of all rows",
    "total": "both together",
    "spearman": "rank agreement under noise",
}


@dataclass(frozen=True)
class Selection:
    """What to select."""

    panel: ClassVar[str] = "Selection"
    select: int | None = option(None, "Number of rows of VAL to select.", "-m", metavar="N", min=1)
    fidelity: float = option(0.25, "Weight of staying near the values of all rows of VAL.", min=0)


@command(
    "design",
    examples=[
        "shapshift design train.parquet val.parquet --label y",
        "shapshift design train.csv pool.csv --label y --select 500 --noise 0.5",
    ],
)
def design(
    run: Run,
    files: Files,
    columns: Columns,
    method: Method,
    selection: Selection,
    noise: Noise,
    tables: Tables,
    output: Output,
) -> None:
    """Judge a validation set, or select one whose values move least.

    Compares how near the validation points lie to the class boundaries with the training rows themselves. With
    --select, VAL is a pool: chooses rows whose values a stated noise (one --noise, by default 0.5, or one --perturb)
    shifts least, and says whether that beats random choices.

    Writes [bold]profile.csv[/], with --select also [bold]selected.parquet[/] (rows of VAL as they were read) and
    [bold]design.csv[/], and [bold]manifest.json[/].
    """
    from shapshift.design import design_validation, entropy_profile
    from shapshift.tables.labels import with_whole_numbers

    table = run.table_name("selected")
    run.will_write("profile.csv", *((table, "design.csv") if selection.select else ()))
    data = load(run, files, columns)
    arrays = data.arrays
    with run.terminal.busy("Comparing with the training rows"):
        profile = entropy_profile(
            arrays.X_train, arrays.y_train, arrays.X_val, arrays.y_val, metric=method.metric, random_state=run.seed
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
    model = fit_model(run, method, data)
    m = arrays.y_val.size
    with progress_bar("Selecting", m * (2 + noise.repeats + HOLDOUT), run.terminal.progress) as advance:
        found = design_validation(
            _Counted(model, advance),
            arrays.X_val,
            arrays.y_val,
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
