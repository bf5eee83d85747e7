"""``shapshift audit``."""

from shapshift.cli import _show as show
from shapshift.cli._commands import command
from shapshift.cli._data import fit_model, load
from shapshift.cli._errors import CommandError
from shapshift.cli._options import Columns, Files, Method, Noise, Output, Page, Tables
from shapshift.cli._run import Run
from shapshift.cli._specs import audit_arguments

LEVELS = "0.1,0.2,0.5,1"


@command(
    "audit",
    examples=[
        "shapshift audit train.parquet val.parquet --label y",
        "shapshift audit train.csv val.csv --label y --noise 0.1,0.2,0.5 --repeats 50 --report out.html",
        "shapshift audit train.csv val.csv --label y --perturb laplace:epsilon=1 --perturb laplace:epsilon=4",
        "shapshift audit train.csv val.csv --label y --perturb 'round:1 | flip:0.05'",
    ],
)
def audit(
    run: Run, files: Files, columns: Columns, method: Method, noise: Noise, tables: Tables, page: Page, output: Output
) -> None:
    """Measure how far the values move when the validation set does.

    Values the rows on the validation set as it is, then on perturbed versions of it (Gaussian noise 0.1, 0.2, 0.5
    and 1 unless --noise or --perturb says otherwise), and says whether the values can be relied on.

    Writes [bold]audit.npz[/] (for ShiftAudit.load), [bold]shift.csv[/] (one line per level), [bold]rows.parquet[/]
    (how far each row's value can be relied on) and [bold]manifest.json[/].
    """
    from shapshift.audit import ShiftStream

    table = run.table_name("rows")
    run.will_write("audit.npz", "shift.csv", table)
    data = load(run, files, columns, method)
    model = fit_model(run, method, data)
    data = data.released(table=not show.shows_features(run, data))
    arguments = audit_arguments(noise, data.classes, LEVELS)
    if arguments is None:
        raise CommandError("Nothing to audit: give --noise or --perturb.")
    X, y = data.arrays.X_val, data.arrays.y_val
    stream = ShiftStream(model, X, y, **arguments, random_state=run.seed, progress=run.terminal.progress)
    valuation = next(stream)
    found = stream.audit()
    found.save(run.path("audit.npz"))
    run.write_table("shift.csv", found.to_frame("pyarrow"))
    run.write_table(table, found.rows_frame(kind="pyarrow"))
    show.write_page(run, data, valuation=valuation, audit=found)
    run.parameters |= {"audit": dict(found.parameters), "perturbations": list(found.perturbations)}
    run.result = show.show_audit(run.terminal, found)
