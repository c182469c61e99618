"""Verdicts are kept once, in their order, for good: the same on SQLite and on PostgreSQL."""

import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from mast.errors import ConfigError, MissingExtraError, StorageError
from mast.review.reading import read_verdicts
from mast.review.store import OutdatedError, database_of, open_store
from mast.review.verdicts import Verdict, holding

FIRST = Verdict(
    number=0, subject="a", version=1, kind="sound", state="accepted", recording_id="card/é.wav", start_s=1.0,
    end_s=2.5, low_hz=100.0, high_hz=200.5, label="Strix aluco", score=0.25, model="m", who="Ann",
    at_utc=datetime(2026, 5, 1, 12, 30, 15, 123456, tzinfo=UTC), queue="in order",
)  # fmt: skip


@pytest.fixture(params=["sqlite", "postgresql"])
def address(request, tmp_path):
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'review.sqlite'}"
    return request.getfixturevalue("postgres_database")


@pytest.fixture
def either(address):
    with open_store(address) as opened:
        yield opened


def test_a_new_database_is_empty(either):
    assert list(either.verdicts()) == [] and either.history("a") == []


def test_a_verdict_comes_back_as_it_was_given(either, address):
    kept = either.add(FIRST, "one")
    assert kept == replace(FIRST, number=kept.number)
    with open_store(address) as again:  # another server: the tables are there already
        assert list(again.verdicts()) == [kept]


def test_later_versions_follow_and_the_last_holds(either):
    either.add(FIRST, "one")
    later = replace(FIRST, version=2, state="rejected", who="Bo", at_utc=FIRST.at_utc + timedelta(hours=1))
    undone = replace(FIRST, version=3, undoes=2)
    kept = [either.add(later, "two"), either.add(undone, "three")]
    assert either.history("a")[1:] == kept
    assert holding(either.verdicts())["a"] == kept[1]
    assert list(either.verdicts(after=kept[0].number)) == [kept[1]]


def test_a_request_that_comes_again_is_not_decided_again(either):
    assert either.add(FIRST, "one") == either.add(FIRST, "one")
    either.add(replace(FIRST, version=2), "two")
    assert either.add(FIRST, "one").version == 1  # also long after
    assert len(list(either.verdicts())) == 2


def test_nobody_gets_the_verdict_of_another_by_its_request(either):
    either.add(FIRST, "one")
    with pytest.raises(OutdatedError):
        either.add(replace(FIRST, subject="b", who="Eve"), "one")


@pytest.mark.parametrize("version", [1, 3])
def test_a_version_that_is_taken_or_skips_one_is_refused_with_what_holds(either, version):
    kept = either.add(FIRST, "one")
    with pytest.raises(OutdatedError) as refused:
        either.add(replace(FIRST, version=version, who="Bo"), "two")
    assert refused.value.holds == kept


def test_a_second_version_of_nothing_is_refused(either):
    with pytest.raises(OutdatedError) as refused:
        either.add(replace(FIRST, version=2), "one")
    assert refused.value.holds is None


def test_of_many_who_decide_at_once_exactly_one_is_kept(either):
    outcomes: list[str] = []

    def decide(number: int) -> None:
        try:
            either.add(replace(FIRST, who=f"person {number}"), f"request {number}")
            outcomes.append("kept")
        except OutdatedError:
            outcomes.append("outdated")

    threads = [threading.Thread(target=decide, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["kept"] + ["outdated"] * 11
    assert len(list(either.verdicts())) == 1


@pytest.mark.parametrize("statement", ["DELETE FROM verdicts", "UPDATE verdicts SET state = 'open'"])
def test_the_database_itself_refuses_to_change_or_forget_verdicts(either, statement):
    either.add(FIRST, "one")
    with (
        pytest.raises(DBAPIError, match="verdicts are only ever added"),
        either.writing.begin() as connection,
    ):
        connection.execute(sa.text(statement))
    assert len(list(either.verdicts())) == 1


def test_verdicts_lie_beside_what_is_reviewed(tmp_path):
    assert database_of(str(tmp_path)) == f"sqlite:///{tmp_path / 'review.sqlite'}"
    (tmp_path / "study.yaml").write_text("work: made\n", "utf-8")
    assert database_of(str(tmp_path / "study.yaml")) == f"sqlite:///{tmp_path / 'made' / 'review.sqlite'}"
    assert database_of("s3://bucket/run", "here.sqlite") == "sqlite:///here.sqlite"
    assert database_of("run", "postgresql+psycopg://a@b/c") == "postgresql+psycopg://a@b/c"


def test_verdicts_lie_beside_what_is_reviewed_whatever_it_is_called(tmp_path):
    for name in ("owls?", "50%", "a&b=c#d"):
        (tmp_path / name).mkdir()
        with open_store(database_of(str(tmp_path / name))) as opened:
            opened.add(FIRST, "one")
        assert read_verdicts(str(tmp_path / name / "review.sqlite"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["50%", "a&b=c#d", "owls?"]


def test_a_file_that_is_something_else_is_told(tmp_path):
    notes = tmp_path / "notes.txt"
    notes.write_text("Dear diary, today the owls were silent. " * 9)
    with (
        pytest.raises(StorageError, match="notes.txt: the database cannot be used: file is not a database"),
        open_store(database_of("run", str(notes))),
    ):
        pass
    assert notes.read_text().startswith("Dear diary")


def test_an_object_store_holds_no_database(tmp_path):
    with pytest.raises(ConfigError, match="verdicts cannot be kept on an object store.*--database"):
        database_of("s3://bucket/run")


@pytest.mark.parametrize("address", ["nonsense://x", "sqlite:"])
def test_what_is_no_address_is_refused_in_words(address):
    with pytest.raises(ConfigError, match="not an address of a database"), open_store(address):
        pass


def test_a_folder_that_is_not_there_is_told(tmp_path):
    with (
        pytest.raises(StorageError, match="there is no such folder"),
        open_store(f"sqlite:///{tmp_path}/no/x.sqlite"),
    ):
        pass


def test_a_database_that_cannot_be_reached_is_told_without_its_password():
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
