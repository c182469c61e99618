"""The server: recordings, tiles, audio, queues and verdicts, and the messages for refused requests."""

import io
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest
import soundfile
from PIL import Image

from mast.review.database import open_store
from mast.review.queues.basic import QUEUES
from mast.review.review_set import open_review_set
from mast.review.web.requests import RefusedError, VerdictRequest, make_verdict
from mast.review.web.security import AccessPolicy
from mast.review.web.state import ReviewState
from mast.review.web.users import add_user
from tests.review.runs import BAT, ONE, QUIET, STARTS_S, client_of, proposal, write_review_run

PASSWORD = "three short words"


def boxes_of(client, name=ONE) -> list[dict]:
    return client.get("/api/recording", params={"recording_id": name}).json()["boxes"]


def post_verdict(client, review_set, number=0, **changed) -> dict:
    return client.post("/api/verdicts", json=proposal(review_set, number, **changed))


def test_about_returns_the_user_and_the_constants_of_the_page(client, review_set):
    about = client.get("/api/about").json()
    assert (about["recordings"], about["sounds"], about["decided"]) == (3, 5, 0)
    assert about["role"] == "admin" and not about["signs_in"] and about["precision"]
    assert next(iter(about["queues"])) == "sequential" and len(about["colours"]["magma"]) == 256
    assert about["material"] == review_set.fingerprint


def test_recordings_are_listed_and_found_by_their_name(client):
    listed = client.get("/api/recordings").json()
    assert [row["recording_id"] for row in listed["recordings"]] == [ONE, QUIET, BAT]
    assert listed["recordings"][0] | {"sounds": 4, "decided": 0} == listed["recordings"][0]
    matches = client.get("/api/recordings", params={"search": "BAT"}).json()
    assert matches["found"] == 1 and matches["recordings"][0]["recording_id"] == BAT
    assert client.get("/api/recordings", params={"first": 3}).json()["recordings"] == []


def test_a_recording_has_its_boxes_but_not_its_location(client):
    answer = client.get("/api/recording", params={"recording_id": ONE})
    assert [box["start_s"] for box in answer.json()["boxes"]] == list(STARTS_S)
    assert {box["state"] for box in answer.json()["boxes"]} == {"open"}
    assert answer.json()["start_local"] == "2024-05-11T23:30:00"
    assert "/tmp" not in answer.text


def test_tiles_are_images_and_the_same_when_requested_again(client):
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
def test_an_invalid_tile_is_refused_with_a_message(client, changed):
    values = {"recording_id": ONE, "start_s": 0, "end_s": 4, "low_hz": 0, "high_hz": 8000, **changed}
    answer = client.get("/api/tile", params=values)
    assert answer.status_code == 422 and answer.json()["message"]


def test_audio_can_be_played_completely_or_by_its_band(client):
    values = {"recording_id": BAT, "start_s": 1, "end_s": 1.5, "slow": 10}
    complete = client.get("/api/audio", params=values)
    wave, rate_hz = soundfile.read(io.BytesIO(complete.content))
    assert complete.headers["content-type"] == "audio/wav" and len(wave) / rate_hz == pytest.approx(
        5.0, abs=0.1
    )
    band = client.get("/api/audio", params={**values, "low_hz": 1000, "high_hz": 9000}).content
    assert np.abs(soundfile.read(io.BytesIO(band))[0]).argmax() != np.abs(wave).argmax()
    assert client.get("/api/audio", params={**values, "end_s": 1}).status_code == 422
    assert client.get("/api/audio", params={**values, "low_hz": 9, "high_hz": 9}).status_code == 422


def test_the_message_about_a_missing_recording_does_not_show_its_location(tmp_path):
    run = write_review_run(tmp_path)
    (tmp_path / "card" / "ridge" / "one.wav").unlink()
    with open_store(f"sqlite:///{tmp_path / 'x.sqlite'}") as store:
        client = client_of(open_review_set(run), store, tmp_path)
        answer = client.get("/api/audio", params={"recording_id": ONE, "start_s": 1, "end_s": 2})
    assert answer.status_code == 404 and answer.json()["message"] and str(tmp_path) not in answer.text


