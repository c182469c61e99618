"""`mast embed`: every sound of a run once, by one model, whatever stops it on the way."""

import json
import multiprocessing
import os
import shutil
import signal
import sys
import time
from collections import Counter
from pathlib import Path

import lance
import numpy as np
import pyarrow.parquet as pq
import pytest
import soundfile

from mast.config import Collection
from mast.detection import plan
from mast.detection.archive import Asked
from mast.detection.examples import Lottery, draw_examples
from mast.detection.found import open_found
from mast.detection.local import Compute
from mast.detection.part import PassingError
from mast.embeddings import embed, table, whitening
from mast.embeddings.boxes import pool_named
from mast.embeddings.embed import embed_events
from mast.embeddings.examples import Example, hear_examples
from mast.embeddings.neighbours import box_query, encoder_of_table, place_of
from mast.embeddings.part import OUTSIDE, Orders, embed_part, open_encoder
from mast.embeddings.sheet import drawn
from mast.embeddings.table import append, open_vectors, parts_in
from mast.errors import ConfigError, MastError, MissingExtraError, ModelError, StorageError
from mast.events import Event, Recording, event_id, from_table
from mast.recordings.children import Child
from mast.recordings.scan import scan
from mast.storage import held_alone
from tests.detection.archives import card, heard, opened
from tests.detection.archives import rows as events_of
from tests.detection.runs import event, recording, write_run
from tests.detection.runs import heard as status_of
from tests.embeddings.runs import embedded_here, made_table, rows_of, save_encoder

ONE = Compute("cpu", 1)


def copied(run: str, folder: Path, *, with_table: bool = False) -> str:
    """The same run elsewhere; its recordings stay where they are."""
    ignored = shutil.ignore_patterns("*.html", "*.csv", *([] if with_table else ["*.lance"]))
    shutil.copytree(run, folder, ignore=ignored)
    return str(folder)


def test_a_run_without_sounds_has_an_empty_table(tmp_path, encoder):
    item = recording("1.WAV")
    run = write_run(tmp_path / "found", [[(item, status_of(item), [])]])
    assert rows_of(embedded_here(run, encoder)) == []


def test_a_run_with_too_few_sounds_so_far_is_refused_and_begun_once_it_is_finished(
    run, encoder, tmp_path, monkeypatch
):
    monkeypatch.setattr(whitening, "ENOUGH", len(events_of(run, "events")))
    again = copied(run, tmp_path / "found")
    shutil.move(f"{again}/status", tmp_path)
    with pytest.raises(
        StorageError, match=r"3 parts .* not done yet.*Finish mast detect, then run this again"
    ):
        embed_events(again, encoder, compute=ONE)
    Path(again, "status").mkdir()
    shutil.copy(tmp_path / "status" / "part-000000.parquet", f"{again}/status")
    with pytest.raises(StorageError, match="2 parts of the run are not done yet"):
        embed_events(again, encoder, compute=ONE)
    shutil.copytree(tmp_path / "status", f"{again}/status", dirs_exist_ok=True)
    result = embed_events(again, encoder, compute=ONE)
    assert whitening.read_whitening(result.table).is_measured
    assert "could be heard" not in result.summary()


def test_what_was_measured_too_early_is_measured_anew_before_the_first_sound(
    run, encoder, tmp_path, monkeypatch
):
    monkeypatch.setattr(whitening, "ENOUGH", 10**6)
    place = embedded_here(run, encoder, str(tmp_path / "table.lance"), numbers=[])
    assert not whitening.read_whitening(place).is_measured
    monkeypatch.setattr(whitening, "ENOUGH", 10)
    assert "could be heard" not in embed_events(run, encoder, out=place, compute=ONE).summary()
    assert whitening.read_whitening(place).is_measured


def test_vectors_of_few_sounds_stay_as_they_are_and_that_is_told(run, encoder, tmp_path, monkeypatch):
    monkeypatch.setattr(whitening, "ENOUGH", 10**6)
    place = embedded_here(run, encoder, str(tmp_path / "table.lance"))
    told = embed_events(run, encoder, out=place, compute=ONE).summary()
    assert "fewer than 200 sounds could be heard" in told
    assert f"Now there are more: delete {place} and run this again." in told
    few = embed.EmbedResult("table", "m0", 32, events=199, is_whitened=False).summary()
    assert "fewer than 200 sounds could be heard" in few and "delete" not in few


