"""Threads and worker processes: all parallel execution goes through this module."""

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import Any, TypeVar

import joblib

Function = Callable[[Any], Any]
T = TypeVar("T")

# How often a worker process checks that its parent is alive.
PARENT_SECONDS = 1.0
# Names of joblib's backends with remote workers, so that the check imports nothing.
CLUSTERS = ("DaskDistributedBackend", "RayBackend")


def n_workers(n_jobs: int | None) -> int:
    """Return the number of threads for ``n_jobs``: None is 1 unless a ``joblib.parallel_config`` says otherwise."""
    if is_cluster_active():  # its processors do not count for this machine's threads
        return max(joblib.cpu_count() + 1 + n_jobs, 1) if n_jobs is not None and n_jobs < 0 else n_jobs or 1
    return int(joblib.effective_n_jobs(n_jobs))


class _Pool(ThreadPoolExecutor):
    """Threads whose start can be interrupted.

    If an interrupt arrives while a thread starts, Python does not hold its own lock, and releasing it raises
    RuntimeError, which would hide the Ctrl-C.
    """

    def submit(self, *given: Any, **options: Any) -> Future[Any]:
        try:
            return super().submit(*given, **options)
        except RuntimeError as error:
            if isinstance(error.__context__, KeyboardInterrupt):
                raise error.__context__ from None
            raise


@contextmanager
def thread_pool(workers: int) -> Iterator[Callable[[Function, Iterable[Any]], list[Any]]]:
    """Yield a function that maps over items and returns the results in the order of the items.

    Always threads of this process, for any backend of a surrounding context, because they write into its arrays.
    joblib's own threads would work, but joblib polls for results only every hundredth of a second.

    Examples
    --------
    >>> with thread_pool(2) as map_in_order:
    ...     map_in_order(abs, [-1, 2, -3])
    [1, 2, 3]
    """
    if workers == 1:
        yield lambda function, items: list(map(function, items))
        return
    pool = _Pool(workers)
    try:
        yield lambda function, items: list(pool.map(function, items))
    finally:
        # Tasks that have not started are dropped, so that an interrupted call ends with the current items.
        pool.shutdown(cancel_futures=True)


def stream(
    function: Function, items: Iterable[Any], workers: int, most: int | None = None
) -> Generator[Any, None, None]:
    """Yield the result for each item, in order, while threads work ahead.

    The thread that asks for results takes the items one by one. At most ``most`` of them are submitted, running or done
    at a time; by default a few more than there are workers.

    Examples
    --------
    >>> list(stream(abs, [-1, 2, -3], 2))
    [1, 2, 3]
    """
    if workers == 1:
        yield from map(function, items)
        return
    pool = _Pool(workers)
    waiting: deque[Future[Any]] = deque()
    try:
        for item in items:
            if len(waiting) == (2 * workers + 1 if most is None else most):
                yield waiting.popleft().result()
            waiting.append(pool.submit(function, item))
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def worker_pool(n_jobs: int | None) -> Iterator[tuple[int, Callable[[Callable[..., Any], Iterable[Any]], list[Any]]]]:
    """Yield the number of workers, and a function that maps a pure function over arguments in joblib's active backend.

    Results come back in the order of the arguments.
    """
    with joblib.Parallel(n_jobs=n_jobs) as parallel:
        process = os.getpid()

        def run(function: Callable[..., Any], arguments: Iterable[Any]) -> list[Any]:
            return list(parallel(joblib.delayed(_call_in_child)(process, function, argument) for argument in arguments))

        yield joblib.effective_n_jobs(n_jobs), run


def _call_in_child(parent: int, function: Callable[..., Any], argument: Any) -> Any:
    """Call a function; in a child process of ``parent``, end with the parent."""
    if os.getppid() == parent:
        _end_with_parent(parent)
    return function(argument)


@cache
def _end_with_parent(parent: int) -> None:
    """Start a thread that ends this process once its parent is gone; joblib's workers would wait for five minutes.

    They do not notice the parent's end, because each of them holds both ends of the pipe for work.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(PARENT_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, name="shapshift-parent", daemon=True).start()


def active_backend() -> tuple[Any, int | None]:
    """Return joblib's backend of the surrounding ``joblib.parallel_config``, and the number of jobs it asks for."""
    backend, n_jobs = joblib.parallel.get_active_backend()
    return backend, None if n_jobs is None else int(n_jobs)


def is_cluster_active() -> bool:
    """Whether a surrounding ``joblib.parallel_config`` names a cluster."""
    return type(active_backend()[0]).__name__ in CLUSTERS


def backend_context(name: str) -> AbstractContextManager[Any]:
    """Activate a backend of joblib."""
    context: AbstractContextManager[Any] = joblib.parallel_config(backend=name)
    return context


def take_spare(pool: list[T]) -> T | None:
    """Take an object from a pool, or None; testing first would let another thread take the last one in between.

    Examples
    --------
    >>> pool = [1]
    >>> take_spare(pool), take_spare(pool)
    (1, None)
    """
    try:
        return pool.pop()
    except IndexError:
        return None