def test_the_message_about_an_unreadable_recording_has_the_reason_but_not_its_location(tmp_path):
    run = write_review_run(tmp_path)
    (tmp_path / "card" / "ridge" / "one.wav").unlink()
    (tmp_path / "card" / "ridge" / "one.wav").mkdir()
    (tmp_path / "card" / "ridge" / "quiet.wav").write_bytes(b"RIFF\x10\0\0\0WAVE")
    with open_store(f"sqlite:///{tmp_path / 'x.sqlite'}") as store:
        client = client_of(open_review_set(run), store, tmp_path)
        values = {"start_s": 1, "end_s": 2, "low_hz": 0, "high_hz": 100}
        for name, message in ((ONE, "cannot be read: Is a directory."), (QUIET, "cannot be read: ")):
            for route in ("audio", "tile"):
                answer = client.get(f"/api/{route}", params={"recording_id": name, **values})
                assert answer.status_code == 404 and answer.json()["message"].startswith(message)
                assert str(tmp_path) not in answer.text and not answer.json()["message"].endswith(": ")


def test_a_verdict_becomes_the_current_state(client, review_set):
    kept = post_verdict(client, review_set, 1, state="rejected", label="  fox ", queue="sequential")
    assert kept.status_code == 200
    assert kept.json() | {"version": 1, "state": "rejected", "label": "fox", "score": 0.4} == kept.json()
    box = boxes_of(client)[1]
    assert (box["state"], box["version"], box["label"]) == ("rejected", 1, "fox") and box["user"]
    assert client.get("/api/about").json()["labels"] == ["fox"]
    assert client.get("/api/recordings").json()["recordings"][0]["decided"] == 1


def test_a_verdict_sent_twice_is_stored_once(client, review_set, store):
    first, again = post_verdict(client, review_set), post_verdict(client, review_set)
    assert first.json() == again.json() and len(list(store.verdicts())) == 1


def test_the_second_user_gets_the_name_and_verdict_of_the_first(client, review_set):
    post_verdict(client, review_set)
    late = post_verdict(client, review_set, request_id="another", state="rejected")
    assert late.status_code == 409
    assert late.json()["current"]["state"] == "accepted"
    assert "has accepted this in the meantime" in late.json()["message"]


def test_a_verdict_without_its_previous_version_asks_to_reload(client, review_set):
    late = post_verdict(client, review_set, version=2)
    assert late.status_code == 409 and "Reload the page" in late.json()["message"]


def test_an_undone_verdict_restores_the_detection(client, review_set):
    post_verdict(client, review_set, 0, start_s=0.5, label="fox")
    undone = post_verdict(client, review_set, 0, request_id="undo", version=2, state="open", reverts=1)
    assert undone.status_code == 200
    box = boxes_of(client)[0]
    assert (box["state"], box["start_s"], box["label"], box["version"]) == ("open", 1.0, None, 2)
    history = client.get("/api/verdicts", params={"event_id": box["event_id"]}).json()["verdicts"]
    assert [verdict["reverts"] for verdict in history] == [None, 1]
    assert client.get("/api/queue-items", params={"count": 1}).json()["items"][0]["event_ids"] == [
        box["event_id"]
    ]


def test_users_draw_events_and_undo_them(client, review_set):
    drawn = {"event_id": "drawn-1", "start_s": 15.0, "end_s": 99.0, "label": "owl"}
    assert post_verdict(client, review_set, **drawn).status_code == 422
    kept = post_verdict(client, review_set, **drawn | {"end_s": 20.3, "high_hz": 8000.5}).json()
    assert (kept["end_s"], kept["high_hz"], kept["score"], kept["model"]) == (20.0, 8000.0, None, None)
    assert boxes_of(client)[-1]["event_id"] == "drawn-1"
    post_verdict(
        client,
        review_set,
        **drawn | {"end_s": 16.0, "request_id": "2", "version": 2, "state": "open", "reverts": 1},
    )
    assert len(boxes_of(client)) == 4


