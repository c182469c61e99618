"""What every request passes: the right host, the right origin, a bearable size; and what every answer says of itself."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST_BYTES = 64 << 10
"""Of a request; a verdict has some hundreds."""

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; media-src 'self' blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}
LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class Gate:
    """Where requests come from: `proxy` is the address of the one reverse proxy that is believed, if any.

    `trust_header` names the header in which it says who is there.
    """

    host: str = "127.0.0.1"
    proxy: str | None = None
    trust_header: str | None = None

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can come in, and without a proxy before it."""
        return self.host in LOOPBACK and self.proxy is None


class Guard:
    """An ASGI app around another."""

    def __init__(self, app: ASGIApp, gate: Gate) -> None:
        self._app, self._gate = app, gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it in words."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": _protected(message["headers"])}
            await send(message)

        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        if refused := self._refusal(scope, headers):
            await _refuse(send_guarded, *refused)
            return
        body = await _whole(receive, headers)
        if body is None:
            await _refuse(send_guarded, 413, f"A request may have {MOST_BYTES:,} bytes.")
            return
        await self._app(scope, _Replay(body, receive), send_guarded)

    def _refusal(self, scope: Scope, headers: dict[str, str]) -> tuple[int, str] | None:
        """Why a request is not let in, with its code."""
        host = headers.get("host", "")
        if self._gate.is_loopback and _hostname(host) not in LOOPBACK:
            # a page elsewhere may let its own name point to this machine, and read what is here in its visitors' name
            return 421, f"This server is {self._gate.host} and answers to no other name."
        if scope["method"] not in ("GET", "HEAD") and not self._same_origin(scope, headers, host):
            return 403, "This request does not come from the review page. Open the page, and decide there."
        return None

    def _same_origin(self, scope: Scope, headers: dict[str, str], host: str) -> bool:
        """Whether a page of this server is asking: browsers tell, and let no page lie about it."""
        return headers.get("origin") == f"{scheme_of(scope, headers, self._gate)}://{host}"


def _protected(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Headers of an answer with those that protect it; what does not say so is asked for anew each time."""
    own = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
    kept = any(name.lower() == b"cache-control" for name, _ in headers)
    return [*headers, *own, *([] if kept else [(b"cache-control", b"no-cache")])]


def scheme_of(scope: Scope, headers: dict[str, str], gate: Gate) -> str:
    """How people reach the page, http or https: the proxy tells, where there is one."""
    if from_proxy(scope, gate) and headers.get("x-forwarded-proto") in ("http", "https"):
        return headers["x-forwarded-proto"]
    return str(scope["scheme"])


def from_proxy(scope: Scope, gate: Gate) -> bool:
    """Whether a request comes from the proxy itself."""
    client = scope.get("client")
    return gate.proxy is not None and client is not None and client[0] == gate.proxy


def _hostname(host: str) -> str | None:
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None


async def _whole(receive: Receive, headers: dict[str, str]) -> bytes | None:
    """The body of a request, or None where it is too large; what is too large is not read to its end."""
    length = headers.get("content-length", "0")
    if not length.isdigit() or int(length) > MOST_BYTES:
        return None
    body = b""
    while True:
        message = await receive()
        body += bytes(message.get("body", b""))
        if len(body) > MOST_BYTES:
            return None
        if not message.get("more_body", False):
            return body


class _Replay:
    """A body that was read, to be received again."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive

    async def __call__(self) -> Message:
        if self._body is None:
            return await self._receive()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}


async def _refuse(send: Send, status: int, told: str) -> None:
    body = json.dumps({"told": told}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
