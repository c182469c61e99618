"""Run a proxy for an object store that refuses requests for some objects a few times in a row."""

from __future__ import annotations

import http.client
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

HOP_BY_HOP = {"connection", "transfer-encoding", "content-length", "server", "date"}


@contextmanager
def flaky_store(
    endpoint: str, refuses: Callable[[str, str, int], bool]
) -> Iterator[tuple[str, Counter[str]]]:
    """Yield the address of a proxy for the store at `endpoint`, and the count of refused requests by method.

    `refuses(method, path, count)` returns True if the `count`-th request of a path must fail.
    """
    host, port = urlsplit(endpoint).hostname, urlsplit(endpoint).port
    requests, refused = Counter[tuple[str, str]](), Counter[str]()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            path = urlsplit(self.path).path  # without the query, which differs for every upload
            requests[self.command, path] += 1
            if refuses(self.command, path, requests[self.command, path]):
                refused[self.command] += 1
                self.send_response(503)
                self.send_header("content-length", "0")
                self.end_headers()
                return
            store = http.client.HTTPConnection(host or "", port)
            store.request(self.command, self.path, body, dict(self.headers))
            reply = store.getresponse()
            content = reply.read()
            self.send_response(reply.status)
            for name, value in reply.getheaders():
                if name.lower() not in HOP_BY_HOP:
                    self.send_header(name, value)
            length = reply.getheader("content-length", "0") if self.command == "HEAD" else str(len(content))
            self.send_header("content-length", length)
            self.end_headers()
            self.wfile.write(content)
            store.close()

        do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = answer  # noqa: N815 (names of the base class)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", refused
    finally:
        server.shutdown()
        server.server_close()
