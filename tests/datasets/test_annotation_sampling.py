"""Annotation sampling: balanced over hours, never from test sets, and imported without loss."""

from __future__ import annotations

import zlib
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from mast.annotations import Annotations, audacity, raven, read_annotations, write_annotations
from mast.config import Collection, Splits, Study
from mast.datasets.annotation_sampling import (
    BOXES,
    INDEX,
    PENDING,
    STRATEGIES,
    Span,
    import_annotations,
    parse_strategy,
    read_annotated_spans,
    sample_spans,
    sample_study,
    span_names,
    unlabelled_spans,
    write_annotation_files,
)
from mast.datasets.split_table import write_splits
from mast.errors import AnnotationError, ConfigError, StorageError
from mast.recordings.scan import scan
from mast.records import Event, Recording, ReviewedSpan, write_table

FIRST = datetime(2024, 5, 10)


def spans_of(sites: int = 3, days: int = 4, every_min: int = 30) -> list[Span]:
    return [
        Span(f"card/S{site}/{start:%d_%H%M}.wav", 0.0, 60.0, f"S{site}", start)
        for site in range(sites)
        for start in (FIRST + timedelta(minutes=step) for step in range(0, days * 1440, every_min))
    ]


def hour_counts(spans: tuple[Span, ...]) -> Counter[int]:
    return Counter(span.start_local.hour for span in spans if span.start_local)


# ----------------------------------------------------------------------------------------------- sampling


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_no_candidates_give_no_spans(strategy: str) -> None:
    assert sample_spans([], 2, strategy) == ()  # type: ignore[arg-type]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_sample_has_the_requested_hours_and_no_repetition(strategy: str) -> None:
    chosen = sample_spans(spans_of(), 2, strategy)  # type: ignore[arg-type]
    assert len(chosen) == len(set(chosen)) == 120
    assert len(sample_spans(spans_of(), 0.001, strategy)) == 1  # type: ignore[arg-type]
    assert set(sample_spans(spans_of(1, 1), 99, strategy)) == set(spans_of(1, 1))  # type: ignore[arg-type]


def test_sequential_samples_the_first_by_the_clock() -> None:
    chosen = sample_spans([*spans_of(), Span("card/none.wav", 0, 60)], 0.2, "sequential")
    assert {span.start_local.hour for span in chosen if span.start_local} == {0, 1}


def test_time_balanced_samples_every_hour_and_every_site_equally() -> None:
    chosen = sample_spans(spans_of(), 2, "time-balanced")
    assert set(hour_counts(chosen).values()) == {5}
    assert set(Counter(span.site for span in chosen).values()) == {40}


def test_time_balanced_covers_more_hours_of_the_day_than_the_others() -> None:
    hours = {name: len(hour_counts(sample_spans(spans_of(), 0.4, name, seed=1))) for name in STRATEGIES}  # type: ignore[arg-type]
    assert hours["time-balanced"] == 24
    assert hours["time-balanced"] > hours["random"] > hours["sequential"]


def test_time_balanced_continues_if_an_hour_is_exhausted_or_a_clock_is_unknown() -> None:
    spans = [*spans_of(2, 1), *(Span(f"card/{n}.wav", 0, 60) for n in range(60))]
    chosen = sample_spans(spans, 1.5, "time-balanced")
    assert len(chosen) == 90
    assert len(hour_counts(chosen)) == 24
    assert sum(span.start_local is None for span in chosen) in range(3, 20)


@settings(deadline=None, max_examples=30)
@given(st.sampled_from(sorted(STRATEGIES)), st.integers(0, 9), st.randoms(use_true_random=False))
def test_a_sample_depends_only_on_its_seed(strategy: str, seed: int, shuffled: object) -> None:
    spans = spans_of(2, 1)
    again = [*spans]
    shuffled.shuffle(again)  # type: ignore[attr-defined]
    assert sample_spans(spans, 0.3, strategy, seed) == sample_spans(again, 0.3, strategy, seed)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------ whole studies


