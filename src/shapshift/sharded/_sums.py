"""Sums over blocks of validation points that arrive shard by shard."""

import numpy as np
import numpy.typing as npt

from shapshift.boundary import nearest_level
from shapshift.engine import Task
from shapshift.running import Totals

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]


class ShardTotals(Totals):
    """The same additions in the same order, a shard at a time; the last cell has the bounds.

    Parameters
    ----------
    task : Task
    block, bundle : int
        Points of a block, and blocks of a bundle.
    """

    def __init__(self, task: Task, block: int, bundle: int) -> None:
        shape = (task.levels.size + task.n_groups + 1, task.n_train)
        super().__init__(shape, task.levels.size, -(-task.n_val // block), bundle)
        self.levels = task.levels

    def add_shard(self, block: int, rows: slice, cells: Indices, partial_sums: Floats) -> None:
        """Add a block to its bundle, and a bundle that is complete to the total."""
        if self.bundle == 1:
            self.sums[cells, rows] += partial_sums
            return
        self.open[cells, rows] += partial_sums
        if (block + 1) % self.bundle == 0 or block + 1 == self.n_blocks:
            self.sums[:, rows] += self.open[:, rows]
            self.open[:, rows] = 0.0

    def complete(self, n_blocks: int, entropy: Floats) -> None:
        """Note that the first so many blocks are added up in all shards, and what the entropy of their points is."""
        self.done = n_blocks
        self.counts[:] = np.bincount(nearest_level(entropy, self.levels), minlength=self.counts.size)
        self.seen[:] = True
        self.open_seen[:] = self.bundle > 1 and n_blocks % self.bundle != 0 and n_blocks < self.n_blocks
