"""The demo tells its story, tells it again, and keeps its hands off what is not its own."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from cli_files import run

from shapshift import ShiftAudit, Valuation
from shapshift.cli import demo
from shapshift.price import Allocation


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_careless_seller_earns_little(here: Path) -> None:
    ran = run("demo")
    assert ran.code == 0, ran.err
    out = here / "shapshift-demo"
    page = out / demo.PAGE
    for step in ("1 Value", "2 Audit", "3 Correct", "4 Price", "5 Report", *demo.SELLERS, str(page)):
        assert step in ran.out
    audit = ShiftAudit.load(out / "audit.npz")
    told = " ".join(ran.out.split())
    assert audit.sampling_finding[1:] in told
    assert f"{audit.sampling['open']} open (95% each)" in told
    paid = Allocation.load(out / "allocation.npz").payouts
    assert set(paid) == set(demo.SELLERS)
    assert sum(paid.values()) == demo.BUDGET
    assert paid[demo.CARELESS] < min(amount for seller, amount in paid.items() if seller != demo.CARELESS) / 2
    text = page.read_text(encoding="utf-8")
    step = ran.out.partition("3 Correct")[2].partition("4 Price")[0]
    verdict = " ".join(step.split()).rpartition(". ")[2]
    assert verdict == "Here the correction does not help."
    assert verdict in text
    assert demo.CARELESS in text
    assert str(here) not in text
    assert Valuation.load(out / "valuation.npz").n_train > 300
    assert len(list((out / "statements").glob("*.html"))) == len(demo.SELLERS)

    first = contents(out)
    manifest = json.loads(first["manifest.json"])
    assert manifest["command"] == "demo"
    assert {*manifest["outputs"], "manifest.json", demo.PAGE} == set(first)
    again = run("demo", "--json")  # its own results are replaced
    assert again.code == 0, again.err
    assert again.document["command"] == "demo"
    assert again.document["result"]["payouts"]
    assert contents(out) == first
    (out / "train.csv").write_text("mine now")
    ran = run("demo")
    assert (ran.code, ran.out) == (3, "")
    assert "'train.csv'" in ran.err
    assert (out / "train.csv").read_text() == "mine now"
    forced = run("demo", "--force", "--quiet")
    assert (forced.code, forced.out) == (0, ""), forced.err
    assert contents(out) == first


@pytest.mark.parametrize("name", ["train.csv", demo.PAGE, "statements/mine.html", "manifest.json"])
def test_foreign_files_are_left_alone(name: str, here: Path) -> None:
    path = here / "out" / name
    path.parent.mkdir(parents=True)
    path.write_text("mine")
    ran = run("demo", "--out", "out")
    assert (ran.code, ran.out) == (3, "")
    assert contents(here) == {f"out/{name}": b"mine"}


def test_results_of_another_command_are_left_alone(here: Path) -> None:
    assert run("datasets", "iris", "--out", "out").code == 0
    before = contents(here)
    for more in ((), ("--force",)):
        ran = run("demo", "--out", "out", *more)
        assert ran.code == 3
        assert "results of 'shapshift datasets'" in ran.err
    assert contents(here) == before


@pytest.mark.ci
def test_the_demo_runs_twice(here: Path) -> None:
    command = [sys.executable, "-m", "shapshift", "demo", "--out", "tour"]
    for _ in range(2):
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        assert str(here / "tour" / demo.PAGE) in done.stdout


@pytest.mark.parametrize("seed", [0, 3])
def test_the_printed_command_gives_the_same_numbers(seed: int, here: Path) -> None:
    told = run("demo", "--out", "a tour", "--seed", seed)
    assert told.code == 0, told.err
    (line,) = [line for line in told.out.splitlines() if line.startswith("The same from files: ")]
    program, *command = shlex.split(line.removeprefix("The same from files: "))
    assert program == "shapshift"
    ran = run(*command, "--out", "again")
    assert ran.code == 0, ran.err
    story, files = (Allocation.load(Path(folder) / "allocation.npz") for folder in ("a tour", "again"))
    assert files.payouts == story.payouts
    assert files.low is not None
    assert story.low is not None
    assert (files.low == story.low).all()
    assert (files.high == story.high).all()
    audits = [ShiftAudit.load(Path(folder) / "audit.npz") for folder in ("a tour", "again")]
    assert audits[0].finding == audits[1].finding
