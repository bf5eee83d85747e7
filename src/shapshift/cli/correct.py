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
from shapshift.cli._options import Columns, Files, Method, Output, Page, Rule, Tables, option
from shapshift.cli._run import Run
from shapshift.io.files import write_text

if TYPE_CHECKING:
    from shapshift.correct import CorrectionEvaluation, PosteriorReport
    from shapshift.valuation import Valuation

# In standard deviations of the features; more is taken for a typing error.
MOST_NOISE = 1000.0


@dataclass(frozen=True)
class Correction:
    """Method of the correction."""

    panel: ClassVar[str] = "Correction"
    clean_val: Path | None = option(None, "Clean validation rows to fit the correction on.", metavar="FILE")
    fitted: Path | None = option(None, "Instead of --clean-val: the corrector.json of an earlier run.", metavar="FILE")
    noise_sigma: str | None = option(
        None,
        "Undo known noise, without clean rows: its standard deviation in standard deviations of each number column, "
        "or auto to estimate it. With --clean-val or --fitted, both corrections apply.",
        metavar="SIGMA",
    )
    draws: int = option(16, "With --noise-sigma: maximum number of draws per point.", metavar="N", min=2)
    corrector: Literal["boundary", "entropy"] = option(
        "boundary", "Correct boundary and other points separately, or every entropy level."
    )
    bins: int | None = option(None, "With --corrector entropy: largest number of parts.", metavar="N", min=1)
    rescale: Literal["all", "boundary", "nonboundary", "none"] = option(
        "all", "Points whose scores are rescaled to their clean spread; the others stay."
    )
    no_shift: bool = option(False, "Do not shift the values to the clean positive count.")
    positive: Literal["exact", "nearest"] | None = option(
        None,
        "Match the clean positive count exactly, or by the published quantile.",
        show_default="set by --rule",
    )
    preserve_sum: bool = option(False, "Keep the sum of the noisy values.")


@command(
    "correct",
    *(Files, Columns, Method, Correction, Rule, Tables, Page, Output),
    examples=[
        "shapshift correct train.parquet noisy.parquet --noise-sigma 0.5 --label y",
        "shapshift correct train.parquet noisy.parquet --clean-val clean.parquet --label y",
        "shapshift correct train.csv noisy.csv --clean-val clean.csv --label y --rule paper --rescale boundary",
        "shapshift correct train.csv noisy.csv --fitted run1/corrector.json --label y --out run2",
    ],
)
def correct(run: Run) -> None:
    """Correct values that were computed on a noisy validation set.

    VAL is the noisy set. With --noise-sigma the noise is known and no clean rows are needed: values are averaged over
    possible clean versions of the points. The other correction is fitted on a clean set (--clean-val), or was fitted
    before (--fitted; the file holds a few numbers and nothing of the clean points).

    Writes [bold]corrected.parquet[/] (values before and after), [bold]corrected.npz[/] (for Valuation.load),
    [bold]posterior.json[/] with --noise-sigma, [bold]corrector.json[/] with --clean-val or --fitted, with --clean-val
    also [bold]evaluation.csv[/], and [bold]manifest.json[/].
    """
    asked = run[Correction]
    given = asked.clean_val is not None, asked.fitted is not None
    if all(given) or not (any(given) or asked.noise_sigma is not None):
        raise CommandError(
            "Give either --clean-val, to fit the correction, or --fitted, a corrector.json; or --noise-sigma, the size "
            "of the noise, which needs neither."
        )
    names = [run.table_name("corrected"), "corrected.npz", *(["corrector.json"] * any(given))]
    run.will_write(*names, *(["posterior.json"] * (asked.noise_sigma is not None)), *(["evaluation.csv"] * given[0]))
    sigma, corrector = _read_sigma(asked.noise_sigma), _corrector(run)
    data = load(run)
    model = fit_model(run, data)
    clean = None
    if asked.clean_val is not None:
        clean = model.value(*load_other(run, "clean_val", asked.clean_val, data))
        corrector.fit(clean)
    noisy = model.value(*data.points)
    corrected = noisy
    if sigma is not None:
        corrected, posterior = _undo_noise(run, sigma, model, data)
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
            f"stopped being positive. {report.after['positive_count']:,} are positive now; with clean data, "
            f"{report.positive_target:,} were."
        )
    write_correction(run, data, corrected, noisy)
    run.result["values"] = value_facts(corrected)
    if clean is None:
        show.write_page(run, data, valuation=corrected)
    else:
        evaluation = evaluate_correction(run, corrected, clean, noisy)
        run.result["evaluation"] = show.show_evaluation(run.terminal, evaluation)
        show.write_page(run, data, valuation=clean, noisy=noisy, corrected=corrected)


