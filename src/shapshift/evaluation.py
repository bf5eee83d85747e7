"""evaluate_valuation: measures of values in use, the same for every method."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse
from sklearn.base import clone
from sklearn.metrics import roc_auc_score

from shapshift._progress import progress_bar
from shapshift.agreement import shared_seats
from shapshift.checks import inputs as check
from shapshift.checks import labels as _labels
from shapshift.checks.labels import check_owners
from shapshift.exceptions import InputError
from shapshift.io.results import to_table
from shapshift.sampled.game import Game, check_estimator, predicts_numbers, with_seeds
from shapshift.sampled.rows import ModelRows, read_rows
from shapshift.valuation import Valuation, check_valuation

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

#: Shares of the players at which models are fitted again.
FRACTIONS = tuple(np.linspace(0.0, 1.0, 11).round(3).tolist())
#: Areas under curves are taken up to this share.
HALF = 0.5


@dataclass(frozen=True, eq=False, repr=False)
class ValuationEvaluation:
    """Measures of values in use.

    Attributes
    ----------
    method : str
        What made the values.
    detection : mapping or None
        Of mislabelled rows by low values: ``auc`` (1 is perfect, 0.5 chance), ``precision`` and ``recall`` among the
        lowest share ``fraction`` of the rows.
    fractions : ndarray
        Shares of the players that are removed or added.
    curves : mapping of str to ndarray
        Test score when the highest or lowest values are removed first ("remove_high", "remove_low") or added first
        ("add_high", "add_low"), and for a random order ("random": mean over orders, by share removed). Empty without
        an estimator.
    areas : mapping of str to float
        Mean height of each curve over its first half: the whole of a removal curve is the whole of an addition curve
        read backwards. A good valuation has small ones for "remove_high" and "add_low", large ones for the
        others.
    selection : mapping or None
        The share of players with the highest values whose model scores best: ``fraction``, ``score``, and ``gain`` over
        all players.
    duplicates : mapping
        Copies, as given or found: ``players``, how many; ``auc`` of finding them by low values; ``share``, their part
        of the sum of values, where that is positive. And of players with exactly the same rows and labels, ``groups``,
        how many different ones, and ``largest_gap`` between equal ones, in standard deviations of the values (0 for a
        symmetric valuation without sampling error).
    """

    method: str
    detection: Mapping[str, float] | None
    fractions: Floats
    curves: Mapping[str, Floats]
    areas: Mapping[str, float]
    selection: Mapping[str, float] | None
    duplicates: Mapping[str, float]

    def to_frame(self, kind: str = "numpy") -> Any:
        """Tabulate every number but the curves: ``use``, ``statistic``, ``value``.

        Parameters
        ----------
        kind : {"numpy", "pandas", "polars", "pyarrow"}, default="numpy"
            "numpy" means pandas if it is installed, else pyarrow.
        """
        parts = {"detection": self.detection, "area": self.areas, "selection": self.selection}
        parts["duplicates"] = self.duplicates
        entries = [(use, name, value) for use, found in parts.items() for name, value in (found or {}).items()]
        uses, names, values = zip(*entries, strict=True)
        columns = {"use": np.array(uses, dtype=object), "statistic": np.array(names, dtype=object)}
        return to_table({**columns, "value": np.array(values, dtype=np.float64)}, None, kind)

    def curve_frame(self, kind: str = "numpy") -> Any:
        """Tabulate the curves: one row per fraction, one column per curve."""
        return to_table({"fraction": self.fractions, **self.curves}, None, kind)

    def plot(self, *, axes: Any = None) -> Any:
        """Draw the removal and addition curves; returns the two Axes.

        Parameters
        ----------
        axes : array of two Axes, optional
            Where to draw; a new figure by default.
        """
        from shapshift.plots.results import plot_evaluation

        return plot_evaluation(self, axes=axes)

    def __repr__(self) -> str:
        parts = [self.method]
        if self.detection is not None:
            parts.append(f"detection auc={self.detection['auc']:.3f}")
        parts += [f"{name} area={self.areas[name]:.3f}" for name in ("remove_high", "remove_low") if name in self.areas]
        parts.append(f"duplicates={self.duplicates['players']:g}")
        return f"ValuationEvaluation({', '.join(parts)})"


def evaluate_valuation(
    valuation: Valuation,
    X: Any,
    y: Any,
    *,
    mislabelled: Any = None,
    fraction: float | None = None,
    estimator: Any = None,
    X_test: Any = None,
    y_test: Any = None,
    players: Any = None,
    copies: Any = None,
    fractions: Sequence[float] = FRACTIONS,
    random_orders: int = 5,
    random_state: int | None = 0,
    progress: bool | None = None,
) -> ValuationEvaluation:
    """Measure whether values find bad rows, rank useful ones, and treat copies alike.

    Parameters
    ----------
    valuation : Valuation
        By any method.
    X, y : table of shape (n_train, n_features), array-like of shape (n_train,)
        The training set that was valued.
    mislabelled : array-like of bool of shape (n_train,), optional
        Which rows carry a wrong label, to see whether low values find them.
    fraction : float, optional
        Share of the rows that is looked through for precision and recall; by default the share of mislabelled rows.
    estimator : estimator, optional
        Model that is fitted on what is left when players are removed or added; any, not only the one that was valued.
    X_test, y_test : table, array-like, optional
        Held-out set on which it is scored, by accuracy or minus the mean squared error. Use another set than the one
        that made the values.
    players : array-like of shape (n_train,), optional
        Owner of each row, when owners were valued.
    copies : array-like of bool, optional
        Which players are copies of others, to see whether low values find them and what part of the value they draw; by
        default those with exactly the rows and labels of another.
    fractions : sequence of float
        Shares of the players that are removed or added, ascending from 0 to 1.
    random_orders : int, default=5
        Orders that the "random" curve is the mean of.
    random_state : int or None, default=0
        Seed of the random orders and of the order among equal values.
    progress : bool, default=None

    Returns
    -------
    ValuationEvaluation

    Notes
    -----
    No rows, rows of one class and coalitions that the estimator refuses are scored as a constant model is, see
    :class:`shapshift.SampledShapley`.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> from shapshift import KNNShapley, evaluate_valuation, load_dataset
    >>> data = load_dataset("gaussian", n_train=100, n_val=200)
    >>> wrong = np.arange(100) < 10
    >>> y = np.where(wrong, 1 - data.y_train, data.y_train)
    >>> values = KNNShapley(progress=False).fit(data.X_train, y).value(data.X_val[:100], data.y_val[:100])
    >>> found = evaluate_valuation(values, data.X_train, y, mislabelled=wrong)
    >>> bool(found.detection["auc"] > 0.7)
    True
    """
    caller = "evaluate_valuation"
    check_valuation(caller, "valuation", valuation)
    try_fit = None if estimator is None else lambda rows: clone(estimator, safe=False).fit(rows, np.asarray(y))
    read = read_rows(X, try_fit)[0]
    table, n_rows = read.table, read.table.rows.shape[0]
    labels = _labels.check_labels(y, "y", n_rows, "X")
    player_of = np.arange(n_rows)
    if players is not None:
        player_of = check_owners(players, _labels.check_ids(None, table.index, n_rows), "players").codes
    n_players = int(player_of.max()) + 1
    if valuation.n_train != n_players:
        raise InputError(
            f"The 'valuation' parameter of {caller} has {valuation.n_train} values for {n_players} "
            f"{'rows of X' if players is None else 'players'}. Pass the training set that was valued, and 'players' if "
            "owners were."
        )
    if mislabelled is not None and players is not None:
        raise InputError(f"The 'mislabelled' parameter of {caller} marks rows, and owners were valued. Leave it out.")
    wrong = _check_flags(caller, "mislabelled", mislabelled, n_players)
    planted = _check_flags(caller, "copies", copies, n_players)
    rng = np.random.default_rng(check.check_seed(caller, random_state))
    grid = _check_fractions(caller, fractions)
    check.check_count(caller, "random_orders", random_orders)
    curves: dict[str, Floats] = {}
    if estimator is not None:
        game = _game(caller, estimator, read, labels, player_of, X_test, y_test)
        curves = _curves(game, valuation.values, grid, random_orders, rng, progress)
    return ValuationEvaluation(
        method=str(valuation.parameters.get("method", "Valuation")),
        detection=_detection(caller, valuation.values, wrong, fraction),
        fractions=grid,
        curves=curves,
        areas={name: _area(curve, grid) for name, curve in curves.items()},
        selection=_selection(curves, grid),
        duplicates=_duplicates(valuation.values, table.rows, labels, player_of, planted),
    )


def detection_auc(values: Floats, wanted: Flags) -> float:
    """Probability that a wanted row has a lower value than another, ties counting half; NaN if all or none are wanted.

    Examples
    --------
    >>> detection_auc(np.array([-1.0, 0.0, 2.0, 2.0]), np.array([True, False, True, False]))
    0.625
    """
    return float("nan") if wanted.all() or not wanted.any() else float(roc_auc_score(wanted, -values))


def _detection(caller: str, values: Floats, wanted: Flags | None, fraction: float | None) -> dict[str, float] | None:
    if wanted is None:
        return None
    share = float(wanted.mean()) if fraction is None else fraction
    check.check_number(caller, "fraction", share, most=1.0)
    looked_at = max(1, round(share * values.size))
    found = float((shared_seats(values, looked_at)[1] * wanted).sum())
    return {
        "auc": detection_auc(values, wanted),
        "precision": found / looked_at,
        "recall": found / max(int(wanted.sum()), 1),
        "fraction": share,
    }


def _game(caller: str, estimator: Any, read: ModelRows, labels: Any, player_of: Any, X_test: Any, y_test: Any) -> Game:
    check_estimator(caller, estimator)
    if X_test is None or y_test is None:
        raise InputError(
            f"The 'X_test' and 'y_test' parameters of {caller} are needed with 'estimator': models are scored on them. "
            "Use rows that were neither trained on nor used for the values."
        )
    fitted = clone(estimator, safe=False)
    test = read.points(X_test, lambda points: fitted.fit(read.rows, labels).predict(points), "X_test")
    targets = _labels.check_labels(y_test, "y_test", test.table.rows.shape[0], "X_test")
    regression = predicts_numbers(estimator, "auto")
    if regression:
        classes, codes = None, np.zeros(labels.size, dtype=np.int32)
        labels, targets, target_codes = labels.astype(float), targets.astype(float), np.zeros(targets.size, np.int32)
    else:
        classes, codes = _labels.encode_labels(labels)
        target_codes = _labels.look_up_labels(targets, classes)
    return Game(
        estimator=with_seeds(clone(estimator, safe=False), 0),
        rows=read.rows,
        labels=labels,
        player_of=player_of,
        points=test.rows,
        targets=targets,
        classes=classes,
        codes=codes,
        target_codes=target_codes,
        utility="squared_error" if regression else "correct",
        cells=np.full((targets.size, 1), 1 / targets.size),
        on_error="constant",
    )


def _curves(
    game: Game, values: Floats, grid: Floats, random_orders: int, rng: np.random.Generator, progress: bool | None
) -> dict[str, Floats]:
    n = values.size
    high_first = np.lexsort((rng.random(n), -values))
    orders = [high_first, high_first[::-1], *(rng.permutation(n) for _ in range(random_orders))]
    # Removing a share leaves the rest, so both kinds of curves are made of the same fits.
    shares = np.unique(np.concatenate([grid, 1 - grid]).round(12))
    scores = np.empty((len(orders), shares.size))
    with progress_bar("Curves", scores.size, progress) as advance:
        for number, order in enumerate(orders):
            place = np.empty(n, dtype=np.int64)
            place[order] = np.arange(n)
            for column, size in enumerate(np.round(shares * n).astype(np.int64).tolist()):
                scores[number, column] = game.evaluate((place < size)[None]).utilities[0, 0]
                advance(1)
    added = scores[:, np.searchsorted(shares, grid.round(12))]
    left = scores[:, np.searchsorted(shares, (1 - grid).round(12))]
    return {
        "remove_high": left[1],
        "remove_low": left[0],
        "add_high": added[0],
        "add_low": added[1],
        "random": left[2:].mean(axis=0),
    }


def _area(curve: Floats, grid: Floats) -> float:
    at = np.append(grid[grid < HALF], HALF)
    return float(np.trapezoid(np.interp(at, grid, curve), at) / HALF)


def _selection(curves: Mapping[str, Floats], grid: Floats) -> dict[str, float] | None:
    if not curves:
        return None
    best = int(np.flatnonzero(curves["add_high"] == curves["add_high"].max())[-1])
    score, everybody = float(curves["add_high"][best]), float(curves["add_high"][-1])
    return {"fraction": float(grid[best]), "score": score, "gain": score - everybody}


def _duplicates(
    values: Floats, rows: Any, labels: npt.NDArray[Any], player_of: npt.NDArray[np.int64], copies: Flags | None
) -> dict[str, float]:
    """Compare players whose rows and labels are the same."""
    _, codes = _labels.encode_labels(labels)
    keys: list[list[bytes]] = [[] for _ in range(values.size)]
    for row, player in enumerate(player_of.tolist()):
        digest = hashlib.sha256(codes[row].tobytes())
        if sparse.issparse(rows):
            stored = slice(rows.indptr[row], rows.indptr[row + 1])  # sorted by column, without zeros
            digest.update(rows.indices[stored].tobytes())
            digest.update(rows.data[stored].tobytes())
        else:
            digest.update((rows[row] + 0.0).tobytes())  # + 0.0: there are two zeros
        keys[player].append(digest.digest())
    groups: dict[bytes, list[int]] = {}
    for player, key in enumerate(keys):
        groups.setdefault(b"".join(sorted(key)), []).append(player)
    repeated = [members for members in groups.values() if len(members) > 1]
    if copies is None:
        copies = np.zeros(values.size, dtype=bool)
        copies[[player for members in repeated for player in members]] = True
    spread, total = float(values.std()), float(values.sum())
    gap = max((float(np.ptp(values[members])) for members in repeated), default=0.0)
    return {
        "players": float(copies.sum()),
        "groups": float(len(repeated)),
        "auc": detection_auc(values, copies),
        "largest_gap": gap / spread if spread > 0 else 0.0,
        "share": float(values[copies].sum()) / total if total > 0 else float("nan"),
    }


def _check_flags(caller: str, name: str, flags: Any, n_players: int) -> Flags | None:
    if flags is None:
        return None
    found = np.asarray(flags)
    if found.shape != (n_players,) or found.dtype != np.bool_:
        raise InputError(
            f"The {name!r} parameter of {caller} must hold True or False for each of the {n_players} values. Got shape "
            f"{found.shape} of type {found.dtype}."
        )
    return found


def _check_fractions(caller: str, fractions: Sequence[float]) -> Floats:
    grid = np.asarray(fractions, dtype=np.float64)
    if grid.ndim != 1 or grid.size < 2 or grid[0] != 0 or grid[-1] != 1 or not (np.diff(grid) > 0).all():
        raise InputError(
            f"The 'fractions' parameter of {caller} must be shares that ascend from 0 to 1. Got "
            f"{check.quoted(fractions)} instead."
        )
    return grid
