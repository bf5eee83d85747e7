"""``shapshift cases``."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from shapshift._progress import progress_bar
from shapshift.cli._commands import command
from shapshift.cli._data import fit_model, load
from shapshift.cli._options import Columns, Files, Method, Noise, Output, option
from shapshift.cli._run import Run, frame
from shapshift.cli._show import number
from shapshift.cli._specs import parse_levels, parse_noise_only

LEVELS = "0.1,0.2,0.5,1,2"


@dataclass(frozen=True)
class Sets:
    """Which points are followed."""

    panel: ClassVar[str] = Method.panel
    points: int = option(10, "Points of each kind, and pairs, to follow.", metavar="N", min=1)
    figures: bool = option(False, "Also draw the figures (needs matplotlib).", rich_help_panel=Output.panel)


@command(
    "cases",
    examples=[
        "shapshift cases train.parquet val.parquet --label y",
        "shapshift cases train.csv val.csv --label y --points 30 --noise 0.2,1,5 --figures",
    ],
)
def cases(run: Run, files: Files, columns: Columns, method: Method, sets: Sets, noise: Noise, output: Output) -> None:
    """Look at one (Case I) and two (Case II) validation points to see why values move.

    Case I follows the values that a single validation point gives as noise on that point grows, for boundary points
    and others. Case II counts rows whose value changes sign on pairs of points of different classes: two boundary
    points (BB), two others (NN), one of each (BN).

    Writes [bold]case_one.csv[/], [bold]case_two.csv[/] and [bold]manifest.json[/].
    """
    from shapshift.mechanism import KINDS, SCENARIOS, case_one, case_two

    drawn = [f"{name}.{kind}" for name in ("case_one", "case_two", "case_two_levels") for kind in ("png", "svg")]
    run.will_write("case_one.csv", "case_two.csv", *(drawn if sets.figures else ()))
    parse_noise_only(noise)
    data = load(run, files, columns)
    model = fit_model(run, method, data)
    model.progress = False  # a bar for every single point would flicker
    arrays = data.arrays
    levels = parse_levels(noise.noise or LEVELS)
    plan: dict[str, Any] = {"noise": levels, "repeats": noise.repeats, "random_state": run.seed}
    if noise.relative:
        plan["perturbation"] = _relative_noise(model)
    ones, twos = [], []
    with progress_bar("Following points", len(KINDS) + len(SCENARIOS), run.terminal.progress) as advance:
        for kind in KINDS:
            ones += _if_any(run, case_one, model, arrays, kind=kind, n_points=sets.points, **plan)
            advance(1)
        for scenario in SCENARIOS:
            more = {"scenario": scenario, "n_pairs": sets.points, "X_train": arrays.X_train}
            twos += _if_any(run, case_two, model, arrays, **more, **plan)
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
    _show(run, ones, twos)


def _relative_noise(model: Any) -> Any:
    from shapshift.perturb import GaussianNoise

    return lambda level: GaussianNoise(level, relative=True).bind(model)


def _if_any(run: Run, follow: Any, model: Any, arrays: Any, **plan: Any) -> list[Any]:
    """One result, or none with a note where the validation set has no such points."""
    try:
        return [follow(model, arrays.X_val, arrays.y_val, **plan)]
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


def _show(run: Run, ones: list[Any], twos: list[Any]) -> None:
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