def write_correction(run: Run, data: Data, corrected: "Valuation", noisy: "Valuation") -> None:
    """Write the corrected values."""
    run.write_table(run.table_name("corrected"), show.value_table(corrected, data, noisy=noisy.values))
    corrected.save(run.path("corrected.npz"))


def evaluate_correction(
    run: Run, corrected: "Valuation", clean: "Valuation", noisy: "Valuation"
) -> "CorrectionEvaluation":
    """Write how near the corrected values come to the clean ones."""
    from shapshift.correct import evaluate

    evaluation = evaluate(corrected, clean, noisy)
    run.write_table("evaluation.csv", evaluation.to_frame("pyarrow"))
    return evaluation


def _corrector(run: Run) -> Any:
    """Make the corrector to fit, or read the fitted one; None if the options ask for neither."""
    from shapshift.correct import BoundaryCorrector, EntropyNormalizer

    asked, rule = run[Correction], run[Rule].rule
    switches = {"--rule": rule != "default", "--rescale": asked.rescale != "all", "--no-shift": asked.no_shift}
    given = [name for name, holds in switches.items() if holds]
    if given and asked.clean_val is None:
        raise CommandError(
            f"{given[0]} goes with --clean-val: it says how the correction is fitted. A corrector of --fitted has its "
            "own, and --noise-sigma alone needs none. Leave it out."
        )
    if asked.fitted is not None:
        return _load_corrector(run.input("fitted", asked.fitted), (BoundaryCorrector, EntropyNormalizer))
    if asked.clean_val is None:
        return None
    shared: dict[str, Any] = {"rule": rule, "rescale": asked.rescale, "shift": not asked.no_shift}
    shared |= {"positive": asked.positive, "preserve_sum": asked.preserve_sum}
    if asked.corrector == "entropy":
        return EntropyNormalizer(bins=asked.bins, **shared)
    if asked.bins is not None:
        raise CommandError("--bins goes with --corrector entropy.")
    return BoundaryCorrector(**shared)


def _load_corrector(path: Path, kinds: tuple[Any, ...]) -> Any:
    try:
        written = json.loads(path.read_text(encoding="utf-8"))["format"]
    except FileNotFoundError:
        raise CommandError(f"There is no file {str(path)!r}. --fitted names the corrector.json of a run.") from None
    except (OSError, ValueError, KeyError, TypeError):
        written = None
    for kind in kinds:
        if written == f"shapshift.{kind.__name__}":
            return kind.load(path)
    raise CommandError(f"{str(path)!r} is not a fitted corrector. --fitted names the corrector.json of a run.")


def _undo_noise(run: Run, sigma: Any, model: Any, data: Data) -> "tuple[Valuation, PosteriorReport]":
    """Estimate the values on the clean version of the validation set."""
    from shapshift.correct import PosteriorCorrector

    names = data.arrays.feature_names
    numbers = np.array([_is_number(data, name) for name in names])
    if sigma == "auto" and not numbers.all():
        raise CommandError(
            f"--noise-sigma auto needs features that are all numbers; {names[numbers.argmin()]!r} was made from "
            "another kind of column. Leave such columns out (--drop), or state the noise."
        )
    noise: Any = "estimate" if sigma == "auto" else sigma * numbers * np.asarray(model.feature_std_)
    corrector = PosteriorCorrector(
        noise, draws=run[Correction].draws, random_state=run.seed, progress=run.terminal.progress
    ).fit(model, X_train=data.arrays.X_train)
    return corrector.transform(*data.points), corrector.report_


def _read_sigma(text: str | None) -> float | str | None:
    if text is None or text == "auto":
        return text
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
            f"In a rehearsal on held-out training rows, rank agreement with the clean values went from {before:.3f} "
            f"to {after:.3f}."
        )
    noisy = report.weights["noisy"]
    run.terminal.line(
        f"The values are a mix: {noisy:.0%} as computed on the noisy points, {1 - noisy:.0%} averaged over possible "
        "clean versions of the points. "
        f"Draws and mixture leave an error of {report.standard_error:.1%} of their spread."
    )
