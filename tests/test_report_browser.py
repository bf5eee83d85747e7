"""The report in a real browser, from disk: it draws, it answers, and it keeps to itself.

Needs playwright and a Chromium, for instance Debian's (``apt install chromium``); SHAPSHIFT_CHROMIUM names another.
Set SHAPSHIFT_SCREENSHOTS to a folder to look at the pages.
"""

from __future__ import annotations

import os
import re
import shutil
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer

from shapshift import KNNShapley
from shapshift.audit import audit_shift
from shapshift.correct import BoundaryCorrector
from shapshift.perturb import FlipLabels, GaussianNoise, Subsample
from shapshift.price import allocate_budget, audit_payouts
from shapshift.report import build_report

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

CHROMIUM = os.environ.get("SHAPSHIFT_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here (on Debian: apt install chromium)")

# Without the networking flags Chromium looks for updates and the like, which says nothing about the page.
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
HOSTILE = "</script><script>window.hit=1</script><img src=x onerror=window.hit=1>"
OWNERS = ("North clinic", "South clinic", "St. Mary's", "Lab 7", HOSTILE)
# Coloured pixels that a chart has at least; axes and labels are grey.
INK = 300


@cache
def real_inputs() -> dict[str, Any]:
    """Breast cancer data with a tenth of the labels flipped, as the demo has it, and hostile names."""
    data = load_breast_cancer(as_frame=True)
    rng = np.random.default_rng(0)
    table = data.data.rename(columns={"mean radius": HOSTILE})
    label = data.target.where(rng.random(len(table)) > 0.1, 1 - data.target).map({0: "malignant", 1: "benign"})
    train = rng.random(len(table)) < 0.7
    scaled = (table - table[train].mean()) / table[train].std()
    model = KNNShapley(progress=False).fit(scaled[train], label[train])
    X_val, y_val = scaled[~train], label[~train]
    clean = model.value(X_val, y_val)
    noisy = model.value(*GaussianNoise(1.0, random_state=0)(X_val, y_val))
    corrected = BoundaryCorrector().fit(clean).transform(noisy)
    owners = np.array(OWNERS, dtype=object)[rng.integers(0, len(OWNERS), train.sum())]
    bounds = audit_payouts(
        model, X_val, y_val, budget=10_000, owners=owners, noise=[0.1, 0.5], repeats=5, progress=False
    )
    return {
        "valuation": clean,
        "audit": audit_shift(model, X_val, y_val, noise=[0.1, 0.2, 0.5, 1.0, 2.0], repeats=5, progress=False),
        "noisy": noisy,
        "corrected": corrected,
        "allocation": allocate_budget(clean, 10_000, owners=owners, corrected=corrected, audit=bounds),
        "payout_audit": bounds,
        "X_train": table[train],
        "y_train": label[train],
        "X_val": table[~train],
        "title": "Breast cancer: what the training rows are worth",
        "notes": ["A tenth of the labels were flipped on purpose."],
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("report")


@pytest.fixture(scope="module")
def report(folder: Path) -> Path:
    return build_report(folder / "report.html", **real_inputs())


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield started
        started.close()


@contextmanager
def opened(browser: Any, path: Path, *, width: int = 1200, height: int = 900, scheme: str = "light") -> Iterator[Any]:
    """Open a page; at the end its console must be clean and no request may have left it."""
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
    page = context.new_page()
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(f"console {message.type}: {message.text}"))
    page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
    page.on("dialog", lambda dialog: complaints.append(f"dialog: {dialog.message}"))
    page.on("request", lambda request: None if request.url == path.as_uri() else complaints.append(request.url))
    page.goto(path.as_uri())
    page.wait_for_selector("html[data-drawn]", state="attached")
    yield page
    assert complaints == []
    context.close()


def screenshot(page: Any, name: str) -> None:
    target = os.environ.get("SHAPSHIFT_SCREENSHOTS")
    if target:
        Path(target).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=Path(target) / f"{name}.png", full_page=True)


