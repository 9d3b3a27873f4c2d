"""The server of the live page: `spo inspect RUN --serve`.

It listens on 127.0.0.1 only and serves one page and the requests of `spo.inspection.protocol`. What it refuses is in
`spo.inspection.guarding`. It opens no file and imports nothing for a request.

Each page that is opened has a session of its own. One request at a time is computed; the others wait in a queue.
"""

import collections
import contextlib
import http.server
import json
import secrets
import socket
import socketserver
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

from spo.checks import printable
from spo.inspection import guarding
from spo.inspection.guarding import Refused
from spo.inspection.html import make_page
from spo.quoting import quote
from spo.training import memory

#: Sessions that are kept. A further one replaces the one that was used least recently.
MAX_SESSIONS = 8
#: Requests that wait while another one is computed.
MAX_WAITING = 8
#: Connections at a time. More are closed at once.
MAX_CONNECTIONS = 64
#: Seconds after which a connection that sends nothing is closed, and a waiting request is refused.
IDLE_SECONDS, WAIT_SECONDS = 10.0, 300.0


class SessionLike(Protocol):
    """An episode that is played by hand, see `spo.inspection.session`."""

    def answer(self, path: str, request: Any) -> dict[str, Any]:
        """Returns the answer to a request. Raises ValueError with a sentence if the request is wrong."""


class Limits(NamedTuple):
    """Limits of a server."""

    sessions: int = MAX_SESSIONS
    waiting: int = MAX_WAITING
    connections: int = MAX_CONNECTIONS
    idle_seconds: float = IDLE_SECONDS
    wait_seconds: float = WAIT_SECONDS


LIMITS = Limits()

# --- Sessions and the queue -------------------------------------------------------------------------------------------


class Sessions:
    """The sessions of all open pages by name."""

    def __init__(self, make_session: Callable[[], SessionLike], limit: int):
        """Starts without sessions."""
        self._make = make_session
        self._limit = limit
        self._by_name: collections.OrderedDict[str, SessionLike] = collections.OrderedDict()
        self._lock = threading.Lock()

    def open(self) -> tuple[str, SessionLike]:
        """Starts a session and returns its name. The session that was used least recently may end."""
        name, session = secrets.token_urlsafe(12), self._make()
        with self._lock:
            self._by_name[name] = session
            while len(self._by_name) > self._limit:
                self._by_name.popitem(last=False)
        return name, session

    def find(self, name: str) -> SessionLike:
        """Returns a session by name."""
        with self._lock:
            if name not in self._by_name:
                raise Refused(410, "The session of this page has ended, because others were opened: reload the page.")
            self._by_name.move_to_end(name)
            return self._by_name[name]


