"""evaluate_valuation: usefulness measures of values, the same for every method."""

import csv
import io
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict, Unpack, overload

import numpy as np
import numpy.typing as npt
from sklearn.base import clone
from sklearn.metrics import roc_auc_score

from shapshift._progress import progress_bar
from shapshift.agreement import shared_seats
from shapshift.checks import inputs as check
from shapshift.checks import labels as _labels
from shapshift.checks.labels import check_owners
from shapshift.checks.names import visible
from shapshift.engine.duplicates import number_equal
from shapshift.engine.rows.distances import index_rows
from shapshift.exceptions import InputError
from shapshift.io.files import write_text
from shapshift.io.results import latex_table, to_table
from shapshift.io.shown import Shown
from shapshift.sampled.game import Game, check_estimator, predicts_numbers, with_seeds
from shapshift.sampled.rows import ModelRows, read_rows
from shapshift.valuation import Valuation, best_first, check_valuation

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

#: Shares of the players at which models are refitted.
FRACTIONS = tuple(np.linspace(0.0, 1.0, 11).round(3).tolist())
#: Areas under curves are taken up to this share.
HALF = 0.5
#: Name of the random order in tables and figures.
RANDOM = "random order"


@dataclass(frozen=True, eq=False, repr=False)
class ValuationEvaluation(Shown):
    """Usefulness measures of values.

    Attributes
    ----------
    method : str
        Method of the values.
    detection : mapping or None
        Detection of mislabelled rows by low values: ``auc`` (1 is perfect, 0.5 chance), ``precision`` and ``recall``
        among the lowest share ``fraction`` of the rows.
    fractions : ndarray
        Shares of the players that are removed or added.
    curves : mapping of str to ndarray
        Test score when the highest or lowest values are removed first ("remove_high", "remove_low") or added first
        ("add_high", "add_low"), and for a random order ("random": mean over orders, by share removed). Empty without
        an estimator.
    areas : mapping of str to float
        Mean height of each curve over its first half (a whole removal curve is an addition curve read backwards). A
        good valuation has small areas for "remove_high" and "add_low", and large ones for the others.
    selection : mapping or None
        The share of players with the highest values whose model scores best: ``fraction``, ``score``, and ``gain`` over
        all players.
    duplicates : mapping
        Copies, as given or found: ``players``, their number; ``auc`` of finding them by low values; ``share``, their
        part of the sum of values, if that is positive. For players with exactly the same rows and labels: ``groups``,
        the number of groups of equal players, and ``largest_gap`` between values of equal players, in standard
        deviations of the values (0 for a symmetric valuation without sampling error).
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
        return _tabulated(("use", "statistic"), self._entries(), kind)

    def _entries(self) -> list[tuple[str, str, float]]:
        """Use, statistic and value of every number but the curves."""
        parts = {"detection": self.detection, "area": self.areas, "selection": self.selection}
        parts["duplicates"] = self.duplicates
        return [(use, name, value) for use, found in parts.items() for name, value in (found or {}).items()]

    def curve_frame(self, kind: str = "numpy") -> Any:
        """Tabulate the curves: one row per fraction, one column per curve."""
        return to_table({"fraction": self.fractions, **self.curves}, None, kind)

    def plot(self, *, ax: Any = None) -> Any:
        """Draw the removal and addition curves; returns the two Axes.

        Parameters
        ----------
        ax : array of two Axes, optional
            Where to draw; a new figure by default.
        """
        from shapshift.plots.results import plot_evaluation

        return plot_evaluation(self, ax=ax)

    def __repr__(self) -> str:
        parts = [self.method]
        if self.detection is not None:
            parts.append(f"detection auc={self.detection['auc']:.3f}")
        parts += [f"{name} area={self.areas[name]:.3f}" for name in ("remove_high", "remove_low") if name in self.areas]
        parts.append(f"duplicates={self.duplicates['players']:g}")
        return f"ValuationEvaluation({', '.join(parts)})"


@dataclass(frozen=True, eq=False, repr=False)
class ValuationComparison(Shown):
    """Measures of several valuations of the same rows.

    Attributes
    ----------
    evaluations : mapping of str to ValuationEvaluation
        Evaluations by the name of each valuation, in the given order. They share the random orders and the fitted
        models.
    """

    evaluations: Mapping[str, ValuationEvaluation]

    def _entries(self) -> list[tuple[str, str, str, float]]:
        entries: list[tuple[str, str, str, float]] = []
        for name, found in self.evaluations.items():
            entries += [(name, *entry) for entry in found._entries() if entry[:2] != ("area", "random")]
        if found.curves:
            # In a random order, high and low are the same; the rows added in it are the rows left of another.
            added = _area(found.curves["random"][::-1], 1 - found.fractions[::-1])
            areas = {"remove": found.areas["random"], "add": added}
            orders = ("remove_high", "remove_low", "add_high", "add_low")
            entries += [(RANDOM, "area", order, areas[order.partition("_")[0]]) for order in orders]
        return entries

    def to_frame(self, kind: str = "numpy") -> Any:
        """Tabulate every number but the curves, one line per method and measure.

        The columns are ``method``, ``use``, ``statistic`` and ``value``; a random order is one of the methods.

        Parameters
        ----------
        kind : {"numpy", "pandas", "polars", "pyarrow"}, default="numpy"
            "numpy" means pandas if it is installed, else pyarrow.
        """
        return _tabulated(("method", "use", "statistic"), self._entries(), kind)

    def curve_frame(self, kind: str = "numpy") -> Any:
        """Tabulate the curves: ``method``, ``fraction``, and a column per curve."""
        columns: dict[str, list[Any]] = {}
        for name, found in self.evaluations.items():
            lines = {"method": [name] * found.fractions.size, "fraction": found.fractions.tolist()}
            for title, entries in (lines | {key: line.tolist() for key, line in found.curves.items()}).items():
                columns.setdefault(title, []).extend(entries)
        texts = {"method": np.array(columns.pop("method"), dtype=object)}
        return to_table(texts | {title: np.array(entries) for title, entries in columns.items()}, None, kind)

    def to_csv(self, path: str | os.PathLike[str]) -> Path:
        """Write the lines of :meth:`to_frame` as CSV; returns the path.

        A name that a spreadsheet would run as a formula gets an apostrophe in front; line breaks and hidden characters
        in names are escaped.
        """
        from shapshift.price import safe_cell

        out = io.StringIO()
        lines = [(safe_cell(visible(name, keep="")), *rest) for name, *rest in self._entries()]
        csv.writer(out, lineterminator="\n").writerows([("method", "use", "statistic", "value"), *lines])
        return write_text(path, out.getvalue())

    def to_latex(self, path: str | os.PathLike[str]) -> Path:
        """Write a table for LaTeX (booktabs), one line per measure and one column per method; returns the path."""
        entries = self._entries()
        names = list(dict.fromkeys(entry[0] for entry in entries))
        found: dict[tuple[str, str], dict[str, float]] = {(use, statistic): {} for _, use, statistic, _ in entries}
        for name, use, statistic, value in entries:
            found[use, statistic][name] = value
        columns = {
            "use": np.array([use for use, _ in found], dtype=object),
            "statistic": np.array([statistic for _, statistic in found], dtype=object),
            **{visible(name, keep=""): np.array([line.get(name, np.nan) for line in found.values()]) for name in names},
        }
        return write_text(path, latex_table(to_table(columns, None, "pandas")))

    def plot(self, *, ax: Any = None) -> Any:
        """Draw one removal curve per method, and that of a random order; returns the two Axes.

        Parameters
        ----------
        ax : array of two Axes, optional
            Where to draw, the highest values removed first and the lowest; a new figure by default.
        """
        from shapshift.plots.results import plot_comparison

        return plot_comparison(self, ax=ax)

    def __repr__(self) -> str:
        return f"ValuationComparison({', '.join(map(repr, self.evaluations.values()))})"


def _tabulated(names: Sequence[str], entries: Sequence[tuple[Any, ...]], kind: str) -> Any:
    """Make a table of entries: texts under these names, and a number."""
    *texts, values = zip(*entries, strict=True)
    columns = {name: np.array(column, dtype=object) for name, column in zip(names, texts, strict=True)}
    return to_table({**columns, "value": np.array(values, dtype=np.float64)}, None, kind)


class _Options(TypedDict, total=False):
    mislabelled: Any
    fraction: float | None
    estimator: Any
    X_test: Any
    y_test: Any
    players: Any
    copies: Any
    fractions: Sequence[float]
    keep_class_shares: bool
    random_orders: int
    random_state: int | None
    progress: bool | None


@overload
def evaluate_valuation(valuation: Valuation, X: Any, y: Any, **options: Unpack[_Options]) -> ValuationEvaluation: ...
@overload
def evaluate_valuation(
    valuation: Mapping[str, Valuation] | Sequence[Valuation], X: Any, y: Any, **options: Unpack[_Options]
) -> ValuationComparison: ...
def evaluate_valuation(
    valuation: Valuation | Mapping[str, Valuation] | Sequence[Valuation],
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
    keep_class_shares: bool = True,
    random_orders: int = 5,
    random_state: int | None = 0,
    progress: bool | None = None,
) -> ValuationEvaluation | ValuationComparison:
    """Measure whether values find bad rows, rank useful rows, and treat copies alike.

    Parameters
    ----------
    valuation : Valuation, or mapping or list of them
        Values by any method. To compare several of the same rows, pass a mapping from names, or a list, which takes the
        names of the methods.
    X, y : table of shape (n_train, n_features), array-like of shape (n_train,)
        The training set that was valued.
    mislabelled : array-like of bool of shape (n_train,), optional
        Rows with a wrong label, to measure whether low values find them.
    fraction : float, optional
        Share of lowest rows for precision and recall; by default the share of mislabelled rows.
    estimator : estimator, optional
        Model that is fitted on the remaining rows when players are removed or added; it may be any model.
    X_test, y_test : table, array-like, optional
        Held-out set on which it is scored, by accuracy or minus the mean squared error. Use another set than the one
        that made the values.
    players : array-like of shape (n_train,), optional
        Owner of each row, when owners were valued.
    copies : array-like of bool, optional
        Players that are copies of others, to measure whether low values find them and their part of the total value; by
        default those with exactly the rows and labels of another.
    fractions : sequence of float
        Shares of the players that are removed or added, ascending from 0 to 1.
    keep_class_shares : bool, default=True
        Remove and add the highest, or lowest, rows of each class, so that every class keeps its share; see
        :meth:`shapshift.Valuation.select`. Applies to curves and selection for a classifier, but not to owners as
        players, to numbers or to detection.
    random_orders : int, default=5
        Number of orders averaged in the "random" curve.
    random_state : int or None, default=0
        Seed of the random orders and of the order among equal values.
    progress : bool, default=None

    Returns
    -------
    ValuationEvaluation or ValuationComparison
        The latter for several valuations.

    Notes
    -----
    Several valuations share the random orders, and every coalition of players is fitted once. The results of each are
    the same as if it were evaluated alone with the same seed.

    The empty set, rows of one class and coalitions that the estimator refuses are scored like a constant model, see
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
    given = _named(caller, valuation)
    try_fit = None if estimator is None else lambda rows: clone(estimator, safe=False).fit(rows, np.asarray(y))
    read = read_rows(X, try_fit)[0]
    table, n_rows = read.table, read.table.rows.shape[0]
    labels = _labels.check_labels(y, "y", n_rows, "X")
    player_of = np.arange(n_rows)
    if players is not None:
        player_of = check_owners(players, _labels.check_ids(None, table.index, n_rows), "players").codes
    n_players = int(player_of.max()) + 1
    for one in given.values():
        if one.n_train != n_players:
            raise InputError(
                f"The 'valuation' parameter of {caller} has {one.n_train} values for {n_players} "
                f"{'rows of X' if players is None else 'players'}. Pass the training set that was valued, and "
                "'players' if owners were."
            )
    if mislabelled is not None and players is not None:
        raise InputError(f"The 'mislabelled' parameter of {caller} marks rows, and owners were valued. Leave it out.")
    wrong = _check_flags(caller, "mislabelled", mislabelled, n_players)
    planted = _check_flags(caller, "copies", copies, n_players)
    rng = np.random.default_rng(check.check_seed(caller, random_state))
    grid = _check_fractions(caller, fractions)
    check.check_count(caller, "random_orders", random_orders)
    check.check_flag(caller, "keep_class_shares", keep_class_shares)
    all_values = [one.values for one in given.values()]
    curves: list[dict[str, Floats]] = [{} for _ in all_values]
    if estimator is not None:
        game = _game(caller, estimator, read, labels, player_of, X_test, y_test)
        classes = game.codes if keep_class_shares and players is None and game.classes is not None else None
        curves = _curves(game, all_values, classes, grid, random_orders, rng, progress)
    repeated = _equal_players(table.rows, labels, player_of)
    found = {
        name: ValuationEvaluation(
            method=name,
            detection=_detection(caller, values, wrong, fraction),
            fractions=grid,
            curves=lines,
            areas={which: _area(line, grid) for which, line in lines.items()},
            selection=_selection(lines, grid),
            duplicates=_duplicates(values, repeated, planted),
        )
        for name, values, lines in zip(given, all_values, curves, strict=True)
    }
    return next(iter(found.values())) if isinstance(valuation, Valuation) else ValuationComparison(found)