def ink(page: Any) -> dict[str, int]:
    """How many coloured pixels each chart has: neither background nor grey, as axes and labels are."""
    return page.evaluate(
        """() => Object.fromEntries([...document.querySelectorAll("[data-chart]")].map((plot) => {
            const canvas = plot.querySelector("canvas");
            if (!canvas || !canvas.width) return [plot.dataset.chart, 0];
            const copy = document.createElement("canvas");
            [copy.width, copy.height] = [canvas.width, canvas.height];
            const context = copy.getContext("2d", { willReadFrequently: true });
            context.drawImage(canvas, 0, 0);
            const pixels = context.getImageData(0, 0, copy.width, copy.height).data;
            let n = 0;
            for (let i = 0; i < pixels.length; i += 4) {
                const [r, g, b, a] = [pixels[i], pixels[i + 1], pixels[i + 2], pixels[i + 3]];
                n += a > 30 && Math.max(r, g, b) - Math.min(r, g, b) > 40;
            }
            return [plot.dataset.chart, n];
        }))"""
    )


def test_every_chart_draws(browser: Any, report: Path) -> None:
    with opened(browser, report) as page:
        found = ink(page)
        assert len(found) == 19
        assert {name: n for name, n in found.items() if n < INK} == {}
        screenshot(page, "light")


def test_the_policy_holds(browser: Any, report: Path, folder: Path) -> None:
    # The same page with a script that does not belong: the browser must refuse to run it.
    bad = folder / "bad.html"
    text = report.read_text(encoding="utf-8")
    bad.write_text(text.replace("</body>", "<script>window.hit=1</script></body>"), encoding="utf-8")
    context = browser.new_context()
    page = context.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.goto(bad.as_uri())
    assert page.evaluate("window.hit") is None
    assert any("Content Security Policy" in line for line in said)
    context.close()


def test_dark(browser: Any, report: Path) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    with opened(browser, report, scheme="dark") as page:
        dark = page.evaluate(background)
        assert dark == "rgb(20, 23, 26)"
        assert min(ink(page).values()) >= INK
        screenshot(page, "dark")
        button = page.get_by_role("button", name="Switch to the light theme")
        button.click()
        assert page.evaluate(background) == "rgb(246, 246, 243)"
        assert min(ink(page).values()) >= INK
        page.get_by_role("button", name="Switch to the dark theme").click()
        assert page.evaluate(background) == dark
    with opened(browser, report) as page:
        assert page.evaluate(background) == "rgb(246, 246, 243)"


@pytest.mark.parametrize("width", [360, 768])
def test_narrow_screens_need_no_sideways_scrolling(browser: Any, report: Path, width: int) -> None:
    with opened(browser, report, width=width, height=740) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        # Opened tables scroll in their own frame.
        page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = false; })")
        page.wait_for_timeout(200)
        assert min(ink(page).values()) >= INK / 3
        screenshot(page, f"width-{width}")


def test_charts_follow_the_window(browser: Any, report: Path) -> None:
    with opened(browser, report) as page:
        page.set_viewport_size({"width": 500, "height": 800})
        fits = "(plot) => plot.querySelector('canvas').offsetWidth <= plot.clientWidth"
        page.wait_for_function(f"[...document.querySelectorAll('.plot')].every({fits})")
        assert page.evaluate("document.documentElement.scrollWidth") <= 500


def column(page: Any, heading: str) -> list[str]:
    return page.evaluate(
        """(heading) => {
            const table = document.getElementById("row-table");
            const at = [...table.tHead.rows[0].cells].findIndex((cell) => cell.textContent.startsWith(heading));
            return [...table.tBodies[0].rows].filter((row) => !row.hidden).map((row) => row.cells[at].textContent);
        }""",
        heading,
    )


