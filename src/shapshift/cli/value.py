"""``shapshift value``."""

import inspect
from typing import Any

from shapshift.cli import _show as show
from shapshift.cli._commands import command
from shapshift.cli._data import fit_model, load
from shapshift.cli._errors import CommandError
from shapshift.cli._options import Columns, Files, Method, Output, Page, Restart, Tables
from shapshift.cli._run import Run


@command(
    "value",
    examples=[
        "shapshift value train.parquet val.parquet --label y",
        "shapshift value train.csv val.csv --label class --id row --drop date,notes --report out.html",
        "shapshift value 'parts/*.parquet' val.feather --label y -k 10 --semivalue beta:4,1 --out run1",
        "shapshift value train.parquet val.parquet --label y --checkpoint progress --cluster dask://10.0.0.1:8786",
    ],
)
def value(
    run: Run,
    files: Files,
    columns: Columns,
    method: Method,
    restart: Restart,
    tables: Tables,
    page: Page,
    output: Output,
) -> None:
    """Value every training row on a validation set.

    Writes [bold]values.parquet[/] (one line per row), [bold]valuation.npz[/] (for Valuation.load) and
    [bold]manifest.json[/] (to repeat the run).
    """
    table = run.table_name("values")
    run.will_write(table, "valuation.npz")
    data = load(run, files, columns, method)
    model = fit_model(run, method, data)
    data = data.released(table=not show.shows_features(run, data))
    valuation = model.value(data.arrays.X_val, data.arrays.y_val, **_going_on(model, method, restart))
    run.write_table(table, show.value_table(valuation, data))
    valuation.save(run.path("valuation.npz"))
    show.write_page(run, data, valuation=valuation)
    run.parameters["valuation"] = dict(valuation.parameters)
    run.result = show.show_values(run.terminal, valuation, data)


def _going_on(model: Any, method: Method, restart: Restart) -> dict[str, Any]:
    """Hand the checkpoint to a model that has a use for it; return what its ``value`` must be told."""
    if restart.checkpoint is None:
        return {}
    if "checkpoint" in inspect.signature(model.value).parameters:
        return {"checkpoint": restart.checkpoint}
    if "checkpoint" in model.get_params(deep=False):
        model.set_params(checkpoint=restart.checkpoint)
        return {}
    raise CommandError(
        f"--checkpoint does not go with --method {method.method}, whose runs are short. Leave it out, or choose "
        "--method knn or --method sampled."
    )
