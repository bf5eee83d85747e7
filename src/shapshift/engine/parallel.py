"""The one place that knows about workers."""

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

# How often a worker process looks whether its parent is alive.
PARENT_SECONDS = 1.0
# joblib's backends whose workers are other machines, by name, so that nothing is imported to ask.
CLUSTERS = ("DaskDistributedBackend", "RayBackend")


def n_workers(n_jobs: int | None) -> int:
    """How many threads ``n_jobs`` means here: None is 1 unless a ``joblib.parallel_config`` says otherwise."""
    if is_cluster_active():  # its processors are no concern of this machine's threads
        return max(joblib.cpu_count() + 1 + n_jobs, 1) if n_jobs is not None and n_jobs < 0 else n_jobs or 1
    return int(joblib.effective_n_jobs(n_jobs))


class _Pool(ThreadPoolExecutor):
    """Threads whose start may be interrupted.

    Python's own lock is not held where an interrupt meets the start of a thread, and releasing it raises RuntimeError,
    which would hide that Ctrl-C was pressed.
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

    Threads of this process, whatever backend a surrounding context prefers: they write into arrays of this process.
    joblib's own threads would do, but it looks for their results only every hundredth of a second.

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
        # What has not begun is dropped, so that an interrupted call ends with the items in hand.
        pool.shutdown(cancel_futures=True)


def stream(
    function: Function, items: Iterable[Any], workers: int, most: int | None = None
) -> Generator[Any, None, None]:
    """Yield the result for each item, in order, while threads work ahead.

    Items are taken one after the other by the thread that asks for results. No more than ``most`` of them are under
    way, done or just handed out at a time; by default a few more than there are workers.

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
    """Yield the number of workers, and what maps a pure function over arguments in whatever backend joblib is set to.

    Results come back in the order of the arguments.
    """
    with joblib.Parallel(n_jobs=n_jobs) as parallel:
        process = os.getpid()

        def run(function: Callable[..., Any], arguments: Iterable[Any]) -> list[Any]:
            return list(parallel(joblib.delayed(_call_in_child)(process, function, argument) for argument in arguments))

        yield joblib.effective_n_jobs(n_jobs), run


def _call_in_child(parent: int, function: Callable[..., Any], argument: Any) -> Any:
    """Call a function; where this is a child process of ``parent``, it ends when its parent does."""
    if os.getppid() == parent:
        _end_with_parent(parent)
    return function(argument)


@cache
def _end_with_parent(parent: int) -> None:
    """Let a thread end this process once its parent is gone: joblib's workers wait five minutes for work of a dead one.

    They do not notice its end, because each of them holds both ends of the pipe that work comes through.
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
    """Make a backend of joblib the active one."""
    context: AbstractContextManager[Any] = joblib.parallel_config(backend=name)
    return context


def take_spare(pool: list[T]) -> T | None:
    """Take one, if there is any; asking first would let another thread take the last one in between.

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
