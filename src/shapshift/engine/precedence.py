"""Exact values of rows that join class by class: asymmetric Shapley values and weighted Banzhaf values."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

from shapshift.engine.coefficients import Banzhaf, Semivalue, size_probabilities
from shapshift.engine.exact import Exact, TileWorker
from shapshift.engine.runner import Costs
from shapshift.engine.tasks import ClassTask, Points
from shapshift.exceptions import InputError
from shapshift.kernels.precedence import Joining, JoiningScratch, joining_values

Floats = npt.NDArray[np.float64]

# Probabilities below this are left out of the tables.
NEVER = 1e-30


@dataclass(frozen=True)
class Precedence(Exact):
    """Exact values when rows join class by class.

    Attributes
    ----------
    joining : Joining
    """

    joining: Joining = field(kw_only=True)

    def costs(self) -> Costs:
        """Memory of a worker; shared tables of probabilities are counted for each."""
        costs, joining = super().costs(), self.joining
        if self.spill:
            return costs
        rows = 8 * self.task.n_train + 8 * joining.starts.size + 56 * joining.seats
        tables = joining.few.nbytes + joining.exactly.nbytes
        return Costs(costs.point, costs.worker + rows + tables, costs.batch, costs.large)

    def worker(self, batch: int) -> "PrecedenceWorker":
        """Make a worker."""
        return PrecedenceWorker(self, batch)


class PrecedenceWorker(TileWorker):
    """A worker of :class:`Precedence`."""

    task: ClassTask

    def __init__(self, method: Precedence, batch: int) -> None:
        super().__init__(method.task)
        n, joining, allocate = method.task.n_train, method.joining, method.allocate
        self.joining, self.tile = joining, allocate((batch, n), np.float64)
        self.scratch = JoiningScratch(
            work=allocate((2, n), np.uint64),
            keys=allocate((n,), np.float64),
            places=allocate((n,), np.int32),
            ranks=allocate((n,), np.int32),
            filled=np.empty(joining.starts.size - 1, dtype=np.int64),
            near=np.empty((2, 3, joining.seats), dtype=np.int64),
            chances=np.empty(joining.seats),
            counts=np.zeros(method.task.n_classes),
        )

    def values(self, batch: slice, points: Points) -> Floats:
        """Return the values of a batch, valid until the next call."""
        task = self.task
        values: Floats = self.tile[: batch.stop - batch.start]
        task.fill(batch, slice(0, task.n_train), values)
        joining_values(values, task.codes, task.batch(batch), self.joining, self.scratch, points.findings)
        return values


def check_precedence(caller: str, semivalue: Any) -> None:
    """Refuse semivalues that cannot be computed class by class."""
    if semivalue not in ("shapley", "banzhaf") and not isinstance(semivalue, Banzhaf):
        raise InputError(
            f"The 'semivalue' parameter of {caller} must be 'shapley', 'banzhaf' or a Banzhaf(w) object with an "
            f"'order' of the rows. Got {semivalue!r} instead. Banzhaf(1) is leave-one-out in each class."
        )


def precedence(task: ClassTask, n_neighbors: int, semivalue: Semivalue, utility: str) -> Precedence:
    """Return the method that values a task with an order of the rows."""
    number: Any = task.order
    n, soft = task.n_train, utility == "soft"
    counts = np.bincount(number)
    starts = np.append(0, np.cumsum(counts))
    seats = min(n_neighbors, n)
    sizes = np.zeros(seats if soft else 0)
    for start, count in zip(starts[starts < sizes.size].tolist(), counts.tolist(), strict=False):
        here = size_probabilities(count, semivalue)
        sizes[start : start + count] = here[: sizes.size - start]
    w = {"shapley": 0.0, "banzhaf": 0.5}[semivalue] if isinstance(semivalue, str) else float(semivalue.w)  # type: ignore[union-attr]  # no Beta
    exactly = np.empty((0, 0)) if w == 0.0 else _drawn(seats, int(counts.max()), w)
    joining = Joining(
        number=number,
        starts=starts,
        seats=seats,
        divisor=float(seats if soft else n_neighbors),
        w=w,
        few=np.cumsum(exactly, axis=0),
        exactly=exactly,
        sizes=sizes,
        empty=1 / task.n_classes,
        average=task.average_ties,
        depth=task.depth,
    )
    return Precedence(task, joining=joining)


def _drawn(seats: int, most: int, w: float) -> Floats:
    """Probabilities that k = 0 .. seats - 1 of n rows are drawn, for n from 0 until they are negligible."""
    end = 1
    while end < most and stats.binom.cdf(seats - 1, end, w) > NEVER:
        end = min(2 * end, most)
    return np.asarray(stats.binom.pmf(np.arange(seats)[:, None], np.arange(end + 1), w))
