"""What to label next: fair to all hours, blind to test sets, and never lost on the way home."""

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
from mast.datasets.budget import (
    BOXES,
    INDEX,
    PENDING,
    STRATEGIES,
    Span,
    budget_study,
    collect_budget,
    collect_study,
    propose,
    span_names,
    strategy_named,
    unlabelled_spans,
    write_budget,
)
from mast.datasets.split_table import write_splits
from mast.errors import AnnotationError, ConfigError, StorageError
from mast.events import Event, Recording, Reviewed, write_table
from mast.recordings.scan import scan

FIRST = datetime(2024, 5, 10)


def spans_of(sites: int = 3, days: int = 4, every_min: int = 30) -> list[Span]:
    return [
        Span(f"card/S{site}/{start:%d_%H%M}.wav", 0.0, 60.0, f"S{site}", start)
        for site in range(sites)
        for start in (FIRST + timedelta(minutes=step) for step in range(0, days * 1440, every_min))
    ]


def hours_met(spans: tuple[Span, ...]) -> Counter[int]:
    return Counter(span.start_local.hour for span in spans if span.start_local)


# ---------------------------------------------------------------------------------------------- proposing


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_nothing_is_proposed_of_nothing(strategy: str) -> None:
    assert propose([], 2, strategy) == ()  # type: ignore[arg-type]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_proposal_keeps_to_its_hours_and_repeats_nothing(strategy: str) -> None:
    chosen = propose(spans_of(), 2, strategy)  # type: ignore[arg-type]
    assert len(chosen) == len(set(chosen)) == 120
    assert len(propose(spans_of(), 0.001, strategy)) == 1  # type: ignore[arg-type]
    assert set(propose(spans_of(1, 1), 99, strategy)) == set(spans_of(1, 1))  # type: ignore[arg-type]


def test_sequential_takes_the_first_by_the_clock() -> None:
    chosen = propose([*spans_of(), Span("card/none.wav", 0, 60)], 0.2, "sequential")
    assert {span.start_local.hour for span in chosen if span.start_local} == {0, 1}


def test_time_balanced_meets_every_hour_and_every_site_alike() -> None:
    chosen = propose(spans_of(), 2, "time-balanced")
    assert set(hours_met(chosen).values()) == {5}
    assert set(Counter(span.site for span in chosen).values()) == {40}


def test_time_balanced_beats_the_others_in_hours_met() -> None:
    met = {name: len(hours_met(propose(spans_of(), 0.4, name, seed=1))) for name in STRATEGIES}  # type: ignore[arg-type]
    assert met["time-balanced"] == 24
    assert met["time-balanced"] > met["random"] > met["sequential"]


def test_time_balanced_goes_on_where_hours_run_out_and_clocks_are_unknown() -> None:
    spans = [*spans_of(2, 1), *(Span(f"card/{n}.wav", 0, 60) for n in range(60))]
    chosen = propose(spans, 1.5, "time-balanced")
    assert len(chosen) == 90
    assert len(hours_met(chosen)) == 24
    assert sum(span.start_local is None for span in chosen) in range(3, 20)


@settings(deadline=None, max_examples=30)
@given(st.sampled_from(sorted(STRATEGIES)), st.integers(0, 9), st.randoms(use_true_random=False))
def test_a_proposal_follows_from_its_seed_alone(strategy: str, seed: int, shuffled: object) -> None:
    spans = spans_of(2, 1)
    again = [*spans]
    shuffled.shuffle(again)  # type: ignore[attr-defined]
    assert propose(spans, 0.3, strategy, seed) == propose(again, 0.3, strategy, seed)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------ whole studies


def tone(path: Path, seconds: float = 150.0, rate_hz: int = 8000) -> None:
    """A sound whose every second can be told apart: second n has the level n / 200, and a little of its own."""
    path.parent.mkdir(parents=True, exist_ok=True)
    level = np.floor(np.arange(round(seconds * rate_hz)) / rate_hz) / 200
    level += (zlib.crc32(path.name.encode()) % 64) / 64_000
    soundfile.write(path, level, rate_hz, subtype="PCM_16")


