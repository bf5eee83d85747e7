"""``shapshift correct``."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from shapshift.cli import _show as show
from shapshift.cli._commands import command
from shapshift.cli._data import fit_model, load, load_other
from shapshift.cli._errors import CommandError
from shapshift.cli._options import Columns, Files, Method, Output, Page, Tables, option
from shapshift.cli._page import write_page
from shapshift.cli._run import Run
from shapshift.correct import BoundaryCorrector, EntropyNormalizer, evaluate

PANEL = "Correction"
CORRECTORS: dict[str, Any] = {"boundary": BoundaryCorrector, "entropy": EntropyNormalizer}


@dataclass(frozen=True)
class Correction:
    """How values are corrected."""

    clean_val: Annotated[
        Path | None,
        option("--clean-val", panel=PANEL, metavar="FILE", text="Clean validation rows to fit the correction on."),
    ] = None
    fitted: Annotated[
        Path | None,
        option("--fitted", panel=PANEL, metavar="FILE", text="Instead: the corrector.json of an earlier run."),
    ] = None
    corrector: Annotated[
        Literal["boundary", "entropy"],
        option("--corrector", panel=PANEL, text="Correct boundary and other points apart, or every entropy level."),
    ] = "boundary"
    bins: Annotated[
        int | None,
        option("--bins", min=1, panel=PANEL, metavar="N", text="With --corrector entropy: at most so many parts."),
    ] = None
    positive: Annotated[
        Literal["exact", "nearest"],
        option("--positive", panel=PANEL, text="Meet the clean positive count to the row, or by the published rule."),
    ] = "exact"
    preserve_sum: Annotated[bool, option("--preserve-sum", panel=PANEL, text="Keep the sum of the noisy values.")] = (
        False
    )


def make_corrector(correction: Correction) -> Any:
    """Make an unfitted corrector."""
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
    kinds = {kind.__name__: kind for kind in CORRECTORS.values()}
    if name not in kinds:
        raise CommandError(f"{str(path)!r} is not a fitted corrector. --fitted names the corrector.json of a run.")
    return kinds[name].load(path)


@command(
    "correct",
    examples=[
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

    VAL is the noisy set. The correction is fitted on a clean one (--clean-val), or was fitted before (--fitted; the
    file holds a few numbers and nothing of the clean points).

    Writes [bold]corrected.parquet[/] (values before and after), [bold]corrected.npz[/] (for Valuation.load),
    [bold]corrector.json[/], with --clean-val also [bold]evaluation.csv[/], and [bold]manifest.json[/].
    """
    if (correction.clean_val is None) == (correction.fitted is None):
        raise CommandError("Give either --clean-val, to fit the correction, or --fitted, a corrector.json.")
    table = run.table_name("corrected")
    evaluated = ("evaluation.csv",) if correction.clean_val is not None else ()
    run.will_write(table, "corrected.npz", "corrector.json", *evaluated)
    data = load(run, files, columns, method)
    model = fit_model(run, method, data)
    clean = None
    if correction.clean_val is not None:
        other = load_other(run, "clean_val", correction.clean_val, files, data)
        clean = model.value(other.X_val, other.y_val)
        corrector = make_corrector(correction).fit(clean)
    else:
        corrector = load_corrector(run.input("fitted", correction.fitted or Path()))
    noisy = model.value(data.arrays.X_val, data.arrays.y_val)
    corrected = corrector.transform(noisy)

    run.write_table(table, show.value_table(corrected, data, noisy=noisy.values))
    corrected.save(run.path("corrected.npz"))
    corrector.save(run.path("corrector.json"))
    report = corrector.report_
    run.parameters["correction"] = report.to_dict()
    run.result = {"correction": report.to_dict(), "values": show.describe_values(corrected)}
    run.terminal.line(
        f"Corrected {corrected.n_train:,} values: {report.to_positive:,} became positive, {report.to_negative:,} "
        f"stopped being so. Now {report.after['positive_count']:,} are, against {report.positive_target:,} when clean."
    )
    if clean is not None:
        found = evaluate(corrected, clean, noisy)
        run.write_table("evaluation.csv", found.to_frame("pyarrow"))
        run.result["evaluation"] = show.evaluation_result(found)
        show.show_evaluation(run.terminal, found)
        write_page(run, data, valuation=clean, noisy=noisy, corrected=corrected)
    else:
        write_page(run, data, valuation=corrected)
