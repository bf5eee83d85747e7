"""Rows that stay in a file: the same bytes as in memory, or as in one piece, within the budget."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import naive
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_clusters import Pretended

from shapshift import KNNShapley, Valuation
from shapshift.engine import certified, sharded
from shapshift.engine import exact as exact_module
from shapshift.engine.certified import Coarseness
from shapshift.engine.exact import RankWorker
from shapshift.engine.rows import file as rowfile
from shapshift.engine.rows.file import RowFile, RowWriter
from shapshift.kernels.panels import unpack

METHODS = {"exact": {}, "certified": {"tol": 1e9}, "truncated": {"tol": 0.05}}


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if memory were tiny: nothing is loaded, shards are short, buckets are used for few rows too."""
    monkeypatch.setattr(rowfile, "LOAD_BYTES", 0)
    monkeypatch.setattr(rowfile, "CHUNK_BYTES", 2**10)
    monkeypatch.setattr("shapshift.engine.rows.distances.CHUNK_BYTES", 2**10)
    monkeypatch.setattr(sharded, "SHARD_ROWS", 100)
    monkeypatch.setattr(sharded, "LEAST_SHARD", 20)
    monkeypatch.setattr(certified, "choose_coarseness", lambda n, limit: Coarseness(min(40, n), 60))


def same(found: Valuation, want: Valuation) -> None:
    for field in fields(Valuation):
        a, b = getattr(found, field.name), getattr(want, field.name)
        if isinstance(b, np.ndarray):
            np.testing.assert_array_equal(a, b, err_msg=field.name)
        elif field.name == "parameters":
            assert dict(a) == dict(b)
        else:
            assert a == b, field.name


class Data:
    def __init__(self, n: int, m: int, *, step: float = 0.0, d: int = 3, classes: int = 3, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.X, self.X_val = rng.normal(size=(n, d)), rng.normal(size=(m, d))
        if step:
            self.X, self.X_val = (np.round(rows / step) * step for rows in (self.X, self.X_val))
        self.y, self.y_val = rng.integers(0, classes, n), rng.integers(0, classes, m)
        self.groups = rng.integers(0, 4, m)

    def batches(self, size: int = 90) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        return ((self.X[i : i + size], self.y[i : i + size]) for i in range(0, len(self.y), size))

    def both(self, value: Callable[[KNNShapley], Any], more: dict[str, Any], **options: Any) -> tuple[Any, Any]:
        """Value with the rows in a file, and as :meth:`whole` does."""
        in_file = KNNShapley(**options, **more).fit(self.batches())
        assert isinstance(in_file._index.rows, RowFile)
        return value(in_file), self.whole(value, **options)

    def whole(self, value: Callable[[KNNShapley], Any], **options: Any) -> Any:
        """Value with the rows in memory; where values would be exact then, in a file and in one piece."""
        if options.get("method") != "certified":
            return value(KNNShapley(**options).fit(self.X, self.y))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sharded, "SHARD_ROWS", 10**6)
            patch.setattr(sharded, "ROUND_BYTES", 2**31)
            patch.setattr(sharded, "ROUND_POINTS", 1024)
            patch.setattr(sharded, "KEPT_POINTS", 10**6)
            return value(KNNShapley(**options).fit(self.batches()))


@pytest.mark.parametrize("metric", ["euclidean", "manhattan", "cosine"])
@pytest.mark.parametrize("step", [0.0, 0.5], ids=["distinct", "tied"])
@pytest.mark.parametrize("method", METHODS)
def test_values_have_the_bytes_of_those_in_memory(method: str, step: float, metric: str) -> None:
    data = Data(1003, 77, step=step)
    options = {"method": method, "metric": metric, **METHODS[method]}
    for more in ({"n_jobs": 2}, {"max_memory": "16MB"}):
        same(*data.both(lambda model: model.value(data.X_val, data.y_val, groups=data.groups), more, **options))


@given(
    n=st.integers(1, 400), m=st.integers(1, 50), d=st.integers(1, 6), step=st.sampled_from([0.0, 0.3, 1.0, 100.0]),
    method=st.sampled_from(list(METHODS)), metric=st.sampled_from(["euclidean", "cosine"]), shard=st.integers(1, 300),
    keep=st.booleans(), ties=st.sampled_from(["average", "index"]), n_neighbors=st.integers(1, 9),
    seed=st.integers(0, 9),
)  # fmt: skip
@settings(max_examples=60)
def test_any_cut_gives_the_same_bytes(
    n: int, m: int, d: int, step: float, method: str, metric: str, shard: int, keep: bool, ties: str, n_neighbors: int,
    seed: int,
) -> None:  # fmt: skip
    data = Data(n, m, step=step, d=d, seed=seed)
    options = {"method": method, "metric": metric, "ties": ties, "n_neighbors": n_neighbors, **METHODS[method]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sharded, "SHARD_ROWS", shard)
        patch.setattr(sharded, "ROUND_BYTES", 2**31 if keep else 0)
        patch.setattr("shapshift.checks.labels.warn", lambda *_: None)  # labels that no training row has
        same(*data.both(lambda model: model.value(data.X_val, data.y_val, groups=data.groups), {}, **options))


