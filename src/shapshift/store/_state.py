"""Everything a store holds at one instant, and the valuation that follows from it."""

import copy
from typing import Any

import numpy as np
import numpy.typing as npt

from shapshift import _validation as check
from shapshift.boundary import BOUNDARY_NEIGHBORS, entropy_levels, nearest_level
from shapshift.coefficients import rank_table
from shapshift.distances import TrainingIndex, tile_filler
from shapshift.store._orders import SPARE, Chunk, Group, Rows, order_all, order_nearest, ranks_that_matter
from shapshift.store._training import Training
from shapshift.valuation import Valuation

Floats = npt.NDArray[np.float64]


class State:
    """What a store holds; not changed any more once it is in place."""

    def __init__(self, training: Training, groups: dict[Any, Group]) -> None:
        self.training, self.groups = training, groups
        self.refresh()

    @property
    def chunks(self) -> list[Chunk]:
        """All chunks, group by group."""
        return [chunk for group in self.groups.values() for chunk in group.chunks]

    def draft(self) -> "State":
        """Return a state to change in place of this one."""
        draft = self.with_groups({name: group.copy() for name, group in self.groups.items()})
        draft.training = self.training.copy()
        return draft

    def with_groups(self, groups: dict[Any, Group]) -> "State":
        """Return the same rows with other groups."""
        other = copy.copy(self)
        other.groups = groups
        return other

    def group(self, name: Any) -> Group:
        """Look up a group."""
        if name not in self.groups:
            raise ValueError(f"There is no validation group {name!r}. There are {check.some(list(self.groups))}.")
        return self.groups[name]

    def refresh(self) -> None:
        """Make anew what depends on the number of rows and classes."""
        training = self.training
        n, settings = training.size, training.settings
        table = rank_table(n, settings["n_neighbors"], settings["semivalue"], settings["utility"])
        depth = min(BOUNDARY_NEIGHBORS, n)
        self.class_sizes = training.class_sizes
        self.rows = Rows(
            codes=training.codes,
            alive=training.alive,
            table=table,
            depth=depth,
            n_classes=len(training.known),
            levels=entropy_levels(depth, int((self.class_sizes > 0).sum())),
            average=settings["ties"] == "average",
        )
        matter = max(ranks_that_matter(table) + 1, depth)
        # The nearest rows alone are kept if they are few.
        self.needed = matter if 4 * matter + SPARE < n else 0

    def ordered(self, index: TrainingIndex, points: Any, targets: npt.NDArray[np.int32], scratch: str | None) -> Chunk:
        """Order the rows around some points."""
        fill = tile_filler(index, points)
        if self.needed:
            return order_nearest(fill, points, targets, self.rows, 2 * self.needed + SPARE)
        return order_all(fill, points, targets, self.rows, scratch)

    def valuation(self) -> Valuation:
        """Add up the groups."""
        if not any(group.weight > 0 for group in self.groups.values()):
            raise ValueError("There are no validation points with a weight above 0: add some, or reweight.")
        training, there = self.training, self.training.there
        levels, counts = np.zeros((self.rows.levels.size, training.size)), np.zeros(self.rows.levels.size)
        means = np.empty((len(self.groups), levels.shape[1]))
        for mean, group in zip(means, self.groups.values(), strict=True):
            sums, sizes = self._group_sums(group, there)
            levels += group.weight * sums
            counts += group.weight * sizes
            mean[:] = sums.sum(axis=0) / sizes.sum()
        weights = [group.weight for group in self.groups.values()]
        present = counts > 0
        level_counts: Any = counts[present] if set(weights) != {1.0} else counts[present].astype(np.int64)
        entropy = np.concatenate([chunk.entropy for chunk in self.chunks])
        return Valuation(
            values=levels.sum(axis=0) / counts.sum(),
            ids=training.ids[there],
            entropy=entropy,
            boundary=entropy > 0,
            level_entropy=self.rows.levels[present],
            level_values=levels[present] / counts[present, None],
            level_counts=level_counts,
            group_means=means,
            group_names=tuple(self.groups),
            group_sizes=tuple(group.size for group in self.groups.values()),
            matrix=None,
            parameters=self._parameters(weights),
            fingerprint=training.fingerprint(),
            kind=training.kind,
            id_names=training.id_names,
        )

    def _group_sums(self, group: Group, there: npt.NDArray[np.bool_]) -> tuple[Floats, npt.NDArray[np.int64]]:
        """Return the sums of a group per entropy level, complete, and its points per level."""
        rows, sizes = self.rows, self.class_sizes
        points = np.zeros((rows.levels.size, sizes.size), dtype=np.int64)
        for chunk in group.chunks:
            np.add.at(points, (nearest_level(chunk.entropy, rows.levels), chunk.targets), 1)
        # What a row gets however far away it is: beta of each point, and c_N from those of its own class.
        n_classes = int((sizes > 0).sum())
        beta = points @ (rows.table.per_match * sizes) - points.sum(axis=1) * rows.table.empty / n_classes
        sums = group.sums[:, there] + beta[:, None] + rows.table.c[-1] * points[:, rows.codes[there]]
        return sums, points.sum(axis=1)

    def _parameters(self, weights: list[float]) -> dict[str, Any]:
        settings = self.training.settings
        parameters = {
            "method": "KNNShapley",
            **{name: settings[name] for name in ("n_neighbors", "utility")},
            "semivalue": str(settings["semivalue"]),
            "metric": settings["metric"],
            "algorithm": "exact",
            "ties": settings["ties"],
            "n_train": self.training.size,
            "n_val": sum(group.size for group in self.groups.values()),
            "n_classes": int((self.class_sizes > 0).sum()),
            "boundary_neighbors": BOUNDARY_NEIGHBORS,
        }
        return parameters if set(weights) == {1.0} else {**parameters, "group_weights": weights}