class Gate:
    """Lets one request at a time through. A limited number of others wait."""

    def __init__(self, max_waiting: int, wait_seconds: float):
        """Starts empty."""
        self._max_waiting = max_waiting
        self._wait_seconds = wait_seconds
        self._busy = threading.Lock()
        self._count = threading.Lock()
        self.num_waiting = 0

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Waits for its turn. Refuses the request if too many wait, or if it waits too long."""
        if not self._busy.acquire(blocking=False):
            with self._waiting():
                if not self._busy.acquire(timeout=self._wait_seconds):
                    raise Refused(503, "The searches before this one took too long: try again.")
        try:
            yield
        finally:
            self._busy.release()

    @contextlib.contextmanager
    def _waiting(self) -> Iterator[None]:
        with self._count:
            if self.num_waiting >= self._max_waiting:
                raise Refused(503, f"{self._max_waiting} requests are waiting already: try again in a moment.")
            self.num_waiting += 1
        try:
            yield
        finally:
            with self._count:
                self.num_waiting -= 1

    def wait_until_empty(self, seconds: float) -> bool:
        """Returns True as soon as nothing is computed, or False after some seconds."""
        if not self._busy.acquire(timeout=seconds):
            return False
        self._busy.release()
        return True


# --- The server -------------------------------------------------------------------------------------------------------


class Server(socketserver.ThreadingTCPServer):
    """The server. `serve_forever` answers requests until `shutdown` is called from another thread."""

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False  # an idle connection does not delay the end
    request_queue_size = MAX_CONNECTIONS

    def __init__(
        self,
        make_session: Callable[[], SessionLike],
        *,
        port: int = 0,
        is_compiling: Callable[[], bool] = lambda: False,
        limits: Limits = LIMITS,
    ):
        """Listens on 127.0.0.1.

        Args:
          make_session: starts the session of a page.
          port: port number; 0: any free one.
          is_compiling: returns True while a program is compiled.
          limits: limits of the server.
        """
        self.token = secrets.token_urlsafe(24)
        self.sessions = Sessions(make_session, limits.sessions)
        self.gate = Gate(limits.waiting, limits.wait_seconds)
        self.is_compiling = is_compiling
        self.idle_seconds = limits.idle_seconds
        self._connections = threading.BoundedSemaphore(limits.connections)
        try:
            super().__init__(("127.0.0.1", port), Handler)
        except OSError as error:
            raise OSError(
                f"The server can't listen on port {port}: {error.strerror}. Choose another --port."
            ) from error

    @property
    def port(self) -> int:
        """The port number."""
        return self.server_address[1]

    @property
    def address(self) -> str:
        """The address of the page, with its token."""
        return f"http://127.0.0.1:{self.port}/?token={self.token}"

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answers a connection in a thread of its own, or closes it if there are too many."""
        if not self._connections.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answers one connection."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._connections.release()

    def handle_error(self, *_: Any) -> None:
        """Prints a line for an error of this program. A browser that has gone is not one."""
        error = sys.exc_info()[1]
        if isinstance(error, Exception) and not isinstance(error, OSError):
            _print_error(error)


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers one request and closes the connection."""

    server: Server
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        """Limits the time that a connection may be silent."""
        self.request.settimeout(self.server.idle_seconds)
        super().setup()

    def do_GET(self) -> None:
        """Answers with the page."""
        self._answer(self._make_page)

    def do_POST(self) -> None:
        """Answers a request of the page."""
        self._answer(self._make_answer)

    def _refuse_method(self) -> None:
        self._answer(_refuse_method)

    do_HEAD = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_TRACE = do_CONNECT = _refuse_method

    def _answer(self, make: Callable[[], tuple[str, bytes]]) -> None:
        try:
            guarding.check_sender(self.headers, self.server.port)
            kind, body = make()
        except Refused as refusal:
            self._send_error(refusal.status, str(refusal))
        except TimeoutError:
            self._send_error(408, "The request did not arrive in time.")
        else:
            self._send(200, kind, body)

    def _make_page(self) -> tuple[str, bytes]:
        guarding.check_page_request(self.path, self.server.token)
        with self.server.gate.entered():
            name, session = self.server.sessions.open()
            document = _compute(session, "/api/session", {})
        document["live"] = {**document.get("live", {}), "session": name}
        return "text/html; charset=utf-8", make_page(document).encode()

    def _make_answer(self) -> tuple[str, bytes]:
        path = guarding.check_api_request(self.path, self.headers, self.server.token)
        length = guarding.body_length(self.headers)
        body = self.rfile.read(length)
        if len(body) < length:
            raise Refused(400, "The request is shorter than its Content-Length.")
        request = guarding.parse_body(body)
        session = self.server.sessions.find(self.headers.get(guarding.SESSION_HEADER, ""))
        return "application/json", to_json(self._compute(path, session, request))

    def _compute(self, path: str, session: SessionLike, request: dict[str, Any]) -> dict[str, Any]:
        if path == "/api/status":  # answered while another request is computed
            if request:
                raise Refused(400, "/api/status has no fields.")
            return {"compiling": self.server.is_compiling(), "queue": self.server.gate.num_waiting}
        with self.server.gate.entered():
            return _compute(session, path, request)

    # --- Answers ------------------------------------------------------------------------------------------------------
    def send_error(self, code: int, *_: Any, **__: Any) -> None:
        """Answers a request that is not HTTP, as `http.server` finds it."""
        self._send_error(code, "This is not a request that the server takes.")

    def _send_error(self, status: int, sentence: str) -> None:
        self._send(status, "application/json", to_json({"error": sentence}))

    def _send(self, status: int, kind: str, body: bytes) -> None:
        self.close_connection = True
        self.send_response(status)
        for name, value in {
            **SECURITY_HEADERS,
            **({"Allow": "GET, POST"} if status == 405 else {}),
            **({"Retry-After": "1"} if status == 503 else {}),
            "Content-Type": kind,
            "Content-Length": str(len(body)),
            "Connection": "close",
        }.items():
            self.send_header(name, value)
        self.end_headers()
        if getattr(self, "command", None) != "HEAD":
            self.wfile.write(body)
        self._finish_reading()

    def _finish_reading(self) -> None:
        """Drops what the client still sends: closing with unread data would take the answer away from it."""
        with contextlib.suppress(OSError):
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_WR)
            self.connection.settimeout(min(0.5, self.server.idle_seconds))
            for _ in range(16):
                if not self.rfile.read1(65_536):
                    break

    def version_string(self) -> str:
        """Returns the name of the server, without versions."""
        return "spo"

    def log_message(self, format: str, *args: Any) -> None:
        """Prints nothing: a line of the log would contain what others send."""


#: The page's own policy, with the digests of its script and its style, is in the page.
SECURITY_HEADERS = {
    "Content-Security-Policy": "frame-ancestors 'none'; base-uri 'none'; form-action 'none'; object-src 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def _refuse_method() -> tuple[str, bytes]:
    raise Refused(405, "The page is read with GET, and requests are sent with POST.")


def _compute(session: SessionLike, path: str, request: dict[str, Any]) -> dict[str, Any]:
    try:
        return session.answer(path, request)
    except ValueError as error:
        raise Refused(400, str(error)) from error
    except Exception as error:
        if memory.is_out_of_memory(error):
            raise Refused(500, memory.describe(error)) from error
        _print_error(error)
        raise Refused(500, "The search failed: the terminal has the reason.") from error


def to_json(answer: dict[str, Any]) -> bytes:
    """Returns an answer as bytes."""
    return json.dumps(answer, allow_nan=False, separators=(",", ":")).encode()


def _print_error(error: Exception) -> None:
    print(f"spo: A request failed: {printable(quote(error))}.", file=sys.stderr, flush=True)


def serve(server: Server, end_seconds: float = 3.0) -> None:
    """Answers requests until Ctrl-C. Then a search that is running gets some seconds to end."""
    try:
        server.serve_forever(poll_interval=0.1)
    except KeyboardInterrupt:
        pass
    finally:
        server.server_close()
    server.gate.wait_until_empty(end_seconds)


__all__ = ["Limits", "Server", "serve", "to_json"]