def test_parts_that_are_not_done_yet_are_told():
    told = embed.EmbedResult("table", "m0", 32, unfinished=1).summary()
    assert "1 parts of the run are not done yet: finish mast detect" in told


def test_every_sound_has_a_row_with_what_is_known_and_a_vector_of_unit_length(run, embedded, encoder):
    result, told = embedded
    events, rows = events_of(run, "events"), rows_of(result.table)
    assert (
        len(open_found(run).numbers) == 3 and result.events == result.added == len(events) == len(rows) > 30
    )
    known = {event_id(*(item[name] for name in BOX)): item for item in events}
    assert known.keys() == {row["event_id"] for row in rows}
    for row in rows:
        source = known[row["event_id"]]
        assert all(row[name] == source[name] for name in (*BOX, "score", "start_utc", "start_local", "site"))
        assert np.linalg.norm(row["vector"]) == pytest.approx(1, abs=2e-3)
    assert [told[0][0], told[1][0]] == ["sampling", "embedding"]
    assert told[-2:] == [("embedding", 3, 3), ("indexing", 0, None)]
    assert f"Vectors: {run}/embeddings.lance (32 numbers each, without an index" in result.summary()


def test_vectors_that_mast_detect_has_kept_are_taken_and_what_it_has_not_is_heard(
    detector, tmp_path, monkeypatch
):
    monkeypatch.setattr(plan, "MIN_PART_S", 5.0)
    root = card(tmp_path / "card", 5, seconds=2.5)
    run = heard(opened(root, detector, tmp_path / "found", asked=Asked(embeds=True))).out
    first, *_ = sorted(Path(run, "vectors").glob("*.parquet"))
    kept = [row["vector"] for row in events_of(run, "vectors")]
    names = [event_id(*(row[name] for name in BOX)) for row in events_of(run, "events")]
    monkeypatch.setattr(whitening, "ENOUGH", 10**6)  # vectors stay as they are
    again = {
        row["event_id"]: row["vector"] for row in rows_of(embedded_here(run, detector, f"{run}/all.lance"))
    }
    assert again == dict(zip(names, kept, strict=True)) and len(kept) > 10
    blocks = rows_of(embedded_here(run, detector, f"{run}/blocks.lance", "blocks"))
    assert [row["vector"] for row in blocks] != [again[row["event_id"]] for row in blocks]
    first.unlink()
    mixed = {row["event_id"]: row["vector"] for row in rows_of(embedded_here(run, detector))}
    assert again.keys() == mixed.keys() and again != mixed
    cosines = [np.dot(again[name], mixed[name]) for name in names]
    assert sum(cosine > 0.999 for cosine in cosines) >= len(names) / 2


def test_where_mast_detect_has_kept_all_vectors_no_process_is_needed(detector, tmp_path, monkeypatch):
    def start(*words):
        raise AssertionError("a process was started")

    monkeypatch.setattr(plan, "MIN_PART_S", 5.0)
    root = card(tmp_path / "card", 5, seconds=2.5)
    run = heard(opened(root, detector, tmp_path / "found", asked=Asked(embeds=True))).out
    monkeypatch.setattr(Child, "ask", start)
    told = []
    result = embed_events(run, detector, compute=ONE, on_progress=lambda *news: told.append(news))
    assert result.events == result.added == len(events_of(run, "events")) > 10
    assert told[-2:] == [("embedding", 3, 3), ("indexing", 0, None)]
    next(Path(run, "vectors").glob("*.parquet")).unlink()
    with pytest.raises(AssertionError, match="a process was started"):
        embed_events(run, detector, out=f"{run}/again.lance", compute=ONE)


def test_vectors_of_another_model_are_not_taken(detector, tmp_path, encoder):
    root = card(tmp_path / "card", 1, seconds=2.5)
    run = heard(opened(root, detector, tmp_path / "found", asked=Asked(embeds=True))).out
    assert {len(row["vector"]) for row in rows_of(embedded_here(run, encoder))} == {32}


BOX = ("recording_id", "start_s", "end_s", "low_hz", "high_hz")


