"""Runs that are killed, cut off from power or out of disk go on, and end with the same bytes."""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import fuzz_runs
import numpy as np
import pytest
import reliability
from cli_files import Ran, run
from reliability import GROUPS, N_VAL, T, V, X, Y, contents, done_blocks, interrupted_after, result_bytes, small_run

from shapshift import BoundaryCorrector, KNNShapley
from shapshift.engine import checkpoint, truncated
from shapshift.io import files as _files

TESTS = Path(__file__).parent
N_BLOCKS = 150


def apart(module: str, work: str, *before: str) -> dict[str, int]:
    """Let a process of its own do it: it forks, is interrupted, or is measured."""
    code = f"import json; from pathlib import Path; import {module}; print(json.dumps({module}.{work}))"
    ran = subprocess.run([*before, sys.executable, "-c", code], cwd=TESTS, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    found: dict[str, int] = json.loads(ran.stdout)
    return found


@pytest.fixture(scope="module")
def expected() -> dict[str, bytes]:
    return result_bytes(small_run())


def test_a_run_killed_at_25_random_instants_ends_with_the_same_bytes(tmp_path: Path) -> None:
    found = apart("reliability", f"kill_loop(Path({str(tmp_path)!r}), 25, 0)")
    assert found["kills"] == 25
    assert found["of runs with progress"] > 5


def test_power_loss_at_every_instant(tmp_path: Path) -> None:
    found = reliability.power_losses(tmp_path, every=25)
    assert found["instants"] > 20
    assert found["went on"] > found["instants"] // 2


def test_the_power_loss_is_one(tmp_path: Path) -> None:
    # Without syncs what the disk holds must be refused, or the test above tests nothing.
    with pytest.raises(ValueError, match="damaged"):
        reliability.power_losses(tmp_path, syncs=False, every=25)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"n_jobs": 2},
        {"matrix": True},
        {"method": "certified", "tol": 0.3},
        {"method": "truncated", "tol": 0.1},
        {"method": "truncated", "tol": 0.1, "matrix": True, "n_jobs": 2},
        {"metric": "cosine", "n_neighbors": 1},
    ],
    ids=["exact", "threads", "matrix", "certified", "truncated", "truncated matrix", "cosine"],
)
def test_every_kind_of_run_goes_on(tmp_path: Path, settings: dict[str, Any]) -> None:
    whole = result_bytes(small_run(**settings))
    for waves in (3, 9, 2):
        with interrupted_after(waves):
            small_run(tmp_path / "progress", **settings)
    assert 0 < done_blocks(tmp_path / "progress") < N_BLOCKS
    assert result_bytes(small_run(tmp_path / "progress", **settings)) == whole
    assert done_blocks(tmp_path / "progress") == N_BLOCKS
    # A finished run is there at once, without a write.
    before = contents(tmp_path / "progress")
    assert result_bytes(small_run(tmp_path / "progress", **settings)) == whole
    assert contents(tmp_path / "progress") == before


def test_a_run_with_copies_of_rows_goes_on(tmp_path: Path) -> None:
    whole = result_bytes(reliability.copies_run())
    with interrupted_after(4):
        reliability.copies_run(tmp_path / "progress")
    assert 0 < done_blocks(tmp_path / "progress") < N_BLOCKS
    assert result_bytes(reliability.copies_run(tmp_path / "progress")) == whole


def test_sparse_and_precomputed_runs_go_on(tmp_path: Path) -> None:
    from scipy import sparse

    distances = np.abs(V[:, :1] - X[:, 0])
    kinds = [("euclidean", sparse.csr_array(np.abs(X)), sparse.csr_array(V)), ("precomputed", None, distances)]
    for metric, rows, points in kinds:
        model = KNNShapley(metric=metric, progress=False).fit(rows, Y)
        with reliability.small_blocks():
            whole = result_bytes(model.value(points, T))
            with interrupted_after(4):
                model.value(points, T, checkpoint=tmp_path / metric)
            assert result_bytes(model.value(points, T, checkpoint=tmp_path / metric)) == whole
        with pytest.raises(ValueError, match="validation points"):
            model.value(2 * points, T, checkpoint=tmp_path / metric)


def test_a_run_may_go_on_with_other_workers_and_other_memory(tmp_path: Path, expected: dict[str, bytes]) -> None:
    with interrupted_after(4):
        small_run(tmp_path / "progress", every=7)
    with interrupted_after(4):
        small_run(tmp_path / "progress", n_jobs=3)
    assert result_bytes(small_run(tmp_path / "progress", max_memory="20MB", every=3)) == expected


