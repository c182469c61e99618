"""Verdicts are read as they were written, and reading changes nothing."""

import sqlite3
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from mast.errors import StorageError
from mast.review.database import open_store
from mast.review.read_verdicts import FIELD_NAMES, read_verdicts, verdicts_location
from mast.review.verdicts import latest_verdicts
from tests.review.builders import span, store, verdict


def test_an_empty_store_has_no_verdicts(tmp_path):
    assert read_verdicts(store(tmp_path / "review.sqlite", [])) == []


def test_verdicts_are_read_as_they_were_written(tmp_path):
    written = [
        verdict("a"),
        verdict("a", "rejected", version=2, number=2),
        span("card/ñ.WAV", 0, 60, number=3),
    ]
    read = read_verdicts(store(tmp_path / "a store.sqlite", written))
    assert read == written
    assert latest_verdicts(read)["a"].state == "rejected"


def test_a_time_without_a_zone_is_utc_and_seconds_are_since_1970(tmp_path):
    location = store(tmp_path / "review.sqlite", [verdict("a"), verdict("b")])
    with sqlite3.connect(location) as connection:
        connection.execute("UPDATE verdicts SET created_at = '2024-05-10 08:00:00' WHERE event_id = 'a'")
        connection.execute("UPDATE verdicts SET created_at = 60 WHERE event_id = 'b'")
    connection.close()
    first, second = read_verdicts(location)
    assert first.created_at == datetime(2024, 5, 10, 8, tzinfo=UTC)
    assert second.created_at == datetime(1970, 1, 1, 0, 1, tzinfo=UTC)
    assert replace(second, created_at=first.created_at).event_id == "b" and len(FIELD_NAMES) == 17


def test_verdicts_are_read_from_a_file_and_from_a_database_address(tmp_path):
    address = f"sqlite:///{tmp_path / 'review.sqlite'}"
    with open_store(address) as database:
        written = [database.add(verdict("a"), "1"), database.add(verdict("a", "rejected", version=2), "2")]
    assert read_verdicts(str(tmp_path / "review.sqlite")) == read_verdicts(address) == written


def test_a_missing_or_invalid_file_is_an_error(tmp_path):
    with pytest.raises(StorageError, match="no verdicts yet. Start with mast review"):
        read_verdicts(verdicts_location(str(tmp_path)))
    (tmp_path / "other.sqlite").write_bytes(b"no database, and longer than a hundred bytes " * 9)
    with pytest.raises(StorageError, match="is not a database of verdicts"):
        read_verdicts(str(tmp_path / "other.sqlite"))
