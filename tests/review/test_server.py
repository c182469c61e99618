"""The server: what the page can see, hear and say, and what it is told where something cannot be."""

import io
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest
import soundfile
from PIL import Image

from mast.review.deciding import Proposal, RefusedError, decide
from mast.review.guard import Gate
from mast.review.ledger import Ledger
from mast.review.material import open_material
from mast.review.queues import QUEUES
from mast.review.store import open_store
from mast.review.users import add_user
from tests.review.runs import BAT, ONE, QUIET, STARTS_S, client_of, made_run, proposal

PASSWORD = "three short words"


def boxes_of(client, name=ONE) -> list[dict]:
    return client.get("/api/recording", params={"recording_id": name}).json()["boxes"]


def say(client, material, number=0, **changed) -> dict:
    return client.post("/api/verdicts", json=proposal(material, number, **changed))


def test_the_page_is_told_what_it_needs_once(client, material):
    about = client.get("/api/about").json()
    assert (about["recordings"], about["sounds"], about["decided"]) == (3, 5, 0)
    assert about["role"] == "admin" and not about["signs_in"] and about["precision"]
    assert next(iter(about["queues"])) == "in order" and len(about["colours"]["magma"]) == 256
    assert about["material"] == material.fingerprint


def test_recordings_are_listed_and_found_by_their_name(client):
    every = client.get("/api/recordings").json()
    assert [row["recording_id"] for row in every["recordings"]] == [ONE, QUIET, BAT]
    assert every["recordings"][0] | {"sounds": 4, "decided": 0} == every["recordings"][0]
    found = client.get("/api/recordings", params={"search": "BAT"}).json()
    assert found["found"] == 1 and found["recordings"][0]["recording_id"] == BAT
    assert client.get("/api/recordings", params={"first": 3}).json()["recordings"] == []


def test_a_recording_tells_its_boxes_but_not_where_it_lies(client):
    answer = client.get("/api/recording", params={"recording_id": ONE})
    assert [box["start_s"] for box in answer.json()["boxes"]] == list(STARTS_S)
    assert {box["state"] for box in answer.json()["boxes"]} == {"open"}
    assert answer.json()["start_local"] == "2024-05-11T23:30:00"
    assert "/tmp" not in answer.text


def test_tiles_are_pictures_and_the_same_when_asked_again(client):
    values = {
        "recording_id": ONE,
        "start_s": 0,
        "end_s": 4,
        "low_hz": 0,
        "high_hz": 8000,
        "width": 64,
        "height": 32,
    }
    first, again = (client.get("/api/tile", params=values) for _ in range(2))
    assert first.headers["content-type"] == "image/png" and first.content == again.content
    assert Image.open(io.BytesIO(first.content)).size == (64, 32)


@pytest.mark.parametrize(
    "changed", [{"start_s": 4}, {"low_hz": 8000}, {"start_s": 30, "end_s": 40}, {"width": 99_999}]
)
def test_what_is_no_tile_is_refused_in_words(client, changed):
    values = {"recording_id": ONE, "start_s": 0, "end_s": 4, "low_hz": 0, "high_hz": 8000, **changed}
    answer = client.get("/api/tile", params=values)
    assert answer.status_code == 422 and answer.json()["told"]


def test_sounds_can_be_heard_whole_or_by_their_band(client):
    values = {"recording_id": BAT, "start_s": 1, "end_s": 1.5, "slow": 10}
    whole = client.get("/api/sound", params=values)
    wave, rate_hz = soundfile.read(io.BytesIO(whole.content))
    assert whole.headers["content-type"] == "audio/wav" and len(wave) / rate_hz == pytest.approx(5.0, abs=0.1)
    band = client.get("/api/sound", params={**values, "low_hz": 1000, "high_hz": 9000}).content
    assert np.abs(soundfile.read(io.BytesIO(band))[0]).argmax() != np.abs(wave).argmax()
    assert client.get("/api/sound", params={**values, "end_s": 1}).status_code == 422
    assert client.get("/api/sound", params={**values, "low_hz": 9, "high_hz": 9}).status_code == 422