def test_a_span_without_events_can_be_reviewed(client, review_set):
    span = {"event_id": "span-1", "kind": "span", "recording_id": QUIET, "start_s": 0.0, "end_s": 5.0}
    no_band = {"low_hz": None, "high_hz": None}
    assert post_verdict(client, review_set, **span).status_code == 422
    assert post_verdict(client, review_set, **span, **no_band).status_code == 200
    assert [box["kind"] for box in boxes_of(client, QUIET)] == ["span"]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"event_id": "drawn-1", "low_hz": None}, "between 0 and 8000 Hz"),
        ({"high_hz": 9000.0}, "between 0 and 8000 Hz"),
        ({"low_hz": 3000.0}, "between 0 and 8000 Hz"),
        ({"start_s": 3.0, "end_s": 2.0}, "is outside this recording"),
        ({"event_id": "unknown"}, "unknown: event or span not found"),
        ({"recording_id": QUIET}, "belongs to another recording"),
        ({"version": 3, "reverts": 1}, "Only the latest verdict can be undone"),
        ({"label": "a\x00b"}, "must not contain control characters"),
        ({"state": "perhaps"}, "state"),
        ({"more": 1}, "more"),
    ],
)
def test_an_invalid_verdict_is_refused_with_a_message(client, review_set, store, changed, message):
    answer = post_verdict(client, review_set, **changed)
    assert answer.status_code == 422 and message in answer.json()["message"]
    assert list(store.verdicts()) == []


def test_every_queue_of_a_run_returns_items_or_states_its_requirement(client):
    for queue in client.get("/api/about").json()["queues"]:
        answer = client.get("/api/queue-items", params={"queue": queue, "count": 3})
        if queue == "novel":
            assert answer.status_code == 404 and "mast embed" in answer.json()["message"]
            continue
        items = answer.json()["items"]
        assert answer.status_code == 200 and all(item["reason"] and item["duration_s"] for item in items)
        assert items or queue == "likely-false-positives"  # without a rejected event, no event is similar


def test_precision_is_estimated_from_the_audit_alone(client, review_set):
    assert client.get("/api/precision").json()["message"][0].startswith("0 of 5 events audited")
    post_verdict(client, review_set, 0, state="accepted")
    assert client.get("/api/precision").json()["message"][0].startswith("0 of 5 events audited")
    for item in client.get("/api/queue-items", params={"queue": "random-sample", "count": 2}).json()["items"]:
        (event_id,) = item["event_ids"]
        number = review_set.events["event_id"].to_pylist().index(event_id)
        assert (
            post_verdict(client, review_set, number, state="accepted", queue="random-sample").status_code
            == 200
        )
    message = client.get("/api/precision").json()["message"]
    assert message[0].split(" of ")[0] in ("2", "3") and message[0].endswith("correct")


def test_a_queue_has_reasons_and_no_decided_events(client, review_set):
    post_verdict(client, review_set)
    items = client.get("/api/queue-items", params={"queue": "sequential", "count": 2}).json()["items"]
    assert [item["start_s"] for item in items] == [4.0, 7.0]
    assert items[0]["reason"] == "the next event in this recording"
    assert items[0]["boxes"][0]["event_id"] == items[0]["event_ids"][0] and items[0]["duration_s"] == 20.0
    params = {"count": 2, "without": items[0]["event_ids"]}
    later = client.get("/api/queue-items", params=params).json()["items"]
    assert [item["start_s"] for item in later] == [7.0, 12.0]
    assert client.get("/api/queue-items", params={"queue": "none such"}).status_code == 404


def test_two_users_do_not_get_the_same_events(review_set, store, tmp_path):
    lists = []
    for name in ("Ann", "Bo"):
        add_user(store, name, "reviewer", PASSWORD)
    client = client_of(review_set, store, tmp_path)
    for name in ("Ann", "Bo"):
        client.cookies.clear()
        assert client.post("/api/sign-in", json={"name": name, "password": PASSWORD}).status_code == 200
        items = client.get("/api/queue-items", params={"count": 2}).json()["items"]
        lists.append([item["event_ids"] for item in items])
    assert len(lists[0]) == len(lists[1]) == 2 and not {*map(tuple, lists[0])} & {*map(tuple, lists[1])}


