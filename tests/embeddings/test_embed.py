"""`mast embed`: every event of a run has one vector by one model, even after interruptions."""

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
from mast.embeddings import embed, vector_table, whitening
from mast.embeddings.box_encoder import parse_layers
from mast.embeddings.embed import embed_events
from mast.embeddings.references import ReferenceEvent, embed_references
from mast.embeddings.search_report import render_clip
from mast.embeddings.vector_search import box_query, encoder_of_table, locator_of
from mast.embeddings.vector_table import append, open_vectors, parts_in
from mast.embeddings.worker import OUTSIDE, EmbedConfig, embed_part, open_encoder
from mast.errors import ConfigError, MastError, MissingExtraError, ModelError, StorageError
from mast.outputs.examples import EventSampler, render_examples
from mast.recordings.scan import scan
from mast.records import Event, Recording, event_id, from_table
from mast.runs import plan
from mast.runs.local import ComputeResources, worker_pool
from mast.runs.results import open_results
from mast.runs.run import PrecisionRequest
from mast.runs.worker import TransientError
from mast.storage import exclusive_lock
from mast.workers.process import PROGRESS, WorkerProcess
from tests.embeddings.runs import build_table, embed_in_process, rows_of, save_encoder
from tests.runs.archives import card, open_paths, process_missing
from tests.runs.archives import rows as events_of
from tests.runs.finished import event, recording, status_of, write_run

ONE_PROCESS = ComputeResources("cpu", 1)


def copied(run: str, folder: Path, *, with_table: bool = False) -> str:
    """Copy a run, without its recordings."""
    ignored = shutil.ignore_patterns("*.html", "*.csv", *([] if with_table else ["*.lance"]))
    shutil.copytree(run, folder, ignore=ignored)
    return str(folder)


def test_a_run_without_events_has_an_empty_table(tmp_path, encoder):
    item = recording("1.WAV")
    run = write_run(tmp_path / "found", [[(item, status_of(item), [])]])
    assert rows_of(embed_in_process(run, encoder)) == []


def test_an_unfinished_run_with_too_few_events_is_refused_until_it_is_finished(
    run, encoder, tmp_path, monkeypatch
):
    monkeypatch.setattr(whitening, "MIN_SAMPLES", len(events_of(run, "events")))
    again = copied(run, tmp_path / "found")
    shutil.move(f"{again}/status", tmp_path)
    with pytest.raises(
        StorageError, match=r"3 parts .* not finished.*Finish mast detect, then run this command again"
    ):
        embed_events(again, encoder, compute=ONE_PROCESS)
    Path(again, "status").mkdir()
    shutil.copy(tmp_path / "status" / "part-000000.parquet", f"{again}/status")
    with pytest.raises(StorageError, match="2 parts of the run are not finished"):
        embed_events(again, encoder, compute=ONE_PROCESS)
    shutil.copytree(tmp_path / "status", f"{again}/status", dirs_exist_ok=True)
    result = embed_events(again, encoder, compute=ONE_PROCESS)
    assert whitening.read_whitening(result.table).is_measured
    assert "not whitened" not in result.summary()


def test_a_whitening_measured_too_early_is_replaced_before_the_first_event(
    run, encoder, tmp_path, monkeypatch
):
    monkeypatch.setattr(whitening, "MIN_SAMPLES", 10**6)
    table = embed_in_process(run, encoder, str(tmp_path / "table.lance"), numbers=[])
    assert not whitening.read_whitening(table).is_measured
    monkeypatch.setattr(whitening, "MIN_SAMPLES", 10)
    assert "not whitened" not in embed_events(run, encoder, out=table, compute=ONE_PROCESS).summary()
    assert whitening.read_whitening(table).is_measured


def test_vectors_of_few_events_are_not_whitened_and_the_summary_reports_it(
    run, encoder, tmp_path, monkeypatch
):
    monkeypatch.setattr(whitening, "MIN_SAMPLES", 10**6)
    table = embed_in_process(run, encoder, str(tmp_path / "table.lance"))
    summary = embed_events(run, encoder, out=table, compute=ONE_PROCESS).summary()
    assert "fewer than 200 events were readable" in summary
    assert f"There are more events now: delete {table} and run this command again." in summary
    summary = embed.EmbedResult("table", "m0", 32, events=199, is_whitened=False).summary()
    assert "fewer than 200 events were readable" in summary and "delete" not in summary