def test_vectors_are_those_of_boxes_one_by_one(run, embedded, encoder):
    from mast.embeddings.boxes import embed_boxes
    from mast.recordings.decode import open_audio

    found, row = open_found(run), rows_of(embedded[0].table)[0]
    same = [item for item in rows_of(embedded[0].table) if item["recording_id"] == row["recording_id"]]
    bounds = np.array([[item[name] for name in ("start_s", "low_hz", "end_s", "high_hz")] for item in same])
    place = embedded[0].table
    hearing = open_encoder(Orders(run, place, encoder, open_vectors(place)[1].model, "last"), "cpu")
    with open_audio(found.place(*found.split_id(row["recording_id"])), 16_000) as audio:
        vectors, order = embed_boxes(audio, bounds, hearing)
    expected = np.array([same[number]["vector"] for number in order.tolist()], np.float32)
    np.testing.assert_allclose(vectors, expected, atol=0.02)


def test_parts_are_few_files_in_the_end_and_nothing_is_left_of_the_way_there(embedded):
    dataset = lance.dataset(embedded[0].table)
    assert len(dataset.get_fragments()) == len(dataset.versions()) == 1
    assert len([*Path(embedded[0].table, "data").iterdir()]) == 1


def test_a_second_time_nothing_is_done_and_what_is_new_is_added(run, embedded, encoder, tmp_path):
    again = copied(run, tmp_path / "found")
    embedded_here(again, encoder, numbers=[2, 0])
    assert parts_in(lance.dataset(f"{again}/embeddings.lance")) == {0, 2}
    embedded_here(again, encoder, numbers=[1])
    assert rows_of(f"{again}/embeddings.lance") == rows_of(embedded[0].table)
    result = embed_events(again, encoder)
    assert (result.added, result.events) == (0, embedded[0].events)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"seed": 2}, r"has vectors of model \w{16}, and this is model \w{16}; the two cannot be compared"),
        ({"pool": "blocks"}, "made with --pool last, not blocks"),
        (
            {"fingerprint": "another"},
            "of another run of mast detect.* another table with --out, or delete it",
        ),
        ({"format": 0}, "made by another version of MAST"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    run, embedded, encoder, tmp_path, monkeypatch, changes, complaint
):
    again = copied(run, tmp_path / "found", with_table=True)
    if "fingerprint" in changes:
        told = json.loads(Path(again, "run.json").read_text("utf-8"))
        Path(again, "run.json").write_text(json.dumps(told | changes), "utf-8")
    if "format" in changes:
        monkeypatch.setattr(table.Story.__init__, "__defaults__", (0,))
    model = save_encoder(tmp_path / "model", changes["seed"]) if "seed" in changes else encoder
    with pytest.raises(StorageError, match=complaint):
        embed_events(again, model, changes.get("pool", "last"))


def test_two_readings_have_two_tables(run, encoder, tmp_path):
    place = embedded_here(run, encoder, str(tmp_path / "blocks.lance"), pool="blocks")
    assert open_vectors(place)[1].pool == "blocks"


def test_mistakes_are_told(run, encoder, tmp_path):
    with pytest.raises(ConfigError, match="--pool first: use last or blocks"):
        pool_named("first")
    with pytest.raises(StorageError, match="no run of mast detect is here"):
        embed_events(str(tmp_path), encoder)
    with pytest.raises(StorageError, match="there are no vectors. Make them with mast embed"):
        open_vectors(str(tmp_path / "nothing"))
    lance.write_dataset(pq.read_table(f"{run}/recordings.parquet"), str(tmp_path / "other.lance"))
    with pytest.raises(StorageError, match="is no table of vectors that MAST has written"):
        open_vectors(str(tmp_path / "other.lance"))
    with pytest.raises(ModelError, match="is no longer the model 00. Put it back"):
        open_encoder(Orders(run, "", encoder, "00", "last"), "cpu")
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="cannot be written"):
        embed_events(run, encoder, out=str(tmp_path / "file" / "table.lance"))


def test_without_lance_the_line_that_installs_it_is_told(run, encoder, monkeypatch):
    monkeypatch.setitem(sys.modules, "lance", None)
    with pytest.raises(MissingExtraError, match=r"A table of vectors needs .*mast-bioacoustics\[train\]"):
        embed_events(run, encoder)


