"""Imports go one way, and importing the package is light."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import shapshift

ROOT = Path(shapshift.__file__).parent

# From high to low: a module imports from lower ranks only. A package counts as one module.
RANKS: list[set[str]] = [
    {"__init__", "__main__"},
    {"cli"},
    {"demo"},
    {"report", "reproduce", "_notebook"},
    {"plots"},
    {"evaluation"},
    {"sampled"},
    {"interactions"},
    {"price"},
    {"correct", "mechanism", "audit", "design"},
    {"perturb"},
    {"store"},
    {"methods"},
    {"relatives"},
    {"estimators"},
    {"knn_parameters"},
    {"sharded", "gpu"},
    {"certified", "truncated", "training"},
    {"places"},
    {"engine", "list_sums"},
    {"search", "tasks"},
    {"running"},
    {"distances", "agreement", "checkpoint", "sources"},
    {"rowfile"},
    {"kernels", "coefficients"},
    {"tables"},
    {"valuation", "boundary", "data"},
    {"_labels"},
    {"_validation", "_archive", "_clusters"},
    {"_files", "_progress", "_parallel", "_numba", "_warn"},
]
# May be imported from below, but only inside a function: a result draws itself, and matplotlib is loaded only then.
DEFERRED = {"plots", "_notebook"}
HEAVY = ["torch", "matplotlib", "pandas", "polars", "dask", "ray"]


def module_name(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def sources() -> list[Path]:
    return sorted(ROOT.rglob("*.py"))


def outside_functions(node: ast.AST) -> Iterator[ast.AST]:
    """Everything that runs when the module is imported."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from outside_functions(child)


def imported(path: Path, *, deferred: bool = True) -> set[str]:
    """Full dotted names of everything a file imports; with deferred, also inside functions."""
    names: set[str] = set()
    package = ["shapshift", *path.relative_to(ROOT).parts[:-1]]
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree) if deferred else outside_functions(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*above, *([node.module] if node.module else [])])
            names.update(f"{origin}.{alias.name}" for alias in node.names)
    return names


def imported_rooms(path: Path, *, deferred: bool = True) -> set[str]:
    """Which modules of the package a file imports from."""
    names = imported(path, deferred=deferred)
    inside = [name.split(".")[1:] for name in names if name.split(".")[0] == "shapshift"]
    known = {module_name(source) for source in sources()}
    # "from shapshift import KNNShapley" asks the top of the package, "from shapshift import engine" does not.
    return {parts[0] if len(parts) > 1 or (parts[:1] and parts[0] in known) else "__init__" for parts in inside}


def rank(module: str) -> int:
    for number, modules in enumerate(RANKS):
        if module in modules:
            return number
    raise AssertionError(f"{module} has no rank: add it to RANKS, where its imports allow")


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_down(path: Path) -> None:
    mine = module_name(path)
    rooms = (imported_rooms(path) - DEFERRED) | imported_rooms(path, deferred=False)
    upward = {room for room in rooms if room != mine and rank(room) <= rank(mine)}
    assert not upward, f"{mine} must not import {sorted(upward)}"


@pytest.mark.parametrize("path", sorted((ROOT / "kernels").glob("*.py")), ids=lambda path: path.name)
def test_kernels_know_arrays_and_nothing_else(path: Path) -> None:
    assert imported_rooms(path) <= {"_numba", "kernels"}


@pytest.mark.parametrize("library", ["joblib", "torch", "matplotlib"])
def test_a_library_is_imported_in_one_place(library: str) -> None:
    users = {module_name(path) for path in sources() if any(name.split(".")[0] == library for name in imported(path))}
    assert len(users) <= 1, f"{library} is imported by {sorted(users)}"


def test_the_scan_sees_imports() -> None:
    assert "kernels" in imported_rooms(ROOT / "engine.py")
    assert "joblib" in {name.split(".")[0] for name in imported(ROOT / "_parallel.py")}


def test_importing_the_package_is_light() -> None:
    # scikit-learn loads pandas where it is installed; whatever it brings is not ours to answer for.
    code = (
        "import sys, sklearn.base; before = set(sys.modules); import shapshift; "
        f"print(*[name for name in {HEAVY!r} if name in set(sys.modules) - before])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == []


def test_all_names_exist() -> None:
    for name in shapshift.__all__:
        assert getattr(shapshift, name) is not None
    assert {"Beta", "KNNShapley", "Valuation"} <= set(shapshift.__all__)


def test_every_public_name_is_found_and_listed() -> None:
    for name in shapshift.__all__:
        assert getattr(shapshift, name).__name__ == name
        assert name in dir(shapshift)
    assert sorted(shapshift._HOME_OF) == sorted(shapshift.__all__)
    with pytest.raises(AttributeError, match="no attribute 'KNNShaply'"):
        _ = shapshift.KNNShaply


def test_importing_the_package_alone_loads_nothing_heavy() -> None:
    code = "import sys, shapshift; print(sorted({'numpy', 'sklearn', 'numba', 'scipy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"
