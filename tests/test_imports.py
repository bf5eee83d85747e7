"""Imports go one way, and importing the package is light."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import shapshift

ROOT = Path(shapshift.__file__).parent

# From top to bottom: a module imports from its own layer and from those below it. A package counts as one module.
LAYERS: list[set[str]] = [
    {"__init__", "__main__", "cli", "app", "report", "plots", "_notebook", "_facts"},
    {
        *("price", "market", "correct", "design", "audit", "perturb", "mechanism", "evaluation", "duplicates"),
        *("suspects", "cleaning"),
    },
    {"knn", "sampled", "store", "cross", "methods", "agreement", "trust"},
    {"engine"},
    {"kernels"},
    {"valuation", "sampling_error", "tables", "data", "io", "checks", "exceptions", "_arrays", "_numba", "_progress"},
]
# The longest chain of imports between modules, without the entry point of ``python -m shapshift``.
LONGEST_CHAIN = 9
# May be imported from below, but only inside a function: a result draws itself, and matplotlib is loaded only then.
DEFERRED = {"plots", "_notebook"}
HEAVY = ["torch", "matplotlib", "pandas", "polars", "dask", "ray", "sqlalchemy"]


def module_name(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


@cache
def sources() -> list[Path]:
    return sorted(ROOT.rglob("*.py"))


def outside_functions(node: ast.AST) -> Iterator[ast.AST]:
    """Everything that runs when the module is imported."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from outside_functions(child)


@cache
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


def layer(module: str) -> int:
    """Number of a module's layer, 0 for the top."""
    for number, modules in enumerate(LAYERS):
        if module in modules:
            return number
    raise AssertionError(f"{module} has no layer: add it to LAYERS, where its imports allow")


@cache
def below(module: str) -> set[str]:
    """Modules that a module imports from."""
    files = [path for path in sources() if module_name(path) == module]
    found = (((imported_rooms(path) - DEFERRED) | imported_rooms(path, deferred=False)) for path in files)
    return set().union(*found) - {module}


MODULES = sorted({module_name(path) for path in sources()})


@pytest.mark.parametrize("module", MODULES)
def test_imports_go_down(module: str) -> None:
    upward = {other for other in below(module) if layer(other) < layer(module)}
    assert not upward, f"{module} must not import {sorted(upward)}"


def test_no_chain_of_imports_is_long_or_a_circle() -> None:
    graph = {module: below(module) for module in MODULES}

    def chain(module: str, above: tuple[str, ...]) -> tuple[str, ...]:
        assert module not in above, f"a circle of imports: {' -> '.join((*above, module))}"
        return max((chain(other, (*above, module)) for other in graph[module]), key=len, default=(*above, module))

    longest = max((chain(module, ()) for module in graph if module != "__main__"), key=len)
    assert len(longest) <= LONGEST_CHAIN, " -> ".join(longest)


@pytest.mark.parametrize("path", sorted((ROOT / "kernels").glob("*.py")), ids=lambda path: path.name)
def test_kernels_know_arrays_and_nothing_else(path: Path) -> None:
    assert imported_rooms(path) <= {"_numba", "kernels"}


@pytest.mark.parametrize("library", ["joblib", "torch", "matplotlib"])
def test_a_library_is_imported_in_one_place(library: str) -> None:
    users = {module_name(path) for path in sources() if any(name.split(".")[0] == library for name in imported(path))}
    assert len(users) <= 1, f"{library} is imported by {sorted(users)}"


def test_errors_raised_on_purpose_say_so() -> None:
    # The command line takes InputError for a mistake of the user and any other ValueError for a bug.
    made = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in sources()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("ValueError", "TypeError", "ImportError")
    ]
    assert made == []


def test_the_scan_sees_imports() -> None:
    assert "kernels" in imported_rooms(ROOT / "engine" / "exact.py")
    assert "joblib" in {name.split(".")[0] for name in imported(ROOT / "engine" / "parallel.py")}


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
    with pytest.raises(AttributeError, match="attribute KNNShaply"):
        _ = shapshift.KNNShaply


def test_importing_the_package_alone_loads_nothing_heavy() -> None:
    code = "import sys, shapshift; print(sorted({'numpy', 'sklearn', 'numba', 'scipy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--version"], 0),
        (["--help"], 0),
        (["report", "--help"], 0),
        (["value", "--bogus"], 2),
        (["audit", "a.csv", "b.csv", "--metric", "hamming"], 2),
        (["price", "a.csv", "b.csv", "--neighbors", "0"], 2),
        (["price", "a.csv", "b.csv"], 2),
        (["rerun", "a.json", "--repeats"], 2),
        (["no-such-command"], 2),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, list) else "",
)
def test_a_wrong_option_is_told_before_libraries_are_loaded(arguments: list[str], code: int, tmp_path: Path) -> None:
    heavy = ["numba", "sklearn", "scipy", "pyarrow", "pandas", "narwhals", "joblib", "jinja2"]
    program = f"""
import sys
from shapshift.cli import main
sys.argv[1:] = {arguments!r}
try:
    main()
except SystemExit as end:
    assert end.code == {code}, end.code
print("loaded:", [name for name in {heavy!r} if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout.endswith("loaded: []\n"), done.stdout[-300:] + done.stderr[-2000:]
    assert list(tmp_path.iterdir()) == []


def test_the_map_names_every_module_and_no_other() -> None:
    page = (ROOT.parents[1] / "docs" / "how_it_works.md").read_text(encoding="utf-8")
    tables = re.findall(r"(?:^\|.*\n)+", page.split("## Map of the package")[1].split("## Sources")[0], flags=re.M)
    package, engine = tables
    named = re.findall(r"`(\w+)`", "\n".join(line.split("|")[2] for line in package.splitlines()))
    assert sorted(named) == sorted(set(MODULES) - {"__init__", "__main__"})
    named = re.findall(r"`(\w+)`", "\n".join(line.split("|")[1] for line in engine.splitlines()[2:]))
    inside = {
        path.relative_to(ROOT / "engine").parts[0].removesuffix(".py") for path in (ROOT / "engine").rglob("*.py")
    }
    assert sorted(named) == sorted(inside - {"__init__"})