def test_a_table_is_for_one_run_at_a_time(run, embedded, encoder):
    with (
        held_alone(embedded[0].table, "embed"),
        pytest.raises(StorageError, match="another mast embed is at work on it"),
    ):
        embed_events(run, encoder)


def test_who_writes_at_the_same_time_is_told(tmp_path):
    vectors = np.eye(4, dtype=np.float16)
    before = made_table(str(tmp_path / "one.lance"), vectors)
    fragments = [json.dumps(item.metadata.to_json()) for item in before.get_fragments()]
    append(before, fragments)
    with pytest.raises(StorageError, match="something else wrote to it at the same time"):
        append(before, fragments)


def test_what_cannot_be_heard_any_more_is_counted_and_told(run, encoder, tmp_path, monkeypatch):
    again, root = copied(run, tmp_path / "found"), tmp_path / "card"
    told = json.loads(Path(again, "run.json").read_text("utf-8"))
    shutil.copytree(told["collections"]["card"]["root"], root)
    told["collections"]["card"]["root"] = str(root)
    Path(again, "run.json").write_text(json.dumps(told), "utf-8")
    gone, short = "card/A/20230510_003000.WAV", "card/B/20230510_013000.WAV"
    (root / "A" / "20230510_003000.WAV").unlink()
    cut = root / "B" / "20230510_013000.WAV"
    cut.write_bytes(cut.read_bytes()[:20_000])
    place = embedded_here(again, encoder, numbers=[])
    found, left_out, events = open_found(again), Counter(), 0
    hearing = open_encoder(Orders(again, place, encoder, open_vectors(place)[1].model, "last"), "cpu")
    for number in found.numbers:
        written = embed_part(found, number, hearing, place)
        left_out += written.left_out
        events += written.events
    every = Counter(item["recording_id"] for item in events_of(again, "events"))
    late = [
        item
        for item in events_of(again, "events")
        if item["recording_id"] == short and item["start_s"] > 0.63
    ]
    assert left_out == {"there is no such file.": every[gone], OUTSIDE: len(late)}
    assert events + left_out.total() == every.total() and late
    result = embed.EmbedResult("table", "m0", 32, left_out=left_out + Counter(map(str, range(9))))
    assert "× there is no such file." in result.summary() and "and 6 more reasons" in result.summary()
    monkeypatch.setattr("mast.embeddings.part.cut_chunks", lambda *_: 1 / 0)
    with pytest.raises(PassingError, match="ZeroDivisionError: .* When it was read again, nothing was wrong"):
        embed_part(found, 2, hearing, place)
    shutil.rmtree(root)
    with pytest.raises(StorageError, match="the recordings cannot be reached any more"):
        embed_part(found, 0, hearing, place)


def test_a_part_of_very_many_sounds_is_written_as_it_comes_and_committed_at_once(
    run, embedded, encoder, tmp_path, monkeypatch
):
    monkeypatch.setattr("mast.embeddings.part.FRAGMENT_EVENTS", 5)
    place = embedded_here(run, encoder, str(tmp_path / "table.lance"), numbers=[0])
    dataset = lance.dataset(place)
    assert len(dataset.get_fragments()) > 2 and dataset.version == 2
    assert rows_of(place) == [row for row in rows_of(embedded[0].table) if row["part"] == 0]


def stopping_after_the_first_part(words: list[str], mark: str) -> None:
    """`mast` that commits a part, says so with a file, and then waits to be killed."""
    from mast.cli import main

    real = embed.append

    def waiting(dataset, fragments):
        if Path(mark).exists():
            time.sleep(600)
        done = real(dataset, fragments)
        Path(mark).touch()
        return done

    embed.append = waiting
    sys.argv = ["mast", *words]
    main()