def test_a_truncated_run_may_go_on_with_smaller_and_larger_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, Any] = {"method": "truncated", "tol": 0.1}
    monkeypatch.setattr("shapshift.knn.base.sampled_count", lambda n, m: 8)  # or these would decide about the budget
    whole = result_bytes(small_run(**settings))
    sizes: list[int] = []
    usual = truncated.ListJob
    monkeypatch.setattr(truncated, "ListJob", lambda *given: sizes.append(given[2]) or usual(*given))
    done = [0]
    for memory in (None, "2.6MB", None):
        with interrupted_after(4):
            small_run(tmp_path / "progress", max_memory=memory, **settings)
        done.append(done_blocks(tmp_path / "progress"))
    assert sizes == [4, 2, 4]
    assert done == sorted(set(done))
    assert done[-1] < N_BLOCKS
    assert result_bytes(small_run(tmp_path / "progress", **settings)) == whole


def test_a_checkpoint_is_refused_where_it_is_of_no_use(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"'checkpoint' parameter needs search='exact'.*Got search='lsh'"):
        small_run(tmp_path / "progress", method="truncated", search="lsh")
    model = KNNShapley(progress=False).fit(X, Y)
    with pytest.raises(ValueError, match=r"'correction' parameter does not go with .*'checkpoint'"):
        model.value(V, T, correction=BoundaryCorrector().fit(model.value(V, T)), checkpoint=tmp_path / "progress")
    assert not (tmp_path / "progress").exists()


def test_states_are_written_no_more_often_than_it_pays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    write = checkpoint.write_archive
    monkeypatch.setattr(
        checkpoint, "write_archive", lambda path, *more: (written.append(path.name), write(path, *more))
    )
    model = KNNShapley(progress=False).fit(X, Y)
    model.value(V, T, checkpoint=tmp_path / "progress")  # far less than a second
    assert written == [f"points-1-0-{N_VAL}.npz", "state-1.npz"]


@pytest.mark.parametrize("settings", [{}, {"n_jobs": 2}, {"method": "truncated", "tol": 0.1}])
def test_every_block_can_be_written_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]
) -> None:
    written: list[str] = []
    write = checkpoint.Stage._write
    monkeypatch.setattr(
        checkpoint.Stage, "_write", lambda self, name, *rest: written.append(name) or write(self, name, *rest)
    )
    small_run(tmp_path / "progress", every=1, **settings)
    assert written.count("state-1.npz") == N_BLOCKS


def test_what_a_state_takes(tmp_path: Path) -> None:
    # Levels that occur and groups, and the same again for the bundle that is not complete: what the guide says.
    with interrupted_after(2):
        small_run(tmp_path / "progress", every=1)  # an odd block: the bundle is open
    levels = small_run().level_entropy.size
    assert (tmp_path / "progress" / "state-1.npz").stat().st_size < 8 * X.shape[0] * 2 * (levels + 4) + 4000