def tone(path: Path, seconds: float = 150.0, rate_hz: int = 8000) -> None:
    """Write audio with distinguishable seconds: second n has the level n / 200 plus a small offset of the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    level = np.floor(np.arange(round(seconds * rate_hz)) / rate_hz) / 200
    level += (zlib.crc32(path.name.encode()) % 64) / 64_000
    soundfile.write(path, level, rate_hz, subtype="PCM_16")


@pytest.fixture
def study(tmp_path: Path) -> Study:
    """Two sites and a held-out one; 80 s of the first recording are reviewed, and all of the last."""
    for site in ("A", "B", "C"):
        for hour in (5, 12, 21):
            tone(tmp_path / "card" / site / f"{site}_20240510_{hour:02d}0000.wav")
    work = tmp_path / "work"
    study = Study(
        work_dir=str(work),
        collections={"card": Collection(root=str(tmp_path / "card"), time_zone="Europe/Madrid")},
        splits=Splits(held_out={"far": {"sites": ["C"]}}),  # type: ignore[dict-item]
    )
    scan(study.collections, str(work / "recordings.parquet"))
    reviewed = [
        ReviewedSpan("card/A/A_20240510_050000.wav", 0, 80),
        ReviewedSpan("card/B/B_20240510_210000.wav"),
    ]
    write_table(reviewed, ReviewedSpan, str(work / "reviewed.parquet"))
    write_splits(study)
    return study


def test_only_unlabelled_audio_outside_test_sets_is_sampled(study: Study) -> None:
    spans = unlabelled_spans(study)
    assert {span.site for span in spans} == {"A", "B"}
    assert not any("B_20240510_21" in span.recording_id for span in spans)
    first = [span for span in spans if "A_20240510_05" in span.recording_id]
    assert all(span.start_s >= 80 for span in first)
    assert [(span.start_s, span.end_s) for span in spans if "A_20240510_12" in span.recording_id] == [
        (0, 60), (60, 120), (120, 150)
    ]  # fmt: skip
    assert {span.start_local for span in spans if "A_20240510_12" in span.recording_id} == {
        datetime(2024, 5, 10, 12, minute) for minute in (0, 1, 2)
    }


def test_extracted_files_can_be_opened_in_raven_and_audacity(study: Study, tmp_path: Path) -> None:
    batch = sample_study(study, 0.1, folder=str(tmp_path / "sample"))
    assert sum(span.duration_s for span in batch.spans) <= 360
    assert f"Extracted: {len(batch.spans)} x up to 60 s" in batch.summary()
    names = span_names(batch.spans)
    for name, span in names.items():
        sound, rate_hz = soundfile.read(tmp_path / "sample" / f"{name}.wav")
        assert rate_hz == 8000
        assert len(sound) == round(span.duration_s * 8000)
        assert sound[0] == pytest.approx(np.floor(span.start_s) / 200, abs=0.002)
        assert soundfile.info(tmp_path / "sample" / f"{name}.wav").subtype == "PCM_16"
        table = tmp_path / "sample" / f"{name}{raven.ENDING}"
        assert raven.sniff(table.read_text("utf-8"))
        assert raven.read(table).reviewed[0].recording_id == name
        assert audacity.read(tmp_path / "sample" / f"{name}.txt").events == ()
    index = (tmp_path / "sample" / INDEX).read_text("utf-8")
    assert all(span.recording_id in index for span in batch.spans)
    assert "yes" in (tmp_path / "sample" / "README.md").read_text("utf-8")


def test_time_expanded_audio_is_extracted_in_real_time(tmp_path: Path) -> None:
    tone(tmp_path / "bats" / "x_20240510_220000.wav", 12)
    study = Study(
        work_dir=str(tmp_path / "work"),
        collections={"bats": Collection(root=str(tmp_path / "bats"), time_expansion=10)},
    )
    scan(study.collections, str(tmp_path / "work" / "recordings.parquet"))
    write_splits(study)
    (span,) = sample_study(study, 1).spans
    assert (span.start_s, span.end_s) == (0, 12)
    (extracted,) = (tmp_path / "work" / "sample-time-balanced-1h").glob("*.wav")
    assert soundfile.info(extracted).duration == 12


def test_invalid_arguments_are_refused(study: Study, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--hours 0: use a number above 0"):
        sample_study(study, 0)
    with pytest.raises(ConfigError, match="--strategy best: use time-balanced, random, sequential"):
        parse_strategy("best")
    assert parse_strategy("random") == "random"
    batch = sample_study(study, 9, folder=str(tmp_path / "b"))
    assert "That is all unlabelled audio; --hours requested 9 hours." in batch.summary()
    with pytest.raises(StorageError, match="is not empty and may contain annotations"):
        sample_study(study, 9, folder=str(tmp_path / "b"))
    with pytest.raises(AnnotationError, match="Use a folder that mast sample wrote"):
        read_annotated_spans(tmp_path)


def test_a_fully_labelled_study_has_nothing_to_sample(study: Study) -> None:
    rows = [
        ReviewedSpan(f"card/{site}/{site}_20240510_{hour}0000.wav")
        for site in "AB"
        for hour in ("05", "12", "21")
    ]
    write_table(rows, ReviewedSpan, str(Path(study.work_dir, "reviewed.parquet")))
    write_splits(study)
    with pytest.raises(StorageError, match="no unlabelled audio"):
        sample_study(study, 1)


def test_sampling_requires_a_table_of_splits(tmp_path: Path) -> None:
    write_table([], Recording, str(tmp_path / "recordings.parquet"))
    with pytest.raises(StorageError, match="Make it with mast split"):
        sample_study(Study(work_dir=str(tmp_path)), 1)


def test_a_missing_recording_is_reported_and_the_others_are_extracted(study: Study, tmp_path: Path) -> None:
    (tmp_path / "card" / "A" / "A_20240510_120000.wav").unlink()
    batch = sample_study(study, 9, folder=str(tmp_path / "b"))
    assert len(batch.unreadable) == 3
    assert "not extracted: " in batch.summary()
    assert "A_20240510_12" not in (tmp_path / "b" / INDEX).read_text("utf-8")


def test_file_names_are_plain_and_unique() -> None:
    spans = [
        Span("card/a b/x.wav", 0.2, 60), Span("card/a_b/x.WAV", 0.4, 60), Span("card/../é?.flac", 61, 70)
    ]  # fmt: skip
    assert list(span_names(spans)) == ["card_a_b_x_00000s", "card_a_b_x_00000s-2", "card_.._é_00061s"]


# ------------------------------------------------------------------------------------------------- import


def extracted_files(folder: Path) -> list[str]:
    return sorted(path.stem for path in folder.glob("*.wav"))


def mark_reviewed(folder: Path, name: str, answer: str) -> None:
    """Write an answer into the column `reviewed` of a file's row."""
    lines = (folder / INDEX).read_text("utf-8").splitlines()
    lines = [line + answer if line.startswith(f"{name}.wav") else line for line in lines]
    (folder / INDEX).write_text("\n".join(lines) + "\n", "utf-8")


