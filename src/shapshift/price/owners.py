"""owner_values: the value of each owner in the game in which all its rows enter together."""

import math
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from scipy import special

from shapshift.checks import inputs as check
from shapshift.checks.labels import Ownership, check_owners, owner_column
from shapshift.engine.coefficients import Banzhaf, Beta, Semivalue, check_semivalue, size_probabilities
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
from shapshift.io.archive import Arrays
from shapshift.io.results import Result, to_table
from shapshift.kernels.coalitions import (
    LANES,
    OwnerLists,
    Rules,
    Utility,
    add_leave_one_out,
    add_semivalues,
    add_worth,
    list_owners,
    small_coalitions,
)
from shapshift.knn.shapley import KNNShapley
from shapshift.price.sampling import MOST_BLOCKS, shrunk_errors
from shapshift.sampling_error import half_width

Floats = npt.NDArray[np.float64]
Longs = npt.NDArray[np.int64]

SEMIVALUES = ("shapley", "banzhaf", "loo")
CONFIDENCE = 0.95
# Approximate bytes of distances and lists in a tile of points.
TILE_BYTES = 16 * 2**20
# Numbers of the sums over blocks of points.
BLOCK_SUMS = 2**24
# Nodes are added until the error bound is below this; rounding alone causes about a tenth of it.
CERTIFIED = 1e-13


