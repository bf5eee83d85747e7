"""State of a store at one instant: a fitted model whose rows can be added and removed, and its validation points."""

import copy
from collections.abc import Iterable
from dataclasses import astuple, dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy import sparse

from shapshift._arrays import object_array
from shapshift.checks import inputs as check
from shapshift.checks import labels as _labels
from shapshift.engine.coefficients import Banzhaf, Beta
from shapshift.engine.estimate import joined_error
from shapshift.engine.rows.distances import TrainingIndex, index_again, kind_of
from shapshift.engine.search import join_lists
from shapshift.exceptions import InputError
from shapshift.io.archive import Arrays, from_json, to_json
from shapshift.io.results import lock
from shapshift.kernels.panels import pack
from shapshift.knn.base import fingerprint
from shapshift.knn.shapley import KNNShapley
from shapshift.sampling_error import Spread
from shapshift.store._lists import Candidates, find_candidates, list_length, update_candidates, value_candidates
from shapshift.valuation import Valuation, error_fields, is_boundary, without_error

# Parameters of the model that define boundary points; older files lack them.
BOUNDARY_RULE = ("boundary_neighbors", "boundary_entropy")
# Parameters of the model that values depend on.
SETTINGS = ("n_neighbors", "utility", "semivalue", "metric", "method", "tol", "ties", *BOUNDARY_RULE)
# Fields of a saved valuation that repeat what the store has.
OF_ROWS = ("ids", "labels")
# Old and new rows share one scale if its power of two is at most this far from the best one of each.
SCALE_ROOM = 200


@dataclass(frozen=True)
class Points:
    """Validation points.

    Attributes
    ----------
    rows : ndarray or csr_array of shape (b, d)
    labels : ndarray of shape (b,)
    candidates : Candidates or None
        None if every rank matters.
    """

    rows: Any
    labels: npt.NDArray[Any]
    candidates: Candidates | None = None


@dataclass(frozen=True)
class Group:
    """Validation points of one group.

    Attributes
    ----------
    parts : tuple of Points
        In the order in which they were added; merged at the next change of the training rows.
    valuation : Valuation
        Of all of them.
    weight : float
        Weight of each point.
    """

    parts: tuple[Points, ...]
    valuation: Valuation
    weight: float = 1.0

    def points(self) -> Points:
        """Return all points as one part."""
        if len(self.parts) == 1:
            return self.parts[0]
        rows: list[Any] = [part.rows for part in self.parts]
        labels = self.parts[0].labels
        for part in self.parts[1:]:
            labels = joined(labels, part.labels)
        lists = [part.candidates for part in self.parts if part.candidates is not None]
        stacked = sparse.vstack(rows, format="csr") if sparse.issparse(rows[0]) else np.concatenate(rows)
        return Points(stacked, labels, join_lists(lists) if lists else None)