def test_table_sorts_and_filters(browser: Any, report: Path) -> None:
    values = real_inputs()["valuation"].values
    with opened(browser, report) as page:
        ranks = [int(x) for x in column(page, "rank")]
        assert ranks == sorted(ranks)
        heading = page.locator("#row-table th", has_text="value (")
        heading.get_by_role("button").click()
        found = [float(x) for x in column(page, "value (")]
        assert heading.get_attribute("aria-sort") == "ascending"
        assert found == sorted(found)
        assert len(found) == min(400, values.size)
        # By keyboard, and the other way round.
        heading.get_by_role("button").focus()
        page.keyboard.press("Enter")
        assert [float(x) for x in column(page, "value (")] == sorted(found, reverse=True)
        page.locator("#row-table th", has_text="label").get_by_role("button").click()
        labels = column(page, "label")
        assert labels == sorted(labels)

        page.get_by_label("Search").fill("MALIG lab")
        assert set(column(page, "label")) == {"malignant"}
        assert set(column(page, "owner")) == {"Lab 7"}
        shown = len(column(page, "rank"))
        assert 0 < shown < len(found)
        assert page.locator("#shown").text_content() == f"{shown} of {len(found)} rows"
        page.get_by_label("Search").fill("nowhere to be found")
        assert column(page, "rank") == []
        page.get_by_label("Search").fill("")
        page.locator("#end").select_option("least")
        least = [float(x) for x in column(page, "value (")]
        assert len(least) == len(found) // 2
        assert max(least) <= sorted(found)[len(found) // 2]


def test_a_row_opens_its_explanation(browser: Any, folder: Path) -> None:
    rng = np.random.default_rng(0)
    X, hostile = rng.normal(size=(60, 2)), f"b{HOSTILE}"
    y = np.where(X[:, 0] + 0.5 * rng.normal(size=60) > 0, hostile, "a")
    model = KNNShapley(progress=False).fit(X[:40], y[:40])
    valuation = model.value(X[40:], y[40:])
    lowest, highest = np.argsort(valuation.values)[[0, -1]].tolist()
    explanation = model.explain(X[40:], y[40:], [lowest, highest])
    path = build_report(folder / "why.html", valuation=valuation, y_train=y[:40], explanation=explanation)
    for width in (1200, 360):
        with opened(browser, path, width=width) as page:
            buttons = page.locator("#row-table tbody button")
            assert buttons.count() == 2
            buttons.last.focus()
            page.keyboard.press("Enter")
            why = page.locator("#row-table tr.why")
            assert buttons.last.get_attribute("aria-expanded") == "true"
            assert explanation.sentences[0] in why.text_content()
            assert why.locator("table").count() == 2
            assert why.locator("table").first.locator("tbody tr").count() == (explanation.points["row"] == 0).sum()
            assert page.evaluate("window.hit") is None
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            why.scroll_into_view_if_needed()
            screenshot(page, f"why-{width}")
            # It stays with its row when the table is put in another order, and goes where the row goes.
            page.locator("#row-table th", has_text="value").first.get_by_role("button").click()
            after = "[...document.querySelectorAll('tr[data-why]')].map((row) => row.nextElementSibling?.className)"
            assert page.evaluate(after)[0] == "why"
            page.locator("#end").select_option("most")
            assert why.is_hidden()
            page.locator("#end").select_option("")
            # A click anywhere in the row closes it, and another opens it.
            row = page.locator(f"#row-table tr[data-why='{lowest}']")
            row.locator("td").last.click()
            assert why.count() == 0
            row.locator("td").last.click()
            assert why.count() == 1


def picture(page: Any, chart: str) -> str:
    return page.evaluate(f"document.querySelector('[data-chart={chart}] canvas').toDataURL()")


def test_legends_switch_series_by_keyboard(browser: Any, report: Path) -> None:
    with opened(browser, report) as page:
        before = picture(page, "distribution")
        button = page.locator("#chart-distribution .legend button", has_text="corrected")
        button.focus()
        page.keyboard.press("Space")
        assert button.get_attribute("aria-pressed") == "false"
        page.wait_for_function(f"document.querySelector('[data-chart=distribution] canvas').toDataURL() !== '{before}'")
        hidden = picture(page, "distribution")
        page.get_by_role("button", name="Switch to the dark theme").click()
        page.get_by_role("button", name="Switch to the light theme").click()
        page.wait_for_timeout(100)
        assert picture(page, "distribution") == hidden
        button.click()
        page.mouse.move(0, 0)
        page.wait_for_timeout(100)
        assert picture(page, "distribution") == before


def test_keyboard_reaches_everything(browser: Any, report: Path) -> None:
    with opened(browser, report) as page:
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the verdict"
        assert page.evaluate("document.activeElement.getBoundingClientRect().top") >= 0
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "main"
        met = set()
        for _ in range(120):
            page.keyboard.press("Tab")
            name = page.evaluate("document.activeElement.id || document.activeElement.tagName")
            if name == "BODY":  # past the end
                break
            met.add(name)
            assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none", name
        assert {"search", "end", "SUMMARY", "BUTTON"} <= met


def test_tooltips_show_names_as_text(browser: Any, report: Path) -> None:
    with opened(browser, report) as page:
        plot = page.locator("[data-chart=payouts]")
        plot.scroll_into_view_if_needed()
        box = plot.bounding_box()
        names = []
        for step in range(12):
            page.mouse.move(box["x"] + 0.4 * box["width"], box["y"] + box["height"] * (step + 0.5) / 12)
            names += page.locator("[data-chart=payouts] .tip strong").all_text_contents()
        assert {"North clinic", "Lab 7"} <= set(names)
        assert any(name.startswith("</script><script>") for name in names)
        page.locator("[data-chart=distribution]").scroll_into_view_if_needed()
        page.locator("[data-chart=distribution]").hover()
        assert "rows" in page.locator("[data-chart=distribution] .tip").text_content()
        assert page.evaluate("window.hit") is None
        assert page.locator("main img").count() == 0
        assert page.locator("script").count() == 3


def test_hostile_strings_stay_text(browser: Any, report: Path) -> None:
    with opened(browser, report) as page:
        assert page.evaluate("window.hit") is None
        assert HOSTILE in page.locator("#row-table thead").text_content()
        assert page.locator("#row-table td", has_text="</script>").count() > 10
        page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        assert page.locator("#chart-payouts details th", has_text="</script>").count() == 1


def test_perturbations_by_name_draw(browser: Any, folder: Path) -> None:
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(300, 2)), columns=["height", "width"])
    y = (X["height"] * X["width"] > 0).to_numpy()
    model = KNNShapley(progress=False).fit(X[:200], y[:200])
    levels = [GaussianNoise(0.3), GaussianNoise(1.0) | FlipLabels(0.1), FlipLabels(0.2), Subsample(fraction=0.5)]
    audit = audit_shift(model, X[200:], y[200:], perturbations=levels, repeats=4, progress=False)
    path = build_report(
        folder / "named.html",
        valuation=model.value(X[200:], y[200:]),
        audit=audit,
        X_train=X[:200],
        X_val=X[200:],
        title="Two features, four perturbations",
    )
    for width in (1200, 360):
        with opened(browser, path, width=width) as page:
            # Whiskers and points cover less than curves and bands.
            assert min(ink(page).values()) >= 50
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            screenshot(page, f"named-{width}")