def _named(caller: str, given: Any) -> dict[str, Valuation]:
    """Return valuations by name: as given, or by their methods, numbered where several have the same."""
    if isinstance(given, Mapping):
        if not all(isinstance(name, str) and name != RANDOM for name in given):
            raise InputError(
                f"The 'valuation' parameter of {caller} must map names, other than {RANDOM!r}, to valuations. Got the "
                f"names {check.quoted(list(given))}."
            )
        valuations, names = list(given.values()), list(given)
    else:
        valuations = list(given) if isinstance(given, list | tuple) else [given]
        names = [str(getattr(one, "parameters", {}).get("method", "Valuation")) for one in valuations]
    if not valuations:
        raise InputError(f"The 'valuation' parameter of {caller} must hold at least one valuation. Got none.")
    for one in valuations:
        check_valuation(caller, "valuation", one)
    counted = Counter[str]()
    for at, name in enumerate(names):
        counted[name] += 1
        names[at] = name if counted[name] == 1 else f"{name} {counted[name]}"
    return dict(zip(names, valuations, strict=True))


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
    game: Game,
    all_values: Sequence[Floats],
    classes: Any,
    grid: Floats,
    random_orders: int,
    rng: np.random.Generator,
    progress: bool | None,
) -> list[dict[str, Floats]]:
    """Compute the curves of each valuation; ``classes`` are those whose shares are kept, None for any shares."""
    n = all_values[0].size
    tied = np.argsort(rng.random(n))  # order among equal values
    orders: list[npt.NDArray[np.int64]] = []
    for values in all_values:
        high_first = tied[best_first(values[tied], None if classes is None else classes[tied])]
        orders += [high_first, high_first[::-1]]
    orders += [rng.permutation(n) for _ in range(random_orders)]
    # Removing a share leaves the rest, so both kinds of curves use the same fits.
    shares = np.unique(np.concatenate([grid, 1 - grid]).round(12))
    scores, known = np.empty((len(orders), shares.size)), dict[bytes, float]()
    with progress_bar("Curves", scores.size, progress) as advance:
        for number, order in enumerate(orders):
            place = np.empty(n, dtype=np.int64)
            place[order] = np.arange(n)
            for column, size in enumerate(np.round(shares * n).astype(np.int64).tolist()):
                coalition = place < size
                key = np.packbits(coalition).tobytes()
                if key not in known:
                    known[key] = float(game.evaluate(coalition[None]).utilities[0, 0])
                scores[number, column] = known[key]
                advance(1)
    added = scores[:, np.searchsorted(shares, grid.round(12))]
    left = scores[:, np.searchsorted(shares, (1 - grid).round(12))]
    chance = left[2 * len(all_values) :].mean(axis=0)
    return [
        {
            "remove_high": left[at + 1],
            "remove_low": left[at],
            "add_high": added[at],
            "add_low": added[at + 1],
            "random": chance,
        }
        for at in range(0, 2 * len(all_values), 2)
    ]