@dataclass(frozen=True)
class State:
    """Complete state of a store. Every change makes a new state.

    Attributes
    ----------
    model : KNNShapley
        Fitted to the current training rows.
    owners : ndarray of shape (n_train,) or None
    next_id : int
        Id of the next row without an id. Ids of removed rows are not reused.
    groups : dict of Group
    """

    model: KNNShapley
    owners: npt.NDArray[Any] | None
    next_id: int
    groups: dict[Any, Group]

    def group(self, name: Any) -> Group:
        """Look up a group."""
        if name not in self.groups:
            raise InputError(f"There is no validation group {name!r}. There are {check.some(list(self.groups))}.")
        return self.groups[name]

    def with_points(self, named: Iterable[tuple[Any, Any, npt.NDArray[Any]]]) -> "State":
        """Value new points, given as name, features and labels, and add them to their groups."""
        groups, needed = dict(self.groups), list_length(self.model)
        for name, rows, labels in named:
            points = Points(rows, labels, find_candidates(self.model, rows, needed) if needed else None)
            valuation = _value(self.model, points, needed)
            if name in groups:
                old = groups[name]
                both = old.valuation, valuation
                pooled = replace(pool(list(both), [1.0, 1.0]), **more_points(*both))
                groups[name] = replace(old, parts=(*old.parts, points), valuation=pooled)
            else:
                groups[name] = Group((points,), valuation)
        return replace(self, groups=groups)

    def with_model(
        self, model: KNNShapley, kept: npt.NDArray[np.bool_], owners: npt.NDArray[Any] | None, next_id: int
    ) -> "State":
        """Value all points again on the kept rows, followed by the new ones."""
        numbers = np.where(kept, np.cumsum(kept) - 1, -1).astype(np.int32)
        groups, needed = {}, list_length(model)
        for name, group in self.groups.items():
            points = group.points()
            lists = points.candidates
            if needed and lists is not None:
                lists = update_candidates(model, points.rows, lists, numbers, needed)
            elif needed:
                lists = find_candidates(model, points.rows, needed)
            points = replace(points, candidates=lists if needed else None)
            groups[name] = replace(group, parts=(points,), valuation=_value(model, points, needed))
        return State(model, owners, next_id, groups)

    def valuation(self) -> Valuation:
        """Pool the groups."""
        groups = list(self.groups.values())
        if not any(group.weight > 0 for group in groups):
            raise InputError("There are no validation points with a weight above 0: add some, or reweight.")
        valuations, weights = [group.valuation for group in groups], [group.weight for group in groups]
        return replace(
            pool(valuations, weights),
            **strata(valuations, weights),
            group_means=lock(np.stack([valuation.values for valuation in valuations])),
            group_names=tuple(self.groups),
            group_sizes=tuple(valuation.n_val for valuation in valuations),
        )

    def to_archive(self) -> tuple[dict[str, Any], Arrays]:
        """Split into a header and arrays."""
        model, groups = self.model, []
        settings = {name: getattr(model, name) for name in SETTINGS}
        if isinstance(model.semivalue, Beta | Banzhaf):
            settings["semivalue"] = astuple(model.semivalue)
        index, columns = model._index, model._columns
        # Dense rows are saved with a row for each feature.
        rows = index.rows if sparse.issparse(index.rows) else index.table().T
        arrays: Arrays = {"labels": model.classes_[model.codes_], "ids": model.ids_, **_matrix("rows", rows)}
        if self.owners is not None:
            arrays["owners"] = self.owners
        for g, (name, group) in enumerate(self.groups.items()):
            points = group.points()
            header, values = group.valuation._to_archive()
            groups.append({"name": to_json(name, "a group name"), "weight": group.weight, "valuation": header})
            arrays |= {f"values{g}_{part}": array for part, array in values.items() if part not in OF_ROWS}
            arrays |= {f"labels{g}": points.labels, **_matrix(f"points{g}", points.rows)}
            if points.candidates is not None:
                arrays |= {f"list_{part}{g}": getattr(points.candidates, part) for part in Candidates._fields}
        return {
            "settings": {name: to_json(given, f"the parameter {name!r}") for name, given in settings.items()},
            "columns": None if columns is None else [to_json(name, "a column name") for name in columns],
            "kind": model._kind,
            "id_names": [to_json(name, "an index name") for name in model._id_names],
            "exponent": index.exponent,
            "n_features": model.n_features_in_,
            "fingerprint": model.fingerprint_,
            "next_id": self.next_id,
            "groups": groups,
        }, arrays

    @classmethod
    def from_archive(cls, header: dict[str, Any], arrays: Arrays) -> Self:
        """Rebuild the state from an archive, or raise with what does not fit."""
        settings = {name: from_json(given) for name, given in header["settings"].items()}
        if isinstance(settings["semivalue"], tuple):
            shape = settings["semivalue"]
            settings["semivalue"] = Banzhaf(*shape) if len(shape) == 1 else Beta(*shape)
        model, columns = KNNShapley(**settings), header["columns"]
        model._check_parameters()
        ids, owners, width = arrays["ids"], arrays.get("owners"), int(header["n_features"])
        rows = _matrix_from("rows", arrays, (ids.size, width), laid_out=True)
        if any(part.shape != (ids.size,) for part in (ids, arrays["labels"], ids if owners is None else owners)):
            raise InputError("rows, ids and labels differ in number")
        model._index = kind_of(rows)(model.metric, ids.size, rows, int(header["exponent"]))
        model._quiet_labels, model.n_features_in_, model._kind = True, width, header["kind"]
        model._columns = None if columns is None else [from_json(name) for name in columns]
        model._id_names = tuple(from_json(name) for name in header["id_names"])
        model = fit_again(model, model._index, arrays["labels"], ids)
        if model.fingerprint_ != header["fingerprint"]:
            raise InputError("the training rows differ from the saved ones")
        groups = {
            from_json(saved["name"]): _group_from(g, saved, arrays, model) for g, saved in enumerate(header["groups"])
        }
        return cls(model, owners, int(header["next_id"]), groups)


