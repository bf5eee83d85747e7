r"""Nearest rows by locality-sensitive hashing (Jia et al. 2019; Wang and Jia 2023 for the soft utility).

A hash of a row is :math:`\lfloor (a \cdot x + b) / w \rfloor` with random a (Gaussian entries for Euclidean distances,
Cauchy entries for Manhattan ones: the projection of a difference is then spread like its length) and b uniform on
[0, w). Rows at distance r share one hash with a probability f(r / w) that is known, so they share all of a table's M
hashes with probability f^M, and miss each other in all L tables with probability (1 - f^M)^L.

This gives a failure probability that can be checked afterwards. The i-th distance among the candidates is at least the
i-th true one, and rows farther away are missed more often. So the sum of the miss probabilities at the found distances
bounds the probability that any of the true nearest rows was missed. Points with a too large sum are searched exactly.
With probability at least 1 - delta over the random tables, no list lacks a row.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from shapshift.engine.parallel import take_spare
from shapshift.engine.rows.distances import Rows, TrainingIndex, tile_filler
from shapshift.engine.search.lists import Floats, Indices
from shapshift.engine.search.quick import SEED, Proposals
from shapshift.kernels.nearest import HashTables, bucket_rows

#: Probability that any list of a whole valuation lacks a row.
DELTA = 0.01
# Size of the validation sets for which tables are chosen.
TYPICAL_POINTS = 1000
MOST_TABLES = 512
TABLE_BYTES = 2**30
MOST_HASHES = 24
# Bucket widths to try, in units of the distance of the farthest wanted row.
WIDTHS = (1.0, 2.0, 4.0, 8.0, 16.0)
# Number of training rows in the sample for this choice, and of other rows they are compared with.
STUDIED = 32
# Measured nanoseconds; they affect only the choice of tables. A scan takes this per row and feature. A candidate is at
# a random place in memory. A member of a bucket is looked up in the list of rows already seen.
SCAN, SCAN_FEATURE = 1.1, 0.06
CANDIDATE, CANDIDATE_FEATURE = 165.0, 1.0
MEMBER, TABLE, HASH_FEATURE, POINT = 13.0, 300.0, 0.25, 100_000.0


@dataclass(frozen=True)
class Shape:
    """Shape of the tables: width of a bucket, hashes per table, number of tables.

    With the reasons: the relative contrast (distance of typical rows in units of that of the wanted ones) and the
    expected work for a point, in units of an exact search.
    """

    width: float
    hashes: int
    tables: int
    contrast: float
    cost: float


@dataclass(frozen=True)
class LshIndex:
    """Hash tables over one set of training rows.

    Attributes
    ----------
    shape : Shape
    directions : ndarray of shape (d, L * M)
    offsets : ndarray of shape (L * M,)
    mixers : ndarray of uint64, shape (M,)
        Turn the M hashes of a table into one number.
    buckets : HashTables
    table : ndarray or csr_array of shape (N, d)
        Laid-out training rows, row by row.
    """

    shape: Shape
    directions: Floats
    offsets: Floats
    mixers: npt.NDArray[np.uint64]
    buckets: HashTables
    table: Rows


def collision(ratio: Floats, metric: str) -> Floats:
    """Probability that two rows share a hash.

    Parameters
    ----------
    ratio : ndarray
        Their distance in units of the width of a bucket.
    metric : str

    Examples
    --------
    >>> collision(np.array([0.0, 0.25, 1.0]), "euclidean")
    array([1.   , 0.801, 0.369])
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        t = 1 / ratio
        if metric == "manhattan":
            found = 2 * np.arctan(t) / np.pi - np.log1p(t * t) / (np.pi * t)
        else:
            found = 1 - 2 * ndtr(-t) - 2 / (np.sqrt(2 * np.pi) * t) * -np.expm1(-t * t / 2)
    return np.where(ratio > 0, np.where(np.isinf(t), 1.0, found), 1.0)


