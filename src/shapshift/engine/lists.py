"""Sums from lists of nearest rows.

A list is short, but a sum is as long as the training set, so workers return lists, and the sums are made where the
total is. They are added point by point, in the order of the points: neither workers, block size nor a restart changes a
bit.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from shapshift.engine.boundary import count_levels, nearest_level
from shapshift.engine.runner import each_block, span
from shapshift.engine.search import Search, exact_search
from shapshift.engine.tasks import ClassTask, Points, Sums
from shapshift.exceptions import InputError
from shapshift.kernels.truncated import ListSums, ListValues, add_bounds, add_points, keep_values, truncated_values

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

# Progress is saved at multiples of this many points, for any block size.
SAVED_POINTS = 64


@dataclass(frozen=True)
class ListPart:
    """Lists of consecutive blocks, in place of the sums of :class:`shapshift.engine.runner.BlockSums`."""

    blocks: tuple[ListValues, ...]
    points: Points | None = None

    @property
    def n_blocks(self) -> int:
        """Number of blocks."""
        return len(self.blocks)


class ListTotals:
    """Sums over points, in place of the sums over blocks of :class:`shapshift.engine.runner.Totals`."""

    def __init__(self, task: ClassTask, block: int) -> None:
        self.task, self.block, self.done = task, block, 0
        self.sums = self._allocate(task.n_cells)
        self.bounds = self._allocate(1)

    def _allocate(self, cells: int) -> ListSums:
        task = self.task
        return ListSums(np.zeros((cells, task.n_train)), np.zeros(cells), np.zeros((cells, task.n_classes)))

    def add(self, part: ListPart) -> None:
        """Add the lists of the next blocks."""
        task, n_levels = self.task, self.task.levels.size
        for values in part.blocks:
            first = self.done * self.block
            here = slice(first, first + values.entropy.size)
            targets, levels = task.targets[here], nearest_level(values.entropy, task.edges)
            weights, products = np.ones(levels.size), task.weights is not None
            if task.weights is not None:
                weights = task.weights[here]
            squares = np.full_like(levels, n_levels)
            add_points(values, task.codes, targets, weights, levels, squares, products, self.sums)
            if task.n_groups:
                cells = task.group_cell(task.groups[here])
                add_points(values, task.codes, targets, weights, cells, cells + 1, products, self.sums)
            add_bounds(values, task.codes, targets, weights, self.bounds)
            self.done += 1

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """Everything needed to resume."""
        return {"points": np.array(min(self.done * self.block, self.task.n_val)), **self._arrays()}

    def restore(self, arrays: dict[str, npt.NDArray[Any]]) -> None:
        """Resume from a state."""
        points = int(arrays["points"])
        if not 0 <= points <= self.task.n_val or (points % self.block and points != self.task.n_val):
            raise InputError(f"it has {points} points, but there are {self.task.n_val}")
        self.done = -(-points // self.block)
        for name, own in self._arrays().items():
            own[:] = arrays[name]

    def _arrays(self) -> dict[str, npt.NDArray[Any]]:
        sums, bounds = self.sums, self.bounds
        return {
            "sums": sums.rows,
            "others": sums.others,
            "extras": sums.extras,
            "bound": bounds.rows[0],
            "bound_others": bounds.others,
            "bound_extras": bounds.extras[0],
        }

    def spread(self, points: Points) -> Sums:
        """Add the contribution of far rows to every row; return the sums as views of these arrays."""
        task = self.task
        for sums in (self.sums, self.bounds):
            for cell, row in enumerate(sums.rows):
                row += (sums.others[cell] + sums.extras[cell])[task.codes]
        bounds = self.bounds.rows
        np.maximum(bounds, 0.0, out=bounds)  # subtraction can leave tiny negative numbers
        counts = count_levels(points.entropy, task.edges)
        return replace(Sums.of(task, self.sums.rows, counts, points), bounds=bounds)


@dataclass(frozen=True)
class ListJob:
    """A task, cut into blocks of points, with lists as results.

    Attributes
    ----------
    task : ClassTask
    wanted : int
        Number of nearest rows.
    block : int
        Points of a block: a power of two, at most ``SAVED_POINTS``.
    finder : Search or None
        Finds the nearest rows. None looks at all rows; only such a job can be sent to other processes.
    """

    task: ClassTask
    wanted: int
    block: int
    finder: Search | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return ListJob, (self.task, self.wanted, self.block)

    @cached_property
    def search(self) -> Search:
        """Search for the nearest rows."""
        task = self.task
        return self.finder or exact_search(task.fill, task.n_train, self.wanted, whole_ties=task.average_ties)

    @cached_property
    def beyond(self) -> Floats:
        """Sum of the rank table from each rank on."""
        return np.append(np.cumsum(self.task.table.c[::-1])[::-1], 0.0)

    @cached_property
    def columns(self) -> npt.NDArray[np.int32]:
        """Column of each row among the stored values; -1 for none."""
        columns = np.full(self.task.n_train, -1, dtype=np.int32)
        columns[self.task.kept] = np.arange(self.task.kept.size)
        return columns

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
        size, lists = here.stop - here.start, self.search.find(here.start, here.stop, task.reference[here])
        changes, tails, bounds = np.empty(lists.rows.size), np.empty((size, 2)), np.empty((size, 3))
        values = ListValues(lists.ends, lists.rows, changes, tails, bounds, points.entropy)
        truncated_values(lists, task.codes, task.batch(here), task.rule, task.class_sizes, self.beyond, values)
        points.nearest[:] = lists.rows[lists.ends[:-1, None] + np.arange(task.n_nearest)]
        points.reference_ranks[:] = lists.ranks
        keep_values(values, task.codes, task.targets[here], task.kept, self.columns, points.values)
        advance(size)
        return ListPart((values,))

    def value_blocks(self, blocks: range) -> ListPart:
        """Value consecutive blocks on a worker of a cluster."""
        here = span(self, blocks)
        points = self.task.points(here.stop - here.start)
        parts = list(each_block(self, blocks, points))
        return ListPart(tuple(values for part in parts for values in part.blocks), points)

    def reuse(self, part: ListPart) -> None:
        """Do nothing: lists differ in length, so their arrays cannot be reused."""
