"""A backup that was restored holds the same verdicts, goes on from there, and still refuses to forget."""

import os
import sqlite3
import subprocess
from dataclasses import replace

import pytest
import sqlalchemy as sa
from benchmarks.postgres import tools
from sqlalchemy.exc import DBAPIError

from mast.review.store import open_store
from tests.review.test_store import FIRST


def goes_on(address: str, before: list) -> None:
    with open_store(address) as store:
        assert list(store.verdicts()) == before
        later = store.add(replace(FIRST, version=3), "three")
        assert later.number > before[-1].number
        with pytest.raises(DBAPIError, match="only ever added"), store.writing.begin() as connection:
            connection.execute(sa.text("DELETE FROM verdicts"))


def test_a_copy_of_a_running_sqlite_file(store, tmp_path):
    before = [store.add(FIRST, "one"), store.add(replace(FIRST, version=2), "two")]
    with (
        sqlite3.connect(tmp_path / "review.sqlite") as source,
        sqlite3.connect(tmp_path / "copy.sqlite") as target,
    ):
        source.backup(target)  # what the shell's .backup does
    source.close()
    target.close()
    goes_on(f"sqlite:///{tmp_path / 'copy.sqlite'}", before)


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
    goes_on(url.set(database=f"{url.database}_again").render_as_string(hide_password=False), before)
