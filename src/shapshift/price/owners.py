"""owner_values: what each owner is worth in the game in which all its rows enter together."""

import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy import special, stats

from shapshift._progress import progress_bar
from shapshift.checks import inputs as check
from shapshift.checks.owners import Ownership, check_owners, owner_column
from shapshift.engine.coefficients import Beta
from shapshift.engine.tasks import ClassTask
from shapshift.exceptions import InputError
from shapshift.io.results import Result, to_table
from shapshift.kernels.coalitions import OwnerLists, Utility, add_coalitions, add_marginals, list_owners
from shapshift.knn.shapley import KNNShapley

Floats = npt.NDArray[np.float64]
Longs = npt.NDArray[np.int64]

SEMIVALUES = ("shapley", "banzhaf", "loo")
CONFIDENCE = 0.95
# 2^22 coalitions take 32 MB per validation group and minutes for a thousand points.
MOST_PLAYERS = 22
# Approximate bytes of distances and lists in a tile of points.
TILE_BYTES = 16 * 2**20
# Lists are kept between batches of permutations up to here, and made again beyond.
KEPT_BYTES = 256 * 2**20
# Pairs of permutations in the first batch; each batch doubles the number drawn.
FIRST_PAIRS = 16


@dataclass(frozen=True, eq=False, repr=False)
class OwnerValues(Result):
    """What each owner contributes when all its rows enter together.

    Attributes
    ----------
    owners : tuple
        Owners, in order of first appearance.
    values : ndarray of shape (n_owners,)
        Value of each owner, averaged over the validation points. Shapley values add up to ``full - empty``.
    low, high : ndarray of shape (n_owners,)
        95% confidence interval; equal to ``values`` when they are exact.
    row_counts : ndarray of shape (n_owners,)
        Number of rows of each owner.
    codes : ndarray of shape (n_train,)
        Owner number of each training row.
    method : {"exact", "sample"}
        How the values were computed.
    n_permutations : int
        Orders of the owners that were drawn; 0 when the values are exact.
    full, empty : float
        Utility of all training rows and of none.
    group_means : ndarray of shape (n_groups, n_owners)
        Values per validation group, see ``group_values``.
    group_names : tuple
        Group names in order of first appearance.
    parameters : mapping
        What made the values.
    fingerprint : str
        Hash of the training rows and labels.
    kind : str
        The caller's kind of table.
    """

    archive_kind: ClassVar[str] = "shapshift.OwnerValues"
    archive_shapes: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("owners", "values", "low", "high", "row_counts"), "n_owners"),
        "group_names": "n_groups",
        "group_means": "n_groups n_owners",
    }

    owners: tuple[Any, ...]
    values: Floats
    low: Floats
    high: Floats
    row_counts: npt.NDArray[np.int64]
    codes: npt.NDArray[np.int64]
    method: str
    n_permutations: int
    full: float
    empty: float
    group_means: Floats
    group_names: tuple[Any, ...]
    parameters: Mapping[str, Any]
    fingerprint: str
    kind: str = "numpy"

    @property
    def half_width(self) -> float:
        """Half the width of the widest interval; 0 when the values are exact."""
        return float((self.high - self.low).max() / 2)

    @property
    def converged(self) -> bool:
        """Whether all intervals are as narrow as was asked for, see ``tolerance`` of :func:`owner_values`."""
        return self.half_width == 0 or self.relative_half_width <= self.parameters["tolerance"]

    @property
    def relative_half_width(self) -> float:
        """Half the width of the widest interval, as a part of the mean absolute value of an owner."""
        typical = float(np.abs(self.values).mean())
        if typical == 0:
            return 0.0 if self.half_width == 0 else float("inf")
        return self.half_width / typical

    @property
    def group_values(self) -> dict[Any, Floats]:
        """Values per validation group."""
        return dict(zip(self.group_names, self.group_means, strict=True))

    def to_frame(self, kind: str | None = None) -> Any:
        """Tabulate the values.

        Parameters
        ----------
        kind : {"pandas", "polars", "pyarrow"}, optional
            Defaults to the kind that was fitted; after NumPy input, pandas if it is installed, else pyarrow.

        Returns
        -------
        table
            One row per owner: ``owner``, ``rows``, ``value``, ``low``, ``high``, and one ``value[name]`` per
            validation group.
        """
        columns: dict[str, npt.NDArray[Any]] = {
            "owner": owner_column(self.owners),
            "rows": self.row_counts,
            "value": self.values,
            "low": self.low,
            "high": self.high,
        }
        columns |= {f"value[{name}]": means for name, means in self.group_values.items()}
        return to_table(columns, None, kind or self.kind)

    def __repr__(self) -> str:
        how = "exact" if self.method == "exact" else f"{self.n_permutations} permutations, +-{self.half_width:.2g}"
        return (
            f"OwnerValues(n_owners={len(self.owners)}, n_train={self.codes.size}, sum={self.values.sum():.4g}, {how})"
        )


