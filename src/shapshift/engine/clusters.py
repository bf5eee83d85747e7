"""Runs on a Dask or Ray cluster selected by a surrounding ``joblib.parallel_config``.

joblib selects the cluster, and the cluster schedules tasks. This module places the data once per worker (once per
machine with Ray), returns results in order with only a few waiting at a time, and resubmits work lost with a worker.
Dask and Ray themselves repeat tasks that were running on a lost worker.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Protocol

from shapshift.engine.parallel import CLUSTERS, active_backend
from shapshift.exceptions import InputError, MissingLibraryError

# Largest number of consecutive losses of work with its workers before an error.
ATTEMPTS = 5
# Time to wait for the first worker of a cluster without workers.
PATIENCE_SECONDS = 180
INSTALL = "pip install 'shapshift[{0}]'"


class Cluster(Protocol):
    """Interface of a cluster for :func:`in_order`."""

    workers: int
    """Number of tasks that run at a time."""
    ahead: int
    """Number of tasks to submit at a time."""

    def place(self, thing: Any) -> Any:
        """Bring data to all workers, possibly read-only; return a reference to them."""

    def submit(self, function: Callable[[Any, Any], Any], placed: Any, item: Any) -> Any:
        """Start ``function(data, item)``; return a handle."""

    def wait(self, handles: list[Any]) -> set[Any]:
        """Wait until a task is done; return all that are."""

    def get(self, handle: Any) -> Any:
        """Fetch a result."""

    def drop(self, handles: list[Any]) -> None:
        """Discard tasks."""

    def is_lost(self, error: BaseException) -> bool:
        """Whether the error means a lost worker rather than a failed task."""


def active_cluster(n_jobs: int | None) -> Cluster | None:
    """Return the cluster of the surrounding ``joblib.parallel_config``; None if threads do the work.

    Parameters
    ----------
    n_jobs : int or None
        Number of tasks at a time; None and -1 mean the number of processors of the cluster.
    """
    backend, context_jobs = active_backend()
    kind = _KINDS.get(type(backend).__name__)
    return None if kind is None else kind(backend, context_jobs if n_jobs is None else n_jobs)


def in_order(
    cluster: Cluster, function: Callable[[Any, Any], Any], shared: Any, items: Iterable[Any], waiting: int
) -> Iterator[Any]:
    """Yield ``function(shared, item)`` for each item, in the order of the items.

    Parameters
    ----------
    cluster : Cluster
    function : callable
        Importable on the workers; the same arguments must always give the same result, on any worker.
    shared : object
        Placed once per worker and never changed. It must not be a plain collection, which Dask would take apart.
    items : iterable
        Small objects.
    waiting : int
        Largest number of results that wait for their turn.
    """
    placed = cluster.place(shared)
    rest = iter(items)
    queue: deque[tuple[Any, Any]] = deque()  # items and handles, in order
    done: set[Any] = set()
    lost = 0
    try:
        while True:
            while len(queue) - len(done) < cluster.ahead and len(queue) < max(waiting, cluster.workers):
                item = next(rest, None)
                if item is None:
                    break
                queue.append((item, cluster.submit(function, placed, item)))
            if not queue:
                return
            try:
                if queue[0][1] not in done:
                    done |= cluster.wait([handle for _, handle in queue if handle not in done])
                    if queue[0][1] not in done:
                        continue
                result = cluster.get(queue[0][1])
            except BaseException as error:
                if not cluster.is_lost(error) or lost == ATTEMPTS:
                    raise
                # Tasks in progress may need the lost data: all of them restart from data that exist.
                lost += 1
                cluster.drop([handle for _, handle in queue])
                placed = cluster.place(shared)
                queue = deque((item, cluster.submit(function, placed, item)) for item, _ in queue)
                done = set()
                continue
            lost = 0
            done.discard(queue.popleft()[1])
            yield result
            del result  # frees it before the next one arrives
    finally:
        with suppress(Exception):  # a lost cluster has no tasks to discard
            cluster.drop([handle for _, handle in queue])


def _count(n_jobs: int | None, slots: int) -> int:
    """Read ``n_jobs`` as joblib does, with the processors of the cluster instead of those of this machine."""
    if n_jobs is None:
        return slots
    return max(slots + 1 + n_jobs, 1) if n_jobs < 0 else n_jobs


class Dask:
    """Tasks on a Dask cluster."""

    def __init__(self, backend: Any, n_jobs: int | None) -> None:
        self._client = backend.client
        self._client.wait_for_workers(1, timeout=PATIENCE_SECONDS)
        slots = sum(self._client.nthreads().values())
        self.workers = _count(n_jobs, slots)
        # If all slots are used, queue one additional task per worker.
        self.ahead = self.workers if self.workers < slots else 2 * self.workers

    def place(self, thing: Any) -> Any:
        """Scatter to one worker, from which each other worker, also a later one, fetches the data once."""
        for attempt in range(ATTEMPTS + 1):
            self._client.wait_for_workers(1, timeout=PATIENCE_SECONDS)
            try:
                placed = self._client.scatter(thing, hash=False)
                # scatter(broadcast=True) hangs if a worker has just died. Empty tasks fetch the data instead: those of
                # a dead worker go to another one.
                errands = [
                    self._client.submit(_arrive, placed, workers=[address], allow_other_workers=True, pure=False)
                    for address in self._client.nthreads()
                ]
                self._client.gather(errands)
            except BaseException as error:
                # It takes a moment until a lost worker is known as lost.
                if attempt == ATTEMPTS or not (self.is_lost(error) or isinstance(error, OSError)):
                    raise
                time.sleep(1.0)
            else:
                break
        return placed

    def submit(self, function: Callable[[Any, Any], Any], placed: Any, item: Any) -> Any:
        """Submit a task."""
        return self._client.submit(function, placed, item, pure=False)

    def wait(self, handles: list[Any]) -> set[Any]:
        """Wait until a task is done."""
        from distributed import wait

        return set(wait(handles, return_when="FIRST_COMPLETED").done)

    def get(self, handle: Any) -> Any:
        """Fetch a result."""
        return handle.result()

    def drop(self, handles: list[Any]) -> None:
        """Cancel tasks whose results are not needed."""
        if handles:
            self._client.cancel(handles)

    def is_lost(self, error: BaseException) -> bool:
        """Whether data were lost that only lost workers had; Dask itself repeats the tasks that were running."""
        from concurrent.futures import CancelledError

        from distributed import KilledWorker

        return isinstance(error, CancelledError | KilledWorker)


def _arrive(placed: Any) -> None:
    """Do nothing, on a worker that fetches the data as an argument."""


class Ray:
    """Tasks on a Ray cluster."""

    def __init__(self, backend: Any, n_jobs: int | None) -> None:
        import ray

        if not ray.is_initialized():  # as joblib's own backend would
            ray.init()
        slots = int(ray.cluster_resources().get("CPU", 1))
        self.workers = _count(n_jobs, slots)
        self.ahead = self.workers if self.workers < slots else 2 * self.workers
        self._functions: dict[Any, Any] = {}

    def place(self, thing: Any) -> Any:
        """Put data into the object store, from which all workers of a machine read.

        All processes of a machine share one copy, so arrays are read-only. For Numba this is another type: kernels are
        compiled for it once and cached on the disk of each machine.
        """
        import ray

        return ray.put(thing)

    def submit(self, function: Callable[[Any, Any], Any], placed: Any, item: Any) -> Any:
        """Submit a task."""
        import ray

        if function not in self._functions:
            self._functions[function] = ray.remote(num_cpus=1, max_retries=ATTEMPTS)(function)
        return self._functions[function].remote(placed, item)

    def wait(self, handles: list[Any]) -> set[Any]:
        """Wait until a task is done."""
        import ray

        return set(ray.wait(handles, num_returns=1)[0])

    def get(self, handle: Any) -> Any:
        """Fetch a result."""
        import ray

        return ray.get(handle)

    def drop(self, handles: list[Any]) -> None:
        """Let the tasks finish: cancelling one that is about to end aborts the process (Ray 2.60)."""

    def is_lost(self, error: BaseException) -> bool:
        """Whether a worker is lost for good; Ray itself repeats tasks of lost workers a number of times."""
        from ray.exceptions import NodeDiedError, ObjectLostError, WorkerCrashedError

        return isinstance(error, ObjectLostError | WorkerCrashedError | NodeDiedError)


_KINDS: dict[str, Callable[[Any, int | None], Cluster]] = dict(zip(CLUSTERS, (Dask, Ray), strict=True))


@contextmanager
def connected(address: str) -> Iterator[None]:
    """Work on a cluster inside the context.

    Parameters
    ----------
    address : str
        ``local``, ``dask://host:port`` or ``ray://host:port``.
    """
    from shapshift.engine.parallel import backend_context

    kind, _, place = address.partition("://")
    if address == "local":
        yield
    elif kind == "dask" and place:
        with _dask_client(place), backend_context("dask"):
            yield
    elif kind == "ray" and place:
        with _ray_session(address), backend_context("ray"):
            yield
    else:
        raise InputError(
            "The 'cluster' parameter of connected must be 'local', 'dask://host:port' or 'ray://host:port'. Got "
            f"{address!r} instead."
        )


@contextmanager
def _dask_client(place: str) -> Iterator[None]:
    try:
        from distributed import Client
    except ImportError:
        raise _missing("dask") from None
    try:
        client = Client(f"tcp://{place}", timeout=PATIENCE_SECONDS / 6)
    except (OSError, TimeoutError, ValueError) as error:
        raise _unreachable(f"dask://{place}", "dask scheduler", error) from error
    with client:
        yield


@contextmanager
def _ray_session(address: str) -> Iterator[None]:
    try:
        import ray
        from ray.util.joblib import register_ray
    except ImportError:
        raise _missing("ray") from None
    try:
        ray.init(address, log_to_driver=False)
    except (OSError, ConnectionError, TimeoutError, ValueError, RuntimeError) as error:
        raise _unreachable(address, "ray start --head --ray-client-server-port=10001", error) from error
    register_ray()
    try:
        yield
    finally:
        ray.shutdown()


def _missing(kind: str) -> ImportError:
    return MissingLibraryError(f"The 'cluster' parameter of connected needs {kind}: {INSTALL.format(kind)}")


def _unreachable(address: str, command: str, error: BaseException) -> InputError:
    return InputError(
        f"The 'cluster' parameter of connected must name a reachable cluster. Got {address!r} ({error}). Start it "
        f"with '{command}', or check host, port, firewall and, if required, the token."
    )
