"""Splits neither leak nor lose audio, for timetables of all kinds and for real recordings."""

from __future__ import annotations

import csv
import io
import json
import os
import tempfile
from collections import Counter, defaultdict
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mast.annotations.study_annotations import read_study_annotations
from mast.audio.reader import chunk_counts, chunk_offsets, resampled_length
from mast.audio.spectrogram import MelGrid
from mast.config import Chunking, Collection, HeldOut, Spectrogram, Splits, Study, dump_study, load_study
from mast.datasets.chunk_boxes import (
    CLIPPED,
    IN_NO_CHUNK,
    MIN_CUT_S,
    NO_FREQUENCIES,
    NUDGE_S,
    OUT_OF_BAND,
    boxes_in_chunks,
)
from mast.datasets.split_summary import CALENDAR, SplitsSummary, render, split_study, splits_summary
from mast.datasets.split_table import AMBIGUOUS, SPLITS_TABLE, _assigned_spans, split_metadata, write_splits
from mast.datasets.splits import (
    EDGE_S,
    IN_DOMAIN_SPLITS,
    assign_blocks,
    assign_domain,
    held_out_rules,
    intersects_and_within,
    merge_spans,
    reviewed_spans,
)
from mast.errors import ConfigError, StorageError
from mast.recordings.scan import PROVENANCE, scan
from mast.records import (
    Annotation,
    Recording,
    ReviewedSpan,
    SplitChunk,
    arrow_schema,
    from_table,
    read_column,
    write_table,
)

FIRST = datetime(2023, 5, 10, 6)
RATE_HZ = 48_000
GRID = MelGrid(Spectrogram(), 1024)
ROOT = Path(__file__).parents[2]


def recording(name: str, start: datetime | None, duration_s: float = 60.0, **more: Any) -> Recording:
    defaults: dict[str, Any] = {
        "site": "pond",
        "status": "ok",
        "collection": "card",
        "frames": round(duration_s * RATE_HZ),
        "sample_rate_hz": RATE_HZ,
        "start_local": start,
        "start_utc": start and start.replace(tzinfo=UTC) - timedelta(hours=2),
    }
    values = defaults | more
    return Recording(
        recording_id=f"{values['collection']}/{name}",
        path=name,
        size_bytes=1,
        modified_utc=None,
        duration_s=duration_s,
        **values,
    )


def study_of(
    folder: Path,
    recordings: list[Recording],
    reviewed: list[ReviewedSpan] = (),  # type: ignore[assignment]
    boxes: list[Annotation] = (),  # type: ignore[assignment]
    time_expansion: float = 1.0,
    **splits: Any,
) -> Study:
    write_table(recordings, Recording, str(folder / "recordings.parquet"))
    if reviewed:
        write_table(reviewed, ReviewedSpan, str(folder / "reviewed.parquet"))
        write_table(boxes, Annotation, str(folder / "annotations.parquet"))
    names = {item.collection for item in recordings} | {"card"}
    collections = {name: Collection(root="x", time_expansion=time_expansion) for name in names}
    return Study(work_dir=str(folder), collections=collections, splits=Splits(**splits))


def chunks_of(study: Study) -> list[SplitChunk]:
    return from_table(pq.read_table(write_splits(study)), SplitChunk)


def schedule(count: int, every_s: float = 600, duration_s: float = 60, site: str = "pond") -> list[Recording]:
    starts = [FIRST + timedelta(seconds=step * every_s) for step in range(count)]
    return [recording(f"{site}/{start:%d_%H%M%S}.wav", start, duration_s, site=site) for start in starts]


def all_reviewed(recordings: list[Recording]) -> list[ReviewedSpan]:
    return [ReviewedSpan(item.recording_id) for item in recordings]


def hours_of(chunks: list[SplitChunk]) -> Counter[str]:
    return Counter(chunk.split for chunk in chunks)


# ---------------------------------------------------------------------------------------------- settings


def test_the_fractions_must_sum_to_one() -> None:
    with pytest.raises(ValueError, match="sum to 1, not 1.1"):
        Splits(train=0.8)


def test_a_held_out_set_needs_a_condition_and_an_unused_name() -> None:
    with pytest.raises(ValueError, match="at least one of sites, dates"):
        HeldOut()
    with pytest.raises(ValueError, match="must not be after"):
        HeldOut(from_date=date(2023, 5, 2), to_date=date(2023, 5, 1))
    with pytest.raises(ValueError, match="held_out.test: this name is reserved"):
        Splits(held_out={"test": HeldOut(sites=("A",))})


def test_dates_and_sites_are_read_from_a_study_file(tmp_path: Path) -> None:
    text = "splits: {held_out: {near: {dates: [2023-05-12], sites: [AM4, 'miles_*']}}}"
    (tmp_path / "study.yaml").write_text(text, "utf-8")
    study = load_study(tmp_path / "study.yaml", ["splits.seed=3"])
    assert study.splits.held_out["near"] == HeldOut(dates=(date(2023, 5, 12),), sites=("AM4", "miles_*"))
    (tmp_path / "again.yaml").write_text(dump_study(study), "utf-8")
    assert load_study(tmp_path / "again.yaml").splits == study.splits
    with pytest.raises(ConfigError, match="Did you mean splits.held_out.near.dates"):
        load_study(tmp_path / "study.yaml", ["splits.held_out.near.date=2023-05-12"])