def test_two_users_with_simultaneous_requests_do_not_get_the_same_events(review_set, store):
    def slow(*arguments):
        time.sleep(0.2)
        return QUEUES["sequential"](*arguments)

    state = ReviewState(store, replace(review_set, queues={"slow": slow}))
    with ThreadPoolExecutor(2) as users:
        lists = list(users.map(lambda user: state.next_items("slow", 2, user), ("Ann", "Bo")))
    assert len({key for items in lists for item in items for key in item.keys}) == 4


@pytest.mark.parametrize("state", ["accepted", "rejected", "unsure"])
def test_an_unchanged_box_above_the_nyquist_frequency_is_accepted(review_set, state):
    recording = replace(review_set.recording(ONE), sample_rate_hz=4000)
    event = {"recording_id": ONE, "low_hz": 1000.0, "high_hz": 2110.0, "score": 0.5, "model": "m"}
    fields = {"request_id": "r", "event_id": "s", "version": 1, "kind": "sound", "recording_id": ONE}
    request = VerdictRequest(**fields, state=state, start_s=1.0, end_s=2.0, low_hz=1000.0, high_hz=2110.0)
    verdict = make_verdict(request, recording, event, "Ann", datetime.now(UTC))
    assert (verdict.state, verdict.low_hz, verdict.high_hz) == (state, 1000.0, 2110.0)
    with pytest.raises(RefusedError, match="between 0 and 2000 Hz"):  # frequencies from the user are checked
        make_verdict(
            request.model_copy(update={"high_hz": 2500.0}), recording, event, "Ann", datetime.now(UTC)
        )


def test_minutes_without_open_events_are_assigned_and_excluded_too(review_set, store, tmp_path):
    _, as_ = team(review_set, store, tmp_path)
    params = {"queue": "stratified-minutes", "count": 1}
    assigned = {}
    for number in range(len(review_set.events)):  # all events are decided, but no minute is reviewed
        assert post_verdict(as_("Ada"), review_set, number).status_code == 200
    for name in ("Ann", "Rea"):
        (assigned[name],) = as_(name).get("/api/queue-items", params=params).json()["items"]
        assert assigned[name]["event_ids"] == [] and assigned[name]["keys"]
    assert assigned["Ann"]["keys"] != assigned["Rea"]["keys"]
    params |= {"without": assigned["Ann"]["keys"]}
    (later,) = as_("Ann").get("/api/queue-items", params=params).json()["items"]
    assert later["keys"] not in (assigned["Ann"]["keys"], assigned["Rea"]["keys"])


def test_verdicts_of_another_server_are_seen(client, review_set, store, tmp_path):
    other = client_of(review_set, store, tmp_path)
    post_verdict(other, review_set)
    assert boxes_of(client)[0]["state"] == "accepted"


def test_the_page_may_repeat_a_request_if_the_database_is_busy(review_set, tmp_path, monkeypatch):
    monkeypatch.setattr("mast.review.database.BUSY_S", 0.05)
    with open_store(f"sqlite:///{tmp_path / 'x.sqlite'}") as store:
        client = client_of(review_set, store, tmp_path)
        with store.writing.begin():
            busy = post_verdict(client, review_set)
        assert busy.status_code == 503 and "sent again" in busy.json()["message"]
        assert post_verdict(client, review_set).status_code == 200


def team(review_set, store, tmp_path, **policy):
    for name, role in (("Ann", "annotator"), ("Rea", "reviewer"), ("Ada", "admin")):
        add_user(store, name, role, PASSWORD)
    client = client_of(review_set, store, tmp_path, AccessPolicy(**policy))

    def as_(name):
        client.cookies.clear()
        assert client.post("/api/sign-in", json={"name": name, "password": PASSWORD}).status_code == 200
        return client

    return client, as_