def test_a_recording_that_is_gone_is_told_without_its_place(tmp_path):
    run = made_run(tmp_path)
    (tmp_path / "card" / "ridge" / "one.wav").unlink()
    with open_store(f"sqlite:///{tmp_path / 'x.sqlite'}") as store:
        client = client_of(open_material(run), store, tmp_path)
        answer = client.get("/api/sound", params={"recording_id": ONE, "start_s": 1, "end_s": 2})
    assert answer.status_code == 404 and answer.json()["told"] and str(tmp_path) not in answer.text


def test_a_recording_that_cannot_be_read_is_told_with_the_reason_and_without_its_place(tmp_path):
    run = made_run(tmp_path)
    (tmp_path / "card" / "ridge" / "one.wav").unlink()
    (tmp_path / "card" / "ridge" / "one.wav").mkdir()
    (tmp_path / "card" / "ridge" / "quiet.wav").write_bytes(b"RIFF\x10\0\0\0WAVE")
    with open_store(f"sqlite:///{tmp_path / 'x.sqlite'}") as store:
        client = client_of(open_material(run), store, tmp_path)
        asked = {"start_s": 1, "end_s": 2, "low_hz": 0, "high_hz": 100}
        for name, told in ((ONE, "cannot be read: Is a directory."), (QUIET, "cannot be read: ")):
            for what in ("sound", "tile"):
                answer = client.get(f"/api/{what}", params={"recording_id": name, **asked})
                assert answer.status_code == 404 and answer.json()["told"].startswith(told)
                assert str(tmp_path) not in answer.text and not answer.json()["told"].endswith(": ")


def test_a_verdict_holds_from_then_on(client, material):
    kept = say(client, material, 1, state="rejected", label="  fox ", queue="in order")
    assert kept.status_code == 200
    assert kept.json() | {"version": 1, "state": "rejected", "label": "fox", "score": 0.4} == kept.json()
    box = boxes_of(client)[1]
    assert (box["state"], box["version"], box["label"]) == ("rejected", 1, "fox") and box["who"]
    assert client.get("/api/about").json()["labels"] == ["fox"]
    assert client.get("/api/recordings").json()["recordings"][0]["decided"] == 1


def test_a_verdict_that_is_sent_again_is_kept_once(client, material, store):
    first, again = say(client, material), say(client, material)
    assert first.json() == again.json() and len(list(store.verdicts())) == 1


def test_who_comes_second_is_told_who_came_first_and_what_holds(client, material):
    say(client, material)
    late = say(client, material, request_id="another", state="rejected")
    assert late.status_code == 409
    assert late.json()["holds"]["state"] == "accepted"
    assert "has accepted this in the meantime" in late.json()["told"]


def test_a_verdict_on_nothing_that_is_known_asks_to_load_again(client, material):
    late = say(client, material, version=2)
    assert late.status_code == 409 and "Load the page again" in late.json()["told"]


def test_an_undone_verdict_leaves_the_sound_as_the_model_drew_it(client, material):
    say(client, material, 0, start_s=0.5, label="fox")
    undone = say(client, material, 0, request_id="undo", version=2, state="open", undoes=1)
    assert undone.status_code == 200
    box = boxes_of(client)[0]
    assert (box["state"], box["start_s"], box["label"], box["version"]) == ("open", 1.0, None, 2)
    told = client.get("/api/verdicts", params={"subject": box["subject"]}).json()["verdicts"]
    assert [verdict["undoes"] for verdict in told] == [None, 1]
    assert client.get("/api/asks", params={"count": 1}).json()["asks"][0]["subjects"] == [box["subject"]]


