"""Explanations: the validation points behind the value of a training row, and the labels of its neighbours."""

import copy
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from shapshift._arrays import object_array
from shapshift.checks import inputs as check
from shapshift.checks.labels import describe_weights, pandas_index
from shapshift.checks.names import some
from shapshift.engine.parallel import stream
from shapshift.engine.rows.distances import NOT_STORED, tile_filler, true_distances, true_index, without_rows
from shapshift.engine.runner import BLOCK_POINTS
from shapshift.engine.search.exact import exact_search
from shapshift.exceptions import InputError
from shapshift.io.results import Result, to_table
from shapshift.valuation import Valuation

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
Entries = npt.NDArray[Any]

#: Number of values on single points kept at a time; more rows take further passes over the validation points.
MOST_KEPT = 2**24
#: Bytes per kept value: the value, its rank, the row of that rank, its distance, and copies of these.
KEPT_BYTES = 64


@dataclass(frozen=True, eq=False, repr=False)
class Explanation(Result):
    """The validation points and neighbours that explain the values of some training rows.

    A row's value is the mean of its values on the single validation points. Weighted points multiply these by their
    weight, 1 on average.

    Attributes
    ----------
    ids, labels : ndarray of shape (n_rows,)
        Of the rows; targets for regression. A row without a label has None.
    positions : ndarray of shape (n_rows,)
        Their positions in the training set.
    values : ndarray of shape (n_rows,)
        Their values.
    positive, negative, neutral : ndarray of shape (n_rows,)
        Numbers of validation points on which the row's value is above, below and exactly 0.
    gain, loss : ndarray of shape (n_rows,)
        Contributions of the points with values above and below 0; together they are the row's value.
    near : ndarray of shape (n_rows,)
        Number of validation points that have the row, or a copy of it, among their K nearest training rows or within
        the radius.
    points : mapping of str to ndarray
        The validation points with the highest and with the lowest values of each row, from highest to lowest: ``row``
        (its position in ``ids``), ``position`` and ``id`` of the point, its ``label``, the row's ``value`` on it, the
        ``distance`` between both, and the ``rank`` of the row by this distance (1 is the nearest row, ties get the mean
        of their ranks). A distance that a neighbour graph does not store is infinite, and its rank NaN.
    neighbors : mapping of str to ndarray
        The nearest other training rows of each row: ``row``, ``position``, ``id``, ``label``, ``distance``. Empty for
        precomputed distances, which do not include those between training rows.
    sentences : tuple of str
        One for each row.
    n_val : int
        Number of validation points.
    parameters : mapping
        Of the valuation.
    fingerprint : str
        Of the training rows.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from shapshift import KNNShapley
    >>> X, y = load_iris(return_X_y=True)
    >>> why = KNNShapley().fit(X[::2], y[::2]).explain(X[1::2], y[1::2], [0])
    >>> why.rows_frame("pyarrow").num_rows
    1
    """

    archive_kind: ClassVar[str] = "shapshift.Explanation"
    archive_shapes: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("ids", "labels", "positions", "values", "positive", "negative", "neutral"), "n_rows"),
        **dict.fromkeys(("gain", "loss", "near", "sentences"), "n_rows"),
        "points": "n_points",
        "neighbors": "n_neighbors",
    }

    ids: Entries
    labels: Entries
    positions: Indices
    values: Floats
    positive: Indices
    negative: Indices
    neutral: Indices
    gain: Floats
    loss: Floats
    near: Indices
    points: Mapping[str, Entries]
    sentences: tuple[Any, ...]
    n_val: int
    parameters: Mapping[str, Any]
    fingerprint: str
    neighbors: Mapping[str, Entries] = field(default_factory=dict)
    kind: str = "numpy"
    id_names: tuple[Any, ...] = ("id",)

    def is_of(self, valuation: Valuation) -> bool:
        """Whether this explains the values of ``valuation``, up to rounding."""
        if self.fingerprint != valuation.fingerprint or self.n_val != valuation.n_val:
            return False
        return np.allclose(self.values, valuation.values[self.positions], rtol=1e-6, atol=1e-9)

    def to_frame(self, kind: str | None = None) -> Any:
        """Tabulate the listed points: one line for each row and point.

        Parameters
        ----------
        kind : {"pandas", "polars", "pyarrow"}, optional
            Defaults to the kind that was fitted; after NumPy input, pandas if it is installed, else pyarrow.

        Returns
        -------
        table
            The row's id (the index in pandas), ``label`` and ``value``; the id of the ``point``, ``point_label``,
            ``point_value``, ``distance`` and ``rank``.
        """
        of, found = self.points["row"], self.points
        columns = {"point": found["id"], "point_label": found["label"], "point_value": found["value"]}
        columns |= {"distance": found["distance"], "rank": found["rank"]}
        return self._table({"label": self.labels[of], "value": self.values[of], **columns}, of, kind)

    def neighbors_frame(self, kind: str | None = None) -> Any:
        """Tabulate the nearest training rows: one line for each row and neighbour; ``kind`` as in :meth:`to_frame`."""
        if not self.neighbors:
            raise InputError(
                "Nearest training rows are not known with metric='precomputed', which gives distances from validation "
                "points only. Fit the features to get them."
            )
        of, found = self.neighbors["row"], self.neighbors
        columns = {"neighbor": found["id"], "neighbor_label": found["label"], "distance": found["distance"]}
        return self._table({"label": self.labels[of], **columns}, of, kind)

    def rows_frame(self, kind: str | None = None) -> Any:
        """Tabulate the rows: one line for each; ``kind`` as in :meth:`to_frame`."""
        names = ("value", "positive", "negative", "neutral", "gain", "loss", "near")
        numbers = {name: getattr(self, "values" if name == "value" else name) for name in names}
        columns = {"label": self.labels, **numbers, "sentence": object_array(list(self.sentences))}
        return self._table(columns, np.arange(self.ids.size), kind)

    def _table(self, columns: dict[str, Entries], of: Indices, kind: str | None) -> Any:
        return to_table(columns, self.ids[of], kind or self.kind, self.id_names)

    def summary(self) -> str:
        """Return two lines for each row: why it has its value, and the numbers behind it."""
        lines = []
        for i, sentence in enumerate(self.sentences):
            sides = f"{self.gain[i]:+.3g} from {self.positive[i]:,} and {self.loss[i]:+.3g} from {self.negative[i]:,}"
            lines += [sentence, f"  value {self.values[i]:.3g}: {sides} of {self.n_val:,} validation points"]
        return "\n".join(lines)

    def __repr__(self) -> str:
        up, down = np.count_nonzero(self.values > 0), np.count_nonzero(self.values < 0)
        return f"Explanation(n_rows={self.ids.size}, n_val={self.n_val}, positive={up}, negative={down})"