# Row (or column) of a chart in which most pixels have the colour of the dashed line, and where a value belongs.
LINE = """([id, across, value]) => {
    const plot = document.querySelector(`[data-chart="${id}"]`);
    const canvas = plot.querySelector("canvas");
    const copy = document.createElement("canvas");
    [copy.width, copy.height] = [canvas.width, canvas.height];
    const context = copy.getContext("2d", { willReadFrequently: true });
    context.drawImage(canvas, 0, 0);
    const { data } = context.getImageData(0, 0, copy.width, copy.height);
    const hex = getComputedStyle(document.documentElement).getPropertyValue("--clean").trim();
    const colour = [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
    const found = new Array(across ? copy.width : copy.height).fill(0);
    for (let y = 0; y < copy.height; y += 1) for (let x = 0; x < copy.width; x += 1) {
        const at = 4 * (y * copy.width + x);
        if (data[at + 3] > 100 && colour.every((c, i) => Math.abs(c - data[at + i]) < 40)) found[across ? x : y] += 1;
    }
    const { chart } = plot;
    const most = Math.max(...found);
    return {
        at: found.indexOf(most),
        share: most / (across ? copy.height : copy.width),
        belongs: chart.convertToPixel(across ? { xAxisIndex: 0 } : { yAxisIndex: 0 }, value),
    };
}"""


@pytest.mark.parametrize("named", [False, True])
def test_the_clean_line_stands_at_small_values(browser: Any, folder: Path, named: bool) -> None:
    given = real_inputs()
    audit = given["audit"]
    if named:
        audit = replace(audit, axis="perturbation", levels=tuple(f"change {i}" for i in range(len(audit.levels))))
        assert not audit.ordered
    # Much larger values on the page make its unit 1, in which what the audit found are numbers far below 0.01.
    large = replace(given["valuation"], values=given["valuation"].values * 1e3)
    path = build_report(folder / f"small-{named}.html", valuation=large, audit=audit)
    with opened(browser, path) as page:
        for chart in ("std", "mean"):
            clean = audit.clean[chart]
            assert 0 < clean < 0.005
            line = page.evaluate(LINE, [chart, named, clean])
            assert line["share"] > 0.2
            assert abs(line["at"] - line["belongs"]) <= 1.5


