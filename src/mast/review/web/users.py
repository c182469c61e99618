"""Users of a review: names, roles, passwords, sessions, and a throttle for wrong passwords."""

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
from mast.review.database import SESSIONS, USERS, ReviewDatabase

Role = Literal["annotator", "reviewer", "admin"]
"""Role of a user: an annotator gives verdicts but cannot overrule a reviewer; an admin also manages users."""

SESSION = timedelta(days=14)
SHORTEST_PASSWORD = 10
LONGEST_PASSWORD = 1000
FREE_ATTEMPTS, LONGEST_WAIT_S, MAX_THROTTLED_NAMES = 4, 60.0, 10_000
"""Wrong passwords without a pause, the maximum pause after more of them, and the maximum number of stored names."""

_COST, _BLOCK, _LANES = 2**14, 8, 5
"""scrypt parameters: 16 MB and a few tenths of a second for each password check."""


@dataclass(frozen=True, slots=True)
class User:
    """User of a review."""

    name: str
    role: Role


def add_user(store: ReviewDatabase, name: str, role: str, password: str | None) -> User:
    """Add a user; without a password, the user can only sign in through a proxy."""
    stored = check_role(role)
    if not name.strip() or len(name) > 100 or not name.isprintable():
        raise ConfigError(f"{name!r}: not a valid name. Use 1 to 100 printable characters.")
    row = {"name": name, "role": stored, "password": password and hash_password(password), "removed": False}
    with store.writing.begin() as connection:
        removed = connection.execute(sa.select(USERS.c.removed).where(USERS.c.name == name)).scalar()
        if removed is False:
            raise ConfigError(f"{name} is already a user. Remove the user first, or set a new password.")
        connection.execute(sa.delete(USERS).where(USERS.c.name == name))
        connection.execute(sa.insert(USERS).values(row))
    return User(name, stored)


def check_role(role: str) -> Role:
    """Return the role with this name; raise ConfigError if there is none."""
    names: dict[str, Role] = {stored: stored for stored in get_args(Role)}
    if role not in names:
        raise ConfigError(f"--role {role}: not a role. Use {', '.join(names)}.")
    return names[role]


def remove_user(store: ReviewDatabase, name: str) -> None:
    """Remove a user and end all sessions; the user's verdicts stay valid."""
    with store.writing.begin() as connection:
        _check_exists(connection, name)
        connection.execute(sa.update(USERS).where(USERS.c.name == name).values(removed=True, password=None))
        connection.execute(sa.delete(SESSIONS).where(SESSIONS.c.name == name))


def change_password(store: ReviewDatabase, name: str, password: str) -> None:
    """Set a new password and end all sessions of the user."""
    secret = hash_password(password)
    with store.writing.begin() as connection:
        _check_exists(connection, name)
        connection.execute(sa.update(USERS).where(USERS.c.name == name).values(password=secret))
        connection.execute(sa.delete(SESSIONS).where(SESSIONS.c.name == name))


def users(store: ReviewDatabase) -> list[User]:
    """Return all users, sorted by name."""
    query = sa.select(USERS.c.name, USERS.c.role).where(~USERS.c.removed).order_by(USERS.c.name)
    with store.reading.connect() as connection:
        return [User(*row) for row in connection.execute(query)]


def find_user(store: ReviewDatabase, name: str) -> User | None:
    """Return the user with this name, or None."""
    query = sa.select(USERS.c.name, USERS.c.role).where(USERS.c.name == name, ~USERS.c.removed)
    with store.reading.connect() as connection:
        row = connection.execute(query).one_or_none()
    return None if row is None else User(*row)


def role_of(store: ReviewDatabase, name: str) -> Role:
    """Return the role of a current or removed user; an unknown name, such as a local user, is a reviewer."""
    with store.reading.connect() as connection:
        role = connection.execute(sa.select(USERS.c.role).where(USERS.c.name == name)).scalar()
    return "reviewer" if role is None else check_role(role)


