"""``shapshift correct``."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from shapshift._facts import value_facts
from shapshift.cli import _show as show
from shapshift.cli._commands import command
from shapshift.cli._data import Data, fit_model, load, load_other
from shapshift.cli._errors import CommandError
from shapshift.cli._options import Columns, Files, Method, Output, Page, Tables, option
from shapshift.cli._run import Run
from shapshift.io.files import write_text

if TYPE_CHECKING:
    from shapshift.correct import PosteriorReport
    from shapshift.valuation import Valuation

# In standard deviations of the features; more is a slip of the pen.
MOST_NOISE = 1000.0


@dataclass(frozen=True)
class Correction:
    """How values are corrected."""

    panel: ClassVar[str] = "Correction"
    clean_val: Path | None = option(None, "Clean validation rows to fit the correction on.", metavar="FILE")
    fitted: Path | None = option(None, "Instead: the corrector.json of an earlier run.", metavar="FILE")
    noise_sigma: str | None = option(
        None,
        "Undo known noise, without clean rows: its standard deviation in standard deviations of each number column, "
        "or auto to estimate it. With --clean-val or --fitted the other correction comes on top.",
        metavar="SIGMA",
    )
    draws: int = option(16, "With --noise-sigma: draws per point at most.", metavar="N", min=2)
    corrector: Literal["boundary", "entropy"] = option(
        "boundary", "Correct boundary and other points apart, or every entropy level."
    )
    bins: int | None = option(None, "With --corrector entropy: largest number of parts.", metavar="N", min=1)
    positive: Literal["exact", "nearest"] = option(
        "exact", "Meet the clean positive count to the row, or by the published rule."
    )
    preserve_sum: bool = option(False, "Keep the sum of the noisy values.")


def make_corrector(correction: Correction) -> Any:
    """Make an unfitted corrector."""
    from shapshift.correct import BoundaryCorrector, EntropyNormalizer

    shared: dict[str, Any] = {"positive": correction.positive, "preserve_sum": correction.preserve_sum}
    if correction.corrector == "entropy":
        return EntropyNormalizer(bins=correction.bins, **shared)
    if correction.bins is not None:
        raise CommandError("--bins goes with --corrector entropy.")
    return BoundaryCorrector(**shared)


def load_corrector(path: Path) -> Any:
    """Read a fitted corrector of either kind."""
    try:
        name = str(json.loads(path.read_text(encoding="utf-8"))["format"]).removeprefix("shapshift.")
    except FileNotFoundError:
        raise CommandError(f"There is no file {str(path)!r}. --fitted names the corrector.json of a run.") from None
    except (OSError, ValueError, KeyError, TypeError):
        name = ""
    from shapshift.correct import BoundaryCorrector, EntropyNormalizer

    kinds: dict[str, Any] = {kind.__name__: kind for kind in (BoundaryCorrector, EntropyNormalizer)}
    if name not in kinds:
        raise CommandError(f"{str(path)!r} is not a fitted corrector. --fitted names the corrector.json of a run.")
    return kinds[name].load(path)


def undo_noise(run: Run, correction: Correction, model: Any, data: Data) -> "tuple[Valuation, PosteriorReport]":
    """Estimate the values on the clean version of the validation set."""
    from shapshift.correct import PosteriorCorrector

    noise: Any = "estimate"
    numbers = np.array([_is_number(data, name) for name in data.arrays.feature_names])
    if correction.noise_sigma != "auto":
        noise = _read_sigma(str(correction.noise_sigma)) * numbers * np.asarray(model.feature_std_)
    elif not numbers.all():
        made = [name for name, number in zip(data.arrays.feature_names, numbers, strict=True) if not number]
        raise CommandError(
            f"--noise-sigma auto needs features that are all numbers; {made[0]!r} was made from another kind of "
            "column. Leave such columns out (--drop), or state the noise."
        )
    corrector = PosteriorCorrector(
        noise, draws=correction.draws, random_state=run.seed, progress=run.terminal.progress
    ).fit(model, X_train=data.arrays.X_train)
    corrected = corrector.transform(data.arrays.X_val, data.arrays.y_val)
    return corrected, corrector.report_


def _read_sigma(text: str) -> float:
    try:
        sigma = float(text)
    except ValueError:
        sigma = -1.0
    if not 0 <= sigma <= MOST_NOISE:
        raise CommandError(
            f"--noise-sigma must be a number from 0 to {MOST_NOISE:,.0f}, such as 0.5, or auto. Got {text!r}."
        )
    return sigma


def _is_number(data: Data, name: str) -> bool:
    """Whether a feature is a number column of the table; categories and texts carry no noise."""
    if name not in data.train.column_names:
        return False
    kind = str(data.train.schema.field(name).type)
    return kind.startswith(("int", "uint", "float", "double", "half", "decimal", "bool"))


def _say_noise(run: Run, report: "PosteriorReport") -> None:
    if report.estimate is not None:
        run.terminal.line(f"Estimated {report.estimate}.")
    if report.rehearsal is not None:
        before, after = report.rehearsal.spearman["noisy"], report.rehearsal.spearman["mixed"]
        run.terminal.line(
            f"Rehearsed on held back training rows, rank agreement with the clean values went from {before:.3f} to "
            f"{after:.3f}."
        )
    noisy = report.weights["noisy"]
    run.terminal.line(
        f"Values are {noisy:.0%} as they came and {1 - noisy:.0%} averages over what the points may have been; "
        f"standard error {report.standard_error:.1%} of their spread."
    )


@command(
    "correct",
    examples=[
        "shapshift correct train.parquet noisy.parquet --noise-sigma 0.5 --label y",
        "shapshift correct train.parquet noisy.parquet --clean-val clean.parquet --label y",
        "shapshift correct train.csv noisy.csv --fitted run1/corrector.json --label y --out run2",
    ],
)
def correct(
    run: Run,
    files: Files,
    columns: Columns,
    method: Method,
    correction: Correction,
    tables: Tables,
    page: Page,
    output: Output,
) -> None:
    """Correct values that were computed on a noisy validation set.

    VAL is the noisy set. With --noise-sigma the noise is known and no clean rows are needed: values are averaged over
    what the points may have been. The other correction is fitted on a clean set (--clean-val), or was fitted before
    (--fitted; the file holds a few numbers and nothing of the clean points).

    Writes [bold]corrected.parquet[/] (values before and after), [bold]corrected.npz[/] (for Valuation.load),
    [bold]posterior.json[/] with --noise-sigma, [bold]corrector.json[/] with --clean-val or --fitted, with --clean-val
    also [bold]evaluation.csv[/], and [bold]manifest.json[/].
    """
    from shapshift.correct import evaluate

    given = correction.clean_val is not None, correction.fitted is not None
    if all(given) or not (any(given) or correction.noise_sigma is not None):
        raise CommandError(
            "Give either --clean-val, to fit the correction, or --fitted, a corrector.json; or --noise-sigma, the size "
            "of the noise, which needs neither."
        )
    table = run.table_name("corrected")
    names = [table, "corrected.npz"]
    names += ["posterior.json"] * (correction.noise_sigma is not None) + ["corrector.json"] * any(given)
    run.will_write(*names, *(["evaluation.csv"] * given[0]))
    if correction.noise_sigma not in (None, "auto"):
        _read_sigma(str(correction.noise_sigma))
    data = load(run, files, columns, method)
    model = fit_model(run, method, data)
    clean = corrector = None
    if correction.clean_val is not None:
        other = load_other(run, "clean_val", correction.clean_val, files, data)
        clean = model.value(other.X_val, other.y_val)
        corrector = make_corrector(correction).fit(clean)
    elif correction.fitted is not None:
        corrector = load_corrector(run.input("fitted", correction.fitted))
    noisy = model.value(data.arrays.X_val, data.arrays.y_val)
    corrected = noisy
    run.result = {}
    if correction.noise_sigma is not None:
        corrected, posterior = undo_noise(run, correction, model, data)
        run.parameters["posterior"] = run.result["posterior"] = posterior.to_dict()
        write_text(run.path("posterior.json"), json.dumps(posterior.to_dict(), indent=2) + "\n")
        _say_noise(run, posterior)
    if corrector is not None:
        corrected = corrector.transform(corrected)
        corrector.save(run.path("corrector.json"))
        report = corrector.report_
        run.parameters["correction"] = run.result["correction"] = report.to_dict()
        run.terminal.line(
            f"Corrected {corrected.n_train:,} values: {report.to_positive:,} became positive, {report.to_negative:,} "
            f"stopped being so. Now {report.after['positive_count']:,} are, against {report.positive_target:,} when "
            "clean."
        )
    run.write_table(table, show.value_table(corrected, data, noisy=noisy.values))
    corrected.save(run.path("corrected.npz"))
    run.result["values"] = value_facts(corrected)
    if clean is not None:
        found = evaluate(corrected, clean, noisy)
        run.write_table("evaluation.csv", found.to_frame("pyarrow"))
        run.result["evaluation"] = show.show_evaluation(run.terminal, found)
        show.write_page(run, data, valuation=clean, noisy=noisy, corrected=corrected)
    else:
        show.write_page(run, data, valuation=corrected)
