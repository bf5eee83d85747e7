"""Common steps of all runners: read the arrays, warm up, time one valuation, write the values and the seconds."""

import sys
import time
from collections.abc import Callable

import numpy as np

WARM_UP = 64


def measure(value: Callable[..., np.ndarray]) -> None:
    read, write = sys.argv[1:]
    with np.load(read) as file:
        X, y, X_val, y_val, k = (file[name] for name in ("X", "y", "X_val", "y_val", "k"))
    # Starts thread pools and worker processes, and triggers late imports.
    value(X[:WARM_UP], y[:WARM_UP], X_val[:WARM_UP], y_val[:WARM_UP], int(k))
    start = time.perf_counter()
    values = value(X, y, X_val, y_val, int(k))
    np.savez(write, seconds=time.perf_counter() - start, values=np.asarray(values, dtype=np.float64))
