"""A folder of results holds the old ones or the new ones, whatever happens while they are written."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.csv as pacsv
import pytest
from cli_files import make_tables, run

import shapshift.report
from shapshift import KNNShapley, Valuation
from shapshift.cli import _folder, _terminate
from shapshift.cli._errors import CommandError
from shapshift.cli._folder import Folder
from shapshift.cli._terminal import Terminal

FILES = ("train.csv", "val.csv", "--label", "class", "--id", "row", "--owner", "seller")
VALUE = ("value", *FILES, "--out", "out")
PRICE = ("price", *FILES, "--out", "out", "--budget")
OLD = {"manifest.json": "old", "values.csv": "old", "statements/ann.html": "old", "statements/bob.html": "old"}
NEW = {"manifest.json": "new", "values.csv": "new", "statements/ann.html": "new", "statements/cid.html": "new"}
STALE = {name: hashlib.sha256(b"old").hexdigest() for name in OLD if name != "manifest.json"}
NOTES = {"notes.txt": "mine", "statements/notes.txt": "mine"}
# Whatever changes a disk, as the interpreter calls it.
CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "open"}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "work"
    place.mkdir()
    monkeypatch.chdir(place)
    for name, table in zip(("train", "val"), make_tables(), strict=True):
        pacsv.write_csv(table, f"{name}.csv")
    return place


def contents(folder: Path) -> dict[str, bytes]:
    found = (path for path in folder.rglob("*") if not path.is_dir())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def texts(folder: Path) -> dict[str, str]:
    return {name: content.decode() for name, content in contents(folder).items()}


def fill(folder: Path, files: dict[str, str]) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)


def replace(target: Path, *, force: bool = True) -> None:
    """Replace the old results by the new ones."""
    with Folder(target, force=force) as folder:
        for name, content in NEW.items():
            folder.path(name).write_text(content)
        folder.commit(STALE)


def killed_at(number: int, work: Callable[[], object]) -> bool:
    """Do the work in another process that ends without any ceremony before its n-th change of the disk."""
    child = os.fork()
    if child == 0:
        left = [number]

        def count(event: str, arguments: tuple[Any, ...]) -> None:
            if event in CHANGES and (event != "open" or arguments[2] & (os.O_WRONLY | os.O_RDWR)):
                left[0] -= 1
                if left[0] < 0:
                    os._exit(9)

        code = 1
        try:
            sys.addaudithook(count)
            work()
            code = 0
        finally:
            os._exit(code)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, 9)
    return status == 9


def check_never_mixed(target: Path) -> None:
    """What can be seen after a kill is of one run, and whole where there is a manifest."""
    seen = {name: text for name, text in texts(target).items() if not name.startswith(".") and name not in NOTES}
    assert len(set(seen.values())) <= 1, seen
    if "manifest.json" in seen:
        assert seen in (OLD, NEW)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_kill_at_any_instant_of_a_replacement_leaves_one_of_both(tmp_path: Path) -> None:
    ends = []
    for number in range(500):
        target = tmp_path / str(number) / "out"
        fill(target, OLD | NOTES)
        if not killed_at(number, partial(replace, target)):
            assert texts(target) == NEW | NOTES
            break
        check_never_mixed(target)
        assert {name: text for name, text in texts(target).items() if name in NOTES} == NOTES
        Folder(target, force=False).recover()
        ends.append(texts(target))
        assert ends[-1] in (OLD | NOTES, NEW | NOTES)
        assert os.listdir(target.parent) == ["out"]
        assert not list(target.glob(".*.part"))
    assert ends.count(OLD | NOTES) > 20
    assert ends[0] == OLD | NOTES


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_kill_while_a_replacement_is_undone_loses_nothing(tmp_path: Path) -> None:
    interrupted = 0
    for number in range(22, 40, 3):
        for again in range(500):
            target = tmp_path / f"{number}-{again}" / "out"
            fill(target, OLD | NOTES)
            assert killed_at(number, partial(replace, target))
            if not killed_at(again, Folder(target, force=False).recover):
                break
            check_never_mixed(target)
            interrupted += bool(list(target.glob(".*.part/journal.json")))
            Folder(target, force=False).recover()
            assert texts(target) in (OLD | NOTES, NEW | NOTES)
    assert interrupted > 10


@pytest.mark.parametrize("fails", range(1, 9))
def test_a_replacement_that_fails_is_undone(fails: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, move, left = tmp_path / "out", _folder._move, [fails]
    fill(target, OLD | NOTES)

    def fail(source: Path, goal: Path) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise PermissionError(13, "Permission denied")
        move(source, goal)

    monkeypatch.setattr(_folder, "_move", fail)
    with pytest.raises(CommandError, match="Permission denied"):
        replace(target)
    assert texts(target) == OLD | NOTES


def test_a_real_kill_between_statements(here: Path) -> None:
    assert run(*PRICE, 100).code == 0
    before = contents(here / "out")
    program = f"""
