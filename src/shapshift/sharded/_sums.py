"""Sums over blocks of validation points that arrive shard by shard."""

from typing import Any

import numpy as np
import numpy.typing as npt

from shapshift.engine import Task, block_points, bundle_blocks

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]


class ShardSums:
    """As :class:`shapshift.running.Totals`, in the same order of additions, a shard at a time.

    Attributes
    ----------
    block : int
        Points of a block.
    done : int
        So many blocks are complete in all shards.
    sums : ndarray of shape (levels + groups + 1, n_train)
        The last row has the bounds.
    """

    def __init__(self, task: Task) -> None:
        self.block, self.n_val, self.done = block_points(task), task.n_val, 0
        self.n_blocks = -(-task.n_val // self.block)
        self.bundle = bundle_blocks(self.n_blocks)
        self.sums = np.zeros((task.levels.size + task.n_groups + 1, task.n_train))
        # Sums of the bundle that is not complete yet.
        self.open = np.zeros(self.sums.shape if self.bundle > 1 else (0, 0))

    def add_shard(self, block: slice, rows: slice, cells: Indices, partial_sums: Floats) -> None:
        """Add a block to its bundle, and a bundle that is complete to the total."""
        if self.bundle == 1:
            self.sums[cells, rows] += partial_sums
            return
        self.open[cells, rows] += partial_sums
        number = block.start // self.block + 1
        if number % self.bundle == 0 or block.stop == self.n_val:
            self.sums[:, rows] += self.open[:, rows]
            self.open[:, rows] = 0.0

    def complete(self, n_points: int) -> None:
        """Note that all shards of the first so many points are added."""
        self.done = -(-n_points // self.block)

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """Everything needed to go on from here."""
        return {"done": np.array(self.done), "sums": self.sums, "open": self.open}

    def restore(self, arrays: dict[str, npt.NDArray[Any]]) -> None:
        """Go on from a state."""
        self.done = int(arrays["done"])
        if not 0 <= self.done <= self.n_blocks:
            raise ValueError(f"it counts {self.done} blocks, there are {self.n_blocks}")
        for name, own in (("sums", self.sums), ("open", self.open)):
            if arrays[name].shape != own.shape:
                raise ValueError(f"its {name} are of shape {arrays[name].shape} instead of {own.shape}")
            own[:] = arrays[name]
