"""A proxy in front of an object store that fails: requests for some objects are refused a few times in a row."""

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
    """The store at `endpoint` under another address, and a count of what was refused, by method.

    `refuses(method, path, times)` says whether a request fails that has come so often.
    """
    host, port = urlsplit(endpoint).hostname, urlsplit(endpoint).port
    came, refused = Counter[tuple[str, str]](), Counter[str]()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            path = urlsplit(self.path).path  # every upload has an identity of its own behind it
            came[self.command, path] += 1
            if refuses(self.command, path, came[self.command, path]):
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

        do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = answer  # noqa: N815 (names that the server looks for)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", refused
    finally:
        server.shutdown()
        server.server_close()