@dataclass(frozen=True)
class GameOptions:
    """Options of :func:`owner_values` that payments, audits and checks pass on; described there."""

    method: str = "auto"
    semivalue: str | Beta = "shapley"
    max_players_exact: int = 16
    n_permutations: int = 2000
    tolerance: float = 0.05
    random_state: int | None = 0

    def __post_init__(self) -> None:
        check.check_choice("owner_values", "method", self.method, ("auto", "exact", "sample"))
        if not isinstance(self.semivalue, Beta):
            check.check_choice("owner_values", "semivalue", self.semivalue, SEMIVALUES, "a Beta(alpha, beta) object")
        given: Any = self.tolerance
        if isinstance(given, bool) or not (isinstance(given, int | float | np.number) and 0 < given < np.inf):
            raise InputError(
                "The 'tolerance' parameter of owner_values must be a positive number, a part of the mean absolute "
                f"owner value such as 0.05. Got {check.quoted(given)} instead."
            )
        check.check_count("owner_values", "max_players_exact", self.max_players_exact)
        check.check_count("owner_values", "n_permutations", self.n_permutations, at_least=4)
        # A seed that the result can name, and that many runs share.
        object.__setattr__(self, "random_state", check.check_seed("owner_values", self.random_state))

    @classmethod
    def check(cls, owner: str, options: Any, basis: str) -> "GameOptions":
        """Check the ``owner_options`` of the function ``owner``; None means none."""
        options = {} if options is None else options
        check.check_type(owner, "owner_options", options, Mapping, "a mapping such as {'random_state': 1}")
        said, names = f"The 'owner_options' parameter of {owner}", [field.name for field in fields(cls)]
        unknown = [name for name in options if name not in names]
        if unknown:
            raise InputError(f"{said} takes {', '.join(names)}. Got {unknown[0]!r} instead.")
        if options and basis != "owners":
            raise InputError(f"{said} goes with basis='owners' only. Leave it out, or pay owners as players.")
        return cls(**options)


