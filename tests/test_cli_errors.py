"""The command line when something is wrong: one clear message, the right exit code, nothing half-written."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from cli_files import make_tables, run

from shapshift import KNNShapley
from shapshift.cli import _errors
from shapshift.cli._errors import CommandError, explain
from shapshift.cli._folder import Folder

MARKET = ("--label", "class", "--id", "row", "--owner", "seller")
VALUE = ("value", "train.csv", "val.csv", *MARKET)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, table in zip(("train", "val"), make_tables(), strict=True):
        pacsv.write_csv(table, f"{name}.csv")
        pq.write_table(table, f"{name}.parquet")
    return tmp_path


def refused(*arguments: object, code: int = 2, says: tuple[str, ...] = ()) -> str:
    """Run a command that must be refused without a traceback and without leaving anything."""
    before = snapshot()
    ran = run(*arguments)
    assert ran.code == code, ran.err or ran.out
    assert ran.out == ""
    assert "Traceback" not in ran.err
    for word in says:
        assert word in " ".join(ran.err.split()), ran.err
    assert snapshot() == before
    return ran.err


def snapshot() -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in Path().rglob("*") if path.is_file()}


def test_a_missing_column(here: Path) -> None:
    refused(
        "value",
        "train.csv",
        "val.csv",
        "--label",
        "clas",
        says=("'clas' is not a column", "train.csv", "Did you mean 'class'?"),
    )
    refused(*VALUE, "--drop", "sise", says=("'sise'", "Did you mean 'size'?"))
    refused("value", "train.csv", "val.csv", says=("--label",))


def test_a_column_that_only_one_table_has(here: Path) -> None:
    pacsv.write_csv(make_tables()[1].drop_columns(["age"]), "short.csv")
    refused("value", "train.csv", "short.csv", *MARKET, says=("'age' only in the training table 'train.csv'", "--drop"))


def test_a_wrong_label(here: Path) -> None:
    refused(
        "value",
        "train.csv",
        "val.csv",
        "--label",
        "size",
        "--drop",
        "row,seller",
        says=("'size'", "does not name classes"),
    )
    table = make_tables()[1].set_column(5, "class", pa.array(["maybe"] * 40))
    pacsv.write_csv(table, "other.csv")
    refused(
        "value",
        "train.csv",
        "other.csv",
        *MARKET,
        says=("No validation row has a label that occurs in training", "'maybe'"),
    )


def test_missing_values(here: Path) -> None:
    train = make_tables()[0]
    pq.write_table(train.set_column(2, "size", pa.array([None, *train["size"].to_pylist()[1:]])), "holes.parquet")
    refused("value", "holes.parquet", "val.parquet", *MARKET, says=("'size'", "1", "--impute"))
    assert run("value", "holes.parquet", "val.parquet", *MARKET, "--impute", "median").code == 0


def test_a_truncated_parquet_file(here: Path) -> None:
    content = Path("train.parquet").read_bytes()
    Path("cut.parquet").write_bytes(content[: len(content) // 2])
    refused("value", "cut.parquet", "val.parquet", *MARKET, says=("cut.parquet", "truncated or damaged"))


def test_a_csv_file_with_ragged_rows(here: Path) -> None:
    lines = Path("train.csv").read_text().splitlines()
    lines[7] += ",too,many"
    Path("ragged.csv").write_text("\n".join(lines) + "\n")
    refused("value", "ragged.csv", "val.csv", *MARKET, says=("ragged.csv",))


def test_an_empty_file(here: Path) -> None:
    Path("empty.csv").touch()
    refused("value", "empty.csv", "val.csv", *MARKET, says=("'empty.csv' is empty",))
    Path("header.csv").write_text("row,seller,size,weight,age,class\n")
    refused("value", "header.csv", "val.csv", *MARKET, says=("header.csv", "no rows"))


def test_a_path_that_does_not_exist(here: Path) -> None:
    refused(
        "value", "nowhere/two-gigabytes.parquet", "val.csv", *MARKET, says=("There is no file", "two-gigabytes.parquet")
    )
    refused("value", "tarin.csv", "val.csv", *MARKET, says=("Did you mean 'train.csv'?",))
    refused("value", "x" * 5000 + ".csv", "val.csv", *MARKET, says=("There is no file",))
    refused("value", "no-*.parquet", "val.csv", *MARKET, says=("No file matches",))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((*VALUE, "--semivalue", "beta:4"), "beta:ALPHA,BETA"),
        ((*VALUE, "--semivalue", "banzhaf:0.1,1"), "banzhaf:W such as banzhaf:0.1"),
        ((*VALUE, "--semivalue", "shapely"), "--semivalue must be one of"),
        ((*VALUE, "--max-memory", "lots"), "--max-memory must be"),
        ((*VALUE, "--device", "gpu"), "--device"),
        ((*VALUE, "--jobs", "0"), "--jobs must be"),
        (("audit", *VALUE[1:], "--noise", "0.1,x"), "--noise must be numbers"),
        (("audit", *VALUE[1:], "--noise", "-1"), "--noise must be numbers"),
        (("audit", *VALUE[1:], "--noise", "1", "--perturb", "round:1"), "either --noise or --perturb"),
        (("audit", *VALUE[1:], "--perturb", "blur:1"), "--perturb must begin with one of"),
        (("audit", *VALUE[1:], "--perturb", "laplace"), "--perturb laplace takes epsilon, sensitivity"),
        (("audit", *VALUE[1:], "--perturb", "laplace:eps=1"), "--perturb laplace takes epsilon, sensitivity"),
        (("audit", *VALUE[1:], "--perturb", "laplace:epsilon=0"), "The epsilon of --perturb laplace must be"),
        (("audit", *VALUE[1:], "--perturb", "priors:maybe=0.5"), "The labels are: "),
        (("audit", *VALUE[1:], "--perturb", "round:1", "--relative"), "--relative goes with --noise"),
        (("correct", *VALUE[1:]), "either --clean-val"),
        (("correct", *VALUE[1:], "--noise-sigma", "much"), "--noise-sigma must be a number from 0 to 1,000"),
        (("correct", *VALUE[1:], "--noise-sigma", "-1"), "--noise-sigma must be a number from 0 to 1,000"),
        (("correct", *VALUE[1:], "--noise-sigma", "1e99"), "--noise-sigma must be a number from 0 to 1,000"),
        (("correct", *VALUE[1:], "--fitted", "train.csv"), "is not a fitted corrector"),
        (("correct", *VALUE[1:], "--fitted", "none.json"), "There is no file"),
        (("correct", *VALUE[1:], "--clean-val", "val.csv", "--bins", "3"), "--bins goes with --corrector entropy"),
        (("price", *VALUE[1:]), "--budget"),
        (("price", *VALUE[1:], "--budget", "1,000"), "--budget must be"),
        (("price", *VALUE[1:], "--budget", "100", "--floor", "60"), "floor"),
        (("price", *VALUE[1:], "--budget", "100", "--cap", "130%"), "--cap, where"),
        (("price", *VALUE[1:-2], "--drop", "seller", "--budget", "9"), "--owner must name"),
        (("cases", *VALUE[1:], "--perturb", "round:1"), "--perturb does not go with this command"),
        (("design", *VALUE[1:], "--select", "10", "--noise", "0.1,0.2"), "one level"),
        (("design", *VALUE[1:], "--select", "4000"), "--select must be"),
        (("datasets", "irsi"), "Did you mean 'iris'?"),
        (("rerun", "nothing"), "There is no manifest"),
        (("rerun", "train.csv"), "is not a manifest"),
        ((*VALUE, "--out", "train.csv"), "is a file"),
        ((*VALUE, "--report", "."), "is a folder"),
        ((*VALUE, "--scale", "huge"), "--scale"),
        (("valeu",), "No such command"),
        (("audit", "train.csv"), "Missing argument"),
    ],
)  # fmt: skip
def test_bad_options(arguments: tuple[str, ...], says: str, here: Path) -> None:
    refused(*arguments, says=(says,))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("price", "--budget", "abc"), "--budget must be"),
        (("price", "--budget", "100.5", "--currency", "JPY"), "--budget must be"),
        (("price", "--budget", "100", "--floor", "0.5", "--currency", "JPY"), "--floor must be"),
        (("price", "--budget", "100", "--reserve", "200"), "reserve, 200.00, is more than the budget"),
        (("price", "--budget", "100", "--cap", "1%", "--floor", "2"), "is below its floor"),
        (("price", "--budget", "100", "--noise", "much"), "--noise must be numbers"),
        (("report", "--budget", "abc"), "--budget must be"),
        (("report", "--noise", "much"), "--noise must be numbers"),
        (("audit", "--noise", "much"), "--noise must be numbers"),
        (("audit", "--perturb", "blur:1"), "--perturb must begin with one of"),
        (("audit", "--noise", "1", "--perturb", "round:1"), "either --noise or --perturb"),
        (("cases", "--noise", "much"), "--noise must be numbers"),
        (("design", "--select", "5", "--noise", "much"), "--noise must be numbers"),
        (("value", "--semivalue", "much"), "--semivalue must be one of"),
        (("value", "--max-memory", "lots"), "--max-memory must be"),
    ],
)
def test_options_are_refused_before_a_table_is_read(arguments: tuple[str, ...], says: str, here: Path) -> None:
    command, *options = arguments
    refused(command, "absent.csv", "absent.csv", "--label", "class", "--owner", "seller", *options, says=(says,))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--method", "threshold:radius=-1"), "The radius of --method threshold must be"),
        (("--method", "weighted:bits=0"), "The bits of --method weighted must be"),
        (("--method", "threshold"), "needs radius"),
        (("--method", "sampled:estimator=logistic,max_fits=0"), "The max_fits of --method sampled must be"),
        (("--method", "proxy:estimator=forest", "--jobs", "0"), "--jobs must be"),
        (("--jobs", "0"), "--jobs must be"),
        (("--max-memory", "much"), "--max-memory must be"),
    ],
)
def test_a_wrong_parameter_is_told_before_tables_are_read(options: tuple[str, ...], says: str, here: Path) -> None:
    refused("value", "no-such.csv", "val.csv", *MARKET, *options, says=(says,))


def test_embedding_without_the_library(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    refused(
        "value",
        "train.csv",
        "val.csv",
        "--label",
        "class",
        "--id",
        "row",
        "--text",
        "seller",
        says=("sentence-transformers", "pip install"),
    )


def test_results_are_not_overwritten(here: Path) -> None:
    assert run(*VALUE, "--out", "out").code == 0
    refused(*VALUE, "--out", "out", code=3, says=("already holds", "--force"))
    Path("full").mkdir()
    Path("full/values.parquet").write_text("mine")
    refused(*VALUE, "--out", "full", code=3, says=("'values.parquet'",))
    Path("page.html").write_text("mine")
    refused(*VALUE, "--out", "new", "--report", "page.html", code=3, says=("page.html", "--force"))
    assert run(*VALUE, "--out", "out", "--force", "--report", "page.html").code == 0
    refused("rerun", "out", "--out", "full", code=3)


def test_no_write_permission(here: Path) -> None:
    Path("locked").mkdir(mode=0o500)
    command = [sys.executable, "-m", "shapshift", *VALUE, "--out", "locked/new"]
    if os.geteuid() == 0:  # root may write everywhere, unless it gives that right away
        if shutil.which("setpriv") is None:
            pytest.skip("root may write everywhere, and there is no setpriv to give that right away")
        command = ["setpriv", "--bounding-set=-dac_override", "--inh-caps=-dac_override", *command]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if "setpriv: " in done.stderr:
        pytest.skip(f"root cannot give its rights away here: {done.stderr.strip()}")
    assert done.returncode == 4, done.stderr
    assert "'locked/new' cannot be written: Permission denied" in done.stderr
    assert os.listdir("locked") == []


def test_no_write_permission_simulated(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def deny(*_: Any, **__: Any) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "mkdir", deny)
    refused(*VALUE, code=4, says=("'shapshift-value' cannot be written: Permission denied", "--out"))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 kB."""
    place = tmp_path / "disk"
    place.mkdir()
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"a small file system cannot be mounted here: {done.stderr.strip()}")
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.mark.parametrize("into", ["", "new/folder"])
def test_a_full_disk(into: str, small_disk: Path, here: Path) -> None:
    # The valuation fits, the page of half a megabyte does not.
    ran = run(*VALUE, "--out", small_disk / into, "--report", small_disk / into / "page.html")
    assert ran.code == 4, ran.err
    assert "disk is full" in ran.err
    assert "Traceback" not in ran.err
    assert os.listdir(small_disk) == []


