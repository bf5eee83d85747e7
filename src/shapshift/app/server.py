"""The process: a server on 127.0.0.1 that ends with Ctrl-C."""

import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import uvicorn

from shapshift.app.routes import Pages
from shapshift.app.security import Guard
from shapshift.app.sellers import Sellers
from shapshift.app.study import Study
from shapshift.exceptions import InputError

#: Seconds that answers under way have when the server ends.
_GRACE = 2


class Server(uvicorn.Server):
    """A server that says when it listens, and for which Ctrl-C is the usual end.

    Parameters
    ----------
    study : Study or None
    sellers : Sellers or None
    port : int
        0 takes a free one.
    print_link : callable
        Told a link whenever there is a new one.
    """

    def __init__(
        self, study: Study | None, sellers: Sellers | None, port: int, print_link: Callable[[str], object]
    ) -> None:
        self.study = study
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind(("127.0.0.1", port))
        except OSError as error:
            self._socket.close()
            raise InputError(
                f"The port {port} is taken. Leave out --port, or name another ({error.strerror})."
            ) from None
        self._socket.listen()  # from now on, whoever opens the link is waited for
        self.port: int = self._socket.getsockname()[1]
        pages = Pages(study, sellers, lambda: self.guard.csrf)
        self.guard = Guard(pages.app(), self.port, print_link)
        self._signal = 0
        super().__init__(
            uvicorn.Config(
                self.guard,
                log_config=None,
                access_log=False,
                lifespan="off",
                ws="none",
                server_header=False,
                timeout_graceful_shutdown=_GRACE,
            )
        )

    def serve_here(self) -> int:
        """Serve until it is told to end; returns the signal that did, 0 for none."""
        self.run(sockets=[self._socket])
        return self._signal

    def serve_aside(self) -> threading.Thread:
        """Serve in a thread, until ``should_exit`` is set."""
        thread = threading.Thread(target=self.serve_here, daemon=True)
        thread.start()
        return thread

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """End on Ctrl-C without raising it again: it is how the command ends."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def end(number: int, _: Any) -> None:
            self.force_exit = self.should_exit
            self.should_exit, self._signal = True, number

        before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
