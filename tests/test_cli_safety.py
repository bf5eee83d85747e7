"""The command line replaces and removes nothing but its own results, whatever a manifest or an option says."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from cli_files import N_TRAIN, OWNERS, make_tables, run

from shapshift.cli._commands import COMMANDS
from shapshift.cli._manifest import recorded_path
from shapshift.cli._options import recorded
from shapshift.methods import METHODS
from shapshift.price import Allocation

MARKET = ("--label", "class", "--id", "row", "--owner", "seller")
FILES = ("train.csv", "val.csv", *MARKET)
VALUE = ("value", *FILES)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory inside a folder that nothing may touch."""
    place = tmp_path / "work"
    place.mkdir()
    monkeypatch.chdir(place)
    for name, table in zip(("train", "val"), make_tables(), strict=True):
        pacsv.write_csv(table, f"{name}.csv")
        pq.write_table(table, f"{name}.parquet")
    return place


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below, and every folder with nothing in it."""
    found = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    empty = [path for path in folder.rglob("*") if path.is_dir() and not any(path.iterdir())]
    return found | {f"{path.relative_to(folder)}/": b"" for path in empty}


def refused(*arguments: object, code: int, says: tuple[str, ...] = (), silent: tuple[str, ...] = ()) -> None:
    above = Path().absolute().parent
    before = contents(above)
    ran = run(*arguments)
    said = " ".join(ran.err.split())
    assert (ran.code, ran.out) == (code, ""), ran.err
    for word in says:
        assert word in said
    for word in silent:
        assert word not in said
    assert contents(above) == before


def forge(manifest: Path, **changes: Any) -> None:
    body = json.loads(manifest.read_text(encoding="utf-8"))
    manifest.write_text(json.dumps(body | changes), encoding="utf-8")


@pytest.mark.parametrize("how", ["up", "absolute", "deep", "windows", "link", "empty"])
def test_force_removes_nothing_outside_the_folder(how: str, here: Path) -> None:
    precious = here.parent / "precious.txt"
    precious.write_text("mine")
    assert run(*VALUE, "--out", "out").code == 0
    (here / "out" / "away").symlink_to(here.parent)
    names = {
        "up": "../../precious.txt",
        "absolute": str(precious),
        "deep": "statements/../../../precious.txt",
        "windows": "..\\..\\precious.txt",
        "link": "away/precious.txt",
        "empty": "",
    }
    forge(here / "out" / "manifest.json", outputs={names[how]: hashlib.sha256(b"mine").hexdigest()})
    refused(*VALUE, "--out", "out", "--force", code=3, says=("its outputs must be files in its folder",))
    refused("rerun", "out", code=2, says=("its outputs must be files in its folder",))


@pytest.mark.parametrize("name", ["ABSOLUTE", "../x.html", "a/b.html", "..", "", "train.csv", "C:x.html"])
def test_rerun_writes_the_page_into_its_folder_only(name: str, here: Path) -> None:
    assert run(*VALUE, "--out", "out").code == 0
    name = name.replace("ABSOLUTE", str(here.parent / "x.html"))
    forge(here / "out" / "manifest.json", report={"name": name, "sha256": "0" * 64})
    refused("rerun", "out", "--out", "again", code=2, says=("its report must be a bare file name",))


@pytest.mark.parametrize(
    "changes", [{"outputs": []}, {"inputs": {"train": "x"}}, {"report": {"name": 3}}, {"report": 1}]
)
def test_a_manifest_of_another_form_is_refused(changes: dict[str, Any], here: Path) -> None:
    assert run(*VALUE, "--out", "out").code == 0
    forge(here / "out" / "manifest.json", **changes)
    refused("rerun", "out", code=2, says=("is not a manifest",))


def forge_options(manifest: Path, group: str, options: dict[str, Any]) -> None:
    """Set options in a manifest."""
    body = json.loads(manifest.read_text(encoding="utf-8"))
    body["options"].setdefault(group, {}).update(options)
    manifest.write_text(json.dumps(body), encoding="utf-8")


@pytest.mark.parametrize(
    ("group", "option"),
    [
        ("Method", {"cluster": "dask://127.0.0.1:1"}),
        ("Restart", {"checkpoint": "progress"}),
        ("Output", {"out": "elsewhere"}),
        ("Output", {"force": True}),
        ("Output", {"debug": True}),
        ("Page", {"report": "page.html"}),
        ("Method", {"plugin": "os:system"}),
        ("Again", {"manifest": "other"}),
        ("Method", {"neighbors": "5"}),
        ("Method", {"neighbors": True}),
        ("Method", {"neighbors": 0}),
        ("Method", {"metric": "hamming"}),
        ("Method", {"metric": ["cosine"]}),
        ("Method", {"max_memory": {"a": 1}}),
        ("Columns", {"drop": "size"}),
        ("Columns", {"drop": [["size"]]}),
        ("Columns", {"label": None, "impute": "x"}),
        ("Files", {"train": 3}),
        ("Output", {"seed": -1}),
        ("Output", {"seed": 7}),  # another than the manifest's own
        ("Method", {"method": "knn:scratch=SOMEWHERE"}),
        ("Method", {"method": "sampled:estimator=logistic,checkpoint=SOMEWHERE"}),
        ("Method", {"method": "nosuch"}),
    ],
)
def test_rerun_refuses_options_that_no_run_records(
    group: str, option: dict[str, Any], here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(*VALUE, "--out", "out").code == 0
    assert run("rerun", "out", "--out", "honest").code == 0
    forge_options(here / "out" / "manifest.json", group, option)
    monkeypatch.setattr("shapshift.cli._run.Run.__enter__", None)  # nothing is begun
    refused("rerun", "out", "--out", "again", code=2, says=("is not what this release records", "Nothing was run"))


@pytest.mark.parametrize(
    ("group", "option", "where"),
    [
        ("Method", {"neighbors": 10**9}, "valuation"),
        ("Method", {"semivalue": "beta:1e308,1e308"}, "valuation"),
        ("Method", {"metric": "cosine"}, "valuation"),
        ("Columns", {"owner": None}, "tables"),
    ],
)
def test_a_run_of_other_options_than_the_manifest_says_is_an_input_error(
    group: str, option: dict[str, Any], where: str, here: Path
) -> None:
    assert run(*VALUE, "--out", "out").code == 0
    forge_options(here / "out" / "manifest.json", group, option)
    ran = run("rerun", "out", "--out", "again")
    said = " ".join(ran.err.split())
    assert ran.code == 2, ran.err
    assert f"its options do not give the {where!r} in its parameters" in said
    assert "should not happen" not in said


@pytest.mark.parametrize(
    ("command", "group", "option"),
    [
        (VALUE, "Method", {"neighbors": 10**30}),
        *(
            (VALUE, "Method", {"max_memory": size})
            for size in ("9" * 400 + "GB", "9" * 400, "1e999", "-5GB", "nan", "")
        ),
        (("audit", *FILES, "--noise", "0.1", "--repeats", 2), "Noise", {"repeats": 10**30}),
        (("audit", *FILES, "--noise", "0.1", "--repeats", 2), "Noise", {"repeats": 2**62}),
        (("price", *FILES, "--budget", 9, "--noise", "0.1", "--repeats", 2), "Noise", {"repeats": 2**62}),
        (("design", *FILES, "--select", 5, "--repeats", 2), "Selection", {"fidelity": 10**400}),
        (("design", *FILES, "--select", 5, "--repeats", 2), "Noise", {"repeats": 2**62}),
        (("audit", *FILES, "--perturb", "round:1", "--repeats", 2), "Noise", {"perturb": ["round:99999999999"]}),
    ],
)
def test_an_absurd_number_in_a_manifest_is_an_input_error(
    command: tuple[object, ...], group: str, option: dict[str, Any], here: Path
) -> None:
    assert run(*command, "--out", "out").code == 0
    forge_options(here / "out" / "manifest.json", group, option)
    (name,) = option
    option_name = "The decimals of --perturb round" if name == "perturb" else f"--{name.replace('_', '-')}"
    refused("rerun", "out", "--out", "again", code=2, says=(f"{option_name} must be",))


def test_no_method_takes_a_place_to_write() -> None:
    """A manifest holds the text of --method: whatever a method writes to has an option of its own."""
    places = {"scratch", "checkpoint", "path", "folder", "cluster", "device"}
    for entry in METHODS.values():
        assert not places & set(entry.parameters())


def test_no_recorded_option_is_an_address_or_a_place_to_write() -> None:
    """Every option of every command is either recorded, and then harmless, or refused in a manifest."""
    harmful = {"cluster", "checkpoint", "out", "force", "json", "quiet", "debug", "report", "data_dir", "data"}
    for command in COMMANDS.values():
        for group in command.groups:
            assert not harmful & set(recorded(group)), (command.name, group)
    paths = {name for command in COMMANDS.values() for name in command.inputs()}
    assert paths == {"train", "val", "clean_val", "fitted", "noisy_val", "values", "decisions", "test", "secret"}


@pytest.mark.parametrize("command", ["rerun", "doctor", "methods", "x" * 1000, "__class__"])
def test_rerun_repeats_only_commands_that_leave_a_manifest(command: str, here: Path) -> None:
    assert run(*VALUE, "--out", "out").code == 0
    forge(here / "out" / "manifest.json", command=command, options={}, inputs={})
    refused("rerun", "out", code=2, says=("that this release cannot repeat",))


@pytest.mark.parametrize(
    "path", ["ABSOLUTE", "../work/../../secret.csv", "a/../../../secret.csv", "..", "", "train.csv\0", 7]
)
def test_inputs_of_a_manifest_are_relative_to_it(path: Any, here: Path) -> None:
    secret = here.parent / "secret.csv"
    shutil.copy("train.csv", secret)
    assert run(*VALUE, "--out", "out").code == 0
    path = str(secret) if path == "ABSOLUTE" else path
    digest = hashlib.sha256(secret.read_bytes()).hexdigest()
    inputs = json.loads(Path("out/manifest.json").read_text(encoding="utf-8"))["inputs"]
    forge(here / "out" / "manifest.json", inputs=inputs | {"train": {"path": path, "sha256": digest}})
    refused("rerun", "out", code=2, says=("is not a manifest",))


def test_a_manifest_leads_to_no_file_above_its_folder_and_here(here: Path) -> None:
    far = here.parent / "far.csv"
    shutil.copy("train.csv", far)
    assert run(*VALUE, "--out", "deep/er/out").code == 0
    inputs = json.loads(Path("deep/er/out/manifest.json").read_text(encoding="utf-8"))["inputs"]
    inputs["train"]["path"] = "../../../../far.csv"
    forge(here / "deep" / "er" / "out" / "manifest.json", inputs=inputs)
    refused("rerun", "deep/er/out", code=2, says=("The input 'far.csv' (train) is not beside the manifest or here",))
    assert run("rerun", "deep/er/out", "--data", f"train={far}", "--out", "again").code == 0


def test_an_input_that_no_run_of_the_command_has(here: Path) -> None:
    assert run(*VALUE, "--out", "out").code == 0
    inputs = json.loads(Path("out/manifest.json").read_text(encoding="utf-8"))["inputs"]
    forge(here / "out" / "manifest.json", inputs=inputs | {"fitted": inputs["train"]})
    refused("rerun", "out", code=2, says=("it names the inputs 'fitted'",))


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"format": "shapshift.manifest", "version": 1, "x": ' + '{"a":' * 100_000,
        "[]",
        "3",
        '{"format": "shapshift.manifest"}',
        '{"format": "shapshift.manifest", "version": 1e999}',
        "9" * 5000,
        '{"version": NaN}',
    ],
    ids=["deep list", "deep mapping", "list", "number", "no version", "infinity", "digits", "NaN"],
)
def test_text_that_is_no_manifest(text: str, here: Path) -> None:
    (here / "manifest.json").write_text(text)
    refused("rerun", "manifest.json", code=2, says=("is not a manifest",))


def test_a_manifest_that_names_an_entry_twice(here: Path) -> None:
    assert run(*VALUE, "--out", "out").code == 0
    manifest = here / "out" / "manifest.json"
    text = manifest.read_text(encoding="utf-8")
    manifest.write_text(text.replace('"seed": 0,', '"seed": 0, "seed": 1,'), encoding="utf-8")
    refused("rerun", "out", code=2, says=("names an entry twice",))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_in_place_of_a_manifest_or_an_input_does_not_block(here: Path) -> None:
    assert run(*VALUE, "--out", "out").code == 0
    os.remove("train.csv")
    os.mkfifo("train.csv")
    ran = run("rerun", "out", "--out", "again")
    assert ran.code == 2
    assert "The input 'train.csv' (train) is not beside" in " ".join(ran.err.split())
    os.remove("train.csv")
    os.mkdir("train.csv")
    os.mkfifo("train.csv/part.parquet")
    ran = run("rerun", "out", "--out", "again")
    assert ran.code == 2
    assert "The input 'train.csv' (train) is not beside" in " ".join(ran.err.split())
    os.remove("out/manifest.json")
    os.mkfifo("out/manifest.json")
    ran = run("rerun", "out", "--out", "again")
    assert ran.code == 2
    assert "is not a regular file" in " ".join(ran.err.split())


@pytest.mark.parametrize("changes", [{"numpy": "\x1b[31m"}, {"numpy": "9" * 5000}, {"\x1b]0;x\x07": "1"}, {"numpy": 2}])
def test_versions_in_a_manifest_are_short_lines(changes: dict[str, Any], here: Path) -> None:
    assert run(*VALUE, "--out", "out").code == 0
    forge(here / "out" / "manifest.json", versions=changes)
    refused("rerun", "out", code=2, says=("is not a manifest",), silent=("\x1b",))


def test_a_stale_file_that_was_changed_is_kept(here: Path) -> None:
    assert run(*VALUE, "--out", "out", "--report", "out/page.html").code == 0
    (here / "out" / "values.parquet").write_text("notes of mine")
    assert run(*VALUE, "--out", "out", "--format", "csv", "--force").code == 0
    assert (here / "out" / "values.parquet").read_text() == "notes of mine"
    assert sorted(os.listdir("out")) == ["manifest.json", "valuation.npz", "values.csv", "values.parquet"]
    assert run(*VALUE, "--out", "out", "--force").code == 0
    assert sorted(os.listdir("out")) == ["manifest.json", "valuation.npz", "values.parquet"]


def test_force_does_not_replace_results_of_another_command(here: Path) -> None:
    assert run("price", *FILES, "--budget", 100, "--out", "out").code == 0
    says = ("results of 'shapshift price'", "--out")
    refused(*VALUE, "--out", "out", "--force", code=3, says=says)
    refused(*VALUE, "--out", "out", code=3, says=says)
    refused("datasets", "iris", "--out", "out", "--force", code=3, says=says)
    assert run(*VALUE, "--out", "values").code == 0
    refused("rerun", "values", "--out", "out", "--force", code=3, says=says)
    (here / "notes").mkdir()
    (here / "notes" / "manifest.json").write_text('{"name": "an app"}')
    refused(*VALUE, "--out", "notes", "--force", code=3, says=("holds something else",))


def test_folders_that_become_empty_are_removed(here: Path) -> None:
    report = ("report", *FILES, "--noise", "1", "--repeats", 2, "--out", "out")
    assert run(*report, "--budget", 100).code == 0
    assert (here / "out" / "statements").is_dir()
    assert run(*report, "--force").code == 0
    assert not (here / "out" / "statements").exists()
    assert not (here / "out" / "allocation.npz").exists()


@pytest.mark.parametrize(
    ("page", "says"),
    [
        ("train.parquet", "ends in .html"),
        ("out/values.parquet", "ends in .html"),
        ("out/manifest.json", "ends in .html"),
        ("page", "ends in .html"),
        ("rows.html", "must not name an input"),
        ("link.html", "must not name an input"),
        ("hard.html", "must not name an input"),
        ("out/statements/payouts.html", "must not name a result"),
        ("train.csv/page.html", "stands for a folder"),
    ],
)
def test_a_page_replaces_no_input_and_no_result(page: str, says: str, here: Path) -> None:
    shutil.copy("train.csv", "rows.html")
    (here / "link.html").symlink_to("val.csv")
    os.link("val.csv", "hard.html")
    command = ("price", "rows.html", *FILES[1:], "--budget", 100, "--out", "out")
    refused(*command, "--report", page, "--force", code=2, says=(says,))


def test_a_page_is_not_the_folder(here: Path) -> None:
    refused(*VALUE, "--out", "x.html", "--report", "x.html", code=2, says=("must differ",))
    refused(*VALUE, "--out", "x.html/out", "--report", "x.html", code=2, says=("must differ",))


@pytest.mark.parametrize("name", ["allocation.npz", "intervals.csv", "payout_audit.npz", "statements/ann.html"])
def test_a_refused_run_leaves_no_page(name: str, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = here / "out" / name
    path.parent.mkdir(parents=True)
    path.write_text("mine")
    monkeypatch.setattr("shapshift.cli.value.load", None)  # refused before anything is read
    command = ("report", *FILES, "--budget", 100, "--noise", "1", "--repeats", 2, "--out", "out")
    refused(*command, "--report", "pages/page.html", code=3, says=(name.split("/")[0],))


def test_a_page_comes_after_the_results(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied")

    rename = os.rename
    monkeypatch.setattr(os, "rename", fail)
    refused(*VALUE, "--out", "out", "--report", "pages/deep/page.html", code=4)
    monkeypatch.setattr(os, "rename", rename)
    (here / "old.html").write_text("old")
    (here / "page.html").symlink_to("old.html")
    assert run(*VALUE, "--out", "out", "--report", "page.html", "--force").code == 0
    assert "<html" in (here / "page.html").read_text(encoding="utf-8")
    assert not (here / "page.html").is_symlink()  # which is replaced, and not followed
    assert (here / "old.html").read_text() == "old"
    assert not list(here.glob(".*"))


def test_rerun_onto_results_says_nothing_of_options_it_has_not(here: Path) -> None:
    assert run(*VALUE, "--out", "one", "--report", "page.html").code == 0
    assert run("rerun", "one", "--out", "two").code == 0
    refused("rerun", "one", "--out", "two", code=3, says=("--out", "--force"), silent=("--report",))
    (here / "three").mkdir()
    (here / "three" / "page.html").write_text("mine")
    refused("rerun", "one", "--out", "three", code=3, says=("'page.html'", "--out"), silent=("--report",))


@pytest.fixture
def scattered(here: Path) -> Path:
    """Inputs of one name in two folders far from the results."""
    far = here.parent / "far"
    for name in ("train", "val"):
        (far / name).mkdir(parents=True)
        (here / f"{name}.csv").rename(far / name / "rows.csv")
    return far


def test_rerun_finds_inputs_that_share_a_name(here: Path, scattered: Path) -> None:
    train, val = scattered / "train" / "rows.csv", scattered / "val" / "rows.csv"
    assert run("value", train, val, *MARKET, "--out", "out").code == 0
    text = (here / "out" / "manifest.json").read_text(encoding="utf-8")
    assert str(here.parent) not in text
    refused("rerun", "out", code=2, says=("'rows.csv' (train)", "--data train=PATH"))
    named = ("--data", f"train={train}", "--data", f"val={val}")
    for number, data in enumerate((named, ("--data", scattered), ("--data", scattered / "val", *named[:2]))):
        ran = run("rerun", "out", "--out", f"again{number}", *data)
        assert ran.code == 0, ran.err
    refused("rerun", "out", "--data", f"train={val}", "--data", scattered, code=2, says=("(train) has changed",))
    refused("rerun", "out", "--data", "tarin=x", code=2, says=("--data must name a folder", "train, val"))
    train.rename(scattered / "older.csv")  # another name, the same content
    assert run("rerun", "out", "--out", "renamed", "--data", scattered).code == 0


def test_rerun_gives_the_same_bytes_when_inputs_were_renamed(here: Path) -> None:
    """Pages and statements name the inputs as the first run did."""
    options = ("--budget", 100, "--noise", "1", "--repeats", 2)
    assert run("report", *FILES, *options, "--out", "out").code == 0
    (here / "moved").mkdir()
    os.rename("train.csv", "moved/val.csv")  # the name of the other input
    os.rename("val.csv", "moved/old.csv")
    ran = run("rerun", "out", "--out", "again", "--data", "train=moved/val.csv", "--data", "val=moved/old.csv")
    assert ran.code == 0, ran.err
    page = (here / "again" / "report.html").read_text(encoding="utf-8")
    assert "train.csv" in page
    assert "old.csv" not in page
    for name in ("train", "val"):
        (here / f"{name}.parts").mkdir()
        shutil.copy(f"{name}.parquet", f"{name}.parts/part.parquet")
    assert run("report", "train.parts", "val.parts", *MARKET, *options, "--out", "parts").code == 0
    os.rename("train.parts", "moved/other")
    ran = run("rerun", "parts", "--out", "parts2", "--data", "train=moved/other")
    assert ran.code == 0, ran.err


KERNELS = ("Prescott", "Haswell", "SkylakeX")


@pytest.mark.ci
def test_results_do_not_depend_on_the_kernels_of_blas(here: Path) -> None:
    """On processors without these kernels, and with another library, this says nothing."""
    report = ("report", *FILES, "--budget", 100, "--noise", "0.5", "--repeats", 2)
    design = ("design", *FILES, "--select", 10, "--repeats", 2)
    # Both in one process, which loads the libraries and kernels once.
    program = (
        "import json, sys; from cli_files import run; assert not any(run(*c).code for c in json.loads(sys.argv[1]))"
    )
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    found = {}
    for kernel in KERNELS:
        commands = [
            [str(part) for part in (*command, "--quiet", "--out", f"{kernel}-{command[0]}")]
            for command in (report, design)
        ]
        subprocess.run(
            [sys.executable, "-c", program, json.dumps(commands)],
            env=os.environ | {"OPENBLAS_CORETYPE": kernel, "PYTHONPATH": path},
            check=True,
            timeout=300,
        )
        outputs = {}
        for name, *_ in commands:
            manifest = json.loads(Path(f"{kernel}-{name}/manifest.json").read_text(encoding="utf-8"))
            outputs |= manifest["outputs"] | {f"page of {name}": manifest["report"]}
        found[kernel] = outputs
    for kernel in KERNELS[1:]:
        assert found[kernel] == found[KERNELS[0]]


def test_rerun_says_what_may_have_changed_the_bytes(here: Path) -> None:
    assert run(*VALUE, "--out", "out").code == 0
    body = json.loads(Path("out/manifest.json").read_text(encoding="utf-8"))
    other = dict.fromkeys(body["outputs"], "0" * 64)
    Path("alone").mkdir()
    for folder, versions, code, says in (
        ("out", body["versions"], 2, "'valuation.npz', 'values.parquet' beside it differ from what it says"),
        ("alone", body["versions"], 5, "Report this"),
        ("out", body["versions"] | {"blas": "openblas 0.1 Abacus"}, 5, "The run used openblas 0.1 Abacus"),
        ("out", body["versions"] | {"numpy": "0.1"}, 5, "Other versions are installed"),
    ):
        Path(folder, "manifest.json").write_text(json.dumps(body | {"outputs": other, "versions": versions}))
        ran = run("rerun", folder, "--out", "again", "--force")
        assert ran.code == code
        assert says in " ".join(ran.err.split())
    forge(here / "out" / "manifest.json", outputs=body["outputs"], versions=body["versions"] | {"blas": "Abacus"})
    ran = run("rerun", "out", "--out", "again", "--force")
    assert (ran.code, "Abacus" in ran.err) == (0, False)


def test_rerun_finds_the_parts_of_a_pattern_and_of_a_folder(here: Path) -> None:
    far = here.parent / "far"
    for name, table in zip(("train", "val"), make_tables(), strict=True):
        (far / name).mkdir(parents=True)
        for number in range(2):
            pq.write_table(table.slice(20 * number, 20), far / name / f"part-{number}.parquet")
    assert run("value", far / "train" / "*.parquet", far / "val", *MARKET, "--out", "out").code == 0
    inputs = json.loads((here / "out" / "manifest.json").read_text(encoding="utf-8"))["inputs"]
    assert (inputs["train"]["path"], inputs["val"]["path"]) == ("train/*.parquet", "val")
    assert run("rerun", "out", "--out", "again", "--data", here.parent).code == 0
    far.rename(here / "near")
    assert run("rerun", "out", "--out", "moved", "--data", "near").code == 0


def test_a_pattern_keeps_its_last_folder(here: Path) -> None:
    out = here / "out"
    assert recorded_path(Path("/data/secret/parts/*.csv"), out) == "parts/*.csv"
    assert recorded_path(Path("/data/secret/parts/*/x.csv"), out) == "parts/*/x.csv"
    assert recorded_path(Path("/data/secret/x.csv"), out) == "x.csv"
    assert recorded_path(Path("parts/*.csv"), out) == "../parts/*.csv"


@pytest.mark.parametrize("array", ["owner", "owners"])
@pytest.mark.parametrize("option", ["owner", "owners", None])
def test_archives_with_owners_are_priced(array: str, option: str | None, here: Path) -> None:
    for name, table in zip(("train", "val"), make_tables(), strict=True):
        X = np.column_stack([table[column].to_numpy() for column in ("size", "weight", "age")])
        more = {array: np.array(table["seller"].to_pylist()), array.replace("owner", "id"): np.arange(len(X))}
        np.savez(f"{name}.npz", X=X, y=np.array(table["class"].to_pylist()), **more)
    options = () if option is None else ("--owner", option, "--id", option.replace("owner", "id"))
    ran = run("price", "train.npz", "val.npz", *options, "--budget", 100)
    assert ran.code == 0, ran.err
    assert set(Allocation.load("shapshift-price/allocation.npz").payouts) == set(OWNERS)
    assert run("value", "train.npz", "val.npz", *options).code == 0
    assert pq.read_table("shapshift-value/values.parquet")["id"].to_pylist() == list(range(N_TRAIN))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("value", "train.csv", "val.csv"), "--label must name the column of the class"),
        (("price", *FILES, "--budget", "ten"), "--budget must be an amount of money"),
        (("price", *FILES, "--budget", "100", "--reserve", "x"), "--reserve must be an amount"),
        ((*VALUE, "--semivalue", "banzhaf:0"), "W of --semivalue banzhaf:W must be"),
        ((*VALUE, "--semivalue", "beta:0,1"), "ALPHA of --semivalue beta:ALPHA,BETA must be"),
        (("audit", *FILES, "--perturb", "mask:7"), "of --perturb mask must be"),
    ],
)
def test_messages_name_options(arguments: tuple[str, ...], says: str, here: Path) -> None:
    refused(*arguments, code=2, says=(says,), silent=("parameter of",))


@pytest.mark.parametrize(("stop", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_while_libraries_load_ends_quietly(stop: signal.Signals, code: int, here: Path) -> None:
    program = f"""
import os, sys
from shapshift.cli import main
class Slow:
    def find_spec(self, name, *_):
        if name == "shapshift.cli._app":
            os.kill(os.getpid(), {int(stop)})
assert "shapshift.cli._app" not in sys.modules
sys.meta_path.insert(0, Slow())
main()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "")
