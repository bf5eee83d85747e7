"""The files around the code: versions agree, the README is true, and nothing points at one machine."""

import contextlib
import importlib.metadata
import io
import itertools
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

import shapshift

ROOT = Path(__file__).resolve().parent.parent

FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def first_match(pattern: str, name: str) -> str:
    match = re.search(pattern, read(name), re.MULTILINE)
    assert match, f"{name} has no line that matches {pattern!r}"
    return match.group(1)


def trim(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines()).rstrip()


def project_version() -> str:
    return tomllib.loads(read("pyproject.toml"))["project"]["version"]


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("CHANGELOG.md", r"^## \[(\d[^\]]*)\]"),
        ("CITATION.cff", r"^version: *[\"']?([^\s\"']+)"),
    ],
    ids=["changelog", "citation"],
)
def test_version_in_file(name: str, pattern: str) -> None:
    assert first_match(pattern, name) == project_version()


def test_a_version_has_a_date_or_is_unreleased() -> None:
    headings = re.findall(r"^## \[([^\]]*)\] - (.*)$", read("CHANGELOG.md"), re.MULTILINE)
    assert len(headings) == len(re.findall(r"^## ", read("CHANGELOG.md"), re.MULTILINE))
    dates = [date for _, date in headings]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d", date) for date in dates[1:])
    assert dates[0] == "Unreleased" or dates == sorted(dates, reverse=True)
    versions = [[int(part) for part in version.split(".")] for version, _ in headings]
    assert versions == sorted(versions, reverse=True)


def test_addresses_are_complete_and_agree() -> None:
    urls = tomllib.loads(read("pyproject.toml"))["project"].get("urls", {})
    address = re.search(r"^repository-code: *[\"']?([^\s\"']+)", read("CITATION.cff"), re.MULTILINE)
    assert bool(urls) == bool(address), "CITATION.cff has repository-code where pyproject.toml has project.urls"
    if address:
        assert {"Homepage", "Documentation", "Changelog", "Issues", "Source"} <= set(urls)
        assert urls["Source"] == address[1]
        assert all(url.startswith("https://") for url in urls.values())


def bibtex(text: str) -> dict[str, dict[str, str]]:
    """Entries of a BibTeX file by kind: fields in braces, one per line."""
    found = {}
    for kind, body in re.findall(r"^@(\w+)\{\w+,\n(.*?)^\}$", text, re.MULTILINE | re.DOTALL):
        fields = [re.fullmatch(r" *(\w+) *= \{(.*)\},?", line) for line in body.splitlines()]
        assert all(fields), f"a line of @{kind} is no field: {body}"
        assert all(line.endswith(",") for line in body.splitlines()[:-1])
        assert body.count("{") == body.count("}")
        found[kind] = {field[1]: field[2] for field in fields if field}
    return found


