"""An app on a small table, for its tests: the study, the server, and requests as a browser would send them."""

from __future__ import annotations

import http.client
import json
import re
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa

from shapshift import KNNShapley, find_duplicates, find_suspects
from shapshift.cleaning import DecisionLog

HOSTILE = "</script><script>window.hit=1</script><img src=x onerror=window.hit=1>\u202e"
OWNERS = ("North clinic", "South clinic", "St. Mary's", HOSTILE)


def make_source(n: int = 160, m: int = 60, *, seed: int = 0, hostile: bool = True, **more: Any) -> Any:
    """A source of rows in two clouds, some with wrong labels, two of them copies; with hostile texts everywhere."""
    from shapshift.app.study import Source
    from shapshift.price import allocate_budget

    rng = np.random.default_rng(seed)
    text = HOSTILE if hostile else "plain"
    names = np.array(["benign", text], dtype=object)

    def draw(size: int) -> tuple[Any, Any]:
        code = rng.integers(0, 2, size)
        return rng.normal(size=(size, 3)) + 2.0 * code[:, None], code

    (X, code), (X_val, code_val) = draw(n), draw(m)
    X[1], code[1] = X[0], code[0]
    wrong = rng.choice(n, n // 10, replace=False)
    code[wrong] = 1 - code[wrong]
    y, y_val = names[code], names[code_val]
    ids = np.array([f"p{i:03d}" for i in range(n)], dtype=object)
    ids[5] = f"p005 {text}"
    owners = np.array(OWNERS, dtype=object)[rng.integers(0, 4, n)]
    note = [f"{text} {i}" if i % 5 == 0 else f"note number {i}" for i in range(n)]
    columns = {"id": ids.tolist(), "size": X[:, 0], text: X[:, 1], "age": X[:, 2], "note": note, "class": y.tolist()}
    table = pa.table(columns)

    def value(rows: Any, labels: Any) -> Any:
        return KNNShapley(progress=False).fit(X[rows], labels, ids=ids[rows]).value(X_val, y_val)

    def audit() -> Any:
        from shapshift.audit import audit_shift

        return audit_shift(KNNShapley().fit(X, y, ids=ids), X_val, y_val, noise=[0.5, 2.0], repeats=2)

    given: dict[str, Any] = {
        "fit": lambda: KNNShapley(progress=False).fit(X, y, ids=ids),
        "is_explained": True,
        "pay": lambda valuation, rows: allocate_budget(valuation, 1000, owners=owners[rows]),
        "suspect": lambda: find_suspects(X, y, ids=ids, model=None, random_state=0),
        "copies": lambda: find_duplicates(X, y, owners=owners, X_val=X_val, y_val=y_val, ids=ids, radius=0),
        "audit": audit,
        "replay": "shapshift clean train.csv --label class",
    }
    fields = {"name": f"train {text}", "train": table, "features": ["size", text, "age", "note"], "X": X, "y": y}
    fields |= {"X_val": X_val, "y_val": y_val, "ids": ids, "ids_val": None, "owners": owners, "task": "class"}
    return Source(**{**fields, "value": value, **given, **more})


class Browser:
    """Requests to a server, with the cookie and the token of a page."""

    def __init__(self, port: int) -> None:
        self.port, self.host, self.cookie, self.csrf = port, f"127.0.0.1:{port}", "", ""

    def ask(
        self, path: str, method: str = "GET", body: Any = None, headers: dict[str, str] | None = None
    ) -> SimpleNamespace:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        sent = {"Host": self.host} | ({"Cookie": self.cookie} if self.cookie else {})
        data = None
        if method == "POST":
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            sent |= {"Origin": f"http://{self.host}", "Content-Type": "application/json"}
            sent["X-Shapshift-CSRF"] = self.csrf
        sent |= headers or {}
        connection.request(method, path, data, {name: text for name, text in sent.items() if text})
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        return SimpleNamespace(status=answer.status, headers=dict(answer.getheaders()), body=content)

    def open(self, link: str) -> None:
        """Open a link: take the cookie, and read the token of the page."""
        answer = self.ask(link.partition(self.host)[2])
        assert answer.status == 200, answer.body
        self.cookie = answer.headers["set-cookie"].partition(";")[0]
        (self.csrf,) = re.findall(r'name="csrf" content="([^"]+)"', self.ask("/").body.decode())

    def json(self, path: str) -> Any:
        answer = self.ask(path)
        assert answer.status == 200, answer.body
        return json.loads(answer.body)

    def post(self, path: str, **body: Any) -> Any:
        answer = self.ask(path, "POST", body)
        assert answer.status == 200, answer.body
        return json.loads(answer.body)

    def until(self, holds: Callable[[dict[str, Any]], object], seconds: float = 60.0) -> dict[str, Any]:
        """Ask for the state until something holds."""
        for _ in range(int(seconds / 0.05)):
            state: dict[str, Any] = self.json("/api/state")
            if holds(state):
                return state
            threading.Event().wait(0.05)
        raise AssertionError(state)

    def settled(self) -> dict[str, Any]:
        """Wait until nothing is under way."""
        return self.until(
            lambda s: s["ready"] and all(j["state"] in ("done", "failed", "cancelled") for j in s["jobs"])
        )


class Running:
    """A server in a thread, with its study and links."""

    def __init__(self, source: Any, path: Path, sellers: Any = None) -> None:
        from shapshift.app.server import Server
        from shapshift.app.study import Study

        self.bugs: list[str] = []
        self.study = None if source is None else Study(source, DecisionLog(path), self.bugs.append)
        self.printed: list[str] = []
        self.server = Server(self.study, sellers, 0, self.printed.append)
        self.thread = self.server.serve_aside()
        while not self.server.started:
            threading.Event().wait(0.01)

    def browser(self) -> Browser:
        made = Browser(self.server.port)
        made.open(self.server.guard.link())
        return made

    def close(self) -> None:
        self.server.should_exit = True
        self.thread.join(10)
        if self.study is not None:
            self.study.close()
        assert self.bugs == []