def test_people_draw_sounds_and_take_them_back(client, material):
    drawn = {"subject": "drawn-1", "start_s": 15.0, "end_s": 99.0, "label": "owl"}
    assert say(client, material, **drawn).status_code == 422
    kept = say(client, material, **drawn | {"end_s": 20.3, "high_hz": 8000.5}).json()
    assert (kept["end_s"], kept["high_hz"], kept["score"], kept["model"]) == (20.0, 8000.0, None, None)
    assert boxes_of(client)[-1]["subject"] == "drawn-1"
    say(
        client,
        material,
        **drawn | {"end_s": 16.0, "request_id": "2", "version": 2, "state": "open", "undoes": 1},
    )
    assert len(boxes_of(client)) == 4


def test_a_whole_span_is_reviewed_also_where_it_is_empty(client, material):
    span = {"subject": "span-1", "kind": "span", "recording_id": QUIET, "start_s": 0.0, "end_s": 5.0}
    bare = {"low_hz": None, "high_hz": None}
    assert say(client, material, **span).status_code == 422
    assert say(client, material, **span, **bare).status_code == 200
    assert [box["kind"] for box in boxes_of(client, QUIET)] == ["span"]


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"subject": "drawn-1", "low_hz": None}, "lies between 0 and 8000 Hz"),
        ({"high_hz": 9000.0}, "lies between 0 and 8000 Hz"),
        ({"low_hz": 3000.0}, "lies between 0 and 8000 Hz"),
        ({"start_s": 3.0, "end_s": 2.0}, "is no span of this recording"),
        ({"subject": "nobody"}, "No sound is called nobody"),
        ({"recording_id": QUIET}, "is a sound of another recording"),
        ({"version": 3, "undoes": 1}, "Only the verdict that holds can be undone"),
        ({"label": "a\x00b"}, "must have no control characters"),
        ({"state": "perhaps"}, "state"),
        ({"more": 1}, "more"),
    ],
)
def test_what_cannot_be_said_is_refused_in_words(client, material, store, changed, told):
    answer = say(client, material, **changed)
    assert answer.status_code == 422 and told in answer.json()["told"]
    assert list(store.verdicts()) == []


def test_every_queue_of_a_run_can_be_asked_or_says_what_it_needs(client):
    for queue in client.get("/api/about").json()["queues"]:
        answer = client.get("/api/asks", params={"queue": queue, "count": 3})
        if queue == "novel":
            assert answer.status_code == 404 and "mast embed" in answer.json()["told"]
            continue
        asks = answer.json()["asks"]
        assert answer.status_code == 200 and all(ask["why"] and ask["duration_s"] for ask in asks)
        assert asks or queue == "false alarms"  # where nothing was rejected, nothing is like it


def test_precision_is_told_from_the_audit_alone_as_it_goes_on(client, material):
    assert client.get("/api/precision").json()["told"][0].startswith("0 of 5 sounds audited")
    say(client, material, 0, state="accepted")
    assert client.get("/api/precision").json()["told"][0].startswith("0 of 5 sounds audited")
    for ask in client.get("/api/asks", params={"queue": "audit", "count": 2}).json()["asks"]:
        (subject,) = ask["subjects"]
        number = material.sounds["event_id"].to_pylist().index(subject)
        assert say(client, material, number, state="accepted", queue="audit").status_code == 200
    told = client.get("/api/precision").json()["told"]
    assert told[0].split(" of ")[0] in ("2", "3") and "are right" in told[0]


def test_a_queue_asks_with_its_reason_and_not_again_for_what_is_decided(client, material):
    say(client, material)
    asks = client.get("/api/asks", params={"queue": "in order", "count": 2}).json()["asks"]
    assert [ask["start_s"] for ask in asks] == [4.0, 7.0]
    assert asks[0]["why"] == "the next sound in this recording"
    assert asks[0]["boxes"][0]["subject"] == asks[0]["subjects"][0] and asks[0]["duration_s"] == 20.0
    later = client.get("/api/asks", params={"count": 2, "without": asks[0]["subjects"]}).json()["asks"]
    assert [ask["start_s"] for ask in later] == [7.0, 12.0]
    assert client.get("/api/asks", params={"queue": "none such"}).status_code == 404


