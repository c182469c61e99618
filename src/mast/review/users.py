"""Who may review: names, roles and passwords, where people are signed in, and patience with wrong passwords."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal, get_args

import sqlalchemy as sa

from mast.errors import ConfigError
from mast.review.store import SESSIONS, USERS, Store

Role = Literal["annotator", "reviewer", "admin"]
"""An annotator decides, but does not overrule a reviewer; an admin also says who may come in."""

SESSION = timedelta(days=14)
SHORTEST_PASSWORD = 10
LONGEST_PASSWORD = 1000
FREE_TRIES, LONGEST_WAIT_S, REMEMBERED = 4, 60.0, 10_000
"""Wrong passwords that cost nothing, how long one waits at most after more of them, and for how many names."""

_COST, _BLOCK, _LANES = 2**14, 8, 5
"""scrypt: 16 MB and some tenths of a second for each guess."""


@dataclass(frozen=True, slots=True)
class User:
    """A person who may review."""

    name: str
    role: Role


def add_user(store: Store, name: str, role: str, password: str | None) -> User:
    """Let someone in; without a password only a proxy can say that it is them."""
    known = check_role(role)
    if not name.strip() or len(name) > 100 or not name.isprintable():
        raise ConfigError(f"{name!r}: not a name. Use 1 to 100 letters.")
    row = {"name": name, "role": known, "password": password and hashed(password), "removed": False}
    with store.writing.begin() as connection:
        before = connection.execute(sa.select(USERS.c.removed).where(USERS.c.name == name)).scalar()
        if before is False:
            raise ConfigError(f"{name} is already there. Remove them first, or give them a new password.")
        connection.execute(sa.delete(USERS).where(USERS.c.name == name))
        connection.execute(sa.insert(USERS).values(row))
    return User(name, known)


def check_role(role: str) -> Role:
    """A role by its name."""
    names: dict[str, Role] = {known: known for known in get_args(Role)}
    if role not in names:
        raise ConfigError(f"--role {role}: no such role. Use {', '.join(names)}.")
    return names[role]


def remove_user(store: Store, name: str) -> None:
    """Let someone in no more, at once; what they decided stays, and counts as it did."""
    with store.writing.begin() as connection:
        _known(connection, name)
        connection.execute(sa.update(USERS).where(USERS.c.name == name).values(removed=True, password=None))
        connection.execute(sa.delete(SESSIONS).where(SESSIONS.c.name == name))


def change_password(store: Store, name: str, password: str) -> None:
    """Give someone a new password; wherever they are signed in, they have to give it."""
    secret = hashed(password)
    with store.writing.begin() as connection:
        _known(connection, name)
        connection.execute(sa.update(USERS).where(USERS.c.name == name).values(password=secret))
        connection.execute(sa.delete(SESSIONS).where(SESSIONS.c.name == name))


def users(store: Store) -> list[User]:
    """Everyone who may review."""
    query = sa.select(USERS.c.name, USERS.c.role).where(~USERS.c.removed).order_by(USERS.c.name)
    with store.reading.connect() as connection:
        return [User(*row) for row in connection.execute(query)]


def user_named(store: Store, name: str) -> User | None:
    """Someone by their name."""
    query = sa.select(USERS.c.name, USERS.c.role).where(USERS.c.name == name, ~USERS.c.removed)
    with store.reading.connect() as connection:
        row = connection.execute(query).one_or_none()
    return None if row is None else User(*row)


def role_of(store: Store, name: str) -> Role:
    """The role in which someone has decided; who is not known, such as the owner of a laptop, is a reviewer."""
    with store.reading.connect() as connection:
        role = connection.execute(sa.select(USERS.c.role).where(USERS.c.name == name)).scalar()
    return "reviewer" if role is None else check_role(role)


def sign_in(store: Store, name: str, password: str) -> str | None:
    """A fresh token for someone who knows their password; an unknown name takes as long as a wrong password."""
    query = sa.select(USERS.c.password).where(USERS.c.name == name, ~USERS.c.removed)
    with store.reading.connect() as connection:
        secret = connection.execute(query).scalar()
    if not matches(password, secret or _NOBODY) or secret is None:
        return None
    token, now = secrets.token_urlsafe(32), datetime.now(UTC)
    with store.writing.begin() as connection:
        connection.execute(sa.delete(SESSIONS).where(SESSIONS.c.ends_utc < now))
        row = {"token": _digest(token), "name": name, "ends_utc": now + SESSION}
        connection.execute(sa.insert(SESSIONS).values(row))
    return token


def sign_out(store: Store, token: str) -> None:
    """Make a token worthless."""
    with store.writing.begin() as connection:
        connection.execute(sa.delete(SESSIONS).where(SESSIONS.c.token == _digest(token)))


def signed_in(store: Store, token: str) -> User | None:
    """Whose token this is."""
    query = (
        sa.select(USERS.c.name, USERS.c.role)
        .join(SESSIONS, SESSIONS.c.name == USERS.c.name)
        .where(SESSIONS.c.token == _digest(token), SESSIONS.c.ends_utc > datetime.now(UTC))
        .where(~USERS.c.removed)
    )
    with store.reading.connect() as connection:
        row = connection.execute(query).one_or_none()
    return None if row is None else User(*row)


class Patience:
    """How long to wait before the next password for a name is looked at: twice as long after each wrong one."""

    def __init__(self) -> None:
        self._wrong: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self._lock = threading.Lock()

    def wait_s(self, name: str) -> float:
        """Seconds from now; 0 where the next password may be given."""
        with self._lock:
            count, last_s = self._wrong.get(name, (0, 0.0))
        if count <= FREE_TRIES:
            return 0.0
        pause_s = min(2.0 ** (count - FREE_TRIES - 1), LONGEST_WAIT_S)
        return max(0.0, last_s + pause_s - time.monotonic())

    def wrong(self, name: str) -> None:
        """A wrong password was given."""
        with self._lock:
            count, _ = self._wrong.pop(name, (0, 0.0))
            self._wrong[name] = (count + 1, time.monotonic())
            while len(self._wrong) > REMEMBERED:
                self._wrong.popitem(last=False)

    def right(self, name: str) -> None:
        """The right password was given: all is forgotten."""
        with self._lock:
            self._wrong.pop(name, None)


def hashed(password: str) -> str:
    """A password as it is kept: nobody can read it back."""
    if not SHORTEST_PASSWORD <= len(password) <= LONGEST_PASSWORD:
        raise ConfigError(
            f"A password has at least {SHORTEST_PASSWORD} letters; three words are easy to remember."
        )
    salt = secrets.token_bytes(16)
    return f"scrypt${salt.hex()}${_scrypt(password, salt).hex()}"


def matches(password: str, secret: str) -> bool:
    """Whether this is the password that was kept."""
    _, salt, digest = secret.split("$")
    return hmac.compare_digest(_scrypt(password, bytes.fromhex(salt)), bytes.fromhex(digest))


def _scrypt(password: str, salt: bytes) -> bytes:
    return hashlib.scrypt(
        password.encode("utf-8", "surrogatepass"), salt=salt, n=_COST, r=_BLOCK, p=_LANES, maxmem=64 << 20
    )


def _digest(token: str) -> str:
    """What the database knows of a token: who reads it there cannot sign in with it."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def _known(connection: sa.Connection, name: str) -> None:
    if connection.execute(sa.select(USERS.c.removed).where(USERS.c.name == name)).scalar() is not False:
        raise ConfigError(f"{name}: nobody of this name may review. mast users list tells who may.")


_NOBODY = "scrypt$" + "00" * 16 + "$" + "00" * 64
