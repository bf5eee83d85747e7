"""Everything a store holds at one instant, and the valuation that follows from it."""

import copy
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from shapshift import _validation as check
from shapshift.boundary import BOUNDARY_NEIGHBORS, entropy_levels
from shapshift.coefficients import rank_table
from shapshift.distances import TrainingIndex, tile_filler
from shapshift.store._chunks import Chunk, Codes, Group, Rows
from shapshift.store._near import SPARE, Near, order_nearest, ranks_that_matter
from shapshift.store._training import Training
from shapshift.store._whole import Whole, order_all
from shapshift.truncated import SORT_SHARE, ranks_needed
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

    def set_chunks(self, chunks: Iterable[Chunk]) -> None:
        """Put others in the place of all chunks."""
        others = iter(list(chunks))
        for group in self.groups.values():
            group.chunks = [next(others) for _ in group.chunks]

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
        depth, sizes = min(BOUNDARY_NEIGHBORS, n), training.class_sizes
        needed = 0
        if settings["method"] == "truncated":
            wanted = max(ranks_needed(table, settings["tol"]), depth)
            needed = wanted if wanted < SORT_SHARE * n else 0  # otherwise values are exact, as they are without a store
        bounded = needed > 0
        if not bounded:
            matter = max(ranks_that_matter(table) + 1, depth)
            needed = matter if 4 * matter + SPARE < n else 0  # all rows are kept unless these are few
        self.rows = Rows(
            codes=training.codes,
            alive=training.alive,
            sizes=sizes,
            table=table,
            depth=depth,
            levels=entropy_levels(depth, int((sizes > 0).sum())),
            average=settings["ties"] == "average",
            needed=needed,
            bounded=bounded,
        )

    def ordered(self, index: TrainingIndex, points: Any, targets: Codes, scratch: str | None) -> Near | Whole:
        """Order the rows around some points."""
        fill = tile_filler(index, points)
        if self.rows.needed:
            return order_nearest(fill, targets.size, self.rows)
        return order_all(fill, targets, self.rows, scratch)

    def reordered(self, index: Callable[[], TrainingIndex], chunk: Chunk, scratch: str | None) -> Chunk:
        """Return a chunk with orders that suit the rows that are there: the same ones if they do."""
        orders = chunk.orders
        if isinstance(orders, Near) and self.rows.needed:

            def search(which: npt.NDArray[np.int64]) -> Near:
                return order_nearest(tile_filler(index(), chunk.points[which]), which.size, self.rows)

            return replace(chunk, orders=orders.refreshed(self.rows, search))
        if isinstance(orders, Whole) and not self.rows.needed:
            return chunk
        return replace(chunk, orders=self.ordered(index(), chunk.points, chunk.targets, scratch))

    def valuation(self) -> Valuation:
        """Add up the groups."""
        if not any(group.weight > 0 for group in self.groups.values()):
            raise ValueError("There are no validation points with a weight above 0: add some, or reweight.")
        training, there, rows = self.training, self.training.there, self.rows
        levels, counts = np.zeros((rows.levels.size, training.size)), np.zeros(rows.levels.size)
        means, bound = np.empty((len(self.groups), training.size)), np.zeros(training.size)
        for mean, group in zip(means, self.groups.values(), strict=True):
            sums, errors, sizes = group.totals(rows, there)
            levels += group.weight * sums
            counts += group.weight * sizes
            bound += group.weight * errors
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
            level_entropy=rows.levels[present],
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
            error_bound=bound / counts.sum() if training.settings["method"] == "truncated" else None,
        )

    def _parameters(self, weights: list[float]) -> dict[str, Any]:
        settings = self.training.settings
        parameters = {
            "method": "KNNShapley",
            **{name: settings[name] for name in ("n_neighbors", "utility")},
            "semivalue": str(settings["semivalue"]),
            "metric": settings["metric"],
            "algorithm": settings["method"],
            "ties": settings["ties"],
            "n_train": self.training.size,
            "n_val": sum(group.size for group in self.groups.values()),
            "n_classes": int((self.rows.sizes > 0).sum()),
            "boundary_neighbors": BOUNDARY_NEIGHBORS,
        }
        if settings["method"] == "truncated":
            ranks = self.rows.needed if self.rows.bounded else self.training.size
            parameters |= {"tol": settings["tol"], "exact_ranks": ranks, "search": "exact"}
        return parameters if set(weights) == {1.0} else {**parameters, "group_weights": weights}