@pytest.mark.parametrize(
    ("rule", "match", "mismatch"),
    [
        ({"sites": ["AM4", "miles_*"]}, ("x", "miles_bush", None), ("x", "AM44", None)),
        ({"sites": ["am4"]}, ("x", "AM4", None), ("x", None, None)),
        ({"dates": [date(2023, 5, 12)]}, ("x", None, date(2023, 5, 12)), ("x", None, None)),
        ({"from_date": date(2023, 5, 12)}, ("x", None, date(2024, 1, 1)), ("x", None, date(2023, 5, 11))),
        ({"to_date": date(2023, 5, 12)}, ("x", None, date(2023, 5, 12)), ("x", None, None)),
        ({"paths": ["*XC82*"]}, ("a/XC82.wav", None, None), ("a/XC81.wav", None, None)),
        (
            {"sites": ["A"], "dates": [date(2023, 5, 12)]},
            ("x", "A", date(2023, 5, 12)),
            ("x", "B", date(2023, 5, 12)),
        ),
    ],
)
def test_all_conditions_of_a_set_must_match(rule: dict[str, Any], match: Any, mismatch: Any) -> None:
    rules = held_out_rules(Splits(held_out={"far": HeldOut(**rule), "rest": HeldOut(sites=("none",))}))
    assert assign_domain(rules, *match) == "far"
    assert assign_domain(rules, *mismatch) == "in-domain"


def test_a_recording_goes_to_the_first_matching_set() -> None:
    rules = held_out_rules(Splits(held_out={"a": HeldOut(sites=("x*",)), "b": HeldOut(sites=("*",))}))
    assert [assign_domain(rules, "p", site, None) for site in ("x1", "y1")] == ["a", "b"]


# ------------------------------------------------------------------------------------- spans and blocks


def test_overlapping_spans_are_merged_and_touching_ones_are_not() -> None:
    assert merge_spans(np.zeros((0, 2))).shape == (0, 2)
    spans = np.array([[5.0, 6.0], [0.0, 2.0], [1.0, 3.0], [3.0, 4.0], [1.5, 1.6]])
    assert merge_spans(spans).tolist() == [[0, 3], [3, 4], [5, 6]]


def test_consecutive_reviewed_clips_are_one_span_to_the_end() -> None:
    spans = np.array([[0.0, 1.0], [1.0, 2.0], [2.0, np.nan], [50.0, 60.0]])
    assert reviewed_spans(spans, 2.7).tolist() == [[0, 2.7]]


def test_an_interval_intersects_a_span_or_lies_within_it() -> None:
    spans = np.array([[1.0, 3.0], [5.0, 6.0]])
    starts, ends = np.array([0.0, 0.5, 1.0, 2.5, 3.0, 5.5]), np.array([1.0, 1.5, 3.0, 5.5, 5.0, 5.7])
    intersecting, within = intersects_and_within(spans, starts, ends)
    assert intersecting.tolist() == [False, True, True, True, False, True]
    assert within.tolist() == [False, False, True, False, False, True]
    assert not np.any(intersects_and_within(np.zeros((0, 2)), starts, ends))


@pytest.mark.parametrize(
    ("blocks", "counts"),
    [(0, [0, 0, 0]), (1, [1, 0, 0]), (2, [1, 1, 0]), (3, [1, 1, 1]), (4, [2, 1, 1]), (20, [14, 3, 3])],
)
def test_small_numbers_of_blocks_are_assigned_as_evenly_as_possible(blocks: int, counts: list[int]) -> None:
    codes = assign_blocks(np.full(blocks, 600.0), (0.7, 0.15, 0.15), seed=1)
    assert np.bincount(codes, minlength=3).tolist() == counts


def test_a_split_with_fraction_zero_gets_nothing() -> None:
    codes = assign_blocks(np.full(10, 60.0), (0.8, 0.0, 0.2), seed=0)
    assert np.bincount(codes, minlength=3).tolist() == [8, 0, 2]


@settings(deadline=None)
@given(st.lists(st.floats(100, 900), min_size=20, max_size=100), st.integers(0, 99))
def test_the_time_of_uneven_blocks_approximates_the_fractions(lengths: list[float], seed: int) -> None:
    audio_s = np.array(lengths)
    codes = assign_blocks(audio_s, (0.7, 0.15, 0.15), seed)
    fractions = np.bincount(codes, audio_s, 3) / audio_s.sum()
    assert np.abs(fractions - (0.7, 0.15, 0.15)).max() < 0.03


@settings(deadline=None)
@given(
    st.integers(0, 2_000_000),
    st.sampled_from(
        [
            Chunking(),
            Chunking(hop_s=10.24),
            Chunking(min_audio_fraction=0),
            Chunking(min_audio_fraction=1, hop_s=1.0),
        ]
    ),
)
def test_chunk_counts_equal_the_number_of_chunk_offsets(samples: int, chunking: Chunking) -> None:
    assert chunk_counts(np.array([samples]), chunking).tolist() == [
        len(list(chunk_offsets(samples, chunking)))
    ]


