"""Who is asking, and how they sign in and out; an admin says who may come in."""

from __future__ import annotations

import getpass
import math
import threading
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

from mast.errors import ConfigError
from mast.review import users
from mast.review.deciding import Text
from mast.review.guard import Gate, from_proxy, scheme_of
from mast.review.store import Store
from mast.review.users import LONGEST_PASSWORD, Patience, User

COOKIE = "mast_session"
GUESSES_AT_ONCE = 2
"""Passwords that are looked at together: each takes much memory and time, which nobody else should miss."""


class Credentials(BaseModel):
    """A name and its password."""

    model_config = ConfigDict(extra="forbid")
    name: Text = Field(min_length=1, max_length=100)
    password: str = Field(min_length=1, max_length=LONGEST_PASSWORD)


class Newcomer(Credentials):
    """Someone to let in, with their first password."""

    role: users.Role


class Leaver(BaseModel):
    """Someone to let in no more."""

    model_config = ConfigDict(extra="forbid")
    name: Text = Field(min_length=1, max_length=100)


def find_person(request: Request) -> User:
    """Who is asking: by the proxy's word, by their cookie, or the owner of this machine where nobody signs in."""
    store: Store = request.app.state.review.store
    gate: Gate = request.app.state.review.gate
    named = request.headers.get(gate.trust_header) if gate.trust_header else None
    if named and from_proxy(request.scope, gate):
        known = users.user_named(store, named) if named.isprintable() else None
        if known is None:
            raise HTTPException(403, f"{named} may not review yet. Ask for: mast users add … {named}")
        return known
    token = request.cookies.get(COOKIE)
    person = users.signed_in(store, token) if token else None
    if person is not None:
        return person
    if is_open(gate, store):
        return User(getpass.getuser(), "admin")
    raise HTTPException(401, "Sign in first.")


def is_open(gate: Gate, store: Store) -> bool:
    """Whether nobody has to sign in: only this machine can come in, and nobody has been named who may."""
    return gate.is_loopback and gate.trust_header is None and not users.users(store)


Person = Annotated[User, Depends(find_person)]


def find_admin(person: Person) -> User:
    """Who is asking, if they may say who comes in."""
    if person.role != "admin":
        raise HTTPException(403, "Only an admin may do this.")
    return person


def _token_for(given: Credentials, store: Store, patience: Patience) -> str:
    """A fresh session; refused while the name has to wait, which each wrong password makes longer."""
    wait_s = math.ceil(patience.wait_s(given.name))
    if wait_s:
        told = f"Too many wrong passwords. Wait {wait_s} s, then try again."
        raise HTTPException(429, told, {"retry-after": str(wait_s)})
    token = users.sign_in(store, given.name, given.password)
    if token is None:
        patience.wrong(given.name)
        raise HTTPException(401, "Name or password are not right.")
    patience.right(given.name)
    return token


def add_accounts(app: FastAPI, store: Store, gate: Gate) -> None:
    """Signing in and out, and who may."""
    patience, turns = Patience(), threading.BoundedSemaphore(GUESSES_AT_ONCE)

    @app.post("/api/sign-in")
    def sign_in(given: Credentials, request: Request, response: Response) -> dict[str, Any]:
        """A fresh session for a name and its password; whatever cookie came with them is forgotten."""
        if not turns.acquire(blocking=False):  # who waits here would keep others from all else
            raise HTTPException(429, "Others are signing in. Try again in a second.", {"retry-after": "1"})
        try:
            token = _token_for(given, store, patience)
        finally:
            turns.release()
        if before := request.cookies.get(COOKIE):
            users.sign_out(store, before)
        secure = scheme_of(request.scope, dict(request.headers), gate) == "https"
        age_s = round(users.SESSION.total_seconds())
        response.set_cookie(
            COOKIE, token, max_age=age_s, httponly=True, samesite="strict", secure=secure, path="/"
        )
        return {"name": given.name}

    @app.post("/api/sign-out")
    def sign_out(request: Request, response: Response) -> dict[str, Any]:
        """End a session."""
        if token := request.cookies.get(COOKIE):
            users.sign_out(store, token)
        response.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
        return {}

    @app.get("/api/users", dependencies=[Depends(find_admin)])
    def everyone() -> dict[str, Any]:
        """Everyone who may review."""
        return {"users": [{"name": user.name, "role": user.role} for user in users.users(store)]}

    @app.post("/api/users", dependencies=[Depends(find_admin)])
    def let_in(newcomer: Newcomer) -> dict[str, Any]:
        """Let someone in."""
        try:
            users.add_user(store, newcomer.name, newcomer.role, newcomer.password)
        except ConfigError as error:
            raise HTTPException(422, str(error)) from None
        return everyone()

    @app.post("/api/users/remove")
    def let_out(leaver: Leaver, admin: Annotated[User, Depends(find_admin)]) -> dict[str, Any]:
        """Let someone in no more."""
        if leaver.name == admin.name:
            raise HTTPException(422, "Another admin has to remove you.")
        try:
            users.remove_user(store, leaver.name)
        except ConfigError as error:
            raise HTTPException(422, str(error)) from None
        return everyone()
