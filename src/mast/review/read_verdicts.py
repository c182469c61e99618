"""Read verdicts from a file or a database without changing it."""

from __future__ import annotations

import sqlite3
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mast.errors import StorageError
from mast.review.verdicts import REVIEW_DATABASE, Verdict
from mast.storage import join

FIELD_NAMES = [field.name for field in fields(Verdict)]


def verdicts_location(events: str, location: str | None = None) -> str:
    """Return the given location of verdicts, or the default file in the folder of a run or study."""
    return location or join(events, REVIEW_DATABASE)


def require_verdicts(location: str) -> None:
    """Raise StorageError if there is no file of verdicts; databases on a server are checked when they are opened."""
    if "://" not in location and not Path(location).is_file():
        raise StorageError(f"{location}: no verdicts yet. Start with mast review.")


def read_verdicts(location: str) -> list[Verdict]:
    """Read all verdicts of a SQLite file, or of the database at an address, oldest first."""
    if "://" in location:
        from mast.review.database import open_store

        with open_store(location) as store:
            return list(store.verdicts())
    require_verdicts(location)
    try:
        connection = sqlite3.connect(f"{Path(location).absolute().as_uri()}?mode=ro", uri=True)
        try:
            columns = ", ".join(f'"{name}"' for name in FIELD_NAMES)
            query = f"SELECT {columns} FROM verdicts ORDER BY number"  # noqa: S608  # field names of a dataclass, no user input
            rows = connection.execute(query).fetchall()
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise StorageError(f"{location} is not a database of verdicts written by MAST ({error}).") from None
    return [
        Verdict(**{**dict(zip(FIELD_NAMES, row, strict=True)), "created_at": _created_at(row)})
        for row in rows
    ]


def _created_at(row: tuple[Any, ...]) -> datetime:
    """Return the time of a verdict: ISO 8601 text (UTC if it has no time zone), or seconds since 1970."""
    value = row[FIELD_NAMES.index("created_at")]
    if isinstance(value, (int, float)):
        return datetime.fromtimestamp(value, UTC)
    time = datetime.fromisoformat(value)
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