def test_a_run_that_is_killed_leaves_whole_parts_and_ends_like_one_that_is_not(
    run, embedded, encoder, tmp_path
):
    place, mark = str(tmp_path / "table.lance"), tmp_path / "mark"
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["mast.cli", "mast.embeddings.embed"])
    words = ["embed", run, "--model", encoder, "--out", place, "--workers", "1"]
    process = context.Process(target=stopping_after_the_first_part, args=(words, str(mark)))
    process.start()
    data = Path(place, "data")
    while not mark.exists() or len([*data.iterdir()]) < 2:  # a second part is written, and not committed
        assert process.is_alive()
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    kept = rows_of(place)
    assert {row["part"] for row in kept} == {0}
    assert kept == [row for row in rows_of(embedded[0].table) if row["part"] == 0]
    result = embed_events(run, encoder, out=place, compute=ONE)
    assert rows_of(place) == rows_of(embedded[0].table)
    assert result.added == result.events - len(kept)
    assert len([*data.iterdir()]) == 1


def test_from_bucket_to_bucket_vectors_are_those_of_a_disk(run, embedded, encoder, bucket, tmp_path):
    from tests.detection.test_archive_s3 import upload

    upload(Path(copied(run, tmp_path / "found")), bucket, "found")
    result = embed_events(f"{bucket}/found", encoder, compute=ONE)
    assert result.added == embedded[0].events
    dataset, _ = open_vectors(f"{bucket}/found/embeddings.lance")
    there = sorted(dataset.to_table().to_pylist(), key=lambda row: row["event_id"])
    assert there == rows_of(embedded[0].table)
    assert result.table == f"{bucket}/found/embeddings.lance" and len(dataset.get_fragments()) == 1
    assert embed_events(f"{bucket}/found", encoder).added == 0


LIGHT = """
import json, os, sys
from pathlib import Path
from mast.recordings.children import serve_parent

def begun(number):
    return Path(json.loads(sys.argv[1])["events"], "begun").read_text().split().count(str(number))

def serve(jobs, answer):
    for line in jobs:
        number = json.loads(line)["part"]
        answer({"news": 0.5})
        with open(json.loads(sys.argv[1])["events"] + "/begun", "a") as file:
            file.write(f"{number} ")
        BEHAVIOUR
        answer({"written": [[], number, {"too quiet": 1}]})

if __name__ == "__main__":
    serve_parent(lambda: serve)
"""


def crew_of(folder, monkeypatch, behaviour, count=1):
    """Children that write nothing, and end as they are told."""
    monkeypatch.setattr(embed, "PAUSE_S", 0.01)
    (folder / "light_embedding.py").write_text(LIGHT.replace("BEHAVIOUR", behaviour))
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(embed, "Child", lambda _, *rest: Child("light_embedding", *rest))
    orders = Orders(str(folder), "", "", "", "last")
    return embed._Crew(orders, Compute("cpu", count), [4, 5, 6])


def test_parts_come_from_all_processes(tmp_path, monkeypatch):
    crew = crew_of(tmp_path, monkeypatch, "pass", count=2)
    parts = [item for item in crew.written() if item]
    assert sorted((item.number, item.events) for item in parts) == [(4, 4), (5, 5), (6, 6)]
    assert parts[0].left_out == {"too quiet": 1} and crew.done == 3


def test_a_process_that_ends_once_does_its_part_again(tmp_path, monkeypatch):
    crew = crew_of(tmp_path, monkeypatch, "number == 5 and begun(5) == 1 and os.abort()")
    assert [item.number for item in crew.written() if item] == [4, 5, 6]
    assert (tmp_path / "begun").read_text().split() == ["4", "5", "5", "6"]


def test_a_part_is_begun_again_while_a_network_fails(tmp_path, monkeypatch):
    failing = "begun(number) < 3 and answer({'error': 'No route.', 'may_pass': True})"
    crew = crew_of(tmp_path, monkeypatch, f"if {failing} is None: continue")
    assert [item.number for item in crew.written() if item] == [4, 5, 6]
    assert (tmp_path / "begun").read_text().split().count("4") == 3


def test_processes_that_end_again_and_again_end_the_run(tmp_path, monkeypatch):
    crew = crew_of(tmp_path, monkeypatch, "raise RuntimeError('no memory')")
    with pytest.raises(MastError, match=r"again and again \(RuntimeError: no memory\).*--workers"):
        [*crew.written()]


def test_what_a_process_cannot_do_is_told(tmp_path, monkeypatch):
    crew = crew_of(tmp_path, monkeypatch, "answer({'error': 'The disk is full.'}); continue")
    with pytest.raises(
        StorageError, match="The disk is full. What is done is kept: the same command goes on"
    ):
        [*crew.written()]


