"""Append-only database of verdicts: SQLite for one user, PostgreSQL for a team, with the same tables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from sqlalchemy.exc import ArgumentError, DatabaseError, IntegrityError, NoSuchModuleError, OperationalError

from mast.config import load_study
from mast.errors import ConfigError, MissingExtraError, StorageError
from mast.review.verdicts import REVIEW_DATABASE, Verdict
from mast.storage import is_remote, join

SQLITE = "sqlite:///"
"""Prefix of the address of a database file."""

BUSY_S = 30.0
"""Maximum time that a writer waits for another writer."""

MAX_CONNECTIONS = 16
"""Maximum number of open connections."""


class _UtcTime(sa.TypeDecorator[datetime]):
    """Time in UTC. SQLite does not store the time zone, so it is added on reading."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_result_value(self, value: datetime | None, dialect: Any) -> datetime | None:
        return value.replace(tzinfo=UTC) if value is not None and value.tzinfo is None else value


TABLES = sa.MetaData()
VERDICTS = sa.Table(
    "verdicts",
    TABLES,
    sa.Column("number", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), primary_key=True),
    *(sa.Column(name, sa.Text()) for name in ("event_id", "kind", "state", "recording_id", "label")),
    *(sa.Column(name, sa.Text()) for name in ("model", "user", "queue", "request_id")),
    *(sa.Column(name, sa.Double()) for name in ("start_s", "end_s", "low_hz", "high_hz", "score")),
    *(sa.Column(name, sa.Integer()) for name in ("version", "reverts")),
    sa.Column("created_at", _UtcTime()),
)
USERS = sa.Table(
    "users",
    TABLES,
    sa.Column("name", sa.Text(), primary_key=True),
    sa.Column("role", sa.Text()),
    sa.Column("password", sa.Text()),
    sa.Column("removed", sa.Boolean()),
)
SESSIONS = sa.Table(
    "sessions",
    TABLES,
    sa.Column("token", sa.Text(), primary_key=True),
    sa.Column("name", sa.Text()),
    sa.Column("ends_utc", _UtcTime()),
)

_FIELDS = [VERDICTS.c[field.name] for field in fields(Verdict)]
_BY_EVENT = sa.select(*_FIELDS).where(VERDICTS.c.event_id == sa.bindparam("key"))
_LATEST = _BY_EVENT.order_by(VERDICTS.c.version.desc()).limit(1)
_BY_REQUEST = sa.select(*_FIELDS).where(VERDICTS.c.request_id == sa.bindparam("key"))
_ADD = sa.insert(VERDICTS).returning(*_FIELDS)


class ConflictError(Exception):
    """Another user has decided in the meantime; `current` is the latest verdict, or None if there is none."""

    def __init__(self, current: Verdict | None) -> None:
        super().__init__("this version already exists")
        self.current = current


