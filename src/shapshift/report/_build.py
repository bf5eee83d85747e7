"""build_report: check the results, assemble the sections, write the page."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import fields
from importlib.metadata import version
from pathlib import Path
from types import NoneType
from typing import Any, BinaryIO

import numpy as np

from shapshift._facts import value_facts
from shapshift.audit import ShiftAudit
from shapshift.checks import inputs as check
from shapshift.checks import labels as _labels
from shapshift.checks.labels import check_owners
from shapshift.duplicates import Duplicates
from shapshift.exceptions import InputError
from shapshift.io.files import write_atomically
from shapshift.knn.explain import Explanation
from shapshift.price import Allocation, PayoutAudit
from shapshift.report import _format, _words
from shapshift.report._page import render
from shapshift.report._sections import DRAWN, make_sections
from shapshift.report._table import TABLE_ROWS, explained_rows, read_features, row_table
from shapshift.report._words import Results
from shapshift.valuation import Valuation

OWNER = "build_report"


def build_report(
    path: str | os.PathLike[str],
    *,
    valuation: Valuation,
    audit: ShiftAudit | None = None,
    noisy: Valuation | None = None,
    corrected: Valuation | None = None,
    allocation: Allocation | None = None,
    payout_audit: PayoutAudit | None = None,
    duplicates: Duplicates | None = None,
    explanation: Explanation | None = None,
    X_train: Any = None,
    y_train: Any = None,
    X_val: Any = None,
    feature_names: Sequence[str] | None = None,
    owners: Any = None,
    title: str = "What the training rows are worth",
    notes: Sequence[str] = (),
    parameters: Mapping[str, Any] | None = None,
    date: str = "",
    table_rows: int = TABLE_ROWS,
) -> Path:
    """Write one self-contained HTML page that shows and explains the results.

    Each section appears if its input is given.

    Parameters
    ----------
    path : path-like
        File of the page; an existing file is replaced.
    valuation : Valuation
        Values on the clean validation set.
    audit : ShiftAudit, optional
        For the verdict, the shift curves and the neighbours.
    noisy, corrected : Valuation, optional
        Values of the same rows on a noisy validation set, and after correction.
    allocation : Allocation, optional
        For the payouts.
    payout_audit : PayoutAudit, optional
        The audit that gave the intervals of ``allocation``: the methods then list its parameters and seed.
    duplicates : Duplicates, optional
        Copies across owners, splits and labels, which are counted beside the table of rows.
    explanation : Explanation, optional
        Explanation of rows in the table of rows: a click on one shows where its value comes from, with labels of
        validation points and distances to them.
    X_train : table of shape (n_train, n_features), optional
        For the table of rows and the map: the page then holds feature values of up to ``table_rows`` rows from each
        end, whoever owns them. Without it, the page has neither. It may be the table the model's features were made
        from: texts are shown, and the map uses the numeric columns.
    y_train : array-like of shape (n_train,), optional
        Labels, for the table of rows.
    X_val : table of shape (n_val, n_features), optional
        For the map.
    feature_names : sequence of str, optional
        By default the column names of ``X_train``.
    owners : array-like of shape (n_train,), optional
        For the table of rows; by default those of ``allocation``.
    title : str, optional
        Heading of the page.
    notes : sequence of str, optional
        Notes on the preparation of the data, shown with the methods.
    parameters : mapping, optional
        More parameters for the methods section, such as file names and seeds.
    date : str, optional
        Shown under the heading. None by default, so that the same results give the same bytes.
    table_rows : int, default=200
        Number of rows from each end in the table of most and least valuable rows.

    Returns
    -------
    pathlib.Path
        ``path``.

    Examples
    --------
    >>> import tempfile
    >>> from sklearn.datasets import load_iris
    >>> from shapshift import KNNShapley
    >>> from shapshift.report import build_report
    >>> X, y = load_iris(return_X_y=True)
    >>> valuation = KNNShapley().fit(X[::2], y[::2]).value(X[1::2], y[1::2])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = build_report(f"{folder}/iris.html", valuation=valuation, X_train=X[::2])
    ...     page.stat().st_size < 1_000_000
    True
    """
    results = Results(valuation, audit, noisy, corrected, allocation, payout_audit)
    _check_results(results)
    check.check_type(OWNER, "duplicates", duplicates, (Duplicates, NoneType), "what find_duplicates returned")
    check.check_type(OWNER, "title", title, str, "a string")
    check.check_type(OWNER, "date", date, str, "a string")
    check.check_type(OWNER, "parameters", parameters, (Mapping, NoneType), "a mapping")
    check.check_type(OWNER, "notes", notes, Sequence, "a list of strings")
    if isinstance(notes, str) or not all(isinstance(note, str) for note in notes):
        raise InputError(f"The 'notes' parameter of {OWNER} must be a list of strings. Got {notes!r} instead.")
    check.check_count(OWNER, "table_rows", table_rows)
    if explanation is not None:
        check.check_type(OWNER, "explanation", explanation, Explanation, "an Explanation or None")
        _check_same_rows("explanation", explanation, valuation)
        if not explanation.is_of(valuation):
            raise InputError(
                f"The 'explanation' parameter of {OWNER} is about other values than 'valuation'. Explain with the same "
                "model and validation set, and leave out corrections, pooling and weights of points."
            )
    features = points = None
    if X_train is not None:
        features = read_features(X_train, "X_train", valuation.n_train, "the valuation", feature_names)
    if X_val is not None:
        points = read_features(X_val, "X_val", valuation.n_val, "the validation set")
    labels = None if y_train is None else _labels.check_labels(y_train, "y_train", valuation.n_train, "X_train")
    sections = make_sections(results, features, points)
    page = {
        "points drawn per chart": DRAWN,
        "rows in the table, per end": table_rows,
        "shapshift": version("shapshift"),
    }
    table = row_table(results, table_rows, features, labels, _owners(owners, allocation, valuation))
    explained = explained_rows(explanation, table)
    content = render(
        {
            "title": title,
            "date": date,
            "notes": list(notes),
            "verdict": _words.verdict(audit, allocation, results.sampling),
            "facts": value_facts(valuation),
            "sections": sections,
            "table": table,
            "explained": explained,
            "copies": [] if duplicates is None else duplicates.findings(),
            "results": results,
            "words": _words,
            "show": _format,
            "parameter_groups": _words.parameter_groups(results, parameters or {}, page),
            "version": version("shapshift"),
        },
        {chart.id: {"kind": chart.kind, **chart.data} for section in sections for chart in section.charts},
    )

    def write(file: BinaryIO) -> None:
        file.write(content)

    return write_atomically(path, write)


def _owners(owners: Any, allocation: Allocation | None, valuation: Valuation) -> Any:
    """Owner of each row, as text."""
    if owners is not None:
        known = check_owners(owners, valuation.ids)
        names, codes = known.names, known.codes
    elif allocation is not None:
        names, codes = allocation.owners, allocation.codes
    else:
        return None
    return np.array(_format.distinct(names), dtype=object)[codes]


def _check_same_rows(name: str, given: Any, valuation: Valuation) -> None:
    if given.fingerprint != valuation.fingerprint:
        raise InputError(
            f"The {name!r} parameter of {OWNER} is about other training rows than 'valuation': their fingerprints "
            "differ. Make both with one fitted model."
        )


def _check_results(results: Results) -> None:
    kinds = {"audit": ShiftAudit, "allocation": Allocation, "payout_audit": PayoutAudit}
    for field in fields(results):
        name, given, kind = field.name, getattr(results, field.name), kinds.get(field.name, Valuation)
        if given is None and name != "valuation":
            continue
        article = "an" if kind.__name__[0] in "AEIO" else "a"
        or_none = "" if name == "valuation" else " or None"
        check.check_type(OWNER, name, given, kind, f"{article} {kind.__name__}{or_none}")
        _check_same_rows(name, given, results.valuation)
    if results.payout_audit is not None and results.allocation is None:
        raise InputError(f"The 'payout_audit' parameter of {OWNER} needs 'allocation', whose intervals it explains.")