def plan_lsh(index: TrainingIndex, wanted: int) -> Shape:
    """Choose tables from the training rows; a cost of 1 or more means that an exact search is less work."""
    return choose_shape(*_study(index, wanted), index.metric, index.n_rows, index.width, wanted)


def build_lsh(index: TrainingIndex, shape: Shape) -> LshIndex:
    """Fill the tables."""
    table = index.table()
    vectors = index.as_vectors(table)
    rng = np.random.default_rng(SEED)
    size = (index.width, shape.tables * shape.hashes)
    directions = rng.standard_cauchy(size) if index.metric == "manhattan" else rng.standard_normal(size)
    offsets = rng.uniform(0, shape.width, size[1])
    mixers = rng.integers(0, 2**64, shape.hashes, dtype=np.uint64) | np.uint64(1)
    keys: list[npt.NDArray[np.uint64]] = []
    starts: list[Indices] = []
    key_ends = [0]
    members = np.empty(shape.tables * index.n_rows, dtype=np.uint32)
    for number in range(shape.tables):
        here = slice(number * shape.hashes, (number + 1) * shape.hashes)
        hashes = _hashes(vectors, directions[:, here], offsets[here], shape.width, mixers)[:, 0]
        order = np.argsort(hashes, kind="stable")
        members[number * index.n_rows : (number + 1) * index.n_rows] = order
        hashes = hashes[order]
        firsts = np.flatnonzero(np.append(True, hashes[1:] != hashes[:-1]))
        keys.append(hashes[firsts])
        key_ends.append(key_ends[-1] + firsts.size)
        starts.append(number * index.n_rows + firsts)
    starts.append(np.array([members.size]))
    buckets = HashTables(np.concatenate(keys), np.array(key_ends), np.concatenate(starts), members)
    return LshIndex(shape, directions, offsets, mixers, buckets, table)


def lsh_proposals(lsh: LshIndex, index: TrainingIndex, points: Rows, wanted: int) -> Proposals:
    """Return a search for candidates in the buckets of each point.

    Parameters
    ----------
    lsh : LshIndex
    index : TrainingIndex
    points : ndarray or csr_array of shape (n_val, d)
    wanted : int
        Smallest number of rows of each list.
    """
    n_val = points.shape[0]
    failures: list[float] = []  # appending needs no lock
    spare: list[_Seen] = []

    def propose(start: int, stop: int) -> list[tuple[Indices, float]]:
        here = index.as_vectors(index.lay_out(points[start:stop]))
        hashes = _hashes(here, lsh.directions, lsh.offsets, lsh.shape.width, lsh.mixers)
        seen = take_spare(spare) or _Seen(index.n_rows)
        found = [(seen.collect(lsh, point), 0.0) for point in hashes]
        spare.append(seen)
        return found

    def accept(distances: Floats, sure: float) -> tuple[int, int]:
        kept = int(np.searchsorted(distances, distances[-1]))
        failure = float(_miss(_length(distances, index.metric), lsh.shape, index.metric).sum())
        if kept < wanted or failure > DELTA / n_val:
            return 0, 0
        failures.append(failure)
        return kept, kept

    def report() -> dict[str, Any]:
        return {
            "failure_probability": math.fsum(failures),
            "index": f"{lsh.shape.tables} tables of {lsh.shape.hashes} hashes, width {lsh.shape.width:.3g}",
        }

    return Proposals(propose, accept, report)