class ReviewDatabase:
    """The database of a review."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine
        self.writing = engine.execution_options(writes=True)
        self.reading = engine  # a single query needs no transaction: PostgreSQL uses AUTOCOMMIT
        if engine.dialect.name == "postgresql":
            self.reading = engine.execution_options(isolation_level="AUTOCOMMIT")

    def add(self, verdict: Verdict, request_id: str) -> Verdict:
        """Store a verdict and return it with its number; for a repeated `request_id`, return the stored verdict.

        Raise `ConflictError` if its version is not the latest version of the event plus 1.
        """
        values = {**asdict(verdict), "request_id": request_id}
        del values["number"]
        try:
            with self.writing.begin() as connection:
                latest = _latest(connection, verdict.event_id) if verdict.version > 1 else None
                if verdict.version == (latest.version if latest else 0) + 1:
                    return Verdict(*connection.execute(_ADD, values).one())
        except IntegrityError:  # another verdict was stored first, or this request was already stored
            pass
        with self.reading.connect() as connection:
            existing = connection.execute(_BY_REQUEST, {"key": request_id}).one_or_none()
            if existing is not None and (existing.event_id, existing.user) == (
                verdict.event_id,
                verdict.user,
            ):
                return Verdict(*existing)
            raise ConflictError(_latest(connection, verdict.event_id))

    def verdicts(self, after: int = 0) -> Iterator[Verdict]:
        """Yield all verdicts with a number above `after`, in their order."""
        query = sa.select(*_FIELDS).where(VERDICTS.c.number > after).order_by(VERDICTS.c.number)
        with self._engine.connect().execution_options(yield_per=5000) as connection:
            for row in connection.execute(query):
                yield Verdict(*row)

    def history(self, event_id: str) -> list[Verdict]:
        """Return all verdicts on an event or span, oldest first."""
        with self.reading.connect() as connection:
            rows = connection.execute(_BY_EVENT.order_by(VERDICTS.c.version), {"key": event_id})
            return [Verdict(*row) for row in rows]


def _latest(connection: sa.Connection, event_id: str) -> Verdict | None:
    row = connection.execute(_LATEST, {"key": event_id}).one_or_none()
    return None if row is None else Verdict(*row)


def database_of(source: str, database: str | None = None) -> str:
    """Return the address of a run's or study's database: the given one, or that of a SQLite file in its folder."""
    if database is not None:
        return database if "://" in database else f"{SQLITE}{database}"
    folder = load_study(Path(source)).work_dir if source.lower().endswith((".yaml", ".yml")) else source
    if is_remote(folder):
        raise ConfigError(
            f"{folder}: verdicts cannot be stored on an object store. Specify a database, such as "
            "--database review.sqlite or --database postgresql+psycopg://user@host/name."
        )
    return f"{SQLITE}{join(folder, REVIEW_DATABASE)}"


@contextmanager
def open_store(address: str) -> Iterator[ReviewDatabase]:
    """Open the database at an address and migrate its tables to the newest version."""
    try:
        engine = _engine(_url(address))
    except (ArgumentError, NoSuchModuleError):
        raise ConfigError(
            f"--database {address}: not a database address. Use a file name or "
            "postgresql+psycopg://user@host/name."
        ) from None
    except ModuleNotFoundError:
        raise MissingExtraError("PostgreSQL", "team") from None
    try:
        try:
            with engine.execution_options(writes=True).begin() as connection:
                _upgrade(connection)
        except DatabaseError as error:  # also if the file is not a database
            raise _unusable(engine, error) from error
        yield ReviewDatabase(engine)
    except OperationalError as error:
        raise _unusable(engine, error) from error
    finally:
        engine.dispose()


def _url(address: str) -> sa.URL:
    """Parse an address; everything after sqlite:/// is a path, whatever characters it has."""
    if address.startswith(SQLITE):
        return sa.URL.create("sqlite", database=address.removeprefix(SQLITE))
    return sa.make_url(address)


def _unusable(engine: sa.Engine, error: DatabaseError) -> StorageError:
    address = engine.url.render_as_string(hide_password=True)
    reason = str(error.orig).strip().splitlines()[0]
    return StorageError(f"{address}: the database cannot be used: {reason}.")


def _engine(url: sa.URL) -> sa.Engine:
    if url.get_backend_name() != "sqlite":
        return sa.create_engine(url, pool_size=MAX_CONNECTIONS, max_overflow=0)
    if url.database and not Path(url.database).parent.is_dir():
        raise StorageError(f"{Path(url.database).parent}: folder not found.")
    engine = sa.create_engine(url, connect_args={"timeout": BUSY_S, "isolation_level": None})

    @sa.event.listens_for(engine, "connect")
    def _prepare(connection: Any, _: object) -> None:
        """Write every verdict to disk before it is acknowledged; readers never wait for a writer."""
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        """Lock the database at the start of a write transaction, so that two writers cannot deadlock."""
        writes = connection.get_execution_options().get("writes")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _upgrade(connection: sa.Connection) -> None:
    config = Config()
    config.set_main_option("script_location", "mast.review:migrations")
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