def owner_values(
    model: Any,
    X_val: Any,
    y_val: Any,
    owners: Any,
    *,
    method: str = "auto",
    semivalue: str | Beta = "shapley",
    max_players_exact: int = 16,
    n_permutations: int = 2000,
    tolerance: float = 0.05,
    random_state: int | None = 0,
    groups: Any = None,
    progress: bool | None = None,
) -> OwnerValues:
    """Value owners as players: all rows of an owner enter a coalition together.

    Parameters
    ----------
    model : KNNShapley
        Fitted. Its ``n_neighbors``, ``utility``, ``metric`` and ``ties`` define the utility; its ``semivalue`` is that
        of single rows and is not used.
    X_val, y_val : table of shape (n_val, n_features), array-like of shape (n_val,)
        The validation set, as in :meth:`shapshift.KNNShapley.value`.
    owners : array-like of shape (n_train,)
        One owner per training row; a pandas Series is matched by its index.
    method : {"auto", "exact", "sample"}, default="auto"
        Enumerate all coalitions of owners, or draw orders in which they join. "auto" enumerates up to
        ``max_players_exact`` owners.
    semivalue : {"shapley", "banzhaf", "loo"} or Beta, default="shapley"
        How coalitions are weighted. Sampling is for "shapley" only; "loo" is always exact and cheap.
    max_players_exact : int, default=16
        The cost of enumeration doubles with each owner: for K = 5 about 1 ms per validation point for 14 owners, 4 ms
        for 16.
    n_permutations : int, default=2000
        Most orders to draw when sampling. They come in pairs, an order and its reverse.
    tolerance : float, default=0.05
        Sampling stops once every owner's 95% interval reaches no farther to either side of its value than this part of
        the mean absolute value of an owner. A warning says so if ``n_permutations`` do not suffice for that.
    random_state : int or None, default=0
        Seed of the sampling.
    groups : array-like of shape (n_val,), optional
        One name per validation point; the result then has the values per group too.
    progress : bool, default=None
        Show a progress bar; None shows it in a terminal only.

    Returns
    -------
    OwnerValues

    Notes
    -----
    With one row per owner these are the row values. Exact values depend neither on names nor on the order of the rows,
    to the last bit. Sampled ones add up to the same total exactly; intervals come from the spread between pairs
    (Student's t) and hold for each owner alone.

    Examples
    --------
    >>> from shapshift import KNNShapley
    >>> from shapshift.price import owner_values
    >>> model = KNNShapley(n_neighbors=1).fit([[0.0], [1.0], [3.0]], ["a", "b", "b"])
    >>> owner_values(model, [[0.9]], ["b"], ["ann", "bob", "bob"]).values.round(3)
    array([-0.25,  0.75])
    """
    options = GameOptions(method, semivalue, max_players_exact, n_permutations, tolerance, random_state)
    found = value_owners(model, X_val, y_val, owners, options, groups=groups, progress=progress)
    if not found.converged:
        warnings.warn(
            f"Owner values are sampled and not as sure as asked for: after {found.n_permutations} orders the widest "
            f"95% interval reaches {found.half_width:.2g} to either side, {found.relative_half_width:.0%} of the mean "
            f"absolute owner value; 'tolerance' asks for {tolerance:.0%}. Raise 'n_permutations', or put owners "
            "together.",
            UserWarning,
            stacklevel=2,
        )
    return found


def value_owners(
    model: Any,
    X_val: Any,
    y_val: Any,
    owners: Any,
    options: GameOptions,
    *,
    groups: Any = None,
    progress: bool | None = False,
) -> OwnerValues:
    """Do the work of :func:`owner_values`, without its warning: for many calls in a row."""
    game = _make_game(model, X_val, y_val, owners, groups)
    n, semivalue = game.n_owners, options.semivalue
    half, drawn = np.zeros(n), 0
    most = {"exact": MOST_PLAYERS, "auto": min(options.max_players_exact, MOST_PLAYERS), "sample": 0}[options.method]
    if n <= most:
        values, sums = _exact(game, semivalue, progress)
    elif semivalue == "loo":
        values, sums = _leave_one_out(game, progress)
    else:
        _refuse_what_cannot_be_sampled(options, n)
        values, half, sums, drawn = _sample(game, options, progress)
    full, empty = _ends(game)
    sizes = np.bincount(game.task.groups, minlength=game.n_cells)
    return OwnerValues(
        owners=game.ownership.names,
        values=values,
        low=values - half,
        high=values + half,
        row_counts=game.ownership.counts,
        codes=game.ownership.codes,
        method="sample" if drawn else "exact",
        n_permutations=drawn,
        full=full,
        empty=empty,
        group_means=sums / sizes[:, None] if groups is not None else np.empty((0, n)),
        group_names=game.task.group_names,
        parameters={
            "method": "owner_values",
            "n_neighbors": game.k,
            "utility": model.utility,
            "semivalue": str(semivalue),
            "metric": model.metric,
            "ties": model.ties,
            "n_train": game.task.n_train,
            "n_val": game.task.n_val,
            "n_classes": game.task.n_classes,
            "n_owners": n,
            "tolerance": float(options.tolerance),
            "confidence": CONFIDENCE,
            "random_state": options.random_state if drawn else None,
        },
        fingerprint=model.fingerprint_,
        kind=model._kind,
    )


