"""`mast review` and `mast users` as people type them: what starts, what is refused, and in which words."""

import json
import socket
import sys
import threading
import urllib.request

import pytest
from typer.testing import CliRunner

from mast.cli import app
from mast.errors import ConfigError, MissingExtraError, StorageError
from mast.review import serving
from mast.review.guard import Gate
from mast.review.serving import open_browser, opened, serve
from mast.review.users import add_user, sign_in
from tests.review.browsing import Served
from tests.review.runs import made_run

PASSWORD = "three short words"


def mast(*words: str, typed: str = ""):
    return CliRunner().invoke(app, list(words), input=typed, catch_exceptions=False)


@pytest.fixture
def own_run(tmp_path):
    return made_run(tmp_path)


def test_the_command_serves_the_page_until_it_is_ended(own_run, tmp_path):
    server = Served(own_run, cache=tmp_path / "cache")
    try:
        about = json.load(urllib.request.urlopen(f"{server.address}/api/about"))
        assert about["sounds"] == 5 and (tmp_path / "found" / "review.sqlite").exists()
        with pytest.raises(StorageError, match="cannot be listened on.*--port"):
            serve(own_run, None, Gate(), server.port)
    finally:
        server.stop()
    assert server.process.returncode == 0


def test_people_are_let_in_listed_given_passwords_and_removed(own_run):
    assert "Nobody has to sign in" in mast("users", "list", own_run).stdout
    added = mast("users", "add", own_run, "Ann", "--role", "admin", typed=f"{PASSWORD}\n")
    assert added.stdout == "Ann may review as admin.\n"
    assert mast("users", "add", own_run, "Bo", "--no-password").exit_code == 0
    assert mast("users", "list", own_run).stdout == "Ann\tadmin\nBo\tannotator\n"
    assert "new password" in mast("users", "password", own_run, "Ann", typed="other three words\n").stdout
    with opened(own_run, None) as store:
        assert sign_in(store, "Ann", PASSWORD) is None and sign_in(store, "Ann", "other three words")
    mast("users", "remove", own_run, "Bo")
    assert mast("users", "list", own_run).stdout == "Ann\tadmin\n"


def test_a_network_is_not_shown_anything_without_asking_who_is_there(own_run):
    for gate in (Gate("0.0.0.0"), Gate(proxy="127.0.0.1")):
        with pytest.raises(
            ConfigError, match="without saying who they are.*mast users add .* NAME --role admin"
        ):
            serve(own_run, None, gate, 0)


def test_a_header_that_anyone_could_send_is_not_trusted(own_run):
    with pytest.raises(ConfigError, match="anyone could send that header.*--proxy"):
        serve(own_run, None, Gate(trust_header="X-Remote-User"), 0)


def test_with_users_it_listens_elsewhere_and_asks_them_to_sign_in(own_run, monkeypatch):
    with opened(own_run, None) as store:
        add_user(store, "Ann", "admin", PASSWORD)
    answers = []

    def run(server, sockets):
        answers.append(sockets[0].getsockname()[0])

    monkeypatch.setattr(serving.uvicorn.Server, "run", run)
    serve(own_run, None, Gate("0.0.0.0"), 0, on_start=answers.append)
    assert answers[0].startswith("http://0.0.0.0:") and answers[1] == "0.0.0.0"
    if socket.has_ipv6:
        serve(own_run, None, Gate("::1"), 0, on_start=answers.append)
        assert answers[2].startswith("http://[::1]:")


def test_the_command_opens_the_browser_where_it_may(own_run, monkeypatch):
    shown = threading.Event()
    monkeypatch.setattr(serving.uvicorn.Server, "run", lambda server, sockets: shown.wait(5))
    monkeypatch.setattr(serving.webbrowser, "open", lambda address: shown.set())
    told = mast("review", own_run, "--port", "0")
    assert told.stdout.startswith("Review: http://127.0.0.1:") and shown.is_set()
    open_browser("http://127.0.0.1:9/")


def test_a_part_that_is_not_installed_prints_its_install_line(own_run, monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "mast.review.serving")
    with pytest.raises(
        MissingExtraError, match=r'Review needs an optional part: pip install "mast-bioacoustics\[review\]"'
    ):
        mast("review", own_run)