def test_the_summary_counts_unfinished_parts():
    summary = embed.EmbedResult("table", "m0", 32, unfinished=1).summary()
    assert "1 part of the run is not finished: finish mast detect" in summary
    summary = embed.EmbedResult("table", "m0", 32, unfinished=2).summary()
    assert "2 parts of the run are not finished: finish mast detect" in summary


def test_every_event_has_a_row_with_its_columns_and_a_vector_of_unit_length(run, embedded, encoder):
    result, progress = embedded
    events, rows = events_of(run, "events"), rows_of(result.table)
    assert (
        len(open_results(run).numbers) == 3 and result.events == result.added == len(events) == len(rows) > 30
    )
    by_id = {event_id(*(item[name] for name in BOX)): item for item in events}
    assert by_id.keys() == {row["event_id"] for row in rows}
    for row in rows:
        source = by_id[row["event_id"]]
        assert all(row[name] == source[name] for name in (*BOX, "score", "start_utc", "start_local", "site"))
        assert np.linalg.norm(row["vector"]) == pytest.approx(1, abs=2e-3)
    assert [progress[0][0], progress[1][0]] == ["sampling", "embedding"]
    assert progress[-2:] == [("embedding", 3, 3), ("indexing", 0, None)]
    assert f"Vectors: {run}/embeddings.lance (32 components each, without an index" in result.summary()


def test_vectors_stored_by_mast_detect_are_used_and_missing_ones_are_computed(
    detector, tmp_path, monkeypatch
):
    monkeypatch.setattr(plan, "MIN_PART_S", 5.0)
    root = card(tmp_path / "card", 5, seconds=2.5)
    run = process_missing(
        open_paths(root, detector, tmp_path / "found", request=PrecisionRequest(embeds=True))
    ).out
    first, *_ = sorted(Path(run, "vectors").glob("*.parquet"))
    stored = [row["vector"] for row in events_of(run, "vectors")]
    names = [event_id(*(row[name] for name in BOX)) for row in events_of(run, "events")]
    monkeypatch.setattr(whitening, "MIN_SAMPLES", 10**6)  # no whitening
    copied = {
        row["event_id"]: row["vector"] for row in rows_of(embed_in_process(run, detector, f"{run}/all.lance"))
    }
    assert copied == dict(zip(names, stored, strict=True)) and len(stored) > 10
    blocks = rows_of(embed_in_process(run, detector, f"{run}/blocks.lance", "blocks"))
    assert [row["vector"] for row in blocks] != [copied[row["event_id"]] for row in blocks]
    first.unlink()
    mixed = {row["event_id"]: row["vector"] for row in rows_of(embed_in_process(run, detector))}
    assert copied.keys() == mixed.keys() and copied != mixed
    cosines = [np.dot(copied[name], mixed[name]) for name in names]
    assert sum(cosine > 0.999 for cosine in cosines) >= len(names) / 2


def test_no_process_starts_if_mast_detect_has_stored_all_vectors(detector, tmp_path, monkeypatch):
    def start(*_):
        raise AssertionError("a process was started")

    monkeypatch.setattr(plan, "MIN_PART_S", 5.0)
    root = card(tmp_path / "card", 5, seconds=2.5)
    run = process_missing(
        open_paths(root, detector, tmp_path / "found", request=PrecisionRequest(embeds=True))
    ).out
    monkeypatch.setattr(WorkerProcess, "call", start)
    progress = []
    result = embed_events(run, detector, compute=ONE_PROCESS, on_progress=lambda *call: progress.append(call))
    assert result.events == result.added == len(events_of(run, "events")) > 10
    assert progress[-2:] == [("embedding", 3, 3), ("indexing", 0, None)]
    next(Path(run, "vectors").glob("*.parquet")).unlink()
    with pytest.raises(AssertionError, match="a process was started"):
        embed_events(run, detector, out=f"{run}/again.lance", compute=ONE_PROCESS)


def test_stored_vectors_of_another_model_are_not_used(detector, tmp_path, encoder):
    root = card(tmp_path / "card", 1, seconds=2.5)
    run = process_missing(
        open_paths(root, detector, tmp_path / "found", request=PrecisionRequest(embeds=True))
    ).out
    assert {len(row["vector"]) for row in rows_of(embed_in_process(run, encoder))} == {32}


BOX = ("recording_id", "start_s", "end_s", "low_hz", "high_hz")