DIFFERENT: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "n neighbors": ({"n_neighbors": 4}, {}),
    "utility": ({"utility": "hard"}, {}),
    "metric": ({"metric": "manhattan"}, {}),
    "method": ({"method": "certified"}, {}),
    "ties": ({"ties": "index"}, {}),
    "training rows": ({}, {"Y": np.roll(Y, 1)}),
    "validation points": ({}, {"V": V + 1}),
    "validation labels": ({}, {"T": np.roll(T, 1)}),
    "groups": ({}, {"GROUPS": GROUPS // 2}),
}


@pytest.mark.parametrize("what", DIFFERENT)
def test_another_run_is_refused_with_the_difference(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with interrupted_after(4):
        small_run(tmp_path / "progress")
    before = contents(tmp_path / "progress")
    settings, data = DIFFERENT[what]
    for name, array in data.items():
        monkeypatch.setattr(reliability, name, array)
    with pytest.raises(ValueError, match=rf"with other .*{what}.*Nothing in it was changed"):
        small_run(tmp_path / "progress", **settings)
    assert contents(tmp_path / "progress") == before


@pytest.mark.parametrize(
    ("key", "content", "why"),
    [
        ("version", 0, "format version 0, this release reads version 1"),
        ("version", 2, "format version 2, this release reads version 1"),
        ("release", "0.0.1", "release 0.0.1 began it"),
        ("format", "shapshift.Valuation", "it says that it holds a shapshift.Valuation"),
        ("run", {}, "other training rows"),
        ("run", "text", "damaged"),
    ],
)
def test_an_older_or_other_marker_is_refused(key: str, content: Any, why: str, tmp_path: Path) -> None:
    with interrupted_after(4):
        small_run(tmp_path / "progress")
    marker = tmp_path / "progress" / checkpoint.MARKER
    marker.write_text(json.dumps({**json.loads(marker.read_text()), key: content}))
    before = contents(tmp_path / "progress")
    with pytest.raises(ValueError, match=why):
        small_run(tmp_path / "progress")
    assert contents(tmp_path / "progress") == before


def test_a_state_of_another_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with interrupted_after(4):
        small_run(tmp_path / "progress")
    good = contents(tmp_path / "progress")["checkpoint.json"]
    monkeypatch.setattr(checkpoint, "FORMAT_VERSION", 2)
    (tmp_path / "progress" / "checkpoint.json").write_bytes(good.replace(b'"version": 1', b'"version": 2'))
    with pytest.raises(ValueError, match=r"state-1.npz' is damaged \(it has format version 1"):
        small_run(tmp_path / "progress")


def test_files_of_another_checkpoint_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one", "two"):
        with interrupted_after(4):
            small_run(tmp_path / name)
        monkeypatch.setattr(reliability, "T", np.roll(T, 1))
    for file in ("state-1.npz", "points-1-0-20.npz"):
        good = (tmp_path / "two" / file).read_bytes()
        (tmp_path / "two" / file).write_bytes((tmp_path / "one" / file).read_bytes())
        with pytest.raises(ValueError, match=rf"{file}' is damaged \(it was written by another run"):
            small_run(tmp_path / "two")
        (tmp_path / "two" / file).write_bytes(good)
    (tmp_path / "two" / "points-1-0-20.npz").unlink()
    with pytest.raises(ValueError, match=r"points-1-0-20.npz' is damaged \(it is not there"):
        small_run(tmp_path / "two")


def test_a_folder_of_other_things_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(ValueError, match=r"holds other files \('thesis.txt'\).*Name an empty or new folder"):
        small_run(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]
    with pytest.raises(ValueError, match="is a file; name another"):
        small_run(tmp_path / "thesis.txt")
    with pytest.raises(TypeError, match=r"must be None or the path of a folder. Got 3"):
        small_run(3)  # type: ignore[arg-type]


def test_folders_are_made_on_the_way(tmp_path: Path, expected: dict[str, bytes]) -> None:
    assert result_bytes(small_run(tmp_path / "a" / "b" / "c")) == expected
    (tmp_path / "empty").mkdir()
    assert result_bytes(small_run(tmp_path / "empty")) == expected


@pytest.mark.skipif(sys.platform == "win32", reason="stops a process with a signal")
def test_a_second_process_is_refused_and_a_killed_one_is_forgotten(tmp_path: Path, expected: dict[str, bytes]) -> None:
    code = (
        "import sys, time; from pathlib import Path; import reliability; from shapshift.engine import checkpoint\n"
        "save = checkpoint.Stage.save\n"
        "def stop(*arguments, **options):\n"
        "    save(*arguments, **options); print('saved', flush=True); time.sleep(600)\n"
        f"checkpoint.Stage.save = stop; reliability.small_run(Path({str(tmp_path / 'progress')!r}))"
    )
    first = subprocess.Popen([sys.executable, "-c", code], cwd=TESTS, stdout=subprocess.PIPE, text=True)
    try:
        assert first.stdout is not None
        assert first.stdout.readline() == "saved\n"
        before = contents(tmp_path / "progress")
        with pytest.raises(ValueError, match=r"is in use by another process"):
            small_run(tmp_path / "progress")
        assert contents(tmp_path / "progress") == before
    finally:
        first.send_signal(signal.SIGKILL)
        first.communicate()
    assert result_bytes(small_run(tmp_path / "progress")) == expected


def test_a_second_thread_is_refused(tmp_path: Path) -> None:
    same = {"training_rows": "same"}
    with checkpoint.Checkpoint(tmp_path, same), pytest.raises(ValueError, match="in use"):
        checkpoint.Checkpoint(tmp_path, same).__enter__()
    with checkpoint.Checkpoint(tmp_path, same):
        pass


@pytest.mark.parametrize("full_after", [1, 3, 4, 5, 6, 11, 18])
def test_a_full_disk_is_an_error_that_names_the_folder_and_loses_nothing(
    full_after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expected: dict[str, bytes]
) -> None:
    fill_disk(monkeypatch, full_after)
    with pytest.raises(OSError, match=r"progress.*cannot be written.*No space left.*Make room") as problem:
        small_run(tmp_path / "progress")
    assert problem.value.errno == errno.ENOSPC
    monkeypatch.undo()
    began = done_blocks(tmp_path / "progress")
    assert began == 0 if full_after < 6 else began > 0
    assert result_bytes(small_run(tmp_path / "progress")) == expected
    assert not list((tmp_path / "progress").glob(".*"))


@pytest.mark.skipif(not reliability.can_have_disks(), reason="the system does not let a process have disks of its own")
def test_a_disk_that_is_full_for_real(tmp_path: Path) -> None:
    found = apart("reliability", f"full_disk(Path({str(tmp_path)!r}))", *reliability.ALONE)
    assert found["times full"] > 2


@pytest.mark.skipif(sys.platform == "win32", reason="bounds file sizes, which Windows cannot")
def test_a_write_that_is_cut_short_is_an_error_and_loses_nothing(tmp_path: Path, expected: dict[str, bytes]) -> None:
    with interrupted_after(4):
        small_run(tmp_path / "progress")
    before = contents(tmp_path / "progress")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3000, hard))  # points fit, a state does not
    try:
        with pytest.raises(OSError, match=r"progress.*cannot be written"):
            small_run(tmp_path / "progress")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    after = contents(tmp_path / "progress")
    assert {name: after[name] for name in before} == before
    assert result_bytes(small_run(tmp_path / "progress")) == expected