import os, signal, sys
from pathlib import Path
import shapshift.cli._folder as folders
def kill(event, arguments):
    if event == "os.rename" and Path(arguments[1]).name == "payouts.csv" and ".shapshift-" not in str(arguments[1]):
        os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(kill)
sys.argv[1:] = {[str(argument) for argument in (*PRICE, 200, "--force")]!r}
from shapshift.cli import main
main()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert not (here / "out" / "manifest.json").exists()
    seen = {name for name in contents(here / "out") if not name.startswith(".")}
    assert seen
    assert seen < set(before)
    assert "was killed while it replaced" in " ".join(run("rerun", "out").err.split())
    assert run(*PRICE, 200).code == 3  # brings the old results back, and replaces nothing
    assert contents(here / "out") == before
    assert run(*PRICE, 200, "--force").code == 0
    assert not list(here.rglob(".*"))


@pytest.mark.parametrize("what", ["everything", "a file", "a folder in its place"])
def test_results_that_are_removed_in_mid_run_are_missed(what: str, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save = KNNShapley.value

    def remove(*arguments: Any, **options: Any) -> Any:
        (staging,) = here.glob(".shapshift-*.part")
        valuation = save(*arguments, **options)
        monkeypatch.setattr(type(valuation), "save", lambda _, path: lose(staging, path))
        return valuation

    def lose(staging: Path, path: Path) -> None:
        path.write_bytes(b"a result")
        if what == "a file":
            next(staging.rglob("values.parquet")).unlink()
        else:
            staging.rename(staging.with_name("moved"))
        if what == "a folder in its place":
            staging.mkdir()

    monkeypatch.setattr(KNNShapley, "value", remove)
    ran = run(*VALUE)
    assert ran.code == 4, ran.err
    assert "removed" in ran.err
    assert not (here / "out").exists()


def test_the_last_result_is_missed_too(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save = Valuation.save

    def lose(self: Valuation, path: Path) -> None:
        save(self, path)
        path.unlink()

    monkeypatch.setattr(Valuation, "save", lose)
    ran = run(*VALUE)
    assert ran.code == 4, ran.err
    assert "valuation.npz" in ran.err
    assert not (here / "out").exists()


def test_what_killed_runs_leave_is_removed_and_what_others_work_on_is_not(here: Path) -> None:
    (here / "out").mkdir()
    for place in (here, here / "out"):
        fill(place / ".shapshift-dead.part", {"new/values.parquet": "half", "lock": ""})
        fill(place / ".shapshift-older.part", {"values.parquet": "half"})  # of a release without locks
        (place / ".shapshift-link.part").symlink_to(here.parent)
        (place / ".shapshift-rows.part").write_text("rows")
    with Folder(here / "other", force=False) as alive:
        alive.path("one.txt").write_text("1")
        assert run(*VALUE).code == 0
        alive.path("two.txt").write_text("2")
        alive.commit()
    assert sorted(os.listdir("other")) == ["one.txt", "two.txt"]
    for place in (here, here / "out"):
        assert {path.name for path in place.glob(".*")} == {".shapshift-link.part", ".shapshift-rows.part"}


@pytest.mark.parametrize("how", ["up", "new", "old", "foreign", "form"])
def test_a_journal_from_elsewhere_moves_nothing_of_mine(how: str, here: Path) -> None:
    precious = here.parent / "precious.txt"
    precious.write_text("mine")
    fill(here / "out", {"notes.txt": "mine", "evil.txt": "evil"})
    stamp = [4, (here / "out" / "evil.txt").stat().st_mtime_ns]
    staging = here / "out" / ".shapshift-evil.part"
    staging.mkdir()
    journal: Any = {"old": {}, "new": {}}
    if how == "up":
        journal["new"] = {"../../precious.txt": [4, precious.stat().st_mtime_ns]}
    elif how in ("new", "old"):
        (staging / how).symlink_to(here.parent)
        journal[how] = {"evil.txt" if how == "new" else "precious.txt": stamp}
    elif how == "foreign":
        journal["new"] = {"notes.txt": stamp}
    else:
        journal = ["x"]
    (staging / "journal.json").write_text(json.dumps(journal))
    before = {name: content for name, content in contents(here.parent).items() if ".part" not in name}
    ran = run(*VALUE)
    after = {name: content for name, content in contents(here.parent).items() if ".part" not in name}
    assert ran.code == (0 if how == "foreign" else 2), ran.err
    assert before.items() <= after.items()
    assert (after == before) == (how != "foreign")


def test_results_that_came_later_stand_in_the_way_of_older_ones(tmp_path: Path) -> None:
    target = tmp_path / "out"

    def is_away(number: int) -> bool:
        shutil.rmtree(target, ignore_errors=True)
        fill(target, OLD)
        return killed_at(number, partial(replace, target)) and "values.csv" not in texts(target)

    assert next(number for number in range(99) if is_away(number))
    (target / "values.csv").write_text("of another run")
    with pytest.raises(CommandError, match=r"newer files: 'values.csv'"):
        Folder(target, force=False).recover()
    assert texts(target)["values.csv"] == "of another run"
    (target / "values.csv").unlink()
    Folder(target, force=False).recover()
    assert texts(target) == OLD


def test_two_commands_do_not_replace_results_at_the_same_time(tmp_path: Path) -> None:
    target = tmp_path / "out"
    fill(target, OLD)
    with _folder.locked(target / ".shapshift-commit.lock"), pytest.raises(CommandError, match="Another command"):
        replace(target)
    assert texts(target) == OLD


@pytest.mark.parametrize("force", [True, False])
def test_a_folder_that_appears_in_mid_run(force: bool, tmp_path: Path) -> None:
    target = tmp_path / "out"

    def late() -> None:
        with Folder(target, force=force) as folder:
            for name, content in NEW.items():
                folder.path(name).write_text(content)
            fill(target, OLD)
            folder.commit()

    if force:
        late()
        assert texts(target) == OLD | NEW
    else:
        with pytest.raises(CommandError, match="already holds"):
            late()
        assert texts(target) == OLD
    assert os.listdir(tmp_path) == ["out"]


@pytest.mark.parametrize("how", ["folder", "link", "outside"])
def test_folders_and_links_in_the_place_of_results(how: str, tmp_path: Path) -> None:
    target, away = tmp_path / "out", tmp_path / "away"
    fill(away, {"precious.txt": "mine"})
    fill(target, NOTES)
    if how == "folder":
        fill(target, {"values.csv/mine.txt": "mine"})
    elif how == "link":
        (target / "values.csv").symlink_to(away / "precious.txt")
    else:
        (target / "statements" / "notes.txt").unlink()
        (target / "statements").rmdir()
        (target / "statements").symlink_to(away)
    before = contents(tmp_path)
    if how == "link":
        replace(target)  # the link, not what it points to
        assert not (target / "values.csv").is_symlink()
        assert texts(target) == NEW | NOTES
    else:
        with pytest.raises(CommandError, match="is a folder" if how == "folder" else "is a link to another folder"):
            replace(target)
        assert contents(tmp_path) == before
    assert texts(away) == {"precious.txt": "mine"}


@pytest.mark.parametrize("appears", ["file", "link", "dangling"])
@pytest.mark.parametrize("out", ["new", "there"])
def test_a_page_that_appears_in_mid_run_is_not_replaced(
    appears: str, out: str, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = KNNShapley.value
    (here / "mine.txt").write_text("mine")
    if out == "there":
        fill(here / "out", {"notes.txt": "mine"})

    def meanwhile(*arguments: Any, **options: Any) -> Any:
        if appears == "file":
            (here / "page.html").write_text("mine")
        else:
            (here / "page.html").symlink_to("mine.txt" if appears == "link" else "nothing.txt")
        return value(*arguments, **options)

    monkeypatch.setattr(KNNShapley, "value", meanwhile)
    ran = run(*VALUE, "--report", "page.html")
    assert ran.code == 3, ran.err
    assert "page.html" in ran.err
    files = {"train.csv", "val.csv", "mine.txt", "page.html"} | ({"out"} if out == "there" else set())
    assert set(os.listdir(here)) == files
    assert (here / "page.html").is_symlink() == (appears != "file")
    assert (here / "mine.txt").read_text() == "mine"
    if out == "there":
        assert texts(here / "out") == {"notes.txt": "mine"}
    if appears != "dangling":
        assert (here / "page.html").read_text() == "mine"


def test_a_dangling_link_is_no_free_place_for_a_page(here: Path) -> None:
    (here / "page.html").symlink_to("nothing.txt")
    assert run(*VALUE, "--report", "page.html").code == 3
    assert run(*VALUE, "--report", "page.html", "--force").code == 0
    assert "<html" in (here / "page.html").read_text(encoding="utf-8")
    assert not (here / "nothing.txt").exists()


def test_a_dangling_link_is_no_folder_for_results(here: Path) -> None:
    (here / "out").symlink_to("nothing")
    ran = run(*VALUE)
    assert (ran.code, "must name a folder" in ran.err) == (2, True)
    assert not (here / "nothing").exists()


def test_a_page_does_not_write_through_a_planted_link(here: Path) -> None:
    (here / "precious.txt").write_text("mine")
    for name in (".page.html.part", ".page.html.part.part"):
        (here / name).symlink_to("precious.txt")
    assert run(*VALUE, "--report", "page.html").code == 0
    assert (here / "precious.txt").read_text() == "mine"
    assert (here / ".page.html.part").is_symlink()
    assert (here / "page.html").stat().st_mode & 0o777 == (here / "out" / "manifest.json").stat().st_mode & 0o777


def test_a_disk_without_hard_links_takes_pages(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    assert run(*VALUE, "--report", "page.html").code == 0
    assert "<html" in (here / "page.html").read_text(encoding="utf-8")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_commit_beside_that_of_a_killed_run_leaves_a_folder_that_can_be_used(tmp_path: Path) -> None:
    beside_journals = 0
    for number in range(500):
        target = tmp_path / str(number) / "out"
        fill(target, OLD)
        with Folder(target, force=True) as folder:
            for name, content in NEW.items():
                folder.path(name).write_text(content)
            if not killed_at(number, partial(replace, target)):
                break
            beside_journals += bool(list(target.glob(".*.part/journal.json")))
            folder.commit(STALE)
        Folder(target, force=False).recover()
        assert texts(target) == NEW
    assert beside_journals > 10


@pytest.mark.parametrize("when", ["before the page", "after the page"])
def test_a_page_elsewhere_is_of_the_same_run_as_the_results_after_a_kill(when: str, here: Path) -> None:
    again = (*VALUE, "--report", "page.html", "--neighbors")
    assert run(*again, 3).code == 0
    old = contents(here)
    event, place, name = (
        ("os.rename", 1, "page.html") if when == "before the page" else ("os.remove", 0, "journal.json")
    )
    program = f"""
import os, signal, sys
def kill(event, arguments):
    if event == {event!r} and os.path.basename(os.fsdecode(arguments[{place}])) == {name!r}:
        os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(kill)
sys.argv[1:] = {[str(argument) for argument in (*again, 4, "--force")]!r}
from shapshift.cli import main
main()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert run(*again, 4).code == 3  # replaces nothing
    found = contents(here)
    assert (found == old) == (when == "before the page")
    said = json.loads(found["out/manifest.json"])
    assert hashlib.sha256(found["page.html"]).hexdigest() == said["report"]["sha256"]
    assert not list(here.rglob(".*"))


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("where", ["_move", "_remove_empty", "release"])
@pytest.mark.parametrize("page", [(), ("--report", "page.html")])
def test_a_signal_during_or_after_the_commit_does_not_deny_the_results(
    end: signal.Signals, where: str, page: tuple[str, ...], here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(*VALUE, *page, "--neighbors", 3, "--format", "csv").code == 0
    owner: Any = Terminal if where == "release" else _folder
    usual, calls = getattr(owner, where), []

    def disturbed(*arguments: Any) -> None:
        calls.append(arguments)
        if len(calls) == 1:
            signal.raise_signal(end)
        usual(*arguments)

    monkeypatch.setattr(owner, where, disturbed)
    handler = signal.signal(end, signal.default_int_handler if end == signal.SIGINT else _terminate)
    try:
        ran = run(*VALUE, *page, "--neighbors", 4, "--force")
    finally:
        signal.signal(end, handler)
    assert calls
    assert ran.code == (130 if end == signal.SIGINT else 143), ran.err
    assert "othing was written" not in ran.err
    assert ("'out'" in ran.err) == (end == signal.SIGINT)
    said = json.loads((here / "out" / "manifest.json").read_text())
    assert said["options"]["Method"]["neighbors"] == 4
    assert set(contents(here / "out")) == {*said["outputs"], "manifest.json"}
    if page:
        assert hashlib.sha256((here / "page.html").read_bytes()).hexdigest() == said["report"]["sha256"]
    assert not list(here.rglob(".*"))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full")
def test_an_output_that_cannot_be_printed_does_not_deny_the_results(here: Path) -> None:
    command = [sys.executable, "-m", "shapshift", *VALUE, "--json"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=300, check=False)
    assert done.returncode == 4, done.stderr
    assert "othing was written" not in done.stderr
    assert "'out'" in done.stderr
    assert (here / "out" / "manifest.json").exists()


@pytest.mark.parametrize("when", ["while a result is written", "while the page is made", "at the commit"])
@pytest.mark.parametrize("out", ["new", "there"])
def test_a_staging_folder_that_is_removed_is_named_as_the_cause(
    when: str, out: str, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if out == "there":
        fill(here / "out", {"notes.txt": "mine"})
    owner, name = {
        "while a result is written": (Valuation, "save"),
        "while the page is made": (shapshift.report, "build_report"),
        "at the commit": (_folder, "_sync_folders"),
    }[when]
    usual = getattr(owner, name)

    def remove(*arguments: Any, **options: Any) -> Any:
        for staging in here.rglob(".shapshift-*.part"):
            shutil.rmtree(staging)
        return usual(*arguments, **options)

    monkeypatch.setattr(owner, name, remove)
    ran = run(*VALUE, "--report", "page.html")
    assert ran.code == 4, ran.err
    assert "Results were removed from" in ran.err
    assert "permissions" not in ran.err
    assert set(os.listdir(here)) == {"train.csv", "val.csv", *(["out"] if out == "there" else [])}
    if out == "there":
        assert texts(here / "out") == {"notes.txt": "mine"}


def replace_with_page(target: Path, page: Path) -> None:
    with Folder(target, force=True) as folder:
        for name, content in {**NEW, ".page": "new"}.items():
            folder.path(name).write_text(content)
        with folder.beside(".page", page) as hidden:
            folder.commit(STALE, lambda: os.replace(hidden, page))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_kill_at_any_instant_leaves_the_page_of_the_results(tmp_path: Path) -> None:
    ends = []
    for number in range(500):
        target, page = tmp_path / str(number) / "out", tmp_path / str(number) / "pages" / "page.html"
        fill(target, OLD | NOTES)
        fill(page.parent, {"page.html": "old"})
        if not killed_at(number, partial(replace_with_page, target, page)):
            break
        Folder(target, force=False).recover()
        assert os.listdir(page.parent) == ["page.html"]
        assert not list(target.parent.rglob(".*"))
        assert texts(target) == NOTES | (OLD if page.read_text() == "old" else NEW)
        ends.append(page.read_text())
    assert ends.count("old") > 20
    assert "new" in ends


@pytest.mark.parametrize(
    ("name", "token"), [("film.avi.part", "avi"), (".film.0123456789abcdef.part", "fedcba9876543210"), ("x..part", "")]
)
@pytest.mark.parametrize("journal", [True, False])
def test_a_staging_folder_from_elsewhere_removes_no_file_of_mine(
    name: str, token: str, journal: bool, tmp_path: Path
) -> None:
    fill(tmp_path, {name: "mine"})
    staging = tmp_path / "out" / f".shapshift-{token}.part"
    fill(staging, {"page.json": json.dumps(str(tmp_path / name)), "lock": ""})
    if journal:
        fill(staging, {"journal.json": '{"old": {}, "new": {}}'})
    Folder(tmp_path / "out", force=False).recover()
    assert texts(tmp_path) == {name: "mine"}