def test_vectors_equal_those_of_a_direct_call(run, embedded, encoder):
    from mast.audio.reader import open_audio
    from mast.embeddings.box_encoder import embed_boxes

    results, row = open_results(run), rows_of(embedded[0].table)[0]
    same_recording = [
        item for item in rows_of(embedded[0].table) if item["recording_id"] == row["recording_id"]
    ]
    bounds = np.array(
        [[item[name] for name in ("start_s", "low_hz", "end_s", "high_hz")] for item in same_recording]
    )
    table = embedded[0].table
    box_encoder = open_encoder(EmbedConfig(run, table, encoder, open_vectors(table)[1].model, "last"), "cpu")
    with open_audio(results.location(*results.split_id(row["recording_id"])), 16_000) as audio:
        vectors, order = embed_boxes(audio, bounds, box_encoder)
    expected = np.array([same_recording[number]["vector"] for number in order.tolist()], np.float32)
    np.testing.assert_allclose(vectors, expected, atol=0.02)


def test_a_finished_table_has_few_files_and_no_earlier_versions(embedded):
    dataset = lance.dataset(embedded[0].table)
    assert len(dataset.get_fragments()) == len(dataset.versions()) == 1
    assert len([*Path(embedded[0].table, "data").iterdir()]) == 1


def test_a_second_call_adds_only_missing_parts(run, embedded, encoder, tmp_path):
    again = copied(run, tmp_path / "found")
    embed_in_process(again, encoder, numbers=[2, 0])
    assert parts_in(lance.dataset(f"{again}/embeddings.lance")) == {0, 2}
    embed_in_process(again, encoder, numbers=[1])
    assert rows_of(f"{again}/embeddings.lance") == rows_of(embedded[0].table)
    result = embed_events(again, encoder)
    assert (result.added, result.events) == (0, embedded[0].events)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"seed": 2}, r"has vectors of model \w{16}, and this is model \w{16}; the two are not comparable"),
        ({"layers": "blocks"}, "created with --layers last, not blocks"),
        (
            {"fingerprint": "another"},
            "of another run of mast detect.* another table with --out, or delete it",
        ),
        ({"format": 0}, "created by another version of MAST"),
    ],
)
def test_a_table_with_vectors_that_are_not_comparable_is_refused(
    run, embedded, encoder, tmp_path, monkeypatch, changes, complaint
):
    again = copied(run, tmp_path / "found", with_table=True)
    if "fingerprint" in changes:
        manifest = json.loads(Path(again, "run.json").read_text("utf-8"))
        Path(again, "run.json").write_text(json.dumps(manifest | changes), "utf-8")
    if "format" in changes:
        monkeypatch.setattr(vector_table.TableMetadata.__init__, "__defaults__", (0,))
    model = save_encoder(tmp_path / "model", changes["seed"]) if "seed" in changes else encoder
    with pytest.raises(StorageError, match=complaint):
        embed_events(again, model, changes.get("layers", "last"))


def test_other_layers_need_another_table(run, encoder, tmp_path):
    table = embed_in_process(run, encoder, str(tmp_path / "blocks.lance"), layers="blocks")
    assert open_vectors(table)[1].layers == "blocks"


def test_mistakes_are_reported(run, encoder, tmp_path):
    with pytest.raises(ConfigError, match="--layers first: use last or blocks"):
        parse_layers("first")
    with pytest.raises(StorageError, match="contains no run of mast detect"):
        embed_events(str(tmp_path), encoder)
    with pytest.raises(StorageError, match="there are no vectors. Create them with mast embed"):
        open_vectors(str(tmp_path / "nothing"))
    lance.write_dataset(pq.read_table(f"{run}/recordings.parquet"), str(tmp_path / "other.lance"))
    with pytest.raises(StorageError, match="is not a table of vectors written by MAST"):
        open_vectors(str(tmp_path / "other.lance"))
    with pytest.raises(ModelError, match="is no longer the model 00. Restore that model"):
        open_encoder(EmbedConfig(run, "", encoder, "00", "last"), "cpu")
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="cannot be written"):
        embed_events(run, encoder, out=str(tmp_path / "file" / "table.lance"))


def test_without_lance_the_error_has_the_install_command(run, encoder, monkeypatch):
    monkeypatch.setitem(sys.modules, "lance", None)
    with pytest.raises(MissingExtraError, match=r"A table of vectors needs .*mast-bioacoustics\[train\]"):
        embed_events(run, encoder)


