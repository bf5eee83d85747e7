"""Small Parquet files in the place of published ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq


def write_table(folder: Path, name: str, n: int = 60, **columns: Any) -> Path:
    rng = np.random.default_rng(0)
    content = {"a": rng.normal(3.0, 2.0, n), "b": np.full(n, 0.1), "label": np.repeat([0, 1], [n - n // 3, n // 3])}
    path = folder / f"{name}.parquet"
    pq.write_table(pa.table({**content, **columns}), path)
    return path
