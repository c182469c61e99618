"""Start a temporary PostgreSQL server on a socket in a folder, without a port or a password."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp

BINARY_FOLDERS = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql*/bin")


def tools() -> Path | None:
    """Return the folder of the server's programs, None if they are not installed."""
    initdb = shutil.which("initdb")
    if initdb and (Path(initdb).parent / "pg_ctl").exists():
        return Path(initdb).resolve().parent
    folders = [
        path
        for pattern in BINARY_FOLDERS
        for path in Path("/").glob(pattern.lstrip("/"))
        if (path / "initdb").exists()
    ]
    return max(folders, default=None)


@contextmanager
def postgres_server(folder: Path | None = None) -> Iterator[str]:
    """Yield the address of a running server's database `postgres`, which needs no password."""
    folder_of_tools = tools()
    assert folder_of_tools is not None
    home = Path(folder or mkdtemp(prefix="mast-pg-", dir="/tmp"))  # the path of a socket must be short
    user = _owner(home)
    data = home / "data"
    try:
        _run(
            user,
            [
                folder_of_tools / "initdb",
                "-D",
                data,
                "-U",
                "review",
                "-A",
                "trust",
                "-E",
                "UTF8",
                "--no-sync",
            ],
        )
        options = f"-k {home} -c listen_addresses='' -c max_connections=80"
        _run(user, [folder_of_tools / "pg_ctl", "-D", data, "-l", home / "log", "-w", "-o", options, "start"])
        yield f"postgresql+psycopg://review@/postgres?host={home}"
    finally:
        if (data / "postmaster.pid").exists():
            _run(user, [folder_of_tools / "pg_ctl", "-D", data, "-m", "immediate", "-w", "stop"])
        shutil.rmtree(home, ignore_errors=True)


def _owner(home: Path) -> str | None:
    """Return another user if this process runs as root, because PostgreSQL does not run as root."""
    if os.geteuid() != 0:
        return None
    shutil.chown(home, "nobody")
    home.chmod(0o755)
    return "nobody"


def _run(user: str | None, command: list[object]) -> None:
    arguments = [str(argument) for argument in command]
    process = subprocess.run(
        arguments, user=user, cwd="/", capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
    )
    assert process.returncode == 0, process.stdout + process.stderr