def test_only_one_process_writes_to_a_table(run, embedded, encoder):
    with (
        exclusive_lock(embedded[0].table, "embed"),
        pytest.raises(StorageError, match="another mast embed is using this folder"),
    ):
        embed_events(run, encoder)


def test_a_concurrent_write_is_reported(tmp_path):
    vectors = np.eye(4, dtype=np.float16)
    dataset = build_table(str(tmp_path / "one.lance"), vectors)
    fragments = [json.dumps(item.metadata.to_json()) for item in dataset.get_fragments()]
    append(dataset, fragments)
    with pytest.raises(StorageError, match="another process wrote to it at the same time"):
        append(dataset, fragments)


def test_events_that_became_unreadable_are_counted_with_the_reason(run, encoder, tmp_path, monkeypatch):
    again, root = copied(run, tmp_path / "found"), tmp_path / "card"
    manifest = json.loads(Path(again, "run.json").read_text("utf-8"))
    shutil.copytree(manifest["collections"]["card"]["root"], root)
    manifest["collections"]["card"]["root"] = str(root)
    Path(again, "run.json").write_text(json.dumps(manifest), "utf-8")
    deleted, truncated = "card/A/20230510_003000.WAV", "card/B/20230510_013000.WAV"
    (root / "A" / "20230510_003000.WAV").unlink()
    file = root / "B" / "20230510_013000.WAV"
    file.write_bytes(file.read_bytes()[:20_000])
    table = embed_in_process(again, encoder, numbers=[])
    results, excluded, events = open_results(again), Counter(), 0
    config = EmbedConfig(again, table, encoder, open_vectors(table)[1].model, "last")
    box_encoder = open_encoder(config, "cpu")
    for number in results.numbers:
        written = embed_part(results, number, box_encoder, table)
        excluded += written.excluded
        events += written.events
    counts = Counter(item["recording_id"] for item in events_of(again, "events"))
    late = [
        item
        for item in events_of(again, "events")
        if item["recording_id"] == truncated and item["start_s"] > 0.63
    ]
    assert excluded == {"there is no such file.": counts[deleted], OUTSIDE: len(late)}
    assert events + excluded.total() == counts.total() and late
    result = embed.EmbedResult("table", "m0", 32, excluded=excluded + Counter(map(str, range(9))))
    assert "× there is no such file." in result.summary() and "and 6 more reasons" in result.summary()
    monkeypatch.setattr("mast.embeddings.worker.encode_chunks", lambda *_: 1 / 0)
    with pytest.raises(TransientError, match="ZeroDivisionError: .* A second read succeeded"):
        embed_part(results, 2, box_encoder, table)
    shutil.rmtree(root)
    with pytest.raises(StorageError, match="the recordings are no longer reachable"):
        embed_part(results, 0, box_encoder, table)


def test_a_part_of_many_events_is_written_in_fragments_and_committed_once(
    run, embedded, encoder, tmp_path, monkeypatch
):
    monkeypatch.setattr("mast.embeddings.worker.FRAGMENT_EVENTS", 5)
    table = embed_in_process(run, encoder, str(tmp_path / "table.lance"), numbers=[0])
    dataset = lance.dataset(table)
    assert len(dataset.get_fragments()) > 2 and dataset.version == 2
    assert rows_of(table) == [row for row in rows_of(embedded[0].table) if row["part"] == 0]


def stop_after_the_first_part(words: list[str], mark: str) -> None:
    """Run `mast`, create the file `mark` after the first commit, and then wait to be killed."""
    from mast.cli import main

    original = embed.append

    def waiting(dataset, fragments):
        if Path(mark).exists():
            time.sleep(600)
        committed = original(dataset, fragments)
        Path(mark).touch()
        return committed

    embed.append = waiting
    sys.argv = ["mast", *words]
    main()


def test_a_killed_command_leaves_complete_parts_and_resumes_to_the_same_table(
    run, embedded, encoder, tmp_path
):
    table, mark = str(tmp_path / "table.lance"), tmp_path / "mark"
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["mast.cli", "mast.embeddings.embed"])
    words = ["embed", run, "--model", encoder, "--out", table, "--workers", "1"]
    process = context.Process(target=stop_after_the_first_part, args=(words, str(mark)))
    process.start()
    data = Path(table, "data")
    while not mark.exists() or len([*data.iterdir()]) < 2:  # a second part is written but not committed
        assert process.is_alive()
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    committed = rows_of(table)
    assert {row["part"] for row in committed} == {0}
    assert committed == [row for row in rows_of(embedded[0].table) if row["part"] == 0]
    result = embed_events(run, encoder, out=table, compute=ONE_PROCESS)
    assert rows_of(table) == rows_of(embedded[0].table)
    assert result.added == result.events - len(committed)
    assert len([*data.iterdir()]) == 1