def test_two_people_are_not_given_the_same_sounds(material, store, tmp_path):
    clients = []
    for name in ("Ann", "Bo"):
        add_user(store, name, "reviewer", PASSWORD)
    client = client_of(material, store, tmp_path)
    for name in ("Ann", "Bo"):
        client.cookies.clear()
        assert client.post("/api/sign-in", json={"name": name, "password": PASSWORD}).status_code == 200
        clients.append(
            [ask["subjects"] for ask in client.get("/api/asks", params={"count": 2}).json()["asks"]]
        )
    assert len(clients[0]) == len(clients[1]) == 2 and not {*map(tuple, clients[0])} & {
        *map(tuple, clients[1])
    }


def test_two_people_who_ask_at_the_same_moment_are_not_given_the_same_sounds(material, store):
    def slow(*asked):
        time.sleep(0.2)
        return QUEUES["in order"](*asked)

    ledger = Ledger(store, replace(material, queues={"slow": slow}))
    with ThreadPoolExecutor(2) as people:
        given = list(people.map(lambda who: ledger.asks("slow", 2, who), ("Ann", "Bo")))
    assert len({name for asks in given for ask in asks for name in ask.keys}) == 4


@pytest.mark.parametrize("state", ["accepted", "rejected", "unsure"])
def test_a_box_beyond_the_highest_pitch_of_its_recording_is_decided_where_it_is(material, state):
    recording = replace(material.recording(ONE), sample_rate_hz=4000)
    sound = {"recording_id": ONE, "low_hz": 1000.0, "high_hz": 2110.0, "score": 0.5, "model": "m"}
    facts = {"request_id": "r", "subject": "s", "version": 1, "kind": "sound", "recording_id": ONE}
    said = Proposal(**facts, state=state, start_s=1.0, end_s=2.0, low_hz=1000.0, high_hz=2110.0)
    verdict = decide(said, recording, sound, "Ann", datetime.now(UTC))
    assert (verdict.state, verdict.low_hz, verdict.high_hz) == (state, 1000.0, 2110.0)
    with pytest.raises(RefusedError, match="between 0 and 2000 Hz"):  # where a person puts it, it has to fit
        decide(said.model_copy(update={"high_hz": 2500.0}), recording, sound, "Ann", datetime.now(UTC))


def test_minutes_without_open_sounds_are_lent_and_left_out_too(material, store, tmp_path):
    _, as_ = team(material, store, tmp_path)
    asked = {"queue": "balanced", "count": 1}
    given = {}
    for number in range(len(material.sounds)):  # nothing is left to decide, but no minute was reviewed
        assert say(as_("Ada"), material, number).status_code == 200
    for name in ("Ann", "Rea"):
        (given[name],) = as_(name).get("/api/asks", params=asked).json()["asks"]
        assert given[name]["subjects"] == [] and given[name]["keys"]
    assert given["Ann"]["keys"] != given["Rea"]["keys"]
    (later,) = as_("Ann").get("/api/asks", params={**asked, "without": given["Ann"]["keys"]}).json()["asks"]
    assert later["keys"] not in (given["Ann"]["keys"], given["Rea"]["keys"])


def test_verdicts_of_another_server_are_seen(client, material, store, tmp_path):
    other = client_of(material, store, tmp_path)
    say(other, material)
    assert boxes_of(client)[0]["state"] == "accepted"


def test_a_database_that_does_not_answer_is_told_and_the_page_may_ask_again(material, tmp_path, monkeypatch):
    monkeypatch.setattr("mast.review.store.BUSY_S", 0.05)
    with open_store(f"sqlite:///{tmp_path / 'x.sqlite'}") as store:
        client = client_of(material, store, tmp_path)
        with store.writing.begin():
            busy = say(client, material)
        assert busy.status_code == 503 and "sent again" in busy.json()["told"]
        assert say(client, material).status_code == 200