@dataclass(frozen=True, eq=False, repr=False)
class OwnerValues(Result):
    """Values of owners when all rows of an owner enter together.

    Attributes
    ----------
    owners : tuple
        Owners, in order of first appearance.
    values : ndarray of shape (n_owners,)
        Value of each owner, averaged over the validation points. Shapley values add up to ``full - empty``.
    low, high : ndarray of shape (n_owners,)
        95% confidence interval of the value on the population that the validation points are a sample of. With one
        validation point, the value itself.
    row_counts : ndarray of shape (n_owners,)
        Number of rows of each owner.
    codes : ndarray of shape (n_train,)
        Owner number of each training row.
    full, empty : float
        Utility of all training rows and of none.
    group_means : ndarray of shape (n_groups, n_owners)
        Values per validation group, see ``group_values``.
    group_names : tuple
        Group names in order of first appearance.
    parameters : mapping
        Parameters of the valuation.
    fingerprint : str
        Hash of the training rows and labels.
    kind : str
        Kind of tables, as in the caller's data: "numpy", "pandas", "polars" or "pyarrow".
    standard_error : ndarray of shape (n_owners,) or None
        Standard error of each value due to the sample of points; None with one validation point.
    block_sums, block_sizes : ndarray of shape (n_blocks, n_owners) and (n_blocks,), or None
        Sums over random blocks of validation points, and the number of points in each. Sampling errors are computed
        from them.
    certificate : float
        Computed bound of the quadrature error of any value (mean over all coalition sizes), before rounding; NaN in
        files of release 0.1.0.
    """

    archive_kind: ClassVar[str] = "shapshift.OwnerValues"
    archive_shapes: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("owners", "values", "low", "high", "row_counts", "standard_error"), "n_owners"),
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
    full: float
    empty: float
    group_means: Floats
    group_names: tuple[Any, ...]
    parameters: Mapping[str, Any]
    fingerprint: str
    kind: str = "numpy"
    standard_error: Floats | None = None
    block_sums: Floats | None = None
    block_sizes: npt.NDArray[np.int64] | None = None
    certificate: float = math.nan

    @property
    def group_values(self) -> dict[Any, Floats]:
        """Values per validation group."""
        return dict(zip(self.group_names, self.group_means, strict=True))

    def to_frame(self, kind: str | None = None) -> Any:
        """Tabulate the values.

        Parameters
        ----------
        kind : {"pandas", "polars", "pyarrow"}, optional
            Defaults to the kind of the training table; after NumPy input, pandas if it is installed, else pyarrow.

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

    @classmethod
    def _from_archive(cls, header: dict[str, Any], arrays: Arrays) -> Self:
        if header.get("method") == "sample":
            raise InputError(
                "it holds values that an earlier release sampled from orders of the owners; compute them again with  "
                "owner_values, which is exact"
            )
        return super()._from_archive(header, arrays)

    def plot(self, *, top: int = 20, ax: Any = None) -> Any:
        """Draw the value of each owner with its 95% interval, the highest first; returns the Axes.

        Parameters
        ----------
        top : int, default=20
            Owners to draw.
        ax : Axes, optional
            Where to draw; a new figure by default.
        """
        from shapshift.plots.results import plot_owners

        return plot_owners(self, top=top, ax=ax)

    def __repr__(self) -> str:
        size = f"n_owners={len(self.owners)}, n_train={self.codes.size}"
        return f"OwnerValues({size}, sum={self.values.sum():.4g}, certificate={self.certificate:.1g})"


def owner_values(
    model: Any,
    X_val: Any,
    y_val: Any,
    owners: Any,
    *,
    semivalue: Semivalue = "shapley",
    groups: Any = None,
    progress: bool | None = None,
) -> OwnerValues:
    """Value owners as players, exactly: all rows of an owner enter a coalition together.

    Parameters
    ----------
    model : KNNShapley
        Fitted. Its ``n_neighbors``, ``utility``, ``metric`` and ``ties`` define the utility; its ``semivalue`` is for
        single rows and is not used. Its ``n_jobs`` and ``max_memory`` apply here too, and so does a cluster named by a
        surrounding ``joblib.parallel_config``; none of them changes a value.
    X_val, y_val : table of shape (n_val, n_features), array-like of shape (n_val,)
        The validation set, as in :meth:`shapshift.KNNShapley.value`.
    owners : array-like of shape (n_train,)
        One owner per training row; a pandas Series is matched by its index.
    semivalue : {"shapley", "banzhaf", "loo"}, Beta or Banzhaf, default="shapley"
        Weighting of coalitions.
    groups : array-like of shape (n_val,), optional
        One name per validation point; the result then has values per group too.
    progress : bool, default=None
        Show a progress bar; None shows it in terminals and notebooks only.

    Returns
    -------
    OwnerValues

    Notes
    -----
    Coalitions are neither enumerated nor sampled. Every owner joins with probability q. Its expected contribution is a
    polynomial in q of degree n_owners - 1, computed at the nodes of a Gauss rule for the semivalue's distribution of q.
    About 4 sqrt(n_owners) nodes keep the error below ``certificate``, which is computed, not estimated.

    With one row per owner these are the row values. Values do not depend on names, and, with averaged ties, not on the
    order of the rows, to the last bit; equal owners have equal values. Intervals hold for each owner separately. They
    are estimated from the spread between random blocks of validation points. A few blocks may agree by chance, so
    variances are shrunk towards their mean over the owners, as in :class:`shapshift.SampledShapley`.

    Examples
    --------
    >>> from shapshift import KNNShapley
    >>> from shapshift.price import owner_values
    >>> model = KNNShapley(n_neighbors=1).fit([[0.0], [1.0], [3.0]], ["a", "b", "b"])
    >>> owner_values(model, [[0.9]], ["b"], ["ann", "bob", "bob"]).values.round(3)
    array([-0.25,  0.75])
    """
    return value_owners(model, X_val, y_val, owners, semivalue, groups=groups, progress=progress, errors=True)


def value_owners(
    model: Any,
    X_val: Any,
    y_val: Any,
    owners: Any,
    semivalue: Semivalue,
    *,
    groups: Any = None,
    progress: bool | None = False,
    errors: bool = False,
) -> OwnerValues:
    """Do the work of :func:`owner_values`; ``errors`` requests the sampling error of the points."""
    check_semivalue("owner_values", semivalue, SEMIVALUES)
    game, certificate = _make_game(model, X_val, y_val, owners, groups, semivalue)
    n, n_val = game.n_owners, game.task.n_val
    blocks = min(n_val, MOST_BLOCKS, max(BLOCK_SUMS // (n * game.n_cells), 4)) if errors else 1
    of_point = np.random.default_rng(0).permutation(n_val) % blocks
    groups_of = game.task.groups
    names = tuple(range(game.n_cells * blocks))
    blocked = replace(game, task=replace(game.task, groups=groups_of * blocks + of_point, group_names=names))
    cells = blocked.sums(replace(model._runner(), progress=progress)).reshape(-1, blocks, n + 1)
    sums, full = cells[:, :, :n].sum(axis=1), float(cells[:, :, n].sum()) / n_val
    # Counted in the order of the groups: as if there were none, where there is one.
    values = sums.sum(axis=0) / n_val
    sampled, reach = {}, np.zeros(n)
    if blocks > 1:
        by_block, sizes = cells[:, :, :n].sum(axis=0), np.bincount(of_point)
        error, freedom = shrunk_errors((by_block - sizes[:, None] * values) * (blocks / n_val))
        reach = half_width(error, freedom, CONFIDENCE)
        sampled = {"standard_error": error, "block_sums": by_block, "block_sizes": sizes}
    return OwnerValues(
        owners=game.ownership.names,
        values=values,
        low=values - reach,
        high=values + reach,
        **sampled,
        row_counts=game.ownership.counts,
        codes=game.ownership.codes,
        full=full,
        empty=game.utility.empty,
        group_means=sums / np.bincount(groups_of)[:, None] if groups is not None else np.empty((0, n)),
        group_names=game.task.group_names,
        parameters={
            "method": "owner_values",
            "n_neighbors": int(model.n_neighbors),
            "utility": model.utility,
            "semivalue": str(semivalue),
            "metric": model.metric,
            "ties": model.ties,
            "n_train": game.task.n_train,
            "n_val": n_val,
            "n_classes": game.task.n_classes,
            "n_owners": n,
            "confidence": CONFIDENCE,
            "nodes": 0 if game.rules is None else int(np.count_nonzero(game.rules.weights)),
        },
        fingerprint=model.fingerprint_,
        kind=model._kind,
        certificate=certificate,
    )


@dataclass(frozen=True, eq=False)
class Game:
    """Task of the engine's runner: the validation points, cut into blocks, with owners as players.

    Attributes
    ----------
    task : ClassTask
        Distances, labels and groups.
    ownership : Ownership
        The players.
    utility : Utility
        Utility of coalitions.
    rules : Rules or None
        Nodes of the semivalue; None leaves one owner out at a time.
    small : ndarray of shape (n_classes + 1, n_owners)
        Contribution of coalitions with fewer rows than voters to each owner's value, by the point's label.
    batch : int
        Number of points whose lists a worker builds together.
    """

    task: ClassTask
    ownership: Ownership
    utility: Utility
    rules: Rules | None
    small: Floats
    batch: int = 1
    save_every = 1

    @property
    def n_owners(self) -> int:
        """Number of players."""
        return len(self.ownership.names)

    @property
    def n_cells(self) -> int:
        """Number of groups of points, at least one."""
        return max(self.task.n_groups, 1)

    @property
    def starts(self) -> Longs:
        """Start of each owner's list: at most as many rows as voters can vote."""
        return np.append(0, np.cumsum(np.minimum(self.ownership.counts, self.utility.k)))

    @property
    def block(self) -> int:
        """Number of points in a block; it depends on the data only."""
        return block_points(self.task)

    def sums(self, runner: Runner) -> Floats:
        """Contributions of owners, then the utility of all rows, summed by group of points: (n_cells, n_owners + 1)."""
        cluster, row = runner.cluster(), 8 * (self.n_owners + 1)
        room = int(self.starts[-1])
        seats = min(self.utility.k, room)
        table = 64 * self.n_owners + 64 * room
        if self.rules is not None:
            table += 8 * LANES * seats * (self.n_owners + 2 * seats)
        point = 8 * self.task.n_train + 16 * room + row
        memory = Memory(2 * self.n_cells * row, table, point, min(self.n_cells, self.block) * row)
        batch = min(max(TILE_BYTES // point, 1), self.block)
        best = Plan(self.block, batch, runner.workers(n_blocks(self), cluster), 0)
        try:
            plan = fit_memory(memory, self.task, best, runner.max_memory, cluster)
        except MemoryBudgetError as error:
            what = f"{self.n_owners} owners of {self.task.n_train} training rows and {self.n_cells} groups of points"
            raise MemoryBudgetError(error.least, runner.max_memory or 0, what, "value fewer owners at a time") from None
        found = runner.run(replace(self, batch=plan.batch), plan, cluster)[0].sums
        labels = self.task.targets % (self.task.n_classes + 1)  # the last one was never seen in training
        for label, small in enumerate(self.small):
            points = np.bincount(self.task.groups[labels == label], minlength=self.n_cells)
            if points.any():
                found[:, :-1] += points[:, None] * small
        return found

    def totals(self) -> Totals:
        """Allocate the sums."""
        return Totals((self.n_cells, self.n_owners + 1), 0, n_blocks(self), 1)

    def value(self, block: int, points: Points | None, advance: Callable[[int], None]) -> BlockSums:
        """Add up the points of a block one by one, so that the batch size does not change a bit."""
        here = span(self, range(block, block + 1))
        groups, cells = np.unique(self.task.groups[here], return_inverse=True)
        sums = np.zeros((groups.size, self.n_owners + 1))
        for start in range(here.start, here.stop, self.batch):
            some = slice(start, min(start + self.batch, here.stop))
            lists, into = self.lists(some), cells[start - here.start : some.stop - here.start]
            if self.rules is None:
                add_leave_one_out(lists, self.utility, into, sums)
            else:
                add_semivalues(lists, self.utility, self.rules, into, sums)
            add_worth(lists, self.utility, into, sums)
            advance(some.stop - start)
        return BlockSums(groups, np.zeros(0, dtype=np.int64), sums)

    def value_blocks(self, blocks: range) -> BlockSums:
        """Value one block on a worker of a cluster."""
        here = span(self, blocks)
        part = self.value(blocks.start, None, lambda steps: None)
        return replace(part, points=self.task.points(here.stop - here.start))

    def reuse(self, part: BlockSums) -> None:
        """Reuse nothing."""

    def lists(self, here: slice) -> OwnerLists:
        """List the rows that can vote for some points."""
        task, targets, starts = self.task, self.task.targets[here], self.starts
        tile = np.empty((targets.size, task.n_train))
        task.fill(here, slice(0, task.n_train), tile)
        lists = OwnerLists(np.empty((targets.size, starts[-1], 4), np.int32), np.empty(targets.size, np.int64))
        codes, k = self.ownership.codes, self.utility.k
        list_owners(tile, task.codes, targets, codes, starts, k, task.average_ties, lists)
        return lists


def _make_game(
    model: Any, X_val: Any, y_val: Any, owners: Any, groups: Any, semivalue: Semivalue
) -> tuple[Game, float]:
    """Check the arguments of ``owner_values``; returns the error bound too."""
    expected = "a fitted KNNShapley: owners are valued through its nearest-neighbour utility"
    check.check_type("owner_values", "model", model, KNNShapley, expected)
    model = copy(model)
    model.device, model.semivalue = "cpu", "shapley"  # tiles are computed on the CPU; the semivalue is for single rows
    task = model._prepare(X_val, y_val, groups=groups).task
    ownership, soft = check_owners(owners, model.ids_), model.utility == "soft"
    # A soft vote never has more voters than there are rows; hard votes are divided by K itself.
    k = min(int(model.n_neighbors), task.n_train) if soft else int(model.n_neighbors)
    utility, n = Utility(k, soft, 1 / task.n_classes if soft else 0.0), ownership.counts.size
    small = np.zeros((task.n_classes + 1 if soft else 0, n))
    if semivalue == "loo" or (isinstance(semivalue, Banzhaf) and semivalue.w == 1):
        return Game(task, ownership, utility, None, small[:0]), 0.0
    q, weights, certificate = sizes_rule(n, semivalue)
    places, place_weights, starts, missed = places_rule(task.n_train if task.average_ties else 1, k)
    lanes = -(-q.size // LANES)
    full_q, full_weights = np.full((lanes, LANES), q[-1]), np.zeros((lanes, LANES))
    full_q.ravel()[: q.size], full_weights.ravel()[: q.size] = q, weights
    rules = Rules(full_q, full_weights, places, place_weights, starts)
    if soft:
        small = _small_coalitions(task, ownership, k, rules, float(size_probabilities(n, semivalue)[0]))
    return Game(task, ownership, utility, rules, small), certificate + missed


def _small_coalitions(task: ClassTask, ownership: Ownership, k: int, rules: Rules, nobody: float) -> Floats:
    """Difference between soft and hard utility for coalitions of fewer than K rows, by label of a point."""
    size = np.minimum(ownership.counts, k)
    worth, costs = np.zeros(k + 1), np.zeros((k + 1, k + 1))
    small_coalitions(np.bincount(size, minlength=k + 1), rules, worth, costs)
    found = np.full((task.n_classes + 1, size.size), -nobody / task.n_classes)
    for label in range(task.n_classes):
        matches = np.bincount(ownership.codes[task.codes == label], minlength=size.size)
        of_size = np.bincount(size, matches, k + 1)
        lost = np.zeros(k + 1)
        for n in np.flatnonzero(of_size[:k]):
            lost += of_size[n] * costs[n]
        found[label] += matches * (worth[size] + costs[size, size]) - lost[size]
    return found


@lru_cache(maxsize=8)
def sizes_rule(n_players: int, semivalue: Semivalue) -> tuple[Floats, Floats, float]:
    r"""Nodes and weights for the probability q that a player joins, and a bound of the error of any value.

    A player's expected contribution is :math:`\sum_j B_j(q) u_j` with the Bernstein polynomials of degree n_players - 1
    and u_j, the player's mean contribution to coalitions of j others: between -1 and 1. So the error is at most the sum
    over j of the distance between the rule for :math:`B_j` and its integral, the probability of size j.
    """
    if semivalue == "banzhaf" or isinstance(semivalue, Banzhaf):
        return np.array([getattr(semivalue, "w", 0.5)], dtype=np.float64), np.ones(1), 0.0
    a, b = (float(semivalue.alpha), float(semivalue.beta)) if isinstance(semivalue, Beta) else (1.0, 1.0)
    exact, wanted = -(-n_players // 2), size_probabilities(n_players, semivalue)
    nodes = min(exact, math.ceil(3.5 * math.sqrt(n_players)) + 4)
    while True:
        q, weights = _gauss(nodes, a, b)
        bound = float(np.abs(bernstein_means(q, weights, n_players - 1) - wanted).sum())
        if bound <= CERTIFIED or nodes == exact:
            return q, weights, bound
        nodes = min(exact, math.ceil(1.06 * nodes))


@lru_cache(maxsize=8)
def places_rule(n_rows: int, k: int) -> tuple[Floats, Floats, Longs, float]:
    """Nodes and weights for the position in a tie group, for groups of up to 2, 4, 8, .. rows, and an error bound.

    The bound is relative: it applies to the probability of being among the first K of the largest group. The rule is
    exact for groups of up to 128 rows.
    """
    places, weights, bound = [], [], 0.0
    sizes = [2 << i for i in range(max(n_rows - 1, 0).bit_length())]
    for size in sizes:
        x, w = _gauss(min(size // 2, math.ceil(5 * math.sqrt(size)) + 8), 1.0, 1.0)
        places.append(x)
        weights.append(w)
    if sizes and places[-1].size < sizes[-1] // 2:
        seen = bernstein_means(places[-1], weights[-1], sizes[-1] - 1)[:k]
        bound = float(np.abs(seen * sizes[-1] - 1).mean())
    starts = np.append(0, np.cumsum([x.size for x in places])).astype(np.int64)
    if not sizes:
        return np.empty(0), np.empty(0), starts, 0.0
    return np.concatenate(places), np.concatenate(weights), starts, bound


def _gauss(nodes: int, alpha: float, beta: float) -> tuple[Floats, Floats]:
    """Gauss rule for q of the distribution Beta(beta, alpha), ascending."""
    if not alpha == beta == 1:
        x, weights = special.roots_jacobi(nodes, alpha - 1, beta - 1)
        return (x + 1) / 2, weights / weights.sum()
    # Near 0 the roots have an error of 1e-16, which is too much for large powers of 1 - x: Newton's steps on the
    # polynomial in x = (1 - t) / 2, by its differences, make it relative.
    x = (special.roots_legendre(nodes)[0][: -(-nodes // 2)] + 1) / 2
    for _ in range(2):
        before, here, step = np.ones_like(x), 1 - 2 * x, -2 * x
        for k in range(1, nodes):
            step = (k * step - 2 * (2 * k + 1) * x * here) / (k + 1)
            before, here = here, here + step
        slope = nodes * (before - (1 - 2 * x) * here) / (4 * x * (1 - x))
        x = x + here / (2 * slope)
    weights = 1 / (4 * x * (1 - x) * slope**2)
    half = nodes // 2
    x, weights = np.append(x, 1 - x[:half][::-1]), np.append(weights, weights[:half][::-1])
    return x, weights / weights.sum()


def bernstein_means(q: Floats, weights: Floats, degree: int) -> Floats:
    """Apply a rule to each Bernstein polynomial.

    Binomial probabilities are computed from their ratios, outwards from the largest, and normalised to sum to 1. This
    is more accurate than logarithms of factorials.
    """
    means = np.zeros(degree + 1)
    for x, weight in zip(q, weights, strict=True):
        top = min(int((degree + 1) * x), degree)
        reach = int(14 * math.sqrt(degree * x * (1 - x))) + 80
        down, up = np.arange(top, max(top - reach, 0), -1), np.arange(top, min(top + reach, degree))
        below = np.cumprod(down / (degree - down + 1) * ((1 - x) / x))
        above = np.cumprod((degree - up) / (up + 1) * (x / (1 - x)))
        chance = np.concatenate([below[::-1], [1.0], above])
        means[top - down.size : top + up.size + 1] += weight * (chance / chance.sum())
    return means
