"""Values from the nearest rows alone, with a bound on what that costs.

The order of far rows hardly matters: c falls towards the far end of its table, and whatever the order there, no value
can change by more than c falls. So the K* nearest rows are found and everything farther is one tie group (the formulas
and the bound are in :mod:`shapshift.kernels.truncated`). K* is the smallest rank from which c falls by no more than
``tol``; for the Shapley value that is the published max(K, 1/tol), or a little less.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from shapshift._clusters import Cluster, active_cluster
from shapshift._parallel import n_workers
from shapshift._warn import warn
from shapshift.checkpoint import Checkpoint
from shapshift.coefficients import RankTable
from shapshift.distances import Rows, TrainingIndex, row_measure, tile_filler, without_row, without_rows
from shapshift.engine import EXACT, WORKER_BYTES, Method, Sums, Task, run_task
from shapshift.list_sums import SAVED_POINTS, ListJob
from shapshift.rowfile import READING_BYTES, RowFile
from shapshift.running import work_off
from shapshift.search import STRIP_ROWS, Lists, Proposals, SearchCache, exact_search, list_room, quick_search

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

# A worker takes this many points at a time: a pass over the training rows serves all of them.
BLOCK_POINTS = SAVED_POINTS
# Points whose lists tell how long lists are, where there is a budget.
PROBED_POINTS = 8
# A task of a cluster has about so many pairs, lest handing it out takes longer than doing it.
UNIT_PAIRS = 2**24
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
    # An index stays where it was built.
    cluster = active_cluster(n_jobs) if scan else None
    reading = READING_BYTES if isinstance(index.rows, RowFile) else 0
    longest = wanted
    if max_memory is not None and task.average_ties and scan:
        # Where features have few distinct values, a list can end with a large share of all rows.
        few = slice(0, min(PROBED_POINTS, task.n_val))
        lists = finder.find(few.start, few.stop, np.empty((few.stop, 0), dtype=np.int64))
        longest = int(np.diff(lists.ends).max())
        del lists
    plan = _make_plan(
        task, wanted, longest, scan, matrix=matrix, n_jobs=n_jobs, max_memory=max_memory, cluster=cluster,
        reading=reading,
    )  # fmt: skip
    totals, kept = work_off(
        ListJob(task, wanted, plan.block, matrix, finder),
        workers=plan.workers,
        wave=plan.wave,
        cluster=cluster,
        unit=plan.unit,
        checkpoint=checkpoint,
        progress=progress,
    )
    sums = totals.spread(kept)
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
    """How the points are cut up: points per block, workers, blocks out at a time, blocks of a cluster's task."""

    block: int
    workers: int
    wave: int
    unit: int


def _make_plan(
    task: Task,
    wanted: int,
    longest: int,
    scan: bool,
    *,
    matrix: bool,
    n_jobs: int | None,
    max_memory: int | None,
    cluster: Cluster | None = None,
    reading: int = 0,
) -> _Plan:
    """Choose block size and number of workers for a memory budget; lists beyond the longest are not foreseen.

    On a cluster the budget holds for every worker alike. ``reading`` is what a worker needs for rows that it reads from
    a file.
    """
    n, m = task.n_train, task.n_val
    row = 8 * n
    per_point = 8 * 5 * longest  # a list: rows, distances, changes, and copies of two of them while it is made
    block = min(BLOCK_POINTS, m)
    n_blocks = -(-m // block)
    workers = min(n_workers(n_jobs) if cluster is None else cluster.workers, n_blocks)
    unit = 1 if cluster is None else min(UNIT_PAIRS // (n * block), n_blocks // (4 * workers))
    wave = max(WAVE_BYTES // (block * per_point * workers), 1) * workers
    if max_memory is not None:
        fixed = row * (2 * task.levels.size + task.n_groups + 4 + (m if matrix else 0))
        fixed += 8 * m * (5 + task.n_nearest) + 16 * task.reference.size
        # Over an index, candidates can be all rows.
        scratch = WORKER_BYTES + reading + (0 if scan else 5 * row)
        scratch += 2 * row if longest > list_room(n, wanted) else 0
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
        here = min(workers if cluster is None else 1, free // (scratch + per_block_point))  # they share the budget
        room = (free // here - scratch) // per_block_point
        if room < block:
            block, unit = 1 << (int(room).bit_length() - 1), 1  # a power of two: see ListJob
        left = free - here * (scratch + block * (per_block_point - per_point))
        wave = max(min(wave, left // (block * per_point)) // here, 1) * here
        workers = here if cluster is None else workers
    return _Plan(block=int(block), workers=int(workers), wave=int(wave), unit=int(max(unit, 1)))
