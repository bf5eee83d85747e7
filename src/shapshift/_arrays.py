"""Object arrays, and selection of rows from any container."""

from typing import Any

import narwhals as nw
import numpy as np
import numpy.typing as npt
from scipy import sparse


def object_array(entries: list[Any]) -> npt.NDArray[Any]:
    """Make a 1-D object array, one entry at a time: a slice assignment would unpack tuples."""
    array = np.empty(len(entries), dtype=object)
    for i, entry in enumerate(entries):
        array[i] = entry
    return array


def take_rows(data: Any, rows: npt.NDArray[np.int64]) -> Any:
    """Rows of any container by position, repeats allowed; the container stays the same (a tuple becomes a list)."""
    if isinstance(data, np.ndarray):
        return data[rows]
    if sparse.issparse(data):
        return data.tocsr()[rows]
    if isinstance(data, list | tuple):
        return [data[row] for row in rows]
    native = nw.from_native(data, allow_series=True, eager_only=True, pass_through=True)
    return native[rows.tolist()].to_native() if isinstance(native, nw.DataFrame | nw.Series) else data[rows]
