"""Rules for the requests that the server of the live page takes. Everything else is refused with a sentence.

A page of another site can make a browser send requests to localhost. Such a request has no token, and its `Origin` or,
after a name was bound to another address, its `Host` is that of the other site. Each of the three alone refuses it.
"""

import hmac
import json
from collections.abc import Sequence
from email.message import Message
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from spo.inspection.protocol import MAX_REQUEST

TOKEN_HEADER, SESSION_HEADER = "X-Spo-Token", "X-Spo-Session"
PAGE = "/"
REQUESTS = tuple(f"/api/{name}" for name in ("session", "search", "step", "undo", "reset", "picture", "status"))
#: Longest path with its query.
MAX_TARGET = 256


class Refused(Exception):
    """A request that is not served: a status of HTTP and a sentence."""

    def __init__(self, status: int, sentence: str):
        """Stores the status and the sentence."""
        super().__init__(sentence)
        self.status = status


def check_sender(headers: Message, port: int) -> None:
    """Refuses requests whose host name or origin is not that of this server."""
    hosts = {f"{name}:{port}" for name in ("127.0.0.1", "localhost")}
    if len(headers.get_all("Host", [])) != 1 or headers["Host"] not in hosts:
        raise Refused(403, f"This server answers at http://127.0.0.1:{port} only: use the address that was printed.")
    origins = headers.get_all("Origin", [])
    if len(origins) > 1 or any(origin not in {f"http://{host}" for host in hosts} for origin in origins):
        raise Refused(403, "Requests of other pages are refused.")


def check_page_request(target: str, token: str) -> None:
    """Refuses everything but `/?token=TOKEN`."""
    parts = _split(target)
    if parts.path != PAGE:
        raise Refused(404, "There is no such page: use the address that was printed.")
    try:
        given = parse_qsl(parts.query, keep_blank_values=True, max_num_fields=2)
    except ValueError:  # more fields
        given = []
    if len(given) != 1 or given[0][0] != "token":
        raise Refused(403, "The address needs its token: use the address that was printed.")
    _check_token([given[0][1]], token)


def check_api_request(target: str, headers: Message, token: str) -> str:
    """Returns the path of a request without its body. Refuses unknown paths, queries, other pages and wrong tokens."""
    parts = _split(target)
    if parts.path not in REQUESTS or parts.query:
        raise Refused(404, f"There is no such request: choose from {', '.join(REQUESTS)}.")
    if any(site != "same-origin" for site in headers.get_all("Sec-Fetch-Site", [])):
        raise Refused(403, "Requests of other pages are refused.")
    _check_token(headers.get_all(TOKEN_HEADER, []), token)
    return parts.path


def _split(target: str) -> Any:
    if len(target) > MAX_TARGET or not target.startswith("/") or target.startswith("//") or "#" in target:
        raise Refused(404, "There is no such page: use the address that was printed.")
    try:
        return urlsplit(target)
    except ValueError:
        raise Refused(404, "There is no such page: use the address that was printed.") from None


def _check_token(given: Sequence[str], token: str) -> None:
    # Compared in constant time: the time of an answer tells nothing about the token.
    if len(given) != 1 or not hmac.compare_digest(given[0].encode("utf-8", "replace"), token.encode()):
        raise Refused(403, "The token is wrong: use the address that was printed.")


def body_length(headers: Message) -> int:
    """Returns the length of the body of a request. Refuses bodies that are not short JSON."""
    kind = headers.get_content_type() if len(headers.get_all("Content-Type", [])) == 1 else None
    if kind != "application/json" or headers.get_content_charset("utf-8") != "utf-8":
        raise Refused(415, "A request must be JSON: set Content-Type to application/json.")
    if "Transfer-Encoding" in headers or "Content-Encoding" in headers:
        raise Refused(411, "A request must be sent as it is, with Content-Length.")
    lengths = headers.get_all("Content-Length", [])
    if len(lengths) != 1 or not (lengths[0].isascii() and lengths[0].isdigit()):
        raise Refused(411, "A request needs one Content-Length.")
    if len(lengths[0]) > 9 or int(lengths[0]) > MAX_REQUEST:
        raise Refused(413, f"A request has at most {MAX_REQUEST:,} bytes.")
    return int(lengths[0])


def parse_body(body: bytes) -> dict[str, Any]:
    """Returns the JSON object of a body. Refuses NaN, repeated names, deep nesting and everything that is no object."""
    try:
        value = json.loads(body.decode("utf-8"), parse_constant=_refuse_constant, object_pairs_hook=_unique)
    except (ValueError, RecursionError):
        raise Refused(400, "The request is not JSON.") from None
    if not isinstance(value, dict):
        raise Refused(400, "A request must be an object with names and values.")
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(name)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({name for name, _ in pairs}) < len(pairs):
        raise ValueError("repeated name")
    return dict(pairs)


__all__ = [
    "SESSION_HEADER",
    "TOKEN_HEADER",
    "Refused",
    "body_length",
    "check_api_request",
    "check_page_request",
    "check_sender",
    "parse_body",
]
