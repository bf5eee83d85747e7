"""The app in a real browser: every control, keyboard only, narrow, dark, and nothing that leaves the machine.

Needs playwright and a Chromium, as ``test_report_browser.py`` does. Set SHAPSHIFT_SCREENSHOTS to a folder to look at
the pages.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("starlette", reason="starlette is not installed: pip install 'shapshift[app]'")
pytest.importorskip("uvicorn", reason="uvicorn is not installed: pip install 'shapshift[app]'")
sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

from app_server import HOSTILE, Running, make_source  # noqa: E402
from test_report_browser import CHROMIUM, FLAGS  # noqa: E402

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here (on Debian: apt install chromium)")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield started
        started.close()


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    made = Running(make_source(), tmp_path / "decisions.csv")
    yield made
    made.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """For tests that decide nothing, or undo what they decide."""
    made = Running(make_source(), tmp_path_factory.mktemp("app") / "decisions.csv")
    made.browser().settled()
    yield made
    made.close()


@contextmanager
def opened(
    browser: Any, running: Running, *, width: int = 1280, height: int = 800, scheme: str = "light", touch: bool = False
) -> Iterator[Any]:
    """Open a page; at the end its console must be clean and no request may have left the machine."""
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=scheme, has_touch=touch, reduced_motion="reduce"
    )
    page = context.new_page()
    complaints: list[str] = []
    own = f"http://127.0.0.1:{running.server.port}/"
    page.on("console", lambda message: complaints.append(f"console {message.type}: {message.text}"))
    page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
    page.on("dialog", lambda dialog: complaints.append(f"dialog: {dialog.message}"))
    page.on("request", lambda request: None if request.url.startswith(own) else complaints.append(request.url))
    page.goto(running.server.guard.link())
    if running.study is not None:
        page.wait_for_selector("html[data-drawn]", state="attached")
        page.wait_for_selector("#grid .r:not(.pending)")
        until(page, "!document.querySelector('#work > div')")
    yield page
    assert page.evaluate("window.hit") is None
    assert complaints == []
    context.close()


def until(page: Any, expression: str) -> None:
    """Wait until something holds: the page's policy forbids what playwright's own way needs."""
    for _ in range(400):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(25)
    raise AssertionError(expression)


def screenshot(page: Any, name: str) -> None:
    target = os.environ.get("SHAPSHIFT_SCREENSHOTS")
    if target:
        Path(target).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=Path(target) / f"app-{name}.png")


def total(page: Any) -> int:
    """Number of rows in the table, once it stands still."""
    page.wait_for_timeout(150)
    page.wait_for_selector("#grid:not([aria-busy])")
    return int(page.get_attribute("#grid", "aria-rowcount")) - 1


def chosen(page: Any) -> int:
    found = re.match(r"(\d+) selected", page.inner_text("#chosen"))
    return int(found[1]) if found else 0


def order(page: Any) -> list[str]:
    page.wait_for_selector("#grid .r:not(.pending)")
    until(page, "!document.querySelector('#grid .r.pending')")
    rows = page.evaluate(
        "[...document.querySelectorAll('#grid .r')].sort((a, b) => a.ariaRowIndex - b.ariaRowIndex)"
        ".map((r) => r.querySelector('.id').textContent)"
    )
    return list(rows)


def decided(running: Running) -> dict[str, list[int]]:
    assert running.study is not None
    actions = [running.study.decision(row)["action"] for row in range(running.study.rows.n)]
    return {name: [k for k, one in enumerate(actions) if one == name] for name in ("keep", "drop", "relabel", "weight")}


def test_every_filter_and_order(browser: Any, shared: Running) -> None:
    assert shared.study is not None
    numbers = shared.study.rows.numbers
    with opened(browser, shared) as page:
        screenshot(page, "look")
        assert total(page) == 160
        for control, option, expected in (
            ("#f-sign", "positive", (numbers["low"] > 0).sum()),
            ("#f-suspicion", "0.5", (numbers["suspicion"] >= 0.5).sum()),
            ("#f-decision", "drop", 0),
        ):
            page.select_option(control, option)
            assert total(page) == expected
            page.select_option(control, "")
            assert total(page) == 160
        page.select_option("#f-decision", "drop")
        page.get_by_text("No row passes these filters").wait_for()
        page.get_by_role("button", name="Clear").click()
        assert total(page) == 160
        page.select_option("#f-labels", "0")
        assert total(page) == (shared.study.rows.classes.codes == 0).sum()  # type: ignore[union-attr]
        page.select_option("#f-owners", "1")
        both = (shared.study.rows.classes.codes == 0) & (shared.study.rows.owners.codes == 1)  # type: ignore[union-attr]
        assert total(page) == both.sum()
        page.get_by_role("button", name="Clear").click()
        page.fill("#f-text", "note number 13")
        assert total(page) == sum("13" in f"{i} p{i:03d}" for i in range(160) if i % 5)
        page.fill("#f-text", "")
        page.check("#f-copies")
        assert total(page) == 2
        page.uncheck("#f-copies")
        page.fill("#f-low", "1")
        scale = 1000 if "10⁻³" in page.inner_text("#in-units") else 100
        assert total(page) == (numbers["value"] >= 1 / scale).sum()
        page.fill("#f-low", "")
        page.fill("#f-high", "0")
        assert total(page) == (numbers["value"] <= 0).sum()
        page.fill("#f-high", "")
        assert total(page) == 160
        least = [str(shared.study.ids[k]) for k in np.argsort(numbers["value"], kind="stable")[:5]]
        assert [text[:4] for text in order(page)[:5]] == [text[:4] for text in least]
        page.get_by_role("columnheader", name="Value").get_by_role("button").click()
        page.wait_for_selector("[role=columnheader][aria-sort=descending]")
        assert total(page) == 160
        most = [str(shared.study.ids[k])[:4] for k in np.argsort(numbers["value"], kind="stable")[::-1][:5]]
        assert [text[:4] for text in order(page)[:5]] == most
        for name in ("Row", "Class", "Owner", "Interval", "Suspect", "Decision", "Copies", "After", "size", "note"):
            page.locator("#heads").get_by_role("button", name=name, exact=True).click()
            assert total(page) == 160


def test_a_selection_in_one_is_a_selection_in_all(browser: Any, shared: Running) -> None:
    with opened(browser, shared) as page:
        page.locator("#grid .r .tick input").first.click()
        assert chosen(page) == 1
        page.locator("#grid .r .tick input").nth(4).click(modifiers=["Shift"])
        assert chosen(page) == 5
        until(page, "document.querySelectorAll('#grid .r[aria-selected=true]').length === 5")
        page.check("#f-selected")
        assert total(page) == 5
        page.uncheck("#f-selected")
        page.get_by_role("button", name="Deselect").click()
        assert chosen(page) == 0
        # The map: a rectangle over its left half, as a loop over rows has it.
        box = page.locator("#map").bounding_box()
        page.mouse.move(box["x"] + 2, box["y"] + 2)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] - 2, steps=4)
        page.mouse.up()
        half = chosen(page)
        assert 20 < half < 140
        until(page, "document.querySelector('#grid .r[aria-selected=true]')")
        screenshot(page, "selected")
        until(page, "document.querySelector('#spread .strip > .n').textContent.includes(' of ')")
        counts = page.locator("#spread .strip > .n").all_inner_texts()
        assert sum(int(text.split(" of ")[0]) for text in counts if " of " in text) == half
        page.locator("#map-by").select_option("value")
        page.locator("#map-by").select_option("owner")
        page.locator("#map-x").select_option(label="age")
        page.locator("#map-y").select_option("value")
        page.locator("#map-in").click()
        page.locator("#map-out").click()
        page.locator("#map-mode").click()
        page.mouse.move(box["x"] + 80, box["y"] + 80)
        page.mouse.down()
        page.mouse.move(box["x"] + 120, box["y"] + 90)
        page.mouse.up()
        assert chosen(page) == half  # it moved the map
        page.mouse.wheel(0, -200)
        page.locator("#map-home").click()
        page.locator("#map-view").click()
        assert chosen(page) > half
        # Distributions: a name selects its rows, bars select theirs.
        page.locator("#spread .strip button").first.click()
        of_name = chosen(page)
        until(page, f"document.querySelector('#spread .strip > .n').textContent === '{of_name} of {of_name}'")
        bars = page.locator("#spread .strip canvas").first.bounding_box()
        page.mouse.move(bars["x"] + bars["width"] * 0.6, bars["y"] + 10)
        page.mouse.down()
        page.mouse.move(bars["x"] + bars["width"] - 2, bars["y"] + 10, steps=3)
        page.mouse.up()
        assert 0 < chosen(page) < of_name
        page.locator("#spread-by").select_option("owner")
        until(page, "document.querySelectorAll('#spread .strip:not(.axis)').length === 4")
        page.locator("#spread-by").select_option("")
        assert page.locator("#spread .strip:not(.axis)").count() == 1
        page.get_by_role("checkbox", name="Select all rows of the table").click()
        assert chosen(page) == 160


def test_decisions_by_mouse(browser: Any, running: Running) -> None:
    with opened(browser, running) as page:
        page.locator("#grid .r .tick input").nth(0).click()
        page.locator("#grid .r .tick input").nth(1).click()
        page.locator("[data-act=drop]").click()
        page.wait_for_selector("#grid .badge.drop")
        assert len(decided(running)["drop"]) == 2
        page.locator("#undo").click()
        until(page, "!document.querySelector('#grid .badge.drop')")
        assert decided(running)["drop"] == []
        page.get_by_role("button", name="Deselect").click()
        page.locator("#grid .r").nth(3).locator(".id").click()
        page.wait_for_selector("#row .why table")
        screenshot(page, "row")
        row = page.evaluate("document.querySelector('#grid .r.current').id.slice(1)")
        page.locator("#row").get_by_role("button", name="Weight", exact=True).click()
        page.fill("#ask-input", "0.25")
        page.fill("#ask-reason", "half sure")
        page.get_by_role("button", name="Apply").click()
        page.wait_for_selector("#row .badge.weight")
        assert decided(running)["weight"] == [int(row)]
        page.locator("#row").get_by_role("button", name="Relabel", exact=True).click()
        page.get_by_role("button", name="Cancel").click()
        page.locator("#row").get_by_role("button", name="Relabel", exact=True).click()
        page.select_option("#ask-select", index=0)
        page.get_by_role("button", name="Apply").click()
        page.wait_for_selector("#row .badge.relabel")
        page.locator("#row").get_by_role("button", name="Keep", exact=True).click()
        page.wait_for_selector("#row .badge.keep")
        assert decided(running)["keep"] == [int(row)]
        page.locator("#row .why button.link").first.click()  # a neighbour
        until(page, f"document.querySelector('#grid .r.current')?.id !== 'r{row}'")
        page.get_by_role("button", name="Close the row").click()
        assert page.locator("#row").is_hidden()
        assert running.study is not None
        reasons = running.study.log.read().reasons
        assert "half sure" in reasons


def test_keyboard_only(browser: Any, running: Running) -> None:
    assert running.study is not None
    with opened(browser, running) as page:
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        while page.evaluate("document.activeElement.id") != "grid":
            page.keyboard.press("Tab")
        first = order(page)[0]
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowUp")
        page.keyboard.press("d")
        page.wait_for_selector("#grid .badge.drop")
        assert page.locator("#grid .r:has(.badge.drop) .id").inner_text() == first
        page.keyboard.press("u")
        until(page, "!document.querySelector('#grid .badge.drop')")
        page.keyboard.press("Space")
        for _ in range(3):
            page.keyboard.press("Shift+ArrowDown")
        assert chosen(page) == 4
        page.keyboard.press("k")
        until(page, "document.querySelectorAll('#grid .badge.keep').length === 4")
        page.keyboard.press("Escape")
        assert chosen(page) == 0
        page.keyboard.press("End")
        page.wait_for_selector("#grid .r.current[aria-rowindex='161']")
        page.keyboard.press("PageUp")
        page.keyboard.press("Home")
        page.wait_for_selector("#grid .r.current[aria-rowindex='2']")
        page.keyboard.press("Enter")
        page.wait_for_selector("#row .why table")
        suspects = running.study.suspects
        doubtful = int(np.argmax(np.where(suspects.suggested != suspects.label, suspects.probability, 0)))
        page.keyboard.press("Escape")
        assert page.locator("#row").is_hidden()
        page.keyboard.press("/")
        page.keyboard.type(str(running.study.ids[doubtful])[:4])
        assert total(page) == 1
        page.keyboard.press("Escape")
        page.keyboard.press("s")
        page.wait_for_selector("#grid .badge.relabel")
        assert decided(running)["relabel"] == [doubtful]
        page.keyboard.press("w")
        page.keyboard.type("0.3")
        page.keyboard.press("Enter")
        page.wait_for_selector("#grid .badge.weight")
        page.keyboard.press("r")
        page.wait_for_selector("#ask-select")
        page.keyboard.press("Escape")
        page.keyboard.press("?")
        page.wait_for_selector("#keys[open]")
        screenshot(page, "keys")
        page.keyboard.press("Escape")
        page.keyboard.press("a")
        assert chosen(page) == 1
        page.locator("#map").focus()
        for key in ("ArrowLeft", "+", "-", "0", "Enter"):
            page.keyboard.press(key)
        assert chosen(page) == 1  # the one row that the filter leaves
        for key, view in (("2", "see"), ("3", "ask"), ("1", "look")):
            page.keyboard.press(key)
            page.wait_for_selector(f"#{view}:not([hidden])")
        page.keyboard.press("ArrowRight")
        page.wait_for_selector("#see:not([hidden])")


def test_what_decisions_change_is_seen_at_once(browser: Any, running: Running) -> None:
    with opened(browser, running) as page:
        page.keyboard.press("2")
        page.wait_for_selector("#see h2")
        assert "No decision yet" in page.inner_text("#see")
        page.keyboard.press("1")
        page.locator("#grid").focus()
        page.keyboard.press("Space")
        for _ in range(9):
            page.keyboard.press("Shift+ArrowDown")
        page.keyboard.press("d")
        page.keyboard.press("2")
        page.get_by_text("Exact: as a fresh run on the 150 rows that are left").wait_for()
        figures = page.locator("#see .figures li").first.inner_text()
        assert "150" in figures
        assert "before 160" in figures
        assert page.locator("#see").get_by_role("region", name="Payouts").locator("tbody tr").count() == 4
        page.get_by_role("button", name="Measure").click()
        page.get_by_role("region", name="Accuracy").get_by_text("balanced accuracy").wait_for()
        until(page, "!document.querySelector('#work > div')")
        screenshot(page, "see")
        button = page.locator("#see .legend button").first
        button.click()
        assert button.get_attribute("aria-pressed") == "false"
        assert "--decisions" in page.inner_text("#see pre")
        page.get_by_role("button", name="Copy the command").click()
        page.get_by_role("region", name="Rows whose values changed most").get_by_role("button").first.click()
        page.wait_for_selector("#look:not([hidden])")


def test_long_work_is_cancelled(browser: Any, tmp_path: Path) -> None:
    from shapshift._progress import progress_bar

    def slow() -> Any:
        import time

        with progress_bar("Slow", 10_000, False) as advance:
            for _ in range(10_000):
                time.sleep(0.02)
                advance(1)

    made = Running(make_source(suspect=slow, copies=None), tmp_path / "decisions.csv")
    try:
        with opened_while_busy(browser, made) as page:
            page.get_by_role("button", name="Cancel: Looking for suspect labels").click()
            until(page, "!document.querySelector('#work > div')")
            state = page.evaluate("fetch('/api/state').then((found) => found.json())")
            assert {job["name"]: job["state"] for job in state["jobs"]}["suspects"] == "cancelled"
            page.get_by_role("button", name="Look for suspect labels").click()
            page.wait_for_selector("#work progress")
    finally:
        made.close()


@contextmanager
def opened_while_busy(browser: Any, running: Running) -> Iterator[Any]:
    context = browser.new_context()
    page = context.new_page()
    page.goto(running.server.guard.link())
    page.wait_for_selector("#work progress")
    yield page
    context.close()


def test_the_validation_rows_are_asked(browser: Any, shared: Running) -> None:
    with opened(browser, shared) as page:
        page.keyboard.press("3")
        page.get_by_role("heading", name="How reliable are the values").wait_for()
        page.get_by_role("heading", name="Boundary coverage").wait_for()
        page.get_by_role("button", name="Leave out each point").click()
        page.get_by_role("region", name="Points with the most influence").wait_for()
        page.get_by_role("button", name="Add noise").click()
        page.get_by_role("heading", name="What changes with the validation set").wait_for()
        until(page, "document.querySelectorAll('#ask .plot canvas').length >= 8")
        page.locator("#ask details summary").first.click()
        assert page.locator("#ask details table").first.is_visible()
        screenshot(page, "ask")


def check_access(page: Any, width: int) -> None:
    """No serious finding of axe, and no sideways scrolling."""
    package = pytest.importorskip("axe_core_python", reason="axe-core-python is not installed")
    page.wait_for_timeout(250)
    # Not as a script of the page, whose policy forbids that.
    page.evaluate((Path(package.__file__).parent / "axe.min.js").read_text(encoding="utf-8"))
    found = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")["violations"]
    assert [
        (one["id"], one["nodes"][0]["html"][:200]) for one in found if one["impact"] in ("serious", "critical")
    ] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("document.querySelector('main').scrollWidth") <= width


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1280, "light")])
def test_no_serious_finding_of_axe_and_no_sideways_scrolling(
    browser: Any, shared: Running, scheme: str, width: int
) -> None:
    with opened(browser, shared, width=width, height=844, scheme=scheme, touch=width < 500) as page:
        for view in ("look", "row", "see", "ask"):
            if view == "row":
                page.locator("#grid .r .id").nth(1).click()
                page.wait_for_selector("#row .why table")
            else:
                page.keyboard.press("Escape")
                page.locator(f"#tab-{view}").click()
                page.wait_for_selector(f"#{view} .card, #{view} .figures")
            check_access(page, width)
            screenshot(page, f"{view}-{width}-{scheme}")
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert background == ("rgb(20, 23, 26)" if scheme == "dark" else "rgb(246, 246, 243)")
        page.locator("#theme").click()
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") != background


def test_hostile_texts_stay_texts(browser: Any, shared: Running) -> None:
    with opened(browser, shared) as page:
        page.fill("#f-text", "p005")
        assert total(page) == 1
        page.locator("#grid .r .id").first.click()
        page.wait_for_selector("#row .why table")
        said = page.inner_text("#row")
        assert said.count("<script>window.hit=1</script>") >= 3
        assert "\u202e" not in page.inner_text("body")
        assert HOSTILE.replace("\u202e", "\\u202e") in page.inner_text("#name")
        assert page.locator("img[src=x]").count() == 0
        for view in ("see", "ask"):
            page.locator(f"#tab-{view}").click()
            page.wait_for_selector(f"#{view} table", state="attached")


def test_another_sites_page_can_do_nothing(browser: Any, running: Running) -> None:
    # A page of another origin, open in the same browser and with the cookie there, tries every way to post.
    port = running.server.port
    with opened(browser, running) as page:
        context = page.context
        evil = context.new_page()
        attack = f"""<form id=f method=post enctype="text/plain" action="http://127.0.0.1:{port}/api/decide" target=x>
            <input name='{{"action":"drop","rows":[1],"a":"' value='"}}'></form><iframe name=x></iframe>
            <iframe src="http://127.0.0.1:{port}/"></iframe>
            <script>
            document.querySelector("#f").submit();
            const url = "http://127.0.0.1:{port}/api/decide", body = JSON.stringify({{ action: "drop", rows: [1] }});
            const options = {{ method: "POST", credentials: "include", body }};
            const ways = [fetch(url, {{ ...options, mode: "no-cors" }}), fetch(url, options),
              fetch(url, {{ ...options, headers: {{ "content-type": "application/json", "x-shapshift-csrf": "x" }} }}),
              fetch("http://127.0.0.1:{port}/api/state", {{ credentials: "include" }}).then((r) => r.text())];
            Promise.allSettled(ways).then((found) => {{ document.title = found.map((one) => one.status).join(); }});
            </script>"""
        evil.route("http://evil.example/", lambda route: route.fulfill(content_type="text/html", body=attack))
        evil.goto("http://evil.example/")
        until(evil, "document.title")
        assert evil.title().split(",")[1:] == ["rejected"] * 3  # the first is sent blindly, and refused
        evil.wait_for_timeout(300)
        assert not any(decided(running).values())
        assert all(frame.evaluate("document.querySelector('#grid')") is None for frame in evil.frames[1:])
        evil.close()


def test_two_tabs_show_each_others_decisions(browser: Any, running: Running) -> None:
    with opened(browser, running) as page:
        other = page.context.new_page()
        other.goto(f"http://127.0.0.1:{running.server.port}/")
        other.wait_for_selector("#grid .r:not(.pending)")
        page.locator("#grid").focus()
        page.keyboard.press("d")
        other.wait_for_selector("#grid .badge.drop")
        other.locator("#grid").focus()
        other.keyboard.press("ArrowDown")
        other.keyboard.press("k")
        page.wait_for_selector("#grid .badge.keep")
        assert [len(rows) for rows in decided(running).values()] == [1, 1, 0, 0]
        other.close()


def test_an_undo_that_fails_can_be_tried_again(browser: Any, running: Running) -> None:
    with opened(browser, running) as page:
        page.locator("#grid .r .id").nth(2).click()
        page.keyboard.press("d")
        until(page, "document.querySelector('#decided').textContent === '1 decided'")
        page.route("**/api/undo", lambda route: route.fulfill(status=200, body="not JSON"))
        page.locator("#undo").click()
        until(page, "document.querySelector('#toast').classList.contains('wrong')")
        page.unroute("**/api/undo")
        page.locator("#undo").click()
        until(page, "document.querySelector('#decided').textContent === ''")
        assert not any(decided(running).values())


def test_selected_rows_are_saved_as_csv(browser: Any, shared: Running) -> None:
    with opened(browser, shared) as page:
        page.locator("#f-text").fill("p005")
        assert total(page) == 1
        page.locator("#grid").focus()
        page.keyboard.press("a")
        with page.expect_download() as waiting:
            page.locator("#csv").click()
        assert waiting.value.suggested_filename == "rows.csv"
        text = Path(waiting.value.path()).read_text(encoding="utf-8-sig")
        assert text == shared.study.csv([5]).removeprefix("\ufeff")


def test_the_browser_is_started_with_a_file_that_forwards(browser: Any, running: Running) -> None:
    from shapshift.app.security import private_page

    context = browser.new_context()
    page = context.new_page()
    with private_page(running.server.guard.link()) as path:
        page.goto(path.as_uri())
        page.wait_for_selector("#grid .r:not(.pending)")
    context.close()


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1280, "light")])
def test_sellers_pages(browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str, width: int) -> None:
    from test_app import make_market

    from shapshift.app.sellers import Sellers

    monkeypatch.chdir(tmp_path)
    made = Running(None, tmp_path / "none.csv", Sellers(str(make_market(tmp_path)), "m.db"))
    try:
        with opened(browser, made, width=width, scheme=scheme) as page:
            page.get_by_text("The statement, as the seller gets it").wait_for()
            page.frame_locator("iframe").get_by_text("This is what you are paid").first.wait_for()
            check_access(page, width)
            screenshot(page, f"sellers-{width}-{scheme}")
            page.select_option("#seller-name", label="bob")
            page.frame_locator("iframe").get_by_text("bob").first.wait_for()
            page.locator("#theme").click()
            assert page.locator("#tab-look").is_hidden()
    finally:
        made.close()


def test_many_rows_are_drawn_and_scrolled(browser: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    n = 300_000
    X = rng.normal(size=(n, 2))
    y = (X[:, 0] > 0).astype(np.int64)
    points = rng.normal(size=(4, 2))

    def value(rows: Any, labels: Any) -> Any:
        from shapshift import KNNShapley

        return KNNShapley(progress=False).fit(X[rows], labels).value(points, (points[:, 0] > 0).astype(np.int64))

    table = pa.table({"a": X[:, 0], "b": X[:, 1], "y": y})
    more: dict[str, Any] = {"train": table, "features": ["a", "b"], "X": X, "y": y, "ids": None, "owners": None}
    more |= {"X_val": points, "y_val": (points[:, 0] > 0).astype(np.int64), "value": value, "pay": None}
    made = Running(make_source(**more, suspect=None, copies=None, audit=None), tmp_path / "decisions.csv")
    try:
        with opened(browser, made) as page:
            assert total(page) == n
            page.wait_for_selector("#map[data-milliseconds]")
            page.locator("#grid").focus()
            page.keyboard.press("End")
            page.wait_for_selector(f"#grid .r.current[aria-rowindex='{n + 1}']")
            page.evaluate("document.querySelector('#grid').scrollTop /= 2")
            until(page, "!document.querySelector('#grid .r.pending')")
            until(page, f"Math.abs(document.querySelector('#grid .r').ariaRowIndex - {n / 2}) < {n / 100}")
            page.locator("#map-view").click()
            selected = int(re.sub(r"\D", "", page.inner_text("#chosen")))
            assert 0.99 * n < selected < n
            screenshot(page, "many")
    finally:
        made.close()


def test_values_that_cannot_be_made_are_said(browser: Any, tmp_path: Path) -> None:
    def fail(rows: Any, labels: Any) -> Any:
        raise ValueError(f"No way {HOSTILE}")

    made = Running(make_source(value=fail), tmp_path / "decisions.csv")
    try:
        context = browser.new_context()
        page = context.new_page()
        page.goto(made.server.guard.link())
        page.get_by_text("The rows could not be valued").wait_for()
        assert "No way </script>" in page.inner_text("#wait-text")
        context.close()
    finally:
        made.close()


def test_the_page_says_when_the_server_is_gone(browser: Any, tmp_path: Path) -> None:
    made = Running(make_source(), tmp_path / "decisions.csv")
    context = browser.new_context()
    page = context.new_page()
    page.goto(made.server.guard.link())
    page.wait_for_selector("#grid .r:not(.pending)")
    made.close()
    page.get_by_text("The server does not answer").wait_for()
    context.close()
