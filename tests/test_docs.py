"""The pages of the site: nothing public is left out, no page is out of reach, and every public name has an example."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from cli_files import run

import shapshift
from shapshift.cli._errors import Code

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
# Templates, and what the build makes from the code and the examples.
MADE = ("_templates", "tutorials", "gallery", "reference/api", "reference/commands", "reference/examples")

#: Modules whose ``__all__`` is public beside the names of the package itself.
MODULES = [
    *("audit", "cleaning", "correct", "data", "design", "knn", "market.ledger", "mechanism", "perturb", "price"),
    *("report", "sampled", "store", "suspects", "tables"),
]
#: Public classes without an example of their own: nobody makes one, they come from this function or method.
COMES_FROM = {
    "audit.PointInfluence": "audit.point_influence",
    "cleaning.CleaningEffect": "measure_cleaning",
    "correct.CorrectionEvaluation": "evaluate",
    "correct.CorrectionReport": "BoundaryCorrector",
    "correct.NoiseEstimate": "PosteriorCorrector",
    "correct.PosteriorReport": "PosteriorCorrector",
    "data.Dataset": "load_dataset",
    "design.DesignResult": "design_validation",
    "design.EntropyProfile": "entropy_profile",
    "design.LabelSuggestions": "suggest_labels",
    "design.ProfileComparison": "entropy_profile",
    "market.ledger.Event": "market.ledger.Ledger",
    "market.ledger.Verification": "market.ledger.Ledger",
    "mechanism.CaseOne": "case_one",
    "mechanism.CaseTwo": "case_two",
    "mechanism.Example": "case_one",
    "mechanism.FeatureMap": "noise_demo",
    "mechanism.NoiseDemo": "noise_demo",
    "perturb.FunctionPerturbation": "perturb.as_perturbation",
    "price.Allocation": "allocate_budget",
    "price.Clusters": "find_clusters",
    "price.InfluenceAudit": "audit_influence",
    "price.OwnerValues": "owner_values",
    "price.PayoutAudit": "audit_payouts",
    "price.ValidationAttack": "attack_validation",
    "sampled.FederatedValues": "federated_values",
    "sampled.ProxyValuation": "KNNProxy",
    "sampled.Sampler": "sampled.Permutation",
    "tables.Prepared": "tables.prepare",
}
#: Public functions without an example that runs, and why.
NO_EXAMPLE = {
    "data.embed_texts": "needs a model that is downloaded",
    "market.ledger.verify_export": "needs a ledger in a database; docs/ledger.md has an example that is run",
}


def public() -> dict[str, Any]:
    """Public classes and functions by their name after ``shapshift.``, each once."""
    listing = (Path(shapshift.__file__).parent / "__init__.pyi").read_text(encoding="utf-8")
    imports = [node for node in ast.parse(listing).body if isinstance(node, ast.ImportFrom)]
    found = {alias.name: getattr(shapshift, alias.name) for node in imports for alias in node.names}
    assert len(found) > 60
    for name in MODULES:
        module = importlib.import_module(f"shapshift.{name}")
        for inner in module.__all__:
            thing = getattr(module, inner)
            if callable(thing) and not any(thing is known for known in found.values()):
                found[f"{name}.{inner}"] = thing
    return found


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def has_example(thing: Any) -> bool:
    return ">>> " in (inspect.getdoc(thing) or "")


def test_every_public_name_has_an_example_or_a_reason() -> None:
    names = public()
    without = {name for name, thing in names.items() if not has_example(thing)}
    # Nothing that has an example, or is gone, keeps its reason.
    assert without == set(COMES_FROM) | set(NO_EXAMPLE)
    sources = [names[name] for name in COMES_FROM.values()]
    assert all(has_example(source) for source in sources)


def test_examples_are_run() -> None:
    # The doctests of src run with the tests, so an example may not be skipped.
    for name, thing in public().items():
        assert "doctest: +SKIP" not in (inspect.getdoc(thing) or ""), name
    assert '"--doctest-modules"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_the_reference_has_every_public_name() -> None:
    module, listed = "", set()
    for line in (DOCS / "reference" / "python.rst").read_text(encoding="utf-8").splitlines():
        if line.startswith(".. currentmodule:: "):
            module = line.removeprefix(".. currentmodule:: ").removeprefix("shapshift").strip(".")
        elif re.fullmatch(r"   [\w.]+", line):
            listed.add(f"{module}.{line.strip()}".strip("."))
    plots = Path(shapshift.__file__).parent / "plots"
    drawn = {
        f"plots.{path.stem}.{name}"
        for path in plots.glob("[!_]*.py")
        for name in re.findall(r"^def (plot_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert len(drawn) > 15
    missing = (set(public()) | drawn) - listed
    assert not missing
    for name in listed:
        parent, _, last = f"shapshift.{name}".rpartition(".")
        assert hasattr(importlib.import_module(parent), last), name


def test_the_reference_has_every_option_of_every_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    commands = load(DOCS / "_ext" / "commands.py")
    pages = {name: commands.page(name, command) for name, command in commands.all_commands()}
    helped = re.findall(r"^│ ([a-z]+)  ", run("--help").out, re.MULTILINE)
    inner = [f"market {name}" for name in re.findall(r"^│ ([a-z]+)  ", run("market", "--help").out, re.MULTILINE)]
    assert set(pages) == {*helped, *inner} - {"market"}
    for name, page in pages.items():
        shown = [line for line in run(*name.split(), "--help").out.splitlines() if line.startswith("│")]
        options = {option for line in shown for option in re.findall(r"^│ (?:\* +)?(--[a-z-]+)", line)} - {"--help"}
        written = {
            flag
            for line in page.splitlines()
            if line.startswith(".. option::")
            for flag in re.findall(r"--[a-z-]+", line)
        }
        assert options, name
        assert options <= written, name


def linked(page: Path) -> Iterator[Path]:
    """Pages in the toctrees of a page."""
    text = page.read_text(encoding="utf-8")
    for body in re.findall(r"^```\{toctree\}\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        for line in body.splitlines():
            if line and not line.startswith(":"):
                found = [path for end in (".md", ".rst") for path in page.parent.glob(f"{line}{end}")]
                yield from (path.resolve() for path in found)


def test_every_page_can_be_reached() -> None:
    made = [DOCS / folder for folder in MADE]
    pages = {
        path
        for path in DOCS.rglob("*.[mr][ds]*")
        if path.suffix in (".md", ".rst") and not any(path.is_relative_to(folder) for folder in made)
    }
    reached, waiting = set(), [DOCS / "index.md"]
    while waiting:
        page = waiting.pop()
        if page not in reached:
            reached.add(page)
            waiting += linked(page)
    assert len(pages) > 40
    assert pages <= reached


def test_every_example_has_its_place() -> None:
    order = load(DOCS / "_ext" / "order.py").ORDER
    scripts = [path.stem for path in (ROOT / "examples").glob("*/*.py")]
    assert sorted(order) == sorted(scripts)
    assert len(list((ROOT / "examples" / "gallery").glob("*.py"))) >= 10


def test_the_page_of_exit_codes_has_them_all() -> None:
    page = (DOCS / "reference" / "exit_codes.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| (.*?) \|", page, re.MULTILINE)
    assert rows == [(str(int(code)), code.meaning) for code in Code]


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ('<a href="b.html#here">', None),
        ('<a href="b.html#gone">', "has no such anchor"),
        ('<a href="c.html">', "leads nowhere"),
        ('<img src="pictures/">', "leads nowhere"),
        ('<script src="https://cdn.example.org/x.js">', "from a network"),
        ('<a href="https://example.org/page">', None),
        ('<a href="https://example">', "has not the form of a link"),
    ],
    ids=["anchor", "no anchor", "no page", "no picture", "fetched", "outside", "no host"],
)
def test_the_check_of_links_finds(body: str, problem: str | None, tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(body, encoding="utf-8")
    (tmp_path / "b.html").write_text('<p id="here">', encoding="utf-8")
    found = load(DOCS / "check_site.py").problems_of(tmp_path)
    assert len(found) == (problem is not None)
    assert problem is None or problem in found[0]
