"""Verdicts in a database, only ever added: SQLite for one person, PostgreSQL for a team; the same tables in both."""

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
from mast.review.reading import REVIEW
from mast.review.verdicts import Verdict
from mast.storage import is_remote, join

SQLITE = "sqlite:///"
"""How the address of a file begins."""

BUSY_S = 30.0
"""How long a writer waits for another one."""

POOL = 16
"""Connections that are kept open, at most."""


class _UtcTime(sa.TypeDecorator[datetime]):
    """An instant; SQLite forgets that it was UTC."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_result_value(self, value: datetime | None, dialect: Any) -> datetime | None:
        return value.replace(tzinfo=UTC) if value is not None and value.tzinfo is None else value


TABLES = sa.MetaData()
VERDICTS = sa.Table(
    "verdicts",
    TABLES,
    sa.Column("number", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), primary_key=True),
    *(sa.Column(name, sa.Text()) for name in ("subject", "kind", "state", "recording_id", "label")),
    *(sa.Column(name, sa.Text()) for name in ("model", "who", "queue", "request_id")),
    *(sa.Column(name, sa.Double()) for name in ("start_s", "end_s", "low_hz", "high_hz", "score")),
    *(sa.Column(name, sa.Integer()) for name in ("version", "undoes")),
    sa.Column("at_utc", _UtcTime()),
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
_SUBJECT = sa.select(*_FIELDS).where(VERDICTS.c.subject == sa.bindparam("of"))
_LATEST = _SUBJECT.order_by(VERDICTS.c.version.desc()).limit(1)
_REQUEST = sa.select(*_FIELDS).where(VERDICTS.c.request_id == sa.bindparam("of"))
_ADD = sa.insert(VERDICTS).returning(*_FIELDS)


class OutdatedError(Exception):
    """Someone else has decided in the meantime; `holds` is what they decided, or None where nothing holds."""

    def __init__(self, holds: Verdict | None) -> None:
        super().__init__("this version is taken")
        self.holds = holds


class Store:
    """The database of a review."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine
        self.writing = engine.execution_options(writes=True)
        self.reading = (
            engine  # a question alone needs no transaction, which PostgreSQL is told by words of its own
        )
        if engine.dialect.name == "postgresql":
            self.reading = engine.execution_options(isolation_level="AUTOCOMMIT")

    def add(self, verdict: Verdict, request_id: str) -> Verdict:
        """Keep a verdict and give it its number; asked again with the same `request_id`, the one that is kept.

        Its version must follow the one that holds; where it does not, `OutdatedError`.
        """
        values = {**asdict(verdict), "request_id": request_id}
        del values["number"]
        try:
            with self.writing.begin() as connection:
                latest = _latest(connection, verdict.subject) if verdict.version > 1 else None
                if verdict.version == (latest.version if latest else 0) + 1:
                    return Verdict(*connection.execute(_ADD, values).one())
        except IntegrityError:  # another one was quicker, or this request has come before
            pass
        with self.reading.connect() as connection:
            kept = connection.execute(_REQUEST, {"of": request_id}).one_or_none()
            if kept is not None and (kept.subject, kept.who) == (verdict.subject, verdict.who):
                return Verdict(*kept)
            raise OutdatedError(_latest(connection, verdict.subject))

    def verdicts(self, after: int = 0) -> Iterator[Verdict]:
        """All verdicts in their order, or those with a higher number than `after`."""
        query = sa.select(*_FIELDS).where(VERDICTS.c.number > after).order_by(VERDICTS.c.number)
        with self._engine.connect().execution_options(yield_per=5000) as connection:
            for row in connection.execute(query):
                yield Verdict(*row)

    def history(self, subject: str) -> list[Verdict]:
        """All that was ever decided about a sound or a span, first things first."""
        with self.reading.connect() as connection:
            rows = connection.execute(_SUBJECT.order_by(VERDICTS.c.version), {"of": subject})
            return [Verdict(*row) for row in rows]


def _latest(connection: sa.Connection, subject: str) -> Verdict | None:
    row = connection.execute(_LATEST, {"of": subject}).one_or_none()
    return None if row is None else Verdict(*row)


def database_of(source: str, database: str | None = None) -> str:
    """Address of the database of a run or a study: the one given, or a SQLite file beside what is reviewed."""
    if database is not None:
        return database if "://" in database else f"{SQLITE}{database}"
    folder = load_study(Path(source)).work if source.lower().endswith((".yaml", ".yml")) else source
    if is_remote(folder):
        raise ConfigError(
            f"{folder}: verdicts cannot be kept on an object store. Say where, such as --database review.sqlite "
            "or --database postgresql+psycopg://user@host/name."
        )
    return f"{SQLITE}{join(folder, REVIEW)}"


@contextmanager
def open_store(address: str) -> Iterator[Store]:
    """The database at an address, brought to the newest form of its tables."""
    try:
        engine = _engine(_url(address))
    except (ArgumentError, NoSuchModuleError):
        raise ConfigError(
            f"--database {address}: not an address of a database. Write a file name, or "
            "postgresql+psycopg://user@host/name."
        ) from None
    except ModuleNotFoundError:
        raise MissingExtraError("PostgreSQL", "team") from None
    try:
        try:
            with engine.execution_options(writes=True).begin() as connection:
                _to_newest(connection)
        except DatabaseError as error:  # also a file that is something else
            raise _unusable(engine, error) from error
        yield Store(engine)
    except OperationalError as error:
        raise _unusable(engine, error) from error
    finally:
        engine.dispose()


def _url(address: str) -> sa.URL:
    """The parts of an address; all that follows sqlite:/// is a path, whatever signs are in it."""
    if address.startswith(SQLITE):
        return sa.URL.create("sqlite", database=address.removeprefix(SQLITE))
    return sa.make_url(address)


def _unusable(engine: sa.Engine, error: DatabaseError) -> StorageError:
    place = engine.url.render_as_string(hide_password=True)
    reason = str(error.orig).strip().splitlines()[0]
    return StorageError(f"{place}: the database cannot be used: {reason}.")


def _engine(url: sa.URL) -> sa.Engine:
    if url.get_backend_name() != "sqlite":
        return sa.create_engine(url, pool_size=POOL, max_overflow=0)
    if url.database and not Path(url.database).parent.is_dir():
        raise StorageError(f"{Path(url.database).parent}: there is no such folder.")
    engine = sa.create_engine(url, connect_args={"timeout": BUSY_S, "isolation_level": None})

    @sa.event.listens_for(engine, "connect")
    def _prepare(connection: Any, _: object) -> None:
        """A verdict is on the disk before it is acknowledged; readers never wait for a writer."""
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        """Whoever will write takes their turn at once, so that no two hold what the other needs."""
        writes = connection.get_execution_options().get("writes")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _to_newest(connection: sa.Connection) -> None:
    config = Config()
    config.set_main_option("script_location", "mast.review:migrations")
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