def sign_in(store: ReviewDatabase, name: str, password: str) -> str | None:
    """Return a new session token, or None for a wrong password or unknown name; both take the same time."""
    query = sa.select(USERS.c.password).where(USERS.c.name == name, ~USERS.c.removed)
    with store.reading.connect() as connection:
        secret = connection.execute(query).scalar()
    if not verify_password(password, secret or _DUMMY_HASH) or secret is None:
        return None
    token, now = secrets.token_urlsafe(32), datetime.now(UTC)
    with store.writing.begin() as connection:
        connection.execute(sa.delete(SESSIONS).where(SESSIONS.c.ends_utc < now))
        row = {"token": _digest(token), "name": name, "ends_utc": now + SESSION}
        connection.execute(sa.insert(SESSIONS).values(row))
    return token


def sign_out(store: ReviewDatabase, token: str) -> None:
    """End the session of a token."""
    with store.writing.begin() as connection:
        connection.execute(sa.delete(SESSIONS).where(SESSIONS.c.token == _digest(token)))


def session_user(store: ReviewDatabase, token: str) -> User | None:
    """Return the user of a session token, or None."""
    query = (
        sa.select(USERS.c.name, USERS.c.role)
        .join(SESSIONS, SESSIONS.c.name == USERS.c.name)
        .where(SESSIONS.c.token == _digest(token), SESSIONS.c.ends_utc > datetime.now(UTC))
        .where(~USERS.c.removed)
    )
    with store.reading.connect() as connection:
        row = connection.execute(query).one_or_none()
    return None if row is None else User(*row)


class LoginThrottle:
    """Throttle for passwords: the pause before the next attempt for a name doubles with each wrong password."""

    def __init__(self) -> None:
        self._wrong: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self._lock = threading.Lock()

    def wait_s(self, name: str) -> float:
        """Return the seconds to wait before the next attempt, 0 if none."""
        with self._lock:
            count, last_s = self._wrong.get(name, (0, 0.0))
        if count <= FREE_ATTEMPTS:
            return 0.0
        pause_s = min(2.0 ** (count - FREE_ATTEMPTS - 1), LONGEST_WAIT_S)
        return max(0.0, last_s + pause_s - time.monotonic())

    def wrong(self, name: str) -> None:
        """Record a wrong password."""
        with self._lock:
            count, _ = self._wrong.pop(name, (0, 0.0))
            self._wrong[name] = (count + 1, time.monotonic())
            while len(self._wrong) > MAX_THROTTLED_NAMES:
                self._wrong.popitem(last=False)

    def right(self, name: str) -> None:
        """Record a correct password: forget the wrong ones."""
        with self._lock:
            self._wrong.pop(name, None)


def hash_password(password: str) -> str:
    """Return the salted scrypt hash of a password."""
    if not SHORTEST_PASSWORD <= len(password) <= LONGEST_PASSWORD:
        raise ConfigError(
            f"A password needs at least {SHORTEST_PASSWORD} characters; three words are easy to remember."
        )
    salt = secrets.token_bytes(16)
    return f"scrypt${salt.hex()}${_scrypt(password, salt).hex()}"


def verify_password(password: str, secret: str) -> bool:
    """Return True if a password matches a stored hash."""
    _, salt, digest = secret.split("$")
    return hmac.compare_digest(_scrypt(password, bytes.fromhex(salt)), bytes.fromhex(digest))


def _scrypt(password: str, salt: bytes) -> bytes:
    return hashlib.scrypt(
        password.encode("utf-8", "surrogatepass"), salt=salt, n=_COST, r=_BLOCK, p=_LANES, maxmem=64 << 20
    )


def _digest(token: str) -> str:
    """Return the stored hash of a session token, which cannot be used to sign in."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def _check_exists(connection: sa.Connection, name: str) -> None:
    if connection.execute(sa.select(USERS.c.removed).where(USERS.c.name == name)).scalar() is not False:
        raise ConfigError(f"{name}: not a user. List the users with mast users list.")


_DUMMY_HASH = "scrypt$" + "00" * 16 + "$" + "00" * 64
