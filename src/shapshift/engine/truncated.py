"""Values from the nearest rows alone, with a bound on the error.

The order of far rows hardly matters: c falls towards the far end of its table, and no order of the far rows changes a
value by more than c falls among them. So the K* nearest rows are found, and all farther rows are one tie group (the
formulas and the bound are in :mod:`shapshift.kernels.truncated`). K* is the smallest rank from which c falls by at most
``tol``; for the Shapley value that is the published max(K, 1/tol), or a little less.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from shapshift.checks.warnings import warn
from shapshift.engine.clusters import Cluster
from shapshift.engine.coefficients import RankTable
from shapshift.engine.exact import Exact
from shapshift.engine.lists import SAVED_POINTS, ListJob
from shapshift.engine.rows.distances import Rows, TrainingIndex, tile_filler, without_row, without_rows
from shapshift.engine.rows.file import READING_BYTES
from shapshift.engine.runner import WORKER_BYTES, Memory, Plan, Runner, end_bytes, fit_memory
from shapshift.engine.search import (
    STRIP_ROWS,
    FitCache,
    Lists,
    Proposals,
    Search,
    exact_search,
    graph_search,
    list_room,
    quick_search,
)
from shapshift.engine.tasks import ClassTask, Sums
from shapshift.exceptions import InputError

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

# Number of points that a worker handles together: a pass over the training rows serves all of them.
BLOCK_POINTS = SAVED_POINTS
# Number of points whose lists are measured to estimate list lengths for a memory budget.
PROBED_POINTS = 8
# Number of pairs of a cluster's task; smaller tasks would take longer to submit than to run.
UNIT_PAIRS = 2**24
# If at least this share of the rows is needed, sorting all of them is no more work, and exact.
SORT_SHARE = 1 / 16


def ranks_needed(table: RankTable, tol: float) -> int:
    """K*: the fewest nearest rows that keep every error within ``tol``.

    Examples
    --------
    >>> from shapshift.engine.coefficients import rank_table
    >>> [ranks_needed(rank_table(1_000_000, 5, name, "soft"), 0.01) for name in ("shapley", "banzhaf", "loo")]
    [100, 17, 6]
    """
    # Rounding errors can make a table rise; the running maximum from the far end never does.
    falls = np.maximum.accumulate(table.c[::-1])[::-1] - table.c[-1]
    return int(np.argmax(falls <= tol)) + 1


def truncated_sums(
    exact: Exact,
    index: TrainingIndex,
    points: Rows,
    cache: FitCache,
    *,
    tol: float,
    search: str,
    excluded: Indices | None,
    runner: Runner,
) -> Sums:
    """Value a task from the nearest rows alone.

    Parameters
    ----------
    exact : Exact
        The task, and how to value it if nearly all rows are needed.
    index, points
        Training rows and validation points of the task's distances.
    cache : FitCache
        Indexes built for these training rows.
    tol : float
        Largest error of a value on any validation point, in units of the utility.
    search : {"exact", "ann", "lsh"}
    excluded : ndarray of shape (n_val,) or None
        Training row that each point ignores, -1 for none; the task's distances already include this.
    runner : Runner

    Returns
    -------
    Sums
        With the error bound of each mean value.
    """
    task = exact.task
    wanted = max(ranks_needed(task.table, tol), task.depth, task.n_nearest)
    notes = {"tol": tol, "exact_ranks": wanted, "search": search}
    if wanted >= SORT_SHARE * task.n_train:
        notes["exact_ranks"] = task.n_train
        return replace(runner.sums(exact), error_bound=np.zeros(task.n_train), notes=notes)
    proposals, table, about_index = _ask_index(index, points, cache, search, wanted)
    if proposals is None:
        finder = exact_search(task.fill, task.n_train, wanted, whole_ties=task.average_ties)
        cluster, longest = runner.cluster(), _longest(task, finder, wanted, runner)
    else:
        finder = _index_search(task, index, points, excluded, wanted, proposals, table)
        cluster, longest = None, wanted  # an index stays in the process that built it
    plan = _plan_lists(task, wanted, longest, proposals is None, index.in_file, runner, cluster)
    totals, kept = runner.run(ListJob(task, wanted, plan.block, finder), plan, cluster)
    sums = totals.spread(kept)
    if report := {**about_index, **finder.report()}:
        notes["search_report"] = report
    return replace(sums, error_bound=sums.bounds[0] / task.n_val, notes=notes)


def graph_sums(task: ClassTask, graph: Any, excluded: Indices | None, runner: Runner) -> Sums:
    """Value a task from the nearest rows that a graph stores; rows it does not store are farther.

    Parameters
    ----------
    task : ClassTask
    graph : csr_array of shape (n_val, n_train)
    excluded, runner
        As in :func:`truncated_sums`.

    Returns
    -------
    Sums
        With the error bound of each mean value: 0 if the graph is complete.
    """
    lengths = np.diff(graph.indptr)
    shortest, longest = int(lengths.min()), int(lengths.max())
    if shortest - (excluded is not None) < task.n_nearest:
        raise InputError(
            f"The {task.n_nearest} nearest rows of each validation point are requested, but the neighbour graph stores "
            f"only {shortest} of point {lengths.argmin()}. Make the graph with more neighbours."
        )
    plan = _plan_lists(task, longest, max(longest, 1), True, False, runner, None)
    totals, kept = runner.run(ListJob(task, longest, plan.block, graph_search(graph, excluded)), plan, None)
    sums = totals.spread(kept)
    notes = {"algorithm": "graph", "rows_per_point": [shortest, longest]}
    return replace(sums, error_bound=sums.bounds[0] / task.n_val, notes=notes)


def _index_search(
    task: ClassTask,
    index: TrainingIndex,
    points: Rows,
    excluded: Indices | None,
    wanted: int,
    proposals: Proposals,
    table: Floats | None,
) -> Search:
    """Return a search that checks an index's proposals, and looks at all rows if they do not suffice."""
    measure = index.measure(points, table)
    if excluded is not None:
        measure = without_row(measure, excluded)

    def exact_lists(which: Indices, reference: Indices) -> Lists:
        fill = tile_filler(index, points[which])
        if excluded is not None:
            fill = without_rows(fill, excluded[which])
        search_all = exact_search(fill, task.n_train, wanted, whole_ties=task.average_ties)
        return search_all.find(0, which.size, reference)

    return quick_search(proposals, measure, exact_lists, task.n_train, task.n_val, wanted)