@pytest.fixture
def study(tmp_path: Path) -> Study:
    """Two sites and a held-out one; of the first recording two minutes are reviewed, of the last nothing is left."""
    for site in ("A", "B", "C"):
        for hour in (5, 12, 21):
            tone(tmp_path / "card" / site / f"{site}_20240510_{hour:02d}0000.wav")
    work = tmp_path / "work"
    study = Study(
        work=str(work),
        collections={"card": Collection(root=str(tmp_path / "card"), time_zone="Europe/Madrid")},
        splits=Splits(held_out={"far": {"sites": ["C"]}}),  # type: ignore[dict-item]
    )
    scan(study.collections, str(work / "recordings.parquet"))
    reviewed = [Reviewed("card/A/A_20240510_050000.wav", 0, 80), Reviewed("card/B/B_20240510_210000.wav")]
    write_table(reviewed, Reviewed, str(work / "reviewed.parquet"))
    write_splits(study)
    return study


def test_only_unlabelled_sound_outside_test_sets_is_offered(study: Study) -> None:
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


def test_a_budget_can_be_opened_in_raven_and_audacity(study: Study, tmp_path: Path) -> None:
    budget = budget_study(study, 0.1, folder=str(tmp_path / "budget"))
    assert sum(span.duration_s for span in budget.spans) <= 360
    assert f"Cut out: {len(budget.spans)} x up to 60 s" in budget.summary()
    names = span_names(budget.spans)
    for name, span in names.items():
        sound, rate_hz = soundfile.read(tmp_path / "budget" / f"{name}.wav")
        assert rate_hz == 8000
        assert len(sound) == round(span.duration_s * 8000)
        assert sound[0] == pytest.approx(np.floor(span.start_s) / 200, abs=0.002)
        assert soundfile.info(tmp_path / "budget" / f"{name}.wav").subtype == "PCM_16"
        table = tmp_path / "budget" / f"{name}{raven.ENDING}"
        assert raven.fits(table.read_text("utf-8"))
        assert raven.read(table).reviewed[0].recording_id == name
        assert audacity.read(tmp_path / "budget" / f"{name}.txt").events == ()
    index = (tmp_path / "budget" / INDEX).read_text("utf-8")
    assert all(span.recording_id in index for span in budget.spans)
    assert "yes" in (tmp_path / "budget" / "README.md").read_text("utf-8")


def test_time_expanded_sound_is_cut_in_its_own_time(tmp_path: Path) -> None:
    tone(tmp_path / "bats" / "x_20240510_220000.wav", 12)
    study = Study(
        work=str(tmp_path / "work"),
        collections={"bats": Collection(root=str(tmp_path / "bats"), time_expansion=10)},
    )
    scan(study.collections, str(tmp_path / "work" / "recordings.parquet"))
    write_splits(study)
    (span,) = budget_study(study, 1).spans
    assert (span.start_s, span.end_s) == (0, 12)
    (cut,) = (tmp_path / "work" / "budget-time-balanced-1h").glob("*.wav")
    assert soundfile.info(cut).duration == 12


