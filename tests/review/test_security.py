"""Attacks on the server: each test checks that one of them fails."""

import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode

from mast.review.web import app, users
from mast.review.web.auth import MAX_CONCURRENT_LOGINS
from mast.review.web.security import HEADERS, MAX_BODY_BYTES, AccessPolicy
from mast.review.web.users import add_user
from tests.review.runs import ADDRESS, BAT, ONE, client_of, proposal

PASSWORD = "three short words"
PAGES = sorted(app.PAGES.iterdir())


@pytest.mark.parametrize(
    "path", ["card/../../secret.wav", "/etc/passwd", "card/ridge/../ridge/one.wav", "..", "\0"]
)
@pytest.mark.parametrize("route", ["recording", "tile", "audio"])
def test_a_recording_id_cannot_open_other_files(client, route, path):
    values = {"recording_id": path, "start_s": 0, "end_s": 1, "low_hz": 0, "high_hz": 100}
    assert client.get(f"/api/{route}", params=values).status_code == 404


@pytest.mark.parametrize(
    "path", ["../app.py", "%2e%2e/app.py", "..%2fapp.py", "%2e%2e%2fusers.py", "//etc/passwd"]
)
def test_pages_are_the_only_files_that_are_served(client, path):
    assert client.get(f"/pages/{path}").status_code == 404


def test_stored_script_stays_text(client, review_set):
    """Labels and file names are returned as JSON, and the page only inserts them as text."""
    script = "<script>alert(1)</script><img src=x onerror=alert(1)>"
    stored = client.post("/api/verdicts", json=proposal(review_set, label=script))
    assert stored.json()["label"] == script
    answer = client.get("/api/recording", params={"recording_id": ONE})
    assert (
        answer.headers["content-type"] == "application/json"
        and answer.headers["x-content-type-options"] == "nosniff"
    )
    assert client.get("/api/recording", params={"recording_id": BAT}).json()["recording_id"] == BAT
    for page in PAGES:
        if page.suffix == ".js":
            assert not re.search(
                r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|new Function", page.read_text()
            )


def test_only_scripts_from_the_package_run(client):
    """Pages have no inline script, style or event handler and no external URL, and the policy forbids them."""
    answer = client.get("/")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "script-src 'self'" in policy
    assert "unsafe" not in policy and "http" not in policy and "*" not in policy
    for page in PAGES:
        if page.suffix == ".html":
            text = page.read_text("utf-8")
            assert not re.search(
                r"<script(?![^>]*\ssrc=\"/pages/)|<style|\sstyle=|\son\w+=|javascript:|https?:", text
            )


@pytest.mark.parametrize("path", ["/", "/pages/app.js", "/api/about", "/api/none", "/api/recording"])
def test_every_answer_carries_the_same_protection(client, path):
    answer = client.get(path)
    assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS


@pytest.mark.parametrize(
    "origin", [None, "null", "https://evil.example", "http://127.0.0.1:9", "http://localhost:8642"]
)
@pytest.mark.parametrize(
    "path", ["/api/verdicts", "/api/sign-in", "/api/sign-out", "/api/users", "/api/users/remove"]
)
def test_a_forged_origin_writes_nothing(client, review_set, store, origin, path):
    client.headers.pop("origin")
    headers = {} if origin is None else {"origin": origin}
    answer = client.post(path, json=proposal(review_set), headers=headers)
    assert answer.status_code == 403 and "does not come from the review page" in answer.json()["message"]
    assert list(store.verdicts()) == []


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8642", "127.0.0.1.evil.example", "", "[::1", "a@b"]
)
def test_another_host_name_of_this_machine_reads_nothing(client, host):
    """Another site may resolve its own name to this machine (DNS rebinding)."""
    assert client.get("/api/about", headers={"host": host}).status_code == 421


@pytest.mark.parametrize("host", ["localhost:8642", "127.0.0.1:1", "[::1]:8642"])
def test_the_local_host_names_are_accepted(client, host):
    assert client.get("/api/about", headers={"host": host}).status_code == 200


