"""This version reads every file that it and earlier ones wrote, and finds the numbers that were written."""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from cli_files import run
from golden_files import CLASSES, COMMANDS, FOLDER, ROOT, VERSION, load, numbers, payments

import shapshift
from shapshift.cli import _manifest
from shapshift.cli._errors import Code
from shapshift.correct import correctors
from shapshift.io.archive import Saved
from shapshift.market import chain

RELEASES = sorted(path.name for path in FOLDER.iterdir() if path.is_dir())
MOST_BYTES = 2_000_000


def expected(release: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / release / "expected.json").read_text(encoding="utf-8"))
    return found


FILES = [(release, name) for release in RELEASES for name in expected(release) if name != "market.db"]


def test_this_version_has_golden_files() -> None:
    assert VERSION in RELEASES, "run: python tests/golden_files.py"
    assert expected(VERSION).keys() == {*CLASSES, "market.db"}
    assert sum(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file()) < MOST_BYTES


def saved_classes() -> set[type[Saved]]:
    for module in pkgutil.walk_packages(shapshift.__path__, "shapshift."):
        if ".gpu" not in module.name and not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    left: list[type[Saved]] = [Saved]
    found = set()
    while left:
        one = left.pop()
        left += one.__subclasses__()
        if hasattr(one, "archive_kind"):
            found.add(one)
    return found


def test_every_class_that_is_saved_has_a_golden_file() -> None:
    missing = saved_classes() - set(CLASSES.values())
    assert not missing


def test_the_page_lists_every_format_with_its_version() -> None:
    page = (ROOT / "docs" / "file_formats.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `(shapshift\.\w+)` \| (\d+) \|", page, re.MULTILINE)
    assert sorted(listed) == sorted((one.archive_kind, str(one.archive_version)) for one in saved_classes())
    assert f"`shapshift.EntropyNormalizer`: {correctors.FORMAT_VERSION}" in page
    assert f"`{_manifest.FORMAT}`: {_manifest.VERSION}" in page
    assert f"PostgreSQL database | {chain.FORMAT}" in page


def assert_same(found: Any, wanted: Any, where: str) -> None:
    """Equal to the last digit; a later version may have more fields."""
    if isinstance(wanted, dict):
        missing = wanted.keys() - found.keys()
        assert not missing, f"{where} has lost {missing}"
        for name in wanted:
            assert_same(found[name], wanted[name], f"{where}.{name}")
    elif isinstance(wanted, list):
        assert len(found) == len(wanted), where
        for at, (one, other) in enumerate(zip(found, wanted, strict=True)):
            assert_same(one, other, f"{where}[{at}]")
    else:
        assert found == wanted or (found != found and wanted != wanted), f"{where}: {found} instead of {wanted}"


@pytest.mark.parametrize(("release", "name"), FILES)
def test_files_are_read_with_the_same_numbers(release: str, name: str) -> None:
    found, wanted = numbers(load(FOLDER / release / name)), expected(release)[name]
    if name == "store.npz" or name.endswith("r.json"):  # computed anew from what the file holds, here
        np.testing.assert_allclose(found.pop("values"), wanted.pop("values"), rtol=0, atol=1e-12)
        wanted = {key: wanted[key] for key in ("ids", "groups", "parameters") if key in wanted and name != "store.npz"}
    assert_same(json.loads(json.dumps(found)), wanted, name)


@pytest.mark.parametrize("release", RELEASES)
def test_ledgers_and_exports_are_read_and_verified(release: str, tmp_path: Path) -> None:
    pytest.importorskip("sqlalchemy", reason="the ledger is in a database")
    shutil.copytree(FOLDER / release, tmp_path / "golden")  # an opened ledger may write beside it
    found = payments(tmp_path / "golden")
    assert found == expected(release)["market.db"]
    assert found["faults"] == []
    assert found["export"]
    assert found["recomputed"] == 4


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("release", RELEASES)
def test_runs_are_repeated_from_their_manifests(
    release: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "golden"
    shutil.copytree(FOLDER / release, folder)
    monkeypatch.chdir(folder)
    ran = run("rerun", f"{name}/manifest.json", "--out", "again", "--quiet")
    assert ran.code in (Code.OK, Code.OTHER_BYTES), ran.err  # other libraries may write other bytes
    for kind, read in (("parquet", pq.read_table), ("csv", pacsv.read_csv)):
        for path in (folder / name).rglob(f"*.{kind}"):
            again, before = read(Path("again") / path.relative_to(folder / name)), read(path)
            for column in before.column_names:
                one, other = again[column].to_pylist(), before[column].to_pylist()
                if pa.types.is_floating(before.schema.field(column).type):
                    rtol = 1e-9 if name == "audit" else 0  # its statistics, such as quotients, depend on libraries
                    np.testing.assert_allclose(np.array(one, float), np.array(other, float), rtol=rtol, atol=1e-12)
                else:
                    assert one == other


def keys(document: Any) -> Any:
    """Names in a JSON document, without its numbers."""
    if isinstance(document, dict):
        return {name: keys(entry) for name, entry in document.items()}
    return [keys(document[0])] if isinstance(document, list) and document else None


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("release", RELEASES)
def test_documents_keep_their_names(release: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(FOLDER / release, tmp_path / "golden")
    monkeypatch.chdir(tmp_path / "golden")
    arguments = COMMANDS[name][0]
    ran = run(arguments[0], "train.csv", "val.csv", *arguments[1:], "--json", "--out", "again")
    before = json.loads(Path(name, "document.json").read_text(encoding="utf-8"))
    assert_same(keys(ran.document), keys(before), name)


def test_the_comparison_sees_a_lost_field_and_another_number() -> None:
    with pytest.raises(AssertionError, match="has lost"):
        assert_same({}, {"values": [1.0]}, "x")
    with pytest.raises(AssertionError, match=r"x\.values\[0\]"):
        assert_same({"values": [1.0 + 2**-52]}, {"values": [1.0]}, "x")
    assert_same({"values": [float("nan")], "new": 1}, {"values": [float("nan")]}, "x")
