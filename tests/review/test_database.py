"""Verdicts are stored once, in order and permanently, in SQLite and in PostgreSQL."""

import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from mast.errors import ConfigError, MissingExtraError, StorageError
from mast.review.database import ConflictError, database_of, open_store
from mast.review.read_verdicts import read_verdicts
from mast.review.verdicts import Verdict, latest_verdicts

FIRST = Verdict(
    number=0, event_id="a", version=1, kind="sound", state="accepted", recording_id="card/é.wav", start_s=1.0,
    end_s=2.5, low_hz=100.0, high_hz=200.5, label="Strix aluco", score=0.25, model="m", user="Ann",
    created_at=datetime(2026, 5, 1, 12, 30, 15, 123456, tzinfo=UTC), queue="sequential",
)  # fmt: skip


@pytest.fixture(params=["sqlite", "postgresql"])
def address(request, tmp_path):
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'review.sqlite'}"
    return request.getfixturevalue("postgres_database")


@pytest.fixture
def database(address):
    with open_store(address) as opened:
        yield opened


def test_a_new_database_is_empty(database):
    assert list(database.verdicts()) == [] and database.history("a") == []


def test_a_verdict_is_read_as_it_was_stored(database, address):
    stored = database.add(FIRST, "one")
    assert stored == replace(FIRST, number=stored.number)
    with open_store(address) as again:  # another server: the tables exist already
        assert list(again.verdicts()) == [stored]


def test_the_last_version_is_the_latest_verdict(database):
    database.add(FIRST, "one")
    later = replace(
        FIRST, version=2, state="rejected", user="Bo", created_at=FIRST.created_at + timedelta(hours=1)
    )
    undone = replace(FIRST, version=3, reverts=2)
    stored = [database.add(later, "two"), database.add(undone, "three")]
    assert database.history("a")[1:] == stored
    assert latest_verdicts(database.verdicts())["a"] == stored[1]
    assert list(database.verdicts(after=stored[0].number)) == [stored[1]]


def test_a_repeated_request_is_stored_once(database):
    assert database.add(FIRST, "one") == database.add(FIRST, "one")
    database.add(replace(FIRST, version=2), "two")
    assert database.add(FIRST, "one").version == 1  # also after later verdicts
    assert len(list(database.verdicts())) == 2


def test_a_request_id_does_not_return_the_verdict_of_another_user(database):
    database.add(FIRST, "one")
    with pytest.raises(ConflictError):
        database.add(replace(FIRST, event_id="b", user="Eve"), "one")


@pytest.mark.parametrize("version", [1, 3])
def test_an_existing_or_skipped_version_is_refused_with_the_latest_verdict(database, version):
    stored = database.add(FIRST, "one")
    with pytest.raises(ConflictError) as refused:
        database.add(replace(FIRST, version=version, user="Bo"), "two")
    assert refused.value.current == stored


def test_a_second_version_without_a_first_is_refused(database):
    with pytest.raises(ConflictError) as refused:
        database.add(replace(FIRST, version=2), "one")
    assert refused.value.current is None


def test_of_many_simultaneous_verdicts_exactly_one_is_stored(database):
    outcomes: list[str] = []

    def decide(number: int) -> None:
        try:
            database.add(replace(FIRST, user=f"person {number}"), f"request {number}")
            outcomes.append("stored")
        except ConflictError:
            outcomes.append("conflict")

    threads = [threading.Thread(target=decide, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["conflict"] * 11 + ["stored"]
    assert len(list(database.verdicts())) == 1


@pytest.mark.parametrize("statement", ["DELETE FROM verdicts", "UPDATE verdicts SET state = 'open'"])
def test_the_database_itself_refuses_to_change_or_delete_verdicts(database, statement):
    database.add(FIRST, "one")
    with (
        pytest.raises(DBAPIError, match="verdicts are append-only"),
        database.writing.begin() as connection,
    ):
        connection.execute(sa.text(statement))
    assert len(list(database.verdicts())) == 1


def test_the_default_database_is_in_the_folder_of_the_run_or_study(tmp_path):
    assert database_of(str(tmp_path)) == f"sqlite:///{tmp_path / 'review.sqlite'}"
    (tmp_path / "study.yaml").write_text("work_dir: made\n", "utf-8")
    assert database_of(str(tmp_path / "study.yaml")) == f"sqlite:///{tmp_path / 'made' / 'review.sqlite'}"
    assert database_of("s3://bucket/run", "here.sqlite") == "sqlite:///here.sqlite"
    assert database_of("run", "postgresql+psycopg://a@b/c") == "postgresql+psycopg://a@b/c"


def test_the_default_database_works_in_folders_with_any_name(tmp_path):
    for name in ("owls?", "50%", "a&b=c#d"):
        (tmp_path / name).mkdir()
        with open_store(database_of(str(tmp_path / name))) as opened:
            opened.add(FIRST, "one")
        assert read_verdicts(str(tmp_path / name / "review.sqlite"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["50%", "a&b=c#d", "owls?"]


def test_a_file_that_is_not_a_database_is_refused(tmp_path):
    notes = tmp_path / "notes.txt"
    notes.write_text("Dear diary, today the owls were silent. " * 9)
    with (
        pytest.raises(StorageError, match="notes.txt: the database cannot be used: file is not a database"),
        open_store(database_of("run", str(notes))),
    ):
        pass
    assert notes.read_text().startswith("Dear diary")


def test_an_object_store_holds_no_database(tmp_path):
    with pytest.raises(ConfigError, match="verdicts cannot be stored on an object store.*--database"):
        database_of("s3://bucket/run")


@pytest.mark.parametrize("address", ["nonsense://x", "sqlite:"])
def test_an_invalid_address_is_refused_with_a_message(address):
    with pytest.raises(ConfigError, match="not a database address"), open_store(address):
        pass


def test_a_missing_folder_is_an_error(tmp_path):
    with (
        pytest.raises(StorageError, match="folder not found"),
        open_store(f"sqlite:///{tmp_path}/no/x.sqlite"),
    ):
        pass


def test_the_message_about_an_unreachable_database_has_no_password():
    address = "postgresql+psycopg://ann:secret@127.0.0.1:1/review"
    with pytest.raises(StorageError, match="cannot be used") as refused, open_store(address):
        pass
    assert "secret" not in str(refused.value)


def test_a_driver_that_is_not_installed_prints_its_install_line(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "psycopg", None)
    with (
        pytest.raises(MissingExtraError, match=r'pip install "mast-bioacoustics\[team\]"'),
        open_store("postgresql+psycopg://ann@127.0.0.1:1/review"),
    ):
        pass
