"""A first look: find mislabelled rows in a dataset that ships with scikit-learn.

Run it with ``python -m shapshift.demo``.
"""

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from shapshift._files import write_atomically
from shapshift.estimators import KNNShapley

FLIPPED = 0.1
SHOWN = 5


def main(folder: str | Path = "shapshift-demo") -> Path:
    """Value the breast cancer data with a tenth of its training labels flipped; returns the results folder.

    Parameters
    ----------
    folder : path-like
        Where the results go.
    """
    data = load_breast_cancer()
    X, X_val, y, y_val = train_test_split(data.data, data.target, test_size=0.3, random_state=0, stratify=data.target)
    scaler = StandardScaler().fit(X)
    rng = np.random.default_rng(0)
    flipped = np.zeros(len(y), dtype=bool)
    flipped[rng.choice(len(y), size=int(FLIPPED * len(y)), replace=False)] = True
    y = np.where(flipped, 1 - y, y)

    model = KNNShapley(n_neighbors=5, n_jobs=-1).fit(scaler.transform(X), y)
    valuation = model.value(scaler.transform(X_val), y_val)

    out = Path(folder)
    out.mkdir(parents=True, exist_ok=True)
    valuation.save(out / "valuation.npz")
    rows = valuation.to_frame("pyarrow").append_column("flipped", pa.array(flipped))
    write_atomically(out / "values.parquet", lambda file: pq.write_table(rows, file))

    console = Console()
    stats = valuation.stats()
    console.print(
        f"Valued {valuation.n_train} training rows on {valuation.n_val} validation points "
        f"({valuation.boundary_fraction:.0%} of them near the class boundary)."
    )
    console.print(f"{stats['positive_count']} rows help, {valuation.n_train - stats['positive_count']} do not.")
    worst = np.argsort(valuation.values)
    found = int(flipped[worst[: flipped.sum()]].sum())
    console.print(
        f"{int(flipped.sum())} training labels were flipped on purpose; {found} of them are among the "
        f"{int(flipped.sum())} least valuable rows."
    )
    table = Table("row", "value", "label flipped", title="Least and most valuable rows")
    for i in [*worst[:SHOWN], *worst[-SHOWN:]]:
        table.add_row(str(valuation.ids[i]), f"{valuation.values[i]:+.2e}", "yes" if flipped[i] else "no")
    console.print(table)
    console.print(f"Results: {out.resolve()}", soft_wrap=True)
    for name, what in (("values.parquet", "one line per training row"), ("valuation.npz", "for Valuation.load")):
        console.print(f"  {name:<16} {what}")
    return out


if __name__ == "__main__":
    main(*sys.argv[1:2])