def test_time_expansion_gives_more_samples() -> None:
    assert resampled_length(384_000, 384_000, 16_000, 1) == 16_000
    assert resampled_length(384_001, 384_000, 16_000, 10) == 160_000


# ------------------------------------------------------------------------------------------------ boxes


def naive_boxes(
    events: list[tuple[float, ...]], starts: list[float], audio_s: list[float], factor: float
) -> tuple[dict[tuple[int, int], tuple[float, ...]], Counter[str]]:
    """Apply the rules of the paper with plain loops."""
    clipped: dict[tuple[int, int], tuple[float, ...]] = {}
    dropped: Counter[str] = Counter()
    for row, (start, low, end, high) in enumerate(events):
        begin, stop, bottom, top = start * factor, end * factor, low / factor, high / factor
        if np.isnan(low):
            dropped[NO_FREQUENCIES] += 1
            continue
        if bottom >= 8000 or top < 20:
            dropped[OUT_OF_BAND] += 1
            continue
        overlapped = 0
        for number, (first, length) in enumerate(zip(starts, audio_s, strict=True)):
            if begin >= first + length or not (stop > first or begin >= first):
                continue
            overlapped += 1
            left, right = max(begin - first, 0.0), min(stop - first, length)
            is_clipped = begin - first < -NUDGE_S or stop - first > length + NUDGE_S
            if is_clipped and right - left < MIN_CUT_S - NUDGE_S:
                dropped[CLIPPED] += 1
            else:
                clipped[row, number] = (left, bottom, right, top)
        dropped[IN_NO_CHUNK] += not overlapped
    return clipped, +dropped


EVENTS = st.lists(
    st.tuples(
        st.floats(0, 70), st.floats(0, 20_000) | st.just(float("nan")), st.sampled_from([0, 0.05, 0.3, 4, 30])
    ).map(lambda item: (item[0], item[1], item[0] + item[2], item[1] + 500)),
    max_size=12,
)


@settings(deadline=None)
@given(EVENTS, st.integers(0, 70 * 16_000), st.sampled_from([1.0, 2.0]))
def test_boxes_equal_those_of_a_loop_over_all_chunks(
    events: list[tuple[float, ...]], samples: int, factor: float
) -> None:
    plan = list(chunk_offsets(samples, Chunking()))
    starts, audio_s = [first / 16_000 for first, _ in plan], [length / 16_000 for _, length in plan]
    clipped = boxes_in_chunks(
        np.array(events).reshape(-1, 4), np.array(starts), np.array(audio_s), GRID, factor
    )
    expected, dropped = naive_boxes(events, starts, audio_s, factor)
    assert list(zip(clipped.event.tolist(), clipped.chunk.tolist(), strict=True)) == list(expected)
    assert clipped.boxes == pytest.approx(np.array(list(expected.values())).reshape(-1, 4), abs=1e-9)
    assert clipped.dropped == dropped


def test_a_call_at_an_edge_is_clipped_and_a_short_rest_is_dropped() -> None:
    events = np.array([[10.0, 1000, 10.3, 2000], [10.19, 1000, 10.6, 9000], [3.0, 500, 3.05, 600]])
    clipped = boxes_in_chunks(events, np.array([0.0, 10.24]), np.array([10.24, 10.24]), GRID)
    assert clipped.chunk.tolist() == [0, 1, 0] and clipped.event.tolist() == [0, 1, 2]
    assert clipped.boxes == pytest.approx(
        np.array([[10.0, 1000, 10.24, 2000], [0.0, 1000, 0.36, 9000], [3.0, 500, 3.05, 600]])
    )
    assert clipped.dropped == {CLIPPED: 2}


# --------------------------------------------------------------------------------------- table of splits


def test_a_study_without_recordings_has_an_empty_table(tmp_path: Path) -> None:
    study = study_of(tmp_path, [])
    assert chunks_of(study) == []
    assert pq.read_schema(tmp_path / SPLITS_TABLE).equals(arrow_schema(SplitChunk))
    assert "mast sample proposes" in shown(splits_summary(str(tmp_path / SPLITS_TABLE)))


def test_a_missing_table_raises_an_error_with_the_command_that_creates_it(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="Make it with mast scan"):
        write_splits(Study(work_dir=str(tmp_path)))


def test_one_long_recording_is_divided_into_blocks_with_gaps(tmp_path: Path) -> None:
    rows = [recording("day.wav", FIRST, 6000)]
    chunks = chunks_of(study_of(tmp_path, rows, all_reviewed(rows)))
    assert set(hours_of(chunks)) == {*IN_DOMAIN_SPLITS, "guard"}
    runs = [
        chunk.split
        for before, chunk in pairwise([None, *chunks])
        if not before or before.split != chunk.split
    ]
    assert 5 <= len(runs) <= 20
    assert all("guard" in pair for pair in pairwise(runs)), "guard chunks separate different splits"
    assert hours_of(chunks)["guard"] < 0.06 * len(chunks)


def test_short_recordings_far_apart_need_no_guard(tmp_path: Path) -> None:
    rows = schedule(100)
    counts = hours_of(chunks_of(study_of(tmp_path, rows, all_reviewed(rows))))
    assert set(counts) == set(IN_DOMAIN_SPLITS)
    assert [counts[split] / 1100 for split in IN_DOMAIN_SPLITS] == pytest.approx([0.7, 0.15, 0.15], abs=0.051)


