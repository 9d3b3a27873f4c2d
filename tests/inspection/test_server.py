"""The server of the live page: what it serves, what it refuses, and several clients at once.

Most tests use a session that answers without a search, so that a thousand requests take seconds.
"""

import contextlib
import http.client
import json
import random
import re
import socket
import string
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("flax")

from inspection.serving import serving
from spo.inspection import guarding
from spo.inspection.protocol import MAX_REQUEST
from spo.inspection.server import LIMITS, Gate, Limits, Server, serve


class StubSession:
    """A session whose answers are short. `hold` makes a request wait, as a long search would."""

    made: int = 0
    served: int = 0

    def __init__(self) -> None:
        StubSession.made += 1
        self.number = StubSession.made
        self.released = threading.Event()
        self.entered = threading.Event()

    def answer(self, path: str, request: Any) -> dict[str, Any]:
        StubSession.served += 1
        if request.get("wrong"):
            raise ValueError("wrong must be left out.")
        if request.get("broken"):
            raise RuntimeError("a secret of the program")
        if request.get("hold"):
            self.entered.set()
            assert self.released.wait(20)
        return {"number": self.number, "path": path, "live": {"starts": None}}


@contextlib.contextmanager
def running(limits: Limits = LIMITS, **options: Any) -> Iterator[Server]:
    server = Server(StubSession, limits=limits, **options)
    with serving(server):
        yield server


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running(LIMITS._replace(idle_seconds=0.5)) as found:
        yield found


class Reply(dict):
    """The answer to a request, with its status and headers."""

    status: int
    headers: dict[str, str]


def send(server: Server, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None) -> Reply:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    try:
        connection.request(method, path, body, headers or {})
        response = connection.getresponse()
        content = response.read()
        is_json = response.headers["Content-Type"] == "application/json"
        reply = Reply(json.loads(content) if is_json and content else {"text": content.decode()})
        reply.status, reply.headers = response.status, dict(response.headers)
        return reply
    finally:
        connection.close()


def open_page(server: Server) -> str:
    """Returns the name of a new session."""
    reply = send(server, "GET", f"/?token={server.token}")
    assert reply.status == 200
    found = re.search(r'"session":"([\w-]+)"', reply["text"])
    assert found
    return found[1]


def post(server: Server, path: str, body: Any, session: str, **headers: str) -> Reply:
    headers = {
        "Content-Type": "application/json",
        "X-Spo-Token": server.token,
        "X-Spo-Session": session,
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    return send(server, "POST", path, body if isinstance(body, bytes) else json.dumps(body).encode(), headers)


# --- What is served ---------------------------------------------------------------------------------------------------
def test_the_page_and_its_requests_are_served(server):
    session = open_page(server)
    reply = post(server, "/api/search", {}, session)
    assert (reply.status, reply["path"]) == (200, "/api/search")
    origin = f"http://localhost:{server.port}"
    same = post(server, "/api/undo", {}, session, Origin=origin, Host=origin[7:], Sec_Fetch_Site="same-origin")
    assert same.status == 200


def test_answers_have_security_headers(server):
    page = send(server, "GET", f"/?token={server.token}")
    refused = send(server, "GET", "/")
    for headers in (page.headers, refused.headers):
        assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cache-Control"] == "no-store"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["Server"] == "spo"
        assert "Access-Control-Allow-Origin" not in headers
    assert "script-src 'sha256-" in page["text"]
    assert "connect-src 'self'" in page["text"]


def test_the_address_is_local_and_has_a_long_token(server):
    assert server.server_address[0] == "127.0.0.1"
    assert server.address == f"http://127.0.0.1:{server.port}/?token={server.token}"
    assert len(server.token) >= 32
    with running() as other:
        assert other.token != server.token


def test_a_port_that_is_taken_is_a_sentence(server):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=rf"can't listen on port {port}: .*Choose another --port"):
            Server(StubSession, port=port)