def explain_rows(
    model: Any,
    X_val: Any,
    y_val: Any,
    rows: Indices,
    *,
    point_weight: Any = None,
    n_points: int = 5,
    n_neighbors: int = 5,
) -> Explanation:
    """Explain the values of the training rows at some positions, each position once.

    Other parameters are those of :meth:`shapshift.KNNShapley.explain`.
    """
    caller = f"{type(model).__name__}.explain"
    check.check_count(caller, "n_points", n_points)
    check.check_count(caller, "n_neighbors", n_neighbors, at_least=0)
    model = on_cpu(model)
    given = model._prepare(X_val, y_val, point_weight=point_weight, graph_ok=True)
    model._warn_of_training_rows(given)
    n_val, budget = given.task.n_val, check.parse_memory(model.max_memory)
    most = MOST_KEPT if budget is None else min(MOST_KEPT, budget // (4 * KEPT_BYTES))
    index, own = pandas_index(X_val, y_val)[0], _nearest(model, rows, n_neighbors)
    point_ids = np.arange(n_val) if index is None else index
    pieces = np.array_split(rows, -(-rows.size * n_val // max(most, n_val)))
    parts, done = [], 0
    for piece in pieces:
        parts.append(_explain(model, given, piece, n_points))
        parts[-1].points["row"] += done
        done += piece.size
    model._check_unchanged(given.points)
    together = {name: np.concatenate([part.numbers[name] for part in parts]) for name in parts[0].numbers}
    points = {name: np.concatenate([part.points[name] for part in parts]) for name in parts[0].points}
    near = [labels for part in parts for labels in part.near]
    labels = model._row_labels()
    if own:
        own |= {"id": model.ids_[own["position"]], "label": labels[own["position"]]}
    sentences = tuple(
        model._sentence(int(row), value, near[i], own["label"][own["row"] == i] if own else None)
        for i, (row, value) in enumerate(zip(rows, together["values"], strict=True))
    )
    return Explanation(
        ids=model.ids_[rows],
        labels=labels[rows],
        positions=rows,
        **together,
        near=np.array([labels.size for labels in near]),
        points=points | {"id": point_ids[points["position"]], "label": given.labels[points["position"]]},
        neighbors=own,
        sentences=sentences,
        n_val=n_val,
        parameters={**parts[0].parameters, **describe_weights(point_weight, given.task.weights)},
        fingerprint=model.fingerprint_,
        kind=model._kind,
        id_names=model._id_names,
    )


def find_rows(caller: str, known: Entries, ids: Any) -> Indices:
    """Return the positions of the rows with these ids, in the order of the ids; several rows may share an id.

    Parameters
    ----------
    caller : str
    known : ndarray of shape (n_train,)
        Ids of the training rows.
    ids : sequence, or one id
    """
    asked = ids.tolist() if hasattr(ids, "tolist") else ids
    of_tuples = known.dtype.kind == "O" and isinstance(known[0], tuple)
    if isinstance(asked, str | bytes) or not hasattr(asked, "__iter__") or (of_tuples and isinstance(asked, tuple)):
        asked = [asked]
    asked = [entry.item() if isinstance(entry, np.generic) else entry for entry in asked]
    if any(isinstance(entry, bool) for entry in asked) and not any(isinstance(entry, bool) for entry in known.tolist()):
        raise InputError(
            f"The 'ids' parameter of {caller} must hold ids of training rows, not a mask. Pass the ids that it selects."
        )
    try:
        if known.dtype.kind in "mM":
            asked = np.array(asked, dtype=known.dtype).tolist()
        places: dict[Any, list[int]] = {entry: [] for entry in asked}
    except (TypeError, ValueError):
        raise InputError(
            f"The 'ids' parameter of {caller} must hold ids of training rows, such as {some(known[:3].tolist())}. "
            f"Got {some(asked)}."
        ) from None
    if not places:
        raise InputError(f"The 'ids' parameter of {caller} must name at least one training row. Got none.")
    for position, entry in enumerate(known.tolist()):
        if entry in places:
            places[entry].append(position)
    unknown = [entry for entry, found in places.items() if not found]
    if unknown:
        raise InputError(
            f"The 'ids' parameter of {caller} must hold ids of training rows, such as {some(known[:3].tolist())}. Got "
            f"{some(unknown)}, which no row has."
        )
    return np.concatenate([np.array(found, dtype=np.int64) for found in places.values()])


def on_cpu(model: Any) -> Any:
    """Return the model, or a copy that computes on the CPU."""
    if getattr(model, "device", "cpu") == "cpu":
        return model
    model = copy.copy(model)
    model.device = "cpu"
    return model


@dataclass(frozen=True)
class _Part:
    """Numbers and listed points of some of the rows, and the labels of the points near each row."""

    numbers: dict[str, Entries]
    points: dict[str, Entries]
    near: list[Entries]
    parameters: Mapping[str, Any]


def _explain(model: Any, given: Any, rows: Indices, n_points: int) -> _Part:
    """Value all rows, and keep the values of some of them on each single point."""
    # The engine keeps each row once, in ascending order.
    kept, place = np.unique(rows, return_inverse=True)
    n_val = given.task.n_val
    task = replace(given.task, sampled=kept, errors=False, reference=np.tile(kept, (n_val, 1)))
    sums = model._run(given._replace(task=task), model._runner())
    found, about = sums.points, model._about(task, sums) | sums.notes
    valuation = model._valuation(task, sums, about)
    tile = _distances(model, given.points, kept, n_val)
    stored = tile < NOT_STORED  # a neighbour graph has no distance for the others
    distances, ranks = np.where(stored, true_distances(model._index, tile), np.inf), found.reference_ranks
    # Copies of a row share the mean of their ranks: the row is near if its first copy is.
    inside = model._is_near(ranks - (_copies(model._index)[kept] - 1) / 2, tile) & stored
    ranks = np.where(stored, ranks, np.nan)
    worth = found.values if task.weights is None else found.values * task.weights[:, None]
    by_row = [np.ascontiguousarray(array.T) for array in (worth, ranks, distances, inside)]
    columns: dict[str, list[Any]] = {name: [] for name in ("row", "position", "value", "distance", "rank")}
    near = []
    values = by_row[0]
    for i, at in enumerate(place):
        value, rank, distance, is_near = (array[at] for array in by_row)
        listed = np.concatenate([_strongest(value, distance, n_points), _strongest(-value, distance, n_points)[::-1]])
        entries = (np.full(listed.size, i), listed, value[listed], distance[listed], rank[listed] + 1)
        for column, entry in zip(columns.values(), entries, strict=True):
            column.append(entry)
        near.append(given.labels[is_near])
    up, down = values > 0, values < 0
    counts = {"positive": up.sum(axis=1), "negative": down.sum(axis=1), "neutral": (values == 0).sum(axis=1)}
    sums_of = {"gain": np.where(up, values, 0.0), "loss": np.where(down, values, 0.0)}
    numbers = {"values": valuation.values[rows]} | {name: count[place] for name, count in counts.items()}
    numbers |= {name: part.sum(axis=1)[place] / n_val for name, part in sums_of.items()}
    return _Part(numbers, {name: np.concatenate(c) for name, c in columns.items()}, near, valuation.parameters)


def _copies(index: Any) -> Indices:
    """Count the rows that are equal to each row, itself included; 1 where rows are not in memory."""
    keys = None if index.in_file or index.metric == "precomputed" else index.content_hash()
    if keys is None:
        return np.ones(index.n_rows, dtype=np.int64)
    _, which, counts = np.unique(keys, return_inverse=True, return_counts=True)
    found: Indices = counts[which]
    return found


def _strongest(values: Floats, distances: Floats, most: int) -> Indices:
    """Return the points with the highest values above 0, the highest first, equal ones by distance."""
    n = min(most, int(np.count_nonzero(values > 0)))
    if n == 0:
        return np.empty(0, dtype=np.int64)
    cut = np.partition(values, values.size - n)[values.size - n]
    found = np.flatnonzero(values >= cut)
    return found[np.lexsort((found, distances[found], -values[found]))][:n]


def _distances(model: Any, points: Any, rows: Indices, n_val: int) -> Floats:
    """Distances of all points to some rows, as a tile."""
    fill, tile = true_index(model._index).sample_filler(rows, points), np.empty((n_val, rows.size))
    for lo in range(0, n_val, BLOCK_POINTS):
        here = slice(lo, min(lo + BLOCK_POINTS, n_val))
        fill(here, slice(0, rows.size), tile[here])
    return tile


def _nearest(model: Any, rows: Indices, wanted: int) -> dict[str, Entries]:
    """Find the nearest training rows of some rows; empty where distances between training rows are unknown."""
    index = model._index
    n, wanted = index.n_rows, min(wanted, index.n_rows - 1)
    if index.metric == "precomputed":
        return {}
    found, distances = np.empty((rows.size, wanted), dtype=np.int64), np.empty((rows.size, wanted))
    fill = without_rows(tile_filler(true_index(index), index.take(rows).unscaled()), rows)
    search = exact_search(fill, n, wanted, whole_ties=False)

    def find(start: int) -> None:
        here = slice(start, min(start + BLOCK_POINTS, rows.size))
        lists = search.find(here.start, here.stop, np.empty((here.stop - start, 0), dtype=np.int64))
        found[here] = lists.rows.reshape(-1, wanted)
        distances[here] = true_distances(index, lists.distances).reshape(-1, wanted)

    if wanted:
        starts = range(0, rows.size, BLOCK_POINTS)
        deque(stream(find, starts, model._runner().workers(len(starts))), maxlen=0)
    of = np.repeat(np.arange(rows.size), wanted)
    return {"row": of, "position": found.ravel(), "distance": distances.ravel()}


def row_name(entry: Any) -> str:
    """Name a row by its id; a date without a time of day is shown as a date."""
    return f"Row {np.datetime_as_string(entry, unit='auto') if isinstance(entry, np.datetime64) else entry}"


@dataclass(frozen=True)
class Nearness:
    """Words for "a validation point is near this row", for one point and for several."""

    one: str
    several: str


def class_sentence(row: str, label: Any, value: float, near: Entries, own: Entries | None, words: Nearness) -> str:
    """Explain in a sentence the value of a row that votes for a label.

    Parameters
    ----------
    row : str
        Name of the row.
    label : object
        Its label.
    value : float
    near : ndarray
        Labels of the validation points near it.
    own : ndarray or None
        Labels of its nearest training rows; None where they are not known.
    words : Nearness

    Examples
    --------
    >>> near = Nearness("has it among its 5 nearest training rows", "have it among their 5 nearest training rows")
    >>> class_sentence("Row 7 (label 0)", 0, -0.1, np.array([1, 1, 0]), np.array([1, 1, 1, 0, 1]), near)
    'Row 7 (label 0) lowers the result: 2 of the 3 validation points that have it among their 5 nearest training rows \
have label 1, and so do 4 of its 5 nearest training rows.'
    """
    lead, n = f"{row} {_effect(value)}", near.size
    same = np.array([entry == label for entry in near.tolist()], dtype=np.bool_)
    own_same = np.array([entry == label for entry in (() if own is None else own.tolist())], dtype=np.bool_)
    if n == 0:
        rest = f"; {_have(int(own_same.sum()), own_same.size)} the same label" if own_same.size else ""
        return f"{lead}{' from afar' if value else ''}: no validation point {words.one}{rest}."
    agrees = bool(2 * same.sum() > n or (2 * same.sum() == n and value > 0))
    k = int(same.sum() if agrees else n - same.sum())
    what, holds = "the same label", own_same
    if not agrees:
        others = object_array([entry for entry, is_same in zip(near.tolist(), same, strict=True) if not is_same])
        one = all(entry == others[0] for entry in others)
        what = f"label {others[0]}" if one else "another label"
        own_is = ~own_same if not one else [entry == others[0] for entry in (() if own is None else own.tolist())]
        holds = np.array(own_is, dtype=np.bool_)
    link = ":" if value == 0 or agrees == (value > 0) else " although"
    if n == 1:
        said = f"the only validation point that {words.one} has {what}"
    else:
        number = ("both" if n == 2 else f"all {n:,}") if k == n else f"{k:,} of the {n:,}"
        number = f"half of the {n:,}" if 2 * k == n > 2 else number
        said = f"{number} validation points that {words.several} {'have' if k > 1 else 'has'} {what}"
    return f"{lead}{link} {said}{_do_so(int(holds.sum()), holds.size, '; ' if link != ':' else ', but ')}."


def number_sentence(row: str, value: float, near: Floats, own: Floats | None, words: Nearness) -> str:
    """Explain in a sentence the value of a row that predicts a number; parameters as in :func:`class_sentence`.

    Examples
    --------
    >>> near = Nearness("has it among its 2 nearest training rows", "have it among their 2 nearest training rows")
    >>> number_sentence("Row 7 (target 3)", -0.1, np.array([8.0, 8.5]), np.array([9.0, 9.0]), near)
    'Row 7 (target 3) lowers the result: the 2 validation points that have it among their 2 nearest training rows \
have a mean target of 8.25, and its 2 nearest training rows one of 9.'
    """
    lead, n, n_own = f"{row} {_effect(value)}", near.size, 0 if own is None else own.size
    mine = "" if own is None or not n_own else f"{own.mean():.4g}"
    whose = "its nearest training row" if n_own == 1 else f"its {n_own:,} nearest training rows"
    if n == 0:
        has = "has target" if n_own == 1 else "have a mean target of"
        rest = f"; {whose} {has} {mine}" if mine else ""
        return f"{lead}{' from afar' if value else ''}: no validation point {words.one}{rest}."
    if n == 1:
        said = f"the only validation point that {words.one} has target {near[0]:.4g}"
    else:
        said = f"the {n:,} validation points that {words.several} have a mean target of {near.mean():.4g}"
    has = ("has target" if n_own == 1 else "have a mean target of") if n == 1 else "one of"
    return f"{lead}: {said}{f', and {whose} {has} {mine}' if mine else ''}."


def _effect(value: float) -> str:
    return f"{'raises' if value > 0 else 'lowers' if value < 0 else 'neither raises nor lowers'} the result"


def _some_of(k: int, n: int) -> str:
    """Name k of a row's n nearest training rows."""
    if k == n:
        return f"{'both' if n == 2 else f'all {n:,}'} of its nearest training rows"
    return f"{f'{k:,}' if k else 'none'} of its {n:,} nearest training rows"


def _have(k: int, n: int) -> str:
    """Say how many of a row's nearest training rows have something."""
    if n == 1:
        return f"its nearest training row {'has' if k else 'does not have'}"
    return f"{_some_of(k, n)} {'have' if k > 1 else 'has'}"


def _do_so(k: int, n: int, contrast: str) -> str:
    """Say whether a row's nearest training rows do the same; ``contrast`` introduces the case that few of them do."""
    if n == 0:
        return ""
    if n == 1:
        return ", and so does its nearest training row" if k else f"{contrast}its nearest training row does not"
    verb = "do" if k > 1 else "does"
    if 2 * k >= n:
        return f", and so {verb} {_some_of(k, n)}"
    return f"{contrast}{'only ' if k else ''}{_some_of(k, n)} {verb}"
