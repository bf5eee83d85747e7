"""The one place that knows about workers."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import joblib


def n_workers(n_jobs: int | None) -> int:
    """How many workers ``n_jobs`` means here: None is 1 unless a ``joblib.parallel_config`` says otherwise."""
    return int(joblib.effective_n_jobs(n_jobs))


@contextmanager
def thread_pool(workers: int) -> Iterator[Callable[[Callable[[Any], Any], Iterable[Any]], list[Any]]]:
    """Yield a function that maps over items and returns the results in the order of the items.

    Workers write into arrays of this process, whatever backend a surrounding context prefers.

    Examples
    --------
    >>> with thread_pool(2) as map_in_order:
    ...     map_in_order(abs, [-1, 2, -3])
    [1, 2, 3]
    """
    with joblib.Parallel(n_jobs=workers, require="sharedmem") as parallel:
        yield lambda function, items: parallel(joblib.delayed(function)(item) for item in items)


def stream(function: Callable[[Any], Any], items: Iterable[Any], workers: int) -> Iterator[Any]:
    """Yield the result for each item, in order, while threads work ahead.

    Items are taken one after the other, by whichever thread comes next; no more than a few wait at a time.

    Examples
    --------
    >>> list(stream(abs, [-1, 2, -3], 2))
    [1, 2, 3]
    """
    if workers == 1:
        yield from map(function, items)
        return
    parallel = joblib.Parallel(n_jobs=workers, require="sharedmem", return_as="generator")
    yield from parallel(joblib.delayed(function)(item) for item in items)


def active_backend() -> tuple[Any, int | None]:
    """Return joblib's backend of the surrounding ``joblib.parallel_config``, and the number of jobs it asks for."""
    backend, n_jobs = joblib.parallel.get_active_backend()
    return backend, None if n_jobs is None else int(n_jobs)


def backend_context(name: str) -> AbstractContextManager[Any]:
    """Make a backend of joblib the active one."""
    context: AbstractContextManager[Any] = joblib.parallel_config(backend=name)
    return context
