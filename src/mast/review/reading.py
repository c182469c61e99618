"""Verdicts as they were written down, read without changing anything."""

from __future__ import annotations

import sqlite3
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mast.errors import StorageError
from mast.review.verdicts import Verdict
from mast.storage import join

REVIEW = "review.sqlite"
"""Where the verdicts about a run are, in its folder."""

NAMES = [field.name for field in fields(Verdict)]


def verdicts_at(events: str, location: str | None = None) -> str:
    """Where the verdicts about a run are, unless someone says where else."""
    return location or join(events, REVIEW)


def read_verdicts(location: str) -> list[Verdict]:
    """All verdicts of a store, in the order in which they were given: a SQLite file, or the address of a database."""
    if "://" in location:
        from mast.review.store import open_store

        with open_store(location) as store:
            return list(store.verdicts())
    path = Path(location)
    if not path.is_file():
        raise StorageError(f"{location}: nobody has reviewed anything here yet. Begin with mast review.")
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
        try:
            columns = ", ".join(f'"{name}"' for name in NAMES)
            query = f"SELECT {columns} FROM verdicts ORDER BY number"  # noqa: S608  # our own names alone
            rows = connection.execute(query).fetchall()
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise StorageError(f"{location} is no store of verdicts that MAST has written ({error}).") from None
    return [Verdict(**{**dict(zip(NAMES, row, strict=True)), "at_utc": _moment(row)}) for row in rows]


def _moment(row: tuple[Any, ...]) -> datetime:
    """When a verdict was given: text in ISO 8601, in UTC also where it does not say so; or seconds since 1970."""
    told = row[NAMES.index("at_utc")]
    if isinstance(told, (int, float)):
        return datetime.fromtimestamp(told, UTC)
    moment = datetime.fromisoformat(told)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
