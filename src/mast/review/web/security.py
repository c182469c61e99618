"""ASGI middleware that checks the host, origin and size of every request, and adds security headers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_BODY_BYTES = 64 << 10
"""Maximum size of a request body; a verdict has a few hundred bytes."""

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; media-src 'self' blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}
LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class AccessPolicy:
    """Network access: the listening address, and the address of the trusted reverse `proxy`, if any.

    `trust_header` is the header in which the proxy sends the user name.
    """

    host: str = "127.0.0.1"
    proxy: str | None = None
    trust_header: str | None = None

    @property
    def is_loopback(self) -> bool:
        """True if the server only accepts local requests without a proxy."""
        return self.host in LOOPBACK and self.proxy is None


class SecurityMiddleware:
    """ASGI middleware that refuses unsafe requests and adds security headers to every response."""

    def __init__(self, app: ASGIApp, policy: AccessPolicy) -> None:
        self._app, self._policy = app, policy

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward a request to the application, or refuse it with a message."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": _protected(message["headers"])}
            await send(message)

        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        if refusal := self._refusal(scope, headers):
            await _refuse(send_guarded, *refusal)
            return
        body = await _read_body(receive, headers)
        if body is None:
            await _refuse(send_guarded, 413, f"The request body exceeds {MAX_BODY_BYTES:,} bytes.")
            return
        await self._app(scope, _ReplayBody(body, receive), send_guarded)

    def _refusal(self, scope: Scope, headers: dict[str, str]) -> tuple[int, str] | None:
        """Return the status code and message if a request must be refused, else None."""
        host = headers.get("host", "")
        if self._policy.is_loopback and _hostname(host) not in LOOPBACK:
            # DNS rebinding: another site may resolve its own name to this machine and read data through its visitors
            return 421, f"This server only accepts requests to {self._policy.host}."
        if scope["method"] not in ("GET", "HEAD") and not self._same_origin(scope, headers, host):
            return 403, "This request does not come from the review page. Use the review page instead."
        return None

    def _same_origin(self, scope: Scope, headers: dict[str, str], host: str) -> bool:
        """Return True if the request comes from a page of this server: browsers set the Origin header, pages cannot."""
        return headers.get("origin") == f"{scheme_of(scope, headers, self._policy)}://{host}"


def _protected(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Add the security headers to response headers, and disable caching unless the response allows it."""
    security_headers = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
    has_cache_control = any(name.lower() == b"cache-control" for name, _ in headers)
    return [*headers, *security_headers, *([] if has_cache_control else [(b"cache-control", b"no-cache")])]


def scheme_of(scope: Scope, headers: dict[str, str], policy: AccessPolicy) -> str:
    """Return the scheme of the page's address, http or https: the proxy's X-Forwarded-Proto header, if there is one."""
    if from_proxy(scope, policy) and headers.get("x-forwarded-proto") in ("http", "https"):
        return headers["x-forwarded-proto"]
    return str(scope["scheme"])


def from_proxy(scope: Scope, policy: AccessPolicy) -> bool:
    """Return True if a request comes from the trusted proxy."""
    client = scope.get("client")
    return policy.proxy is not None and client is not None and client[0] == policy.proxy


def _hostname(host: str) -> str | None:
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None


async def _read_body(receive: Receive, headers: dict[str, str]) -> bytes | None:
    """Read the body of a request; return None, without reading it to the end, if it is too large."""
    length = headers.get("content-length", "0")
    if not length.isdigit() or int(length) > MAX_BODY_BYTES:
        return None
    body = b""
    while True:
        message = await receive()
        body += bytes(message.get("body", b""))
        if len(body) > MAX_BODY_BYTES:
            return None
        if not message.get("more_body", False):
            return body


class _ReplayBody:
    """ASGI receive function that returns a body that was already read."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive

    async def __call__(self) -> Message:
        if self._body is None:
            return await self._receive()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}


async def _refuse(send: Send, status: int, text: str) -> None:
    body = json.dumps({"message": text}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
