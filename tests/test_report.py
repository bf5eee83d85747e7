"""The report: its numbers, its words, and that nothing from the data becomes code."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import dataclass, field, replace
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import sparse
from sklearn.datasets import load_breast_cancer

import shapshift.report
from shapshift import KNNShapley
from shapshift._notebook import show
from shapshift.audit import ShiftAudit, audit_shift
from shapshift.correct import BoundaryCorrector, evaluate
from shapshift.perturb import FlipLabels, GaussianNoise, Subsample
from shapshift.price import Policy, allocate_budget, audit_payouts
from shapshift.report import _page, _words, build_report
from shapshift.report._format import MINUS, cell, change, count, distinct, figure, money, number, percent, unit_for
from shapshift.report._sections import DRAWN
from shapshift.report._words import Draws
from shapshift.trust import sampling_facts

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>'\"&<!--"
FOLDER = Path(shapshift.report.__file__).parent


@cache
def inputs() -> Any:
    data = load_breast_cancer()
    X = (data.data - data.data.mean(axis=0)) / data.data.std(axis=0)
    X, y = X[:, :8], data.target
    train, val = np.arange(len(y)) % 3 > 0, np.arange(len(y)) % 3 == 0
    model = KNNShapley(n_jobs=1, progress=False).fit(X[train], y[train])
    clean = model.value(X[val], y[val])
    noisy = model.value(*GaussianNoise(1.0, random_state=0)(X[val], y[val]))
    corrected = BoundaryCorrector().fit(clean).transform(noisy)
    audit = audit_shift(model, X[val], y[val], noise=[0.1, 0.5, 2.0], repeats=3, progress=False)
    owners = np.array(["north", "south", "east"])[np.arange(train.sum()) % 3]
    pay = {"budget": 1000, "owners": owners}
    bounds = audit_payouts(model, X[val], y[val], **pay, noise=[0.1, 0.5], repeats=3, progress=False)
    allocation = allocate_budget(clean, **pay, corrected=corrected, audit=bounds)
    return SimpleNamespace(
        X=X[train], y=y[train], X_val=X[val], y_val=y[val], model=model, clean=clean, noisy=noisy, owners=owners,
        corrected=corrected, audit=audit, bounds=bounds, allocation=allocation,
        names=[str(name) for name in data.feature_names[:8]],
    )  # fmt: skip


def everything() -> dict[str, Any]:
    made = inputs()
    return {
        "valuation": made.clean, "audit": made.audit, "noisy": made.noisy, "corrected": made.corrected,
        "allocation": made.allocation, "X_train": made.X, "y_train": made.y, "X_val": made.X_val,
        "feature_names": made.names,
    }  # fmt: skip


@dataclass
class Page(HTMLParser):
    """What a browser would see in a page."""

    scripts: list[tuple[dict[str, Any], str]] = field(default_factory=list)
    styles: list[str] = field(default_factory=list)
    tags: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    text: str = ""
    _open: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self._open.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag in ("script", "style"):
            self._open.clear()

    def handle_data(self, data: str) -> None:
        if self._open:
            tag, attributes = self._open[-1]
            if tag == "script":
                self.scripts.append((attributes, data))
            else:
                self.styles.append(data)
        else:
            self.text += data

    @property
    def charts(self) -> dict[str, Any]:
        found = [text for attributes, text in self.scripts if attributes.get("id") == "data"]
        assert len(found) == 1
        return json.loads(found[0])

    @property
    def explained(self) -> dict[str, Any]:
        found = [text for attributes, text in self.scripts if attributes.get("id") == "explained"]
        return json.loads(found[0]) if found else {}

    def attributes(self, name: str) -> list[str]:
        return [attributes[name] for _, attributes in self.tags if name in attributes]


def read(path: Path) -> Page:
    page = Page()
    page.feed(path.read_text(encoding="utf-8"))
    page.close()
    return page


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Page:
    return read(build_report(tmp_path_factory.mktemp("report") / "full.html", **everything()))


# The file


def test_sections_appear_when_their_input_is_there(tmp_path: Path, full: Page) -> None:
    assert set(full.charts) == {
        "intervals", "reliability", "distribution", "payouts", "spearman", "flips", "top-overlap", "std", "positive",
        "mean", "scatter-noisy",
        "scatter-corrected", "boundary", "alpha", "neighbor-jaccard", "changed-predictions", "neighbor-displacement",
        "map-value", "map-boundary",
    }  # fmt: skip
    made = inputs()
    bare = read(build_report(tmp_path / "bare.html", valuation=made.clean))
    assert set(bare.charts) == {"intervals", "reliability", "distribution", "boundary"}
    assert "was not measured" in bare.text
    audited = read(build_report(tmp_path / "audited.html", valuation=made.clean, audit=made.audit))
    assert "scatter-mean" in audited.charts
    assert "payouts" not in audited.charts


def test_every_chart_has_a_place_a_text_alternative_and_a_table(full: Page) -> None:
    plots = [attributes for _, attributes in full.tags if "data-chart" in attributes]
    assert [plot["data-chart"] for plot in plots] == list(full.charts)
    for plot in plots:
        assert plot["role"] == "img"
        assert len(plot["aria-label"]) > 40, plot["data-chart"]
    assert len([tag for tag, attributes in full.tags if tag == "figure"]) == len(plots)
    ids = full.attributes("id")
    assert len(ids) == len(set(ids))


def test_the_file_loads_nothing_and_allows_only_its_own_code(full: Page) -> None:
    assert not full.attributes("src")
    assert all(link.startswith("#") for link in full.attributes("href"))
    assert not full.attributes("style")
    handlers = [name for _, attributes in full.tags for name in attributes if name.startswith("on")]
    assert not handlers
    policy = next(a["content"] for _, a in full.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    code = [text for attributes, text in full.scripts if not attributes]
    assert len(code) == 2
    for text in [*code, *full.styles]:
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy


def test_same_results_give_the_same_bytes(tmp_path: Path) -> None:
    one, two = (build_report(tmp_path / f"{name}.html", **everything()).read_bytes() for name in "ab")
    assert one == two
    dated = build_report(tmp_path / "c.html", **everything(), date="1 May").read_text(encoding="utf-8")
    assert '<p class="date">1 May</p>' in dated


def test_hostile_strings_stay_text(tmp_path: Path) -> None:
    made = inputs()
    n = made.clean.n_train
    ids = np.array([f"{HOSTILE} {i}" for i in range(n)], dtype=object)
    owners = [HOSTILE if i % 2 else f"b{HOSTILE}" for i in range(n)]
    model = KNNShapley(progress=False).fit(made.X, [f"{label}{HOSTILE}" for label in made.y], ids=ids)
    y_val = [f"{label}{HOSTILE}" for label in made.y_val]
    clean = model.value(made.X_val, y_val)
    explanation = model.explain(made.X_val, y_val, ids[:50])

    def shift(X: Any, y: Any) -> Any:
        return X + 0.1, y

    shift.__name__ = HOSTILE
    audit = audit_shift(model, made.X_val, y_val, perturbations=[shift, GaussianNoise(0.5)], repeats=2, progress=False)
    frame = pd.DataFrame(made.X, columns=[f"{HOSTILE}{i}" for i in range(8)])
    frame["text"] = HOSTILE
    page = read(
        build_report(
            tmp_path / "hostile.html",
            valuation=clean,
            audit=audit,
            allocation=allocate_budget(clean, 100, owners=owners, currency=HOSTILE),
            explanation=explanation,
            X_train=frame,
            y_train=[f"{label}{HOSTILE}" for label in made.y],
            title=HOSTILE,
            notes=[HOSTILE],
            parameters={HOSTILE: {HOSTILE: [HOSTILE, {"a": HOSTILE}]}},
            date=HOSTILE,
        )
    )
    assert len(page.scripts) == 4
    assert not [tag for tag, _ in page.tags if tag == "img"]
    assert page.charts["payouts"]["names"][0].startswith(("</script>", "b</script>"))
    for place in (HOSTILE, f"{HOSTILE}0", "b" + HOSTILE):
        assert place in page.text
    assert page.text.count(HOSTILE) > 500  # each of the 199 or so rows has several
    assert all(HOSTILE in said["sentence"] for said in page.explained.values())
    shown = show(replace(clean, parameters={"method": HOSTILE}))
    for html in (shown, show(audit), show(explanation)):
        assert "<script" not in html
        assert "<img" not in html
        ElementTree.fromstring(html)


@pytest.mark.parametrize("text", ["</script>", "<!--", "]]>", "\u2028", "&lt;", '"', "\\u003c"])
def test_json_in_a_script_reads_back(text: str) -> None:
    written = _page._environment().from_string("{{ data | tojson }}").render(data={text: [text]})
    assert not set("<>&\u2028") & set(written)
    assert json.loads(written) == {text: [text]}


def test_a_large_report_is_small(tmp_path: Path) -> None:
    n = 100_000
    rng = np.random.default_rng(0)
    values = rng.normal(size=n) * 1e-6
    clean = replace(
        inputs().clean,
        values=values,
        ids=np.arange(n),
        level_entropy=np.array([0.0, 0.5]),
        level_values=np.stack([values, 2 * values]),
        level_counts=np.array([5, 5]),
        group_means=np.empty((0, n)),
        standard_error=np.full(n, 1e-6),
        degrees_of_freedom=np.full(n, 100.0),
        labels=None,
    )
    owners = np.array([f"a seller with quite a long name, number {i}" for i in range(5000)])[rng.integers(0, 5000, n)]
    texts = pa.table(
        {f"column {i}": pa.array(["long text " * 30] * n).dictionary_encode().cast(pa.string()) for i in range(3)}
        | {f"number {i}": rng.normal(size=n) for i in range(60)}
    )
    path = build_report(
        tmp_path / "large.html",
        valuation=clean,
        noisy=replace(clean, values=-values),
        corrected=clean,
        allocation=allocate_budget(clean, 10_000, owners=owners),
        X_train=texts,
    )
    assert path.stat().st_size < 3e6
    page = read(path)
    assert "3,000 of the 100,000 rows" in page.text
    assert "first 30 of 63 features" in page.text
    assert len(page.charts["map-value"]["points"]) == DRAWN


def test_the_chart_library_is_the_one_described() -> None:
    library = (FOLDER / "vendor" / "echarts.report.min.js").read_bytes()
    assert hashlib.sha256(library).hexdigest() in (FOLDER / "vendor" / "README.md").read_text(encoding="utf-8")
    assert b"</script" not in library
    for name in ("NOTICE", "LICENSE-echarts", "LICENSE-zrender", "LICENSE-d3"):
        assert (FOLDER / "vendor" / name).stat().st_size > 100


# The numbers


def test_histograms_count_every_row(full: Page) -> None:
    made = inputs()
    chart = full.charts["distribution"]
    scale = 10.0 ** -unit_for(np.concatenate([made.clean.values, made.noisy.values, made.corrected.values])).exponent
    edges = np.array(chart["edges"])
    assert 0 in edges
    for series in chart["series"]:
        values = getattr(made, series["role"]).values * scale
        assert sum(series["counts"]) == values.size
        right = sum(n for n, left in zip(series["counts"], edges, strict=False) if left >= 0)
        assert right == np.count_nonzero(values > 0)
        inner = np.flatnonzero((edges[:-1] > edges[0]) & (edges[1:] < edges[-1]))[10]
        direct = np.count_nonzero((values >= edges[inner]) & (values < edges[inner + 1]))
        assert abs(series["counts"][inner] - direct) <= 1  # edges are rounded on the page
    parts = {series["role"]: sum(series["counts"]) for series in full.charts["boundary"]["series"]}
    assert parts == {"boundary": made.clean.n_train, "nonboundary": made.clean.n_train}


def test_curves_are_those_of_the_audit(full: Page) -> None:
    made = inputs()
    frame = made.audit.to_frame("pandas")[1:]  # the first line is another sample
    chart = full.charts["spearman"]
    assert chart["x"] == [0.1, 0.5, 2.0]
    assert chart["log"]
    for part, end in (("mean", ""), ("low", "_low"), ("high", "_high")):
        assert chart["series"][0][part] == pytest.approx(frame["spearman" + end].tolist(), rel=1e-5)
    flips = {series["name"]: series["mean"] for series in full.charts["flips"]["series"]}
    assert flips["to negative"] == pytest.approx((frame["flips_to_negative"] / made.audit.n_train).tolist(), rel=1e-5)
    assert full.charts["positive"]["reference"] == np.count_nonzero(made.clean.values > 0)
    jaccard = {series["name"]: series["mean"] for series in full.charts["neighbor-jaccard"]["series"]}
    assert jaccard["boundary"] == pytest.approx(frame["neighbor_jaccard_boundary"].tolist(), rel=1e-5)


def test_scatter_splits_rows_by_sign(full: Page) -> None:
    made = inputs()
    old, new = made.clean.values > 0, made.noisy.values > 0
    found = {series["name"]: len(series["points"]) for series in full.charts["scatter-noisy"]["series"]}
    assert found == {
        "same sign": int((old == new).sum()),
        "stops being positive": int((old & ~new).sum()),
        "becomes positive": int((~old & new).sum()),
    }
    assert f"{(old & ~new).sum()} stop being positive" in full.text


def test_payouts_are_those_of_the_allocation(full: Page) -> None:
    allocation = inputs().allocation
    chart = full.charts["payouts"]
    frame = allocation.to_frame("pandas").sort_values("payout", ascending=False, kind="stable")
    assert chart["names"] == frame["owner"].tolist()
    for key, column in (("values", "payout"), ("low", "low"), ("high", "high"), ("corrected", "corrected")):
        assert chart[key] == pytest.approx(frame[column].tolist())
    for amount in allocation.payouts.values():
        assert f"{amount:,.2f}" in full.text


def test_the_map_puts_rows_where_principal_components_do(full: Page) -> None:
    made = inputs()
    X = (made.X - made.X.mean(axis=0)) / made.X.std(axis=0)
    left, size, _ = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)
    expected = left[:, :2] * size[:2]
    found = np.array(full.charts["map-value"]["points"])[:, :2]
    for axis in (0, 1):
        assert abs(np.corrcoef(found[:, axis], expected[:, axis])[0, 1]) > 0.9999
    assert full.charts["map-value"]["axes"][0] == f"1st principal component ({percent(size[0] ** 2 / (size**2).sum())})"
    kinds = {series["role"]: len(series["points"]) for series in full.charts["map-boundary"]["series"]}
    assert kinds["boundary"] == made.clean.boundary.sum()
    assert kinds["nonboundary"] == (~made.clean.boundary).sum()


def table_rows(path: Path) -> tuple[list[str], list[tuple[str, list[str]]]]:
    text = path.read_text(encoding="utf-8")
    table = ElementTree.fromstring(re.search(r'<table id="row-table">.*?</table>', text, re.DOTALL).group())
    head = [cell.text or "" for cell in table.findall("thead/tr/th")]
    return head, [(row.get("class", ""), [cell.text or "" for cell in row]) for row in table.findall("tbody/tr")]


def test_table_holds_both_ends_in_order(tmp_path: Path) -> None:
    made = inputs()
    head, rows = table_rows(build_report(tmp_path / "a.html", **everything(), table_rows=7))
    assert head[:2] == ["rank", "row"]
    assert head[-8:] == made.names
    order = np.argsort(-made.clean.values, kind="stable")
    assert [int(cells[1]) for _, cells in rows] == [*order[:7], *order[-7:]]
    assert [end for end, _ in rows] == ["most"] * 7 + ["least"] * 7
    assert [int(cells[0]) for _, cells in rows][-1] == made.clean.n_train
    stability = head.index("stability")
    assert float(rows[0][1][stability]) == pytest.approx(made.audit.rows["stability"][order[0]], abs=0.005)
    assert rows[0][1][head.index("owner")] == made.owners[order[0]]
    assert float(rows[-1][1][-1]) == pytest.approx(made.X[order[-1], 7], rel=1e-3)


@pytest.mark.parametrize("size", [1, 2, 200, 10_000])
def test_no_row_is_listed_twice(tmp_path: Path, size: int) -> None:
    _, rows = table_rows(build_report(tmp_path / "a.html", valuation=inputs().clean, table_rows=size))
    ids = [cells[1] for _, cells in rows]
    assert len(set(ids)) == len(ids) == min(2 * size, inputs().clean.n_train)


def test_explanations_belong_to_the_listed_rows(tmp_path: Path, full: Page) -> None:
    made = inputs()
    order = np.argsort(-made.clean.values, kind="stable")
    asked = [int(order[0]), int(order[-1]), int(order[100])]  # the last one is not in the table
    explanation = made.model.explain(made.X_val, made.y_val, asked, n_points=2, n_neighbors=4)
    path = build_report(tmp_path / "a.html", valuation=made.clean, explanation=explanation, table_rows=5)
    page = read(path)
    assert page.explained.keys() == {str(asked[0]), str(asked[1])}
    said = page.explained[str(asked[1])]
    assert said["sentence"] == explanation.sentences[1]
    inside = explanation.points["row"] == 1
    assert [line[0] for line in said["points"]] == [str(point) for point in explanation.points["id"][inside]]
    assert len(said["neighbors"]) == 4
    rows = [attributes.get("data-why") for tag, attributes in page.tags if tag == "tr" and "data-why" in attributes]
    assert rows == [str(asked[0]), str(asked[1])]
    assert "Click a row" in page.text
    assert "Click a row" not in full.text
    assert not full.explained
    with pytest.raises(ValueError, match=r"'explanation' parameter.*other training rows"):
        build_report(tmp_path / "b.html", valuation=made.clean, explanation=replace(explanation, fingerprint="other"))
    with pytest.raises(ValueError, match=r"'explanation' parameter.*other values"):
        build_report(tmp_path / "b.html", valuation=made.corrected, explanation=explanation)
    with pytest.raises(TypeError, match="must be an Explanation or None"):
        build_report(tmp_path / "b.html", valuation=made.clean, explanation={})


def test_tables_of_every_kind(tmp_path: Path) -> None:
    made = inputs()
    frame = pd.DataFrame(made.X[:, :3].copy(), columns=["a", "b", "c"])
    frame.loc[5, "a"] = np.nan
    frame["word"] = ["one", "two"] * (len(frame) // 2) + ["one"] * (len(frame) % 2)
    shown = {}
    for name, table in {
        "pandas": frame,
        "polars": pl.from_pandas(frame),
        "pyarrow": pa.Table.from_pandas(frame, preserve_index=False),
    }.items():
        path = build_report(tmp_path / f"{name}.html", valuation=made.clean, X_train=table)
        shown[name] = (table_rows(path), read(path).charts["map-value"])
    assert shown["pandas"][0] == shown["polars"][0] == shown["pyarrow"][0]
    assert shown["pandas"][1] == shown["polars"][1]
    assert shown["pandas"][0][0][-4:] == ["a", "b", "c", "word"]
    rows = read(build_report(tmp_path / "s.html", valuation=made.clean, X_train=sparse.csr_array(made.X)))
    assert len(rows.charts["map-value"]["points"]) == made.clean.n_train
    two = read(build_report(tmp_path / "2.html", valuation=made.clean, X_train=frame[["b", "c"]]))
    assert two.charts["map-value"]["axes"] == ["b", "c"]
    assert two.charts["map-value"]["points"][0][:2] == pytest.approx(made.X[0, 1:3], rel=1e-3)
    words = read(build_report(tmp_path / "w.html", valuation=made.clean, X_train=frame[["word"]]))
    assert "map-value" not in words.charts


def test_perturbations_without_order(tmp_path: Path) -> None:
    made = inputs()
    levels = [GaussianNoise(0.5), FlipLabels(0.2), Subsample(fraction=0.5)]
    audit = audit_shift(made.model, made.X_val, made.y_val, perturbations=levels, repeats=2, progress=False)
    page = read(build_report(tmp_path / "a.html", valuation=made.clean, audit=audit))
    assert page.charts["spearman"]["x"] is None
    assert len(page.charts["spearman"]["levels"]) == 3
    assert page.charts["neighbor-jaccard"]["series"][0]["mean"][2] is None  # a subsample has no clean neighbours
    alone = audit_shift(made.model, made.X_val, made.y_val, perturbations=levels[2:], repeats=1, progress=False)
    assert "neighbor-jaccard" not in read(build_report(tmp_path / "b.html", valuation=made.clean, audit=alone)).charts


def test_degenerate_values(tmp_path: Path) -> None:
    model = KNNShapley(n_neighbors=1, progress=False).fit([[0.0, 1.0]], ["a"])
    one = model.value([[0.0, 1.0]], ["a"])
    audit = audit_shift(model, [[0.0, 1.0]], ["a"], noise=[0.0], repeats=1, progress=False)
    build_report(tmp_path / "one.html", valuation=one, audit=audit, noisy=one, X_train=[[0.0, 1.0]], X_val=[[0.0, 1.0]])
    made = inputs()
    for value in (0.0, 1e-300, -1.0):
        flat = replace(made.clean, values=np.full(made.clean.n_train, value))
        build_report(tmp_path / "flat.html", valuation=flat, noisy=flat, corrected=flat, X_train=made.X)
        ElementTree.fromstring(show(flat))


# The words


@pytest.mark.parametrize(
    ("distances", "ranks", "said"),
    [
        ((0.5, 0.1), (0.85, 0.78), ["back towards", "but it lowers rank agreement", "0.85 to 0.78", "not for ranking"]),
        ((0.5, 0.1), (0.30, 0.60), ["back towards", "and it raises rank agreement", "better in both"]),
        ((0.5, 0.1), (0.80, 0.80), ["back towards", "stays the same (0.80)", "they are no better"]),
        ((0.1, 0.5), (0.30, 0.60), ["does not bring", "but it raises rank agreement", "not for totals"]),
        ((0.1, 0.5), (0.80, 0.70), ["does not bring", "and it lowers rank agreement", "does not help"]),
        ((0.1, 0.1), (np.nan, 0.7), ["not defined"]),
    ],
)
def test_words_on_a_correction_are_honest(distances: Any, ranks: Any, said: list[str]) -> None:
    evaluation = SimpleNamespace(
        distribution={name: {"wasserstein": x} for name, x in zip(("noisy", "corrected"), distances, strict=True)},
        rows={name: {"spearman": x} for name, x in zip(("noisy", "corrected"), ranks, strict=True)},
    )
    words = _words.correction(evaluation)
    for part in said:
        assert part in words


def test_words_agree_with_the_numbers(full: Page) -> None:
    made = inputs()
    positive = np.count_nonzero(made.clean.values > 0)
    assert f"{positive} of {made.clean.n_train} rows ({positive / made.clean.n_train:.0%}) have a positive" in full.text
    judged = evaluate(made.corrected, made.clean, made.noisy)
    raised = judged.rows["corrected"]["spearman"] - judged.rows["noisy"]["spearman"]
    word = "raises" if raised > 0.01 else "lowers" if raised < -0.01 else "stays the same"
    assert word in full.text
    mean = made.audit.statistic("spearman")[0]
    assert f"at noise 2, rank agreement with the clean values is {mean[2]:.2f}" in full.text


def test_verdicts(tmp_path: Path) -> None:
    made = inputs()
    levels = {"stable": [0.001], "unstable": [20.0, 40.0]}

    def audited(noise: list[float], reliability: float | None = 0.95) -> ShiftAudit:
        audit = audit_shift(made.model, made.X_val, made.y_val, noise=noise, repeats=2, progress=False)
        sampling = dict(audit.sampling) | {"reliability": reliability, "points_needed": 1234}
        return replace(audit, sampling=sampling)

    for verdict, noise in levels.items():
        audit = audited(noise)
        assert audit.verdict == verdict
        said = _words.verdict(audit)
        assert said.level == verdict
        assert ("can be relied on" in said.sentence) == (verdict == "stable")
        assert ("Do not rely" in said.sentence) == (verdict == "unstable")
    few = _words.verdict(audited([0.001], 0.42))
    assert (few.level, few.word) == ("unreliable", "Too few validation points")
    assert few.sentence.startswith("Too few validation points: another sample of")
    assert "at a correlation of 0.42; 1,234 points are needed for 0.9. Noise changes little" in few.sentence
    assert "can be relied on" not in few.sentence
    assert _words.verdict(audited([0.001], 0.8)).word == "Usable, but not for single rows"
    both = audited([20.0, 0.001])
    assert "hold up to noise 0.001 and not beyond: at noise 20" in _words.verdict(both).sentence
    path = build_report(tmp_path / "a.html", valuation=made.clean, audit=both)
    assert '<section class="verdict unstable"' in path.read_text(encoding="utf-8")


def test_the_page_says_first_how_far_values_can_be_trusted(tmp_path: Path) -> None:
    made = inputs()
    page = read(build_report(tmp_path / "a.html", valuation=made.clean))
    facts = sampling_facts(made.clean)
    said = f"would agree with these values at a correlation of {facts['reliability']:.2f}"
    assert page.text.index("How reliable are the values") < page.text.index("What the rows are worth")
    assert page.text.count(said) >= 2  # in the verdict and in the section
    assert f"{facts['open']} open (95% each)" in page.text
    low, high = made.clean.interval()
    series = page.charts["intervals"]["series"][0]
    order = np.argsort(-made.clean.values, kind="stable")[np.array(page.charts["intervals"]["x"]) - 1]
    scale = made.clean.values[order[0]] / series["mean"][0]
    np.testing.assert_allclose(np.array(series["low"]) * scale, low[order], rtol=1e-4, atol=1e-9)
    np.testing.assert_allclose(np.array(series["high"]) * scale, high[order], rtol=1e-4, atol=1e-9)
    curve = page.charts["reliability"]
    now = curve["x"].index(made.clean.n_val)
    assert curve["series"][0]["mean"][now] == pytest.approx(facts["reliability"], abs=1e-3)
    assert [x for x in curve["series"][1]["mean"] if x is not None] == [curve["series"][0]["mean"][now]]


def test_one_validation_point_has_no_interval_and_says_why(tmp_path: Path) -> None:
    made = inputs()
    page = read(build_report(tmp_path / "a.html", valuation=made.model.value(made.X_val[:1], made.y_val[:1])))
    assert page.text.count("it takes at least two validation points to see how values vary between them") >= 2
    assert not {"intervals", "reliability"} & set(page.charts)
    assert "nan" not in page.text.lower().split()


def test_words_on_payouts() -> None:
    made = inputs()
    plain = allocate_budget(made.clean, 1000, owners=made.owners, policy=None)
    assert "was not measured" in _words.payouts(["a", "b", "c"], plain)
    cents = np.array([50_000, 30_000, 20_000])
    apart = replace(plain, cents=cents, low=cents - 1, high=cents + 1, interval="\N{GREEK SMALL LETTER SIGMA} ≤ 1")
    words = _words.payouts(["a", "b", "c"], apart, Draws(3, 20, 7))
    assert "none of these draws changes who earns more" in words
    assert "settled" not in words
    assert "smallest and largest over 60 random draws (20 at each of 3 levels) of this one kind of change" in words
    assert "move by up to 0.01 EUR; 0 of 2 pairs of neighbours in rank could change" in _words.effect(apart)
    # The largest move is from what is paid, and need not be that of the owner with the widest interval.
    moved = replace(apart, low=cents - np.array([300, 0, 200]), high=cents + np.array([0, 250, 200]))
    words = _words.payouts(["a", "b", "c"], moved)
    assert "move by up to 3.00 EUR (a is paid 500.00, and between 497.00 and 500.00 in the draws)" in words
    assert "move by up to 3.00 EUR;" in _words.effect(moved)
    wide = replace(apart, low=cents * 0, high=cents * 2)
    assert "2 of 2 pairs of neighbours have overlapping intervals" in _words.payouts(["a", "b", "c"], wide)
    one = replace(apart, high=cents + np.array([0, 0, 15_000]))
    assert "1 of 2 pairs of neighbours has overlapping intervals" in _words.payouts(["a", "b", "c"], one)
    # Owners that are paid the same nothing in every draw do not change places.
    still = replace(apart, cents=cents * 0, low=cents * 0, high=cents * 0, unallocated_cents=100_000)
    words = _words.payouts(["a", "b", "c"], still)
    assert words.startswith("No owner is paid. 1,000.00 EUR are not paid to anyone.")
    assert "paid most" not in words
    assert "no payout moves" in words


def test_words_say_who_is_paid_for_a_negative_total() -> None:
    plain = allocate_budget(inputs().clean, 1000, owners=inputs().owners, policy=Policy(negatives="clip"))
    harmful = replace(plain, values=np.array([0.1, -0.2, 0.3]))
    assert "b is paid although its rows together" in _words.payouts(["a", "b", "c"], harmful)
    assert "although" not in _words.payouts(["a", "b", "c"], plain)
    carried = replace(harmful, policy=Policy(negatives="carry"))
    assert "although" not in _words.payouts(["a", "b", "c"], carried)


def test_change_by_correction_starts_from_the_noisy_payout(tmp_path: Path) -> None:
    made = inputs()
    plain = replace(made.allocation, uncorrected=made.allocation.corrected - 1234)
    path = build_report(tmp_path / "a.html", valuation=made.clean, allocation=plain)
    assert path.read_text(encoding="utf-8").count("<td>12.34</td>") >= 3


def test_the_verdict_speaks_of_payouts() -> None:
    made = inputs()
    paid, low, high = made.allocation.cents, made.allocation.low, made.allocation.high
    moved = money(made.allocation, max(max(h - p, p - b) for p, b, h in zip(paid, low, high, strict=True)))
    for audit in (made.audit, None):
        sentence = _words.verdict(audit, made.allocation).sentence
        assert f"payouts move by up to {moved}" in sentence
        assert "of 2 pairs of neighbours in rank could change places" in sentence
        assert "as the model sees them" in _words.verdict(audit, made.allocation).detail
    kinds = [FlipLabels(0.1), Subsample(0.5)]
    other = audit_shift(made.model, made.X_val, made.y_val, perturbations=kinds, repeats=1, progress=False)
    assert "as the model sees them" in _words.verdict(other, made.allocation).detail
    assert "as the model sees them" not in _words.verdict(other).detail
    assert "payouts" not in _words.verdict(made.audit).sentence
    assert "as the model sees them" in _words.verdict(made.audit).detail


def test_payout_intervals_name_their_draws(tmp_path: Path) -> None:
    made = inputs()
    given = {**everything(), "payout_audit": made.bounds}
    page = read(build_report(tmp_path / "a.html", **given))
    assert "over 6 random draws (3 at each of 2 levels)" in page.text
    assert f"the random seed was {made.bounds.parameters['random_state']}" in page.text
    assert "A budget of 1,000.00 EUR is divided" in page.text
    assert "Rows with a negative value reduce what their owner is paid" in page.text
    without = read(build_report(tmp_path / "d.html", **everything()))
    assert "over 6 random draws (3 at each of 2 levels)" in without.text
    narrow = made.allocation.with_interval(made.bounds, up_to=0.1)
    page = read(build_report(tmp_path / "b.html", **{**given, "allocation": narrow}))
    assert "over 3 random draws" in page.text
    other = replace(made.allocation, low=made.allocation.low - 1)
    with pytest.raises(ValueError, match="'payout_audit' parameter must be the audit that gave"):
        build_report(tmp_path / "c.html", **{**given, "allocation": other})
    with pytest.raises(ValueError, match="needs 'allocation'"):
        build_report(tmp_path / "c.html", **{**given, "allocation": None})


def test_one_is_singular() -> None:
    values = {"clean": np.array([1.0, 1.0, -1.0]), "noisy": np.array([3.0, -1.0, -1.0])}
    said = _words.distribution(values, unit_for(values["clean"]))
    assert "1 row is positive, 1 fewer than on the clean one" in said
    assert "the spread grows to 2 times that of the clean one" in said
    flips = {"flips_to_negative": 0, "flips_to_positive": 1, "spearman": 0.9}
    assert "1 of 9 rows (11%) changes sign: 0 stop being positive, 1 becomes positive" in _words.scatter(flips, 9, "x")
    made = inputs()
    worst = int(np.nanargmin(made.audit.statistic("spearman")[0]))
    positive = round(float(made.audit.statistic("positive_count")[0][worst])) + 1
    one = {**made.audit.parameters, "top": 1}
    said = _words.shift(replace(made.audit, clean={**made.audit.clean, "positive_count": positive}, parameters=one))
    assert "1 fewer row is positive" in said
    assert "the top row stays at the top in" in said


@pytest.mark.parametrize("helps", [True, False])
def test_the_card_on_the_correction_is_neutral_where_it_does_not_help(tmp_path: Path, helps: bool) -> None:
    made = inputs()
    worse = replace(made.corrected, values=made.clean.values if helps else -made.clean.values)
    text = build_report(tmp_path / "a.html", **{**everything(), "corrected": worse}).read_text(encoding="utf-8")
    card = "rank agreement, corrected" if helps else "rank agreement on one noisy set"
    assert (f"<span>{card}</span>") in text
    assert text.count("<span>rank agreement") == 1
    assert "at noise 2, mean of 3 draws" in text


def test_notes_on_the_data_stand_with_the_methods(tmp_path: Path) -> None:
    text = build_report(tmp_path / "a.html", valuation=inputs().clean, notes=["Two columns were left out."]).read_text(
        encoding="utf-8"
    )
    assert text.index("Two columns were left out.") > text.index('id="methods"')


def test_different_owners_never_look_alike(tmp_path: Path) -> None:
    made = inputs()
    prefix, rest = "The University Hospital of the Free and Hanseatic City of Somewhere, Department of " * 2, "x" * 100
    names = [
        f"{prefix}A",
        f"{prefix}B",
        f"{prefix}C{rest}",
        f"{prefix}D{rest}",
        "A\u200b",
        "A",
        "A\u200d",
        1,
        "1",
        "a  b",
    ]
    names += ["a b", "a b (#11)"]
    shown = distinct(names)
    assert len(set(shown)) == len(names)
    assert all(len(name) < 100 for name in shown)
    assert shown[0].endswith("Department of A")
    owners = np.array(names[:4], dtype=object)[np.arange(made.clean.n_train) % 4]
    path = build_report(
        tmp_path / "a.html", valuation=made.clean, allocation=allocate_budget(made.clean, 9, owners=owners)
    )
    page = read(path)
    assert len(set(page.charts["payouts"]["names"])) == 4
    head, rows = table_rows(path)
    assert {cells[head.index("owner")] for _, cells in rows} == set(page.charts["payouts"]["names"])
    assert all(name in page.text for name in shown[:2])


def test_direction_marks_are_shown(tmp_path: Path) -> None:
    made = inputs()
    turned = "abc\u202edef\u2066\u200f\u061c"
    owners = np.array([turned, "plain"], dtype=object)[np.arange(made.clean.n_train) % 2]
    path = build_report(
        tmp_path / "a.html",
        valuation=made.clean,
        allocation=allocate_budget(made.clean, 9, owners=owners, currency=turned),
        X_train=pd.DataFrame(made.X[:, :2], columns=[f"{turned}1", f"{turned}2"]),
        title=turned + "\ud800",
        notes=[turned],
        date=turned,
        parameters={turned: turned},
    )
    page = read(path)
    marks = set("\u202e\u2066\u200f\u061c\ud800")
    assert not marks & set(page.text)
    assert not marks & set(json.dumps(page.charts, ensure_ascii=False))
    assert "abc\\u202edef\\u2066\\u200f\\u061c" in page.charts["payouts"]["names"]
    assert "abc\\u202edef" in page.charts["map-value"]["axes"][0]
    # Joiners belong to the spelling of some languages.
    assert cell("\u0645\u06cc\u200c\u062e") == "\u0645\u06cc\u200c\u062e"


def test_rows_are_written_for_people(tmp_path: Path) -> None:
    made = inputs()
    table = pd.DataFrame({"income": np.full(made.clean.n_train, 70_760.0), "year": 2019, "rate": 0.0123456})
    values = made.clean.values.copy()
    order = np.argsort(-values, kind="stable")
    values[order[-2:]] = values[order[-2]]
    values[order[:3]] = [values[order[0]], 1e-12, 0.0]
    head, rows = table_rows(
        build_report(tmp_path / "a.html", valuation=replace(made.clean, values=values), X_train=table)
    )
    assert rows[0][1][-3:] == ["70,760", "2019", "0.01235"]
    place = next(i for i, name in enumerate(head) if name.startswith("value"))
    shown = [cells[place] for _, cells in rows]
    assert not {"0.000", "-0.000"} & set(shown)
    assert "0" in shown


def test_numbers_are_written_for_people() -> None:
    assert number(-1234567.0) == f"{MINUS}1,230,000"
    assert number(1.5e-7) == "1.5\N{MULTIPLICATION SIGN}10⁻⁷"
    assert number(float("nan")) == "\N{EN DASH}"
    assert number(999.96) == "1,000"
    assert count(1234.6) == "1,235"
    assert percent(0.999999) == "99.9%"
    assert percent(0.0) == "0%"
    assert percent(-0.25) == f"{MINUS}25%"
    assert change(float("inf")) == "cannot be compared"
    assert money(inputs().allocation, -5) == f"{MINUS}0.05 EUR"
    unit = unit_for(np.array([2e-4, -3e-4]))
    assert unit.show(-0.000231) == f"{MINUS}2.31\N{MULTIPLICATION SIGN}10⁻⁴"
    assert unit.show(0.0) == "0"
    assert cell("a\n  b" + "x" * 100 + "z") == "a b" + "x" * 36 + "…" + "x" * 39 + "z"
    assert figure(float("inf")) == "∞"
    assert figure(-123456.78) == "-123,456.8"
    assert figure(2.5e20) == "2.5e+20"
    assert cell(float("nan")) == cell(None) == ""


# The edge


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"valuation": None}, TypeError, "'valuation' parameter of build_report must be a Valuation. Got NoneType"),
        ({"audit": "x"}, TypeError, "'audit' parameter of build_report must be a ShiftAudit or None"),
        ({"allocation": 3}, TypeError, "'allocation' parameter of build_report must be an Allocation or None"),
        ({"X_train": [[1.0, 2.0]]}, ValueError, "'X_train' must have the 379 rows of the valuation.*Got 1 rows"),
        ({"X_train": [1.0, 2.0]}, ValueError, "'X_train' must be a table"),
        ({"X_val": [[1.0, 2.0]]}, ValueError, "'X_val' must have the 190 rows of the validation set"),
        ({"feature_names": ["a"]}, ValueError, "'feature_names' must name the 8 columns of 'X_train'. Got 1 names"),
        ({"y_train": [1, 2]}, ValueError, "'y_train' must have one label for each of the 379 rows"),
        ({"owners": [1, 2]}, ValueError, "'owners'"),
        ({"title": 3}, TypeError, "'title' parameter of build_report must be a string"),
        ({"notes": "one"}, TypeError, "'notes' parameter of build_report must be a list of strings"),
        ({"parameters": [1]}, TypeError, "'parameters' parameter of build_report must be a mapping"),
        ({"table_rows": 0}, ValueError, "table_rows"),
    ],
)
def test_bad_input_is_named(tmp_path: Path, changes: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        build_report(tmp_path / "a.html", **{**everything(), **changes})
    assert not list(tmp_path.iterdir())


def test_results_about_other_rows_are_refused(tmp_path: Path) -> None:
    other = replace(inputs().clean, fingerprint="another")
    with pytest.raises(ValueError, match=r"'noisy' parameter.*other training rows"):
        build_report(tmp_path / "a.html", valuation=inputs().clean, noisy=other)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="does not exist"):
        build_report(tmp_path / "no" / "a.html", valuation=inputs().clean)


# Notebooks


def test_notebook_reprs() -> None:
    made = inputs()
    root = ElementTree.fromstring(show(made.clean))
    text = "".join(root.itertext())
    positive = np.count_nonzero(made.clean.values > 0)
    assert f"{positive} ({positive / made.clean.n_train:.0%})" in text
    bars = [float(bar.get("height", "0")) for bar in root.iter("rect")]
    assert max(bars) == 48
    assert f"would agree with these values at a correlation of {made.clean.reliability:.2f}" in text
    assert f"{made.clean.open} open (95% each)" in text
    one = "".join(ElementTree.fromstring(show(made.model.value(made.X_val[:1], made.y_val[:1]))).itertext())
    assert "it takes at least two validation points" in one
    assert "nan" not in one.split()
    assert "BoundaryCorrector" in show(made.corrected)
    root = ElementTree.fromstring(show(made.audit))
    assert len(list(root.iter("tr"))) == 3 + len(made.audit.levels)
    assert len(list(root.iter("circle"))) == len(made.audit.levels)
    assert made.audit.finding in "".join(root.itertext())
