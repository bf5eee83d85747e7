"""What the page may ask for. Everything is behind :class:`~shapshift.app.security.Guard`."""

import functools
import html
import json
import math
from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from shapshift.app import ask, cells, security
from shapshift.app.sellers import Sellers
from shapshift.app.study import Study
from shapshift.checks.names import visible
from shapshift.exceptions import InputError

#: Files of the page: name to type and, where it is another package's, that.
_SCRIPT, _STYLE = "text/javascript; charset=utf-8", "text/css; charset=utf-8"
_MODULES = ("main", "api", "table", "map", "spread", "row", "figure", "see", "ask", "sellers")
_FILES = {
    **{f"{name}.js": ("app", f"static/{name}.js", _SCRIPT) for name in _MODULES},
    "app.css": ("app", "static/app.css", _STYLE),
    "icon.svg": ("app", "static/icon.svg", "image/svg+xml"),
    "report.css": ("report", "templates/report.css", _STYLE),
    "charts.js": ("report", "templates/charts.js", _SCRIPT),
    "echarts.js": ("report", "vendor/echarts.report.min.js", _SCRIPT),
}
#: Rows of a window, and letters of the query that names them.
_WINDOW = 400


class Pages:
    """The answers, of a study, of a ledger, or of both.

    Parameters
    ----------
    study : Study or None
    sellers : Sellers or None
    csrf : callable
        Returns the token that requests must carry.
    """

    def __init__(self, study: Study | None, sellers: Sellers | None, csrf: Callable[[], str]) -> None:
        self._study, self._sellers, self._csrf = study, sellers, csrf

    @property
    def study(self) -> Study:
        """The study; where there is none, nothing of it can be asked for."""
        if self._study is None:
            raise InputError("There are no tables here.")
        return self._study

    @property
    def sellers(self) -> Sellers:
        """The sellers of the ledger."""
        if self._sellers is None:
            raise InputError("There is no ledger here.")
        return self._sellers

    def app(self) -> Starlette:
        """Return the application."""
        gets: dict[str, Callable[[Request], Any]] = {
            "/api/about": lambda request: self._about(),
            "/api/state": lambda request: {} if self._study is None else self.study.state(),
            "/api/rows": self._rows,
            "/api/see": lambda request: self.study.see(),
            "/api/decisions": lambda request: self.study.decisions(),
            "/api/ask": lambda request: ask.answer(self.study),
            "/api/profile": lambda request: ask.profile(self.study),
            "/api/row/{row:int}": lambda request: self.study.row(request.path_params["row"]),
            "/api/why/{row:int}": lambda request: self.study.why(request.path_params["row"]),
            "/api/column/{name:path}": self._column,
            "/api/image/{row:int}/{column:int}": self._image,
            "/api/sellers": lambda request: self.sellers.rounds(),
            "/api/history/{round:int}/{seller:int}": lambda request: self.sellers.history(**request.path_params),
            "/statement/{round:int}/{seller:int}": self._statement,
            "/static/{name}": self._file,
            "/": self._page,
        }
        posts: dict[str, Callable[[dict[str, Any]], Any]] = {
            "/api/view": self._view,
            "/api/csv": self._csv,
            "/api/decide": self._decide,
            "/api/undo": self._undo,
            "/api/find": self._find,
            "/api/measure": self._measure,
            "/api/cancel": self._cancel,
        }
        routes = [Route(path, _answering(function), methods=["GET"]) for path, function in gets.items()]
        routes += [Route(path, _taking(function), methods=["POST"]) for path, function in posts.items()]
        return Starlette(routes=routes)

    def _page(self, request: Request) -> Response:
        text = _read("app", "static/app.html").decode().replace("{{ csrf }}", html.escape(self._csrf()))
        return Response(text, media_type="text/html; charset=utf-8")

    def _file(self, request: Request) -> Response:
        found = _FILES.get(request.path_params["name"])
        if found is None:
            return JSONResponse({"error": "There is no such file."}, 404)
        package, path, kind = found
        return Response(_read(package, path), headers={"content-type": kind})

    def _about(self) -> dict[str, Any]:
        found: dict[str, Any] = {} if self._study is None else self.study.about()
        return {"study": found or None, "ledger": None if self._sellers is None else self._sellers.name}

    def _rows(self, request: Request) -> Any:
        at = request.query_params.get("at", "").split(",")
        if len(at) > _WINDOW or not all(text.isdecimal() for text in at):
            raise InputError(f"'at' must be up to {_WINDOW} positions, separated by commas.")
        rows = self.study.rows.window([int(text) for text in at])
        return [row | self.study.decision(row["row"]) for row in rows]

    def _column(self, request: Request) -> Response:
        column = self.study.rows.column(request.path_params["name"])
        little = column.astype(column.dtype.newbyteorder("<"), copy=False)
        return Response(little.tobytes(), media_type="application/octet-stream", headers={"x-type": column.dtype.name})

    def _image(self, request: Request) -> Response:
        content, kind = cells.image(self.study.source, request.path_params["row"], request.path_params["column"])
        return Response(content, headers={"content-type": kind})

    def _statement(self, request: Request) -> Response:
        text = self.sellers.page(**request.path_params)
        return Response(text, headers={"content-type": "text/html; charset=utf-8"} | {
            "content-security-policy": security.FRAMED
        })  # fmt: skip

    def _view(self, given: dict[str, Any]) -> Response:
        order = self.study.rows.view(given)
        return Response(order.astype("<u4", copy=False).tobytes(), media_type="application/octet-stream")

    def _csv(self, given: dict[str, Any]) -> Response:
        return Response(self.study.csv(given.get("rows", [])), headers={"content-type": "text/csv; charset=utf-8"})

    def _decide(self, given: dict[str, Any]) -> dict[str, Any]:
        options = {name: given[name] for name in ("label", "weight", "reason") if given.get(name) is not None}
        operation = self.study.decide(str(given.get("action")), given.get("rows", []), **options)
        return {"operation": operation} | self.study.state()

    def _undo(self, given: dict[str, Any]) -> dict[str, Any]:
        operation = given.get("operation")
        return self.study.undo(operation if type(operation) is int else -1) | self.study.state()

    def _find(self, given: dict[str, Any]) -> dict[str, Any]:
        self.study.look_for(str(given.get("what")))
        return self.study.state()

    def _measure(self, given: dict[str, Any]) -> dict[str, Any]:
        self.study.measure(str(given.get("model")))
        return self.study.state()

    def _cancel(self, given: dict[str, Any]) -> dict[str, Any]:
        for work in (self.study.work, self.study.follow):
            work.cancel(str(given.get("name") or "?"))
        return self.study.state()


