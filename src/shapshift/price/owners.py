"""owner_values: what each owner is worth in the game in which all its rows enter together."""

import math
import warnings
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy import special, stats

from shapshift._progress import progress_bar
from shapshift.checks import inputs as check
from shapshift.checks.labels import Ownership, check_owners, owner_column
from shapshift.engine.coefficients import Beta
from shapshift.engine.estimate import Estimate, Observations
from shapshift.engine.runner import (
    BlockSums,
    Memory,
    MemoryBudgetError,
    Plan,
    Runner,
    Totals,
    block_points,
    fit_memory,
    n_blocks,
    span,
)
from shapshift.engine.tasks import ClassTask, Points
from shapshift.exceptions import InputError
from shapshift.io.results import Result, to_table
from shapshift.kernels.coalitions import OwnerLists, Utility, add_coalitions, add_marginals, list_owners
from shapshift.knn.shapley import KNNShapley
from shapshift.price.sampling import MOST_BLOCKS, shrunk_errors
from shapshift.sampling_error import half_width

Floats = npt.NDArray[np.float64]
Longs = npt.NDArray[np.int64]

SEMIVALUES = ("shapley", "banzhaf", "loo")
CONFIDENCE = 0.95
# 2^22 coalitions take 32 MB per validation group and minutes for a thousand points.
MOST_PLAYERS = 22
# Coalitions of all points of a block.
BLOCK_COALITIONS = 2**22
# Approximate bytes of distances and lists in a tile of points.
TILE_BYTES = 16 * 2**20
# Lists are kept up to here, and made again for every batch of orders beyond.
KEPT_BYTES = 256 * 2**20
# Numbers of all coalitions in blocks of points; with drawn orders, of about 512 of them.
BLOCK_SUMS = 2**24
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
        95% confidence interval of the value on the population that the validation points are a sample of; for sampled
        values with the error of drawing orders. With one validation point, for the orders alone.
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
    standard_error : ndarray of shape (n_owners,) or None
        Of each value, for the sample of points and the orders that were drawn; None with one validation point.
    order_widths : ndarray of shape (n_owners,) or None
        Half the width of a 95% interval for the orders that were drawn alone; 0 when the values are exact.
    block_sums, block_sizes : ndarray of shape (n_blocks, n_owners) and (n_blocks,), or None
        Sums over random blocks of validation points, and their numbers of points: what sampling errors are made of.
    """

    archive_kind: ClassVar[str] = "shapshift.OwnerValues"
    archive_shapes: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("owners", "values", "low", "high", "row_counts"), "n_owners"),
        **dict.fromkeys(("standard_error", "order_widths"), "n_owners"),
        "block_sums": "n_blocks n_owners",
        "block_sizes": "n_blocks",
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
    standard_error: Floats | None = None
    order_widths: Floats | None = None
    block_sums: Floats | None = None
    block_sizes: npt.NDArray[np.int64] | None = None

    @property
    def half_width(self) -> float:
        """Half the width of the widest interval for the orders that were drawn; 0 when the values are exact."""
        widths = (self.high - self.low) / 2 if self.order_widths is None else self.order_widths
        return float(widths.max())

    @property
    def converged(self) -> bool:
        """Whether the orders that were drawn suffice for the ``tolerance`` of :func:`owner_values`."""
        return self.half_width == 0 or self.relative_half_width <= self.parameters["tolerance"]

    @property
    def relative_half_width(self) -> float:
        """As :attr:`half_width`, as a part of the mean absolute value of an owner."""
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
    def check(cls, caller: str, options: Any, basis: str) -> "GameOptions":
        """Check the ``owner_options`` of the function ``owner``; None means none."""
        options = {} if options is None else options
        check.check_type(caller, "owner_options", options, Mapping, "a mapping such as {'random_state': 1}")
        said, names = f"The 'owner_options' parameter of {caller}", [field.name for field in fields(cls)]
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
        of single rows and is not used. Its ``n_jobs`` and ``max_memory`` count here too, as does a cluster that a
        surrounding ``joblib.parallel_config`` names; none of them changes a value.
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
    to the last bit. Sampled ones add up to the same total exactly. Intervals hold for each owner alone. They come from
    the spread between random blocks of validation points, and for sampled values also from that between pairs of orders
    (Student's t). A few blocks or pairs may agree about an owner by chance, so variances are drawn towards their mean
    over the owners, as in :class:`shapshift.SampledShapley`.

    Examples
    --------
    >>> from shapshift import KNNShapley
    >>> from shapshift.price import owner_values
    >>> model = KNNShapley(n_neighbors=1).fit([[0.0], [1.0], [3.0]], ["a", "b", "b"])
    >>> owner_values(model, [[0.9]], ["b"], ["ann", "bob", "bob"]).values.round(3)
    array([-0.25,  0.75])
    """
    options = GameOptions(method, semivalue, max_players_exact, n_permutations, tolerance, random_state)
    found = value_owners(model, X_val, y_val, owners, options, groups=groups, progress=progress, errors=True)
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
    errors: bool = False,
) -> OwnerValues:
    """Do the work of :func:`owner_values`, without its warning: for many calls in a row.

    ``errors`` says whether the sampling error of the validation points is wanted.
    """
    game = _make_game(model, X_val, y_val, owners, groups)
    n, semivalue = game.n_owners, options.semivalue
    most = {"exact": MOST_PLAYERS, "auto": min(options.max_players_exact, MOST_PLAYERS), "sample": 0}[options.method]
    if n > most and semivalue != "loo":
        _refuse_what_cannot_be_sampled(options, n)
    if errors and game.task.n_val > 1:
        game = _in_blocks(game, n <= most)
    runner = replace(model._runner(), progress=progress)
    gain = float(game.sums(replace(runner, progress=False), np.arange(n)[None]).sum()) / game.task.n_val
    half, drawn = np.zeros(n), 0
    by_block: Floats
    if n <= most:
        values, sums, by_block = _exact(game, semivalue, runner)
    elif semivalue == "loo":
        values, sums = _leave_one_out(game, runner)
    else:
        values, half, sums, drawn = _sample(game, options, gain, runner)
    if n > most:
        cells = sums.reshape(-1, game.n_blocks, n)
        sums, by_block = cells.sum(axis=1), cells.sum(axis=0)
    sizes = np.bincount(game.task.groups, minlength=game.n_cells).reshape(-1, game.n_blocks)
    error, reach, sampled = half / stats.t.ppf((1 + CONFIDENCE) / 2, np.inf), half, {}
    if game.n_blocks > 1:
        off = (by_block - sizes.sum(axis=0)[:, None] * values) * (game.n_blocks / game.task.n_val)
        of_points, freedom = shrunk_errors(off)
        error = np.hypot(of_points, error)
        reach = np.hypot(half_width(of_points, freedom, CONFIDENCE), half)
        sampled = {"standard_error": error, "block_sums": by_block, "block_sizes": sizes.sum(axis=0)}
    sizes = sizes.sum(axis=1)
    return OwnerValues(
        owners=game.ownership.names,
        values=values,
        low=values - reach,
        high=values + reach,
        order_widths=half,
        **sampled,
        row_counts=game.ownership.counts,
        codes=game.ownership.codes,
        method="sample" if drawn else "exact",
        n_permutations=drawn,
        full=game.utility.empty + gain,
        empty=game.utility.empty,
        group_means=sums / sizes[:, None] if groups is not None else np.empty((0, n)),
        group_names=game.group_names,
        parameters={
            "method": "owner_values",
            "n_neighbors": game.utility.k,
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


@dataclass(frozen=True, eq=False)
class Game:
    """The validation points as the owners see them, cut into blocks for the engine's runner.

    Attributes
    ----------
    task : ClassTask
        Distances, labels and groups.
    ownership : Ownership
        The players.
    utility : Utility
        What coalitions are worth.
    orders : ndarray of shape (n_orders, n_owners) or None
        Orders in which the owners join: what each brings is summed up. None sums up the worth of all coalitions.
    batch : int
        Points whose lists a worker makes together.
    kept : dict or None
        Lists that were made already; None where they are too large to be kept.
    n_blocks : int
        Random blocks of points: the groups of the task are then blocks within validation groups.
    group_names : tuple
        Of the validation groups.
    """

    task: ClassTask
    ownership: Ownership
    utility: Utility
    orders: Longs | None = None
    batch: int = 1
    kept: dict[tuple[int, int], OwnerLists] | None = None
    n_blocks: int = 1
    group_names: tuple[Any, ...] = ()
    save_every = 1

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "kept": None}  # workers of a cluster make lists of their own

    @property
    def n_owners(self) -> int:
        """Number of players."""
        return len(self.ownership.names)

    @property
    def n_cells(self) -> int:
        """Number of validation groups, at least one."""
        return max(self.task.n_groups, 1)

    @property
    def list_shape(self) -> tuple[int, int, int]:
        """Shape of one point's lists: no more rows of an owner than voters can ever vote."""
        return self.n_owners, min(self.utility.k, self.task.n_train), 3

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the sums."""
        n = self.n_owners
        return (self.n_cells, 2**n) if self.orders is None else (len(self.orders), self.n_cells, n)

    @property
    def block(self) -> int:
        """Points of a block: it depends on the data alone. All coalitions of a block take about a second at most."""
        return min(block_points(self.task), max(1, BLOCK_COALITIONS >> min(self.n_owners, MOST_PLAYERS)))

    def sums(self, runner: Runner, orders: Longs | None = None) -> Floats:
        """Sum up what all coalitions are worth, or what owners bring in the given orders."""
        game, cluster = replace(self, orders=orders), runner.cluster()
        lists, size = 4 * math.prod(self.list_shape), 8 * math.prod(game.shape)
        kept = 0 if self.kept is None else lists * self.task.n_val
        memory = Memory(size + kept, 0, 8 * self.task.n_train + lists, size)
        batch = min(max(TILE_BYTES // memory.point, 1), self.block)
        best = Plan(self.block, batch, runner.workers(n_blocks(self), cluster), 0)
        try:
            plan = fit_memory(memory, self.task, best, runner.max_memory, cluster)
        except MemoryBudgetError as error:
            what = f"{self.n_owners} owners of {self.task.n_train} training rows and {self.n_cells} groups of points"
            raise MemoryBudgetError(error.least, runner.max_memory or 0, what, "value fewer owners at a time") from None
        return runner.run(replace(game, batch=plan.batch), plan, cluster)[0].sums.reshape(game.shape)

    def totals(self) -> Totals:
        """Allocate the sums."""
        return Totals((1, math.prod(self.shape)), 0, n_blocks(self), 1)

    def value(self, block: int, points: Points | None, advance: Callable[[int], None]) -> BlockSums:
        """Add up the points of a block, one after the other: the size of batches changes no bit."""
        sums, here = np.zeros(self.shape), span(self, range(block, block + 1))
        for start in range(here.start, here.stop, self.batch):
            some = slice(start, min(start + self.batch, here.stop))
            lists, cells = self.lists(some), self.task.groups[some]
            if self.orders is None:
                add_coalitions(lists, self.utility, cells, sums)
            else:
                add_marginals(lists, self.utility, cells, self.orders, sums)
            advance(some.stop - start)
        return BlockSums(np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.int64), sums.reshape(1, -1))

    def value_blocks(self, blocks: range) -> BlockSums:
        """Value one block on a worker of a cluster."""
        here = span(self, blocks)
        part = self.value(blocks.start, None, lambda steps: None)
        return replace(part, points=self.task.points(here.stop - here.start))

    def reuse(self, part: BlockSums) -> None:
        """Use nothing again."""

    def lists(self, here: slice) -> OwnerLists:
        """Make the owners' lists for some points."""
        task, targets, key = self.task, self.task.targets[here], (here.start, here.stop)
        if self.kept is not None and key in self.kept:
            return self.kept[key]
        tile = np.empty((targets.size, task.n_train))
        task.fill(here, slice(0, task.n_train), tile)
        entries = np.empty((targets.size, *self.list_shape), dtype=np.int32)
        lists = OwnerLists(entries, np.empty(entries.shape[:2], dtype=np.int32))
        list_owners(tile, task.codes, targets, self.ownership.codes, self.utility.k, task.average_ties, lists)
        if self.kept is not None:
            self.kept[key] = lists
        return lists


def _make_game(model: Any, X_val: Any, y_val: Any, owners: Any, groups: Any) -> Game:
    """Check what was given to ``owner_values``."""
    expected = "a fitted KNNShapley: owners are valued through its nearest-neighbour utility"
    check.check_type("owner_values", "model", model, KNNShapley, expected)
    model = copy(model)
    model.device, model.semivalue = "cpu", "shapley"  # tiles are made there; the semivalue is that of single rows
    task = model._prepare(X_val, y_val, groups=groups).task
    soft = model.utility == "soft"
    utility = Utility(int(model.n_neighbors), soft, 1 / task.n_classes if soft else 0.0)
    game = Game(task, check_owners(owners, model.ids_), utility, group_names=task.group_names)
    most = min(KEPT_BYTES, (model._runner().max_memory or np.inf) / 4)
    return replace(game, kept={}) if 4 * math.prod(game.list_shape) * task.n_val <= most else game


def _in_blocks(game: Game, exact: bool) -> Game:
    """Sum up random blocks of points apart: as many as tell a variance well, and as sums have room for."""
    task, n = game.task, game.n_owners
    room = BLOCK_SUMS >> n if exact else BLOCK_SUMS // (512 * n)
    blocks = min(task.n_val, MOST_BLOCKS, max(room // game.n_cells, 4))
    of_point = np.random.default_rng(0).permutation(task.n_val) % blocks
    cells = replace(task, groups=task.groups * blocks + of_point, group_names=tuple(range(game.n_cells * blocks)))
    return replace(game, task=cells, n_blocks=blocks)


def _exact(game: Game, semivalue: str | Beta, runner: Runner) -> tuple[Floats, Floats, Floats]:
    """Values, sums over the points of each validation group, and over those of each block."""
    cells = game.sums(runner).reshape(-1, game.n_blocks, 2**game.n_owners)
    weights, worth = _size_weights(game.n_owners, semivalue), cells.sum(axis=1)
    sums = np.array([_semivalues(group, weights) for group in worth])
    # One group is the whole set; more are added up coalition by coalition first, as if there were no groups.
    whole = sums[0] if len(sums) == 1 else _semivalues(worth.sum(axis=0), weights)
    by_size = weights[np.bitwise_count(np.arange(2 ** (game.n_owners - 1)))]
    blocks = cells.sum(axis=0)
    by_block = np.empty((game.n_blocks, game.n_owners))
    for player in range(game.n_owners):
        split = blocks.reshape(game.n_blocks, -1, 2, 2**player)
        by_block[:, player] = np.einsum("bc,c->b", (split[:, :, 1] - split[:, :, 0]).reshape(len(blocks), -1), by_size)
    return whole / game.task.n_val, sums, by_block


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


def _sample(game: Game, options: GameOptions, gain: float, runner: Runner) -> tuple[Floats, Floats, Floats, int]:
    """Values, half-widths of their intervals, sums over the points of each cell, and the number of orders drawn."""
    rng, quiet = np.random.default_rng(options.random_state), replace(runner, progress=False)
    n, most = game.n_owners, options.n_permutations // 2
    # A few pairs may be alike by chance: expected is the mean square where one owner makes the whole difference.
    estimate = Estimate(np.ones(1), np.full(game.n_cells, 1 / game.task.n_val), n, gain**2 / (2 * n))
    half, values = np.full(n, np.inf), np.zeros(n)
    with progress_bar("Permutations", 2 * most, runner.progress) as advance:
        while estimate.rounds < most and not (half <= options.tolerance * np.abs(values).mean()).all():
            batch = min(max(FIRST_PAIRS, estimate.rounds), most - estimate.rounds)
            forward = rng.permuted(np.tile(np.arange(n), (batch, 1)), axis=1)
            orders = np.stack([forward, forward[:, ::-1]], axis=1).reshape(2 * batch, n)
            for pair in game.sums(quiet, orders).reshape(batch, 2, game.n_cells, n).mean(axis=1):
                estimate.add(Observations(pair.T, np.zeros(n, dtype=np.int64)))
            values, (error, freedom) = estimate.values(), estimate.standard_error()
            half = stats.t.ppf((1 + CONFIDENCE) / 2, freedom) * error
            advance(2 * batch)
    return values, half, estimate.cells().T, 2 * estimate.rounds


def _leave_one_out(game: Game, runner: Runner) -> tuple[Floats, Floats]:
    """Let each owner join last, once: one order per owner, some of them together."""
    n, quiet = game.n_owners, replace(runner, progress=False)
    sums = np.zeros((game.n_cells, n))
    room = TILE_BYTES if runner.max_memory is None else min(TILE_BYTES, runner.max_memory // 8)
    size = max(1, room // (8 * n * game.n_cells))
    with progress_bar("Owners", n, runner.progress) as advance:
        for first in range(0, n, size):
            last = np.arange(first, min(first + size, n))
            orders = np.array([np.append(np.delete(np.arange(n), owner), owner) for owner in last])
            sums[:, last] = game.sums(quiet, orders)[np.arange(last.size), :, last].T
            advance(last.size)
    return sums.sum(axis=0) / game.task.n_val, sums


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
