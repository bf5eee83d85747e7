"""The app without a browser: who is let in, what is answered, and that no decision is lost."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import stat
import subprocess
import sys
import threading
import webbrowser
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from cli_files import run

from shapshift import Decisions, KNNShapley, find_suspects
from shapshift.cleaning import DecisionLog

pytest.importorskip("starlette", reason="starlette is not installed: pip install 'shapshift[app]'")
pytest.importorskip("uvicorn", reason="uvicorn is not installed: pip install 'shapshift[app]'")

from app_server import HOSTILE, Browser, Running, make_source

from shapshift.app.rows import Rows
from shapshift.app.study import Study
from shapshift.app.work import CancelledError, Work


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    made = Running(make_source(), tmp_path_factory.mktemp("app") / "decisions.csv")
    yield made
    made.close()


@pytest.fixture(scope="module")
def page(running: Running) -> Browser:
    made = running.browser()
    made.settled()
    return made


# Who is let in


def test_nothing_is_answered_without_the_token(running: Running) -> None:
    stranger = Browser(running.server.port)
    for path in ("/", "/api/state", "/api/about", "/static/main.js", "/api/rows?at=1", "/?token=wrong", "/favicon.ico"):
        assert stranger.ask(path).status == 403, path
    stranger.csrf = running.server.guard.csrf  # even whoever knows this
    assert stranger.ask("/api/decide", "POST", {"action": "drop", "rows": [1]}).status == 403
    stranger.cookie = f"shapshift-{running.server.port}=guess"
    assert stranger.ask("/").status == 403


def test_a_link_works_once_and_then_another_one_is_printed(running: Running) -> None:
    link = running.server.guard.link()
    first, second = Browser(running.server.port), Browser(running.server.port)
    first.open(link)
    running.printed.clear()
    assert second.ask(link.partition(second.host)[2]).status == 403
    (fresh,) = running.printed
    second.open(fresh)
    assert second.json("/api/about")["study"]["rows"] == 160
    again = first.ask(fresh.partition(first.host)[2])  # whoever is in already is sent to the page
    assert (again.status, again.headers["location"]) == (303, "/")


def test_the_cookie_and_the_headers_are_strict(running: Running) -> None:
    answer = Browser(running.server.port).ask(running.server.guard.link().partition(str(running.server.port))[2])
    cookie = answer.headers["set-cookie"].lower()
    assert all(part in cookie for part in ("httponly", "samesite=strict", "path=/"))
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["referrer-policy"] == "no-referrer"


def test_cookies_of_other_servers_of_the_machine_do_no_harm(running: Running, page: Browser) -> None:
    other = Browser(running.server.port)
    for text in ('seen={"a": 1}', "flag", "a[b]=c", "name=\xe9"):
        for cookies in (f"{text}; {page.cookie}", f"{page.cookie}; {text}"):
            other.cookie = cookies
            assert other.ask("/api/state").status == 200, cookies


def test_another_host_is_refused(running: Running, page: Browser) -> None:
    # A domain that an attacker has rebound to 127.0.0.1 sends its own name.
    port = running.server.port
    for host in (
        "evil.example",
        f"evil.example:{port}",
        "127.0.0.1",
        f"127.0.0.1:{port + 1}",
        f"127.0.0.1.nip.io:{port}",
    ):
        assert page.ask("/api/state", headers={"Host": host}).status == 421, host
    assert page.ask("/api/state", headers={"Host": f"localhost:{port}"}).status == 200


WRITES = ("/api/decide", "/api/undo", "/api/find", "/api/measure", "/api/cancel", "/api/view", "/api/csv")


@pytest.mark.parametrize("path", WRITES)
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": ""}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "https://127.0.0.1"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"X-Shapshift-CSRF": ""}, 403),
        ({"X-Shapshift-CSRF": "wrong"}, 403),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ({"Content-Length": "99999999999"}, 413),
        ({"Content-Length": "20", "Transfer-Encoding": "chunked"}, 413),
    ],
    ids=str,
)
def test_another_sites_page_cannot_post(
    page: Browser, running: Running, path: str, headers: dict[str, str], status: int
) -> None:
    assert running.study is not None
    before = len(running.study.log.read())
    assert page.ask(path, "POST", {"action": "drop", "rows": [1], "what": "audit"}, headers).status == status
    assert len(running.study.log.read()) == before


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS"])
def test_other_methods_are_refused(page: Browser, method: str) -> None:
    assert page.ask("/api/decide", method, headers={"Content-Type": "application/json"}).status in (403, 405)


@pytest.mark.parametrize("body", [b"", b"[]", b"nothing", b"[" * 100_000, b'{"action": "drop"}'], ids=repr)
def test_bodies_that_mean_nothing_are_refused(page: Browser, body: bytes) -> None:
    answer = page.ask("/api/decide", "POST", body)
    assert answer.status == 400
    assert "error" in json.loads(answer.body)


@pytest.mark.parametrize(
    "path",
    [
        "/api/rows?at=x",
        "/api/rows?at=" + ",".join("1" * 500),
        "/api/row/100000",
        "/api/why/100000",
        "/api/column/nothing",
        "/api/column/feature:99",
        "/api/column/feature:-1",
        "/api/image/0/0",
        "/api/image/9999/0",
        "/api/sellers",
        "/statement/0/0",
    ],
)
def test_what_is_not_there_is_a_clear_error(page: Browser, path: str) -> None:
    answer = page.ask(path)
    assert answer.status == 400
    assert json.loads(answer.body)["error"]


@pytest.mark.parametrize("name", ["../app.css", "..%2fstudy.py", "study.py", "app.html", "static"])
def test_only_the_files_of_the_page_are_served(page: Browser, name: str) -> None:
    assert page.ask(f"/static/{name}").status == 404


# Look


def naive_view(source: Any, study: Study, query: dict[str, Any]) -> list[int]:
    """What a view should hold, row by row."""
    found = []
    numbers = study.rows.numbers
    for i in range(source.y.size):
        low, high, value = numbers["low"][i], numbers["high"][i], numbers["value"][i]
        sign = "positive" if low > 0 else "negative" if high < 0 else "open"
        text = " ".join(
            map(str, [source.ids[i], source.y[i], source.owners[i], *source.train["note"][i : i + 1].to_pylist()])
        )
        classes, owners = study.rows.classes, study.rows.owners
        assert classes is not None
        assert owners is not None
        keeps = [
            not query.get("labels") or source.y[i] in [classes.entries[k] for k in query["labels"]],
            not query.get("owners") or source.owners[i] in [owners.entries[k] for k in query["owners"]],
            query.get("low") is None or value >= query["low"],
            query.get("high") is None or value <= query["high"],
            not query.get("sign") or sign == query["sign"],
            all(word in text.lower() for word in query.get("text", "").lower().split()),
            query.get("suspicion") is None or numbers["suspicion"][i] >= query["suspicion"],
            not query.get("copies") or numbers["copies"][i] > 0,
        ]
        if all(keeps):
            found.append(i)
    key = {"value": numbers["value"], "id": source.ids, "label": source.y, "feature:1": source.X[:, 0]}[query["sort"]]
    found.sort(key=lambda i: (key[i], i))
    return found[::-1] if query.get("descending") else found


@pytest.mark.parametrize(
    "query",
    [
        {"sort": "value"},
        {"sort": "value", "descending": True},
        {"sort": "id"},
        {"sort": "label"},
        {"sort": "feature:1", "descending": True},
        {"sort": "value", "labels": [1]},
        {"sort": "value", "owners": [0, 2]},
        {"sort": "id", "low": 0.0},
        {"sort": "id", "high": 0.001, "low": -0.01},
        {"sort": "id", "sign": "positive"},
        {"sort": "id", "sign": "negative"},
        {"sort": "id", "sign": "open"},
        {"sort": "id", "text": "NOTE 13"},
        {"sort": "id", "text": "north p0"},
        {"sort": "id", "text": "onerror"},
        {"sort": "id", "suspicion": 0.5},
        {"sort": "value", "copies": True},
        {"sort": "value", "labels": [0], "sign": "negative", "text": "note"},
    ],
    ids=str,
)
def test_views_are_those_of_a_loop_over_rows(page: Browser, running: Running, query: dict[str, Any]) -> None:
    assert running.study is not None
    answer = page.ask("/api/view", "POST", query)
    assert answer.status == 200, answer.body
    assert np.frombuffer(answer.body, "<u4").tolist() == naive_view(running.study.source, running.study, query)


def test_missing_entries_are_last_both_ways() -> None:
    table = pa.table({"a": [3.0, None, 1.0, 2.0]})
    rows = Rows(table, np.arange(4), np.array(["u", "v", "u", "v"]), None, is_class=True, shown=["a"])
    rows.set("value", np.array([0.5, np.nan, 0.5, -1.0]))
    assert rows.view({"sort": "feature:0"}).tolist() == [2, 3, 0, 1]
    assert rows.view({"sort": "feature:0", "descending": True}).tolist() == [0, 3, 2, 1]
    assert rows.view({"sort": "value"}).tolist() == [3, 0, 2, 1]
    assert rows.view({"sort": "value", "descending": True}).tolist() == [2, 0, 3, 1]
    with pytest.raises(ValueError, match="cannot be sorted by 'nothing'"):
        rows.view({"sort": "nothing"})


def test_categories_and_numbers_that_are_none_are_sorted() -> None:
    letters = pa.array(["b", "c", None, "a"])
    table = pa.table({"a": letters.dictionary_encode(), "b": letters, "c": [1.0, float("nan"), None, 3.0]})
    rows = Rows(table, np.arange(4), np.array(["u", "v", "u", "v"]), None, is_class=True, shown=["a"])
    for sort, up, down in (("feature:0", [3, 0, 1, 2], [1, 0, 3, 2]), ("feature:2", [0, 3], [3, 0])):
        assert rows.view({"sort": sort}).tolist()[: len(up)] == up
        assert rows.view({"sort": sort, "descending": True}).tolist()[: len(down)] == down
    assert rows.view({"sort": "feature:1"}).tolist() == rows.view({"sort": "feature:0"}).tolist()


def test_an_order_of_replaced_numbers_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = Rows(pa.table({"a": [0.0] * 3}), np.arange(3), np.array(["u"] * 3), None, is_class=True, shown=["a"])
    rows.set("after", np.array([1.0, 2.0, 3.0]))
    sort = rows._sort

    def slow(name: str) -> Any:  # the numbers change while they are sorted
        order = sort(name)
        rows.set("after", np.array([3.0, 2.0, 1.0]))
        return order

    monkeypatch.setattr(rows, "_sort", slow)
    rows.view({"sort": "after"})
    monkeypatch.setattr(rows, "_sort", sort)
    assert rows.view({"sort": "after"}).tolist() == [2, 1, 0]


@pytest.mark.parametrize(
    "body",
    [b'{"labels": [1e999]}', b'{"low": 1%s}' % (b"0" * 400), b'{"labels": 5}', b'{"text": "\\ud800"}'],
    ids=["infinite", "huge", "no list", "no letter"],
)
def test_filters_that_mean_nothing_are_refused(page: Browser, body: bytes) -> None:
    answer = page.ask("/api/view", "POST", body)
    assert answer.status == 400
    assert json.loads(answer.body)["error"]


def test_rows_without_an_order_are_reversed(page: Browser) -> None:
    answer = page.ask("/api/view", "POST", {"descending": True})
    assert np.frombuffer(answer.body, "<u4").tolist() == list(range(159, -1, -1))


def test_columns_come_as_arrays(page: Browser, running: Running) -> None:
    assert running.study is not None
    source = running.study.source
    for name, kind, expected in (
        ("value", np.float32, running.study.rows.numbers["value"]),
        ("feature:1", np.float32, source.X[:, 0]),
        ("label", np.uint16, (source.y == HOSTILE).astype(np.uint16)),
    ):
        answer = page.ask(f"/api/column/{name}")
        assert answer.headers["x-type"] == np.dtype(kind).name
        got = np.frombuffer(answer.body, kind)
        if name == "label":  # names are numbered in the order of the list of classes
            classes = page.json("/api/about")["study"]["classes"]
            assert [classes[k] for k in got.tolist()] == [str(y).replace("\u202e", "\\u202e") for y in source.y]
        else:
            np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_a_row_opens_with_all_that_is_known(page: Browser, running: Running) -> None:
    assert running.study is not None
    source, study = running.study.source, running.study
    one = page.json("/api/row/0")
    assert one["value"] == pytest.approx(study.rows.numbers["value"][0])
    assert {cell["name"]: cell["kind"] for cell in one["features"]}["note"] == "text"
    assert [cell["feature"] for cell in one["features"]] == [False, True, True, True, True, False]
    assert [twin["id"] for twin in one["twins"]] == ["p001"]
    assert one["suspect"]["probability"] == pytest.approx(study.suspects.probability[0])
    why = page.json("/api/why/0")
    found = source.fit().explain(source.X_val, source.y_val, ["p000"], n_points=6, n_neighbors=6)
    assert why["sentence"] == found.sentences[0].replace("\u202e", "\\u202e")
    assert why["gain"] + why["loss"] == pytest.approx(one["value"])
    assert [near["row"] for near in why["neighbors"]] == found.neighbors["position"].tolist()
    assert [point["value"] for point in why["points"]] == pytest.approx(found.points["value"].tolist())


def test_images_are_shown_and_nothing_outside_their_folder(tmp_path: Path) -> None:
    from shapshift.app import cells

    dot = b"\x89PNG\r\n\x1a\n" + b"0" * 20
    folder = tmp_path / "images"
    folder.mkdir()
    (folder / "a.png").write_bytes(dot)
    (folder / "fake.png").write_bytes(b"<script>")
    (tmp_path / "secret.png").write_bytes(dot)
    (folder / "loop.png").symlink_to("loop.png")
    (folder / "away.png").symlink_to(tmp_path / "secret.png")
    names = ["a.png", "../secret.png", str(tmp_path / "secret.png"), "fake.png", "none.png", "a.svg"]
    names += ["loop.png", "away.png", "a sentence " * 50 + "about a.png", "a/" * 3000 + "a.png"]
    n = len(names)
    table = pa.table(
        {"file": names, "blob": [dot, b"<svg", None, *[dot] * 7], "size": [0.0] * n, "class": ["u", "v"] * 5}
    )
    source = make_source(n=160, train=table, images=folder)
    shown = [[cell["kind"] for cell in cells.read(source, row)[:2]] for row in range(n)]
    assert shown == [
        ["image", "image"],
        ["text", "other"],
        ["text", "missing"],
        ["image", "image"],
        *[["text", "image"]] * 6,
    ]
    assert cells.image(source, 0, 0) == (dot, "image/png")
    for row, column in ((1, 0), (2, 0), (3, 0), (1, 1), (0, 2)):
        with pytest.raises(ValueError, match=r"no image|not an image"):
            cells.image(source, row, column)
    source = make_source(image_shape=(2, 2), features=["size", "age", HOSTILE])
    with pytest.raises(ValueError, match="takes 4 features"):
        cells.pixels(source, 0)
    picture = cells.pixels(make_source(image_shape=(1, 3), features=["size", "age", HOSTILE]), 0)
    assert picture is not None
    assert (min(picture["grey"]), max(picture["grey"])) == (0, 255)


# Decide


@pytest.fixture
def study(tmp_path: Path) -> Iterator[Study]:
    made = Study(make_source(hostile=False), DecisionLog(tmp_path / "decisions.csv"))
    made.work.wait("values")
    made.follow.start("sync", "Waiting", lambda: None)
    made.follow.wait("sync")
    yield made
    made.close()


def settled(study: Study) -> None:
    study.follow.start("sync", "Waiting", lambda: None)
    assert study.follow.wait("sync") == "done"


def test_decisions_are_replayed_to_the_same_table(study: Study) -> None:
    study.decide("drop", [3, 4, 5])
    study.decide("relabel", [7], label="benign", reason='it says "so", clearly')
    last = study.decide("weight", [8, 9], weight=0.25)
    study.decide("keep", [4])
    study.decide("weight", [9], weight=2)
    assert study.undo(last) == {"undone": 1, "kept": 1}
    source = study.source
    table = source.train.select(source.features)
    kept, y, weight = study.log.read().apply(table, source.y, ids=source.ids)
    rows, labels = study.left()
    assert rows.tolist() == [i for i in range(160) if i not in (3, 5)]
    assert y.tolist() == labels.tolist()
    assert labels[5] == "benign"
    assert kept.num_rows == 158
    assert weight[rows.tolist().index(9)] == 2
    assert (weight != 1).sum() == 1
    assert study.state()["counts"] == {"keep": 1, "drop": 2, "relabel": 1, "weight": 1}


def test_a_new_start_takes_the_log_over(study: Study, tmp_path: Path) -> None:
    study.decide("drop", [3])
    study.undo(study.decide("drop", [4]))
    study.decide("relabel", [6], label="plain")
    study.close()
    again = Study(study.source, DecisionLog(tmp_path / "decisions.csv"))
    try:
        assert [again.decision(row)["action"] for row in (3, 4, 6)] == ["drop", "", "relabel"]
        assert again.left()[0].tolist() == [i for i in range(160) if i != 3]
    finally:
        again.close()
    changed = make_source(seed=1, hostile=False)
    with pytest.raises(ValueError, match="content of the row"), DecisionLog(tmp_path / "decisions.csv") as log:
        Study(changed, log)


def test_decisions_about_a_row_are_undone_in_any_order(study: Study) -> None:
    def decided(row: int) -> str:
        return str(study.decision(row)["action"])

    first, second = study.decide("drop", [70, 71]), study.decide("keep", [70])
    third = study.decide("weight", [70], weight=0.5)
    assert [study.undo(one)["undone"] for one in (third, second, first)] == [1, 1, 2]
    assert (decided(70), decided(71)) == ("", "")
    # What was undone out of turn does not come back.
    first, second, third = (study.decide(action, [70, 72]) for action in ("drop", "keep", "drop"))
    assert study.undo(second) == {"undone": 0, "kept": 2}
    study.undo(third)
    assert decided(70) == "drop"
    second = study.decide("keep", [72])
    assert study.undo(first) == {"undone": 1, "kept": 1}
    study.undo(second)
    assert (decided(70), decided(72)) == ("", "")
    source = study.source
    plan = study.log.read().plan(source.train.select(source.features), source.y, ids=source.ids)
    assert (plan.actions == "keep").all()


@pytest.mark.parametrize("given", [{"action": "drop"}, {"action": "weight", "weight": 0}])
def test_a_log_that_leaves_no_row_opens_again(study: Study, tmp_path: Path, given: dict[str, Any]) -> None:
    study.decide(rows=list(range(160)), **given)
    study.close()
    again = Study(study.source, DecisionLog(tmp_path / "decisions.csv"))
    assert again.state()["counts"][given["action"]] == 160
    again.close()


def test_whole_numbers_stay_whole(tmp_path: Path) -> None:
    made = make_source(hostile=False, task="number", y=np.arange(160), owners=None, pay=None)
    study = Study(made, DecisionLog(tmp_path / "decisions.csv"))
    for label in ("2.5", "1e300"):
        with pytest.raises(ValueError, match="must be a whole number"):
            study.decide("relabel", [3], label=label)
    study.decide("relabel", [3], label="7")
    assert study.left()[1][3] == 7
    study.close()
    again = Study(made, DecisionLog(tmp_path / "decisions.csv"))
    assert again.decision(3)["new"] == "7"
    again.close()


@pytest.mark.parametrize(
    ("action", "rows", "more", "said"),
    [
        ("burn", [1], {}, "must be one of"),
        ("drop", [], {}, "one at least"),
        ("drop", [160], {}, "from 0 to 159"),
        ("drop", [-1], {}, "from 0 to 159"),
        ("drop", [True], {}, "positions"),
        ("drop", [1.5], {}, "positions"),
        ("drop", "1", {}, "positions"),
        ("relabel", [1], {"label": "nothing"}, "must be a class"),
        ("relabel", [1], {}, "class"),
        ("weight", [1], {}, "from 0"),
        ("weight", [1], {"weight": -1}, "from 0"),
        ("weight", [1], {"weight": True}, "from 0"),
        ("weight", [1], {"weight": float("nan")}, "from 0"),
        ("weight", [1], {"weight": 1e10}, "from 0"),
    ],
)
def test_decisions_that_mean_nothing_are_refused(study: Study, action: str, rows: Any, more: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        study.decide(action, rows, **more)
    assert len(study.log.read()) == 0
    assert not study.rows.numbers["decision"].any()


def test_two_tabs_do_not_lose_each_others_decisions(running: Running) -> None:
    tabs = [running.browser() for _ in range(2)]
    before = tabs[0].json("/api/state")["counts"]["drop"]
    errors: list[Exception] = []

    def decide(tab: Browser, rows: range) -> None:
        try:
            for row in rows:
                tab.post("/api/decide", action="drop", rows=[row])
        except Exception as error:  # told by the main thread
            errors.append(error)

    threads = [threading.Thread(target=decide, args=(tab, range(20 + k, 60, 2))) for k, tab in enumerate(tabs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert running.study is not None
    assert {running.study.decision(row)["action"] for row in range(20, 60)} == {"drop"}
    for tab in tabs:
        assert tab.json("/api/state")["counts"]["drop"] == before + 40
    # What one tab decides last about a row is not undone by the other's undo of something earlier.
    first = tabs[0].post("/api/decide", action="drop", rows=[61, 62])["operation"]
    tabs[1].post("/api/decide", action="weight", rows=[62], weight=0.5)
    done = tabs[0].post("/api/undo", operation=first)
    assert (done["undone"], done["kept"]) == (1, 1)
    assert [running.study.decision(row)["action"] for row in (61, 62)] == ["", "weight"]
    assert tabs[0].ask("/api/undo", "POST", {"operation": first}).status == 400
    study = running.study
    source = study.source
    plan = study.log.read().plan(source.train.select(source.features), source.y, ids=source.ids)
    assert set(range(20, 60)) <= set(np.flatnonzero(plan.actions == "drop").tolist())


KILLED = """
import os, sys, threading
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from app_server import make_source
from shapshift.app.study import Study
from shapshift.cleaning import DecisionLog
study = Study(make_source(hostile=False), DecisionLog(sys.argv[1]))
for row in range(150):
    study.decide("drop" if row % 2 else "weight", [row], weight=0.5)
    os.write(1, f"{row}\\n".encode())