def test_short_recordings_are_collected_into_blocks(tmp_path: Path) -> None:
    rows = schedule(40)
    chunks = chunks_of(study_of(tmp_path, rows, all_reviewed(rows), block_s=300))
    splits = {chunk.recording_id: chunk.split for chunk in chunks}
    groups = [list(splits.values())[first : first + 5] for first in range(0, 40, 5)]
    assert all(len(set(group)) == 1 for group in groups)


def test_recordings_at_the_same_time_and_site_are_in_the_same_split(tmp_path: Path) -> None:
    rows = schedule(30) + [
        recording(f"twin/{row.path}", row.start_local + timedelta(seconds=7), collection="twin")  # type: ignore[operator]
        for row in schedule(30)
    ]
    chunks = chunks_of(study_of(tmp_path, rows, all_reviewed(rows), block_s=60))
    splits: dict[str, set[str]] = defaultdict(set)
    for chunk in chunks:
        assert chunk.start_local
        splits[f"{chunk.start_local:%d %H:%M}"].add(chunk.split)
    assert len(splits) == 30
    assert all(len(names) == 1 for names in splits.values())


def test_only_reviewed_chunks_are_labelled(tmp_path: Path) -> None:
    rows = [recording("a.wav", FIRST, 120), recording("b.wav", FIRST + timedelta(hours=1), 120)]
    spans = [ReviewedSpan("card/a.wav", 0, 20.48), ReviewedSpan("card/a.wav", 20.48, 40.96)]
    chunks = [
        chunk for chunk in chunks_of(study_of(tmp_path, rows, spans)) if chunk.recording_id == "card/a.wav"
    ]
    assert [chunk.split for chunk in chunks[:10]] == ["train"] * 7 + ["guard"] * 2 + ["unlabelled"]
    assert {chunk.split for chunk in chunks[9:]} == {"unlabelled"}


@pytest.mark.parametrize("held_out", [{}, {"far": {"sites": ["pond"]}}], ids=["in-domain", "held out"])
def test_chunks_with_an_ignored_sound_or_an_animal_without_frequencies_are_guard(
    tmp_path: Path, held_out: dict[str, Any]
) -> None:
    rows = [recording("a.wav", FIRST), recording("b.wav", FIRST + timedelta(hours=1))]
    boxes = [
        Annotation("card/a.wav", 6, 7, 1000, 2000, kind="ignored"),
        Annotation("card/a.wav", 21, 22),
        Annotation("card/a.wav", 40, 41, kind="noise"),
        Annotation("card/b.wav", 6, 7, kind="ignored"),
    ]
    study = study_of(tmp_path, rows, all_reviewed(rows[:1]), boxes, held_out=held_out)
    splits = {(chunk.recording_id, chunk.index): chunk.split for chunk in chunks_of(study)}
    assert {key for key, split in splits.items() if split == "guard"} == {
        ("card/a.wav", index) for index in (0, 1, 3, 4)
    }, "chunks start every 5.12 s; noise is a negative, and unreviewed chunks stay unlabelled"
    summary = splits_summary(str(tmp_path / SPLITS_TABLE))
    assert summary.remarks == {AMBIGUOUS: 4} and f"4 x {AMBIGUOUS}" in shown(summary, 200)


def test_an_ignored_sound_keeps_its_position_with_time_expansion(tmp_path: Path) -> None:
    rows = [recording("bat.wav", FIRST, 3.0)]
    boxes = [Annotation("card/bat.wav", 1.5, 1.51, 40_000, 60_000, kind="ignored")]
    chunks = chunks_of(study_of(tmp_path, rows, all_reviewed(rows), boxes, time_expansion=10))
    assert [chunk.split for chunk in chunks] == ["train", "guard", "guard", "train", "train"]


def test_held_out_audio_keeps_its_domain_and_is_never_training_audio(tmp_path: Path) -> None:
    rows = [*schedule(10, site="pond"), *schedule(10, site="hill"), *schedule(4, site="lake")]
    reviewed = all_reviewed([*rows[:10], *rows[10:15]])
    held_out = {"site-far": {"sites": ["hill", "lake"]}}
    chunks = chunks_of(study_of(tmp_path, rows, reviewed, held_out=held_out, block_s=60))
    counts = Counter((chunk.site, chunk.split, chunk.domain) for chunk in chunks if chunk.site != "pond")
    assert counts == {
        ("hill", "site-far", "site-far"): 55,
        ("hill", "unlabelled", "site-far"): 55,
        ("lake", "unlabelled", "site-far"): 44,
    }
    assert {chunk.domain for chunk in chunks if chunk.site == "pond"} == {"in-domain"}


def test_a_guard_gap_surrounds_held_out_audio(tmp_path: Path) -> None:
    midnight = datetime(2023, 5, 12)
    rows = [recording(f"{n:02d}.wav", midnight + timedelta(seconds=60 * n), 60) for n in range(-20, 20)]
    held_out = {"new-day": {"dates": ["2023-05-12"]}}
    study = study_of(tmp_path, rows, all_reviewed(rows), held_out=held_out, guard_s=20, block_s=5000)
    counts = Counter((chunk.split, chunk.domain) for chunk in chunks_of(study))
    assert counts == {("train", "in-domain"): 220 - 5, ("guard", "in-domain"): 5, ("new-day", "new-day"): 220}