def labels(page: Any, chart: str, axis: str) -> list[str]:
    return page.evaluate(
        """([id, name]) => document.querySelector(`[data-chart="${id}"]`).chart
            .getModel().getComponent(name).axis.getViewLabels().map((label) => label.formattedLabel)""",
        [chart, axis],
    )


def test_few_rows_and_little_money(browser: Any, folder: Path) -> None:
    X = np.array([[9_500.0, 1.0], [70_760.0, 2.0], [100_000.0, 3.0], [12.5, 4.0], [1_000_000.0, 5.0], [0.0, 6.0]])
    scaled = (X - X.mean(axis=0)) / X.std(axis=0)
    model = KNNShapley(n_neighbors=2, progress=False).fit(scaled, [0, 0, 1, 0, 1, 1])
    validation = scaled + 0.1, [0, 0, 1, 0, 1, 0]
    clean = model.value(*validation)
    prefix = "The University Hospital of the Free and Hanseatic City, Department of "
    owners = [f"{prefix}{name}" for name in ("Surgery", "Surgery", "Medicine", "Medicine", "Law", f"Law {'x' * 90} A")]
    owners[4] = f"{prefix}Law {'x' * 90} B"
    path = build_report(
        folder / "few.html",
        valuation=clean,
        audit=audit_shift(model, *validation, noise=[0.1, 0.5], repeats=3, progress=False),
        allocation=allocate_budget(clean, 2, owners=owners),
        X_train=pd.DataFrame(X, columns=["income", "size"]),
    )
    for width in (1200, 360):
        with opened(browser, path, width=width) as page:
            assert labels(page, "spearman", "yAxis")[-1] == "1"
            assert "120%" not in labels(page, "flips", "yAxis")
            for chart, axis in (
                ("distribution", "yAxis"),
                ("positive", "yAxis"),
                ("payouts", "xAxis"),
                ("std", "yAxis"),
            ):
                found = labels(page, chart, axis)
                assert len(found) > 1
                assert len(set(found)) == len(found), chart
            names = labels(page, "payouts", "yAxis")
            assert len(set(names)) == len(names) == 4
            assert any(name.endswith("ery") for name in names)
            page.locator("#row-table th", has_text="income").get_by_role("button").click()
            assert column(page, "income") == ["0", "12.5", "9500", "70,760", "100,000", "1,000,000"]
            screenshot(page, f"few-{width}")


def test_a_large_report_opens_fast(browser: Any, folder: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100_000, 20))
    y = X[:, 0] + 0.5 * X[:, 1] ** 2 + 0.5 * rng.normal(size=len(X)) > 0.3
    model = KNNShapley(progress=False).fit(X, y)
    X_val, y_val = X[:40] + 0.3 * rng.normal(size=(40, 20)), y[:40]
    clean = model.value(X_val, y_val)
    noisy = model.value(*GaussianNoise(0.5, random_state=0)(X_val, y_val))
    corrected = BoundaryCorrector().fit(clean).transform(noisy)
    owners = np.array([f"seller {i}" for i in range(1500)])[rng.integers(0, 1500, len(X))]
    path = build_report(
        folder / "large.html",
        valuation=clean,
        audit=audit_shift(model, X_val, y_val, noise=[0.1, 1.0], repeats=2, progress=False),
        noisy=noisy,
        corrected=corrected,
        allocation=allocate_budget(clean, 250_000, owners=owners, corrected=corrected),
        X_train=X,
        y_train=y,
        X_val=X_val,
    )
    assert path.stat().st_size < 6_000_000
    times = []
    for _ in range(3):  # other work on the machine may slow down one of them
        with opened(browser, path) as page:
            times.append([int(page.locator("html").get_attribute(name)) for name in ("data-ready", "data-drawn")])
            if len(times) == 1:
                screenshot(page, "large")
        if max(times[-1]) < 2000:
            break
    ready, drawn = np.min(times, axis=0)
    print(f"\n{path.stat().st_size / 1e6:.2f} MB, answers after {ready} ms, all charts after {drawn} ms")
    assert ready < 2000
    assert drawn < 4000


