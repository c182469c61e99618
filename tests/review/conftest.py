"""A run to review, its database, and a client of the server; nothing is kept between tests."""

import secrets
import shutil

import pytest
import sqlalchemy as sa
from benchmarks.postgres import postgres_server, tools

from mast.review import users
from mast.review.material import open_material
from mast.review.store import open_store
from tests.review.runs import client_of, made_run


@pytest.fixture(autouse=True)
def cheap_passwords(monkeypatch):
    """Guessing is as cheap as checking; tests do neither for long."""
    assert users._COST * users._BLOCK * 128 == 16 << 20  # bytes for each guess
    monkeypatch.setattr(users, "_COST", 2)


@pytest.fixture(scope="session")
def run(tmp_path_factory) -> str:
    return made_run(tmp_path_factory.mktemp("review"))


@pytest.fixture(scope="session")
def material(run):
    return open_material(run)


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory):
    """A file with all tables and nothing in them."""
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
def client(material, store, tmp_path):
    with client_of(material, store, tmp_path) as opened:
        yield opened


@pytest.fixture(scope="session")
def postgres():
    """The address of a server that belongs to these tests."""
    if tools() is None:
        pytest.skip("PostgreSQL is not installed: initdb and pg_ctl are not found")
    with postgres_server() as address:
        yield address


@pytest.fixture
def postgres_database(postgres):
    """The address of a fresh database."""
    engine = sa.create_engine(postgres, isolation_level="AUTOCOMMIT")
    name = f"review_{secrets.token_hex(4)}"
    with engine.connect() as connection:
        connection.execute(sa.text(f"CREATE DATABASE {name}"))
    yield sa.make_url(postgres).set(database=name).render_as_string(hide_password=False)
    with engine.connect() as connection:
        connection.execute(sa.text(f"DROP DATABASE {name} WITH (FORCE)"))
    engine.dispose()