def test_wrong_wishes_are_told(study: Study, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--hours 0: give more"):
        budget_study(study, 0)
    with pytest.raises(ConfigError, match="there is time-balanced, random, sequential"):
        strategy_named("best")
    assert strategy_named("random") == "random"
    budget = budget_study(study, 9, folder=str(tmp_path / "b"))
    assert "all the unlabelled sound there is, though 9 hours" in budget.summary()
    with pytest.raises(StorageError, match="not empty; labels may be in it"):
        budget_study(study, 9, folder=str(tmp_path / "b"))
    with pytest.raises(AnnotationError, match="Name a folder that mast budget has made"):
        collect_budget(tmp_path)


def test_a_study_that_is_all_labelled_has_no_budget(study: Study) -> None:
    rows = [
        Reviewed(f"card/{site}/{site}_20240510_{hour}0000.wav")
        for site in "AB"
        for hour in ("05", "12", "21")
    ]
    write_table(rows, Reviewed, str(Path(study.work, "reviewed.parquet")))
    write_splits(study)
    with pytest.raises(StorageError, match="no unlabelled sound"):
        budget_study(study, 1)


def test_a_table_of_splits_comes_first(tmp_path: Path) -> None:
    write_table([], Recording, str(tmp_path / "recordings.parquet"))
    with pytest.raises(StorageError, match="Make it with mast splits"):
        budget_study(Study(work=str(tmp_path)), 1)


def test_a_recording_that_is_gone_is_told_and_the_rest_is_cut(study: Study, tmp_path: Path) -> None:
    (tmp_path / "card" / "A" / "A_20240510_120000.wav").unlink()
    budget = budget_study(study, 9, folder=str(tmp_path / "b"))
    assert len(budget.unreadable) == 3
    assert "not cut: " in budget.summary()
    assert "A_20240510_12" not in (tmp_path / "b" / INDEX).read_text("utf-8")


def test_names_are_plain_and_no_two_alike() -> None:
    spans = [
        Span("card/a b/x.wav", 0.2, 60), Span("card/a_b/x.WAV", 0.4, 60), Span("card/../é?.flac", 61, 70)
    ]  # fmt: skip
    assert list(span_names(spans)) == ["card_a_b_x_00000s", "card_a_b_x_00000s-2", "card_.._é_00061s"]


# -------------------------------------------------------------------------------------------- bringing home


def cut_files(folder: Path) -> list[str]:
    return sorted(path.stem for path in folder.glob("*.wav"))


def say(folder: Path, name: str, word: str) -> None:
    """Fill in the column `reviewed`, as a spreadsheet in Europe would save it."""
    lines = (folder / INDEX).read_text("utf-8").splitlines()
    lines = [line + word if line.startswith(f"{name}.wav") else line for line in lines]
    (folder / INDEX).write_text("\n".join(lines) + "\n", "utf-8")


def test_labels_come_home_to_their_recordings(study: Study, tmp_path: Path) -> None:
    folder = tmp_path / "budget"
    budget = budget_study(study, 0.1, folder=str(folder))
    spans = span_names(budget.spans)
    in_raven, in_audacity, silent, doubtful, *_ = cut_files(folder)
    box = Event(f"{in_raven}.wav", 1.5, 2.25, 1000, 2000, label="frog")
    write_annotations(Annotations((box,)), folder / f"{in_raven}{raven.ENDING}", "raven")
    (folder / f"{in_audacity}.txt").write_text("3,5\t4\towl\n\\\t500\t900\n", "utf-8")
    (folder / f"{doubtful}.txt").write_text("1\t2\t?\n", "utf-8")
    say(folder, silent, "Yes")
    say(folder, doubtful, "no")
    found = collect_budget(folder)
    at = {name: span.start_s for name, span in spans.items()}
    assert {
        (event.recording_id, event.start_s, event.end_s, event.low_hz, event.label) for event in found.events
    } == {
        (spans[in_raven].recording_id, at[in_raven] + 1.5, at[in_raven] + 2.25, 1000, "frog"),
        (spans[in_audacity].recording_id, at[in_audacity] + 3.5, at[in_audacity] + 4, 500, "owl"),
        (spans[doubtful].recording_id, at[doubtful] + 1, at[doubtful] + 2, None, "?"),
    }
    assert set(found.reviewed) == {
        Reviewed(span.recording_id, span.start_s, span.end_s)
        for span in (spans[in_raven], spans[in_audacity], spans[silent])
    }
    assert found.problems == {PENDING: len(spans) - 3}


def test_collected_boxes_are_a_table_that_a_study_can_name(study: Study, tmp_path: Path) -> None:
    folder = tmp_path / "budget"
    budget_study(study, 0.1, folder=str(folder))
    name, silent, *others = cut_files(folder)
    (folder / f"{name}.txt").write_text("3.5\t4\towl\n\\\t500\t900\n", "utf-8")
    say(folder, silent, "yes")
    text = collect_study(folder)
    assert f"1 boxes, 2 spans reviewed → {folder / BOXES}" in text
    assert f"{len(others)} x {PENDING}" in text
    collected = collect_budget(folder)
    again = read_annotations(folder / BOXES, "csv")
    assert again.events == collected.events
    assert set(again.reviewed) == set(collected.reviewed)


def test_a_labelled_budget_is_not_proposed_again(study: Study, tmp_path: Path) -> None:
    folder = tmp_path / "budget"
    first = budget_study(study, 0.05, folder=str(folder))
    for name in cut_files(folder):
        say(folder, name, "yes")
    before = [Reviewed("card/A/A_20240510_050000.wav", 0, 80), Reviewed("card/B/B_20240510_210000.wav")]
    write_table(
        [*before, *collect_budget(folder).reviewed], Reviewed, str(Path(study.work, "reviewed.parquet"))
    )
    write_splits(study)
    for span in unlabelled_spans(study):
        for done in first.spans:
            apart = span.end_s <= done.start_s or span.start_s >= done.end_s
            assert span.recording_id != done.recording_id or apart


def test_a_folder_without_spans_is_written_all_the_same(tmp_path: Path) -> None:
    assert write_budget([], tmp_path / "b", {}) == ((), ())
    assert collect_budget(tmp_path / "b").events == ()