def test_names_of_object_members_are_names(browser: Any, folder: Path) -> None:
    """Owners, ids, labels, columns and texts that are members of every JavaScript object."""
    names = ["__proto__", "constructor", "toString", "hasOwnProperty", "valueOf"]
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(60, 5)), columns=names)
    X_val = pd.DataFrame(rng.normal(size=(30, 5)), columns=names)
    y, y_val = (np.array(names[:3])[rng.integers(0, 3, size)] for size in (60, 30))
    model = KNNShapley(progress=False).fit(X, y, ids=names + [f"r{i}" for i in range(55)])
    clean = model.value(X_val, y_val)
    owners = np.array(names)[rng.integers(0, 5, 60)]
    inputs = {
        "valuation": clean,
        "audit": audit_shift(model, X_val, y_val, perturbations=[FlipLabels(0.3)], repeats=2, progress=False),
        "allocation": allocate_budget(clean, 100, owners=owners),
        "y_train": y,
    }
    for number, columns in enumerate((names, names[:2])):  # two columns are the axes of the map
        path = build_report(folder / f"names{number}.html", **inputs, X_train=X[columns], X_val=X_val[columns])
        with opened(browser, path) as page:
            assert page.evaluate("Object.keys(Object.prototype)") == []
            shown = page.evaluate("document.querySelector('[data-chart=\"payouts\"]').chart.getOption().yAxis[0].data")
            assert sorted(shown) == sorted(names)
            assert page.locator("#row-table tbody tr").count() == 60
            page.locator("#search").fill("__proto__")
            assert 0 < page.locator("#row-table tbody tr:visible").count() < 60
            assert all(n > 0 for n in ink(page).values())


def test_nothing_overprints_on_paper(browser: Any, report: Path) -> None:
    with opened(browser, report) as page:
        page.emulate_media(media="print")
        page.set_viewport_size({"width": 700, "height": 1000})  # A4 without margins; charts were drawn at 1200
        found = page.evaluate(
            """() => {
                const box = (element) => element.getBoundingClientRect();
                const all = (names) => [...document.querySelectorAll(names)].filter((one) => box(one).height);
                const sections = all("main > *, footer");
                const outside = (inner, outer) => inner.right > outer.right + 1 || inner.bottom > outer.bottom + 1;
                return {
                    wide: all("main > *, .card, #row-table").filter((one) => box(one).right > 701).length,
                    canvases: all("canvas").filter((one) => outside(box(one), box(one.closest(".card")))).length,
                    table: outside(box(document.getElementById("row-table")), box(document.getElementById("rows"))),
                    over: sections.slice(1).filter((one, i) => box(one).top < box(sections[i]).bottom - 1).length,
                };
            }"""
        )
        screenshot(page, "print")
        assert found == {"wide": 0, "canvases": 0, "table": False, "over": 0}


def test_paper_keeps_the_colours_of_legends_and_the_header_of_the_row_table(browser: Any, report: Path) -> None:
    """Each part gets a colour of its own, which is then looked for on the pages of a PDF."""
    parts = {"#row-table th": "1 0 0 rg", "#row-table td": "0 0 1 rg", ".legend i": "0 1 0 rg"}
    with opened(browser, report) as page:
        for part, colour in parts.items():
            red, green, blue = (255 * int(level) for level in colour.split()[:3])
            kind = "background" if part == ".legend i" else "color"
            page.evaluate(
                "([part, kind, colour]) => document.querySelectorAll(part).forEach("
                "(one) => one.style.setProperty(kind, colour, 'important'))",
                [part, kind, f"rgb({red}, {green}, {blue})"],
            )
        made = page.pdf(format="A4", print_background=False)  # as dialogs have it
    pages = []
    for packed in re.findall(rb"stream\r?\n(.*?)endstream", made, re.DOTALL):
        with suppress(zlib.error):
            pages.append(zlib.decompressobj().decompress(packed))
    head, rows, legend = ([colour.encode() in one for one in pages] for colour in parts.values())
    assert sum(legend) >= 1
    assert sum(rows) >= 3
    assert head == rows
