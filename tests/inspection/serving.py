"""Runs a live server in a thread of the tests."""

import contextlib
import threading
from collections.abc import Iterator

from spo.inspection.server import Server


@contextlib.contextmanager
def serving(server: Server) -> Iterator[Server]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