def test_a_study_can_be_in_a_bucket(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")
    rows = schedule(12)
    write_table(rows, Recording, f"{bucket}/work/recordings.parquet")
    write_table(all_reviewed(rows), ReviewedSpan, f"{bucket}/work/reviewed.parquet")
    study = Study(
        work_dir=f"{bucket}/work", collections={"card": Collection(root="x")}, splits=Splits(block_s=60)
    )
    assert sum(row.recordings for row in split_study(study).rows) == 12


def test_recordings_with_wrong_clocks_match_no_date_and_are_kept(tmp_path: Path) -> None:
    rows = [
        recording("reset.wav", datetime(1970, 1, 1), faults=("clock-reset",), status="suspect"),
        recording("none.wav", None),
        recording("good.wav", FIRST),
    ]
    held_out = {"early": {"to_date": "2023-12-31"}}
    study = study_of(tmp_path, rows, all_reviewed(rows), held_out=held_out, block_s=60)
    chunks = chunks_of(study)
    assert {chunk.recording_id: chunk.domain for chunk in chunks} == {
        "card/reset.wav": "in-domain", "card/none.wav": "in-domain", "card/good.wav": "early"
    }  # fmt: skip
    assert {chunk.start_local for chunk in chunks if chunk.domain == "in-domain"} == {None}
    assert "2 x recording without a trusted clock" in shown(splits_summary(write_splits(study)))


def test_recordings_without_a_clock_are_ordered_by_name(tmp_path: Path) -> None:
    rows = [recording(f"{name}.wav", None, 30 + 10 * number) for number, name in enumerate("fbadce")]
    tables = [
        chunks_of(study_of(tmp_path, order, all_reviewed(order), block_s=40)) for order in (rows, rows[::-1])
    ]
    assert set(tables[0]) == set(tables[1])
    assert set(hours_of(tables[0])) == {*IN_DOMAIN_SPLITS, "guard"}, "guard gaps separate neighbours by name"


def test_unusable_recordings_are_counted(tmp_path: Path) -> None:
    rows = [
        recording("good.wav", FIRST),
        recording("bad.wav", None, status="quarantined"),
        recording("copy.wav", FIRST, duplicate_of="card/good.wav"),
        recording("short.wav", FIRST, 2),
        recording("unknown.wav", FIRST, frames=None),
    ]
    boxes = [Annotation("card/copy.wav", 1, 2, 1000, 2000), Annotation("card/good.wav", 1, 2, 1000, 2000)]
    study = study_of(tmp_path, rows, [ReviewedSpan("card/good.wav")], boxes)
    stray = Study(work_dir=study.work_dir, collections={"other": Collection(root="x")})
    summary = splits_summary(write_splits(study))
    assert summary.excluded == {
        "quarantined": 1, "duplicate of another recording": 1, "too short for a chunk": 1, "of unknown length": 1
    }  # fmt: skip
    assert summary.excluded_boxes == {"box of an excluded recording": 1}
    assert sum(splits_summary(write_splits(stray)).excluded.values()) == 5


def test_time_expansion_gives_more_chunks_and_moves_boxes(tmp_path: Path) -> None:
    rows = [recording("bat.wav", FIRST, 3.0)]
    boxes = [
        Annotation("card/bat.wav", 1.5, 1.51, 40_000, 60_000),
        Annotation("card/bat.wav", 0, 1, 90_000, 95_000),
    ]
    study = study_of(tmp_path, rows, all_reviewed(rows), boxes, time_expansion=10)
    chunks = chunks_of(study)
    assert [chunk.start_s for chunk in chunks] == [0, 5.12, 10.24, 15.36, 20.48]
    assert [chunk.boxes for chunk in chunks] == [0, 1, 1, 0, 0]
    assert chunks[2].start_local == FIRST + timedelta(seconds=1.024)
    assert chunks[2].start_utc == FIRST.replace(tzinfo=UTC) - timedelta(hours=2) + timedelta(seconds=1.024)
    assert splits_summary(write_splits(study)).excluded_boxes == {OUT_OF_BAND: 1}


def test_when_annotations_are_added_the_fractions_and_the_test_set_are_kept(tmp_path: Path) -> None:
    rows = schedule(100)
    first = chunks_of(study_of(tmp_path, rows, all_reviewed(rows[::4]), block_s=60))
    study = study_of(tmp_path, rows, all_reviewed(rows), block_s=60)
    grown = split_study(study)
    counts = {row.split: row.recordings for row in grown.rows}
    assert [counts[split] for split in IN_DOMAIN_SPLITS] == pytest.approx([70, 15, 15], abs=1)
    assert (grown.blocks, grown.kept_blocks) == (100, 25)
    assert "25 of them keep their previous split; a new splits.seed assigns all again" in shown(grown)
    test_set = {chunk.recording_id for chunk in first if chunk.split == "test"}
    assert test_set <= {chunk.recording_id for chunk in chunks_of(study) if chunk.split == "test"}


def test_other_settings_assign_all_blocks_again(tmp_path: Path) -> None:
    rows = schedule(60)
    for settings_ in ({"seed": 1}, {"guard_s": 0}, {"train": 0.5, "test": 0.35}):
        split_study(study_of(tmp_path, rows, all_reviewed(rows[:30]), block_s=60))
        assert split_study(study_of(tmp_path, rows, all_reviewed(rows), **settings_)).kept_blocks == 0


def test_splits_are_kept_after_an_update_added_a_setting_unless_it_is_changed(tmp_path: Path) -> None:
    rows, held_out = schedule(60), {"far": {"sites": ["hill"]}}
    study = study_of(tmp_path, rows, all_reviewed(rows[:30]), block_s=60, held_out=held_out)
    kept = split_study(study).blocks
    table = pq.ParquetFile(tmp_path / SPLITS_TABLE)
    metadata = split_metadata(table)
    del (
        metadata["splits"]["guard_s"],
        metadata["splits"]["held_out"]["far"]["paths"],
    )  # as written by an old version
    older = table.read().replace_schema_metadata({PROVENANCE: json.dumps(metadata)})
    for changed, expected in (({}, kept), ({"guard_s": 5.0}, 0)):
        pq.write_table(older, tmp_path / SPLITS_TABLE)
        grown = study_of(tmp_path, rows, all_reviewed(rows), block_s=60, held_out=held_out, **changed)
        assert split_study(grown).kept_blocks == expected


def test_assigned_spans_use_the_time_expansion_of_their_own_collection(tmp_path: Path) -> None:
    """Use a collection whose name starts with the name of another one."""
    rows = [
        replace(item, recording_id=f"card/bats/{item.path}", collection="card/bats") for item in schedule(20)
    ]
    study = study_of(tmp_path, rows, all_reviewed(rows), block_s=60, time_expansion=10.0)
    collections = {**study.collections, "card": Collection(root="x")}
    write_splits(study.model_copy(update={"collections": collections}))
    assigned = _assigned_spans(study.model_copy(update={"collections": collections}))
    assert len(assigned) and max(item.spans.max() for item in assigned.values()) == pytest.approx(60, abs=11)


def test_a_newly_reviewed_minute_gets_the_split_of_a_neighbour(tmp_path: Path) -> None:
    rows = schedule(21, every_s=70)
    first = chunks_of(study_of(tmp_path, rows, all_reviewed(rows[::2]), block_s=300))
    before = {chunk.recording_id: chunk.split for chunk in first if chunk.split in IN_DOMAIN_SPLITS}
    second = chunks_of(study_of(tmp_path, rows, all_reviewed(rows), block_s=300))
    after = {chunk.recording_id: chunk.split for chunk in second if chunk.split in IN_DOMAIN_SPLITS}
    for left, middle, right in zip(rows[::2], rows[1::2], rows[2::2], strict=False):
        neighbours = {before[left.recording_id], before[right.recording_id]}
        assert after.get(middle.recording_id, "guard") in neighbours | {"guard"}


def test_another_seed_gives_another_assignment_with_the_same_fractions(tmp_path: Path) -> None:
    rows = schedule(60)
    tables = []
    for seed in (0, 0, 1):
        chunks = chunks_of(study_of(tmp_path, rows, all_reviewed(rows), block_s=60, seed=seed))
        tables.append(chunks)
    assert tables[0] == tables[1] != tables[2]
    assert hours_of(tables[0]) == hours_of(tables[2])


# --------------------------------------------------------------------------------- all kinds of timetables


@st.composite
def timetables(draw: st.DrawFn) -> tuple[list[Recording], list[ReviewedSpan], dict[str, Any]]:
    rows, spans = [], []
    for number in range(draw(st.integers(0, 8))):
        start = draw(st.none() | st.integers(0, 4000).map(lambda at: FIRST + timedelta(seconds=at)))
        duration_s = draw(st.sampled_from([2.0, 8.0, 30.0, 60.0, 200.3, 900.0]))
        more = draw(st.sampled_from([{}, {}, {}, {"duplicate_of": "x"}, {"status": "quarantined"}]))
        site = draw(st.sampled_from(["pond", "pond", "hill", None]))
        rows.append(recording(f"{number}.wav", start, duration_s, site=site, **more))
        for _ in range(draw(st.sampled_from([0, 1, 1, 2]))):
            first = draw(st.sampled_from([0.0, 0.0, 10.0, 33.3]))
            length = draw(st.none() | st.sampled_from([5.0, 25.0, 120.0]))
            spans.append(
                ReviewedSpan(f"card/{number}.wav", first, None if length is None else first + length)
            )
    chosen = {
        "block_s": draw(st.sampled_from([15.0, 60.0, 300.0])),
        "guard_s": draw(st.sampled_from([0.0, 1.0, 10.24, 40.0])),
        "seed": draw(st.integers(0, 5)),
        "held_out": draw(
            st.sampled_from([{}, {"far": {"sites": ["hill"]}}, {"even": {"paths": ["[0246].wav"]}}])
        ),
    }
    return rows, spans, chosen


@settings(max_examples=60, deadline=None)
@given(timetables(), st.sampled_from([1.0, 4.0]), st.randoms(use_true_random=False))
def test_no_timetable_leaks_or_loses_anything(timetable: Any, factor: float, shuffled: Any) -> None:
    rows, spans, chosen = timetable
    with tempfile.TemporaryDirectory() as folder:
        study = study_of(Path(folder), rows, spans, time_expansion=factor, **chosen)
        chunks = chunks_of(study)
        summary = splits_summary(str(Path(folder, SPLITS_TABLE)))
    with tempfile.TemporaryDirectory() as folder:
        again = [*rows]
        shuffled.shuffle(again)
        assert set(
            chunks_of(study_of(Path(folder), again, spans[::-1], time_expansion=factor, **chosen))
        ) == set(chunks)
    check_every_chunk_once(rows, chunks, summary, factor)
    check_no_audio_in_two_splits(chunks)
    check_labels_were_reviewed(rows, spans, chunks, factor)
    check_guards(chunks, chosen["guard_s"], factor)


@settings(max_examples=60, deadline=None)
@given(timetables(), st.sampled_from([1.0, 4.0]), st.data())
def test_assigned_chunks_keep_their_split_when_annotations_are_added(
    timetable: Any, factor: float, data: Any
) -> None:
    rows, spans, chosen = timetable
    early = [span for span in spans if data.draw(st.booleans())]
    with tempfile.TemporaryDirectory() as folder:
        before = chunks_of(study_of(Path(folder), rows, early, time_expansion=factor, **chosen))
        after = chunks_of(study_of(Path(folder), rows, spans, time_expansion=factor, **chosen))
        summary = splits_summary(str(Path(folder, SPLITS_TABLE)))
    held_out = {chunk.domain for chunk in after if chunk.split == chunk.domain}
    for old, new in zip(before, after, strict=True):
        if old.split in IN_DOMAIN_SPLITS:
            assert new.split == old.split or (new.split == "guard" and held_out)
    check_every_chunk_once(rows, after, summary, factor)
    check_no_audio_in_two_splits(after)
    check_labels_were_reviewed(rows, spans, after, factor)
    check_guards(after, chosen["guard_s"], factor)


def check_every_chunk_once(
    rows: list[Recording], chunks: list[SplitChunk], summary: SplitsSummary, factor: float
) -> None:
    starts: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for chunk in chunks:
        starts[chunk.recording_id].append((round(chunk.start_s * 16_000), round(chunk.audio_s * 16_000)))
    for row in rows:
        usable = row.status == "ok" and row.duplicate_of is None
        samples = resampled_length(row.frames or 0, RATE_HZ, 16_000, factor)
        assert starts[row.recording_id] == (list(chunk_offsets(samples, Chunking())) if usable else [])
    lost = sum(not starts[row.recording_id] for row in rows)
    assert sum(summary.excluded.values()) == lost


def check_no_audio_in_two_splits(chunks: list[SplitChunk]) -> None:
    splits: dict[tuple[str, int], set[str]] = defaultdict(set)
    step = 0.16  # divides hop and chunk, so that all audio is checked
    for chunk in chunks:
        if chunk.split != "guard":
            for moment in range(round(chunk.start_s / step), int((chunk.start_s + chunk.audio_s) / step)):
                splits[chunk.recording_id, moment].add(chunk.split)
    assert all(len(names) == 1 for names in splits.values())


def check_labels_were_reviewed(
    rows: list[Recording], spans: list[ReviewedSpan], chunks: list[SplitChunk], factor: float
) -> None:
    length = {row.recording_id: row.duration_s for row in rows}
    for chunk in chunks:
        if chunk.split in ("guard", "unlabelled"):
            continue
        for moment in np.linspace(chunk.start_s / factor, (chunk.start_s + chunk.audio_s) / factor, 9):
            assert any(
                span.recording_id == chunk.recording_id
                and span.start_s - EDGE_S <= moment + 1e-6
                and moment - 1e-6
                <= (length[span.recording_id] if span.end_s is None else span.end_s + EDGE_S)
                for span in spans
            )


def check_guards(chunks: list[SplitChunk], guard_s: float, factor: float) -> None:
    for site in {chunk.site for chunk in chunks}:
        timed = [
            (chunk.start_local, chunk.start_local + timedelta(seconds=chunk.audio_s / factor), chunk.split)
            for chunk in chunks
            if chunk.site == site and chunk.split not in ("guard", "unlabelled") and chunk.start_local
        ]
        latest: dict[str, datetime] = {}
        for start, end, split in sorted(timed):
            for other, until in latest.items():
                exempt = other == split or not {other, split}.intersection(IN_DOMAIN_SPLITS)
                assert exempt or (start - until).total_seconds() >= guard_s - 1e-4
            latest[split] = max(end, latest.get(split, end))


# ------------------------------------------------------------------------------------------------ summary


def shown(summary: SplitsSummary, width: int = 80) -> str:
    from rich.console import Console

    console = Console(width=width, file=io.StringIO())
    with console.capture() as capture:
        console.print(render(summary))
    return capture.get()


def test_the_summary_is_the_papers_table(tmp_path: Path) -> None:
    rows = [*schedule(20), *schedule(5, site="hill")]
    boxes = [Annotation(row.recording_id, 1, 2, 1000, 2000) for row in rows[::2]]
    boxes.append(Annotation(rows[0].recording_id, 3, 4, kind="noise"))
    boxes.append(Annotation(rows[0].recording_id, 3, 4))
    study = study_of(tmp_path, rows, all_reviewed(rows[:23]), boxes, held_out={"far": {"sites": ["hill"]}})
    summary = split_study(study)
    far, guard, unlabelled = summary.rows[-3:]
    assert [row.split for row in summary.rows] == ["train", "val", "far", "guard", "unlabelled"]
    assert guard.chunks == 1, "the chunk of the box without frequencies"
    assert (far.chunks, far.boxes, far.chunks_with_boxes, far.recordings, far.sites) == (33, 2, 2, 3, 1)
    assert far.hours == pytest.approx(3 / 60)
    assert (unlabelled.domain, unlabelled.chunks, unlabelled.hours) == ("far", 22, pytest.approx(2 / 60))
    text = shown(summary)
    assert "unlabelled, far" in text
    assert "Too few blocks for three splits" in text
    assert "1 x box without frequencies" in text
    assert (tmp_path / CALENDAR).read_bytes().startswith(b"\x89PNG")
    assert max(map(len, text.splitlines())) <= 80


def test_recordings_are_processed_in_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mast.datasets.split_table.CHUNKS_AT_ONCE", 1000)
    monkeypatch.setattr("mast.datasets.split_table.RECORDINGS_AT_ONCE", 64)
    rows = schedule(500)
    study = study_of(tmp_path, rows, all_reviewed(rows[:50]))
    table = pq.ParquetFile(write_splits(study))
    assert table.metadata.num_rows == 5500
    assert table.metadata.num_row_groups == 6
    assert len(set(zip(*table.read(["recording_id", "index"]).to_pydict().values(), strict=True))) == 5500


# ---------------------------------------------------------------------------------------- real recordings


def real_data() -> Path:
    location = os.environ.get("MAST_DATA")
    if not location:
        pytest.skip("set MAST_DATA to the folder of the real recordings")
    return Path(location)


REAL = {
    "birdeep-am1": (
        "A_birdeep",
        {
            "collections.am1.root": "birdeep-am1/audio",
            "annotations.0.path": "birdeep-am1/annotations.csv",
            "annotations.1.path": "birdeep-am1/no_bird_markers.csv",
        },
    ),
    "boobook": (
        "B_boobook",
        {
            "collections.qut.root": "qut-boobook/audio",
            "annotations.0.path": "qut-boobook/annotations.csv",
        },
    ),
    "bats": (
        "C_bats",
        {
            "collections.bats.root": "whombat-bats/audio",
            "annotations.0.path": "original-tables/aoef-whombat/example_annotation_project.json",
        },
    ),
}


def scanned(study: Study) -> Study:
    """Write the tables of `mast scan study.yaml`; return the study."""
    table = str(Path(study.work_dir, "recordings.parquet"))
    scan(study.collections, table)
    study_annotations = read_study_annotations(study, read_column(table, "recording_id"))
    assert not study_annotations.unmatched
    write_table(study_annotations.annotations, Annotation, str(Path(study.work_dir, "annotations.parquet")))
    write_table(study_annotations.reviewed, ReviewedSpan, str(Path(study.work_dir, "reviewed.parquet")))
    return study


@pytest.mark.parametrize("name", REAL)
def test_the_study_files_give_the_suggested_roles(name: str, tmp_path: Path) -> None:
    data = real_data()
    benchmark, locations = REAL[name]
    changes = [f"{key}={data / location}" for key, location in locations.items()] + [f"work_dir={tmp_path}"]
    if name == "boobook":
        with (data / "qut-boobook" / "recordings.csv").open(encoding="utf-8") as file:
            clips = [row["recording"] for row in csv.DictReader(file)]
        (tmp_path / "reviewed.csv").write_text(
            "recording,start_s,end_s\n" + "".join(f"{clip},,\n" for clip in clips)
        )
        changes.append(f"annotations.1.path={tmp_path / 'reviewed.csv'}")
    chunks = chunks_of(scanned(load_study(ROOT / "configs" / f"{name}.yaml", changes)))
    splits: dict[str, set[str]] = defaultdict(set)
    domains: dict[str, str] = {}
    for chunk in chunks:
        file_name = chunk.recording_id.rpartition("/")[2]
        splits[file_name].add(chunk.split)
        domains[file_name] = chunk.domain
    with (data / "SUGGESTED_SPLITS.csv").open(encoding="utf-8") as file:
        roles = {
            Path(row["file"]).name: row["role"]
            for row in csv.DictReader(file)
            if row["benchmark"] == benchmark
        }
    assert set(roles) == set(domains)
    for file_name, role in roles.items():
        if role == "labelled":
            assert domains[file_name] == "in-domain"
            assert splits[file_name] <= {*IN_DOMAIN_SPLITS, "guard", "unlabelled"}
        else:
            assert domains[file_name] == role
            assert role in splits[file_name] <= {role, "guard", "unlabelled"}
    assert set().union(*splits.values()) >= {*IN_DOMAIN_SPLITS, *set(roles.values()) - {"labelled"}}


@pytest.mark.parametrize("path", sorted((ROOT / "configs").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_study_file_is_complete_and_has_no_absolute_path(path: Path) -> None:
    study = load_study(path)
    assert study.collections
    assert study.annotations
    assert study.splits.held_out
    assert "/home" not in path.read_text("utf-8")
    assert " /" not in path.read_text("utf-8")