@pytest.mark.parametrize("keep", [True, False], ids=["images kept", "computed twice"])
@pytest.mark.parametrize("kept_points", [32, 1])
def test_rounds_and_exactly_ordered_points_change_nothing(
    keep: bool, kept_points: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharded, "ROUND_POINTS", 32)
    monkeypatch.setattr(sharded, "ROUND_BYTES", 2**31 if keep else 0)
    monkeypatch.setattr(sharded, "KEPT_POINTS", kept_points)
    ordered = []
    rank = sharded.ShardedJob._exact_values
    monkeypatch.setattr(sharded.ShardedJob, "_exact_values", lambda *a: ordered.extend(found := rank(*a)) or found)
    data = Data(600, 100)
    data.X[:300] = data.X[0]  # too many at one distance for the buckets of the points nearby
    data.X_val[::3] = data.X[0] + 1e-3
    found = data.both(
        lambda model: model.value(data.X_val, data.y_val, groups=data.groups), {}, method="certified", tol=1e9
    )
    same(*found)
    assert 0 < len(ordered) < 200  # of two runs
    exact = KNNShapley().fit(data.X, data.y).value(data.X_val, data.y_val)
    assert (np.abs(found[0].values - exact.values) <= found[0].error_bound).all()


def test_a_round_makes_room_for_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shapshift.engine.runner.BLOCK_PAIRS", 1)
    monkeypatch.setattr(sharded, "ROUND_POINTS", 32)
    rounds: list[weakref.ref[Any]] = []
    first = sharded.ShardedJob._first_pass

    def look(*arguments: Any) -> Any:
        assert all(one() is None for one in rounds)
        found = first(*arguments)
        rounds.append(weakref.ref(found))
        return found

    monkeypatch.setattr(sharded.ShardedJob, "_first_pass", look)
    data = Data(300, 100)
    KNNShapley(method="certified", tol=1e9).fit(data.batches()).value(data.X_val, data.y_val)
    assert len(rounds) == 4