def test_what_to_cite_can_be_read_and_agrees() -> None:
    yaml = pytest.importorskip("yaml", reason="CITATION.cff is YAML")
    citation = yaml.safe_load(read("CITATION.cff"))
    project = tomllib.loads(read("pyproject.toml"))["project"]
    assert citation["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= set(citation)
    assert str(citation["version"]) == project["version"]
    assert (citation["title"], citation["license"]) == (project["name"], project["license"])
    assert [author["name"] for author in citation["authors"]] == [author["name"] for author in project["authors"]]
    assert all({"type", "title", "authors"} <= set(reference) for reference in citation["references"])
    entries = bibtex(dict(FENCE.findall(read("docs/howto/cite.md")))["bibtex"])
    assert entries["software"]["version"] == project["version"]
    assert entries["software"]["license"] == project["license"]
    paper = citation["references"][0]
    assert entries["unpublished"]["title"].replace("{", "").replace("}", "") == paper["title"]
    names = " and ".join(f"{author['family-names']}, {author['given-names']}" for author in paper["authors"])
    assert entries["unpublished"]["author"] == names


def test_version_of_package() -> None:
    assert importlib.metadata.version("shapshift") == project_version()
    assert shapshift.__version__ == project_version()


def examples(name: str) -> list[tuple[str, str]]:
    blocks = FENCE.findall(read(name))
    return [
        (code, output)
        for (language, code), (following, output) in itertools.pairwise(blocks)
        if (language, following) == ("python", "text")
    ]


PAGES = [
    "README.md",
    "docs/start/ten_lines.md",
    "docs/howto/value.md",
    "docs/howto/rare_classes.md",
    "docs/howto/explain.md",
    "docs/howto/one_table.md",
    "docs/howto/pool.md",
    "docs/howto/audit.md",
    "docs/howto/boundary_points.md",
    "docs/howto/correct.md",
    "docs/howto/pay.md",
    "docs/howto/duplicates.md",
    "docs/howto/design.md",
    "docs/inputs.md",
    "docs/family_knn.md",
    "docs/family_methods.md",
    "docs/correction.md",
    "docs/larger_than_memory.md",
    "docs/incremental.md",
    "docs/manipulation.md",
    "docs/market_stress.md",
    "docs/payments.md",
    "docs/statements.md",
    "docs/market.md",
    "docs/suspects.md",
    "docs/cleaning.md",
    "docs/ledger.md",
]


@pytest.mark.parametrize("name", PAGES)
def test_examples_print_what_they_show(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pandas", reason="the examples print pandas tables")
    found = examples(name)
    assert found, f"{name} has no ```python block followed by a ```text block"
    monkeypatch.chdir(tmp_path)
    for code, shown in found:
        # Each in a namespace of its own, as in a new interpreter, but with libraries and kernels loaded.
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(code, name, "exec"), {"__name__": "__main__"})
        assert trim(printed.getvalue()) == trim(shown)


@pytest.mark.parametrize("name", PAGES)
def test_a_page_says_that_its_examples_need_pandas(name: str) -> None:
    needed = any(
        word in code for code, _ in examples(name) for word in ("pandas", "_frame(", "as_frame", ".to_string(")
    )
    assert needed == ("[pandas]" in FENCE.sub("", read(name)))
    assert not (needed and name == "README.md"), "the README's examples run after: pip install ."


def test_every_dependency_states_its_lowest_version() -> None:
    project = tomllib.loads(read("pyproject.toml"))["project"]
    extras = [line for lines in project["optional-dependencies"].values() for line in lines]
    assert not [line for line in project["dependencies"] + extras if ">=" not in line and "~=" not in line]


def test_make_targets_in_readme_exist() -> None:
    readme = read("README.md")
    # Only in code: "make sure" in a sentence is not a target.
    code = [body for _, body in FENCE.findall(readme)]
    code += re.findall(r"`([^`\n]+)`", FENCE.sub("", readme))
    code += re.findall(r"^(?: {4}|\t)(.*)$", readme, re.MULTILINE)
    mentioned = {target for text in code for target in re.findall(r"\bmake +([a-z][\w-]*)", text)}
    targets = set(re.findall(r"^([a-z][\w-]*):", read("Makefile"), re.MULTILINE))
    assert {"demo", "test"} <= mentioned
    assert mentioned <= targets


def project_files() -> list[Path]:
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout: there is no list of the project's files")
    # With the files that are about to be added, so that a mistake shows before it is committed.
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=True,
    )
    paths = (ROOT / name for name in listed.stdout.split("\0") if name)
    return [path for path in paths if path.is_file()]


def test_no_file_points_at_one_machine_or_registry() -> None:
    # Assembled from parts, so that this file does not find itself.
    folders = ["work", "root", "home", "Users"]
    hosts = [("pypi", "org"), ("pythonhosted", "org"), ("anaconda", "org"), ("download.pytorch", "org")]
    forbidden = re.compile(
        rf"(?<![\w.~-])/(?:{'|'.join(folders)})/|" + "|".join(re.escape(".".join(host)) for host in hosts)
    )
    files = project_files()
    assert ROOT / "pyproject.toml" in files
    found = []
    for path in files:
        content = path.read_bytes()
        if b"\0" in content:
            continue
        text = content.decode("utf-8", errors="replace")
        found += [
            f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
            for number, line in enumerate(text.splitlines(), 1)
            if forbidden.search(line)
        ]
    assert not found, "\n".join(found)
