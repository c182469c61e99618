"""Authentication: the current user of a request, sign-in and sign-out, and user management by admins."""

from __future__ import annotations

import getpass
import math
import threading
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

from mast.errors import ConfigError
from mast.review.database import ReviewDatabase
from mast.review.web import users
from mast.review.web.requests import Text
from mast.review.web.security import AccessPolicy, from_proxy, scheme_of
from mast.review.web.users import LONGEST_PASSWORD, LoginThrottle, User

COOKIE = "mast_session"
MAX_CONCURRENT_LOGINS = 2
"""Maximum number of passwords checked at the same time: each check needs much memory and time."""


class Credentials(BaseModel):
    """User name and password."""

    model_config = ConfigDict(extra="forbid")
    name: Text = Field(min_length=1, max_length=100)
    password: str = Field(min_length=1, max_length=LONGEST_PASSWORD)


class NewUser(Credentials):
    """User to add, with the initial password."""

    role: users.Role


class UserRemoval(BaseModel):
    """User to remove."""

    model_config = ConfigDict(extra="forbid")
    name: Text = Field(min_length=1, max_length=100)


def current_user(request: Request) -> User:
    """Return the user from the proxy's header or the session cookie, or the local user if sign-in is disabled."""
    store: ReviewDatabase = request.app.state.review.store
    policy: AccessPolicy = request.app.state.review.policy
    named = request.headers.get(policy.trust_header) if policy.trust_header else None
    if named and from_proxy(request.scope, policy):
        user = users.find_user(store, named) if named.isprintable() else None
        if user is None:
            raise HTTPException(
                403, f"{named} is not a user of this review. An admin can run: mast users add … {named}"
            )
        return user
    token = request.cookies.get(COOKIE)
    user = users.session_user(store, token) if token else None
    if user is not None:
        return user
    if is_auth_disabled(policy, store):
        return User(getpass.getuser(), "admin")
    raise HTTPException(401, "Sign in first.")


def is_auth_disabled(policy: AccessPolicy, store: ReviewDatabase) -> bool:
    """Return True if sign-in is disabled: the server only accepts local requests and has no users."""
    return policy.is_loopback and policy.trust_header is None and not users.users(store)


CurrentUser = Annotated[User, Depends(current_user)]


def current_admin(user: CurrentUser) -> User:
    """Return the current user; raise HTTPException 403 if the user is not an admin."""
    if user.role != "admin":
        raise HTTPException(403, "Only admins can do this.")
    return user


def _token_for(credentials: Credentials, store: ReviewDatabase, throttle: LoginThrottle) -> str:
    """Start a session; raise HTTPException if the password is wrong or the throttle requires a pause."""
    wait_s = math.ceil(throttle.wait_s(credentials.name))
    if wait_s:
        message = f"Too many wrong passwords. Wait {wait_s} s, then try again."
        raise HTTPException(429, message, {"retry-after": str(wait_s)})
    token = users.sign_in(store, credentials.name, credentials.password)
    if token is None:
        throttle.wrong(credentials.name)
        raise HTTPException(401, "Wrong name or password.")
    throttle.right(credentials.name)
    return token


def add_accounts(app: FastAPI, store: ReviewDatabase, policy: AccessPolicy) -> None:
    """Add the routes for sign-in, sign-out and user management."""
    throttle, slots = LoginThrottle(), threading.BoundedSemaphore(MAX_CONCURRENT_LOGINS)

    @app.post("/api/sign-in")
    def sign_in(credentials: Credentials, request: Request, response: Response) -> dict[str, Any]:
        """Start a new session for a name and password; end the session of the request's cookie."""
        if not slots.acquire(blocking=False):  # a waiting request would block a worker thread
            raise HTTPException(
                429, "Other users are signing in. Try again in 1 second.", {"retry-after": "1"}
            )
        try:
            token = _token_for(credentials, store, throttle)
        finally:
            slots.release()
        if previous := request.cookies.get(COOKIE):
            users.sign_out(store, previous)
        secure = scheme_of(request.scope, dict(request.headers), policy) == "https"
        max_age_s = round(users.SESSION.total_seconds())
        response.set_cookie(
            COOKIE, token, max_age=max_age_s, httponly=True, samesite="strict", secure=secure, path="/"
        )
        return {"name": credentials.name}

    @app.post("/api/sign-out")
    def sign_out(request: Request, response: Response) -> dict[str, Any]:
        """End the session."""
        if token := request.cookies.get(COOKIE):
            users.sign_out(store, token)
        response.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
        return {}

    @app.get("/api/users", dependencies=[Depends(current_admin)])
    def list_users() -> dict[str, Any]:
        """Return all users."""
        return {"users": [{"name": user.name, "role": user.role} for user in users.users(store)]}

    @app.post("/api/users", dependencies=[Depends(current_admin)])
    def add_user(new_user: NewUser) -> dict[str, Any]:
        """Add a user."""
        try:
            users.add_user(store, new_user.name, new_user.role, new_user.password)
        except ConfigError as error:
            raise HTTPException(422, str(error)) from None
        return list_users()

    @app.post("/api/users/remove")
    def remove_user(removal: UserRemoval, admin: Annotated[User, Depends(current_admin)]) -> dict[str, Any]:
        """Remove a user."""
        if removal.name == admin.name:
            raise HTTPException(422, "You cannot remove yourself. Ask another admin.")
        try:
            users.remove_user(store, removal.name)
        except ConfigError as error:
            raise HTTPException(422, str(error)) from None
        return list_users()
