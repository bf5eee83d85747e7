"""The game of owners, ready to be played: each validation point as the owners see it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from shapshift import _labels
from shapshift.distances import Filler, tile_filler
from shapshift.estimators import KNNShapley
from shapshift.price._game_kernel import list_owners
from shapshift.price._owners import Ownership, check_owners

Longs = npt.NDArray[np.int64]

# Points are taken in tiles of about so many bytes of distances and of lists.
TILE_BYTES = 16 * 2**20


@dataclass(frozen=True)
class Game:
    """The validation points as the owners see them."""

    fill: Filler
    codes: npt.NDArray[np.int32]
    targets: npt.NDArray[np.int32]
    ownership: Ownership
    k: int
    soft: bool
    empty: float
    average: bool
    groups: Longs
    group_names: list[Any]

    @property
    def n_val(self) -> int:
        """Number of validation points."""
        return self.targets.size

    @property
    def n_owners(self) -> int:
        """Number of players."""
        return len(self.ownership.names)

    @property
    def n_cells(self) -> int:
        """Number of validation groups, at least one."""
        return max(len(self.group_names), 1)

    @property
    def longest(self) -> int:
        """How many rows of one owner can ever vote."""
        return min(self.k, self.codes.size)

    @property
    def list_bytes(self) -> int:
        """Size of one point's lists."""
        return 12 * self.n_owners * self.longest

    def tiles(self) -> Iterator[tuple[Any, Any, Longs]]:
        """Owner lists, their lengths and the cells of the points, tile by tile."""
        rows = max(1, min(self.n_val, TILE_BYTES // max(8 * self.codes.size, self.list_bytes)))
        distances = np.empty((rows, self.codes.size))
        for start in range(0, self.n_val, rows):
            stop = min(start + rows, self.n_val)
            tile = distances[: stop - start]
            self.fill(slice(start, stop), slice(0, self.codes.size), tile)
            lists = np.empty((stop - start, self.n_owners, self.longest, 3), dtype=np.int32)
            lengths = np.empty((stop - start, self.n_owners), dtype=np.int32)
            list_owners(
                tile, self.codes, self.targets[start:stop], self.ownership.codes, self.k, self.average, lists, lengths
            )
            yield lists, lengths, self.groups[start:stop]


def make_game(model: Any, X_val: Any, y_val: Any, owners: Any, groups: Any) -> Game:
    """Check what was given to ``owner_values`` and lay it out."""
    if not isinstance(model, KNNShapley):
        raise TypeError(
            "The 'model' parameter of owner_values must be a fitted KNNShapley: owners are valued through its "
            f"nearest-neighbour utility. Got {type(model).__name__} instead."
        )
    check_is_fitted(model)
    model._check_parameters()
    points = model._check_points(X_val)
    n_val = points.shape[0]
    labels = _labels.check_labels(y_val, "y_val", n_val, "X_val")
    names, codes = ([], np.zeros(n_val, dtype=np.int64)) if groups is None else _labels.check_groups(groups, n_val)
    return Game(
        fill=tile_filler(model._index, points),
        codes=model.codes_,
        targets=_labels.look_up_labels(labels, model.classes_),
        ownership=check_owners(owners, model.ids_),
        k=int(model.n_neighbors),
        soft=model.utility == "soft",
        empty=1 / len(model.classes_),
        average=model.ties == "average",
        groups=codes,
        group_names=names,
    )