def team(material, store, tmp_path, **gate):
    for name, role in (("Ann", "annotator"), ("Rea", "reviewer"), ("Ada", "admin")):
        add_user(store, name, role, PASSWORD)
    client = client_of(material, store, tmp_path, Gate(**gate))

    def as_(name):
        client.cookies.clear()
        assert client.post("/api/sign-in", json={"name": name, "password": PASSWORD}).status_code == 200
        return client

    return client, as_


def test_where_people_are_named_everyone_signs_in(material, store, tmp_path):
    client, as_ = team(material, store, tmp_path)
    assert client.get("/api/about").status_code == 401
    assert "Sign in" in client.get("/").text and "Spectrogram" not in client.get("/").text
    assert as_("Ann").get("/api/about").json()["who"] == "Ann"
    assert "Spectrogram" in client.get("/").text
    client.post("/api/sign-out", json={})
    assert client.get("/api/about").status_code == 401


def test_an_annotator_decides_but_does_not_overrule_a_reviewer(material, store, tmp_path):
    _, as_ = team(material, store, tmp_path)
    assert say(as_("Ann"), material).status_code == 200
    second = {"request_id": "2", "version": 2, "state": "rejected"}
    assert say(as_("Rea"), material, **second).status_code == 200
    third = say(as_("Ann"), material, request_id="3", version=3)
    assert third.status_code == 403 and "Rea has rejected this as a reviewer" in third.json()["told"]
    assert say(as_("Ada"), material, request_id="4", version=3).status_code == 200


def test_what_a_reviewer_took_back_is_open_to_annotators(material, store, tmp_path):
    _, as_ = team(material, store, tmp_path)
    assert say(as_("Rea"), material, state="unsure").status_code == 200
    refused = say(as_("Ann"), material, request_id="2", version=2)
    assert refused.status_code == 403 and "Rea has doubted this as a reviewer" in refused.json()["told"]
    back = {"request_id": "3", "version": 2, "state": "open", "undoes": 1}
    assert say(as_("Rea"), material, **back).status_code == 200
    assert say(as_("Ann"), material, request_id="4", version=3).status_code == 200


def test_what_was_drawn_stays_in_its_recording(client, material, store):
    drawn = {"subject": "drawn-1", "start_s": 1.0, "end_s": 2.0}
    assert say(client, material, **drawn).status_code == 200
    moved = say(client, material, **drawn, request_id="2", version=2, recording_id=QUIET)
    assert moved.status_code == 422 and "is a sound of another recording" in moved.json()["told"]
    assert [item.recording_id for item in store.verdicts()] == [ONE]


def test_whom_the_proxy_names_but_nobody_let_in_gets_words_and_no_page(material, store, tmp_path):
    client, _ = team(material, store, tmp_path, proxy="127.0.0.1", trust_header="X-Remote-User")
    answer = client.get("/", headers={"x-remote-user": "Zoe"})
    assert answer.status_code == 403 and "Zoe may not review yet" in answer.json()["told"]
    assert "Spectrogram" in client.get("/", headers={"x-remote-user": "Ann"}).text


def test_only_an_admin_says_who_comes_in(material, store, tmp_path):
    _, as_ = team(material, store, tmp_path)
    assert as_("Rea").get("/api/users").status_code == 403
    admin = as_("Ada")
    zoe = {"name": "Zoe", "role": "annotator", "password": PASSWORD}
    assert {"name": "Zoe", "role": "annotator"} in admin.post("/api/users", json=zoe).json()["users"]
    assert admin.post("/api/users", json=zoe).status_code == 422
    assert len(admin.post("/api/users/remove", json={"name": "Zoe"}).json()["users"]) == 3
    assert admin.post("/api/users/remove", json={"name": "Zoe"}).status_code == 422
    assert "Another admin" in admin.post("/api/users/remove", json={"name": "Ada"}).json()["told"]


def test_the_page_holds_ten_thousand_boxes(tmp_path):
    run = made_run(tmp_path, more=10_000)
    with open_store(f"sqlite:///{tmp_path / 'x.sqlite'}") as store:
        assert len(boxes_of(client_of(open_material(run), store, tmp_path))) == 10_004