threading.Event().wait()
"""


def test_a_kill_loses_no_decision(tmp_path: Path) -> None:
    path = tmp_path / "decisions.csv"
    program = [sys.executable, "-c", KILLED, str(path), str(Path(__file__).parent)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if int(line) == 40:
                process.kill()
                break
        told = [40, *(int(line) for line in process.stdout if line.strip())]
    source = make_source(hostile=False)
    with DecisionLog(path) as log:
        decisions = log.read()
        decisions.plan(source.train.select(source.features), source.y, ids=source.ids)
        assert len(decisions) >= max(told) + 1
        assert list(decisions.ids[: max(told) + 1]) == source.ids[: max(told) + 1].tolist()


def test_the_end_waits_for_a_decision_under_way(tmp_path: Path) -> None:
    begun, goes_on = threading.Event(), threading.Event()

    class Slow(DecisionLog):
        def append(self, decisions: Decisions) -> None:
            begun.set()
            assert goes_on.wait(30)
            super().append(decisions)

    study = Study(make_source(hostile=False), Slow(tmp_path / "decisions.csv"))
    made: list[int] = []
    deciding = threading.Thread(target=lambda: made.append(study.decide("drop", [3])))
    ending = threading.Thread(target=study.close)
    deciding.start()
    assert begun.wait(30)
    ending.start()
    ending.join(0.2)
    goes_on.set()
    for thread in (deciding, ending):
        thread.join(30)
    assert made == [1]
    assert Decisions.read_csv(tmp_path / "decisions.csv").ids == ("p003",)


def test_half_a_line_is_cut_off(tmp_path: Path) -> None:
    path, source = tmp_path / "decisions.csv", make_source()
    table = source.train.select(source.features)
    made = Decisions.of(
        table, source.y, ids=source.ids[4:7], actions=["drop"] * 3, reasons=["a", 'b "\n" c', "d"], table_ids=source.ids
    )
    with DecisionLog(path) as log:
        log.append(made)
    whole = path.read_bytes()
    starts = [i + 1 for i in range(len(whole)) if whole[i : i + 1] == b"\n" and whole.count(b'"', 0, i) % 2 == 0]
    assert len(starts) == 4
    for end in range(0, len(whole), 3):
        path.write_bytes(whole[:end])
        kept = max((start for start in starts if start <= end), default=0)
        with DecisionLog(path) as log:
            assert len(log.read()) == max(starts.index(kept) if kept else 0, 0)
            if end % 60 == 0:
                log.append(made)
                assert len(log.read()) == (starts.index(kept) if kept else 0) + 3


def test_a_log_belongs_to_one_process_and_to_one_kind_of_file(tmp_path: Path) -> None:
    path = tmp_path / "decisions.csv"
    with DecisionLog(path), pytest.raises(ValueError, match="open in another process"):
        DecisionLog(path)
    with DecisionLog(path) as log:
        assert len(log.read()) == 0
    other = tmp_path / "other.csv"
    other.write_text('"a","b"\n"1","2"\n')
    with pytest.raises(ValueError, match="lacks the columns"):
        DecisionLog(other)
    assert other.read_text() == '"a","b"\n"1","2"\n'
    with pytest.raises(ValueError, match="does not exist"):
        DecisionLog(tmp_path / "none" / "decisions.csv")


HEADER = b"id,action,label,weight,probability,reason,row\n"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"PAR1\0\1\2\nabc\xff\nPAR1", "not text"),
        (b'line 1 "quote\nline 2\nline 3\n', "lacks the columns|quot"),
        (b'"a","b"\n"1","2"', "lacks the columns"),
        (HEADER.replace(b",", b";") + b"p1;drop;;;;;\n", "saved by another program"),
        (HEADER + b"p1,drop,,,,,", "saved by another program"),
    ],
)
def test_a_file_that_is_no_log_stays_as_it_is(content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "other"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=said):
        DecisionLog(path)
    assert path.read_bytes() == content


def test_a_log_with_a_stray_quote_loses_nothing(tmp_path: Path) -> None:
    path, source = tmp_path / "decisions.csv", make_source()
    table = source.train.select(source.features)
    ids = source.ids[10:13]
    with DecisionLog(path) as log:
        log.append(Decisions.of(table, source.y, ids=ids, actions=["drop"] * 3, table_ids=source.ids))
    content = path.read_bytes().replace(b'"p011"', b'"p011')
    path.write_bytes(content)
    with pytest.raises(ValueError, match="in line 3 or later"):
        DecisionLog(path)
    assert path.read_bytes() == content


def test_a_log_is_no_link(tmp_path: Path) -> None:
    # In a folder of results from elsewhere, it could make or change any file of the user.
    (tmp_path / "decisions.csv").symlink_to(tmp_path / "startup")
    with pytest.raises(ValueError, match="are a link"):
        DecisionLog(tmp_path / "decisions.csv")
    assert not (tmp_path / "startup").exists()


# See


def test_values_after_decisions_are_those_of_a_fresh_fit(study: Study) -> None:
    study.decide("drop", list(range(30)))
    study.decide("relabel", [40], label="benign" if study.source.y[40] == "plain" else "plain")
    study.decide("weight", [41], weight=0.5)
    settled(study)
    source, (rows, labels) = study.source, study.left()
    fresh = KNNShapley().fit(source.X[rows], labels).value(source.X_val, source.y_val)
    np.testing.assert_array_equal(study.rows.numbers["after"][rows], fresh.values)
    assert np.isnan(study.rows.numbers["after"][:30]).all()
    found = study.see()
    assert found["exact"]
    assert not found["stale"]
    assert found["after"]["reliability"] == pytest.approx(fresh.reliability)
    assert found["before"]["rows"] == 160
    assert found["after"]["rows"] == 130
    paid = {when: sum(float(one["payout"]) for one in found["payouts"][when]["owners"]) for when in ("before", "after")}
    assert all(0 < amount <= 1000 for amount in paid.values())
    moved = found["moved"][0]
    assert moved["after"] - moved["before"] == pytest.approx(
        max((study.rows.numbers["after"] - study.rows.numbers["value"])[rows], key=abs)
    )


def test_long_valuations_come_with_a_bound_and_a_full_run(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shapshift.cleaning.revaluation.QUICK_SECONDS", -1.0)
    monkeypatch.setattr("shapshift.cleaning.revaluation.QUICK_TOL", 0.2)
    study.decide("drop", list(range(20)))
    settled(study)
    found, after = study.see(), study.rows.numbers["after"].copy()
    assert not found["exact"]
    assert found["bound"] > 0
    study.look_for("exact")
    assert study.follow.wait("exact") == "done"
    exact = study.rows.numbers["after"]
    assert study.see()["exact"]
    assert 0 < np.nanmax(np.abs(after - exact)) <= found["bound"]


def test_a_class_that_is_gone_is_said(study: Study) -> None:
    study.decide("drop", np.flatnonzero(study.source.y == "plain").tolist())
    settled(study)
    assert "--lose-classes" in study.see()["warning"]
    study.decide("drop", list(range(160)))
    settled(study)
    (job,) = [one for one in study.state()["jobs"] if one["name"] == "after"]
    assert job["state"] == "failed"
    assert "Every row is dropped" in job["error"]


def test_the_accuracy_is_that_of_measure_cleaning(study: Study) -> None:
    from shapshift import measure_cleaning

    study.decide("drop", list(range(40)))
    study.measure("logistic")
    assert study.work.wait("accuracy") == "done"
    source = study.source
    decided = Decisions.of(source.X, source.y, ids=source.ids[:40], actions=["drop"] * 40, table_ids=source.ids)
    expected = measure_cleaning(
        decided, source.X, source.y, source.X_val, source.y_val, "logistic", ids=source.ids, repeats=3, task="class"
    )
    assert study.effect is not None
    got = {(line["measure"], line["what"]): line["value"] for line in study.effect["lines"]}
    assert got["balanced accuracy", "after"] == expected.value("logistic", "balanced accuracy", "after")[0]
    with pytest.raises(ValueError, match="must be 'logistic'"):
        study.measure("oracle")


# Work


def test_work_can_be_cancelled_and_says_how_far_it_is() -> None:
    from shapshift._progress import progress_bar

    work, started, go = Work(), threading.Event(), threading.Event()

    def count() -> None:
        with progress_bar("Counting", 10, False) as advance:
            advance(4)
            started.set()
            go.wait(10)
            with progress_bar("Inside", 99, False) as inner:
                inner(1)
            advance(6)

    work.start("count", "Counting", count)
    started.wait(10)
    (job,) = work.facts()
    assert (job["step"], job["done"], job["total"]) == ("Counting", 4, 10)
    work.start("next", "Next", lambda: None)
    work.cancel("count")
    go.set()
    assert work.wait("count") == "cancelled"
    assert work.wait("next") == "done"


def test_a_valuation_is_cancelled_inside() -> None:
    from shapshift._progress import watched

    source = make_source(n=400, m=400)

    def stop(label: str, done: int, total: int) -> None:
        if done:
            raise CancelledError

    with pytest.raises(CancelledError), watched(stop):
        source.value(np.arange(400), source.y)


def test_a_bug_is_reported_and_the_next_job_runs() -> None:
    told: list[str] = []
    work = Work(told.append)
    work.start("bug", "Bug", lambda: 1 / 0)
    assert work.wait("bug") == "failed"
    assert "ZeroDivisionError" in told[0]
    work.start("next", "Next", lambda: None)
    assert work.wait("next") == "done"


# Ask


def test_points_are_left_out_one_by_one() -> None:
    from shapshift.audit import point_influence

    source = make_source(n=60, m=12)
    model = source.fit()
    valuation = model.value(source.X_val, source.y_val)
    found = point_influence(model, source.X_val, source.y_val, valuation, progress=False)
    for j in range(12):
        rest = np.arange(12) != j
        without = model.value(source.X_val[rest], source.y_val[rest]).values
        alone = model.value(source.X_val[[j]], source.y_val[[j]]).values
        assert found.change[j] == pytest.approx(
            np.sqrt(np.mean((without - valuation.values) ** 2)) / valuation.values.std()
        )
        assert found.flips[j] == ((without > 0) != (valuation.values > 0)).sum()
        assert found.agreement[j] == pytest.approx(np.corrcoef(alone, without)[0, 1])
    with pytest.raises(ValueError, match="two points"):
        point_influence(model, source.X_val[:1], source.y_val[:1], model.value(source.X_val[:1], source.y_val[:1]))


def test_the_validation_set_answers(page: Browser, running: Running) -> None:
    assert running.study is not None
    before = page.json("/api/ask")
    assert [one["id"] for one in before["sections"]] == ["trust", "boundary"]
    assert not before["audited"]
    page.post("/api/find", what="audit")
    page.post("/api/find", what="influence")
    assert {job["state"] for job in page.settled()["jobs"]} == {"done"}
    found = page.json("/api/ask")
    assert [one["id"] for one in found["sections"]] == ["trust", "shift", "boundary", "neighbours"]
    assert found["verdict"] == running.study.audit.finding
    change = [point["change"] for point in found["influence"]]
    assert change == sorted(change, reverse=True)
    profile = page.json("/api/profile")
    assert sum(level[1] for level in profile["levels"]) == pytest.approx(1)


# For operators


def make_market(folder: Path) -> Path:
    """A ledger of one closed round, in the working directory."""
    pytest.importorskip("sqlalchemy", reason="sqlalchemy is not installed")
    rng = np.random.default_rng(0)
    for name, n in (("val.csv", 30), ("ann.csv", 20), ("bob.csv", 25)):
        y = rng.integers(0, 2, n)
        X = rng.normal(size=(n, 2)) + y[:, None]
        labels = np.array(["no", "yes"])[y].tolist()
        pa.csv.write_csv(pa.table({"a": X[:, 0], "b": X[:, 1], "class": labels}), folder / name)
    assert run("market", "init", "m.db", "--issuer", "Example Ltd").code == 0
    opened = ("--val", "val.csv", "--label", "class", "--budget", 900)
    assert run("market", "open", "m.db", "2026-10", *opened).code == 0
    for seller in ("ann", "bob"):
        assert run("market", "submit", "m.db", "2026-10", seller, f"{seller}.csv").code == 0
    assert run("market", "close", "m.db", "2026-10", "--val", "val.csv").code == 0
    return folder / "m.db"


def test_a_sellers_page_has_nothing_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from shapshift.app.sellers import Sellers

    monkeypatch.chdir(tmp_path)
    running = Running(None, tmp_path / "none.csv", Sellers(str(make_market(tmp_path)), "m.db"))
    try:
        page = running.browser()
        assert page.json("/api/about") == {"study": None, "ledger": "m.db"}
        assert page.ask("/api/see").status == 400
        (one,) = page.json("/api/sellers")
        assert one["sellers"] == ["ann", "bob"]
        answer = page.ask("/statement/0/0")
        text = answer.body.decode()
        assert "ann" in text
        assert "Example Ltd" in text
        assert "bob" not in text
        assert "sandbox" in answer.headers["content-security-policy"]
        history = page.json("/api/history/0/0")
        assert [line["what"] for line in history] == ["submit", "paid"]
        assert "bob" not in json.dumps(history)
        assert page.ask("/statement/0/9").status == 400
        assert page.ask("/statement/7/0").status == 400
        assert Browser(running.server.port).ask("/statement/0/0").status == 403
    finally:
        running.close()


# The command


def started(folder: Path, *arguments: object) -> tuple[subprocess.Popen[str], str]:
    command = [sys.executable, "-m", "shapshift", "app", *map(str, arguments), "--no-browser"]
    process = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ}
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("Open http://127.0.0.1:"), line + (process.stderr.read() if process.stderr else "")
    return process, line.split()[1]


def write_tables(folder: Path) -> None:
    from cli_files import make_tables

    for name, table in zip(("train", "val"), make_tables(), strict=True):
        pa.csv.write_csv(table, folder / f"{name}.csv")


def test_results_open_and_decisions_are_replayed_by_clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:

    write_tables(tmp_path)
    monkeypatch.chdir(tmp_path)
    columns = ("--label", "class", "--id", "row", "--owner", "seller")
    assert run("value", "train.csv", "val.csv", *columns, "--out", "run1").code == 0
    process, link = started(tmp_path, "run1")
    try:
        page = Browser(int(link.split(":")[2].partition("/")[0]))
        page.open(link)
        assert Browser(page.port).ask(link.partition(page.host)[2]).status == 403
        page.settled()
        got = {row["id"]: row["value"] for row in page.json("/api/rows?at=" + ",".join(map(str, range(80))))}
        valued = pa.parquet.read_table(tmp_path / "run1" / "values.parquet")
        assert got == dict(zip(valued["id"].to_pylist(), valued["value"].to_pylist(), strict=True))
        page.post("/api/decide", action="drop", rows=[0, 1])
        page.post("/api/decide", action="relabel", rows=[2], label="no")
        page.post("/api/decide", action="weight", rows=[3], weight=0.5)
        about = page.json("/api/about")["study"]
        assert page.settled()["counts"]["drop"] == 2
    finally:
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    assert "Ended. Your decisions are in" in out
    (fresh,) = (line for line in out.splitlines() if line.startswith("Open "))  # for whoever comes with a used link
    assert fresh != f"Open {link}"
    assert "Traceback" not in err
    words = [*about["replay"].split()[1:], "--decisions", about["log"], "--models", "none", "--out", "cleaned"]
    ran = run(*words)
    assert ran.code == 0, ran.err
    with open(tmp_path / "cleaned" / "cleaned.csv", newline="") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == 78
    assert lines[0]["row"] == "t002"
    assert lines[0]["class"] == "no"
    assert float(lines[1]["weight_2"]) == 0.5


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("app",), "Name a folder of results, tables, or a ledger"),
        (("app", "none.csv", "val.csv", "--label", "class"), "none.csv"),
        (("app", "train.csv", "val.csv", "--label", "class", "--image-shape", "8"), "must be such as 8x8"),
        (("app", "train.csv", "--label", "class", "--budget", "10"), "--budget needs VAL"),
        (("app", "run1", "val.csv"), "Leave VAL out"),
        (("app", "run1", "--neighbors", "3"), "has its own options"),
        (("app", "found"), "The app opens those of"),
    ],
)
def test_wrong_options_are_said(
    arguments: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    write_tables(tmp_path)
    monkeypatch.chdir(tmp_path)
    columns = ("--label", "class", "--id", "row", "--owner", "seller")
    if "run1" in arguments:
        assert run("value", "train.csv", "val.csv", *columns, "--out", "run1").code == 0
    if "found" in arguments:
        assert run("duplicates", "train.csv", "--label", "class", "--out", "found").code == 0
    ran = run(*arguments)
    assert ran.code == 2
    assert said in " ".join(ran.err.split())
    assert not (tmp_path / "decisions.csv").exists()


def test_the_browser_is_not_started_with_the_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from shapshift.app.server import Server

    write_tables(tmp_path)
    monkeypatch.chdir(tmp_path)
    started_with: list[str] = []
    found: list[tuple[int, int, str]] = []

    def look(self: Server) -> int:
        path = Path(started_with[0].removeprefix("file://"))
        modes = [stat.S_IMODE(place.stat().st_mode) for place in (path.parent, path)]
        found.append((*modes, path.read_text(encoding="utf-8")))
        assert self.study is not None
        self.study.work.wait("values")
        self._socket.close()
        return 0

    monkeypatch.setattr(webbrowser, "open", started_with.append)
    monkeypatch.setattr(Server, "serve_here", look)
    ran = run("app", "train.csv", "val.csv", "--label", "class", "--id", "row", "--drop", "seller")
    assert ran.code == 0, ran.err
    link = next(line for line in ran.out.splitlines() if line.startswith("Open ")).split()[1]
    ((url,), ((folder, file, text),)) = started_with, found
    assert url.startswith("file://")
    assert (folder, file) == (0o700, 0o600)
    assert f'content="0;url={link}"' in text
    assert not Path(url.removeprefix("file://")).parent.exists()
    started_with.clear()
    monkeypatch.setattr(Server, "serve_here", lambda self: self._socket.close() or 0)
    assert (
        run("app", "train.csv", "val.csv", "--label", "class", "--id", "row", "--drop", "seller", "--no-browser").code
        == 0
    )
    assert not started_with


def test_rows_as_csv_run_nothing(tmp_path: Path) -> None:
    source = make_source()
    column = source.train.column_names.index("note")
    notes = source.train["note"].to_pylist()
    notes[3] = '=HYPERLINK("http://evil")'
    study = Study(
        replace(
            source,
            train=source.train.set_column(column, "=note", pa.array(notes)),
            features=[*source.features[:3], "=note"],
        ),
        DecisionLog(tmp_path / "log.csv"),
    )
    try:
        assert study.work.wait("values") == "done"
        study.decide("relabel", [3], label="benign" if source.y[3] != "benign" else HOSTILE)
        text = study.csv([3, 7])
        header, *lines = csv.reader(io.StringIO(text.removeprefix("\ufeff")))
        assert header[column] == "'=note"
        assert lines[0][column] == "'" + notes[3]
        rows = [dict(zip(header, line, strict=True)) for line in lines]
        assert [row["id"] for row in rows] == ["p003", "p007"]
        assert [float(row["value"]) for row in rows] == study.valuation.values[[3, 7]].tolist()
        assert [row["decision"] for row in rows] == ["relabel", ""]
        with pytest.raises(ValueError, match="positions from 0 to 159"):
            study.csv([160])
    finally:
        study.close()


def test_values_of_another_table_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from shapshift.cli._manifest import digest

    write_tables(tmp_path)
    monkeypatch.chdir(tmp_path)
    pa.csv.write_csv(pa.csv.read_csv("train.csv").slice(0, 40), "part.csv")
    for train, out in (("train.csv", "run1"), ("part.csv", "run2")):
        assert run("value", train, "val.csv", "--label", "class", "--id", "row", "--out", out).code == 0
    manifest, values = Path("run1", "manifest.json"), Path("run1", "valuation.npz")
    before = digest(values)
    values.write_bytes(Path("run2", "valuation.npz").read_bytes())
    manifest.write_text(manifest.read_text().replace(before, digest(values)))  # as whoever made the folder could
    ran = run("app", "run1", "--no-browser")
    assert ran.code == 2
    assert "are of 40 rows, and the table has 80" in " ".join(ran.err.split())


PAID = ("--owner", "seller", "--budget", 900)


@pytest.mark.parametrize(
    ("command", "arguments", "paid", "explains"),
    [
        (None, ("train.csv", "val.csv", *PAID), True, True),
        (None, ("train.csv", "val.csv", *PAID, "--pay-by", "owners", "--drop", "seller"), True, True),
        (None, ("train.csv", "val.csv", "--drop", "seller", "--point-weight", "balanced"), False, True),
        (None, ("train.csv", "val.csv", "--drop", "seller", "--method", "threshold:radius=1"), False, True),
        (None, ("train.csv", "--drop", "seller"), False, False),
        ("value", ("train.csv", "--groups", "seller"), False, False),
        ("value", ("train.csv", "val.csv", "--order", "seller"), False, False),
        ("value", ("train.csv", "val.csv", "--drop", "seller", "--clusters", "age"), False, True),
        ("report", ("train.csv", "val.csv", *PAID, "--repeats", 2, "--noise", 0.5), True, True),
        ("price", ("train.csv", "val.csv", *PAID, "--pay-by", "rows"), True, True),
        ("audit", ("train.csv", "val.csv", "--drop", "seller", "--repeats", 2, "--noise", 0.5), False, True),
    ],
    ids=str,
)
def test_everything_that_can_be_opened(
    command: str | None,
    arguments: tuple[object, ...],
    paid: bool,
    explains: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from shapshift.app.server import Server

    write_tables(tmp_path)
    monkeypatch.chdir(tmp_path)
    given = [*arguments, "--label", "class", "--id", "row"]
    if command is not None:
        assert run(command, *given, "--out", "done").code == 0
        given = ["done"]
    looked = []

    def look(self: Server) -> int:
        study = self.study
        assert study is not None
        assert study.work.wait("values") == "done", study.work.facts()
        for name in ("suspects", "copies"):
            assert study.work.wait(name) == "done", study.work.facts()
        if command in ("value", "report"):
            assert study.valuation is study.source.known["valuation"]
        study.decide("drop", [0, 3, 6])
        study.decide("relabel", [1], label="no" if study.source.y[1] == "yes" else "yes")
        settled(study)
        assert study.see()["exact"], study.follow.facts()
        clustered = "--clusters" in arguments
        assert study.source.is_plain == (command in (None, "audit") and explains and not (paid or clustered))
        rows, labels = study.left()
        expected = study.source.value(rows, labels)
        np.testing.assert_array_equal(study.rows.numbers["after"][rows], expected.values)
        payouts = study.see()["payouts"]
        assert set(payouts) == ({"before", "after"} if paid else set())
        for found in payouts.values():
            total = sum(float(one["payout"]) for one in found["owners"]) + float(found["unallocated"])
            assert total == pytest.approx(900)
        assert study.offers()["explain"] == explains
        if explains:
            assert "gain" in study.why(5)
        assert (study.audit is not None) == (command in ("audit", "report"))
        looked.append(study)
        self._socket.close()
        return 0

    monkeypatch.setattr(Server, "serve_here", look)
    ran = run("app", *given, "--no-browser")
    assert ran.code == 0, ran.err
    assert looked


def test_numbers_to_predict_are_decided_about(tmp_path: Path) -> None:
    from shapshift.knn import KNNRegressionShapley

    rng = np.random.default_rng(0)
    X, X_val = rng.normal(size=(60, 2)), rng.normal(size=(20, 2))
    y, y_val = X[:, 0].round(3), X_val[:, 0].round(3)

    def value(rows: Any, labels: Any) -> Any:
        return KNNRegressionShapley().fit(X[rows], labels).value(X_val, y_val)

    source = make_source(
        train=pa.table({"a": X[:, 0], "b": X[:, 1], "y": y}),
        features=["a", "b"],
        X=X,
        y=y,
        X_val=X_val,
        y_val=y_val,
        ids=None,
        owners=None,
        task="number",
        value=value,
        fit=lambda: KNNRegressionShapley().fit(X, y),
        pay=None,
        suspect=lambda: find_suspects(X, y, task="number"),
        copies=None,
    )
    study = Study(source, DecisionLog(tmp_path / "decisions.csv"))
    try:
        assert study.work.wait("values") == "done", study.work.facts()
        study.decide("relabel", [3], label="1.25")
        with pytest.raises(ValueError, match="must be a number"):
            study.decide("relabel", [3], label="much")
        settled(study)
        rows, labels = study.left()
        assert labels[3] == 1.25
        np.testing.assert_array_equal(study.rows.numbers["after"], value(rows, labels).values)
        assert study.rows.view({"sort": "label"}).tolist() == np.argsort(y, kind="stable").tolist()
        assert study.work.wait("suspects") == "done"
        study.measure("forest")
        assert study.work.wait("accuracy") == "done", study.work.facts()
        again = study.log.read().apply(source.train.select(["a", "b"]), y, task="number")
        assert again[1][3] == 1.25
    finally:
        study.close()


def test_a_port_that_is_taken_is_said(running: Running, tmp_path: Path) -> None:
    from shapshift.app.server import Server

    with pytest.raises(ValueError, match=f"The port {running.server.port} is taken"):
        Server(None, None, running.server.port, print)
