"""owner_values: the Shapley value of the game in which an owner's rows enter together."""

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special, stats

from shapshift import _validation as check
from shapshift._progress import progress_bar
from shapshift.coefficients import Beta
from shapshift.price._game_kernel import add_coalitions, add_marginals
from shapshift.price._owner_options import check_seed
from shapshift.price._owner_result import OwnerValues
from shapshift.price._players import Game, make_game

Floats = npt.NDArray[np.float64]
Longs = npt.NDArray[np.int64]

SEMIVALUES = ("shapley", "banzhaf", "loo")
CONFIDENCE = 0.95
# 2^22 coalitions take 32 MB per validation group and minutes for a thousand points.
MOST_PLAYERS = 22
# Lists are kept between batches of permutations up to here, and made again beyond.
KEPT_BYTES = 256 * 2**20
# Pairs of permutations in the first batch; each batch doubles the number drawn.
FIRST_PAIRS = 16


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
    found = value_owners(
        model,
        X_val,
        y_val,
        owners,
        method=method,
        semivalue=semivalue,
        max_players_exact=max_players_exact,
        n_permutations=n_permutations,
        tolerance=tolerance,
        random_state=random_state,
        groups=groups,
        progress=progress,
    )
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
    """Do the work of :func:`owner_values`, without its warning: for many calls in a row."""
    _check_arguments(method, semivalue, tolerance)
    check.check_count("owner_values", "max_players_exact", max_players_exact)
    check.check_count("owner_values", "n_permutations", n_permutations, at_least=4)
    seed = check_seed("owner_values", random_state)
    game = make_game(model, X_val, y_val, owners, groups)
    n = game.n_owners
    if n <= MOST_PLAYERS and (method == "exact" or n <= max_players_exact) and method != "sample":
        values, means = _exact(game, semivalue, progress)
        low = high = values
        drawn = 0
    elif semivalue == "loo":
        values, means = _leave_one_out(game, progress)
        low = high = values
        drawn = 0
    else:
        _refuse_what_cannot_be_sampled(method, semivalue, n, max_players_exact)
        values, half, means, drawn = _sample(game, n_permutations, tolerance, seed, progress)
        low, high = values - half, values + half
    full, empty = _ends(game)
    sizes = np.bincount(game.groups, minlength=game.n_cells)
    return OwnerValues(
        owners=game.ownership.names,
        values=values,
        low=low,
        high=high,
        row_counts=game.ownership.counts,
        codes=game.ownership.codes,
        method="sample" if drawn else "exact",
        n_permutations=drawn,
        full=full,
        empty=empty,
        group_means=means / sizes[:, None] if groups is not None else np.empty((0, n)),
        group_names=tuple(game.group_names),
        parameters={
            "method": "owner_values",
            "n_neighbors": game.k,
            "utility": model.utility,
            "semivalue": str(semivalue),
            "metric": model.metric,
            "ties": model.ties,
            "n_train": game.codes.size,
            "n_val": game.n_val,
            "n_classes": len(model.classes_),
            "n_owners": n,
            "tolerance": float(tolerance),
            "confidence": CONFIDENCE,
            "random_state": seed if drawn else None,
        },
        fingerprint=model.fingerprint_,
        kind=model._kind,
    )


def _exact(game: Game, semivalue: str | Beta, progress: bool | None) -> tuple[Floats, Floats]:
    """Values, and sums over the points of each cell."""
    worth = np.zeros((game.n_cells, 2**game.n_owners))
    with progress_bar("Coalitions", game.n_val, progress) as advance:
        for lists, lengths, cells in game.tiles():
            # A few points at a time, so that the bar moves and Ctrl-C is heard.
            step = max(1, 2**22 >> game.n_owners)
            for lo in range(0, len(cells), step):
                part = slice(lo, lo + step)
                add_coalitions(lists[part], lengths[part], game.k, game.soft, game.empty, cells[part], worth)
                advance(len(cells[part]))
    weights = _size_weights(game.n_owners, semivalue)
    sums = np.array([_semivalues(cell, weights) for cell in worth])
    # One cell is the whole set; more are added up coalition by coalition first, as if there were no groups.
    whole = sums[0] if game.n_cells == 1 else _semivalues(worth.sum(axis=0), weights)
    return whole / game.n_val, sums


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


def _sample(
    game: Game, most: int, tolerance: float, seed: int, progress: bool | None
) -> tuple[Floats, Floats, Floats, int]:
    """Values, half-widths of their intervals, sums over the points of each cell, and the number of orders drawn."""
    rng = np.random.default_rng(seed)
    tiles = _kept_tiles(game)
    n, pairs = game.n_owners, most // 2
    total, squares = np.zeros(n), np.zeros(n)
    cells = np.zeros((game.n_cells, n))
    drawn, half, typical = 0, np.full(n, np.inf), 0.0
    shift: Floats | None = None  # squares of differences from a first guess do not cancel
    with progress_bar("Permutations", most, progress) as advance:
        while drawn < pairs and not (half <= tolerance * typical).all():
            batch = min(max(FIRST_PAIRS, drawn), pairs - drawn)
            forward = rng.permuted(np.tile(np.arange(n), (batch, 1)), axis=1)
            orders = np.stack([forward, forward[:, ::-1]], axis=1).reshape(2 * batch, n)
            found = _marginals(game, tiles, orders)
            cells += found.sum(axis=0)
            values = found.sum(axis=1).reshape(batch, 2, n).mean(axis=1) / game.n_val
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
    for lists, lengths, cells in tiles():
        add_marginals(lists, lengths, game.k, game.soft, game.empty, cells, orders, sums)
    return sums


def _kept_tiles(game: Game) -> Callable[[], Any]:
    """Return what gives the tiles again and again: from memory if they fit."""
    if game.list_bytes * game.n_val > KEPT_BYTES:
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
    return sums.sum(axis=0) / game.n_val, sums


def _ends(game: Game) -> tuple[float, float]:
    """Compute the utility of all rows and of none."""
    gained = float(_marginals(game, game.tiles, np.arange(game.n_owners)[None]).sum())
    empty = game.empty if game.soft else 0.0
    return empty + gained / game.n_val, empty


def _check_arguments(method: Any, semivalue: Any, tolerance: Any) -> None:
    check.check_choice("owner_values", "method", method, ("auto", "exact", "sample"))
    if not isinstance(semivalue, Beta):
        check.check_choice("owner_values", "semivalue", semivalue, SEMIVALUES, "a Beta(alpha, beta) object")
    if isinstance(tolerance, bool) or not (isinstance(tolerance, int | float | np.number) and 0 < tolerance < np.inf):
        raise ValueError(
            "The 'tolerance' parameter of owner_values must be a positive number, a part of the mean absolute owner "
            f"value such as 0.05. Got {tolerance!r} instead."
        )


def _refuse_what_cannot_be_sampled(method: str, semivalue: str | Beta, n: int, most: int) -> None:
    if method == "exact":
        raise ValueError(
            f"The 'method' parameter of owner_values is 'exact', which enumerates 2^{n} coalitions for {n} owners; at "
            f"most {MOST_PLAYERS} owners are possible. Use method='sample', or put owners together."
        )
    if semivalue != "shapley":
        raise ValueError(
            f"The 'semivalue' parameter of owner_values is {str(semivalue)!r}, which is computed exactly only, and "
            f"there are {n} owners. "
            + (
                f"Raise 'max_players_exact' from {most} (up to {MOST_PLAYERS}), or use semivalue='shapley'."
                if n <= MOST_PLAYERS
                else "Use semivalue='shapley', which can be sampled, or put owners together."
            )
        )