def test_annotations_are_imported_to_their_recordings(study: Study, tmp_path: Path) -> None:
    folder = tmp_path / "sample"
    batch = sample_study(study, 0.1, folder=str(folder))
    spans = span_names(batch.spans)
    in_raven, in_audacity, silent, unreviewed, *_ = extracted_files(folder)
    box = Event(f"{in_raven}.wav", 1.5, 2.25, 1000, 2000, label="frog")
    write_annotations(Annotations((box,)), folder / f"{in_raven}{raven.ENDING}", "raven")
    (folder / f"{in_audacity}.txt").write_text("3,5\t4\towl\n\\\t500\t900\n", "utf-8")
    (folder / f"{unreviewed}.txt").write_text("1\t2\t?\n", "utf-8")
    mark_reviewed(folder, silent, "Yes")
    mark_reviewed(folder, unreviewed, "no")
    imported = read_annotated_spans(folder)
    start_s = {name: span.start_s for name, span in spans.items()}
    assert {
        (event.recording_id, event.start_s, event.end_s, event.low_hz, event.label)
        for event in imported.events
    } == {
        (spans[in_raven].recording_id, start_s[in_raven] + 1.5, start_s[in_raven] + 2.25, 1000, "frog"),
        (spans[in_audacity].recording_id, start_s[in_audacity] + 3.5, start_s[in_audacity] + 4, 500, "owl"),
        (spans[unreviewed].recording_id, start_s[unreviewed] + 1, start_s[unreviewed] + 2, None, "?"),
    }
    assert set(imported.reviewed) == {
        ReviewedSpan(span.recording_id, span.start_s, span.end_s)
        for span in (spans[in_raven], spans[in_audacity], spans[silent])
    }
    assert imported.problems == {PENDING: len(spans) - 3}


def test_imported_boxes_are_a_table_that_a_study_can_read(study: Study, tmp_path: Path) -> None:
    folder = tmp_path / "sample"
    sample_study(study, 0.1, folder=str(folder))
    name, silent, *others = extracted_files(folder)
    (folder / f"{name}.txt").write_text("3.5\t4\towl\n\\\t500\t900\n", "utf-8")
    mark_reviewed(folder, silent, "yes")
    text = import_annotations(folder)
    assert f"1 boxes, 2 spans reviewed → {folder / BOXES}" in text
    assert f"{len(others)} x {PENDING}" in text
    imported = read_annotated_spans(folder)
    table = read_annotations(folder / BOXES, "csv")
    assert table.events == imported.events
    assert set(table.reviewed) == set(imported.reviewed)


def test_reviewed_spans_are_not_sampled_again(study: Study, tmp_path: Path) -> None:
    folder = tmp_path / "sample"
    first = sample_study(study, 0.05, folder=str(folder))
    for name in extracted_files(folder):
        mark_reviewed(folder, name, "yes")
    before = [
        ReviewedSpan("card/A/A_20240510_050000.wav", 0, 80),
        ReviewedSpan("card/B/B_20240510_210000.wav"),
    ]
    write_table(
        [*before, *read_annotated_spans(folder).reviewed],
        ReviewedSpan,
        str(Path(study.work_dir, "reviewed.parquet")),
    )
    write_splits(study)
    for span in unlabelled_spans(study):
        for done in first.spans:
            apart = span.end_s <= done.start_s or span.start_s >= done.end_s
            assert span.recording_id != done.recording_id or apart


def test_a_folder_without_spans_is_written_and_read(tmp_path: Path) -> None:
    assert write_annotation_files([], tmp_path / "b", {}) == ((), ())
    assert read_annotated_spans(tmp_path / "b").events == ()