def test_ctrl_c_and_termination_leave_nothing(here: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "shapshift",
        "audit",
        "train.csv",
        "val.csv",
        *MARKET,
        "--repeats",
        "1000000",
        "--out",
        "out",
    ]
    for stop, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            until(lambda: bool(list(Path().glob(".shapshift-*.part"))), process)
            time.sleep(1)  # into the middle of the audit
            process.send_signal(stop)
            out, err = process.communicate(timeout=30)
        finally:
            process.kill()
        assert process.returncode == code, err
        assert out == ""
        assert "Traceback" not in err
        assert sorted(os.listdir()) == ["train.csv", "train.parquet", "val.csv", "val.parquet"]
        assert "Interrupted" in err or stop is signal.SIGTERM


def test_ctrl_c_inside_code_from_text_exits_as_anywhere(here: Path) -> None:
    # Python ends `python -m` by the signal where a KeyboardInterrupt has left exec of a text, as libraries use it.
    Path("interrupted.py").write_text(
        "from shapshift import KNNShapley\n"
        "from shapshift.cli import main\n"
        "def value(*_, **__):\n"
        "    exec('import os, signal, time; os.kill(os.getpid(), signal.SIGINT); time.sleep(9)')\n"
        "KNNShapley.value = value\n"
        "main()\n"
    )
    ran = subprocess.run([sys.executable, "-m", "interrupted", *VALUE], capture_output=True, text=True)
    assert ran.returncode == 130, ran.stderr
    assert "Interrupted" in ran.stderr


