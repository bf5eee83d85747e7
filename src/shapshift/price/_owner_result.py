"""OwnerValues: what each owner is worth when its rows enter together."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from shapshift._archive import Arrays, Saved, from_json, to_json
from shapshift.price._owners import owner_column
from shapshift.valuation import to_table

Floats = npt.NDArray[np.float64]


_ARRAYS = ("values", "low", "high", "row_counts", "codes", "group_means")


@dataclass(frozen=True, eq=False, repr=False)
class OwnerValues(Saved):
    """What each owner contributes when all its rows enter together.

    Attributes
    ----------
    owners : tuple
        Owners, in order of first appearance.
    values : ndarray of shape (n_owners,)
        Value of each owner, averaged over the validation points. Shapley values add up to ``full - empty``.
    low, high : ndarray of shape (n_owners,)
        95% confidence interval; equal to ``values`` when they are exact.
    row_counts : ndarray of shape (n_owners,)
        Number of rows of each owner.
    codes : ndarray of shape (n_train,)
        Owner number of each training row.
    method : {"exact", "sample"}
        How the values were computed.
    n_permutations : int
        Orders of the owners that were drawn; 0 when the values are exact.
    full, empty : float
        Utility of all training rows and of none.
    group_means : ndarray of shape (n_groups, n_owners)
        Values per validation group, see ``group_values``.
    group_names : tuple
        Group names in order of first appearance.
    parameters : mapping
        What made the values.
    fingerprint : str
        Hash of the training rows and labels.
    kind : str
        The caller's kind of table.
    """

    archive_kind: ClassVar[str] = "shapshift.OwnerValues"
    archive_version: ClassVar[int] = 1

    owners: tuple[Any, ...]
    values: Floats
    low: Floats
    high: Floats
    row_counts: npt.NDArray[np.int64]
    codes: npt.NDArray[np.int64]
    method: str
    n_permutations: int
    full: float
    empty: float
    group_means: Floats
    group_names: tuple[Any, ...]
    parameters: Mapping[str, Any]
    fingerprint: str
    kind: str = "numpy"

    def __post_init__(self) -> None:
        for name in _ARRAYS:
            view = getattr(self, name).view()
            view.flags.writeable = False
            object.__setattr__(self, name, view)
        object.__setattr__(self, "parameters", MappingProxyType(dict(self.parameters)))

    @property
    def half_width(self) -> float:
        """Half the width of the widest interval; 0 when the values are exact."""
        return float((self.high - self.low).max() / 2)

    @property
    def converged(self) -> bool:
        """Whether all intervals are as narrow as was asked for, see ``tolerance`` of :func:`owner_values`."""
        return self.half_width == 0 or self.relative_half_width <= self.parameters["tolerance"]

    @property
    def relative_half_width(self) -> float:
        """Half the width of the widest interval, as a part of the mean absolute value of an owner."""
        typical = float(np.abs(self.values).mean())
        if typical == 0:
            return 0.0 if self.half_width == 0 else float("inf")
        return self.half_width / typical

    @property
    def group_values(self) -> dict[Any, Floats]:
        """Values per validation group."""
        return dict(zip(self.group_names, self.group_means, strict=True))

    def to_frame(self, kind: str | None = None) -> Any:
        """Tabulate the values.

        Parameters
        ----------
        kind : {"pandas", "polars", "pyarrow"}, optional
            Defaults to the kind that was fitted; after NumPy input, pandas if it is installed, else pyarrow.

        Returns
        -------
        table
            One row per owner: ``owner``, ``rows``, ``value``, ``low``, ``high``, and one ``value[name]`` per
            validation group.
        """
        columns: dict[str, npt.NDArray[Any]] = {
            "owner": owner_column(self.owners),
            "rows": self.row_counts,
            "value": self.values,
            "low": self.low,
            "high": self.high,
        }
        columns |= {f"value[{name}]": means for name, means in self.group_values.items()}
        return to_table(columns, None, kind or self.kind)

    def _to_archive(self) -> tuple[dict[str, Any], Arrays]:
        header = {
            "owners": [to_json(owner, "an owner") for owner in self.owners],
            "method": self.method,
            "n_permutations": self.n_permutations,
            "full": self.full,
            "empty": self.empty,
            "group_names": [to_json(name, "a group name") for name in self.group_names],
            "parameters": dict(self.parameters),
            "fingerprint": self.fingerprint,
            "kind": self.kind,
        }
        return header, {name: getattr(self, name) for name in _ARRAYS}

    @classmethod
    def _from_archive(cls, header: dict[str, Any], arrays: Arrays) -> Self:
        plain = ("method", "n_permutations", "full", "empty", "parameters", "fingerprint", "kind")
        parts: dict[str, Any] = {name: arrays[name] for name in _ARRAYS} | {name: header[name] for name in plain}
        loaded = cls(
            **parts,
            owners=tuple(from_json(owner) for owner in header["owners"]),
            group_names=tuple(from_json(name) for name in header["group_names"]),
        )
        shapes = {loaded.values.shape, loaded.low.shape, loaded.high.shape, loaded.row_counts.shape}
        if shapes != {(len(loaded.owners),)}:
            raise ValueError("its parts do not fit together")
        return loaded

    def __repr__(self) -> str:
        how = "exact" if self.method == "exact" else f"{self.n_permutations} permutations, +-{self.half_width:.2g}"
        return (
            f"OwnerValues(n_owners={len(self.owners)}, n_train={self.codes.size}, sum={self.values.sum():.4g}, {how})"
        )
