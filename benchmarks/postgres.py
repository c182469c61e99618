"""A PostgreSQL server of one's own, on a socket in a folder: no port, no password, gone afterwards."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp

PLACES = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql*/bin")


def tools() -> Path | None:
    """Where the server's programs are, if they are installed."""
    found = shutil.which("initdb")
    if found and (Path(found).parent / "pg_ctl").exists():
        return Path(found).resolve().parent
    every = [
        path for place in PLACES for path in Path("/").glob(place.lstrip("/")) if (path / "initdb").exists()
    ]
    return max(every, default=None)


@contextmanager
def postgres_server(folder: Path | None = None) -> Iterator[str]:
    """The address of a running server's database `postgres`, which its owner may use without a password."""
    place = tools()
    assert place is not None
    home = Path(folder or mkdtemp(prefix="mast-pg-", dir="/tmp"))  # a socket's path must be short
    user = _owner(home)
    data = home / "data"
    try:
        _run(user, [place / "initdb", "-D", data, "-U", "review", "-A", "trust", "-E", "UTF8", "--no-sync"])
        options = f"-k {home} -c listen_addresses='' -c max_connections=80"
        _run(user, [place / "pg_ctl", "-D", data, "-l", home / "log", "-w", "-o", options, "start"])
        yield f"postgresql+psycopg://review@/postgres?host={home}"
    finally:
        if (data / "postmaster.pid").exists():
            _run(user, [place / "pg_ctl", "-D", data, "-m", "immediate", "-w", "stop"])
        shutil.rmtree(home, ignore_errors=True)


def _owner(home: Path) -> str | None:
    """Someone else where we are root, whom PostgreSQL refuses to run as."""
    if os.geteuid() != 0:
        return None
    shutil.chown(home, "nobody")
    home.chmod(0o755)
    return "nobody"


def _run(user: str | None, command: list[object]) -> None:
    words = [str(word) for word in command]
    done = subprocess.run(
        words, user=user, cwd="/", capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