@dataclass(frozen=True)
class Game:
    """The validation points as the owners see them.

    Attributes
    ----------
    task : ClassTask
        Distances, labels and groups.
    ownership : Ownership
        The players.
    k : int
        Number of voters.
    soft : bool
        Whether the utility is that of the soft-label classifier.
    """

    task: ClassTask
    ownership: Ownership
    k: int
    soft: bool

    @property
    def n_owners(self) -> int:
        """Number of players."""
        return len(self.ownership.names)

    @property
    def n_cells(self) -> int:
        """Number of validation groups, at least one."""
        return max(self.task.n_groups, 1)

    @property
    def utility(self) -> Utility:
        """What coalitions are worth."""
        return Utility(self.k, self.soft, 1 / self.task.n_classes if self.soft else 0.0)

    @property
    def list_shape(self) -> tuple[int, int, int]:
        """Shape of one point's lists: no more rows of an owner than voters can ever vote."""
        return self.n_owners, min(self.k, self.task.n_train), 3

    @property
    def list_bytes(self) -> int:
        """Size of one point's lists."""
        return 4 * math.prod(self.list_shape)

    def tiles(self) -> Iterator[tuple[OwnerLists, Longs]]:
        """Owner lists and the cells of the points, tile by tile."""
        task, n = self.task, self.task.n_train
        size = max(1, min(task.n_val, TILE_BYTES // max(8 * n, self.list_bytes)))
        distances = np.empty((size, n))
        for start in range(0, task.n_val, size):
            here = slice(start, min(start + size, task.n_val))
            tile, targets = distances[: here.stop - start], task.targets[here]
            task.fill(here, slice(0, n), tile)
            entries = np.empty((targets.size, *self.list_shape), dtype=np.int32)
            lists = OwnerLists(entries, np.empty((targets.size, self.n_owners), dtype=np.int32))
            list_owners(tile, task.codes, targets, self.ownership.codes, self.k, task.average_ties, lists)
            yield lists, task.groups[here]


def _make_game(model: Any, X_val: Any, y_val: Any, owners: Any, groups: Any) -> Game:
    """Check what was given to ``owner_values``."""
    expected = "a fitted KNNShapley: owners are valued through its nearest-neighbour utility"
    check.check_type("owner_values", "model", model, KNNShapley, expected)
    model = copy(model)
    model.device, model.semivalue = "cpu", "shapley"  # tiles are made there; the semivalue is that of single rows
    task = model._prepare(X_val, y_val, groups=groups).task
    return Game(task, check_owners(owners, model.ids_), int(model.n_neighbors), model.utility == "soft")


def _exact(game: Game, semivalue: str | Beta, progress: bool | None) -> tuple[Floats, Floats]:
    """Values, and sums over the points of each cell."""
    worth = np.zeros((game.n_cells, 2**game.n_owners))
    with progress_bar("Coalitions", game.task.n_val, progress) as advance:
        for lists, cells in game.tiles():
            # A few points at a time, so that the bar moves and Ctrl-C is heard.
            step = max(1, 2**22 >> game.n_owners)
            for lo in range(0, len(cells), step):
                part = slice(lo, lo + step)
                add_coalitions(lists.part(part), game.utility, cells[part], worth)
                advance(len(cells[part]))
    weights = _size_weights(game.n_owners, semivalue)
    sums = np.array([_semivalues(cell, weights) for cell in worth])
    # One cell is the whole set; more are added up coalition by coalition first, as if there were no groups.
    whole = sums[0] if game.n_cells == 1 else _semivalues(worth.sum(axis=0), weights)
    return whole / game.task.n_val, sums


def _semivalues(worth: Floats, weights: Floats) -> Floats:
    """Weighted marginal contributions; sums are exactly rounded, so that equal players get equal values to the bit."""
    n = weights.size
    sizes = np.bitwise_count(np.arange(2 ** (n - 1)))
    by_size = weights[sizes]
    values = np.empty(n)
    for player in range(n):
        split = worth.reshape(-1, 2, 2**player)
        gains = (split[:, 1] - split[:, 0]).ravel()
        values[player] = math.fsum((gains * by_size).tolist())
    return values


def _size_weights(n: int, semivalue: str | Beta) -> Floats:
    """Weight of one coalition of each size 0..n-1 of the other owners."""
    sizes = np.arange(n, dtype=np.float64)
    if isinstance(semivalue, Beta):
        a, b = float(semivalue.alpha), float(semivalue.beta)
        logs = special.betaln(sizes + b, n - 1 - sizes + a) - special.betaln(a, b)
        return np.asarray(np.exp(logs), dtype=np.float64)
    if semivalue == "banzhaf":
        return np.full(n, 0.5 ** (n - 1))
    if semivalue == "loo":
        return np.where(sizes == n - 1, 1.0, 0.0)
    return np.array([1 / (n * math.comb(n - 1, size)) for size in range(n)])


def _sample(game: Game, options: GameOptions, progress: bool | None) -> tuple[Floats, Floats, Floats, int]:
    """Values, half-widths of their intervals, sums over the points of each cell, and the number of orders drawn."""
    rng = np.random.default_rng(options.random_state)
    tiles = _kept_tiles(game)
    n, most = game.n_owners, options.n_permutations
    total, squares = np.zeros(n), np.zeros(n)
    cells = np.zeros((game.n_cells, n))
    drawn, half, typical = 0, np.full(n, np.inf), 0.0
    shift: Floats | None = None  # squares of differences from a first guess do not cancel
    with progress_bar("Permutations", most, progress) as advance:
        while drawn < most // 2 and not (half <= options.tolerance * typical).all():
            batch = min(max(FIRST_PAIRS, drawn), most // 2 - drawn)
            forward = rng.permuted(np.tile(np.arange(n), (batch, 1)), axis=1)
            orders = np.stack([forward, forward[:, ::-1]], axis=1).reshape(2 * batch, n)
            found = _marginals(game, tiles, orders)
            cells += found.sum(axis=0)
            values = found.sum(axis=1).reshape(batch, 2, n).mean(axis=1) / game.task.n_val
            shift = values.mean(axis=0) if shift is None else shift
            total += (values - shift).sum(axis=0)
            squares += ((values - shift) ** 2).sum(axis=0)
            drawn += batch
            if drawn > 1:
                variance = np.maximum(squares - total**2 / drawn, 0.0) / (drawn - 1)
                half = stats.t.ppf((1 + CONFIDENCE) / 2, drawn - 1) * np.sqrt(variance / drawn)
            typical = float(np.abs(total / drawn + shift).mean())
            advance(2 * batch)
    mean = total / drawn + (0.0 if shift is None else shift)
    return mean, half, cells / (2 * drawn), 2 * drawn


def _marginals(game: Game, tiles: Callable[[], Any], orders: Longs) -> Floats:
    sums = np.zeros((len(orders), game.n_cells, game.n_owners))
    for lists, cells in tiles():
        add_marginals(lists, game.utility, cells, orders, sums)
    return sums


def _kept_tiles(game: Game) -> Callable[[], Any]:
    """Return what gives the tiles again and again: from memory if they fit."""
    if game.list_bytes * game.task.n_val > KEPT_BYTES:
        return game.tiles
    kept = list(game.tiles())
    return lambda: kept


def _leave_one_out(game: Game, progress: bool | None) -> tuple[Floats, Floats]:
    """Let each owner join last, once: one order per owner."""
    n = game.n_owners
    tiles = _kept_tiles(game)
    sums = np.zeros((game.n_cells, n))
    with progress_bar("Owners", n, progress) as advance:
        for last in range(n):
            order = np.append(np.delete(np.arange(n), last), last)
            sums[:, last] = _marginals(game, tiles, order[None])[0, :, last]
            advance(1)
    return sums.sum(axis=0) / game.task.n_val, sums


def _ends(game: Game) -> tuple[float, float]:
    """Compute the utility of all rows and of none."""
    gained = float(_marginals(game, game.tiles, np.arange(game.n_owners)[None]).sum())
    empty = game.utility.empty
    return empty + gained / game.task.n_val, empty


def _refuse_what_cannot_be_sampled(options: GameOptions, n: int) -> None:
    if options.method == "exact":
        raise InputError(
            f"The 'method' parameter of owner_values is 'exact', which enumerates 2^{n} coalitions for {n} owners; at "
            f"most {MOST_PLAYERS} owners are possible. Use method='sample', or put owners together."
        )
    if options.semivalue != "shapley":
        most = f"from {options.max_players_exact} (up to {MOST_PLAYERS})"
        instead = (
            f"Raise 'max_players_exact' {most}, or use semivalue='shapley'."
            if n <= MOST_PLAYERS
            else "Use semivalue='shapley', which can be sampled, or put owners together."
        )
        raise InputError(
            f"The 'semivalue' parameter of owner_values is {str(options.semivalue)!r}, which is computed exactly only, "
            f"and there are {n} owners. {instead}"
        )
