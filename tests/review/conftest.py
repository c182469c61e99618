"""A run to review, its database, and a client of the server, with no state shared between tests."""

import secrets
import shutil

import pytest
import sqlalchemy as sa
from benchmarks.postgres import postgres_server, tools

from mast.review.database import open_store
from mast.review.review_set import open_review_set
from mast.review.web import users
from tests.review.runs import client_of, write_review_run


@pytest.fixture(autouse=True)
def cheap_passwords(monkeypatch):
    """Reduce the cost of the password hash, so that tests are fast."""
    assert users._COST * users._BLOCK * 128 == 16 << 20  # bytes for each password check
    monkeypatch.setattr(users, "_COST", 2)


@pytest.fixture(scope="session")
def run(tmp_path_factory) -> str:
    return write_review_run(tmp_path_factory.mktemp("review"))


@pytest.fixture(scope="session")
def review_set(run):
    return open_review_set(run)


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory):
    """A database file with empty tables."""
    file = tmp_path_factory.mktemp("empty") / "review.sqlite"
    with open_store(f"sqlite:///{file}"):
        pass
    return file


@pytest.fixture
def store(tmp_path, empty_database):
    shutil.copy(empty_database, tmp_path / "review.sqlite")
    with open_store(f"sqlite:///{tmp_path / 'review.sqlite'}") as opened:
        yield opened


@pytest.fixture
def client(review_set, store, tmp_path):
    with client_of(review_set, store, tmp_path) as opened:
        yield opened


@pytest.fixture(scope="session")
def postgres():
    """The address of a temporary PostgreSQL server."""
    if tools() is None:
        pytest.skip("PostgreSQL is not installed: initdb and pg_ctl are not found")
    with postgres_server() as address:
        yield address


@pytest.fixture
def postgres_database(postgres):
    """The address of a new database."""
    engine = sa.create_engine(postgres, isolation_level="AUTOCOMMIT")
    name = f"review_{secrets.token_hex(4)}"
    with engine.connect() as connection:
        connection.execute(sa.text(f"CREATE DATABASE {name}"))
    yield sa.make_url(postgres).set(database=name).render_as_string(hide_password=False)
    with engine.connect() as connection:
        connection.execute(sa.text(f"DROP DATABASE {name} WITH (FORCE)"))
    engine.dispose()