@functools.cache
def _read(package: str, path: str) -> bytes:
    return files(f"shapshift.{package}").joinpath(path).read_bytes()


def _answering(function: Callable[[Request], Any]) -> Callable[[Request], Any]:
    async def answer(request: Request) -> Response:
        return await run_in_threadpool(_response, function, request)

    return answer


def _taking(function: Callable[[dict[str, Any]], Any]) -> Callable[[Request], Any]:
    async def answer(request: Request) -> Response:
        try:
            given = json.loads(await request.body())
        except (ValueError, RecursionError):
            given = None
        if not isinstance(given, dict):
            return JSONResponse({"error": "The request must be a JSON object."}, 400)
        return await run_in_threadpool(_response, function, given)

    return answer


def _response(function: Callable[[Any], Any], given: Any) -> Response:
    try:
        found = function(given)
    except (ValueError, TypeError, OverflowError, OSError) as error:
        # What was asked for, or the disk; bugs are left to the server.
        return JSONResponse({"error": str(error)}, 400)
    return found if isinstance(found, Response) else JSONResponse(_plain(found))


def _plain(found: Any) -> Any:
    """Return what JSON knows: no number that is none, and no letter that hides or turns others round."""
    if isinstance(found, Mapping):
        return {str(name): _plain(part) for name, part in found.items()}
    if isinstance(found, list | tuple):
        return [_plain(part) for part in found]
    if hasattr(found, "tolist"):
        return _plain(found.tolist())
    if isinstance(found, float):
        return found if math.isfinite(found) else None
    return found if found is None or isinstance(found, bool | int) else visible(str(found))