def test_a_session_cookie_from_before_sign_in_is_invalid(review_set, store, tmp_path):
    """An attacker who sets a cookie in the browser of a user does not get the session (session fixation)."""
    add_user(store, "Ann", "admin", PASSWORD)
    client = client_of(review_set, store, tmp_path)
    client.cookies.set("mast_session", "planted")
    answer = client.post("/api/sign-in", json={"name": "Ann", "password": PASSWORD})
    cookie = answer.headers["set-cookie"]
    assert (
        "planted" not in cookie
        and "HttpOnly" in cookie
        and "SameSite=strict" in cookie
        and "Path=/" in cookie
    )
    first = re.match(r"mast_session=([^;]+)", cookie)[1]
    again = client.post(
        "/api/sign-in",
        json={"name": "Ann", "password": PASSWORD},
        headers={"cookie": f"mast_session={first}"},
    )
    client.cookies.clear()
    for token, status in (
        ("planted", 401),
        (first, 401),
        (re.match(r"mast_session=([^;]+)", again.headers["set-cookie"])[1], 200),
    ):
        assert client.get("/api/about", headers={"cookie": f"mast_session={token}"}).status_code == status


def test_guessing_passwords_takes_longer_and_longer(review_set, store, tmp_path, monkeypatch):
    now_s = 0.0
    monkeypatch.setattr(users.time, "monotonic", lambda: now_s)
    add_user(store, "Ann", "admin", PASSWORD)
    client = client_of(review_set, store, tmp_path)
    guess = lambda password: client.post("/api/sign-in", json={"name": "Ann", "password": password})  # noqa: E731
    assert [guess("wrong").status_code for _ in range(7)] == [401] * 5 + [429] * 2
    blocked = guess(
        PASSWORD
    )  # the right password must wait, too: otherwise the wait would reveal wrong guesses
    assert (
        blocked.status_code == 429
        and int(blocked.headers["retry-after"]) >= 1
        and "Wait" in blocked.json()["message"]
    )
    now_s = 120.0
    assert guess(PASSWORD).status_code == 200


def test_simultaneous_guesses_do_not_queue_and_are_all_counted(review_set, store, tmp_path, monkeypatch):
    add_user(store, "Ann", "admin", PASSWORD)
    client = client_of(review_set, store, tmp_path)
    guess = lambda: client.post("/api/sign-in", json={"name": "Ann", "password": "wrong"})  # noqa: E731
    busy, end, checked = threading.Semaphore(0), threading.Event(), []

    def slow(store, name, password):
        checked.append(name)
        busy.release()
        assert end.wait(60)

    monkeypatch.setattr(users, "sign_in", slow)
    with ThreadPoolExecutor(MAX_CONCURRENT_LOGINS) as others:
        waiting = [others.submit(guess) for _ in range(MAX_CONCURRENT_LOGINS)]
        for _ in waiting:
            assert busy.acquire(timeout=60)
        refused = guess()
        end.set()
    assert refused.status_code == 429 and "Other users are signing in" in refused.json()["message"]
    assert refused.headers["retry-after"] == "1" and len(checked) == MAX_CONCURRENT_LOGINS
    assert [item.result().status_code for item in waiting] == [401] * MAX_CONCURRENT_LOGINS


def test_at_most_one_span_per_core_is_decoded_at_the_same_time(review_set, store, tmp_path, monkeypatch):
    monkeypatch.setattr(app.os, "cpu_count", lambda: 1)
    client = client_of(review_set, store, tmp_path)
    lock, acquired = threading.Lock(), []

    def alone(*_):
        acquired.append(lock.acquire(blocking=False))
        time.sleep(0.05)
        lock.release()
        return b""

    monkeypatch.setattr(app, "playback", alone)
    values = {"recording_id": ONE, "start_s": 1, "end_s": 2}
    with ThreadPoolExecutor(4) as threads:
        answers = [threads.submit(client.get, "/api/audio", params=values) for _ in range(4)]
    assert [item.result().status_code for item in answers] == [200] * 4 and acquired == [True] * 4


def test_an_unknown_name_takes_as_long_as_a_wrong_password(review_set, store, tmp_path, monkeypatch):
    add_user(store, "Ann", "admin", PASSWORD)
    client = client_of(review_set, store, tmp_path)
    checked = []
    monkeypatch.setattr(users, "verify_password", lambda password, secret: checked.append(secret) or False)
    answers = [client.post("/api/sign-in", json={"name": name, "password": "x"}) for name in ("Ann", "Zoe")]
    assert len(checked) == 2 and answers[0].json() == answers[1].json()


