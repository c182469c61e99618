"""The commands `mast review` and `mast users`: start of the server, refused options and messages."""

import json
import socket
import sys
import threading
import urllib.request

import pytest
from typer.testing import CliRunner

from mast.cli import app
from mast.errors import ConfigError, MissingExtraError, StorageError
from mast.review.web import serve as serve_module
from mast.review.web.security import AccessPolicy
from mast.review.web.serve import open_browser, open_review_store, serve
from mast.review.web.users import add_user, sign_in
from tests.review.browsing import ReviewServer
from tests.review.runs import write_review_run

PASSWORD = "three short words"


def mast(*words: str, typed: str = ""):
    return CliRunner().invoke(app, list(words), input=typed, catch_exceptions=False)


@pytest.fixture
def writable_run(tmp_path):
    return write_review_run(tmp_path)


def test_the_command_serves_the_page_until_it_is_ended(writable_run, tmp_path):
    server = ReviewServer(writable_run, cache=tmp_path / "cache")
    try:
        about = json.load(urllib.request.urlopen(f"{server.address}/api/about"))
        assert about["sounds"] == 5 and (tmp_path / "found" / "review.sqlite").exists()
        with pytest.raises(StorageError, match="cannot listen.*--port"):
            serve(writable_run, None, AccessPolicy(), server.port)
    finally:
        server.stop()
    assert server.process.returncode == 0


def test_users_are_added_listed_given_passwords_and_removed(writable_run):
    assert "There are no users" in mast("users", "list", writable_run).stdout
    added = mast("users", "add", writable_run, "Ann", "--role", "admin", typed=f"{PASSWORD}\n")
    assert added.stdout == "Added Ann as admin.\n"
    assert mast("users", "add", writable_run, "Bo", "--no-password").exit_code == 0
    assert mast("users", "list", writable_run).stdout == "Ann\tadmin\nBo\tannotator\n"
    changed = mast("users", "password", writable_run, "Ann", typed="other three words\n")
    assert changed.stdout == "Changed the password of Ann.\n"
    with open_review_store(writable_run, None) as store:
        assert sign_in(store, "Ann", PASSWORD) is None and sign_in(store, "Ann", "other three words")
    mast("users", "remove", writable_run, "Bo")
    assert mast("users", "list", writable_run).stdout == "Ann\tadmin\n"


def test_without_users_the_server_does_not_listen_on_a_network(writable_run):
    for policy in (AccessPolicy("0.0.0.0"), AccessPolicy(proxy="127.0.0.1")):
        with pytest.raises(ConfigError, match="without signing in.*mast users add .* NAME --role admin"):
            serve(writable_run, None, policy, 0)


def test_a_header_that_any_client_could_send_is_not_trusted(writable_run):
    with pytest.raises(ConfigError, match="any client could send that header.*--proxy"):
        serve(writable_run, None, AccessPolicy(trust_header="X-Remote-User"), 0)


def test_with_users_the_server_listens_on_a_network(writable_run, monkeypatch):
    with open_review_store(writable_run, None) as store:
        add_user(store, "Ann", "admin", PASSWORD)
    answers = []

    def run(server, sockets):
        answers.append(sockets[0].getsockname()[0])

    monkeypatch.setattr(serve_module.uvicorn.Server, "run", run)
    serve(writable_run, None, AccessPolicy("0.0.0.0"), 0, on_start=answers.append)
    assert answers[0].startswith("http://0.0.0.0:") and answers[1] == "0.0.0.0"
    if socket.has_ipv6:
        serve(writable_run, None, AccessPolicy("::1"), 0, on_start=answers.append)
        assert answers[2].startswith("http://[::1]:")


def test_the_command_opens_the_browser(writable_run, monkeypatch):
    shown = threading.Event()
    monkeypatch.setattr(serve_module.uvicorn.Server, "run", lambda server, sockets: shown.wait(5))
    monkeypatch.setattr(serve_module.webbrowser, "open", lambda address: shown.set())
    result = mast("review", writable_run, "--port", "0")
    assert result.stdout.startswith("Review: http://127.0.0.1:") and shown.is_set()
    open_browser("http://127.0.0.1:9/")


def test_a_part_that_is_not_installed_prints_its_install_line(writable_run, monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "mast.review.web.serve")
    with pytest.raises(
        MissingExtraError,
        match=r'Review needs an optional dependency: pip install "mast-bioacoustics\[review\]"',
    ):
        mast("review", writable_run)