@pytest.mark.parametrize("name", [checkpoint.MARKER, "state-1.npz"])
def test_planted_links_are_not_followed(name: str, tmp_path: Path, expected: dict[str, bytes]) -> None:
    folder = tmp_path / "ck"
    small_run(folder)
    (folder / name).unlink()
    (folder / name).symlink_to(tmp_path / "nothing")
    if name == checkpoint.MARKER:
        with pytest.raises(ValueError, match=f"{name}' is damaged"):
            small_run(folder)
    else:
        assert result_bytes(small_run(folder)) == expected
    assert not (tmp_path / "nothing").exists()


def test_a_checkpoint_folder_is_no_dangling_link(tmp_path: Path) -> None:
    (tmp_path / "ck").symlink_to("nothing")
    with pytest.raises(ValueError, match="must name a folder"):
        small_run(tmp_path / "ck")
    assert not (tmp_path / "nothing").exists()


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="the administrator may write anywhere")
def test_a_folder_without_permission_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(OSError, match=r"progress.*cannot be written.*Make it writable"):
        small_run(tmp_path / "progress")


def test_damaged_checkpoints_are_refused_and_left_alone(tmp_path: Path) -> None:
    found = fuzz_runs.fuzz_checkpoint(tmp_path, 25, seed=3)
    assert found["refused"] > found["damaged"] * 3 // 4


def test_damaged_results_never_load_as_something_else(tmp_path: Path) -> None:
    found = fuzz_runs.fuzz_results(tmp_path, 100, seed=4)
    assert found["refused"] > found["damaged"] * 3 // 4


def test_the_command_line_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, rows, labels in (("train", X, Y), ("val", V, T)):
        np.savez(tmp_path / f"{name}.npz", X=rows, y=labels)
    monkeypatch.chdir(tmp_path)

    def value(out: str, *more: str) -> Ran:
        return run("value", "train.npz", "val.npz", "--quiet", "--out", out, *more)

    with reliability.small_blocks():
        assert value("plain").code == 0
        with monkeypatch.context() as patch:
            fill_disk(patch, 20)
            full = value("first", "--checkpoint", "progress")
        assert full.code == 4
        assert "progress" in full.err
        assert "No space left" in full.err
        assert 0 < done_blocks(tmp_path / "progress") < N_BLOCKS
        assert value("again", "--checkpoint", "progress").code == 0
        other = value("other", "--checkpoint", "progress", "-k", "3")
        assert other.code == 2
        assert "other n neighbors" in " ".join(other.err.split())
    for name in ("values.parquet", "valuation.npz", "manifest.json"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "plain" / name).read_bytes()


def fill_disk(monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    """Let the disk be full after so many syncs."""
    fsync, left = os.fsync, [after]

    def full(handle: int) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync(handle)

    monkeypatch.setattr(_files.os, "fsync", full)