def test_a_child_tells_its_troubles_in_words(run, encoder, tmp_path):
    """The real child, asked in this process."""
    from mast.embeddings.part import serve

    place = embedded_here(run, encoder, str(tmp_path / "table.lance"), numbers=[])
    orders = Orders(run, place, encoder, open_vectors(place)[1].model, "last")
    answers = []
    serve(orders, open_encoder(orders, "cpu"), iter([b'{"part": 1}', b'{"part": 99}']), answers.append)
    assert answers[0]["news"] <= 1 and len(answers[-2]["written"][0]) == 1
    assert "part-000099.parquet" in answers[-1]["error"]
    hearing = open_encoder(orders, "cpu")
    shutil.rmtree(place)
    serve(orders, hearing, iter([b'{"part": 1}']), answers.append)
    assert answers[-1] == {
        "error": f"{place}: there are no vectors. Make them with mast embed.",
        "may_pass": False,
    }


@pytest.fixture
def cut_run(tmp_path, encoder):
    """A run over a recording that was cut short, with a sound just before the break; and the box of that sound."""
    root = tmp_path / "card"
    root.mkdir()
    sound = np.random.default_rng(0).normal(0, 0.1, 10 * 48_000)
    soundfile.write(root / "cut.flac", sound, 48_000)
    os.truncate(root / "cut.flac", (root / "cut.flac").stat().st_size * 6 // 10)
    scan({"card": Collection(root=str(root))}, str(tmp_path / "scanned.parquet"))
    (item,) = from_table(pq.read_table(tmp_path / "scanned.parquet"), Recording)
    own = event(item, item.duration_s - 0.5)
    return write_run(tmp_path / "found", [[(item, status_of(item, 1), [own])]], root=root), own


def test_a_sound_near_the_end_of_a_recording_that_was_cut_short_is_heard_and_shown(cut_run, encoder):
    run, own = cut_run
    found = open_found(run)
    place = embedded_here(run, encoder)
    (row,) = rows_of(place)
    box = Event(own.recording_id, own.start_s, own.end_s, own.low_hz, own.high_hz)
    query = box_query(found, place, box, device="cpu")
    np.testing.assert_allclose(query.vector, row["vector"], atol=0.02)
    assert all(drawn(query.location, query.time_expansion, query.frames, row_bounds(row))[:2])
    story = open_vectors(place)[1]
    example = Example("a", own.recording_id, *place_of(found, own.recording_id), row_bounds(row))
    assert hear_examples([example], encoder_of_table(place, story, encoder, "cpu")).boxes == (example,)
    lottery = Lottery()
    for part in found.parts():
        lottery.add(part)
    examples, reasons = draw_examples(found, lottery.chosen())
    assert len(examples) == 1 and not reasons


def row_bounds(row):
    return tuple(row[name] for name in ("start_s", "low_hz", "end_s", "high_hz"))


def test_a_recording_that_was_cut_short_is_read_again_only_as_far_as_it_can_be(cut_run, encoder, monkeypatch):
    run, _ = cut_run
    place = embedded_here(run, encoder, numbers=[])
    hearing = open_encoder(Orders(run, place, encoder, open_vectors(place)[1].model, "last"), "cpu")
    monkeypatch.setattr("mast.embeddings.part.cut_chunks", lambda *_: 1 / 0)
    with pytest.raises(PassingError, match="When it was read again, nothing was wrong"):
        embed_part(open_found(run), 0, hearing, place)


def test_a_made_up_sound_is_embedded_where_it_says(tmp_path, encoder):
    """Two recordings, of which one is slowed down: a sound's row is its own."""
    from tests.detection.archives import swelling
    from tests.recordings.made import wav

    (tmp_path / "cards").mkdir()
    (tmp_path / "cards" / "1.WAV").write_bytes(wav(swelling(2.0).tobytes()))
    item = recording("1.WAV")
    events = [event(item, 0.5, high_hz=30_000.0), event(item, 0.1)]
    run = write_run(
        tmp_path / "found", [[(item, status_of(item, 2), events)]], root=tmp_path / "cards", expansion=10.0
    )
    rows = rows_of(embedded_here(run, encoder))
    assert sorted(row["start_s"] for row in rows) == [0.1, 0.5]