def choose_shape(near: Floats, far: Floats, metric: str, n_rows: int, width: int, wanted: int) -> Shape:
    """Choose the tables with the least expected work.

    Only the distances matter: the farther typical rows are relative to the wanted ones (the relative contrast), the
    fewer other candidates share their buckets.

    Parameters
    ----------
    near : ndarray of shape (n, k)
        Distances of some points to the wanted rows, or to some of these, ascending.
    far : ndarray of shape (n, f)
        Distances of the same points to random rows.
    metric : str
    n_rows, width : int
        Size of the training table.
    wanted : int
        Number of wanted rows.
    """
    last, typical = float(np.median(near[:, -1])), float(far.mean())
    unit = last if last > 0 else typical
    contrast = typical / last if last > 0 else math.inf
    best = Shape(unit, 1, 1, contrast, math.inf)
    scan = n_rows * (SCAN + width * SCAN_FEATURE)
    most = max(1, min(MOST_TABLES, TABLE_BYTES // (4 * n_rows)))
    for bucket in (factor * unit for factor in WIDTHS):
        one_near, one_far = collision(near / bucket, metric), collision(far / bucket, metric)
        for hashes in range(1, MOST_HASHES + 1):
            missed_near, missed_far = 1 - one_near**hashes, 1 - one_far**hashes
            for tables in (1 << doubled for doubled in range(most.bit_length())):
                failure = (missed_near**tables).mean(axis=1) * wanted
                sent_back = float((failure > DELTA / TYPICAL_POINTS).mean())
                members = tables * n_rows * (1 - float(missed_far.mean()))
                candidates = n_rows * (1 - float((missed_far**tables).mean()))
                cost = POINT + tables * (TABLE + hashes * width * HASH_FEATURE) + members * MEMBER
                cost += candidates * (CANDIDATE + width * CANDIDATE_FEATURE) + sent_back * scan
                if cost / scan < best.cost:
                    best = Shape(bucket, hashes, tables, contrast, cost / scan)
    return best


def _study(index: TrainingIndex, wanted: int) -> tuple[Floats, Floats]:
    """Distances of a few training rows to their nearest others (at some ranks) and to typical rows."""
    n_rows = index.n_rows
    places = np.unique(np.linspace(0, n_rows - 1, STUDIED).astype(np.int64))
    fill = tile_filler(index, index.take(places).unscaled())
    ranks = np.unique(np.linspace(1, wanted, 64).astype(np.int64))  # rank 0 is the row itself
    others = np.linspace(0, n_rows - 1, 128).astype(np.int64)
    near, far = np.empty((places.size, ranks.size)), np.empty((places.size, others.size))
    tile = np.empty((1, n_rows))
    for i in range(places.size):
        fill(slice(i, i + 1), slice(0, n_rows), tile)
        far[i] = tile[0, others]
        near[i] = np.sort(np.partition(tile[0], wanted)[: wanted + 1])[ranks]
    return _length(near, index.metric), _length(far, index.metric)


def _length(distances: Floats, metric: str) -> Floats:
    """Length of the projected difference, or an upper bound, from the distance that orders the rows."""
    if metric == "manhattan":
        return distances
    length: Floats = np.sqrt(2 * distances if metric == "cosine" else distances)
    return length


def _miss(lengths: Floats, shape: Shape, metric: str) -> Floats:
    """Probability that rows at these distances are in none of a point's buckets."""
    missed: Floats = (1 - collision(lengths / shape.width, metric) ** shape.hashes) ** shape.tables
    return missed


def _hashes(
    rows: Rows, directions: Floats, offsets: Floats, width: float, mixers: npt.NDArray[np.uint64]
) -> npt.NDArray[np.uint64]:
    """Bucket of each row in each table."""
    steps = np.floor((rows @ directions + offsets) / width)
    # Very far away, all buckets are empty.
    whole = np.clip(steps, -(2.0**62), 2.0**62).astype(np.int64).view(np.uint64)
    mixed: npt.NDArray[np.uint64] = (whole.reshape(rows.shape[0], -1, mixers.size) * mixers).sum(axis=2)
    return mixed


class _Seen:
    """Scratch space of one worker: marks of rows that are already candidates."""

    def __init__(self, n_rows: int) -> None:
        self.seen = np.zeros(n_rows, dtype=np.uint32)
        self.rows = np.empty(n_rows, dtype=np.int64)
        self.stamp = 0

    def collect(self, lsh: LshIndex, hashes: npt.NDArray[np.uint64]) -> Indices:
        self.stamp += 1
        count = bucket_rows(hashes, lsh.buckets, self.seen, self.stamp, self.rows)
        return self.rows[:count].copy()
