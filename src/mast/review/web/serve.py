"""Run the review server for `mast review`, for the local user or a team."""

from __future__ import annotations

import socket
import threading
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

from mast.errors import ConfigError, MissingExtraError, StorageError
from mast.study.commands import mast_command

try:
    import uvicorn

    from mast.review.database import ReviewDatabase, database_of, open_store
    from mast.review.review_set import open_review_set
    from mast.review.web.app import create_app
    from mast.review.web.security import LOOPBACK, AccessPolicy
    from mast.review.web.tile_cache import TileCache, cache_folder
    from mast.review.web.users import add_user, change_password, remove_user, users
except ModuleNotFoundError as error:
    raise MissingExtraError("Review", "review") from error

__all__ = [
    "AccessPolicy",
    "add_user",
    "change_password",
    "open_browser",
    "open_review_store",
    "remove_user",
    "serve",
    "users",
]

PORT = 8642
"""Default port. It is fixed because browsers store unsent verdicts by address and port."""


def serve(
    source: str,
    database: str | None,
    policy: AccessPolicy,
    port: int = PORT,
    min_score: float | None = None,
    on_start: Callable[[str], None] = lambda address: None,
) -> None:
    """Serve the review page of a run or study until the process ends; call `on_start` with the address of the page."""
    _check_trust(policy)
    with ExitStack() as stack:
        review_set = open_review_set(source, min_score)
        store = stack.enter_context(open_review_store(source, database))
        _check_bind(policy, store, source)
        app = create_app(review_set, store, TileCache(cache_folder()), policy)
        listener = stack.enter_context(_listen(policy.host, port))
        host = f"[{policy.host}]" if ":" in policy.host else policy.host
        on_start(f"http://{host}:{listener.getsockname()[1]}/")
        config = uvicorn.Config(
            app, log_level="warning", access_log=False, proxy_headers=False, server_header=False
        )
        with suppress(KeyboardInterrupt):  # Ctrl-C ends the server
            uvicorn.Server(config).run(sockets=[listener])


@contextmanager
def open_review_store(source: str, database: str | None) -> Iterator[ReviewDatabase]:
    """Open the database of a run or study."""
    with open_store(database_of(source, database)) as store:
        yield store


def open_browser(address: str) -> None:
    """Open the page in a browser after 0.5 s, without blocking."""
    timer = threading.Timer(0.5, webbrowser.open, [address])
    timer.daemon = True
    timer.start()


def _check_trust(policy: AccessPolicy) -> None:
    if policy.trust_header and not policy.proxy:
        raise ConfigError(
            f"--trust-header {policy.trust_header}: any client could send that header. Specify the proxy that sends it, "
            "such as --proxy 127.0.0.1."
        )


def _check_bind(policy: AccessPolicy, store: ReviewDatabase, source: str) -> None:
    """Raise ConfigError if the server would be open to a network without users."""
    if policy.host in LOOPBACK and policy.proxy is None:
        return
    if not users(store):
        raise ConfigError(
            f"--host {policy.host}: other machines could read and write without signing in. First add a user: "
            f"{mast_command('users', 'add', source, 'NAME', '--role', 'admin')}"
        )


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise StorageError(
            f"{host}, port {port}: cannot listen ({error.strerror}). If another mast review is running, end it, or "
            "choose another port with --port."
        ) from None
