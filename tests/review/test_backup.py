"""A restored backup has the same verdicts, accepts new ones, and is still append-only."""

import os
import sqlite3
import subprocess
from dataclasses import replace

import pytest
import sqlalchemy as sa
from benchmarks.postgres import tools
from sqlalchemy.exc import DBAPIError

from mast.review.database import open_store
from tests.review.test_database import FIRST


def check_restored(address: str, before: list) -> None:
    with open_store(address) as store:
        assert list(store.verdicts()) == before
        later = store.add(replace(FIRST, version=3), "three")
        assert later.number > before[-1].number
        with pytest.raises(DBAPIError, match="append-only"), store.writing.begin() as connection:
            connection.execute(sa.text("DELETE FROM verdicts"))


def test_a_copy_of_a_running_sqlite_file(store, tmp_path):
    before = [store.add(FIRST, "one"), store.add(replace(FIRST, version=2), "two")]
    with (
        sqlite3.connect(tmp_path / "review.sqlite") as source,
        sqlite3.connect(tmp_path / "copy.sqlite") as target,
    ):
        source.backup(target)  # like .backup of the sqlite3 shell
    source.close()
    target.close()
    check_restored(f"sqlite:///{tmp_path / 'copy.sqlite'}", before)


def test_a_dump_of_a_running_postgresql_database(postgres_database, tmp_path):
    url = sa.make_url(postgres_database)
    environment = {**os.environ, "PGHOST": url.query["host"], "PGUSER": url.username}
    dump = tmp_path / "review.dump"
    with open_store(postgres_database) as store:
        before = [store.add(FIRST, "one"), store.add(replace(FIRST, version=2), "two")]
        for command in (
            ["pg_dump", "--format=custom", f"--file={dump}", url.database],
            ["createdb", f"{url.database}_again"],
            ["pg_restore", f"--dbname={url.database}_again", str(dump)],
        ):
            subprocess.run([tools() / command[0], *command[1:]], env=environment, check=True)
    check_restored(url.set(database=f"{url.database}_again").render_as_string(hide_password=False), before)
