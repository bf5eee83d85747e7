"""Who owns which training row."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shapshift._arrays import object_array
from shapshift.checks import labels as _labels
from shapshift.exceptions import InputError

Codes = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Ownership:
    """Owners in order of first appearance, and the owner number of each training row."""

    names: tuple[Any, ...]
    codes: Codes

    @property
    def counts(self) -> Codes:
        """Rows per owner."""
        return np.bincount(self.codes, minlength=len(self.names))

    def rows_of(self) -> list[Codes]:
        """Positions of the rows of each owner."""
        order = np.argsort(self.codes, kind="stable")
        return np.split(order, np.cumsum(self.counts)[:-1])


def check_owners(owners: Any, ids: npt.NDArray[Any], name: str = "owners") -> Ownership:
    """Match owners to training rows: by index where they have one, else by position.

    Parameters
    ----------
    owners : array-like of shape (n_train,)
        A pandas Series is matched by its index to ``ids``.
    ids : ndarray of shape (n_train,)
        Row ids.
    name : str
        How messages call the owners.
    """
    if owners is None or isinstance(owners, str | bytes) or not hasattr(owners, "__iter__"):
        raise InputError(
            f"The {name!r} parameter must hold one owner for each of the {ids.size} training rows. Got {owners!r}."
        )
    if hasattr(owners, "loc") and hasattr(owners, "index"):
        owners = _aligned(owners, ids, name)
    elif isinstance(owners, list | tuple):
        owners = object_array(list(owners))  # as they are: an array of strings would drop trailing NUL characters
    labels = _labels.check_labels(owners, name, ids.size, "X_train")
    names, codes = _labels.check_groups(labels, ids.size)
    return Ownership(tuple(names), codes)


def owner_column(owners: Sequence[Any]) -> npt.NDArray[Any]:
    """Owners as a column of a table: as they are if they are of one plain kind, else as text."""
    kinds = {type(owner) for owner in owners}
    plain = len(kinds) == 1 and kinds <= {str, int, float, bool}
    return object_array(list(owners) if plain else [str(owner) for owner in owners])


def _aligned(owners: Any, ids: npt.NDArray[Any], name: str) -> Any:
    """Bring a pandas Series (or a frame of one column) into the order of the ids."""
    if getattr(owners, "ndim", 1) != 1:
        if owners.shape[1] != 1:
            raise InputError(f"{name!r} must be one column. Got a table with {owners.shape[1]} columns; select one.")
        owners = owners.iloc[:, 0]
    index, wanted = owners.index.tolist(), ids.tolist()
    if index == wanted:
        return owners
    place = {label: i for i, label in enumerate(index)}
    missing = [label for label in wanted if label not in place]
    if missing or len(index) != len(wanted):
        why = f"no entry for row {missing[0]!r}" if missing else f"{len(index)} entries for {len(wanted)} rows"
        raise InputError(
            f"The index of {name!r} must hold the ids of the training rows: there is {why}. If the entries are already "
            f"in the order of the rows, pass {name}.to_numpy()."
        )
    if len(place) != len(index):
        raise InputError(
            f"The index of {name!r} has repeated entries and another order than the training rows, so it cannot be "
            f"matched. Bring it into their order and pass {name}.to_numpy()."
        )
    return owners.iloc[[place[label] for label in wanted]]
