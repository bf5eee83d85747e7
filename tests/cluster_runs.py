"""Runs on a real Dask or Ray cluster of two workers on this machine, in a process of their own.

``python cluster_runs.py dask`` prints one JSON object; testclusters.py and soak.py read it.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import joblib
import numpy as np
from load_runs import LOADS
from reliability import N_ROWS, T, V, X, Y, copies_run, interrupted_after, result_bytes, small_blocks, small_run
from sklearn.naive_bayes import GaussianNB

from shapshift import KNNShapley, SampledShapley, audit_shift
from shapshift.engine import clusters, runner

ADDRESS = "127.0.0.1"


@contextmanager
def dask_cluster() -> Iterator[Callable[[bool], int]]:
    """Yield a function that kills a worker, or all of them."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, host=ADDRESS, dashboard_address=None, silence_logs=50
        ) as cluster,
        Client(cluster) as client,
    ):

        def kill(every: bool) -> int:
            client.wait_for_workers(2, timeout=180)  # another one may be on its way for one that was killed before
            return kill_some(list(client.run(os.getpid).values()), every)

        cluster_address[0] = cluster.scheduler_address.replace("tcp://", "dask://")
        yield kill


@contextmanager
def ray_cluster() -> Iterator[Callable[[bool], int]]:
    """Yield a function that kills a worker, or all of them."""
    # A token of this run alone: Ray would keep one in the user's home. On a machine that has much else to do, the
    # helpers of a node take long to start.
    os.environ |= {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_IGNORE_UNHANDLED_ERRORS": "1",
        "RAY_agent_register_timeout_ms": "120000",
        "RAY_worker_niceness": "0",  # or whatever else runs here would leave them nothing
    }
    import ray
    from ray.util.joblib import register_ray

    node = "127.0.0.2"  # 127.0.0.1 it would take for another address
    port, client_port = free_ports(node, 2)
    folder = tempfile.mkdtemp(prefix="ray")
    head = subprocess.Popen(
        [
            sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", "--num-cpus=2",
            "--object-store-memory=80000000", "--include-dashboard=false", "--disable-usage-stats",
            f"--node-ip-address={node}", f"--port={port}", f"--ray-client-server-port={client_port}",
            f"--temp-dir={folder}",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        for attempt in range(60):
            try:
                ray.init(f"{node}:{port}", log_to_driver=False, logging_level="CRITICAL", _node_ip_address=node)
                break
            except (ConnectionError, RuntimeError, ValueError):
                assert head.poll() is None, "the cluster did not start"
                assert attempt < 59, "the cluster does not answer"
                time.sleep(1)
        register_ray()
        cluster_address[0] = f"ray://{node}:{client_port}"
        tries = [0]

        def kill(every: bool) -> int:
            # At best in the midst of a task; where tasks are so short that none is seen at it, while it waits for one.
            tries[0] += 1
            workers = list(own_processes())
            busy = [pid for pid, name in workers if "ray::value_blocks" in name]
            idle = [pid for pid, name in workers if "ray::IDLE" in name]
            return kill_some(busy or (idle if tries[0] % 20 == 0 else []), every)

        try:
            yield kill
        finally:
            ray.shutdown()
    finally:
        head.terminate()
        head.wait(60)
        shutil.rmtree(folder, ignore_errors=True)


def free_ports(host: str, count: int) -> list[int]:
    """Find ports that nobody listens at."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind((host, 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


cluster_address: list[str] = [""]


def kill_some(pids: list[int], every: bool) -> int:
    """Kill the first or all; returns how many."""
    chosen = pids if every else pids[:1]
    for pid in chosen:
        os.kill(pid, signal.SIGKILL)
    return len(chosen)


def own_processes(session: int = 0) -> Iterator[tuple[int, str]]:
    """Ids and names of the processes of a session: another cluster on the machine is none of our business."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                if os.getsid(int(entry.name)) == (session or os.getsid(0)):
                    yield int(entry.name), (entry / "cmdline").read_bytes().split(b"\0")[0].decode(errors="replace")


@contextmanager
def killing(kill: Callable[[bool], int], after: int, every: bool) -> Iterator[tuple[list[int], list[int]]]:
    """Kill when so many results have come in, or later where nobody was at work; yields what came, and the killed."""
    came: list[int] = []
    killed: list[int] = []
    usual = clusters.in_order

    def watched(*arguments: Any) -> Iterator[Any]:
        for part in usual(*arguments):
            came.append(part.n_blocks)
            if len(came) >= after and not any(killed):
                killed.append(kill(every))
            yield part

    with patch.object(runner, "in_order", watched):
        yield came, killed


def larger_run(**settings: Any) -> Any:
    """Long enough for workers to be killed in the middle of it."""
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(4_000, 6)), rng.integers(0, 3, size=4_000)
    points, labels = rng.normal(size=(16_000, 6)), rng.integers(0, 3, size=16_000)
    return KNNShapley(progress=False, **settings).fit(X, y).value(points, labels, groups=labels)


def sparse_run() -> Any:
    from scipy import sparse

    rows = sparse.csr_array(sparse.random(200, 30, density=0.2, random_state=0, format="csr"))
    return KNNShapley(progress=False, metric="cosine").fit(rows, np.arange(200) % 3).value(rows[:90], np.arange(90) % 3)


def files_run(folder: Path, method: str, checkpoint: Path | None = None, **settings: Any) -> Any:
    """Training rows that stay in a file, which all workers can read."""
    batches = ((X[k::3], Y[k::3]) for k in range(3))
    model = KNNShapley(method=method, scratch=folder, progress=False, **settings).fit(batches)
    with small_blocks():
        return model.value(V, T, groups=T, checkpoint=checkpoint)


def checks(kind: str, kill: Callable[[bool], int], folder: Path) -> dict[str, Any]:
    """Everything that must hold on a cluster; raises where it does not."""
    report: dict[str, Any] = {}
    runs: dict[str, Callable[[], Any]] = {
        "exact": small_run,
        "matrix": lambda: small_run(matrix=True),
        "truncated": lambda: small_run(method="truncated", tol=0.1),
        "truncated matrix": lambda: small_run(method="truncated", tol=0.1, matrix=True, max_memory="20MB"),
        "copies": copies_run,
        "exclude": lambda: KNNShapley(progress=False).fit(X, Y).value(X[::3], Y[::3], exclude=np.arange(N_ROWS)[::3]),
        "one job": lambda: small_run(n_jobs=1),
        "little memory": lambda: small_run(max_memory="8MB"),
        "sparse": sparse_run,
        "exact, files": lambda: files_run(folder, "exact"),
        "truncated, files": lambda: files_run(folder, "truncated", tol=0.1),
        "certified, files": lambda: files_run(folder, "certified", tol=1e9),
    }
    expected = {name: result_bytes(run()) for name, run in runs.items()}
    larger = result_bytes(larger_run())
    with joblib.parallel_config(backend=kind):
        assert [clusters.active_cluster(n).workers for n in (None, -1, 1, 5)] == [2, 2, 1, 5]  # type: ignore[union-attr]
        for name, run in runs.items():
            placed = [0]
            with counting_placements(placed):
                assert result_bytes(run()) == expected[name], f"{name}: other bytes on the cluster"
            assert name.startswith("certified") or placed == [1], f"{name}: placed {placed[0]} times"
        report["same bytes"] = list(runs)
        for every in (False, True):
            began = time.perf_counter()
            with killing(kill, 3, every) as (came, killed):
                assert result_bytes(larger_run()) == larger, "other bytes after workers were killed"
            assert any(killed), "no worker was killed"
            name = "all workers killed" if every else "a worker killed"
            report[name] = f"{max(killed)} of 2, same bytes, {len(came)} tasks, {time.perf_counter() - began:.1f} s"
        # What began on the cluster goes on here, and the other way round.
        with interrupted_after(7):
            small_run(folder / "progress")
        with interrupted_after(7):
            files_run(folder, "certified", folder / "of files", tol=1e9)
    assert result_bytes(small_run(folder / "progress")) == expected["exact"]
    assert result_bytes(files_run(folder, "certified", folder / "of files", tol=1e9)) == expected["certified, files"]
    with interrupted_after(7):
        small_run(folder / "other", every=3)
    with joblib.parallel_config(backend=kind):
        assert result_bytes(small_run(folder / "other")) == expected["exact"]
        report["checkpoints"] = "go on here and there"
        model = KNNShapley(progress=False).fit(X, Y)
        there = audit_shift(model, V, T, noise=[0.5], repeats=2, progress=False)
        with_error = errors(model)
    here = audit_shift(model, V, T, noise=[0.5], repeats=2, progress=False)
    assert there.means.tobytes() == here.means.tobytes()
    report["audit"] = "same bytes"
    report["errors"] = with_error
    report["command line"] = command_line(folder)
    report["threads of this machine"] = others(kind)
    if kind == "dask":  # with Ray, data are not placed on workers
        with joblib.parallel_config(backend=kind):
            kill(False)  # nobody knows of it yet when the data are placed
            assert result_bytes(small_run()) == expected["exact"], "other bytes after a worker was killed at the start"
        report["a worker killed at the start"] = "same bytes"
    return report


def others(kind: str) -> list[str]:
    """Methods that have threads, or workers of joblib's own: they must not mind where they are called."""
    calls: dict[str, Callable[[], Any]] = {
        name: partial(LOADS[name][2], LOADS[name][0](), V, LOADS[name][1])
        for name in ("regression", "threshold", "weighted", "interactions")
    }
    calls["lsh"] = lambda: result_bytes(
        KNNShapley(method="truncated", tol=0.1, search="lsh", progress=False, n_jobs=-1).fit(X, Y).value(V, T)
    )
    if kind == "dask":  # Ray takes half a minute to start the workers that joblib asks for
        calls["sampled"] = lambda: result_bytes(
            SampledShapley(GaussianNB(), max_fits=60, sampler="permutation", n_jobs=2, progress=False)
            .fit(X[:12], Y[:12])
            .value(V, T)
        )
    calls["exact, after all of these"] = lambda: result_bytes(small_run())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that hashing does not pay on so few rows
        expected = {name: call() for name, call in calls.items()}
        with joblib.parallel_config(backend=kind):
            for name, call in calls.items():
                assert call() == expected[name], f"{name}: other bytes inside the cluster's context"
    return list(calls)


def errors(model: Any) -> str:
    """An error in a worker arrives as itself and leaves the model usable."""
    with patch.object(runner, "value_blocks", broken), small_blocks():
        try:
            model.value(V, T)
        except ZeroDivisionError:
            pass
        else:
            raise AssertionError("an error in a worker was lost")
    assert model.value(V, T).n_train == N_ROWS
    return "arrive"


def broken(job: Any, blocks: range) -> Any:
    raise ZeroDivisionError


def command_line(folder: Path) -> str:
    """``--cluster`` leaves the bytes of a local run."""
    for name, rows, labels in (("train", X, Y), ("val", V, T)):
        np.savez(folder / f"{name}.npz", X=rows, y=labels)
    files = []
    for place in (cluster_address[0], "local"):
        out = folder / place.split(":")[0]
        command = [
            sys.executable, "-m", "shapshift", "value", str(folder / "train.npz"), str(folder / "val.npz"),
            "--cluster", place, "--out", str(out), "--quiet",
        ]  # fmt: skip
        for _ in range(3):  # on a machine with much else to do, Ray gives its own server too little time to start
            ran = subprocess.run(command, capture_output=True, text=True)
            if "Starting Ray client server failed" not in ran.stderr:
                break
        assert ran.returncode == 0, ran.stderr
        files.append({path.name: path.read_bytes() for path in out.iterdir()})
    assert files[0] == files[1], "the command line wrote other bytes"
    return "same bytes"


@contextmanager
def counting_placements(placed: list[int]) -> Iterator[None]:
    with patch.object(clusters.Dask, "place", _counted(clusters.Dask.place, placed)):  # noqa: SIM117
        with patch.object(clusters.Ray, "place", _counted(clusters.Ray.place, placed)):
            yield


def _counted(place: Any, placed: list[int]) -> Any:
    def counted(self: Any, thing: Any) -> Any:
        placed[0] += 1
        return place(self, thing)

    return counted


def main(kind: str) -> None:
    folder = Path(tempfile.mkdtemp())
    try:
        with {"dask": dask_cluster, "ray": ray_cluster}[kind]() as kill:
            print(json.dumps(checks(kind, kill, folder)))
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main(sys.argv[1])