def test_with_users_everyone_must_sign_in(review_set, store, tmp_path):
    client, as_ = team(review_set, store, tmp_path)
    assert client.get("/api/about").status_code == 401
    assert "Sign in" in client.get("/").text and "Spectrogram" not in client.get("/").text
    assert as_("Ann").get("/api/about").json()["user"] == "Ann"
    assert "Spectrogram" in client.get("/").text
    client.post("/api/sign-out", json={})
    assert client.get("/api/about").status_code == 401


def test_an_annotator_decides_but_does_not_overrule_a_reviewer(review_set, store, tmp_path):
    _, as_ = team(review_set, store, tmp_path)
    assert post_verdict(as_("Ann"), review_set).status_code == 200
    second = {"request_id": "2", "version": 2, "state": "rejected"}
    assert post_verdict(as_("Rea"), review_set, **second).status_code == 200
    third = post_verdict(as_("Ann"), review_set, request_id="3", version=3)
    assert third.status_code == 403 and "Rea has rejected this as a reviewer" in third.json()["message"]
    assert post_verdict(as_("Ada"), review_set, request_id="4", version=3).status_code == 200


def test_an_event_with_an_undone_verdict_of_a_reviewer_is_open_to_annotators(review_set, store, tmp_path):
    _, as_ = team(review_set, store, tmp_path)
    assert post_verdict(as_("Rea"), review_set, state="unsure").status_code == 200
    refused = post_verdict(as_("Ann"), review_set, request_id="2", version=2)
    assert (
        refused.status_code == 403
        and "Rea has marked this as unsure as a reviewer" in refused.json()["message"]
    )
    back = {"request_id": "3", "version": 2, "state": "open", "reverts": 1}
    assert post_verdict(as_("Rea"), review_set, **back).status_code == 200
    assert post_verdict(as_("Ann"), review_set, request_id="4", version=3).status_code == 200


def test_a_drawn_event_stays_in_its_recording(client, review_set, store):
    drawn = {"event_id": "drawn-1", "start_s": 1.0, "end_s": 2.0}
    assert post_verdict(client, review_set, **drawn).status_code == 200
    moved = post_verdict(client, review_set, **drawn, request_id="2", version=2, recording_id=QUIET)
    assert moved.status_code == 422 and "belongs to another recording" in moved.json()["message"]
    assert [item.recording_id for item in store.verdicts()] == [ONE]


def test_an_unknown_user_of_the_proxy_gets_a_message_and_no_page(review_set, store, tmp_path):
    client, _ = team(review_set, store, tmp_path, proxy="127.0.0.1", trust_header="X-Remote-User")
    answer = client.get("/", headers={"x-remote-user": "Zoe"})
    assert answer.status_code == 403 and "Zoe is not a user of this review" in answer.json()["message"]
    assert "Spectrogram" in client.get("/", headers={"x-remote-user": "Ann"}).text


def test_only_an_admin_manages_users(review_set, store, tmp_path):
    _, as_ = team(review_set, store, tmp_path)
    assert as_("Rea").get("/api/users").status_code == 403
    admin = as_("Ada")
    zoe = {"name": "Zoe", "role": "annotator", "password": PASSWORD}
    assert {"name": "Zoe", "role": "annotator"} in admin.post("/api/users", json=zoe).json()["users"]
    assert admin.post("/api/users", json=zoe).status_code == 422
    assert len(admin.post("/api/users/remove", json={"name": "Zoe"}).json()["users"]) == 3
    assert admin.post("/api/users/remove", json={"name": "Zoe"}).status_code == 422
    assert "another admin" in admin.post("/api/users/remove", json={"name": "Ada"}).json()["message"]


def test_a_recording_can_have_ten_thousand_boxes(tmp_path):
    run = write_review_run(tmp_path, more=10_000)
    with open_store(f"sqlite:///{tmp_path / 'x.sqlite'}") as store:
        assert len(boxes_of(client_of(open_review_set(run), store, tmp_path))) == 10_004
