"""Arrays of objects."""

from typing import Any

import numpy as np
import numpy.typing as npt


def object_array(entries: list[Any]) -> npt.NDArray[Any]:
    """Make a 1-D object array, one entry at a time: a slice assignment would unpack tuples."""
    array = np.empty(len(entries), dtype=object)
    for i, entry in enumerate(entries):
        array[i] = entry
    return array