def test_vectors_of_a_run_in_a_bucket_equal_those_on_disk(run, embedded, encoder, bucket, tmp_path):
    from tests.runs.test_s3 import upload

    upload(Path(copied(run, tmp_path / "found")), bucket, "found")
    result = embed_events(f"{bucket}/found", encoder, compute=ONE_PROCESS)
    assert result.added == embedded[0].events
    dataset, _ = open_vectors(f"{bucket}/found/embeddings.lance")
    rows = sorted(dataset.to_table().to_pylist(), key=lambda row: row["event_id"])
    assert rows == rows_of(embedded[0].table)
    assert result.table == f"{bucket}/found/embeddings.lance" and len(dataset.get_fragments()) == 1
    assert embed_events(f"{bucket}/found", encoder).added == 0


STUB_WORKER = """
import json, os, sys
from pathlib import Path
from mast.workers.process import PROGRESS, worker_main

def attempts(number):
    return Path(json.loads(sys.argv[1])["events"], "attempts").read_text().split().count(str(number))

def serve(jobs, answer):
    for line in jobs:
        number = json.loads(line)["part"]
        answer({PROGRESS: 0.5})
        with open(json.loads(sys.argv[1])["events"] + "/attempts", "a") as file:
            file.write(f"{number} ")
        BEHAVIOUR
        answer({"written": [[], number, {"too quiet": 1}]})

if __name__ == "__main__":
    worker_main(lambda: serve)
"""


NUMBERS = [4, 5, 6]


def stub_pool(folder, monkeypatch, behaviour, count=1):
    """Create a pool of workers that write nothing and run the code `behaviour` for each part."""
    monkeypatch.setattr(embed, "PAUSE_S", 0.01)
    (folder / "stub_embedding.py").write_text(STUB_WORKER.replace("BEHAVIOUR", behaviour))
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(embed._EmbeddingSupervisor, "module", "stub_embedding")
    config = {"events": str(folder)}
    return worker_pool(embed._EmbeddingSupervisor, config, ComputeResources("cpu", count), len(NUMBERS))


def test_parts_come_from_all_processes(tmp_path, monkeypatch):
    pool = stub_pool(tmp_path, monkeypatch, "pass", count=2)
    parts = [item for item in pool.run(NUMBERS) if item]
    assert sorted((item.number, item.events) for item in parts) == [(4, 4), (5, 5), (6, 6)]
    assert parts[0].excluded == {"too quiet": 1} and pool.progress == 3


def test_a_process_that_dies_once_retries_its_part(tmp_path, monkeypatch):
    pool = stub_pool(tmp_path, monkeypatch, "number == 5 and attempts(5) == 1 and os.abort()")
    assert [item.number for item in pool.run(NUMBERS) if item] == [4, 5, 6]
    assert (tmp_path / "attempts").read_text().split() == ["4", "5", "5", "6"]


def test_a_part_is_retried_while_the_network_fails(tmp_path, monkeypatch):
    failing = "attempts(number) < 3 and answer({'error': 'No route.', 'is_transient': True})"
    pool = stub_pool(tmp_path, monkeypatch, f"if {failing} is None: continue")
    assert [item.number for item in pool.run(NUMBERS) if item] == [4, 5, 6]
    assert (tmp_path / "attempts").read_text().split().count("4") == 3


def test_a_process_that_dies_at_every_attempt_stops_the_command(tmp_path, monkeypatch):
    pool = stub_pool(tmp_path, monkeypatch, "raise RuntimeError('no memory')")
    with pytest.raises(MastError, match=r"died 4 times \(RuntimeError: no memory\).*--workers"):
        [*pool.run(NUMBERS)]


def test_an_error_of_a_process_is_reported(tmp_path, monkeypatch):
    pool = stub_pool(tmp_path, monkeypatch, "answer({'error': 'The disk is full.'}); continue")
    with pytest.raises(
        StorageError, match="The disk is full. Finished parts are kept: run the same command to resume"
    ):
        [*pool.run(NUMBERS)]