# --- What is refused --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 403),
        ({"Host": "evil.example:80"}, 403),
        ({"Host": "127.0.0.1"}, 403),
        ({"Host": "localhost:1"}, 403),
        ({"Host": "127.0.0.1.evil.example:{port}"}, 403),
        ({"Host": ""}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "https://127.0.0.1:{port}"}, 403),
        ({"Origin": "http://localhost:1"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"X-Spo-Token": ""}, 403),
        ({"X-Spo-Token": "x" * 32}, 403),
        ({"X-Spo-Token": "{token}x"}, 403),
        ({"X-Spo-Session": "other"}, 410),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ({"Content-Type": "application/json; charset=utf-16"}, 415),
        ({"Content-Encoding": "gzip"}, 411),
        ({"Content-Length": "-1"}, 411),
        ({"Content-Length": "+2"}, 411),
        ({"Content-Length": "٢"}, 411),
        ({"Content-Length": "9" * 5000}, 413),
        ({"Content-Length": str(MAX_REQUEST + 1)}, 413),
    ],
    ids=str,
)
def test_a_request_with_one_wrong_header_is_refused(server, headers, status):
    session = open_page(server)
    served = StubSession.served
    changed = {n: v.replace("{port}", str(server.port)).replace("{token}", server.token) for n, v in headers.items()}
    good = {"Content-Type": "application/json", "X-Spo-Token": server.token, "X-Spo-Session": session}
    good |= {"Content-Length": "2", "Host": f"127.0.0.1:{server.port}"} | changed
    lines = [f"{name}: {value}" for name, value in good.items()]
    text = "\r\n".join(["POST /api/search HTTP/1.1", *lines, "", "{}"])
    reply = raw(server, text.encode())
    assert f" {status} ".encode() in reply.partition(b"\r\n")[0], reply
    error = json.loads(reply.partition(b"\r\n\r\n")[2])["error"]
    assert error.endswith(".")
    assert StubSession.served == served


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 403),
        ("GET", "/?token=", 403),
        ("GET", "/?token=x", 403),
        ("GET", "/?token={token}&token={token}", 403),
        ("GET", "/?token={token}&x=1", 403),
        ("GET", "/?token={token}&x=1&y=2", 403),
        ("GET", "/index.html?token={token}", 404),
        ("GET", "/../../etc/passwd?token={token}", 404),
        ("GET", "//evil.example/?token={token}", 404),
        ("GET", "http://evil.example/?token={token}", 403),
        ("GET", "/api/search?token={token}", 404),
        ("GET", "/?token=" + "x" * 5000, 404),
        ("POST", "/", 404),
        ("POST", "/api/", 404),
        ("POST", "/api/search/", 404),
        ("POST", "/api/search?x=1", 404),
        ("POST", "/api/%73earch", 404),
        ("HEAD", "/?token={token}", 405),
        ("PUT", "/api/search", 405),
        ("DELETE", "/?token={token}", 405),
        ("OPTIONS", "/api/search", 405),
        ("TRACE", "/", 405),
        ("BREW", "/", 501),
    ],
)
def test_other_methods_and_paths_are_refused(server, method, path, status):
    session, served = open_page(server), StubSession.served
    headers = {"Content-Type": "application/json", "X-Spo-Token": server.token, "X-Spo-Session": session}
    reply = send(server, method, path.replace("{token}", server.token), b"{}" if method == "POST" else b"", headers)
    assert reply.status == status
    assert "root:" not in str(reply)
    assert StubSession.served == served


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"3",
        b"null",
        b'{"index": NaN}',
        b'{"index": Infinity}',
        b'{"index": 1, "index": 2}',
        b'{"a": ' + b"[" * 8000,
        b"[" * 8000 + b"]" * 8000,
        b'{"index": ' + b"9" * 10_000 + b"}",
        b'\xff\xfe{"index": 0}',
        '{"index": 0}'.encode("utf-16"),
        b"\xef\xbb\xbf{}",
        b"__import__('os').system('true')",
    ],
)
def test_a_body_that_is_no_object_is_refused(server, body):
    session, served = open_page(server), StubSession.served
    assert post(server, "/api/search", body, session).status == 400
    assert StubSession.served == served


def test_a_body_that_is_too_large_is_refused_with_its_answer_readable(server):
    session = open_page(server)
    reply = post(server, "/api/search", b'{"x": "' + b"a" * 300_000 + b'"}', session)
    assert (reply.status, reply["error"]) == (413, f"A request has at most {MAX_REQUEST:,} bytes.")
    largest = b'{"x": "' + b"a" * (MAX_REQUEST - 9) + b'"}'
    assert len(largest) == MAX_REQUEST
    assert post(server, "/api/search", largest, session).status == 200