@pytest.mark.parametrize("round_points", [7, 1024])
@pytest.mark.parametrize("method", METHODS)
def test_blocks_and_bundles_are_added_up_in_the_same_order(
    method: str, round_points: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shapshift.engine.runner.LEAST_POINTS", 3)
    monkeypatch.setattr("shapshift.engine.runner.BLOCK_POINTS", 3)
    monkeypatch.setattr("shapshift.engine.runner.BLOCK_PAIRS", 1)
    monkeypatch.setattr("shapshift.engine.runner.LEAST_BUNDLES", 6)
    monkeypatch.setattr(sharded, "ROUND_POINTS", round_points)
    data = Data(300, 77)
    options = {"method": method, **METHODS[method]}
    same(*data.both(lambda model: model.value(data.X_val, data.y_val, groups=data.groups), {}, **options))


@pytest.mark.parametrize("bundles", [10**6, 6], ids=["blocks", "bundles of blocks"])
def test_a_cluster_makes_both_passes_for_its_blocks(bundles: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shapshift.engine.runner.LEAST_POINTS", 3)
    monkeypatch.setattr("shapshift.engine.runner.BLOCK_POINTS", 3)
    monkeypatch.setattr("shapshift.engine.runner.BLOCK_PAIRS", 1)
    monkeypatch.setattr("shapshift.engine.runner.LEAST_BUNDLES", bundles)
    monkeypatch.setattr(sharded, "KEPT_POINTS", 1)
    data = Data(600, 100)
    data.X[:300] = data.X[0]  # some points are ordered exactly
    data.X_val[::3] = data.X[0] + 1e-3
    model = KNNShapley(method="certified", tol=1e9).fit(data.batches())
    want = model.value(data.X_val, data.y_val, groups=data.groups)
    cluster = Pretended()
    monkeypatch.setattr("shapshift.engine.runner.active_cluster", lambda n_jobs: cluster)
    same(model.value(data.X_val, data.y_val, groups=data.groups), want)
    assert cluster.placed == 1


def test_a_certified_run_is_cut_up_to_fit_its_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharded, "SHARD_ROWS", 5000)
    monkeypatch.setattr(sharded, "LEAST_SHARD", 500)
    monkeypatch.setattr(certified, "choose_coarseness", lambda n, limit: Coarseness(200, 600))
    seen = []
    make = sharded.plan_shards

    def note(buckets: Any, width: int, runner: Any, **options: Any) -> Any:
        layout = make(buckets, width, runner, **options)
        memory, end = sharded.shard_memory(buckets, width, layout.shard, False)
        points = layout.round * (memory.point + layout.keep * 2 * buckets.task.n_train)
        assert max(memory.fixed + layout.workers * memory.worker + points, end) <= runner.max_memory * 15 / 16
        seen.append(layout)
        return layout

    monkeypatch.setattr(sharded, "plan_shards", note)
    data = Data(40_000, 70, classes=2)
    model = KNNShapley(method="certified", tol=1e9, n_jobs=8).fit(data.batches(4000))
    found = [model.set_params(max_memory=f"{memory}MB").value(data.X_val, data.y_val) for memory in (15, 18, 30, 60)]
    for one in found[1:]:
        same(one, found[0])
    assert [layout.workers for layout in seen] == sorted(layout.workers for layout in seen)
    assert seen[0].workers < seen[-1].workers
    assert seen[-1].keep
    assert seen[0].shard < seen[-1].shard


@pytest.mark.parametrize("method", METHODS)
def test_neighbours_ranks_and_hidden_rows(method: str) -> None:
    data = Data(500, 40, step=0.5)
    rng = np.random.default_rng(1)
    reference, hidden = rng.integers(0, 500, (40, 3)), rng.integers(-1, 500, 40)
    options = {"method": method, **METHODS[method]}
    (found, near), (want, wanted) = data.both(
        lambda model: model.value_and_neighbors(data.X_val, data.y_val, reference=reference), {}, **options
    )
    same(found, want)
    np.testing.assert_array_equal(near.nearest, wanted.nearest)
    np.testing.assert_array_equal(near.reference_ranks, wanted.reference_ranks)
    same(*data.both(lambda model: model.value(data.X_val, data.y_val, exclude=hidden), {}, **options))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("case", ["equal rows", "one row", "one class", "far away"])
def test_odd_tables(method: str, case: str) -> None:
    data = Data(1 if case == "one row" else 210, 9, classes=1 if case == "one class" else 2)
    data.y_val[:] = data.y[0]
    if case == "equal rows":
        data.X[:] = 3.0
    if case == "far away":
        data.X, data.X_val = (rows * 1e-150 + 1e-140 for rows in (data.X, data.X_val))
    same(*data.both(lambda model: model.value(data.X_val, data.y_val), {}, method=method, **METHODS[method]))


@pytest.mark.parametrize("utility", ["soft", "hard"])
def test_values_are_those_of_enumerated_subsets(utility: str) -> None:
    data = Data(7, 4, classes=2, step=0.5)
    found, _ = data.both(lambda model: model.value(data.X_val, data.y_val), {}, n_neighbors=2, utility=utility)
    distances = naive.distance_matrix(data.X_val, data.X, "sqeuclidean")
    rules = {"n_neighbors": 2, "utility": utility, "semivalue": "shapley", "ties": "average"}
    n_classes = len(set(data.y.tolist()))
    values = [
        naive.knn_values(row, (data.y == label).tolist(), n_classes=n_classes, **rules)
        for row, label in zip(distances, data.y_val, strict=True)
    ]
    want = np.mean(values, axis=0)
    np.testing.assert_allclose(found.values, want, rtol=0, atol=1e-12)


def test_the_order_of_rows_and_of_files_changes_no_value() -> None:
    data, other = Data(400, 20, step=0.5), Data(400, 20, step=0.5)
    order = np.random.default_rng(3).permutation(400)
    other.X, other.y = data.X[order], data.y[order]
    found, shuffled = (
        KNNShapley().fit(each.batches()).value(data.X_val, data.y_val) for each in (data, other)
    )  # fmt: skip
    np.testing.assert_allclose(found.values[order], shuffled.values, rtol=0, atol=1e-12)


@pytest.mark.parametrize("matrix", [False, True])
def test_keys_that_do_not_fit_in_memory_go_to_a_scratch_file(
    tmp_path: Path, matrix: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    n = 300_000
    made = []
    spilled = exact_module.spilled
    monkeypatch.setattr(exact_module, "spilled", lambda folder, *a: made.append(folder) or spilled(folder, *a))
    monkeypatch.setattr("shapshift.engine.rows.distances.CHUNK_BYTES", 2**21)
    data = Data(n, 3, classes=2)
    model = KNNShapley(scratch=tmp_path, max_memory="90MB").fit(data.batches(2**16))
    found = model.value(data.X_val, data.y_val, groups=range(3), matrix=matrix)
    assert not made
    model.max_memory = "70MB" if matrix else "64MB"
    spilt = model.value(data.X_val, data.y_val, groups=range(3), matrix=matrix)
    assert made == [tmp_path] * 3
    same(spilt, found)
    same(found, KNNShapley().fit(data.X, data.y).value(data.X_val, data.y_val, groups=range(3), matrix=matrix))
    model.max_memory = "10MB"
    with pytest.raises(ValueError, match=r"'max_memory' parameter must be at least 6\d\.\dMB"):
        model.value(data.X_val, data.y_val, groups=range(3), matrix=matrix)
    del model
    gc.collect()
    assert os.listdir(tmp_path) == []


def test_exact_values_go_on_from_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = Data(500, 90)
    with RowWriter(tmp_path, 3, "<f8", keep="points") as writer:
        writer.append(data.X_val)
        points = np.load(writer.finish().path, mmap_mode="r")
    monkeypatch.setattr("shapshift.engine.runner.BLOCK_PAIRS", 1)
    want = KNNShapley().fit(data.X, data.y).value(data.X_val, data.y_val)
    value = RankWorker.value

    def dies(worker: Any, batch: slice, *rest: Any) -> None:
        if batch.start >= 32:
            raise KeyboardInterrupt
        value(worker, batch, *rest)

    model = KNNShapley().fit(data.batches())
    with monkeypatch.context() as patch:
        patch.setattr(RankWorker, "value", dies)
        with pytest.raises(KeyboardInterrupt):
            model.value(points, data.y_val, checkpoint=tmp_path / "kept")
    same(model.value(points, data.y_val, checkpoint=tmp_path / "kept"), want)


@pytest.mark.parametrize("bundles", [10**6, 6], ids=["blocks", "bundles of blocks"])
def test_certified_values_go_on_from_a_checkpoint(
    bundles: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shapshift.engine.runner.LEAST_POINTS", 3)
    monkeypatch.setattr("shapshift.engine.runner.BLOCK_POINTS", 3)
    monkeypatch.setattr("shapshift.engine.runner.BLOCK_PAIRS", 1)
    monkeypatch.setattr("shapshift.engine.runner.LEAST_BUNDLES", bundles)
    monkeypatch.setattr("shapshift.engine.checkpoint.EVERY_SECONDS", 0.0)
    monkeypatch.setattr("shapshift.engine.checkpoint.LOST_SHARE", 0.0)
    monkeypatch.setattr("shapshift.engine.checkpoint.WRITING_SHARE", np.inf)
    monkeypatch.setattr(sharded, "ROUND_POINTS", 24)
    monkeypatch.setattr(sharded, "KEPT_POINTS", 1)
    data = Data(600, 100)
    data.X[:300] = data.X[0]  # some points are ordered exactly, which cuts rounds into stretches
    data.X_val[::3] = data.X[0] + 1e-3
    rng = np.random.default_rng(1)
    call = {"groups": data.groups, "checkpoint": tmp_path / "kept"}
    want = data.whole(
        lambda model: model.value(data.X_val, data.y_val, groups=data.groups), method="certified", tol=1e9
    )
    first, second = sharded.ShardedJob._first_pass, sharded.ShardedJob._second_pass
    measured = []

    def look(run: Any, here: slice, *rest: Any) -> Any:
        measured.append(here.start)
        return first(run, here, *rest)

    monkeypatch.setattr(sharded.ShardedJob, "_first_pass", look)
    for _ in range(30):
        model = KNNShapley(method="certified", tol=1e9).fit(data.batches())
        left = [int(rng.integers(1, 6))]

        def dies(run: Any, *arguments: Any, left: list[int] = left) -> None:
            left[0] -= 1
            if not left[0]:
                raise KeyboardInterrupt
            second(run, *arguments)

        monkeypatch.setattr(sharded.ShardedJob, "_second_pass", dies)
        try:
            found = model.value(data.X_val, data.y_val, **call)
        except KeyboardInterrupt:
            continue
        same(found, want)
        break
    else:
        raise AssertionError("it never came to its end")
    assert measured == sorted(measured)  # no round before the one that was interrupted
    assert len(set(measured)) > 5
    measured.clear()
    same(model.value(data.X_val, data.y_val, **call), want)
    assert measured == []
    model.set_params(tol=2e9)
    with pytest.raises(ValueError, match="belongs to a run with other tol"):
        model.value(data.X_val, data.y_val, **call)


def test_what_rows_in_a_file_cannot_do_is_said() -> None:
    data = Data(4000, 3)
    with pytest.raises(ValueError, match=r"'matrix' parameter must be False for method='certified' on training rows"):
        KNNShapley(method="certified").fit(data.batches()).value(data.X_val, data.y_val, matrix=True)
    with pytest.raises(ValueError, match=r"'search' parameter must be 'exact' for training rows that stay in a file"):
        KNNShapley(method="truncated", search="lsh", tol=0.1).fit(data.batches()).value(data.X_val, data.y_val)
    with pytest.raises(ValueError, match=r"'max_memory' parameter must be at least .*MB for 4000 training rows in a"):
        KNNShapley(method="certified", max_memory="1MB").fit(data.batches()).value(data.X_val, data.y_val)
    data.X[5, 1] = 1e300
    with pytest.raises(ValueError, match=r"values too far apart for float64 distances: 1e\+300 at row 5, column 1"):
        KNNShapley().fit(data.batches())


def test_a_calculation_that_is_interrupted_leaves_no_scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = Data(600, 40)
    data.X[:300] = data.X[0]
    model = KNNShapley(method="certified", tol=1e9, scratch=tmp_path).fit(data.batches())
    before = os.listdir(tmp_path)
    want = model.value(data.X_val, data.y_val)
    with monkeypatch.context() as patch:

        def interrupt(*_: Any) -> None:
            raise KeyboardInterrupt

        patch.setattr(sharded.ShardedJob, "_add_shard", interrupt)
        with pytest.raises(KeyboardInterrupt):
            model.value(data.X_val, data.y_val)
    assert os.listdir(tmp_path) == before
    same(model.value(data.X_val, data.y_val), want)


MEASURE = """
import json, sys
import numpy as np
from shapshift import KNNShapley
from shapshift.engine.rows import file as rowfile
rowfile.LOAD_BYTES = 0


def field(name):
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith(name))


def forget_peak():
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    return field("VmHWM")


options = json.loads(sys.argv[1])
rng = np.random.default_rng(0)
n, m, d = 200_000, 120, 16
X_val, y, y_val = rng.normal(size=(m, d)), rng.integers(0, 2, n), rng.integers(0, 2, m)
X = np.memmap(sys.argv[2], dtype=np.float32, mode="r", shape=(n, d))
KNNShapley(**options).fit(X[:60_000], y[:60_000]).value(X_val, y_val)  # loads the compiled code
before = forget_peak()
model = KNNShapley(**options).fit(X, y)
fitted = forget_peak()
model.value(X_val, y_val)
print(field("VmHWM") - fitted, isinstance(model._index.rows, rowfile.RowFile))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from /proc")
@pytest.mark.parametrize(("method", "budget"), [("exact", 60), ("certified", 62), ("truncated", 50)])
def test_peak_memory_is_within_the_budget(tmp_path: Path, method: str, budget: int) -> None:
    rows = np.random.default_rng(0).normal(size=(200_000, 16)).astype(np.float32)
    rows.tofile(tmp_path / "rows")
    options = {"method": method, "max_memory": budget * 10**6, "n_jobs": 2, "progress": False, "tol": 0.003}
    command = [sys.executable, "-c", MEASURE, json.dumps(options), str(tmp_path / "rows")]
    run = subprocess.run(command, capture_output=True, text=True)
    if "clear_refs" in run.stderr:
        pytest.skip("this system does not let a process reset its peak memory")
    assert run.returncode == 0, run.stderr
    growth, in_file = run.stdout.split()
    assert in_file == "True"
    assert int(growth) <= budget * 10**6


def test_a_writer_writes_plain_numpy_files(tmp_path: Path) -> None:
    rows = np.arange(12.0).reshape(4, 3)
    with RowWriter(tmp_path, 3, "<f8", keep="rows") as writer:
        writer.append(rows[:3])
        writer.append(rows[3:])
        file = writer.finish()
    np.testing.assert_array_equal(np.load(file.path), rows)
    np.testing.assert_array_equal(file[1:3], rows[1:3])
    np.testing.assert_array_equal(unpack(file.panels(1, 4), slice(0, 3)), rows[1:4])
    np.testing.assert_array_equal(unpack(file.scaled(1, None).panels(0, 2), slice(0, 2)), rows[:2] / 2)
    np.testing.assert_array_equal(file.take(np.array([3, 0])), rows[[3, 0]])
    with RowWriter(tmp_path, 3, "<f8") as writer:
        writer.append(rows)
    assert [str(path) for path in tmp_path.iterdir()] == [file.path]
