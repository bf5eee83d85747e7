"""Fitted models under load: interrupted, shared by threads, called again and again."""

from __future__ import annotations

import gc
import random
import resource
import signal
import threading
import time
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from reliability import GROUPS, T, V, X, Y, result_bytes, small_blocks
from sklearn.naive_bayes import GaussianNB

from shapshift import (
    KNNRegressionShapley,
    KNNShapley,
    SampledShapley,
    ThresholdKNNShapley,
    WeightedKNNShapley,
    audit_shift,
    knn_interactions,
)

QUIET: dict[str, Any] = {"progress": False}
NUMBERS, TARGETS = X[:, 0] + 0.5 * Y, V[:, 0] + 0.5 * T


def value(model: Any, points: Any, labels: Any) -> dict[str, bytes]:
    return result_bytes(model.value(points, labels))


def audit(model: Any, points: Any, labels: Any) -> dict[str, bytes]:
    found = audit_shift(model, points, labels, noise=[0.5], repeats=4, progress=False)
    return {"means": found.means.tobytes()}


def interact(model: Any, points: Any, labels: Any) -> dict[str, bytes]:
    found = knn_interactions(model, points, labels, top=3, progress=False)
    return {"pairs": found.to_sparse().toarray().tobytes()}


# What there is to call: a fitted model, its validation labels, and the call.
LOADS: dict[str, tuple[Callable[[], Any], Any, Callable[..., dict[str, bytes]]]] = {
    "exact": (lambda: KNNShapley(**QUIET).fit(X, Y), T, value),
    "exact, 2 threads": (lambda: KNNShapley(n_jobs=2, **QUIET).fit(X, Y), T, value),
    "truncated": (lambda: KNNShapley(method="truncated", tol=0.1, **QUIET).fit(X, Y), T, value),
    "truncated, 2 threads": (lambda: KNNShapley(method="truncated", tol=0.1, n_jobs=2, **QUIET).fit(X, Y), T, value),
    "regression": (lambda: KNNRegressionShapley(**QUIET).fit(X, NUMBERS), TARGETS, value),
    "threshold": (lambda: ThresholdKNNShapley(1.0, n_jobs=2, **QUIET).fit(X, Y), T, value),
    "weighted": (lambda: WeightedKNNShapley(3, **QUIET).fit(X, Y), T, value),
    "sampled": (
        lambda: SampledShapley(GaussianNB(), max_fits=40, sampler="permutation", **QUIET).fit(X[:12], Y[:12]),
        T,
        value,
    ),
    "audit": (lambda: KNNShapley(n_jobs=2, **QUIET).fit(X, Y), T, audit),
    "interactions": (lambda: KNNShapley(n_jobs=2, **QUIET).fit(X, Y), T, interact),
}


def interrupts(times: int, seed: int, folder: Path) -> dict[str, int]:
    """Press Ctrl-C at random instants of each kind of call; the object must go on as if nothing had happened."""
    rng = random.Random(seed)

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    stopped = 0
    try:
        for name, (fit, labels, call) in LOADS.items():
            model = fit()
            expected = call(model, V, labels)
            began = time.perf_counter()
            call(model, V, labels)
            takes = time.perf_counter() - began
            for number in range(times):
                stopped += _interrupted(rng.uniform(0.0001, 1.2 * takes), partial(call, model, V, labels))
                if number % 10 == 0 or number == times - 1:
                    assert call(model, V, labels) == expected, f"{name}: another result after an interrupt"
        # With a checkpoint, and in the midst of a fit.
        model = KNNShapley(n_jobs=2, **QUIET).fit(X, Y)
        with small_blocks():
            expected = result_bytes(model.value(V, T, groups=GROUPS))
        for number in range(times):
            place = folder / "interrupted"
            with small_blocks():
                stopped += _interrupted(
                    rng.uniform(0.0001, 0.15), partial(model.value, V, T, groups=GROUPS, checkpoint=place)
                )
                stopped += _interrupted(rng.uniform(0.0001, 0.002), partial(model.fit, X, Y))
                if number % 10 == 0 or number == times - 1:
                    assert result_bytes(model.value(V, T, groups=GROUPS, checkpoint=place)) == expected
    finally:
        signal.signal(signal.SIGALRM, before)
    return {"calls": times * (len(LOADS) + 2), "interrupted": stopped}


def _interrupted(after: float, call: Callable[[], Any]) -> bool:
    began, hit = time.perf_counter(), False
    with suppress(KeyboardInterrupt):
        try:
            signal.setitimer(signal.ITIMER_REAL, after)
            call()
        except KeyboardInterrupt:
            hit = True
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    assert time.perf_counter() - began < 60, "an interrupted call did not return"
    return hit


def shared_model(n_threads: int, calls: int) -> dict[str, int]:
    """Call one fitted model from many threads at once."""
    made = 0
    for name, (fit, labels, call) in LOADS.items():
        sets = [(V[i::7], np.asarray(labels)[i::7]) for i in range(7)]
        alone, model = fit(), fit()
        expected = [call(alone, *points) for points in sets]
        wrong: list[Any] = []
        start = threading.Barrier(n_threads)
        # Calls that fit models or walk through pairs take long.
        each = calls if name not in ("sampled", "audit", "interactions") else -(-calls // 10)

        def work(
            first: int,
            model: Any = model,
            call: Any = call,
            sets: Any = sets,
            expected: Any = expected,
            wrong: list[Any] = wrong,
            start: Any = start,
            each: int = each,
        ) -> None:
            try:
                start.wait()
                for number in range(first, first + each):
                    assert call(model, *sets[number % len(sets)]) == expected[number % len(sets)], number
            except BaseException as error:
                wrong.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(n_threads)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong, (name, wrong)
        made += n_threads * each
    return {"kinds of call": len(LOADS), "threads": n_threads, "calls": made}


def resident() -> int:
    """Bytes of memory that this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def many_calls(calls: int) -> dict[str, int]:
    """Call value again and again; returns by how many bytes memory has grown since the first fifth."""
    model = KNNShapley(n_jobs=2, progress=False).fit(X, Y)

    def call(number: int) -> None:
        model.value(V[: 50 + number % 50], T[: 50 + number % 50], groups=GROUPS[: 50 + number % 50])

    for number in range(calls // 5):
        call(number)
    gc.collect()
    before = resident()
    for number in range(calls):
        call(number)
    gc.collect()
    grown = resident() - before
    tracemalloc.start()
    for number in range(calls // 20):
        call(number)
    gc.collect()
    traced = tracemalloc.get_traced_memory()[0]
    for number in range(calls // 5):
        call(number)
    gc.collect()
    objects = tracemalloc.get_traced_memory()[0] - traced
    tracemalloc.stop()
    return {"calls": calls, "resident bytes grown": grown, "object bytes grown": objects}