def pool(valuations: list[Valuation], weights: list[float]) -> Valuation:
    """Return the valuation on all points of several valuations, each point counted ``weight`` times.

    They must have the same training rows and parameters. A single one of weight 1 is returned bit for bit. Sampling
    errors are left out, see :func:`more_points` and :func:`strata`.
    """
    first = without_error(valuations[0])
    levels = np.unique(np.concatenate([valuation.level_entropy for valuation in valuations]))
    places = [np.searchsorted(levels, valuation.level_entropy) for valuation in valuations]
    counts = np.zeros(levels.size)
    for valuation, weight, at in zip(valuations, weights, places, strict=True):
        counts[at] += weight * valuation.level_counts
    values, level_values = np.zeros(first.n_train), np.zeros((levels.size, first.n_train))
    bound = None if first.error_bound is None else np.zeros(first.n_train)
    for valuation, weight, at in zip(valuations, weights, places, strict=True):
        if weight > 0:
            share = weight * valuation.n_val / counts.sum()
            values += share * valuation.values
            level_values[at] += (weight * valuation.level_counts / counts[at])[:, None] * valuation.level_values
            if bound is not None and valuation.error_bound is not None:
                bound += share * valuation.error_bound
    present, weighted = counts > 0, set(weights) != {1.0}
    level_counts: Any = counts[present] if weighted else counts[present].astype(np.int64)
    entropy = np.concatenate([valuation.entropy for valuation in valuations])
    parameters = {**first.parameters, "n_val": entropy.size, **({"group_weights": weights} if weighted else {})}
    return replace(
        first,
        values=lock(values),
        entropy=lock(entropy),
        boundary=lock(is_boundary(entropy, first.boundary_entropy)),
        level_entropy=levels[present],
        level_values=lock(level_values[present]),
        level_counts=level_counts,
        error_bound=bound,
        parameters=parameters,
    )


def more_points(one: Valuation, other: Valuation) -> dict[str, Any]:
    """Return the error fields for the points of two valuations together, which are one sample (rule of Chan)."""
    if any(part.n_val > 1 and part.variance is None for part in (one, other)):
        return {}  # from a file of release 0.1.0
    a, b, n = one.n_val, other.n_val, one.n_train
    m = a + b
    between = one.values - other.values
    of_pairs = (float(between.sum()) ** 2 - float((between**2).sum())) / max(n * (n - 1), 1)
    variance, covariance = a * b / m * between**2, a * b / m * of_pairs
    # Sums of fourth powers, without the terms of the third powers.
    fourth = float((between**4).sum()) * a * b * (a**2 - a * b + b**2) / m**3
    known = [part for part in (one, other) if part.variance is not None]
    for part in known:
        own = np.asarray(part.variance)
        squares = (part.n_val - 1) * own
        fourth += 6 * ((m - part.n_val) / m) ** 2 * float((between**2 * squares).sum())
        fourth += part.n_val * part.sampling["kurtosis"] * float((own**2).sum())
        variance += squares
        covariance += (part.n_val - 1) * part.sampling["covariance"]
    variance /= m - 1
    total = float((variance**2).sum())
    kurtosis = fourth / m / total if total > 0 else float(m)
    # Each part predicts the correlations on all points, by the Spearman-Brown formula.
    foreseen = [
        _mean(
            [
                (part.n_val, m * max(r, 0.0) / (part.n_val + (m - part.n_val) * max(r, 0.0)))
                for part in known
                if (r := part.sampling[name]) is not None
            ]
        )
        for name in ("pearson", "spearman")
    ]
    return error_fields(Spread(variance, m, kurtosis, covariance / (m - 1), foreseen[0], foreseen[1]))


def _mean(weighted: list[tuple[int, float]]) -> float | None:
    """Weighted mean; None if there are no numbers."""
    return sum(weight * each for weight, each in weighted) / sum(w for w, _ in weighted) if weighted else None


