"""Users: names, roles, password hashes, sessions with an end, and the login throttle."""

from datetime import timedelta

import pytest
import sqlalchemy as sa

from mast.errors import ConfigError
from mast.review.database import SESSIONS, USERS
from mast.review.web import users
from mast.review.web.users import (
    LoginThrottle,
    User,
    add_user,
    change_password,
    find_user,
    remove_user,
    role_of,
    session_user,
    sign_in,
    sign_out,
)

PASSWORD = "three short words"


@pytest.fixture
def ann(store):
    return add_user(store, "Ann", "reviewer", PASSWORD)


def test_a_new_database_has_no_users(store):
    assert users.users(store) == [] and find_user(store, "Ann") is None
    assert sign_in(store, "Ann", PASSWORD) is None and session_user(store, "") is None


def test_a_user_is_added_and_signs_in_and_out(store, ann):
    assert users.users(store) == [ann] == [find_user(store, "Ann")]
    token = sign_in(store, "Ann", PASSWORD)
    assert session_user(store, token) == ann
    sign_out(store, token)
    assert session_user(store, token) is None


def test_a_wrong_password_gives_no_session(store, ann):
    assert sign_in(store, "Ann", "three short wordz") is None


def test_every_session_has_a_different_token(store, ann):
    tokens = {sign_in(store, "Ann", PASSWORD) for _ in range(3)}
    assert len(tokens) == 3 and all(len(token) >= 43 for token in tokens)


def test_the_database_holds_neither_passwords_nor_tokens(store, ann):
    token = sign_in(store, "Ann", PASSWORD)
    with store.reading.connect() as connection:
        rows = [*connection.execute(sa.select(USERS)), *connection.execute(sa.select(SESSIONS))]
    assert PASSWORD not in str(rows) and token not in str(rows)


def test_two_hashes_of_one_password_differ():
    assert users.hash_password(PASSWORD) != users.hash_password(PASSWORD)
    assert users.verify_password(PASSWORD, users.hash_password(PASSWORD))


def test_a_session_expires(store, ann, monkeypatch):
    monkeypatch.setattr(users, "SESSION", timedelta(seconds=-1))
    assert session_user(store, sign_in(store, "Ann", PASSWORD)) is None


def test_a_removed_user_is_signed_out_at_once_and_keeps_the_role_of_earlier_verdicts(store, ann):
    token = sign_in(store, "Ann", PASSWORD)
    remove_user(store, "Ann")
    assert session_user(store, token) is None and sign_in(store, "Ann", PASSWORD) is None
    assert users.users(store) == [] and role_of(store, "Ann") == "reviewer"
    assert add_user(store, "Ann", "annotator", PASSWORD) == User("Ann", "annotator")


def test_a_new_password_ends_all_sessions(store, ann):
    token = sign_in(store, "Ann", PASSWORD)
    change_password(store, "Ann", "another three words")
    assert session_user(store, token) is None and sign_in(store, "Ann", PASSWORD) is None
    assert sign_in(store, "Ann", "another three words")


def test_a_user_without_a_password_cannot_sign_in(store):
    add_user(store, "Proxy", "annotator", None)
    assert sign_in(store, "Proxy", "") is None and find_user(store, "Proxy")


def test_an_unknown_user_has_the_role_reviewer(store):
    assert role_of(store, "owner of a laptop") == "reviewer"


@pytest.mark.parametrize(
    ("name", "role", "password", "message"),
    [
        ("Ann", "reviewer", PASSWORD, "Ann is already a user"),
        ("Bo", "king", PASSWORD, "not a role. Use annotator, reviewer, admin"),
        ("Bo", "admin", "short", "at least 10 characters"),
        (" ", "admin", PASSWORD, "not a valid name"),
        ("a\nb", "admin", PASSWORD, "not a valid name"),
    ],
)
def test_invalid_users_are_refused_with_a_message(store, ann, name, role, password, message):
    with pytest.raises(ConfigError, match=message):
        add_user(store, name, role, password)


@pytest.mark.parametrize("change", [remove_user, lambda store, name: change_password(store, name, PASSWORD)])
def test_an_unknown_user_cannot_be_changed(store, change):
    with pytest.raises(ConfigError, match="Zoe: not a user. List the users with mast users list"):
        change(store, "Zoe")


def test_the_pause_doubles_with_every_wrong_password_and_ends_with_the_right_one(monkeypatch):
    now_s = 0.0
    monkeypatch.setattr(users.time, "monotonic", lambda: now_s)
    throttle, waits_s = LoginThrottle(), []
    for _ in range(12):
        waits_s.append(throttle.wait_s("Ann"))
        now_s += waits_s[-1]
        throttle.wrong("Ann")
    assert waits_s == [0, 0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 60]
    assert throttle.wait_s("Bo") == 0
    throttle.right("Ann")
    assert throttle.wait_s("Ann") == 0


def test_the_throttle_stores_a_limited_number_of_names(monkeypatch):
    monkeypatch.setattr(users, "MAX_THROTTLED_NAMES", 2)
    throttle = LoginThrottle()
    for name in ["Ann"] * 6 + ["Bo", "Cy"]:
        throttle.wrong(name)
    assert throttle.wait_s("Ann") == 0