def _area(curve: Floats, grid: Floats) -> float:
    at = np.append(grid[grid < HALF], HALF)
    return float(np.trapezoid(np.interp(at, grid, curve), at) / HALF)


def _selection(curves: Mapping[str, Floats], grid: Floats) -> dict[str, float] | None:
    if not curves:
        return None
    best = int(np.flatnonzero(curves["add_high"] == curves["add_high"].max())[-1])
    score, everybody = float(curves["add_high"][best]), float(curves["add_high"][-1])
    return {"fraction": float(grid[best]), "score": score, "gain": score - everybody}


def _equal_players(rows: Any, labels: npt.NDArray[Any], player_of: npt.NDArray[np.int64]) -> list[list[int]]:
    """Return groups of players whose rows and labels are the same."""
    places = number_equal(index_rows(rows, "euclidean"))[0]
    classes, codes = _labels.encode_labels(labels)
    units = places * classes.size + codes
    order = np.lexsort((units, player_of))
    starts = np.searchsorted(player_of[order], np.arange(player_of.max() + 1))
    groups: dict[bytes, list[int]] = {}
    for player, own in enumerate(np.split(units[order], starts[1:])):
        groups.setdefault(own.tobytes(), []).append(player)
    return [members for members in groups.values() if len(members) > 1]


def _duplicates(values: Floats, repeated: list[list[int]], copies: Flags | None) -> dict[str, float]:
    """Compare players whose rows and labels are the same."""
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
