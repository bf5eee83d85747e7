"""Clusters: a Dask or Ray cluster that a surrounding ``joblib.parallel_config`` names does the work.

joblib selects the cluster, and the cluster schedules tasks. This module places the data once per worker (once per
machine with Ray), returns results in order with only a few waiting at a time, and submits again what was lost with a
worker. Dask and Ray themselves repeat tasks that were running on a lost worker.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Protocol

from shapshift.engine.parallel import CLUSTERS, active_backend
from shapshift.exceptions import InputError, MissingLibraryError

# How often in a row work may get lost with its workers before that is an error.
ATTEMPTS = 5
# How long to wait for the first worker of a cluster that has none yet.
PATIENCE_SECONDS = 180
INSTALL = "pip install 'shapshift[{0}]'"


class Cluster(Protocol):
    """What :func:`in_order` needs of a cluster."""

    workers: int
    """How many tasks work at a time."""
    ahead: int
    """How many tasks are worth handing out at a time."""

    def place(self, thing: Any) -> Any:
        """Bring data to all workers, where they may arrive read-only; returns what stands for them."""

    def submit(self, function: Callable[[Any, Any], Any], placed: Any, item: Any) -> Any:
        """Begin with ``function(data, item)``; returns a handle."""

    def wait(self, handles: list[Any]) -> set[Any]:
        """Wait until one is done; returns those that are."""

    def get(self, handle: Any) -> Any:
        """Fetch a result."""

    def drop(self, handles: list[Any]) -> None:
        """Forget about tasks."""

    def is_lost(self, error: BaseException) -> bool:
        """Whether the error says that a worker is gone, and not that its work went wrong."""


def active_cluster(n_jobs: int | None) -> Cluster | None:
    """Return the cluster of the surrounding ``joblib.parallel_config``; None where threads do the work.

    Parameters
    ----------
    n_jobs : int or None
        How many tasks work at a time; None and -1 mean as many as the cluster has processors.
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
        Importable on the workers; the same arguments must give the same result, wherever and however often it runs.
    shared : object
        Placed once per worker; never written to. Not a plain collection, which Dask would take apart.
    items : iterable
        Small.
    waiting : int
        Most results that wait for their turn.
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
                # Whatever is under way may need what was lost: all of it starts again, from data that are there.
                lost += 1
                cluster.drop([handle for _, handle in queue])
                placed = cluster.place(shared)
                queue = deque((item, cluster.submit(function, placed, item)) for item, _ in queue)
                done = set()
                continue
            lost = 0
            done.discard(queue.popleft()[1])
            yield result
            del result  # or it would be kept while the next one arrives
    finally:
        with suppress(Exception):  # a cluster that is gone has nothing to forget
            cluster.drop([handle for _, handle in queue])


def _count(n_jobs: int | None, slots: int) -> int:
    """Read ``n_jobs`` as joblib does, with the processors of the cluster for those of the machine."""
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
        # If all slots are used, queue one more task for each worker.
        self.ahead = self.workers if self.workers < slots else 2 * self.workers

    def place(self, thing: Any) -> Any:
        """Scatter to a worker, from which every other one fetches the data once, also those that come later."""
        for attempt in range(ATTEMPTS + 1):
            self._client.wait_for_workers(1, timeout=PATIENCE_SECONDS)
            try:
                placed = self._client.scatter(thing, hash=False)
                # scatter(broadcast=True) hangs if a worker has just died. Tasks that do nothing fetch the data instead:
                # those of a dead worker are given to another one.
                errands = [
                    self._client.submit(_arrive, placed, workers=[address], allow_other_workers=True, pure=False)
                    for address in self._client.nthreads()
                ]
                self._client.gather(errands)
            except BaseException as error:
                # A worker that is gone is known as such only after a moment.
                if attempt == ATTEMPTS or not (self.is_lost(error) or isinstance(error, OSError)):
                    raise
                time.sleep(1.0)
            else:
                break
        return placed

    def submit(self, function: Callable[[Any, Any], Any], placed: Any, item: Any) -> Any:
        """Hand out a task."""
        return self._client.submit(function, placed, item, pure=False)

    def wait(self, handles: list[Any]) -> set[Any]:
        """Wait until one is done."""
        from distributed import wait

        return set(wait(handles, return_when="FIRST_COMPLETED").done)

    def get(self, handle: Any) -> Any:
        """Fetch a result."""
        return handle.result()

    def drop(self, handles: list[Any]) -> None:
        """Cancel what nobody waits for."""
        if handles:
            self._client.cancel(handles)

    def is_lost(self, error: BaseException) -> bool:
        """Tasks that were under way are repeated by Dask itself; what is left are data that only lost workers had."""
        from concurrent.futures import CancelledError

        from distributed import KilledWorker

        return isinstance(error, CancelledError | KilledWorker)


def _arrive(placed: Any) -> None:
    """Do nothing, on a worker that must fetch the data to do it."""


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
        """Put into the object store, which every worker of a machine reads from.

        All processes of a machine share one copy, so arrays arrive read-only. To Numba that is another type: kernels
        are compiled for it once, and kept on the disk of each machine.
        """
        import ray

        return ray.put(thing)

    def submit(self, function: Callable[[Any, Any], Any], placed: Any, item: Any) -> Any:
        """Hand out a task."""
        import ray

        if function not in self._functions:
            self._functions[function] = ray.remote(num_cpus=1, max_retries=ATTEMPTS)(function)
        return self._functions[function].remote(placed, item)

    def wait(self, handles: list[Any]) -> set[Any]:
        """Wait until one is done."""
        import ray

        return set(ray.wait(handles, num_returns=1)[0])

    def get(self, handle: Any) -> Any:
        """Fetch a result."""
        import ray

        return ray.get(handle)

    def drop(self, handles: list[Any]) -> None:
        """Leave the tasks to end: cancelling one that is about to end aborts the process (Ray 2.60)."""

    def is_lost(self, error: BaseException) -> bool:
        """Tasks of lost workers are repeated by Ray itself, up to a number of times."""
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
        f"The 'cluster' parameter of connected must name a cluster that answers. Got {address!r} ({error}). Start it "
        f"with '{command}', or check host, port, firewall and, where it asks for one, the token."
    )