def until(condition: Callable[[], bool], process: subprocess.Popen[str], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.05)


def test_an_interrupted_command_in_process(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(KNNShapley, "value", interrupt)
    refused(*VALUE, code=130, says=("Interrupted: Nothing was written",))


@pytest.mark.parametrize("broken", [lambda: 1 / 0, lambda: np.zeros(2) + np.zeros(3)], ids=["division", "numpy"])
def test_a_bug_is_not_blamed_on_the_user(broken: Any, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KNNShapley, "value", lambda *_, **__: broken())
    refused(*VALUE, code=1, says=("Unexpected", "--debug", "shapshift doctor"))
    ran = run(*VALUE, "--debug")
    assert ran.code == 1
    assert "Traceback" in ran.err
    monkeypatch.setenv("SHAPSHIFT_DEBUG", "1")
    assert "Traceback" in run(*VALUE).err


def test_errors_are_told_apart() -> None:
    def caught(action: Callable[[], object]) -> Exception:
        try:
            action()
        except Exception as error:
            return error
        raise AssertionError

    meant = caught(lambda: KNNShapley(n_neighbors=0).fit([[0.0]], [0]))
    said, code = explain(meant)
    assert code == 2
    assert said.startswith("--neighbors must be")
    assert str(meant).endswith(said.removeprefix("--neighbors"))
    assert explain(caught(lambda: int("x")))[1] == 1
    assert explain(caught(lambda: open("/no/such/file")))[1] == 2  # noqa: SIM115
    for number in (errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EIO, errno.EMFILE):
        assert explain(OSError(number, os.strerror(number)))[1] == 4
    assert explain(CommandError("x", _errors.Code.EXISTS)) == ("x", 3)
    message, code = explain(MemoryError("Unable to allocate"))
    assert code == 1
    assert "--max-memory" in message
    inside: dict[str, Any] = {"__name__": "shapshift.somewhere"}
    exec("def fail(): raise ValueError('of another library')", inside)
    assert explain(caught(inside["fail"]))[1] == 1
    assert explain(FileNotFoundError("There is no file 'x'. Name another.")) == (
        "There is no file 'x'. Name another.",
        2,
    )
    assert explain(OSError(errno.ENOSPC, "The folder 'x' is full. Make room.")) == (
        "The folder 'x' is full. Make room.",
        4,
    )


def test_a_folder_is_whole_or_not_there(tmp_path: Path) -> None:
    target = tmp_path / "a" / "b"
    with pytest.raises(RuntimeError), Folder(target, force=False) as folder:  # noqa: PT012
        folder.path("one.txt").write_text("half")
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []
    with Folder(target, force=False) as folder:
        folder.path("deep/one.txt").write_text("1")
        folder.path("manifest.json").write_text("{}")
        assert not target.exists()
        folder.commit()
    assert (target / "deep" / "one.txt").read_text() == "1"
    assert target.stat().st_mode & 0o777 == 0o777 & ~umask()
    with Folder(target, force=True) as folder:
        folder.path("two.txt").write_text("2")
        folder.commit(stale={"deep/one.txt": hashlib.sha256(b"1").hexdigest()})
    assert sorted(os.listdir(target)) == ["two.txt"]  # the emptied folder is gone too
    with Folder(target, force=True) as folder:
        folder.path("three.txt").write_text("3")
        folder.commit(stale={"two.txt": "0" * 64})  # somebody has changed it since
    assert sorted(os.listdir(target)) == ["three.txt", "two.txt"]


def umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current


def test_warnings_are_notes(here: Path) -> None:
    table = make_tables()[1]
    pacsv.write_csv(table.set_column(5, "class", pa.array(["new", *table["class"].to_pylist()[1:]])), "val.csv")
    ran = run(*VALUE)
    assert ran.code == 0
    assert "Note: " in ran.err
    assert "'new'" in ran.err
    assert "UserWarning" not in ran.err


def test_the_demo_keeps_its_hands_off_other_folders(here: Path) -> None:
    refused("demo", "--out", ".", code=3, says=("already holds", "'train.csv'"))
    refused("demo", "--out", "train.csv", says=("is a file",))
