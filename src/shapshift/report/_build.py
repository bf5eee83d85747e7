"""build_report: check, put the sections together, write."""

import os
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from shapshift._facts import value_facts, worst_level
from shapshift.agreement import agreement
from shapshift.audit import ShiftAudit
from shapshift.checks import inputs as check
from shapshift.checks import labels as _labels
from shapshift.checks.labels import check_owners
from shapshift.correct import evaluate
from shapshift.exceptions import InputError
from shapshift.io.files import write_atomically
from shapshift.price import Allocation, PayoutAudit
from shapshift.report import _words
from shapshift.report._format import Unit, count, distinct, fixed, money, percent, plural, unit_for
from shapshift.report._page import render
from shapshift.report._payout_words import Draws, draws_of
from shapshift.report._sections import (
    DRAWN,
    Section,
    boundary_section,
    map_section,
    neighbour_section,
    payout_section,
    scatter_section,
    shift_section,
    spread_curves,
    value_section,
)
from shapshift.report._table import read_features, row_table
from shapshift.report._words import definitions, parameter_groups
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
    X_train: Any = None,
    y_train: Any = None,
    X_val: Any = None,
    feature_names: Sequence[str] | None = None,
    owners: Any = None,
    title: str = "What the training rows are worth",
    notes: Sequence[str] = (),
    parameters: Mapping[str, Any] | None = None,
    date: str = "",
    table_rows: int = 200,
) -> Path:
    """Write one self-contained HTML page that shows and explains the results.

    Sections appear when their input is there.

    Parameters
    ----------
    path : path-like
        Where the page goes; an existing file is replaced as a whole.
    valuation : Valuation
        Values on the clean validation set.
    audit : ShiftAudit, optional
        For the verdict, the shift curves and the neighbours.
    noisy, corrected : Valuation, optional
        Values of the same rows on a noisy validation set, and after correction.
    allocation : Allocation, optional
        For the payouts.
    payout_audit : PayoutAudit, optional
        The audit whose intervals ``allocation`` carries: the methods then list its parameters and seed.
    X_train : table of shape (n_train, n_features), optional
        For the table of rows and the map: the page then holds feature values of up to ``table_rows`` rows from each
        end, whoever owns them. Without it there are neither. It may be the table the model's features were made from:
        texts are shown, and the map uses the numeric columns.
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
        Remarks on how the data were prepared, shown with the methods.
    parameters : mapping, optional
        More parameters for the methods section, such as file names and seeds.
    date : str, optional
        Shown under the heading. There is none by default, so that the same results give the same bytes.
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
    _check_types(valuation, audit, noisy, corrected, allocation, payout_audit, title, notes, parameters, date)
    check.check_count(OWNER, "table_rows", table_rows)
    others = {name: given for name, given in (("noisy", noisy), ("corrected", corrected)) if given is not None}
    features = points = None
    if X_train is not None:
        features = read_features(X_train, "X_train", valuation.n_train, "the valuation", feature_names)
    if X_val is not None:
        points = read_features(X_val, "X_val", valuation.n_val, "the validation set")
    labels = None if y_train is None else _labels.check_labels(y_train, "y_train", valuation.n_train, "X_train")
    owned = _owners(owners, allocation, valuation)
    unit = unit_for(np.concatenate([valuation.values, *(other.values for other in others.values())]))

    draws = None if allocation is None else draws_of(allocation, payout_audit)
    sections = _sections(valuation, audit, others, allocation, draws, features, points, unit)
    table = row_table(
        valuation, unit, table_rows, audit=audit, corrected=corrected, features=features, labels=labels, owners=owned
    )
    page = {
        "points drawn per chart": DRAWN,
        "rows in the table, per end": table_rows,
        "shapshift": version("shapshift"),
    }
    content = render(
        {
            "title": title,
            "date": date,
            "notes": list(notes),
            "verdict": _words.verdict(audit, allocation),
            "figures": _figures(valuation, audit, noisy, corrected, allocation),
            "sections": sections,
            "table": table,
            "unit": unit,
            "definitions": definitions(valuation, audit, corrected, allocation, draws),
            "parameter_groups": parameter_groups(
                valuation,
                audit=audit,
                noisy=noisy,
                corrected=corrected,
                allocation=allocation,
                payout_audit=payout_audit,
                given=parameters or {},
                page=page,
            ),
            "version": version("shapshift"),
        },
        {chart.id: {"kind": chart.kind, **chart.data} for section in sections for chart in section.charts},
    )

    def write(file: BinaryIO) -> None:
        file.write(content)

    return write_atomically(path, write)


def _sections(
    valuation: Valuation,
    audit: ShiftAudit | None,
    others: dict[str, Valuation],
    allocation: Allocation | None,
    draws: Draws | None,
    features: Any,
    points: Any,
    unit: Unit,
) -> list[Section]:
    evaluation = evaluate(others["corrected"], valuation, others.get("noisy")) if "corrected" in others else None
    values = {"clean": valuation.values, **{name: other.values for name, other in others.items()}}
    predict = "predict" if _words.of_numbers(valuation) else "classify"
    found: list[Section | None] = [value_section(values, unit, evaluation, predict)]
    if allocation is not None:
        found.append(payout_section(allocation, unit, draws))
    if audit is not None:
        found.append(shift_section(audit, unit))
    moved = {name: other.values for name, other in others.items()}
    if not moved and audit is not None:
        moved = {"mean": audit.rows["mean"]}
    if moved:
        found.append(scatter_section(valuation, moved, unit))
    found.append(boundary_section(valuation, unit, [] if audit is None else spread_curves(audit)))
    if audit is not None:
        found.append(neighbour_section(audit))
    if features is not None:
        found.append(map_section(valuation, features, points, unit))
    return [section for section in found if section is not None]


def _figures(
    valuation: Valuation,
    audit: ShiftAudit | None,
    noisy: Valuation | None,
    corrected: Valuation | None,
    allocation: Allocation | None,
) -> list[tuple[str, str, str]]:
    """Few large numbers under the verdict: figure, what it is, and a remark."""
    facts = value_facts(valuation)
    helpful, n_train = facts["helpful"], facts["n_train"]
    found = [
        (count(n_train), "training rows", f"valued on {count(facts['n_val'])} validation points"),
        (percent(helpful / n_train), "of the rows help", f"{count(helpful)} have a positive value"),
        (percent(facts["boundary_fraction"]), "boundary points", "validation points whose neighbours disagree"),
    ]
    if audit is not None:
        rho = audit.statistic("spearman")[0]
        if np.isfinite(rho).any():
            worst = worst_level(audit)
            remark = f"{_words.level_phrase(audit, worst)}, mean of {plural(audit.repeats, 'draw')}"
            found.append((fixed(float(rho[worst])), "lowest rank agreement", remark))
    if corrected is not None and noisy is not None:
        after, before = (agreement(one.values, valuation.values)["spearman"] for one in (corrected, noisy))
        if after - before > _words.SAME:
            remark = f"{fixed(before)} before the correction, on this one noisy set"
            found.append((fixed(after), "rank agreement, corrected", remark))
        else:
            remark = f"{fixed(after)} after the correction, which does not raise it"
            found.append((fixed(before), "rank agreement on one noisy set", remark))
    if allocation is not None:
        paid = int(allocation.cents.sum())
        who = f"paid to {count(int((allocation.cents > 0).sum()))} of {count(len(allocation.owners))} owners"
        found.append((money(allocation, paid, label=False).removesuffix(".00"), allocation.currency or "money", who))
    return found


def _owners(owners: Any, allocation: Allocation | None, valuation: Valuation) -> Any:
    """Owner of each row, as text."""
    if owners is not None:
        known = check_owners(owners, valuation.ids)
        names, codes = known.names, known.codes
    elif allocation is not None:
        names, codes = allocation.owners, allocation.codes
    else:
        return None
    return np.array(distinct(names), dtype=object)[codes]


def _check_types(
    valuation: Valuation,
    audit: object,
    noisy: object,
    corrected: object,
    allocation: object,
    payout_audit: object,
    title: object,
    notes: object,
    parameters: object,
    date: object,
) -> None:
    given: list[tuple[str, Any, type[Any], bool]] = [
        ("valuation", valuation, Valuation, True),
        ("audit", audit, ShiftAudit, False),
        ("noisy", noisy, Valuation, False),
        ("corrected", corrected, Valuation, False),
        ("allocation", allocation, Allocation, False),
        ("payout_audit", payout_audit, PayoutAudit, False),
    ]
    for name, thing, kind, needed in given:
        if (thing is None and needed) or not (thing is None or isinstance(thing, kind)):
            article = "an" if kind.__name__[0] in "AEIO" else "a"
            raise InputError(
                f"The {name!r} parameter of {OWNER} must be {article} {kind.__name__}{'' if needed else ' or None'}. "
                f"Got {type(thing).__name__} instead."
            )
        if thing is not None and thing.fingerprint != valuation.fingerprint:
            raise InputError(
                f"The {name!r} parameter of {OWNER} is about other training rows than 'valuation': their fingerprints "
                "differ. Make both with one fitted model."
            )
    if payout_audit is not None and allocation is None:
        raise InputError(f"The 'payout_audit' parameter of {OWNER} needs 'allocation', whose intervals it explains.")
    for name, text in (("title", title), ("date", date)):
        if not isinstance(text, str):
            raise InputError(f"The {name!r} parameter of {OWNER} must be a string. Got {text!r} instead.")
    if isinstance(notes, str) or not isinstance(notes, Sequence) or not all(isinstance(note, str) for note in notes):
        raise InputError(f"The 'notes' parameter of {OWNER} must be a list of strings. Got {notes!r} instead.")
    if not (parameters is None or isinstance(parameters, Mapping)):
        raise InputError(f"The 'parameters' parameter of {OWNER} must be a mapping. Got {parameters!r} instead.")
