"""Verdicts come back as they were written down, and nothing is changed by reading them."""

import sqlite3
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from mast.errors import StorageError
from mast.review.reading import NAMES, read_verdicts, verdicts_at
from mast.review.store import open_store
from mast.review.verdicts import holding
from tests.review.made import span, store, verdict


def test_an_empty_store_has_no_verdicts(tmp_path):
    assert read_verdicts(store(tmp_path / "review.sqlite", [])) == []


def test_verdicts_come_back_as_they_were_given(tmp_path):
    given = [verdict("a"), verdict("a", "rejected", version=2, number=2), span("card/ñ.WAV", 0, 60, number=3)]
    read = read_verdicts(store(tmp_path / "a store.sqlite", given))
    assert read == given
    assert holding(read)["a"].state == "rejected"


def test_a_clock_without_a_zone_is_utc_and_seconds_are_since_1970(tmp_path):
    location = store(tmp_path / "review.sqlite", [verdict("a"), verdict("b")])
    with sqlite3.connect(location) as connection:
        connection.execute("UPDATE verdicts SET at_utc = '2024-05-10 08:00:00' WHERE subject = 'a'")
        connection.execute("UPDATE verdicts SET at_utc = 60 WHERE subject = 'b'")
    connection.close()
    first, second = read_verdicts(location)
    assert first.at_utc == datetime(2024, 5, 10, 8, tzinfo=UTC)
    assert second.at_utc == datetime(1970, 1, 1, 0, 1, tzinfo=UTC)
    assert replace(second, at_utc=first.at_utc).subject == "b" and len(NAMES) == 17


def test_verdicts_of_the_review_are_read_from_their_file_and_by_the_address_of_their_database(tmp_path):
    address = f"sqlite:///{tmp_path / 'review.sqlite'}"
    with open_store(address) as kept:
        given = [kept.add(verdict("a"), "1"), kept.add(verdict("a", "rejected", version=2), "2")]
    assert read_verdicts(str(tmp_path / "review.sqlite")) == read_verdicts(address) == given


def test_what_is_no_store_is_said(tmp_path):
    with pytest.raises(StorageError, match="nobody has reviewed anything here yet. Begin with mast review"):
        read_verdicts(verdicts_at(str(tmp_path)))
    (tmp_path / "other.sqlite").write_bytes(b"no database, and longer than a hundred bytes " * 9)
    with pytest.raises(StorageError, match="is no store of verdicts"):
        read_verdicts(str(tmp_path / "other.sqlite"))
