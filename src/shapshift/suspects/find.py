"""find_suspects: rows with probably wrong labels, with suggestions, reasons, and a cut-off with a stated error."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.stats import rankdata
from sklearn.base import is_regressor
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing

from shapshift._arrays import object_array
from shapshift.checks import labels as _labels
from shapshift.checks.inputs import check_choice, check_count, check_progress, quoted, some, tensor_to_numpy, wrong
from shapshift.duplicates import find_duplicates
from shapshift.exceptions import InputError
from shapshift.knn import KNNRegressionShapley, KNNShapley
from shapshift.knn.base import ModelWith
from shapshift.sampled.proxy import KNNProxy
from shapshift.suspects.result import ACROSS, CONTRADICTING, DISAGREE, OUTLIER, REASONS, Suspects
from shapshift.suspects.scores import N_NEIGHBORS, flag, score_label_sets, score_labels, score_targets
from shapshift.tables.preparing import Features, prepare_features

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Array = npt.NDArray[Any]
Codes = npt.NDArray[np.int32]

TASKS = ("class", "number", "set")
MODELS = ("neighbors", "forest", "boosting", "logistic")
FEWEST_ROWS = 10
#: Targets beyond which squares would overflow.
LARGEST = 1e100
#: Rows of a class below which a note says that its probabilities are uncertain.
FEW_OF_A_CLASS = 10
#: Outlier score from which a row is an outlier: its neighbours are three robust standard deviations farther away.
FAR = 0.5
#: Share of rows with contradicting copies above which equal features with different labels count as normal.
COARSE = 0.1
#: A class gets a note if its flagged share is at least CONDEMNED_RATIO times that of all other rows and at least
#: CONDEMNED_SHARE, and at least FEW_FLAGGED of its rows are flagged.
CONDEMNED_RATIO, CONDEMNED_SHARE, FEW_FLAGGED = 3.0, 0.1, 3
#: A class is small below this share of the rows, and below half the share that it would have if all were of one size.
SMALL_SHARE = 0.1
#: Share of label entries that features mistake, and its ratio to wrong entries, above which a note doubts the error.
UNCLEAR, UNCLEAR_RATIO = 0.05, 3.0


@dataclass(frozen=True)
class _Found:
    """Scores of all rows; ``codes`` are numbers of their classes or label sets."""

    probability: Floats
    label: Array
    suggested: Array
    outlier: Floats
    against: Flags
    codes: Codes | None = None
    codes_val: Codes | None = None
    unknown: Sequence[Any] = ()
    notes: Sequence[str] = ()


def find_suspects(
    X: Any,
    y: Any,
    *,
    model: Any = None,
    X_val: Any = None,
    y_val: Any = None,
    ids: Any = None,
    error: float = 0.1,
    task: str | None = None,
    random_state: int = 0,
    progress: bool | None = None,
) -> Suspects:
    """Find the rows whose label is probably wrong.

    Every row's label is compared with votes from other rows: its nearest rows, and models not fitted on it. The rate of
    wrong labels, and the pairs of classes that are confused, are estimated from the table itself, so that overlap
    between classes is not mistaken for label errors.

    Parameters
    ----------
    X : table of shape (n, n_features)
        Frames may hold text, categories and missing values: numbers are standardised, categories become columns of 0
        and 1, and missing values are filled in. Sparse rows are used as they are.
    y : array-like of shape (n,), or of shape (n, n_labels)
        Classes; numbers to predict; or label sets, as a table of 0 and 1 with a column per label or a list of labels
        per row.
    model : optional
        Model that predicts the label of each row without being fitted on that row. By default the nearest rows, a
        linear model (for dense rows with at most 1,000 columns) and a forest vote. A scikit-learn classifier or
        regressor, that of a ``KNNProxy``, or one of the names "forest", "boosting" and "logistic" replaces the forest;
        a Pipeline gets the unchanged rows of a frame. With a KNN model of this package, or "neighbors", only the
        nearest rows vote.
    X_val, y_val : optional
        Rows with labels known to be right. They vote, and are not scored.
    ids : array-like of shape (n,), optional
        By default the index of a pandas frame, or positions.
    error : float, default=0.1
        Share of right labels allowed among the flagged rows. The flagged rows are the largest set of most probable rows
        whose expected share of right labels is within this limit.
    task : {"class", "number", "set"}, optional
        What `y` holds. By default, `y` holds numbers to predict if they have fractions, or if there are more than 30
        different ones and these are more than 5% of the rows; everything else is a class.
    random_state : int, default=0
        Seed of the model.
    progress : bool, optional
        Whether to show a progress bar; by default only in terminals and notebooks.

    Returns
    -------
    Suspects

    Notes
    -----
    Exact copies with different labels: equal features are assumed to have one right label, and every copy to be right
    with the same probability. So a label that ``c`` of ``m`` copies have is wrong with probability ``1 - c / m``. The
    probability of such a row is raised to at least ``min(1 - c / m, 1 / 2)``; above that, copies only count as
    neighbours. If more than a tenth of all rows have such copies, the features are too coarse to distinguish rows, and
    nothing is raised.

    If rows of a class get no more votes for it than other rows do, the features do not predict that class: its right
    labels look like wrong ones. The probabilities of its rows are then halved, so that none is flagged, and a note says
    so.

    Copies of training rows among the validation rows, and outliers, are reported but do not change probabilities.

    A row's label set gets the highest probability of any of its labels. One share of wrong entries is
    estimated for all labels together; a note warns if the features predict labels too poorly for the stated error.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from shapshift import find_suspects
    >>> X, y = load_iris(return_X_y=True)
    >>> y[7] = 2
    >>> found = find_suspects(X, y)
    >>> bool(found.flagged[7]), int(found.suggested[7])
    (True, 0)
    """
    data = prepare_features(X, X_val)
    _labels.check_same_order(X, y)
    raw = (data.X, data.X_val) if data.kind == "numpy" else (X, X_val)
    return suspects_of(
        data, y, y_val, raw, model=model, ids=ids, error=error, task=task, random_state=random_state, progress=progress
    )


def suspects_of(
    data: Features,
    y: Any,
    y_val: Any,
    raw: tuple[Any, Any],
    *,
    model: Any,
    ids: Any,
    error: Any,
    task: str | None,
    random_state: int,
    progress: bool | None,
) -> Suspects:
    """Find suspects among prepared rows; copies are searched for among the rows and validation rows of ``raw``."""
    caller = "find_suspects"
    if isinstance(error, bool) or not isinstance(error, int | float | np.number) or not 0 < error < 1:
        raise wrong(caller, "error", "a number above 0 and below 1, such as 0.1", error)
    seed = check_count(caller, "random_state", random_state, at_least=0)
    check_progress(caller, progress)
    if task is not None:
        check_choice(caller, "task", task, TASKS)
    if (data.X_val is None) != (y_val is None):
        raise InputError(f"The 'X_val' and 'y_val' parameters of {caller} belong together: pass both or neither.")
    n = data.X.shape[0]
    names = _labels.check_ids(ids, data.index, n)
    if isinstance(model, ModelWith):
        raise InputError(
            f"The 'model' parameter of {caller} must be a model without weights or pooling: nothing is valued here. "
            "Pass the fitted model itself instead of its weighted() or pooled()."
        )
    known, y = _task(y, task, model, n)
    if n < FEWEST_ROWS:
        raise InputError(f"'X' must have at least {FEWEST_ROWS} rows, so that rows can be compared. Got {n}.")
    model = _named_model(caller, model, known)
    score = {"class": _classes, "number": _numbers, "set": _sets}[known]
    found = score(data, y, y_val, {"model": model, "model_rows": _as_given(model, raw), "random_state": seed}, progress)
    probability, contradicting, notes = _with_copies(raw, found)
    notes += found.notes
    if found.unknown:
        one, many = ("label", "labels") if known == "set" else ("class", "classes")
        which = f"{one if len(found.unknown) == 1 else many} {some(found.unknown)}"
        if known == "class" and len(found.unknown) == len(set(found.label.tolist())):
            which = "the label"
        notes.append(
            f"The features do not predict {which}: rows get no more votes for their own label than other rows do, "
            "so right ones cannot be told from wrong ones. Their probabilities are halved, and none is flagged."
        )
    across = np.zeros(n, dtype=np.bool_)
    if data.X_val is not None:
        across = find_duplicates(raw[0], X_val=raw[1], progress=progress).across
        if across.any():
            notes.append(
                f"rows with a copy or near-copy among the validation rows: {int(across.sum()):,}. Scores on those are "
                "too good; take them out of one of the two."
            )
    flagged, expected = flag(probability, float(error))
    why = {CONTRADICTING: contradicting, DISAGREE: found.against | (flagged & ~contradicting)}
    why |= {ACROSS: across, OUTLIER: found.outlier >= FAR}
    table = {} if known == "number" else _class_table(found.label, flagged, sets=known == "set")
    return Suspects(
        ids=names,
        label=found.label,
        suggested=found.suggested,
        probability=probability,
        reason=_joined(why),
        flagged=flagged,
        error=float(error),
        expected_error=expected,
        classes=table,
        notes=(*notes, *_class_notes(table)),
        parameters={
            "task": known,
            "model": "neighbors, linear model, forest" if model is None else type(model).__name__,
            "n_val": 0 if data.X_val is None else int(data.X_val.shape[0]),
            "random_state": seed,
            "preparation": data.notes,
        },
        kind=data.kind,
    )


def _task(y: Any, task: str | None, model: Any, n: int) -> tuple[str, Any]:
    """Return the kind of labels, and the labels, checked unless they are sets."""
    if task == "set" or (task is None and _are_sets(y)):
        return "set", y
    labels = _labels.check_labels(y, "y", n, "X")
    numeric = labels.dtype.kind in "iuf"
    distinct = len(set(labels.tolist()))
    if task is None:
        regressor = hasattr(model, "get_params") and not isinstance(model, type) and is_regressor(model)
        task = "number" if _labels.are_numbers(labels) or (numeric and regressor) else "class"
    if task == "number" and not numeric:
        raise InputError(f"'y' must hold numbers to predict for task='number'. Got {some(labels[:5].tolist())}.")
    if distinct < 2:
        raise InputError(
            f"'y' must have at least two different labels. All {n} rows have {quoted(labels[0])}: there is nothing to "
            "tell apart."
        )
    if task == "class" and distinct > n / 2:
        raise InputError(
            f"'y' has {distinct} different labels in {n} rows ({some(labels[:5].tolist())}), so it does not name "
            "classes. Choose the column of the class; for numbers to predict, pass task='number', which is the default "
            "for fractions and for more than 30 different numbers that are more than 5% of the rows."
        )
    return task, labels


def _are_sets(y: Any) -> bool:
    shape: tuple[int, ...] = getattr(y, "shape", ())
    if len(shape) == 2:
        return bool(shape[1] > 1)
    if y is None or isinstance(y, str) or not hasattr(y, "__iter__"):
        return False
    return isinstance(next((entry for entry in _entries(y) if entry is not None), None), _SETS)


_SETS = (list, tuple, set, frozenset, np.ndarray)


def _entries(y: Any) -> list[Any]:
    series = nw.from_native(y, allow_series=True, pass_through=True)
    if isinstance(series, nw.Series):
        return list(series.to_list())
    return list(y.to_pylist() if hasattr(y, "to_pylist") else y)


def _named_model(caller: str, model: Any, task: str) -> Any:
    """Make the model of a name."""
    if not isinstance(model, str):
        if isinstance(model, type) or (model is not None and not hasattr(model, "fit")):
            raise wrong(caller, "model", f"a model with a fit method, or one of {', '.join(MODELS)}", model)
        if model is not None and task != "number" and is_regressor(model):
            raise wrong(caller, "model", "a classifier, as 'y' holds classes", model)
        return model
    check_choice(caller, "model", model, MODELS)
    if model == "neighbors":
        return KNNRegressionShapley(N_NEIGHBORS) if task == "number" else KNNShapley(N_NEIGHBORS)
    if model == "forest":
        from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

        return RandomForestRegressor(200) if task == "number" else RandomForestClassifier(200)
    if model == "boosting":
        from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

        return HistGradientBoostingRegressor() if task == "number" else HistGradientBoostingClassifier()
    if task == "number":
        raise wrong(caller, "model", "'neighbors', 'forest' or 'boosting', as 'y' holds numbers to predict", model)
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(max_iter=1000)


def _as_given(model: Any, raw: tuple[Any, Any]) -> Any:
    """Return the unchanged rows and validation rows for a pipeline that takes frames; None for other models."""
    frames = [nw.from_native(part, pass_through=True) for part in raw if part is not None]
    inner = model.estimator if isinstance(model, KNNProxy) else model
    if not isinstance(inner, Pipeline) or not all(isinstance(frame, nw.DataFrame) for frame in frames):
        return None
    joined = nw.concat([frame.select(frames[0].columns) for frame in frames])
    return joined.to_pandas() if joined.implementation.is_pyarrow() else joined.to_native()


def _classes(data: Features, labels: Array, y_val: Any, asked: dict[str, Any], progress: bool | None) -> _Found:
    classes, codes = _labels.encode_labels(labels)
    X_val = codes_val = found = None
    if y_val is not None:
        given = _labels.check_labels(y_val, "y_val", data.X_val.shape[0], "X_val")
        found = _labels.look_up_labels(given, classes)
        X_val, codes_val = data.X_val[found >= 0], found[found >= 0]
        if asked["model_rows"] is not None:
            kept = np.concatenate([np.arange(codes.size), codes.size + np.flatnonzero(found >= 0)])
            asked = asked | {"model_rows": _safe_indexing(asked["model_rows"], kept)}
        if not X_val.shape[0]:
            raise InputError(
                f"No label of 'y_val' ({some(given[:5].tolist())}) occurs in 'y' ({some(classes.tolist())}). Write the "
                "classes the same way in both."
            )
    scores = score_labels(data.X, codes, classes.size, X_val=X_val, codes_val=codes_val, progress=progress, **asked)
    against = scores.votes.argmax(axis=1) != codes
    probability, unknown = _spared(scores.probability, scores.votes, codes)
    suggested = classes[scores.suggested]
    return _Found(probability, labels, suggested, scores.outlier, against, codes, found, classes[unknown].tolist())


def _numbers(data: Features, labels: Array, y_val: Any, asked: dict[str, Any], progress: bool | None) -> _Found:
    targets = labels.astype(np.float64)
    if np.abs(targets).max() > LARGEST:
        raise InputError(
            f"'y' must hold numbers of at most {LARGEST:g}. Got {np.abs(targets).max():g}; divide them all."
        )
    given = None
    if y_val is not None:
        given = _labels.check_labels(y_val, "y_val", data.X_val.shape[0], "X_val")
        if given.dtype.kind not in "iuf":
            raise InputError(f"'y_val' must hold numbers, as 'y' does. Got {some(given[:5].tolist())}.")
        given = given.astype(np.float64)
    scores = score_targets(data.X, targets, X_val=data.X_val, y_val=given, progress=progress, **asked)
    against = scores.probability >= 0.5
    return _Found(scores.probability, targets, scores.suggested, scores.outlier, against)


def _sets(data: Features, y: Any, y_val: Any, asked: dict[str, Any], progress: bool | None) -> _Found:
    """Score each label, and give a set the highest probability of any of its labels."""
    n = data.X.shape[0]
    names, carried = _indicators(y, "y", n, "X")
    carried_val = None
    if y_val is not None:
        names_val, found = _indicators(y_val, "y_val", data.X_val.shape[0], "X_val")
        place = {name: j for j, name in enumerate(names_val)}
        nowhere = np.zeros(found.shape[0], dtype=np.bool_)
        carried_val = np.column_stack([found[:, place[name]] if name in place else nowhere for name in names])
    varied = [j for j in range(len(names)) if 0 < carried[:, j].sum() < n]
    if not varied:
        raise InputError("'y' must have a label that some rows have and others have not. There is none.")
    wrong_label, against, outlier = np.zeros(carried.shape), np.zeros(carried.shape, dtype=np.bool_), np.zeros(n)
    unknown: list[Any] = []
    scored = score_label_sets(
        data.X,
        carried[:, varied],
        X_val=data.X_val,
        carried_val=None if carried_val is None else carried_val[:, varied],
        progress=progress,
        **asked,
    )
    for j, scores in zip(varied, scored, strict=True):
        codes = carried[:, j].astype(np.int32)
        wrong_label[:, j], outvoted = _spared(scores.probability, scores.votes, codes)
        unknown += [names[j]] * (1 in outvoted)
        against[:, j] = scores.votes.argmax(axis=1) != codes
        outlier = scores.outlier  # the same for every label
    both = carried if carried_val is None else np.vstack([carried, carried_val])
    codes = np.unique(both, axis=0, return_inverse=True)[1].ravel().astype(np.int32)
    worst = np.arange(n), wrong_label.argmax(axis=1)
    changed = wrong_label > 0.5
    changed[worst] = True
    label, suggested = (_as_sets(names, part) for part in (carried, carried ^ changed))
    codes_val = None if carried_val is None else codes[n:]
    notes = []
    unclear = float(np.mean([scores.votes.min(axis=1) for scores in scored]))
    wrong_share = float(np.mean([scores.probability for scores in scored]))
    if unclear > max(UNCLEAR, UNCLEAR_RATIO * wrong_share):
        notes.append(
            f"these features would leave {unclear:.1%} of all label entries wrong, far more than the {wrong_share:.1%} "
            "that seem to be: more of the flagged sets can be right than stated. Look at them before changing any."
        )
    return _Found(wrong_label[worst], label, suggested, outlier, against[worst], codes[:n], codes_val, unknown, notes)


def _spared(probability: Floats, votes: Floats, codes: Codes) -> tuple[Floats, npt.NDArray[np.intp]]:
    """Halve the probabilities of classes that the votes cannot predict.

    Returns
    -------
    probability : ndarray of shape (n,)
    unknown : ndarray of int
        Classes whose rows get no more votes for their class than other rows do: Wilcoxon's rank sum is less than two
        standard deviations above chance.
    """
    sizes = np.bincount(codes, minlength=votes.shape[1])
    others = codes.size - sizes
    ranks = np.array([rankdata(column)[codes == k].sum() for k, column in enumerate(votes.T)])
    excess = ranks - sizes * (codes.size + 1) / 2
    unknown = excess < 2 * np.sqrt(sizes * others * (codes.size + 1) / 12)
    return np.where(unknown[codes], probability / 2, probability), np.flatnonzero(unknown)


def _indicators(y: Any, name: str, n_rows: int, of: str) -> tuple[list[Any], Flags]:
    """Names of the labels, and a mask of the rows that have each."""
    try:
        frame = nw.from_native(y, allow_series=True, pass_through=True)
    except nw.exceptions.DuplicateError as error:
        raise InputError(f"{name!r} has a column name more than once ({error}). Rename the columns.") from None
    if isinstance(frame, nw.DataFrame) or len(getattr(y, "shape", ())) == 2:
        whole = isinstance(frame, nw.DataFrame)
        names = list(frame.columns) if whole else list(range(y.shape[1]))
        rows = np.asarray(frame.to_numpy() if whole else y.toarray() if sparse.issparse(y) else tensor_to_numpy(y))
        if rows.shape[0] != n_rows:
            raise _other_size(name, n_rows, of, rows.shape[0])
        try:
            numbers = rows.astype(np.float64)
        except (TypeError, ValueError):
            numbers = np.full(rows.shape, np.nan)
        odd = np.argwhere((numbers != 0) & (numbers != 1))
        if odd.size:
            i, j = odd[0]
            raise InputError(
                f"{name!r} must hold 0 or 1 for each row and label. Got {quoted(rows[i, j])} at row {i}, label "
                f"{quoted(names[j])}. Drop rows whose labels are not known; for one class per row, pass one column."
            )
        return names, numbers == 1
    entries = _entries(y)
    if len(entries) != n_rows:
        raise _other_size(name, n_rows, of, len(entries))
    missing = [i for i, entry in enumerate(entries) if not isinstance(entry, _SETS)]
    if missing:
        raise InputError(
            f"{name!r} must hold a list of labels for each row. Row {missing[0]} has {quoted(entries[missing[0]])}. "
            "Drop rows whose labels are not known; an empty list says that a row has none."
        )
    listed = [list(entry) for entry in entries]
    absent = [i for i, entry in enumerate(listed) if any(map(_labels.is_missing, entry))]
    if absent:
        raise InputError(
            f"{name!r} has a missing label in the list of row {absent[0]}: {quoted(listed[absent[0]])}. Take it out, "
            "or drop rows whose labels are not known."
        )
    classes, _ = _labels.encode_labels(object_array([label for entry in listed for label in entry] or [""]))
    place = {label: j for j, label in enumerate(classes.tolist())}
    carried = np.zeros((n_rows, len(place)), dtype=np.bool_)
    for i, entry in enumerate(listed):
        carried[i, [place[label] for label in entry]] = True
    return classes.tolist(), carried


def _other_size(name: str, n_rows: int, of: str, got: int) -> InputError:
    return InputError(f"{name!r} must have labels for each of the {n_rows} rows of {of!r}. Got {got}.")


def _as_sets(names: Sequence[Any], carried: Flags) -> Array:
    return object_array([tuple(names[j] for j in np.flatnonzero(row).tolist()) for row in carried])


def _with_copies(raw: tuple[Any, Any], found: _Found) -> tuple[Floats, Flags, list[str]]:
    """Raise the probability of copies with different labels; see the notes of find_suspects.

    Returns
    -------
    probability : ndarray of shape (n,)
    contradicting : ndarray of bool of shape (n,)
    notes : list of str
    """
    n = found.probability.size
    if found.codes is None:
        return found.probability, np.zeros(n, dtype=np.bool_), []
    with_val = {} if found.codes_val is None else {"X_val": raw[1], "y_val": found.codes_val}
    copies = find_duplicates(raw[0], found.codes, **with_val, radius=0, progress=False)
    rows = np.flatnonzero(copies.contradicting)
    if rows.size > COARSE * n:
        note = (
            f"{rows.size:,} of {n:,} rows have an exact copy with another label: these features do not tell the "
            "classes apart everywhere, and copies count no more than other neighbours."
        )
        return found.probability, copies.contradicting, [note]
    codes = found.codes if found.codes_val is None else np.concatenate([found.codes, found.codes_val])
    kind = np.unique(np.column_stack([copies.group, codes]), axis=0, return_inverse=True)[1].ravel()
    alike = np.bincount(kind)[kind[rows]]
    size = np.bincount(copies.group + 1)[copies.group[rows] + 1]
    probability = found.probability.copy()
    probability[rows] = np.maximum(probability[rows], np.minimum(1 - alike / size, 0.5))
    return probability, copies.contradicting, []


def _joined(why: dict[str, Flags]) -> Array:
    """Reasons of each row in one text."""
    columns = [np.where(why[reason], reason, "").tolist() for reason in REASONS]
    return object_array(["; ".join(filter(None, each)) for each in zip(*columns, strict=True)])


def _class_table(labels: Array, flagged: Flags, *, sets: bool) -> dict[str, Array]:
    if sets:
        pairs = [(label, i) for i, entry in enumerate(labels.tolist()) for label in entry]
        labels, flagged = object_array([label for label, _ in pairs]), flagged[[i for _, i in pairs]]
    classes, codes = _labels.encode_labels(labels)
    rows = np.bincount(codes, minlength=classes.size)
    found = np.bincount(codes, weights=flagged, minlength=classes.size).astype(np.int64)
    return {"label": classes, "rows": rows, "flagged": found, "share": found / rows}


def _class_notes(table: dict[str, Array]) -> list[str]:
    """Name classes that are flagged far more often than the others, and classes too small to judge."""
    if not table:
        return []
    rows, flagged, share = table["rows"], table["flagged"], table["share"]
    others = (flagged.sum() - flagged) / np.maximum(rows.sum() - rows, 1)
    condemned = (share >= np.maximum(CONDEMNED_SHARE, CONDEMNED_RATIO * others)) & (flagged >= FEW_FLAGGED)
    small_one = rows < min(SMALL_SHARE, 0.5 / rows.size) * rows.sum()
    mostly = small_one & (2 * flagged >= max(flagged.sum(), 1)) & ~condemned
    notes = [
        f"class {quoted(table['label'][j])} is flagged far more often than the others: {share[j]:.0%} of its "
        f"{rows[j]:,} rows, {others[j]:.1%} of all others. These features may not tell it apart; look at some of the "
        "rows before dropping or relabelling any."
        for j in np.flatnonzero(condemned)
    ]
    notes += [
        f"{flagged[j]:,} of {flagged.sum():,} flagged rows {'is' if flagged[j] == 1 else 'are'} of class "
        f"{quoted(table['label'][j])}, which has {rows[j] / rows.sum():.1%} of all rows. Right labels of a rare class "
        "often look wrong; look at them one by one before dropping or relabelling any."
        for j in np.flatnonzero(mostly)
    ]
    small = table["label"][rows < FEW_OF_A_CLASS].tolist()
    if small:
        notes.append(
            f"classes with fewer than {FEW_OF_A_CLASS} rows: {some(small)}. Their rows have few neighbours of their "
            "own class, so look at them one by one."
        )
    return notes
