"""What takes long: jobs that say how far they are, and can be cancelled."""

import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from shapshift._progress import watched


class CancelledError(Exception):
    """Raised inside a job that is not wanted any more."""


@dataclass
class Job:
    """Something that takes long.

    Attributes
    ----------
    name : str
        One of a name runs at a time.
    title : str
        What the page calls it.
    state : {"waiting", "running", "done", "failed", "cancelled"}
    step : str
        What is being done.
    done, total : int
        Steps; 0 of 0 where their number is not known.
    error : str
    """

    name: str
    title: str
    run: Callable[[], object]
    state: str = "waiting"
    step: str = ""
    done: int = 0
    total: int = 0
    error: str = ""
    unwanted: bool = False

    def tell(self, step: str, done: int, total: int) -> None:
        """Note how far it is; ends the job where it was cancelled."""
        if self.unwanted:
            raise CancelledError
        self.step, self.done, self.total = step, done, total

    def facts(self) -> dict[str, Any]:
        """Return what the page shows."""
        names = ("name", "title", "state", "step", "done", "total", "error")
        return {name: getattr(self, name) for name in names}


class Work:
    """A thread that does one job after the other.

    Parameters
    ----------
    report : callable, optional
        Told the traceback of a job that failed for a reason that is no mistake of the user.

    Examples
    --------
    >>> work = Work()
    >>> work.start("sum", "Adding", lambda: sum(range(3)))
    >>> work.wait("sum")
    'done'
    """

    def __init__(self, report: Callable[[str], object] = lambda text: None) -> None:
        self._report = report
        self._jobs: dict[str, Job] = {}
        self._queue: deque[Job] = deque()
        self._change = threading.Condition()
        threading.Thread(target=self._serve, name="shapshift-work", daemon=True).start()

    def start(self, name: str, title: str, run: Callable[[], object]) -> None:
        """Do something when its turn comes, in place of what has the same name."""
        job = Job(name, title, run)
        with self._change:
            self._drop(name)
            self._jobs[name] = job
            self._queue.append(job)
            self._change.notify_all()

    def cancel(self, name: str = "") -> None:
        """Cancel the job of that name, or all jobs."""
        with self._change:
            for known in [name] if name else list(self._jobs):
                self._drop(known)

    def _drop(self, name: str) -> None:
        job = self._jobs.get(name)
        if job is not None and job.state in ("waiting", "running"):
            job.unwanted = True
            if job.state == "waiting":
                self._queue.remove(job)
                job.state = "cancelled"
                self._change.notify_all()

    def facts(self) -> list[dict[str, Any]]:
        """Return the jobs, the latest of each name."""
        with self._change:
            return [job.facts() for job in self._jobs.values()]

    def is_busy(self, name: str) -> bool:
        """Whether a job of that name waits or runs."""
        with self._change:
            job = self._jobs.get(name)
            return job is not None and job.state in ("waiting", "running")

    def wait(self, name: str, seconds: float = 60.0) -> str:
        """Wait until a job has ended; returns its state."""
        end = time.monotonic() + seconds
        with self._change:
            while (job := self._jobs[name]).state in ("waiting", "running") and time.monotonic() < end:
                self._change.wait(max(end - time.monotonic(), 0.0))
            return job.state

    def _serve(self) -> None:
        while True:
            with self._change:
                while not self._queue:
                    self._change.wait()
                job = self._queue.popleft()
                job.state = "running"
            state, error = "done", ""
            try:
                with watched(job.tell):
                    job.run()
            except CancelledError:
                state = "cancelled"
            except (ValueError, OSError, ImportError, MemoryError) as problem:
                state, error = "failed", str(problem) or type(problem).__name__
            except Exception as problem:  # a bug must not end the thread: the page says that there was one
                self._report(traceback.format_exc())
                state, error = "failed", f"{type(problem).__name__}: {problem}"
            with self._change:
                job.state, job.error = state, error
                self._change.notify_all()