def strata(valuations: list[Valuation], weights: list[float]) -> dict[str, Any]:
    """Return the error fields of pooled groups with given, not sampled, shares."""
    n = valuations[0].n_train
    nothing = np.full(n, np.inf)
    found: dict[str, Any] = {
        "group_errors": lock(np.stack([nothing if (e := each.standard_error) is None else e for each in valuations])),
        "group_freedom": np.array([1.0 if (f := each.degrees_of_freedom) is None else f[0] for each in valuations]),
    }
    counted = [(each, weight * each.n_val) for each, weight in zip(valuations, weights, strict=True) if weight > 0]
    if any(each.standard_error is None for each, _ in counted):
        return {}
    if len(counted) == 1:
        names = ("variance", "standard_error", "degrees_of_freedom", "sampling")
        return found | {name: getattr(counted[0][0], name) for name in names}
    total = sum(weight for _, weight in counted)
    m, kurtosis = sum(each.n_val for each, _ in counted), []
    variance, covariance, errors, freedom = np.zeros(n), 0.0, [], []
    for each, weight in counted:
        share = (weight / total) ** 2
        variance += share * m / each.n_val * np.asarray(each.variance)
        covariance += share * m / each.n_val * each.sampling["covariance"]
        errors.append(share * np.asarray(each.standard_error) ** 2)
        freedom.append(np.asarray(each.degrees_of_freedom))
        kurtosis.append((each.n_val, each.sampling["kurtosis"]))
    error, joint = joined_error(np.array(errors), np.array(freedom))
    return found | {
        "variance": lock(variance),
        "standard_error": lock(error),
        "degrees_of_freedom": lock(joint),
        "sampling": Spread(variance, m, _mean(kurtosis) or float(m), covariance, None, None).facts(),
    }


def _value(model: KNNShapley, points: Points, needed: int) -> Valuation:
    """Value from the candidate lists if there are any, otherwise as without a store."""
    if points.candidates is not None:
        return value_candidates(model, points.rows, points.labels, points.candidates, needed)
    return model.value(check.Table(points.rows, model._columns, None, model._kind), points.labels)


