"""Who is let in: whoever started the command, from a page of this server, and nobody else.

Other users of the machine can reach the port, and so can pages of other sites that the browser has open. The first have
no token; the second are stopped by the cookie's SameSite, by the Origin of their requests, by a second token that only
our own page can read, and by the Host they ask for, which a domain that was rebound to 127.0.0.1 does not change.
"""

import contextlib
import hmac
import html
import os
import secrets
import tempfile
import threading
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]
Receive = Callable[[], Awaitable[Message]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]

#: Largest body of a request: a decision about a million rows fits.
LARGEST = 32_000_000

_POLICY = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self'",
    "connect-src": "'self'",
    "frame-src": "'self'",
    "base-uri": "'none'",
    "form-action": "'none'",
    "frame-ancestors": "'none'",
}
#: Policy of a page of statements, which is shown in a frame of ours.
FRAMED = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'self'; sandbox"
_HEADERS = {
    "content-security-policy": "; ".join(f"{name} {what}" for name, what in _POLICY.items()),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
_PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="color-scheme" content="light dark">
<meta name="viewport" content="width=device-width, initial-scale=1">{head}<title>shapshift</title></head>
<body><h1>{title}</h1><p>{text}</p></body></html>"""
_FORWARD = '<meta http-equiv="refresh" content="0;url={}"><link rel="icon" href="{}">'
_OPENING = {"title": "Opening", "text": "One moment."}
# The browser asks for the page itself again: on a redirect from elsewhere it would hold the new cookie back.
_OPENED = _PAGE.format(head=_FORWARD.format("/", "/static/icon.svg"), **_OPENING)
_CLOSED = _PAGE.format(
    head='<link rel="icon" href="data:,">',
    title="This page is not open to you",
    text="Open the link that the command printed. A link works once; where it was used already, the command has "
    "printed another one.",
)


@contextlib.contextmanager
def private_page(link: str) -> Iterator[Path]:
    """Write a page that forwards to ``link`` into a file that only this user can read; it is removed at the end.

    A browser is started with the file's name: its command line, unlike the file, can be read by all users.
    """
    with tempfile.TemporaryDirectory(prefix="shapshift-app-") as folder:  # mode 0700
        path = Path(folder) / "open.html"
        page = _PAGE.format(head=_FORWARD.format(html.escape(link), "data:,"), **_OPENING)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(page)
        yield path


class Guard:
    """Middleware that lets requests of one session through, and gives all responses their headers.

    Parameters
    ----------
    inner : ASGI application
    port : int
        Where the server listens.
    print_link : callable
        Told a new link when one that was used already is opened.
    """

    def __init__(self, inner: Application, port: int, print_link: Callable[[str], object]) -> None:
        self._inner, self._port, self._print = inner, port, print_link
        self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
        self._cookie = f"shapshift-{port}"
        self._session, self.csrf = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        self._token, self._lock = "", threading.Lock()

    def link(self) -> str:
        """Return a link that opens the page once, in place of any earlier one."""
        with self._lock:
            self._token = secrets.token_urlsafe(32)
            return f"http://127.0.0.1:{self._port}/?token={self._token}"

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        if scope["type"] != "http":
            return  # no web sockets

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = {name for name, _ in message["headers"]}
                more = [(n.encode(), v.encode()) for n, v in _HEADERS.items() if n.encode() not in own]
                message = {**message, "headers": [*message["headers"], *more]}
            await send(message)

        refused = self._refuse(scope)
        await (self._inner if refused is None else refused)(scope, receive, send_guarded)

    def _refuse(self, scope: Message) -> Response | None:
        """Return what is answered in place of the page; None for a request of the session."""
        headers, method = Headers(scope=scope), scope["method"]
        if headers.get("host") not in self._hosts:
            return _error(421, f"Ask 127.0.0.1:{self._port}.")
        known = self._knows(headers.get("cookie", ""))
        if method == "GET" and scope["path"] == "/":
            token = parse_qs(scope["query_string"].decode("ascii", "replace")).get("token", [""])[0]
            if token and known:
                return RedirectResponse("/", 303)
            if token:
                return self._exchange(token)
            return None if known else HTMLResponse(_CLOSED, 403)
        if not known:
            return _error(403, "Open the link that the command printed.")
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return _error(403, "Another site's page cannot ask for this.")
        if method in ("GET", "HEAD"):
            return None
        if headers.get("origin") != f"http://{headers['host']}":
            return _error(403, "A request that changes something must come from the page itself.")
        if not hmac.compare_digest(headers.get("x-shapshift-csrf", "").encode(), self.csrf.encode()):
            return _error(403, "The page is of an earlier start of the command. Reload it.")
        if headers.get("content-type", "").partition(";")[0] != "application/json":
            return _error(415, "The request must be JSON.")
        length = headers.get("content-length", "")
        if not length.isdecimal() or int(length) > LARGEST or "transfer-encoding" in headers:  # which hides the length
            return _error(413, f"The request must say its length, of at most {LARGEST:,} bytes.")
        return None

    def _knows(self, given: str) -> bool:
        # Servers on other ports share the cookies: whatever these hold, ours is found.
        cookie = cookie_parser(given).get(self._cookie, "")
        return hmac.compare_digest(cookie.encode(), self._session.encode())

    def _exchange(self, token: str) -> Response:
        """Give the session's cookie for the token, which is void then."""
        with self._lock:
            valid = bool(self._token) and hmac.compare_digest(token.encode(), self._token.encode())
            used = not self._token
            if valid:
                self._token = ""
        if not valid:
            if used:
                self._print(self.link())
            return HTMLResponse(_CLOSED, 403)
        response = HTMLResponse(_OPENED)
        response.set_cookie(self._cookie, self._session, httponly=True, samesite="strict", path="/")
        return response


def _error(status: int, text: str) -> Response:
    return JSONResponse({"error": text}, status)
