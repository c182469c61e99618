"""`mast review` as a process: the page on a port, for the person at this machine or for a team."""

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

    from mast.review.guard import LOOPBACK, Gate
    from mast.review.material import open_material
    from mast.review.server import make_app
    from mast.review.store import Store, database_of, open_store
    from mast.review.tile_cache import TileCache, cache_folder
    from mast.review.users import add_user, change_password, remove_user, users
except ModuleNotFoundError as error:
    raise MissingExtraError("Review", "review") from error

__all__ = ["Gate", "add_user", "change_password", "open_browser", "opened", "remove_user", "serve", "users"]

PORT = 8642
"""Always the same, since browsers keep what could not be sent by the port it was meant for."""


def serve(
    source: str,
    database: str | None,
    gate: Gate,
    port: int = PORT,
    min_score: float | None = None,
    on_start: Callable[[str], None] = lambda address: None,
) -> None:
    """Show a run or a study until the process is ended; `on_start` is told the page's address."""
    _check_trust(gate)
    with ExitStack() as stack:
        material = open_material(source, min_score)
        store = stack.enter_context(opened(source, database))
        _check_bind(gate, store, source)
        app = make_app(material, store, TileCache(cache_folder()), gate)
        listener = stack.enter_context(_listen(gate.host, port))
        shown = f"[{gate.host}]" if ":" in gate.host else gate.host
        on_start(f"http://{shown}:{listener.getsockname()[1]}/")
        config = uvicorn.Config(
            app, log_level="warning", access_log=False, proxy_headers=False, server_header=False
        )
        with suppress(KeyboardInterrupt):  # how people end it
            uvicorn.Server(config).run(sockets=[listener])


@contextmanager
def opened(source: str, database: str | None) -> Iterator[Store]:
    """The database of a run or a study."""
    with open_store(database_of(source, database)) as store:
        yield store


def open_browser(address: str) -> None:
    """Show the page once the server answers, without waiting for it."""
    timer = threading.Timer(0.5, webbrowser.open, [address])
    timer.daemon = True
    timer.start()


def _check_trust(gate: Gate) -> None:
    if gate.trust_header and not gate.proxy:
        raise ConfigError(
            f"--trust-header {gate.trust_header}: anyone could send that header. Say which proxy sends it, such as "
            "--proxy 127.0.0.1."
        )


def _check_bind(gate: Gate, store: Store, source: str) -> None:
    """Refuse to show recordings to a network without asking who is there."""
    if gate.host in LOOPBACK and gate.proxy is None:
        return
    if not users(store):
        raise ConfigError(
            f"--host {gate.host}: people elsewhere could read and decide without saying who they are. First let someone "
            f"in with: {mast_command('users', 'add', source, 'NAME', '--role', 'admin')}"
        )


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise StorageError(
            f"{host}, port {port}: cannot be listened on ({error.strerror}). Is another mast review open? "
            "End it, or take another with --port."
        ) from None
