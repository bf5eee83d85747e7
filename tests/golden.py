"""Golden results: values as an earlier commit computed them.

``python tests/golden.py`` writes ``golden.json`` anew; do that only where values are meant to change, and say why in
the changelog. On the processor and NumPy release that wrote the file a hash of all bytes is compared, elsewhere some of
the values to 12 digits.
"""

from __future__ import annotations

import hashlib
import json
import platform
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from reliability import result_bytes, small_blocks
from scipy import sparse

from shapshift import KNNShapley, Valuation
from shapshift.engine.coefficients import Beta
from shapshift.engine.rows import file
from shapshift.valuation import without_error

FILE = Path(__file__).with_name("golden.json")


def data(n_train: int, n_val: int, n_features: int = 4, classes: int = 3) -> tuple[Any, ...]:
    rng = np.random.default_rng(n_train + n_val)
    y, y_val = rng.integers(0, classes, n_train), rng.integers(0, classes, n_val)
    X = rng.normal(size=(n_train, n_features)) + y[:, None]
    return X, y, rng.normal(size=(n_val, n_features)) + y_val[:, None], y_val


def valued(train: Any, points: Any, **settings: Any) -> Valuation:
    groups = settings.pop("groups", None)
    return KNNShapley(progress=False, **settings).fit(*train).value(*points, groups=groups)


def certified(train: Any, points: Any, groups: Any = None, checkpoint: Any = None, **settings: Any) -> Valuation:
    """Values of rows that stay in a file; those of rows in memory are exact."""
    with patch.object(file, "LOAD_BYTES", 0), tempfile.TemporaryDirectory() as folder:
        model = KNNShapley(method="certified", tol=0.3, scratch=folder, progress=False, **settings)
        return model.fit(iter([train])).value(*points, groups=groups, checkpoint=checkpoint)


def in_file(**settings: Any) -> Valuation:
    X, y, V, t = data(2500, 130)
    if settings["method"] == "certified":
        order = np.concatenate([np.arange(2500)[k::3] for k in range(3)])
        return certified((X[order], y[order]), (V, t), t)
    with tempfile.TemporaryDirectory() as folder:
        model = KNNShapley(scratch=folder, progress=False, **settings)
        model.fit((X[k::3], y[k::3]) for k in range(3))
        return model.value(V, t, groups=t)


def resumed(**settings: Any) -> Valuation:
    """A run with a checkpoint, in small blocks."""
    X, y, V, t = data(2000, 90)
    with tempfile.TemporaryDirectory() as folder, small_blocks():
        if settings["method"] == "certified":
            return certified((X, y), (V, t), t, folder)
        model = KNNShapley(progress=False, **settings).fit(X, y)
        return model.value(V, t, groups=t, checkpoint=folder)


def cases() -> Iterator[tuple[str, Callable[[], Valuation]]]:
    """Names of runs, and how to run them."""
    X, y, V, t = data(160, 70)
    for semivalue in ("shapley", "banzhaf", "loo", "calibrated", Beta(4, 1)):
        for utility in ("soft", "hard"):
            settings = {"semivalue": semivalue, "utility": utility, "groups": t}
            yield f"exact {semivalue} {utility}", partial(valued, (X, y), (V, t), **settings)
            yield (
                f"truncated {semivalue} {utility}",
                partial(valued, (X, y), (V, t), method="truncated", tol=0.1, **settings),
            )
    coarse = (X.round(), y), (V.round(), t)
    for metric in ("euclidean", "manhattan", "cosine"):
        yield f"exact {metric}", partial(valued, (X, y), (V, t), metric=metric, n_neighbors=3)
        for ties in ("average", "index"):
            yield f"exact ties {metric} {ties}", partial(valued, *coarse, metric=metric, ties=ties)
            yield (
                f"truncated ties {metric} {ties}",
                partial(valued, *coarse, metric=metric, ties=ties, method="truncated", tol=0.1),
            )
    for metric in ("euclidean", "cosine"):
        rows, points = sparse.csr_array(X.round()), sparse.csr_array(V.round())
        yield f"exact sparse {metric}", partial(valued, (rows, y), (points, t), metric=metric)
    distances = np.abs(V[:, None, :] - X[None, :, :]).sum(axis=2)
    for method in ("exact", "truncated"):
        yield (
            f"{method} precomputed",
            partial(valued, (X, y), (distances, t), metric="precomputed", method=method, tol=0.1),
        )
    yield "exact duplicates", partial(valued, (np.repeat(X[:50], 3, axis=0), y[:150]), (V, t), groups=t)
    yield "exact two jobs", partial(valued, (X, y), (V, t), n_jobs=2)
    X, y, V, t = data(4000, 64)
    for metric in ("euclidean", "manhattan", "cosine"):
        yield f"certified {metric}", partial(certified, (X, y), (V, t), metric=metric)
    yield "certified groups", partial(certified, (X, y), (V, t), t)
    for method, tol in (("exact", None), ("truncated", 0.02), ("certified", 0.3)):
        yield f"{method} file", partial(in_file, method=method, tol=tol)
        yield f"{method} checkpoint", partial(resumed, method=method, tol=tol)


def origin() -> str:
    """The processor and NumPy release that results come from."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())
    return f"{model}, NumPy {np.__version__}"


def summary(valuation: Valuation) -> dict[str, Any]:
    """A hash of all arrays of a result but its sampling errors, and a few of its values."""
    digest = hashlib.sha256()
    for name, content in sorted(result_bytes(without_error(valuation)).items()):
        digest.update(name.encode() + content)
    chosen = np.linspace(0, valuation.values.size - 1, 8).astype(int)
    return {"sha256": digest.hexdigest(), "values": valuation.values[chosen].tolist()}


def main() -> None:
    found = {"origin": origin(), "results": {name: summary(run()) for name, run in cases()}}
    FILE.write_text(json.dumps(found, indent=1) + "\n")
    print(f"{len(found['results'])} results, {origin()}")


if __name__ == "__main__":
    main()
