"""Who may review: names, roles, passwords that nobody can read back, sessions that end, and patience."""

from datetime import timedelta

import pytest
import sqlalchemy as sa

from mast.errors import ConfigError
from mast.review import users
from mast.review.store import SESSIONS, USERS
from mast.review.users import (
    Patience,
    User,
    add_user,
    change_password,
    remove_user,
    role_of,
    sign_in,
    sign_out,
    signed_in,
    user_named,
)

PASSWORD = "three short words"


@pytest.fixture
def ann(store):
    return add_user(store, "Ann", "reviewer", PASSWORD)


def test_at_first_nobody_is_known(store):
    assert users.users(store) == [] and user_named(store, "Ann") is None
    assert sign_in(store, "Ann", PASSWORD) is None and signed_in(store, "") is None


def test_someone_is_let_in_signs_in_and_out(store, ann):
    assert users.users(store) == [ann] == [user_named(store, "Ann")]
    token = sign_in(store, "Ann", PASSWORD)
    assert signed_in(store, token) == ann
    sign_out(store, token)
    assert signed_in(store, token) is None


def test_a_wrong_password_is_none(store, ann):
    assert sign_in(store, "Ann", "three short wordz") is None


def test_every_session_has_a_token_of_its_own(store, ann):
    tokens = {sign_in(store, "Ann", PASSWORD) for _ in range(3)}
    assert len(tokens) == 3 and all(len(token) >= 43 for token in tokens)


def test_the_database_holds_neither_passwords_nor_tokens(store, ann):
    token = sign_in(store, "Ann", PASSWORD)
    with store.reading.connect() as connection:
        rows = [*connection.execute(sa.select(USERS)), *connection.execute(sa.select(SESSIONS))]
    assert PASSWORD not in str(rows) and token not in str(rows)


def test_two_people_with_one_password_have_different_secrets():
    assert users.hashed(PASSWORD) != users.hashed(PASSWORD)
    assert users.matches(PASSWORD, users.hashed(PASSWORD))


def test_a_session_ends_by_itself(store, ann, monkeypatch):
    monkeypatch.setattr(users, "SESSION", timedelta(seconds=-1))
    assert signed_in(store, sign_in(store, "Ann", PASSWORD)) is None


def test_who_is_removed_is_out_at_once_and_what_they_said_keeps_its_weight(store, ann):
    token = sign_in(store, "Ann", PASSWORD)
    remove_user(store, "Ann")
    assert signed_in(store, token) is None and sign_in(store, "Ann", PASSWORD) is None
    assert users.users(store) == [] and role_of(store, "Ann") == "reviewer"
    assert add_user(store, "Ann", "annotator", PASSWORD) == User("Ann", "annotator")


def test_a_new_password_ends_all_sessions(store, ann):
    token = sign_in(store, "Ann", PASSWORD)
    change_password(store, "Ann", "another three words")
    assert signed_in(store, token) is None and sign_in(store, "Ann", PASSWORD) is None
    assert sign_in(store, "Ann", "another three words")


def test_who_has_no_password_cannot_sign_in_with_one(store):
    add_user(store, "Proxy", "annotator", None)
    assert sign_in(store, "Proxy", "") is None and user_named(store, "Proxy")


def test_whoever_is_not_known_has_decided_as_a_reviewer(store):
    assert role_of(store, "owner of a laptop") == "reviewer"


@pytest.mark.parametrize(
    ("name", "role", "password", "told"),
    [
        ("Ann", "reviewer", PASSWORD, "Ann is already there"),
        ("Bo", "king", PASSWORD, "no such role. Use annotator, reviewer, admin"),
        ("Bo", "admin", "short", "at least 10 letters"),
        (" ", "admin", PASSWORD, "not a name"),
        ("a\nb", "admin", PASSWORD, "not a name"),
    ],
)
def test_what_cannot_be_is_refused_in_words(store, ann, name, role, password, told):
    with pytest.raises(ConfigError, match=told):
        add_user(store, name, role, password)


@pytest.mark.parametrize("change", [remove_user, lambda store, name: change_password(store, name, PASSWORD)])
def test_nobody_can_be_changed_who_is_not_there(store, change):
    with pytest.raises(ConfigError, match="nobody of this name may review"):
        change(store, "Zoe")


def test_patience_doubles_with_every_wrong_password_and_ends_with_the_right_one(monkeypatch):
    now_s = 0.0
    monkeypatch.setattr(users.time, "monotonic", lambda: now_s)
    patience, waits_s = Patience(), []
    for _ in range(12):
        waits_s.append(patience.wait_s("Ann"))
        now_s += waits_s[-1]
        patience.wrong("Ann")
    assert waits_s == [0, 0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 60]
    assert patience.wait_s("Bo") == 0
    patience.right("Ann")
    assert patience.wait_s("Ann") == 0


def test_patience_remembers_no_more_names_than_it_can_hold(monkeypatch):
    monkeypatch.setattr(users, "REMEMBERED", 2)
    patience = Patience()
    for name in ["Ann"] * 6 + ["Bo", "Cy"]:
        patience.wrong(name)
    assert patience.wait_s("Ann") == 0