def test_a_wrong_request_is_a_sentence_and_an_error_stays_in_the_terminal(server, capfd):
    session = open_page(server)
    reply = post(server, "/api/search", {"wrong": True}, session)
    assert (reply.status, reply["error"]) == (400, "wrong must be left out.")
    reply = post(server, "/api/search", {"broken": True}, session)
    assert (reply.status, reply["error"]) == (500, "The search failed: the terminal has the reason.")
    printed = capfd.readouterr().err
    assert "a secret of the program" in printed
    assert "Traceback" not in printed
    assert post(server, "/api/search", {}, session).status == 200


def raw(server: Server, data: bytes, then_close: bool = False) -> bytes:
    """Sends bytes and returns all that comes back."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        with contextlib.suppress(OSError):
            connection.sendall(data)
            if then_close:
                return b""
            connection.shutdown(socket.SHUT_WR)
        received = b""
        with contextlib.suppress(ConnectionResetError):
            while part := connection.recv(65_536):
                received += part
        return received


def damaged_requests(server: Server, session: str, count: int) -> Iterator[bytes]:
    """Yields requests that differ from a good one by a random damage, or are random bytes."""
    generator = random.Random(0)
    good = [
        b"POST /api/search HTTP/1.1",
        f"Host: 127.0.0.1:{server.port}".encode(),
        b"Content-Type: application/json",
        f"X-Spo-Token: {server.token}".encode(),
        f"X-Spo-Session: {session}".encode(),
        b"Content-Length: 2",
        b"",
        b"{}",
    ]
    letters = string.printable.encode()

    def noise(most: int) -> bytes:
        return bytes(
            generator.choices(letters if generator.random() < 0.5 else range(256), k=generator.randrange(most))
        )

    damages = [
        lambda lines: [noise(400)],
        lambda lines: [noise(40), *lines[1:]],
        lambda lines: [lines[0][: generator.randrange(20)], *lines[1:]],  # cut in the method, the path or the version
        lambda lines: [b"POST /api/" + noise(12) + b"x HTTP/1.1", *lines[1:]],
        lambda lines: [b"POST /api/search HTTP/9.9", *lines[1:]],
        lambda lines: [lines[0], b"Host: " + noise(30), *lines[2:]],
        lambda lines: [lines[0], b"Origin: http://" + noise(30) + b".example", *lines[1:]],
        lambda lines: [lines[0], lines[1], b"Host: evil.example", *lines[2:]],
        lambda lines: [*lines[:3], b"X-Spo-Token: " + noise(40), *lines[4:]],
        lambda lines: [*lines[:3], lines[3][: generator.randrange(13, 40)], *lines[4:]],
        lambda lines: [*lines[:2], b"Content-Type: " + noise(20), *lines[3:]],
        lambda lines: [*lines[:4], b"X-Spo-Session: " + noise(12), *lines[5:]],
        lambda lines: [*lines[:5], b"Content-Length: " + noise(6) + b"z", *lines[6:]],
        lambda lines: [*lines[:5], b"Content-Length: 2", *lines[5:]],  # twice
        lambda lines: [*lines[:5], b"Content-Length: 70000", b"", b"[" * 70_000],
        lambda lines: [*lines[:5], b"Content-Length: 60", b"", b"{}"],  # too short
        lambda lines: [*lines[:5], b"Transfer-Encoding: chunked", b"", b"2\r\n{}\r\n0\r\n\r\n"],
        lambda lines: [*lines[:5], b"Content-Length: 9", b"", b"x" + noise(8).ljust(8)],  # no JSON begins so
        lambda lines: [lines[0], *[b"X-%d: y" % n for n in range(150)], *lines[1:]],  # too many headers
        lambda lines: [lines[0], b"X: " + b"y" * 70_000, *lines[1:]],
    ]
    for number in range(count):
        yield b"\r\n".join(damages[number % len(damages)](good))


def test_a_thousand_malformed_requests_are_refused(server, capfd):
    session, served, made = open_page(server), StubSession.served, StubSession.made
    requests = list(damaged_requests(server, session, 1000))
    replies: list[bytes] = []

    def send_part(part: list[bytes]) -> None:
        for request in part:
            replies.append(raw(server, request))

    threads = [threading.Thread(target=send_part, args=(requests[start::4],)) for start in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(replies) == 1000
    assert not [reply for reply in replies if b" 200 " in reply or b'"path"' in reply]
    # The others had no line that HTTP could read: the connection was closed.
    assert sum(b'{"error":' in reply for reply in replies) > 900
    assert (StubSession.served, StubSession.made) == (served, made)
    assert capfd.readouterr() == ("", "")
    assert post(server, "/api/search", {}, session).status == 200


def test_good_requests_with_the_same_bytes_are_served(server):
    """The damages above are what is refused: the request that they damage is served."""
    session = open_page(server)
    lines = f"Host: 127.0.0.1:{server.port}\r\nX-Spo-Token: {server.token}\r\nX-Spo-Session: {session}"
    request = f"POST /api/search HTTP/1.1\r\n{lines}\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{{}}"
    assert raw(server, request.encode()).startswith(b"HTTP/1.1 200")


# --- Connections ------------------------------------------------------------------------------------------------------
def test_silent_and_closed_connections_do_no_harm(server, capfd):
    session = open_page(server)
    with contextlib.ExitStack() as stack:
        for _ in range(20):
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
        assert post(server, "/api/search", {}, session).status == 200
    head = f"POST /api/search HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nX-Spo-Token: {server.token}\r\n"
    head += f"X-Spo-Session: {session}\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n"
    for data in (b"", head[:40].encode(), head.encode(), (head + "{}").encode()):
        raw(server, data, then_close=True)
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        connection.sendall(head.encode())  # the body does not come
        assert connection.recv(100).startswith(b"HTTP/1.1 408")
    assert capfd.readouterr() == ("", "")


def test_too_many_connections_are_closed():
    with running(Limits(connections=2, idle_seconds=5.0)) as server, contextlib.ExitStack() as stack:
        held = [stack.enter_context(socket.create_connection(("127.0.0.1", server.port))) for _ in range(2)]
        time.sleep(0.1)
        assert raw(server, b"GET / HTTP/1.1\r\n\r\n") == b""
        for connection in held:
            connection.close()
        time.sleep(0.1)
        assert open_page(server)


# --- Several clients --------------------------------------------------------------------------------------------------
def test_two_pages_have_sessions_of_their_own(server):
    first, second = open_page(server), open_page(server)
    numbers = [post(server, "/api/search", {}, name)["number"] for name in (first, second, first)]
    assert numbers[0] == numbers[2] != numbers[1]


def test_the_session_used_least_recently_ends():
    with running(Limits(sessions=2)) as server:
        first, second = open_page(server), open_page(server)
        assert post(server, "/api/search", {}, first).status == 200
        third = open_page(server)
        reply = post(server, "/api/search", {}, second)
        assert (reply.status, "reload the page" in reply["error"]) == (410, True)
        assert post(server, "/api/search", {}, first).status == post(server, "/api/search", {}, third).status == 200


def test_requests_wait_in_a_queue_with_a_limit():
    with running(Limits(waiting=2), is_compiling=lambda: True) as server:
        session = open_page(server)
        held = server.sessions.find(session)
        replies: list[Reply] = []

        def search(body: dict[str, Any]) -> threading.Thread:
            thread = threading.Thread(target=lambda: replies.append(post(server, "/api/search", body, session)))
            thread.start()
            return thread

        threads = [search({"hold": True})]
        assert held.entered.wait(20)
        threads += [search({}), search({})]
        while server.gate.num_waiting < 2:
            time.sleep(0.01)
        refused = post(server, "/api/search", {}, session)
        assert refused.status == 503
        assert refused["error"] == "2 requests are waiting already: try again in a moment."
        assert refused.headers["Retry-After"] == "1"
        # A page can ask meanwhile why it waits.
        assert post(server, "/api/status", {}, session) == {"compiling": True, "queue": 2}
        held.released.set()
        for thread in threads:
            thread.join()
        assert [reply.status for reply in replies] == [200, 200, 200]
        assert post(server, "/api/status", {}, session)["queue"] == 0


def test_a_request_waits_for_a_limited_time():
    gate = Gate(max_waiting=1, wait_seconds=0.01)
    with gate.entered():
        with pytest.raises(guarding.Refused, match="took too long"), gate.entered():
            raise AssertionError
        assert not gate.wait_until_empty(0.01)
    assert gate.num_waiting == 0
    assert gate.wait_until_empty(0.01)


def test_ctrl_c_ends_the_server(monkeypatch):
    server = Server(StubSession)

    def interrupt(poll_interval: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(server, "serve_forever", interrupt)
    serve(server)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.port))
