"""Sums from lists of nearest rows.

A list is short and a sum is as long as the training set, so workers return lists, and sums are made where the total is.
They are added up point by point, in the order of the points: neither workers, nor the size of blocks, nor a restart
changes a bit.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from shapshift.engine.boundary import count_levels, nearest_level
from shapshift.engine.runner import each_block, span
from shapshift.engine.search import Lists, Search, exact_search
from shapshift.engine.tasks import ClassTask, Points, Sums
from shapshift.exceptions import InputError
from shapshift.kernels.truncated import add_bounds, add_points, truncated_values, whole_rows

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

# Progress is saved at multiples of this many points, whatever the size of a block.
SAVED_POINTS = 64


@dataclass(frozen=True)
class Valued:
    """Per point: its list, each row's value minus that of far rows of its class, and the values of far rows."""

    ends: Indices
    rows: Indices
    changes: Floats
    tails: Floats
    bounds: Floats
    levels: Indices


@dataclass(frozen=True)
class ListPart:
    """Lists of consecutive blocks, as :class:`shapshift.engine.runner.Part` has sums."""

    blocks: tuple[Valued, ...]
    points: Points | None = None

    @property
    def n_blocks(self) -> int:
        """Number of blocks."""
        return len(self.blocks)


def sums_beyond(c: Floats) -> Floats:
    """Sum of the rank table from each rank on."""
    return np.append(np.cumsum(c[::-1])[::-1], 0.0)


def value_lists(
    lists: Lists,
    codes: npt.NDArray[np.int32],
    targets: npt.NDArray[np.int32],
    sizes: Indices,
    c: Floats,
    beyond: Floats,
    starts: Floats,
    average: bool,
    depth: int,
    entropy: Floats,
) -> tuple[Floats, Floats, Floats]:
    """Value a few points from their lists; arguments and results as in :func:`truncated_values`.

    Returns
    -------
    changes, tails, bounds
    """
    tails, bounds = np.empty((targets.size, 2)), np.empty((targets.size, 3))
    changes = np.empty(lists.rows.size)
    truncated_values(
        lists.ends, lists.rows, lists.distances, lists.certain, codes, targets, sizes, c, beyond, starts, average,
        depth, np.zeros(sizes.size), tails, bounds, entropy, changes,
    )  # fmt: skip
    return changes, tails, bounds


class ListTotals:
    """Sums over points, as :class:`shapshift.engine.runner.Totals` are over blocks."""

    def __init__(self, task: ClassTask, block: int) -> None:
        self.task, self.block, self.done = task, block, 0
        cells, n_classes = task.levels.size + task.n_groups, task.n_classes
        self.sums, self.bound = np.zeros((cells, task.n_train)), np.zeros(task.n_train)
        # What all rows of all points get, and those of the point's class besides: added to every row at the end.
        self.others, self.extras = np.zeros(cells), np.zeros((cells, n_classes))
        self.bound_others, self.bound_extras = np.zeros(1), np.zeros(n_classes)

    def add(self, part: ListPart) -> None:
        """Add the lists of the next blocks."""
        task = self.task
        for valued in part.blocks:
            first = self.done * self.block
            here = slice(first, first + valued.levels.size)
            targets = task.targets[here]
            cells = [valued.levels]
            if task.n_groups:
                cells.append(task.levels.size + task.groups[here])
            for into in cells:
                add_points(
                    valued.ends, valued.rows, valued.changes, valued.tails, targets, into, self.sums, self.others,
                    self.extras,
                )  # fmt: skip
            add_bounds(
                valued.ends, valued.rows, task.codes, targets, valued.bounds, self.bound, self.bound_others,
                self.bound_extras,
            )  # fmt: skip
            self.done += 1

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """Everything needed to resume."""
        return {"points": np.array(min(self.done * self.block, self.task.n_val)), **self._arrays()}

    def restore(self, arrays: dict[str, npt.NDArray[Any]]) -> None:
        """Resume from a state."""
        points = int(arrays["points"])
        if not 0 <= points <= self.task.n_val or (points % self.block and points != self.task.n_val):
            raise InputError(f"it counts {points} points, there are {self.task.n_val}")
        self.done = -(-points // self.block)
        for name, own in self._arrays().items():
            own[:] = arrays[name]

    def _arrays(self) -> dict[str, npt.NDArray[Any]]:
        names = ("sums", "bound", "others", "extras", "bound_others", "bound_extras")
        return {name: getattr(self, name) for name in names}

    def spread(self, points: Points) -> Sums:
        """Give every row what the far rows get; returns the sums, which are the totals' own."""
        task, n_levels = self.task, self.task.levels.size
        for cell in range(self.sums.shape[0]):
            self.sums[cell] += (self.others[cell] + self.extras[cell])[task.codes]
        self.bound += (self.bound_others + self.bound_extras)[task.codes]
        np.maximum(self.bound, 0.0, out=self.bound)  # subtraction can leave tiny negative numbers
        counts = count_levels(points.entropy, task.levels)
        return Sums(self.sums[:n_levels], self.sums[n_levels:], counts, self.bound[None, :], points)


@dataclass(frozen=True)
class ListJob:
    """A task, cut into blocks of points, whose results are lists.

    Attributes
    ----------
    task : ClassTask
    wanted : int
        Number of nearest rows.
    block : int
        Points of a block: a power of two, at most ``SAVED_POINTS``.
    finder : Search or None
        Finds the nearest rows; None looks at all rows, and only then can the job travel.
    """

    task: ClassTask
    wanted: int
    block: int
    finder: Search | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return ListJob, (self.task, self.wanted, self.block)

    @cached_property
    def search(self) -> Search:
        """Finds the nearest rows."""
        task = self.task
        return self.finder or exact_search(task.fill, task.n_train, self.wanted, whole_ties=task.average_ties)

    @cached_property
    def beyond(self) -> Floats:
        """Sum of the rank table from each rank on."""
        return sums_beyond(self.task.table.c)

    @property
    def save_every(self) -> int:
        """Progress is saved at multiples of this many blocks."""
        return max(SAVED_POINTS // self.block, 1)

    def totals(self) -> ListTotals:
        """Allocate the sums."""
        return ListTotals(self.task, self.block)

    def value(self, block: int, points: Points, advance: Callable[[int], None]) -> ListPart:
        """Value the points of a block."""
        task, here = self.task, span(self, range(block, block + 1))
        targets = task.targets[here]
        lists = self.search.find(here.start, here.stop, task.reference[here])
        changes, tails, bounds = value_lists(
            lists, task.codes, targets, task.class_sizes, task.table.c, self.beyond, task.bases(targets),
            task.average_ties, task.depth, points.entropy,
        )  # fmt: skip
        points.nearest[:] = lists.rows[lists.ends[:-1, None] + np.arange(task.n_nearest)]
        points.reference_ranks[:] = lists.ranks
        if points.values is not None:
            whole_rows(lists.ends, lists.rows, changes, tails, task.codes, targets, points.values)
        advance(targets.size)
        levels = nearest_level(points.entropy, task.levels)
        return ListPart((Valued(lists.ends, lists.rows, changes, tails, bounds, levels),))

    def value_blocks(self, blocks: range) -> ListPart:
        """Value consecutive blocks on a worker of a cluster."""
        here = span(self, blocks)
        points = self.task.points(here.stop - here.start)
        parts = list(each_block(self, blocks, points))
        return ListPart(tuple(valued for part in parts for valued in part.blocks), points)

    def reuse(self, part: ListPart) -> None:
        """Use nothing again: lists differ in length."""
