"""The page of a run."""

from typing import Any

from shapshift.cli._data import Data
from shapshift.cli._run import Run


def write_page(run: Run, data: Data, **results: Any) -> None:
    """Write the page, when one was asked for.

    Parameters
    ----------
    run : Run
    data : Data
    **results
        What :func:`shapshift.report.build_report` takes: ``valuation``, ``audit``, ``noisy``, ...
    """
    if run.page is None:
        return
    from shapshift.report import build_report

    X_train, X_val = data.shown_features()
    with run.terminal.busy("Writing the page"):
        build_report(
            run.page_path(),
            X_train=X_train,
            X_val=X_val,
            y_train=data.arrays.y_train,
            owners=data.arrays.owners,
            notes=[f"{note[0].upper()}{note[1:]}." for note in data.arrays.notes],
            parameters={"command": run.command, "seed": run.seed, **run.files()},
            **results,
        )