def test_a_worker_answers_with_its_error_message(run, encoder, tmp_path):
    """Call the function of the worker process in this process."""
    from mast.embeddings.worker import serve

    table = embed_in_process(run, encoder, str(tmp_path / "table.lance"), numbers=[])
    config = EmbedConfig(run, table, encoder, open_vectors(table)[1].model, "last")
    answers = []
    serve(config, open_encoder(config, "cpu"), iter([b'{"part": 1}', b'{"part": 99}']), answers.append)
    assert answers[0][PROGRESS] <= 1 and len(answers[-2]["written"][0]) == 1
    assert "part-000099.parquet" in answers[-1]["error"]
    box_encoder = open_encoder(config, "cpu")
    shutil.rmtree(table)
    serve(config, box_encoder, iter([b'{"part": 1}']), answers.append)
    assert answers[-1] == {
        "error": f"{table}: there are no vectors. Create them with mast embed.",
        "is_transient": False,
    }


@pytest.fixture
def truncated_run(tmp_path, encoder):
    """Return a run over a truncated recording and its only event, just before the truncation."""
    root = tmp_path / "card"
    root.mkdir()
    samples = np.random.default_rng(0).normal(0, 0.1, 10 * 48_000)
    soundfile.write(root / "cut.flac", samples, 48_000)
    os.truncate(root / "cut.flac", (root / "cut.flac").stat().st_size * 6 // 10)
    scan({"card": Collection(root=str(root))}, str(tmp_path / "scanned.parquet"))
    (item,) = from_table(pq.read_table(tmp_path / "scanned.parquet"), Recording)
    late = event(item, item.duration_s - 0.5)
    return write_run(tmp_path / "found", [[(item, status_of(item, 1), [late])]], root=root), late


def test_an_event_near_the_end_of_a_truncated_recording_is_embedded_and_shown(truncated_run, encoder):
    run, late = truncated_run
    results = open_results(run)
    table = embed_in_process(run, encoder)
    (row,) = rows_of(table)
    box = Event(late.recording_id, late.start_s, late.end_s, late.low_hz, late.high_hz)
    query = box_query(results, table, box, device="cpu")
    np.testing.assert_allclose(query.vector, row["vector"], atol=0.02)
    assert all(render_clip(query.location, query.time_expansion, query.frames, row_bounds(row))[:2])
    metadata = open_vectors(table)[1]
    location = locator_of(results, late.recording_id)
    reference = ReferenceEvent("a", late.recording_id, *location, row_bounds(row))
    box_encoder = encoder_of_table(table, metadata, encoder, "cpu")
    assert embed_references([reference], box_encoder).boxes == (reference,)
    sampler = EventSampler()
    for part in results.parts():
        sampler.add(part)
    examples, reasons = render_examples(results, sampler.chosen())
    assert len(examples) == 1 and not reasons


def row_bounds(row):
    return tuple(row[name] for name in ("start_s", "low_hz", "end_s", "high_hz"))


def test_a_second_read_of_a_truncated_recording_ends_at_its_last_readable_frame(
    truncated_run, encoder, monkeypatch
):
    run, _ = truncated_run
    table = embed_in_process(run, encoder, numbers=[])
    box_encoder = open_encoder(EmbedConfig(run, table, encoder, open_vectors(table)[1].model, "last"), "cpu")
    monkeypatch.setattr("mast.embeddings.worker.encode_chunks", lambda *_: 1 / 0)
    with pytest.raises(TransientError, match="A second read succeeded"):
        embed_part(open_results(run), 0, box_encoder, table)


def test_events_of_a_time_expanded_recording_are_embedded_at_their_own_times(tmp_path, encoder):
    """The row of an event keeps the seconds of its recording, which is slowed down for the model."""
    from tests.recordings.builders import wav
    from tests.runs.archives import varying_noise

    (tmp_path / "cards").mkdir()
    (tmp_path / "cards" / "1.WAV").write_bytes(wav(varying_noise(2.0).tobytes()))
    item = recording("1.WAV")
    events = [event(item, 0.5, high_hz=30_000.0), event(item, 0.1)]
    run = write_run(
        tmp_path / "found", [[(item, status_of(item, 2), events)]], root=tmp_path / "cards", expansion=10.0
    )
    rows = rows_of(embed_in_process(run, encoder))
    assert sorted(row["start_s"] for row in rows) == [0.1, 0.5]
