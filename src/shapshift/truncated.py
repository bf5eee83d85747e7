"""Values from the nearest rows alone, with a bound on what that costs.

The order of far rows hardly matters: c falls towards the far end of its table, and whatever the order there, no value
can change by more than c falls. So the K* nearest rows are found and everything farther is one tie group (the formulas
and the bound are in :mod:`shapshift.kernels.truncated`). K* is the smallest rank from which c falls by no more than
``tol``; for the Shapley value that is the published max(K, 1/tol), or a little less.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from shapshift._parallel import n_workers, thread_pool
from shapshift._progress import progress_bar
from shapshift._warn import warn
from shapshift.boundary import nearest_level
from shapshift.checkpoint import Checkpoint
from shapshift.coefficients import RankTable
from shapshift.distances import Rows, TrainingIndex, row_measure, tile_filler, without_row, without_rows
from shapshift.engine import EXACT, WORKER_BYTES, Method, Neighborhood, Sums, Task, bases, run_task
from shapshift.kernels.truncated import add_bounds, add_points, truncated_values, whole_rows
from shapshift.rowfile import READING_BYTES, RowFile
from shapshift.search import STRIP_ROWS, Lists, Proposals, Search, SearchCache, exact_search, list_room, quick_search

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

# A worker takes this many points at a time: a pass over the training rows serves all of them.
BLOCK_POINTS = 64
# Where this share of the rows is needed, sorting all of them is no more work, and exact.
SORT_SHARE = 1 / 16
# Finished lists are added up when they take about this much.
WAVE_BYTES = 64 * 2**20


@dataclass(frozen=True)
class Truncated:
    """What a truncated valuation returns.

    Attributes
    ----------
    sums : Sums
    error_bound : ndarray of shape (n_train,)
        Of the mean over all validation points.
    told : dict
        How it was made, for the parameters of the result.
    """

    sums: Sums
    error_bound: Floats
    told: dict[str, Any]


def ranks_needed(table: RankTable, tol: float) -> int:
    """K*: the fewest nearest rows that keep every error within ``tol``.

    Examples
    --------
    >>> from shapshift.coefficients import rank_table
    >>> [ranks_needed(rank_table(1_000_000, 5, name, "soft"), 0.01) for name in ("shapley", "banzhaf", "loo")]
    [100, 17, 6]
    """
    # Rounding can leave a table that does not fall everywhere; the running maximum from the far end does.
    falls = np.maximum.accumulate(table.c[::-1])[::-1] - table.c[-1]
    return int(np.argmax(falls <= tol)) + 1


def run_truncated(
    task: Task,
    index: TrainingIndex,
    points: Rows,
    cache: SearchCache,
    *,
    tol: float,
    search: str,
    excluded: Indices | None = None,
    matrix: bool,
    n_jobs: int | None,
    max_memory: int | None,
    progress: bool | None,
    method: Method = EXACT,
    checkpoint: Checkpoint | None = None,
) -> Truncated:
    """Value a task from the nearest rows alone.

    Parameters
    ----------
    task : Task
    index, points
        What the task's distances are between.
    cache : SearchCache
        Indexes that were built for these training rows.
    tol : float
        Largest error of a value on any validation point, in units of the utility.
    search : {"exact", "ann", "lsh"}
    excluded : ndarray of shape (n_val,), optional
        The training row that each point does not see, -1 for none; the task's distances know of them already.
    matrix, n_jobs, max_memory, progress, method, checkpoint
        As in :func:`shapshift.engine.run_task`.
    """
    wanted = max(ranks_needed(task.table, tol), task.depth, task.n_nearest)
    told = {"exact_ranks": wanted, "search": search}
    if wanted >= SORT_SHARE * task.n_train:
        sums = run_task(
            task,
            method=method,
            matrix=matrix,
            n_jobs=n_jobs,
            max_memory=max_memory,
            progress=progress,
            checkpoint=checkpoint,
        )
        return Truncated(sums, np.zeros(task.n_train), {**told, "exact_ranks": task.n_train})
    proposals, table, notes = _ask_index(index, points, cache, search, wanted)
    scan = proposals is None
    reading = READING_BYTES if isinstance(index.rows, RowFile) else 0
    plan = _make_plan(task, wanted, scan, matrix=matrix, n_jobs=n_jobs, max_memory=max_memory, reading=reading)
    if proposals is None:
        finder = exact_search(task.fill, task.n_train, wanted, whole_ties=task.average_ties)
    else:
        measure = row_measure(index, points, table)
        if excluded is not None:
            measure = without_row(measure, excluded)

        def exact_lists(which: Indices, reference: Indices) -> Lists:
            fill = tile_filler(index, points[which])
            if excluded is not None:
                fill = without_rows(fill, excluded[which])
            search_all = exact_search(fill, task.n_train, wanted, whole_ties=task.average_ties)
            return search_all.find(0, which.size, reference)

        finder = quick_search(proposals, measure, exact_lists, task.n_train, task.n_val, wanted)
    sums = _add_up(task, finder, plan, matrix=matrix, progress=progress)
    report = {**notes, **finder.report()}
    return Truncated(sums, sums.bounds[0] / task.n_val, {**told, "search_report": report} if report else told)


def _ask_index(
    index: TrainingIndex, points: Rows, cache: SearchCache, search: str, wanted: int
) -> tuple[Proposals | None, Floats | None, dict[str, Any]]:
    """Return an index's proposals, None where all rows have to be looked at; its row-wise table; what there is to note.

    The index is made if it is not there yet.
    """
    # Where all rows are equal every distance is too, and an index is of no use.
    if search == "exact" or index.constant:
        return None, None, {}
    if isinstance(index.rows, RowFile):
        raise ValueError(
            f"The 'search' parameter must be 'exact' for training rows that stay in a file. Got {search!r} instead. "
            "Load the rows to build an index."
        )
    if search == "ann":
        if sparse.issparse(index.rows):
            raise TypeError(
                "The 'search' parameter must be 'exact' or 'lsh' for sparse training rows. Got 'ann' instead. Fit "
                "dense rows (X.toarray()), or use another search."
            )
        from shapshift.search.ann import ann_proposals, build_ann

        ann = cache.get("ann", lambda: build_ann(index))
        return ann_proposals(ann, cache, index, points, wanted), ann.table, {}
    from shapshift.search.lsh import build_lsh, lsh_proposals, plan_lsh

    shape = cache.get(("lsh shape", wanted), lambda: plan_lsh(index, wanted))
    notes = {"relative_contrast": shape.contrast}
    if shape.cost >= 1:
        warn(
            f"search='lsh' looks at all rows here, as search='exact' does: hashing would take {shape.cost:.2g} times "
            f"that work, because typical rows are only {shape.contrast:.2g} times as far as the {wanted} nearest ones "
            f"among {index.n_rows}."
        )
        return None, None, {**notes, "index": "none"}
    lsh = cache.get(("lsh", wanted), lambda: build_lsh(index, shape))
    return lsh_proposals(lsh, index, points, wanted), lsh.table, notes


def check_search(owner: str, search: str, method: str, metric: str) -> None:
    """Refuse an index where there is no use for one."""
    reason = ""
    if method != "truncated":
        reason = f"with method={method!r}, which looks at all rows. Choose method='truncated' for an index"
    elif metric == "precomputed":
        reason = "with metric='precomputed', where there are no features to index"
    if reason:
        raise ValueError(f"The 'search' parameter of {owner} must be 'exact' {reason}. Got {search!r} instead.")


@dataclass(frozen=True)
class _Plan:
    """How the points are cut up: points per block, workers, blocks that are out at a time."""

    block: int
    workers: int
    wave: int


@dataclass(frozen=True)
class _Valued:
    """A few valued points."""

    ends: Indices
    rows: Indices
    changes: Floats
    tails: Floats
    bounds: Floats


def _add_up(task: Task, finder: Search, plan: _Plan, *, matrix: bool, progress: bool | None) -> Sums:
    n_levels, n_train, n_classes = task.levels.size, task.n_train, task.n_classes
    sums = np.zeros((n_levels + task.n_groups, n_train))
    others, extras = np.zeros(sums.shape[0]), np.zeros((sums.shape[0], n_classes))
    bound, bound_others, bound_extras = np.zeros(n_train), np.zeros(1), np.zeros(n_classes)
    entropy = np.empty(task.n_val)
    nearest = np.empty((task.n_val, task.n_nearest), dtype=np.int64)
    ranks = np.empty(task.reference.shape)
    values = np.empty((task.n_val, n_train)) if matrix else None
    value = _valuer(task, finder, entropy, nearest, ranks, values)
    blocks = [slice(start, min(start + plan.block, task.n_val)) for start in range(0, task.n_val, plan.block)]
    with thread_pool(plan.workers) as map_in_order, progress_bar("Valuing", task.n_val, progress) as advance:
        for first in range(0, len(blocks), plan.wave):
            wave = blocks[first : first + plan.wave]
            # Added up here, in the order of the points: the workers' order must not change a bit.
            for block, valued in zip(wave, map_in_order(value, wave), strict=True):
                targets = task.targets[block]
                cells = nearest_level(entropy[block], task.levels)
                for into in (cells, n_levels + task.groups[block]) if task.n_groups else (cells,):
                    add_points(
                        valued.ends, valued.rows, valued.changes, valued.tails, targets, into, sums, others, extras
                    )
                add_bounds(
                    valued.ends, valued.rows, task.codes, targets, valued.bounds, bound, bound_others, bound_extras
                )
                advance(block.stop - block.start)
    for cell in range(sums.shape[0]):
        sums[cell] += (others[cell] + extras[cell])[task.codes]
    bound += (bound_others + bound_extras)[task.codes]
    np.maximum(bound, 0.0, out=bound)  # what was taken off again may leave less than nothing
    counts = np.bincount(nearest_level(entropy, task.levels), minlength=n_levels)
    neighborhood = Neighborhood(nearest, ranks if task.reference.size else None)
    return Sums(
        levels=sums[:n_levels],
        level_counts=counts,
        groups=sums[n_levels:],
        bounds=bound[None, :],
        entropy=entropy,
        matrix=None if values is None else values.T,
        neighborhood=neighborhood,
    )


def _valuer(
    task: Task, finder: Search, entropy: Floats, nearest: Indices, ranks: Floats, values: Floats | None
) -> Callable[[slice], _Valued]:
    """Return the function that values a block; blocks write disjoint slices of what is kept of each point."""
    starts = bases(task, task.targets)
    beyond = np.append(np.cumsum(task.table.c[::-1])[::-1], 0.0)

    def value(block: slice) -> _Valued:
        targets = task.targets[block]
        lists = finder.find(block.start, block.stop, task.reference[block])
        tails, bounds = np.empty((targets.size, 2)), np.empty((targets.size, 3))
        changes = np.empty(lists.rows.size)
        truncated_values(
            lists.ends, lists.rows, lists.distances, lists.certain, task.codes, targets, task.class_sizes,
            task.table.c, beyond, starts[block], task.average_ties, task.depth, np.zeros(task.n_classes), tails, bounds,
            entropy[block], changes,
        )  # fmt: skip
        nearest[block] = lists.rows[lists.ends[:-1, None] + np.arange(task.n_nearest)]
        ranks[block] = lists.ranks
        if values is not None:
            whole_rows(lists.ends, lists.rows, changes, tails, task.codes, targets, values[block])
        return _Valued(lists.ends, lists.rows, changes, tails, bounds)

    return value


def _make_plan(
    task: Task,
    wanted: int,
    scan: bool,
    *,
    matrix: bool,
    n_jobs: int | None,
    max_memory: int | None,
    reading: int = 0,
) -> _Plan:
    """Choose block size and number of workers for a memory budget; ties beyond the wanted rows are not foreseen.

    ``reading`` is what a worker needs for rows that it reads from a file.
    """
    n, m = task.n_train, task.n_val
    row = 8 * n
    per_point = 8 * 5 * wanted  # a list: rows, distances, changes, and copies of two of them while it is made
    block = min(BLOCK_POINTS, m)
    workers = min(n_workers(n_jobs), -(-m // block))
    wave = max(WAVE_BYTES // (block * per_point * workers), 1) * workers
    if max_memory is not None:
        fixed = row * (2 * task.levels.size + task.n_groups + 4 + (m if matrix else 0))
        fixed += 8 * m * (5 + task.n_nearest) + 16 * task.reference.size
        # Over an index, candidates can be all rows.
        scratch = WORKER_BYTES + reading + (0 if scan else 5 * row)
        search_point = 8 * STRIP_ROWS + 16 * list_room(n, wanted)
        per_block_point = 2 * per_point + search_point  # in work, and in the wave
        # A sixteenth is left to the allocator, which keeps freed pieces that it cannot use again.
        free = max_memory * 15 // 16 - fixed
        if free < scratch + per_block_point:
            least = -(-16 * (fixed + scratch + per_block_point) // 15)
            raise ValueError(
                f"The 'max_memory' parameter must be at least {np.ceil(least / 1e5) / 10:.1f}MB for {n} training rows, "
                f"{m} validation points, {task.n_groups} groups and matrix={matrix}. Got {max_memory / 1e6:.4g}MB "
                "instead. Raise it, or value fewer groups at a time."
            )
        workers = min(workers, free // (scratch + per_block_point))
        block = min(block, (free // workers - scratch) // per_block_point)
        left = free - workers * (scratch + block * (per_block_point - per_point))
        wave = max(min(wave, left // (block * per_point)) // workers, 1) * workers
    return _Plan(block=int(block), workers=int(workers), wave=int(wave))