def _group_from(g: int, saved: dict[str, Any], arrays: Arrays, model: KNNShapley) -> Group:
    """Return a saved group."""
    labels, n, needed = arrays[f"labels{g}"], model.codes_.size, list_length(model)
    rows = _matrix_from(f"points{g}", arrays, (labels.size, model.n_features_in_))
    lists = None
    if needed:
        lists = Candidates(*(arrays[f"list_{part}{g}"] for part in Candidates._fields))
        lists.check(labels.size, n, model._depth)
    prefix = f"values{g}_"
    parts = {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
    parts |= {"ids": model.ids_, "labels": model.classes_[model.codes_]}
    valuation = Valuation._from_archive(saved["valuation"], parts)
    if valuation.entropy.shape != labels.shape or valuation.fingerprint != model.fingerprint_:
        raise InputError("values and points do not match")
    return Group((Points(rows, labels, lists),), valuation, float(saved["weight"]))


def _matrix(name: str, rows: Any) -> Arrays:
    if not sparse.issparse(rows):
        return {name: np.ascontiguousarray(rows)}
    return {f"{name}_{part}": getattr(rows, part) for part in ("data", "indices", "indptr")}


def _matrix_from(name: str, arrays: Arrays, shape: tuple[int, int], *, laid_out: bool = False) -> Any:
    """Return saved features of a given shape; dense training rows were saved with a row for each feature."""
    if name in arrays:
        if arrays[name].shape != (shape[::-1] if laid_out else shape):
            raise InputError("features have another shape")
        return pack(arrays[name].T) if laid_out else arrays[name]
    matrix = sparse.csr_array(tuple(arrays[f"{name}_{part}"] for part in ("data", "indices", "indptr")), shape=shape)
    matrix.check_format(full_check=True)
    return matrix


def own_model(model: Any) -> KNNShapley:
    """Return a copy of a fitted model for a store, or raise if a store cannot use it."""
    if not isinstance(model, KNNShapley) or not hasattr(model, "fingerprint_"):
        raise InputError(
            "The 'model' parameter of ValuationStore must be a fitted KNNShapley. Got "
            f"{type(model).__name__}; call its fit method first."
        )
    reasons = {
        "must have method='exact' or 'truncated'": model.method not in ("exact", "truncated"),
        "must have search='exact': an index would be rebuilt after each change": model.search != "exact",
        model._index.unserved.get("store", ""): "store" in model._index.unserved,
    }
    for reason, wrong in reasons.items():
        if wrong:
            raise InputError(f"The 'model' parameter of ValuationStore {reason}. Fit another model for the store.")
    own = copy.copy(model)
    own._index = model._index.in_float64()  # new rows may need it
    own._quiet_labels = True  # rows with this validation label may be added
    return own


def fit_again(model: KNNShapley, index: TrainingIndex, labels: npt.NDArray[Any], ids: npt.NDArray[Any]) -> KNNShapley:
    """Return a model like this one, fitted to other rows on the same scale."""
    fitted = copy.copy(model)
    index = replace(index, constant=False).with_ends()
    _check_scale(index)
    classes, codes = _labels.encode_labels(labels)
    fitted._index, fitted.classes_, fitted.codes_, fitted.ids_ = index, classes, codes, lock(ids)
    fitted._fitted(None)
    fitted.fingerprint_ = fingerprint(index_again(index), classes, codes)
    return fitted


def keep_rows(model: KNNShapley, kept: npt.NDArray[np.bool_]) -> KNNShapley:
    """Return the model of some of the rows."""
    if not kept.any():
        raise InputError("This would remove all training rows. Delete the store instead.")
    rows = model._index.take(np.flatnonzero(kept))
    return fit_again(model, rows, model.classes_[model.codes_[kept]], model.ids_[kept])


def append_rows(model: KNNShapley, X: Any, y: Any, ids: Any, next_id: int) -> KNNShapley:
    """Return the model of all rows and some new ones, after checking these."""
    table = model._like_training(X, "X")
    n = table.rows.shape[0]
    labels = _labels.check_labels(y, "y", n, "X")
    if ids is None and table.index is None:
        if model.ids_.dtype.kind not in "iu":
            raise InputError("The 'ids' parameter must name the new rows, because the existing ids are not numbers.")
        ids = np.arange(n) + next_id
    ids = _labels.check_ids(ids, table.index, n)
    twice = ids[are_in(ids, model.ids_)].tolist()
    if twice or len(set(ids.tolist())) < n:
        raise InputError(f"The 'ids' parameter must hold new, distinct ids. Already used: {check.some(twice)}.")
    rows = model._index.joined(table.rows)  # in float64, like the index of a store
    return fit_again(model, rows, joined(model.classes_[model.codes_], labels), joined(model.ids_, ids))


def find_ids(ids: Any, known: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Mark the known ids that are given, and refuse unknown ones."""
    if not isinstance(ids, Iterable):
        raise InputError(f"'ids' must be a list, array or column of ids. Got {type(ids).__name__}.")
    ids = list(ids) if not hasattr(ids, "__len__") else ids
    wanted = _labels.check_labels(ids, "ids", len(ids), "X", "id")
    unknown = wanted[~are_in(wanted, known)].tolist()
    if unknown:
        raise InputError(f"The 'ids' parameter must hold ids of training rows. Unknown: {check.some(unknown)}.")
    return are_in(known, wanted)


def are_in(some: npt.NDArray[Any], others: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Which of some ids are among others."""
    if some.dtype.kind in "iu" and others.dtype.kind in "iu":
        return np.isin(some, others)
    there = set(others.tolist())
    return np.fromiter((name in there for name in some.tolist()), bool, some.size)


def after_ids(ids: npt.NDArray[Any]) -> int:
    """Return the number after the largest id; 0 if ids are not numbers."""
    return int(ids.max()) + 1 if ids.dtype.kind in "iu" and ids.size else 0


def joined(old: npt.NDArray[Any], new: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Concatenate two arrays, as objects if their kinds differ."""
    if old.dtype.kind == new.dtype.kind:
        return np.concatenate([old, new])
    return object_array([*old.tolist(), *new.tolist()])


def _check_scale(index: TrainingIndex) -> None:
    """Refuse rows that do not fit on one scale."""
    if index.metric == "cosine":
        return
    largest = float(abs(index.rows).max() if index.ends is None else (index.ends[1] - index.ends[0]).max())
    if not largest <= 2.0**SCALE_ROOM:
        raise InputError(
            f"'X' has values about {largest:.0e} times the range of the existing rows. Check their units. If "
            "they are right, fit a model on all rows and make a new store."
        )
