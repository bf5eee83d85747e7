"""Cost of a change in a ValuationStore compared with recomputing: 1% of the training rows are added or removed."""

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from shapshift import KNNShapley, ValuationStore

MODELS: dict[str, dict[str, Any]] = {
    "Shapley": {"semivalue": "shapley"},
    "Shapley, truncated": {"semivalue": "shapley", "method": "truncated"},
    "Shapley, truncated, tol=0.01": {"semivalue": "shapley", "method": "truncated", "tol": 0.01},
    "Banzhaf": {"semivalue": "banzhaf"},
    "leave-one-out": {"semivalue": "loo"},
}


def seconds(function: Callable[[], object]) -> float:
    """Processor time, which other work on the machine affects less."""
    start = time.process_time()
    function()
    return time.process_time() - start


def compare(name: str, parameters: dict[str, Any], n_train: int, n_val: int, d: int, repeats: int) -> list[list[str]]:
    rng = np.random.default_rng(0)
    k = n_train // 100
    X, y = rng.normal(size=(n_train + repeats * k, d)), rng.integers(0, 2, n_train + repeats * k)
    X_val, y_val = rng.normal(size=(n_val, d)), rng.integers(0, 2, n_val)

    def fresh(**how: Any) -> float:
        """Fit and value from scratch."""
        return min(
            seconds(lambda: KNNShapley(progress=False, **how).fit(X[:n_train], y[:n_train]).value(X_val, y_val))
            for _ in range(repeats)
        )

    for rows in (2000, n_train):  # loads the compiled kernels
        warm = ValuationStore(KNNShapley(progress=False, **parameters).fit(X[:rows], y[:rows]))
        warm.add(X_val[:8], y_val[:8])
        warm.add_rows(X[-20:], y[-20:])
        warm.remove_rows(range(20))
        warm.valuation()
    exact, anew = fresh(semivalue=parameters["semivalue"]), fresh(**parameters)
    store = ValuationStore(KNNShapley(progress=False, **parameters).fit(X[:n_train], y[:n_train]))
    costs: dict[str, list[float]] = {"all points are added": [seconds(lambda: store.add(X_val, y_val))]}
    for r in range(repeats):
        gone = store.ids[:: len(store.ids) // k][:k]
        new = slice(n_train + r * k, n_train + (r + 1) * k)
        changes = {
            "1% of the rows are removed": lambda gone=gone: store.remove_rows(gone),
            "1% of the rows are added": lambda new=new: store.add_rows(X[new], y[new]),
            "a group is reweighted": lambda r=r: store.reweight({"validation": 1.0 + r}),
        }
        for what, change in changes.items():
            costs.setdefault(what, []).append(seconds(lambda change=change: (change(), store.valuation())))
    costs = {"fit and value": [anew], **costs}
    return [
        [name if n == 0 else "", what, f"{min(took):.3f} s", f"{min(took) / anew:.3g}", f"{min(took) / exact:.3g}"]
        for n, (what, took) in enumerate(costs.items())
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n-train", type=int, default=100_000)
    parser.add_argument("--n-val", type=int, default=1000)
    parser.add_argument("--features", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", choices=list(MODELS), help="only this model")
    chosen = parser.parse_args()
    n, m, d = chosen.n_train, chosen.n_val, chosen.features
    table = Table(
        "model", "change", "processor time", "of computing anew", "of exact values anew",
        title=f"ValuationStore, one thread: {n:,} training rows, {m:,} validation points, {d} features",
    )  # fmt: skip
    for name in [chosen.only] if chosen.only else list(MODELS):
        for row in compare(name, MODELS[name], n, m, d, chosen.repeats):
            table.add_row(*row)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
