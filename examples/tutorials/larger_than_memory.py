"""
Larger than memory, and more than one machine
=============================================

Training rows can stay in a file, and the work can be shared among machines.
Neither changes a value.
This tutorial values rows from Parquet files within a memory budget, continues an interrupted run, and shows what to
change for a cluster.

You need: ``pip install ".[pandas,plot]"`` in the folder of the source; for the last section ``".[dask]"`` too.
"""

# %%
# Rows in Parquet files
# ---------------------
#
# We write a table of 60,000 rows in three parts. Yours may have as many rows as your disk holds.
# ``write_page_checksum=True`` lets the reader detect damaged files.

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

folder = Path(tempfile.mkdtemp())
rng = np.random.default_rng(0)


def table(n):
    X = rng.normal(size=(n, 20)).astype("float32")
    score = X[:, 0] + 0.5 * X[:, 1] + 0.7 * rng.normal(size=n)
    return pa.table({**{f"x{j}": X[:, j] for j in range(20)}, "label": np.where(score > 0, "yes", "no")})


(folder / "train").mkdir()
for part in range(3):
    pq.write_table(table(20_000), folder / "train" / f"part-{part}.parquet", write_page_checksum=True)
pq.write_table(table(300), folder / "val.parquet", write_page_checksum=True)

# %%
# Pass the folder instead of an array, and the name of the label column instead of labels. ``max_memory`` bounds what
# the computation allocates. It is small here, so that the rows stay on disk as those of a large table would; rows
# that fit in memory are loaded.

from time import perf_counter

from shapshift import KNNShapley

start = perf_counter()
model = KNNShapley(n_neighbors=5, max_memory="16MB").fit(folder / "train", "label")
from_files = model.value(folder / "val.parquet", "label")
print(from_files)
print(f"{perf_counter() - start:.1f} s")

# %%
# The result has the same type as for rows in memory. With 300 points and 60,000 rows most intervals contain 0.

ax = from_files.plot()

# %%
# The values equal those of the same rows in memory, to the last bit.

import pandas as pd

train, val = pd.read_parquet(folder / "train"), pd.read_parquet(folder / "val.parquet")
in_memory = KNNShapley(n_neighbors=5).fit(train.drop(columns="label"), train["label"])
values = in_memory.value(val.drop(columns="label"), val["label"]).values
print("equal to the last bit:", np.array_equal(values, from_files.values))

# %%
# A run that can be interrupted
# -----------------------------
#
# With ``checkpoint=`` progress is kept in a folder.
# After a crash or Ctrl-C, the same call resumes from there. Here the first call finishes, so the second one only
# reads the result. A call with other data or parameters is refused.

for attempt in ("first call", "same call again"):
    start = perf_counter()
    kept = model.value(folder / "val.parquet", "label", checkpoint=folder / "progress")
    same = np.array_equal(kept.values, from_files.values)
    print(f"{attempt}: {perf_counter() - start:.1f} s; equal to the last bit: {same}")

# %%
# More than one machine
# ---------------------
#
# Inside a context that names a cluster, the same call runs on the cluster.
# Replace the address by that of your Dask scheduler. Ray works in the same way.
#
# .. code-block:: python
#
#    import joblib
#    from dask.distributed import Client
#
#    with Client("tcp://10.0.0.1:8786"), joblib.parallel_config(backend="dask"):
#        result = model.value(folder / "val.parquet", "label", checkpoint="progress")
#
# On the command line it is one option:
#
# .. code-block:: console
#
#    $ shapshift value train/ val.parquet --label label --cluster dask://10.0.0.1:8786 --checkpoint progress
#
# Next
# ----
#
# * :doc:`/larger_than_memory` lists what can be passed, the memory that each method takes, and methods for many
#   millions of rows that bound the error of each value.
# * :doc:`/scaling` explains clusters and checkpoints, and what 10^9 rows would cost.
