"""Scaling from one worker to several (threads, Dask, Ray), and the cost of a pair. For docs/scaling.md.

``python benchmarks/scaling.py [threads] [dask] [ray]`` prints a table for each. One and several workers take turns, and
the best turn of each counts, so that other processes affect all equally. On a busy machine, look at the last column:
total processor time of all processes, as a multiple of one thread's. ``python benchmarks/scaling.py pairs`` prints
processor time per pair and thread, and the bytes sent.
"""

import argparse
import os
import pickle  # noqa: TID251  # counts the bytes sent in a cluster; no file is read
import resource
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any
from unittest.mock import patch

import joblib
import numpy as np

from shapshift import KNNShapley
from shapshift.engine import runner

FEATURES = 32
SETTINGS: dict[str, dict[str, Any]] = {
    "exact": {},
    "truncated": {"method": "truncated"},
}


def problem(n_train: int, n_val: int) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(n_train, FEATURES)), rng.integers(0, 2, n_train)
    return X, y, rng.normal(size=(n_val, FEATURES)), rng.integers(0, 2, n_val)


@contextmanager
def dask_backend(workers: int) -> Iterator[Any]:
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=workers, threads_per_worker=1, host="127.0.0.1", dashboard_address=None) as cluster,
        Client(cluster),
        joblib.parallel_config(backend="dask"),
    ):
        yield


@contextmanager
def ray_backend(workers: int) -> Iterator[Any]:
    os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    import ray
    from ray.util.joblib import register_ray

    ray.init(
        "local",
        num_cpus=workers,
        object_store_memory=10**9,
        include_dashboard=False,
        _node_ip_address="127.0.0.2",
        log_to_driver=False,
        logging_level="ERROR",
    )
    register_ray()
    try:
        with joblib.parallel_config(backend="ray"):
            yield
    finally:
        ray.shutdown()


BACKENDS: dict[str, Callable[[int], Any]] = {
    "threads": lambda workers: nullcontext(),
    "dask": dask_backend,
    "ray": ray_backend,
}


def scaling(backend: str, n_train: int, n_val: int, workers: int, turns: int) -> None:
    X, y, points, labels = problem(n_train, n_val)
    print(f"\n{backend}, {n_train:,} x {n_val:,}, {FEATURES} features\n")
    print(f"| method | 1 worker | {workers} workers | efficiency | processor time |\n|---|---|---|---|---|")
    with BACKENDS[backend](workers):
        for name, settings in SETTINGS.items():
            best, spent = {1: np.inf, workers: np.inf}, {0: np.inf, 1: np.inf, workers: np.inf}
            models = {n: KNNShapley(progress=False, n_jobs=max(n, 1), **settings).fit(X, y) for n in spent}
            for turn in range(turns + 1):
                for n, model in models.items():  # 0 is one thread here
                    began, used = time.perf_counter(), processor()
                    with joblib.parallel_config(backend="threading") if n == 0 else nullcontext():
                        model.value(points, labels)
                    if turn:  # the first turn compiles, and warms up the workers
                        best[n] = min(best.get(n, np.inf), time.perf_counter() - began)
                        spent[n] = min(spent[n], processor() - used)
            share = best[1] / (workers * best[workers])
            rates = [f"{n_train * n_val / best[n] / 1e6:.0f} M pairs/s" for n in (1, workers)]
            cost = spent[workers] / spent[0]
            print(f"| {name} | {rates[0]} | {rates[1]} | {share:.0%} | {cost:.2f} |", flush=True)


def pairs(n_val: int, turns: int) -> None:
    print("| method | N | ns of processor per pair | bytes placed per row | bytes handed in per point and row |")
    print("|---|---|---|---|---|")
    for n_train in (100_000, 1_000_000):
        X, y, points, labels = problem(n_train, n_val)
        for name, settings in SETTINGS.items():
            model = KNNShapley(progress=False, **settings).fit(X, y)
            model.value(points[:64], labels[:64])
            best = np.inf
            for _ in range(turns):
                began = processor()
                model.value(points, labels)
                best = min(best, processor() - began)
            placed, handed = traffic(model, points, labels)
            cost = best * 1e9 / (n_train * n_val)
            print(
                f"| {name} | {n_train:,} | {cost:.2f} | {placed / n_train:.0f} | {handed / n_val / n_train:.3f} |",
                flush=True,
            )


def processor() -> float:
    """Processor time so far of this process and its children, in seconds."""
    try:
        import psutil  # comes with Dask and Ray
    except ImportError:
        used = resource.getrusage(resource.RUSAGE_SELF)
        return used.ru_utime + used.ru_stime
    own = psutil.Process()
    total = 0.0
    for process in (own, *own.children(recursive=True)):
        with suppress(psutil.Error):
            times = process.cpu_times()
            total += times.user + times.system
    return total


class Counting:
    """A cluster in this process that counts the bytes that a real one would send."""

    workers, ahead = 2, 4

    def __init__(self) -> None:
        self.placed = self.handed_in = 0
        self.results: dict[int, Any] = {}

    def place(self, thing: Any) -> Any:
        content = pickle.dumps(thing, protocol=5)
        self.placed += len(content)
        return pickle.loads(content)

    def submit(self, function: Callable[[Any, Any], Any], placed: Any, item: Any) -> int:
        part = function(placed, item)
        self.handed_in += len(pickle.dumps(part, protocol=5))
        handle = max(self.results, default=0) + 1
        self.results[handle] = part
        return handle

    def wait(self, handles: list[int]) -> set[int]:
        return set(handles)

    def get(self, handle: int) -> Any:
        return self.results.pop(handle)

    def drop(self, handles: list[int]) -> None:
        self.results.clear()

    def is_lost(self, error: BaseException) -> bool:
        return False


def traffic(model: Any, points: Any, labels: Any) -> tuple[int, int]:
    """Bytes of placed data, and of all submitted arguments."""
    cluster = Counting()
    with patch.object(runner, "active_cluster", lambda n_jobs: cluster):
        model.value(points, labels)
    return cluster.placed, cluster.handed_in


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="*", default=["threads", "dask", "ray", "pairs"])
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--points", type=int, default=1_024)
    parser.add_argument("--turns", type=int, default=5)
    given = parser.parse_args()
    for what in given.what:
        if what == "pairs":
            pairs(256, given.turns)
        else:
            scaling(what, given.rows, given.points, given.workers, given.turns)


if __name__ == "__main__":
    main()
