"""What a change costs in a ValuationStore, against computing anew: one percent of the training rows come or go."""

import argparse
import time
from collections.abc import Callable

import numpy as np
from rich.console import Console
from rich.table import Table

from shapshift import KNNShapley, ValuationStore


def seconds(function: Callable[[], object]) -> float:
    """Processor time, so that other work on the machine disturbs less."""
    start = time.process_time()
    function()
    return time.process_time() - start


def compare(semivalue: str, n_train: int, n_val: int, d: int, repeats: int) -> list[tuple[str, ...]]:
    rng = np.random.default_rng(0)
    k = n_train // 100
    X, y = rng.normal(size=(n_train + repeats * k, d)), rng.integers(0, 2, n_train + repeats * k)
    X_val, y_val = rng.normal(size=(n_val, d)), rng.integers(0, 2, n_val)
    model = KNNShapley(semivalue=semivalue, progress=False).fit(X[:n_train], y[:n_train])
    store = ValuationStore(model)
    warm = ValuationStore(KNNShapley(semivalue=semivalue).fit(X[:2000], y[:2000]))  # loads the compiled kernels
    warm.add(X_val[:8], y_val[:8])
    warm.add_rows(X[2000:2020], y[2000:2020])
    warm.remove_rows(range(20))
    warm.valuation()
    made = seconds(lambda: store.add(X_val, y_val))
    anew = min(
        seconds(
            lambda: KNNShapley(semivalue=semivalue, progress=False).fit(X[:n_train], y[:n_train]).value(X_val, y_val)
        )
        for _ in range(repeats)
    )
    costs: dict[str, list[float]] = {"1% of the rows go": [], "1% of the rows come": [], "reweighted": []}
    for r in range(repeats):
        gone = store.ids[:: len(store.ids) // k][:k]
        costs["1% of the rows go"].append(seconds(lambda gone=gone: (store.remove_rows(gone), store.valuation())))
        new = slice(n_train + r * k, n_train + (r + 1) * k)
        costs["1% of the rows come"].append(
            seconds(lambda new=new: (store.add_rows(X[new], y[new]), store.valuation()))
        )
        costs["reweighted"].append(seconds(lambda r=r: (store.reweight({"validation": 1.0 + r}), store.valuation())))
    rows = [(f"{semivalue}, N={n_train:,} m={n_val:,} d={d}", "fit and value", f"{anew:.2f} s", "1"),
            ("", "points added to an empty store", f"{made:.2f} s", f"{made / anew:.2g}")]  # fmt: skip
    return rows + [("", what, f"{min(took):.3f} s", f"{min(took) / anew:.3g}") for what, took in costs.items()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n-train", type=int, default=100_000)
    parser.add_argument("--n-val", type=int, default=500)
    parser.add_argument("--features", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=3)
    chosen = parser.parse_args()
    table = Table("what", "change", "processor time", "of computing anew", title="ValuationStore, one thread")
    for semivalue in ("shapley", "banzhaf", "loo"):
        for row in compare(semivalue, chosen.n_train, chosen.n_val, chosen.features, chosen.repeats):
            table.add_row(*row)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