def _longest(task: ClassTask, finder: Search, wanted: int, runner: Runner) -> int:
    """Length of the longest list of a few points, if a memory budget needs it.

    If features have few distinct values, a list can end with a large share of all rows.
    """
    if runner.max_memory is None or not task.average_ties:
        return wanted
    few = min(PROBED_POINTS, task.n_val)
    return int(np.diff(finder.find(0, few, np.empty((few, 0), dtype=np.int64)).ends).max())


def _ask_index(
    index: TrainingIndex, points: Rows, cache: FitCache, search: str, wanted: int
) -> tuple[Proposals | None, Floats | None, dict[str, Any]]:
    """Return an index's proposals (None to look at all rows), its row-wise table, and notes for the result.

    The index is built if necessary.
    """
    # If all rows are equal, so are all distances, and an index does not help.
    if search == "exact" or index.constant:
        return None, None, {}
    index.check_serves(f"search={search!r}")
    if search == "ann":
        from shapshift.engine.search.ann import ann_proposals, build_ann

        ann = cache.get("ann", lambda: build_ann(index))
        return ann_proposals(ann, cache, index, points, wanted), ann.table, {}
    from shapshift.engine.search.lsh import build_lsh, lsh_proposals, plan_lsh

    shape = cache.get(("lsh shape", wanted), lambda: plan_lsh(index, wanted))
    notes = {"relative_contrast": shape.contrast}
    if shape.cost >= 1:
        warn(
            f"search='lsh' looks at all rows here, like search='exact': hashing would take {shape.cost:.2g} times "
            f"that work, because typical rows are only {shape.contrast:.2g} times as far as the {wanted} nearest ones "
            f"among {index.n_rows}."
        )
        return None, None, {**notes, "index": "none"}
    lsh = cache.get(("lsh", wanted), lambda: build_lsh(index, shape))
    return lsh_proposals(lsh, index, points, wanted), lsh.table, notes


def check_search(caller: str, search: str, method: str, metric: str) -> None:
    """Refuse an index where it has no use."""
    reason = ""
    if method != "truncated":
        reason = f"with method={method!r}, which looks at all rows. Choose method='truncated' for an index"
    elif metric == "precomputed":
        reason = "with metric='precomputed', where there are no features to index"
    if reason:
        raise InputError(f"The 'search' parameter of {caller} must be 'exact' {reason}. Got {search!r} instead.")


def _plan_lists(
    task: ClassTask, wanted: int, longest: int, scan: bool, in_file: bool, runner: Runner, cluster: Cluster | None
) -> Plan:
    """Choose block size and number of workers for a memory budget, assuming lists no longer than the longest."""
    n, m, row = task.n_train, task.n_val, 8 * task.n_train
    block = min(BLOCK_POINTS, m)
    blocks = -(-m // block)
    workers = runner.workers(blocks, cluster)
    task_blocks = 1 if cluster is None else min(UNIT_PAIRS // (n * block), blocks // (4 * workers))
    listed = 8 * 5 * longest  # a list: rows, distances, changes, and copies of two of them while it is made
    worker = WORKER_BYTES + (READING_BYTES if in_file else 0)
    worker += 0 if scan else 5 * row  # from an index, candidates can be all rows
    worker += 2 * row if longest > list_room(n, wanted) else 0
    # Later uses of the sums are added on top: threads do not free the small arrays that lists are made of.
    # Sums, sums of bounds, the rank table in its two forms, and the column of each row among the stored values.
    memory = Memory(
        fixed=row * (task.n_cells + 4)
        + end_bytes(task)
        + 8 * m * (5 + task.n_nearest + task.kept.size)
        + 16 * task.reference.size,
        worker=worker,
        point=listed + 8 * STRIP_ROWS + 16 * list_room(n, wanted),
        block_point=listed,
    )
    best = Plan(block, block, workers, 0, task_blocks)
    # The sums do not depend on the block size: see ListTotals.
    return fit_memory(memory, task, best, runner.max_memory, cluster, cut_blocks=True)