def test_the_header_of_a_proxy_counts_only_from_the_proxy(review_set, store, tmp_path):
    add_user(store, "Ann", "annotator", None)
    for proxy, status in (("127.0.0.1", 200), ("10.0.0.9", 401)):
        policy = AccessPolicy(proxy=proxy, trust_header="X-Remote-User")
        client = client_of(review_set, store, tmp_path, policy)
        assert client.get("/api/about", headers={"x-remote-user": "Ann"}).status_code == status
        assert client.get("/api/about").status_code == 401
    zoe = client_of(
        review_set, store, tmp_path, AccessPolicy(proxy="127.0.0.1", trust_header="X-Remote-User")
    )
    answer = zoe.get("/api/about", headers={"x-remote-user": "Zoe"})
    assert answer.status_code == 403 and "mast users add" in answer.json()["message"]


def test_behind_a_proxy_with_https_the_cookie_and_the_origin_are_https(review_set, store, tmp_path):
    add_user(store, "Ann", "annotator", PASSWORD)
    client = client_of(review_set, store, tmp_path, AccessPolicy(proxy="127.0.0.1"))
    credentials = {"name": "Ann", "password": PASSWORD}
    headers = {"host": "review.example", "x-forwarded-proto": "https"}
    plain = client.post(
        "/api/sign-in", json=credentials, headers={**headers, "origin": "http://review.example"}
    )
    assert plain.status_code == 403
    answer = client.post(
        "/api/sign-in", json=credentials, headers={**headers, "origin": "https://review.example"}
    )
    assert answer.status_code == 200 and "Secure" in answer.headers["set-cookie"]


def test_a_request_that_is_too_large_is_not_read(client):
    large = b"x" * (MAX_BODY_BYTES + 1)
    assert client.post("/api/verdicts", content=large).status_code == 413
    streamed = client.post("/api/verdicts", content=iter([large[:40_000]] * 4))
    assert streamed.status_code == 413 and "bytes" in streamed.json()["message"]


@pytest.mark.parametrize("length", ["-1", "many", "99999999999999999999"])
def test_an_invalid_content_length_is_refused(client, length):
    assert client.post("/api/verdicts", content=b"{}", headers={"content-length": length}).status_code == 413


@pytest.mark.parametrize(
    "body", [b"", b"{", b"null", b"[]", b'{"event_id": 1}', b"\xff\xfe", b'{"label": "\\ud800"}', b"[" * 5000]
)
def test_a_malformed_body_is_refused_with_a_message(client, body):
    answer = client.post("/api/verdicts", content=body, headers={"content-type": "application/json"})
    assert answer.status_code in (400, 422) and answer.json()["message"]


def test_no_valid_or_invalid_request_breaks_the_server(client):
    """Send a few hundred valid and invalid requests, generated from the schema of the server."""
    schema = schemathesis.openapi.from_dict(client.app.openapi())
    sent = []

    def send(case):
        arguments = case.as_transport_kwargs(base_url=ADDRESS)
        response = client.request(
            **{name: arguments[name] for name in ("method", "url", "params", "json") if name in arguments}
        )
        sent.append(response.status_code)
        assert response.status_code < 500, (case, response.text)

    operations = [result.ok() for result in schema.get_all_operations()]
    # routes of users last: after the first user is added, the other requests need a session
    for operation in sorted(operations, key=lambda item: "users" in item.path):
        examples = settings(max_examples=12, database=None, suppress_health_check=list(HealthCheck))
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            with suppress(Unsatisfiable):  # some operations have no invalid requests
                examples(given(operation.as_strategy(generation_mode=mode))(send))()
    assert len(sent) > 100 and 200 in sent and 422 in sent


def test_the_package_contains_the_pages():
    names = {page.name for page in PAGES}
    assert {"index.html", "sign-in.html", "style.css", "app.js", "icon.svg"} <= names
    used = set(
        re.findall(
            r"from '\./([\w-]+\.js)'",
            "".join(Path(page).read_text() for page in PAGES if page.suffix == ".js"),
        )
    )
    assert used <= names
