"""From distance tiles to sums per entropy level and group, for models that value a tile of points in their own way.

The validation set is cut into blocks whose size depends on the data alone; a block is valued by one worker, and blocks
are added up in order. So the number of workers cannot change a single bit of the result.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from shapshift._parallel import n_workers, thread_pool
from shapshift._progress import progress_bar
from shapshift.boundary import nearest_level
from shapshift.distances import Filler
from shapshift.engine import Neighborhood
from shapshift.kernels.near import look_around
from shapshift.kernels.rank import add_rows

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

# About this many (training row, validation point) pairs make a block.
BLOCK_PAIRS = 2**19
# Blocks a worker gets at a time: joblib looks for the last results of a wave only every hundredth of a second.
ROUNDS = 4


@dataclass(frozen=True)
class PointJob:
    """One valuation, ready to be computed.

    Attributes
    ----------
    fill : callable
        Computes distance tiles.
    n_train, n_val : int
    depth : int
        How many nearest rows decide about the boundary; at most ``n_train``.
    levels : ndarray
        Entropies that sums are kept for.
    groups : ndarray of shape (n_val,)
        Group number of each validation point.
    n_groups : int
        0 when there are no groups.
    n_nearest : int
        How many nearest rows of each point to report; 0 for none.
    reference : ndarray of shape (n_val, r)
        Training rows whose ranks to report for each point; r may be 0.
    entropy : callable
        ``entropy(tile, here, cuts)``: entropy of the points ``here``, from their distances and the ``depth``-th
        smallest of each.
    value : callable
        ``value(tile, here)``: overwrite the distances of the points ``here`` with values.
    found : dict of ndarray
        What else ``value`` finds out about the points; it fills disjoint slices.
    """

    fill: Filler
    n_train: int
    n_val: int
    depth: int
    levels: Floats
    groups: Indices
    n_groups: int
    n_nearest: int
    reference: Indices
    entropy: Callable[[Floats, slice, Floats], Floats]
    value: Callable[[Floats, slice], None]
    found: dict[str, Floats] = field(default_factory=dict)


@dataclass(frozen=True)
class PointSums:
    """What a job returns: sums over validation points, per entropy level and per group."""

    levels: Floats
    level_counts: npt.NDArray[np.int64]
    groups: Floats
    entropy: Floats
    matrix: Floats | None
    neighborhood: Neighborhood


def run_job(job: PointJob, *, matrix: bool, n_jobs: int | None, progress: bool | None) -> PointSums:
    """Compute the sums of a job."""
    n_levels = job.levels.size
    sums = np.zeros((n_levels + job.n_groups, job.n_train))
    counts = np.zeros(n_levels, dtype=np.int64)
    entropy = np.empty(job.n_val)
    nearest = np.empty((job.n_val, job.n_nearest), dtype=np.int64)
    ranks = np.empty(job.reference.shape)
    kept = np.empty((job.n_val, job.n_train)) if matrix else None
    size = block_size(job.n_train, job.n_val)
    blocks = [slice(start, min(start + size, job.n_val)) for start in range(0, job.n_val, size)]

    def value_block(here: slice) -> Floats:
        tile = np.empty((here.stop - here.start, job.n_train))
        cuts = np.empty(tile.shape[0])
        job.fill(here, slice(0, job.n_train), tile)
        look_around(tile, job.depth, job.reference[here], nearest[here], ranks[here], cuts)
        entropy[here] = job.entropy(tile, here, cuts)
        job.value(tile, here)
        return tile

    workers = min(n_workers(n_jobs), len(blocks))
    wave = workers * ROUNDS if workers > 1 else 1
    with thread_pool(workers) as map_in_order, progress_bar("Valuing", job.n_val, progress) as advance:
        for first in range(0, len(blocks), wave):
            here = blocks[first : first + wave]
            for block, tile in zip(here, map_in_order(value_block, here), strict=True):
                cells = nearest_level(entropy[block], job.levels)
                counts += np.bincount(cells, minlength=n_levels)
                add_rows(tile, cells, sums)
                if job.n_groups:
                    add_rows(tile, n_levels + job.groups[block], sums)
                if kept is not None:
                    kept[block] = tile
                advance(tile.shape[0])
    return PointSums(
        levels=sums[:n_levels],
        level_counts=counts,
        groups=sums[n_levels:],
        entropy=entropy,
        matrix=None if kept is None else kept.T,
        neighborhood=Neighborhood(nearest, ranks if job.reference.size else None),
    )


def block_size(n_train: int, n_val: int) -> int:
    """How many validation points make a block."""
    return min(max(BLOCK_PAIRS // n_train, 1), n_val)
