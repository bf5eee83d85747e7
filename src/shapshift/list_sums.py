"""Sums from lists of nearest rows: what a block of points hands in, and how it is added up.

A list is short and a sum is as long as the training set, so lists travel and sums stay. They are added up point by
point, in the order of the points: neither workers, nor the size of blocks, nor a restart can change a bit.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from shapshift.boundary import nearest_level
from shapshift.kernels.truncated import add_bounds, add_points, truncated_values, whole_rows
from shapshift.running import Points
from shapshift.search import Lists, Search, exact_search
from shapshift.tasks import Neighborhood, Sums, Task, bases

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

# Progress is written down at multiples of this many points, whatever the size of a block.
SAVED_POINTS = 64


@dataclass(frozen=True)
class Valued:
    """A few valued points: their lists, what each row's value is beyond that of the far rows, and the far rows'."""

    ends: Indices
    rows: Indices
    changes: Floats
    tails: Floats
    bounds: Floats
    levels: Indices


@dataclass(frozen=True)
class ListPart:
    """What became of consecutive blocks; :class:`shapshift.running.Part` says more."""

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
    """Sums over points, as :class:`shapshift.running.Totals` are over blocks."""

    def __init__(self, task: Task, block: int) -> None:
        self.task, self.block, self.done = task, block, 0
        cells, n_classes = task.levels.size + task.n_groups, task.n_classes
        self.sums, self.bound = np.zeros((cells, task.n_train)), np.zeros(task.n_train)
        # What all rows of all points get, and those of the point's class besides: added to every row at the end.
        self.others, self.extras = np.zeros(cells), np.zeros((cells, n_classes))
        self.bound_others, self.bound_extras = np.zeros(1), np.zeros(n_classes)

    def add(self, part: ListPart) -> None:
        """Add what comes next."""
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
        """Everything needed to go on from here."""
        return {"points": np.array(min(self.done * self.block, self.task.n_val)), **self._arrays()}

    def restore(self, arrays: dict[str, npt.NDArray[Any]]) -> None:
        """Go on from a state."""
        points = int(arrays["points"])
        if not 0 <= points <= self.task.n_val or (points % self.block and points != self.task.n_val):
            raise ValueError(f"it counts {points} points, there are {self.task.n_val}")
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
        np.maximum(self.bound, 0.0, out=self.bound)  # what was taken off again may leave less than nothing
        return Sums(
            levels=self.sums[:n_levels],
            level_counts=np.bincount(nearest_level(points.entropy, task.levels), minlength=n_levels),
            groups=self.sums[n_levels:],
            bounds=self.bound[None, :],
            entropy=points.entropy,
            matrix=None if points.values is None else points.values.T,
            neighborhood=Neighborhood(points.nearest, points.reference_ranks if task.reference.size else None),
        )


@dataclass(frozen=True)
class ListJob:
    """A task, cut into blocks of points; :class:`shapshift.running.Job` says what its methods do.

    Attributes
    ----------
    task : Task
    wanted : int
        How many nearest rows.
    block : int
        Points of a block: a power of two, at most ``SAVED_POINTS``.
    matrix : bool
    finder : Search or None
        Who finds them; None looks at all rows, and only then can the job travel.
    """

    task: Task
    wanted: int
    block: int
    matrix: bool
    finder: Search | None = None
    _made: dict[str, Any] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        task = self.task
        self._made["find"] = (
            self.finder or exact_search(task.fill, task.n_train, self.wanted, whole_ties=task.average_ties)
        ).find
        self._made["starts"] = bases(task, task.targets)
        self._made["beyond"] = sums_beyond(task.table.c)

    def __reduce__(self) -> tuple[Any, ...]:
        return ListJob, (self.task, self.wanted, self.block, self.matrix)

    @property
    def n_blocks(self) -> int:
        """Number of blocks."""
        return -(-self.task.n_val // self.block)

    @property
    def save_every(self) -> int:
        """Progress is written down at multiples of so many blocks."""
        return max(SAVED_POINTS // self.block, 1)

    def span(self, blocks: range) -> slice:
        """Say which validation points consecutive blocks have."""
        return slice(min(blocks.start * self.block, self.task.n_val), min(blocks.stop * self.block, self.task.n_val))

    def points(self, size: int) -> Points:
        """Room for what is kept of so many points."""
        return self.task.points(size, matrix=self.matrix)

    def totals(self) -> ListTotals:
        """Room for sums."""
        return ListTotals(self.task, self.block)

    def value(self, block: int, points: Points, advance: Callable[[int], None]) -> ListPart:
        """Value the points of a block."""
        task, span = self.task, self.span(range(block, block + 1))
        targets = task.targets[span]
        lists = self._made["find"](span.start, span.stop, task.reference[span])
        changes, tails, bounds = value_lists(
            lists, task.codes, targets, task.class_sizes, task.table.c, self._made["beyond"],
            self._made["starts"][span], task.average_ties, task.depth, points.entropy,
        )  # fmt: skip
        points.nearest[:] = lists.rows[lists.ends[:-1, None] + np.arange(task.n_nearest)]
        points.reference_ranks[:] = lists.ranks
        if points.values is not None:
            whole_rows(lists.ends, lists.rows, changes, tails, task.codes, targets, points.values)
        advance(targets.size)
        levels = nearest_level(points.entropy, task.levels)
        return ListPart((Valued(lists.ends, lists.rows, changes, tails, bounds, levels),))

    def hand_in(self, blocks: range) -> ListPart:
        """Value consecutive blocks on a worker of a cluster."""
        span = self.span(blocks)
        points = self.points(span.stop - span.start)
        valued: list[Valued] = []
        for block in blocks:
            here = self.span(range(block, block + 1))
            part = self.value(block, points[slice(here.start - span.start, here.stop - span.start)], lambda steps: None)
            valued += part.blocks
        return ListPart(tuple(valued), points)

    def take_back(self, part: ListPart) -> None:
        """Nothing of a list is worth using again."""
