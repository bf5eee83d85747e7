"""Working off blocks of validation points: who does it, in which order sums are added up, and what outlives a crash.

A block is a run of consecutive validation points, a bundle a run of consecutive blocks; how many is a matter of the
data alone. Blocks are added up to bundles and bundles to the total, in the order of their numbers. Threads hand in
blocks, workers of a cluster whole bundles where there are enough of them, and either way the same numbers are added in
the same order. So neither the number of workers, nor where they are, nor a restart can change a bit of the result.
"""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from shapshift._clusters import Cluster, in_order
from shapshift._parallel import stream
from shapshift._progress import progress_bar
from shapshift.checkpoint import Checkpoint, Stage

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Points:
    """What is kept of each single validation point; workers write disjoint slices of it."""

    entropy: Floats
    nearest: Indices
    reference_ranks: Floats
    values: Floats | None

    def __getitem__(self, here: slice) -> "Points":
        values = None if self.values is None else self.values[here]
        return Points(self.entropy[here], self.nearest[here], self.reference_ranks[here], values)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Everything that is there, by name."""
        return {name: array for name, array in vars(self).items() if array is not None}

    def put(self, here: slice, found: "Points | dict[str, npt.NDArray[Any]]") -> None:
        """Write down what was found for a slice of the points."""
        new = found if isinstance(found, dict) else found.arrays()
        for name, array in self.arrays().items():
            array[here] = new[name]


@dataclass(frozen=True)
class Part:
    """What became of one block, or of a bundle of blocks.

    Attributes
    ----------
    cells : ndarray
        Where each partial sum belongs, -1 where nothing was added.
    counts : ndarray
        Points per entropy level.
    sums : ndarray
        One sum per cell; rows beyond the cells mean nothing.
    n_blocks : int
    points : Points or None
        None where they have been written down already.
    """

    cells: Indices
    counts: Indices
    sums: Floats
    n_blocks: int = 1
    points: Points | None = None


class Totals:
    """Sums over blocks, added up in a fixed order.

    Parameters
    ----------
    shape : tuple
        Numbers of cells and training rows.
    n_levels : int
    n_blocks : int
        How many there will be.
    bundle : int
        How many make a bundle.
    """

    def __init__(self, shape: tuple[int, int], n_levels: int, n_blocks: int, bundle: int) -> None:
        self.n_blocks, self.bundle, self.done = n_blocks, bundle, 0
        self.counts = np.zeros(n_levels, dtype=np.int64)
        self.sums, self.seen = np.zeros(shape), np.zeros(shape[0], dtype=np.bool_)
        # Sums of the bundle that is not complete yet.
        self.open, self.open_seen = np.zeros(shape if bundle > 1 else (0, shape[1])), np.zeros(shape[0], dtype=np.bool_)

    def add(self, part: Part) -> None:
        """Add what comes next."""
        self.counts += part.counts
        self.done += part.n_blocks
        if self.bundle == 1 or part.n_blocks > 1:
            _add(part.cells, part.sums, self.sums, self.seen)
            return
        _add(part.cells, part.sums, self.open, self.open_seen)
        if self.done % self.bundle == 0 or self.done == self.n_blocks:
            cells = np.flatnonzero(self.open_seen)
            _add(cells, (self.open[cell] for cell in cells), self.sums, self.seen)
            self.open[cells], self.open_seen[:] = 0.0, False

    def part(self, points: Points) -> Part:
        """Return the whole as a part of something larger."""
        cells = np.flatnonzero(self.seen)
        return Part(cells, self.counts, self.sums[cells], self.n_blocks, points)

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """Everything needed to go on from here, and no sums of nothing."""
        arrays = {"done": np.array(self.done), "counts": self.counts}
        for name, sums, seen in (("", self.sums, self.seen), ("open_", self.open, self.open_seen)):
            cells = np.flatnonzero(seen)
            arrays |= {f"{name}cells": cells, f"{name}sums": sums if cells.size == seen.size else sums[cells]}
        return arrays

    def restore(self, arrays: dict[str, npt.NDArray[Any]]) -> None:
        """Go on from a state."""
        self.done = int(arrays["done"])
        if not 0 <= self.done <= self.n_blocks:
            raise ValueError(f"it counts {self.done} blocks, there are {self.n_blocks}")
        self.counts[:] = arrays["counts"]
        for name, sums, seen in (("", self.sums, self.seen), ("open_", self.open, self.open_seen)):
            cells = arrays[f"{name}cells"]
            sums[cells], seen[cells] = arrays[f"{name}sums"], True


def _add(cells: Indices, parts: Any, sums: Floats, seen: npt.NDArray[np.bool_]) -> None:
    for cell, part in zip(cells, parts, strict=False):
        if cell >= 0:
            sums[cell] += part
            seen[cell] = True


class Handed(Protocol):
    """What became of one block or of several."""

    @property
    def n_blocks(self) -> int:
        """How many."""

    @property
    def points(self) -> Points | None:
        """What is kept of single points; None where it has been written down already."""


class Adding(Protocol):
    """Adds up what is handed in, in order."""

    done: int

    def add(self, part: Any) -> None:
        """Add what comes next."""

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """Everything needed to go on from here."""

    def restore(self, arrays: dict[str, npt.NDArray[Any]]) -> None:
        """Go on from a state."""


S = TypeVar("S", bound=Adding, covariant=True)


class Job(Protocol[S]):
    """What there is to do; travels to workers of a cluster."""

    @property
    def n_blocks(self) -> int:
        """Number of blocks."""

    @property
    def save_every(self) -> int:
        """Progress is written down at multiples of so many blocks, and at the end."""

    def span(self, blocks: range) -> slice:
        """Say which validation points consecutive blocks have."""

    def points(self, size: int) -> Points:
        """Room for what is kept of so many points."""

    def totals(self) -> S:
        """Room for sums."""

    def value(self, block: int, points: Points, advance: Callable[[int], None]) -> Handed:
        """Value the points of a block."""

    def hand_in(self, blocks: range) -> Handed:
        """Value consecutive blocks on a worker of a cluster, and return what is kept of their points too."""

    def take_back(self, part: Any) -> None:
        """Use the arrays of a part again."""


def value_blocks(job: Job[Any], blocks: range) -> Handed:
    """Value consecutive blocks on a worker of a cluster."""
    return job.hand_in(blocks)


def work_off(
    job: Job[S],
    *,
    workers: int,
    wave: int,
    cluster: Cluster | None,
    unit: int,
    checkpoint: Checkpoint | None,
    progress: bool | None,
) -> tuple[S, Points]:
    """Value all blocks.

    Parameters
    ----------
    job : Job
    workers, wave : int
        How many blocks are valued, and how many partial sums may exist, at a time.
    cluster : Cluster or None
        None for threads.
    unit : int
        How many blocks are a task of a cluster.
    checkpoint : Checkpoint or None
    progress : bool or None
    """
    every = job.span(range(job.n_blocks))
    totals, points = job.totals(), job.points(every.stop)
    stage = None if checkpoint is None else checkpoint.next_stage()
    if stage is not None:
        stage.restore(totals, points)
    with progress_bar("Valuing", every.stop, progress) as advance:
        if totals.done:
            advance(job.span(range(totals.done)).stop)
        if cluster is None:
            _by_threads(job, totals, points, workers, wave, stage, advance)
        else:
            _by_cluster(job, totals, points, cluster, wave, unit, stage, advance)
    if stage is not None:
        stage.save(totals, points, job.span(range(totals.done)).stop, last=True)
    return totals, points


def _by_threads(
    job: Job[Any],
    totals: Adding,
    points: Points,
    workers: int,
    wave: int,
    stage: Stage | None,
    advance: Callable[[int], None],
) -> None:
    def value(block: int) -> Any:
        return job.value(block, points[job.span(range(block, block + 1))], advance)

    # Added up while the next ones are worked on, and only so many at a time: finished blocks must not pile up behind a
    # slow one.
    with closing(stream(value, range(totals.done, job.n_blocks), workers, wave)) as parts:
        for part in parts:
            totals.add(part)
            job.take_back(part)
            if stage is not None and totals.done % job.save_every == 0:
                stage.save(totals, points, job.span(range(totals.done)).stop)


def _by_cluster(
    job: Job[Any],
    totals: Adding,
    points: Points,
    cluster: Cluster,
    wave: int,
    unit: int,
    stage: Stage | None,
    advance: Callable[[int], None],
) -> None:
    for part in in_order(cluster, value_blocks, job, _units(totals.done, job.n_blocks, unit), wave):
        span = job.span(range(totals.done, totals.done + part.n_blocks))
        points.put(span, part.points)
        totals.add(part)
        advance(span.stop - span.start)
        if stage is not None and totals.done % job.save_every == 0:
            stage.save(totals, points, span.stop)


def _units(done: int, n_blocks: int, unit: int) -> Iterator[range]:
    """Cut what is left into tasks; a bundle that was begun goes on block by block."""
    while done < n_blocks:
        size = 1 if done % unit else min(unit, n_blocks - done)
        yield range(done, done + size)
        done += size
