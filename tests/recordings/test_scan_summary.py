from __future__ import annotations

import io
import json
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from mast.errors import StorageError
from mast.recordings.faults import FAULTS, worst_status
from mast.recordings.scan import PROVENANCE
from mast.recordings.scan_summary import MAX_SITES, NO_SITE, Summary, _bytes, _span, render, summarise
from mast.records import Recording, arrow_schema, to_table

FIRST = datetime(2023, 5, 10, 6)


def recording(path: str, start: datetime | None, site: str | None = "pond", **values: Any) -> Recording:
    faults = values.pop("faults", ())
    defaults = {"duration_s": 60.0, "sample_rate_hz": 48_000, "frames": 60 * 48_000}
    return Recording(
        recording_id=f"card/{path}",
        collection="card",
        path=path,
        size_bytes=1_000_000,
        modified_utc=datetime(2023, 6, 1, tzinfo=UTC),
        status=worst_status(faults),
        faults=faults,
        site=site,
        start_local=start,
        **{**defaults, **values},
    )


def summary_of(folder: Path, records: list[Recording], ignored: dict[str, int] | None = None) -> Summary:
    schema = arrow_schema(Recording).with_metadata({PROVENANCE: json.dumps({"ignored": ignored or {}})})
    pq.write_table(to_table(records, Recording).cast(schema), folder / "recordings.parquet")
    return summarise(str(folder / "recordings.parquet"))


def shown(summary: Summary, width: int = 80) -> str:
    from rich.console import Console

    console = Console(width=width, file=io.StringIO())
    with console.capture() as capture:
        console.print(render(summary))
    return capture.get()


def schedule(days: list[int], site: str = "pond") -> list[Recording]:
    """Recordings of one minute every ten minutes, on the given days."""
    starts = [FIRST + timedelta(days=day, minutes=10 * step) for day in days for step in range(6)]
    return [recording(f"{site}/{start:%Y%m%d_%H%M%S}.WAV", start, site) for start in starts]


def test_an_empty_table_has_an_empty_summary(tmp_path: Path) -> None:
    summary = summary_of(tmp_path, [])
    assert (summary.files, summary.hours, summary.sites, summary.first_day) == (0, 0, (), None)
    assert "0 recordings" in shown(summary)


def test_the_error_for_a_missing_table_names_the_command_that_creates_it(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="Create it with mast scan"):
        summarise(str(tmp_path / "gone.parquet"))


def test_gaps_schedule_and_hours_match_the_recordings(tmp_path: Path) -> None:
    summary = summary_of(tmp_path, schedule([0, 1, 2, 7, 9]))
    (pond,) = summary.sites
    assert (pond.recordings, pond.hours) == (30, 0.5)
    assert (pond.first_day, pond.last_day) == (date(2023, 5, 10), date(2023, 5, 19))
    assert (pond.missing_days, pond.longest_gap_days, pond.longest_gap_after) == (5, 4, date(2023, 5, 12))
    assert (pond.duration_s, pond.interval_s) == (60, 600)
    text = shown(summary)
    assert "1 min every 10 min" in text
    assert "4 days without recordings at pond after 12 May 2023" in text
    assert "No faults found" in text


def test_duplicates_are_not_counted_and_bad_clocks_give_no_days(tmp_path: Path) -> None:
    rows = [
        recording("a.wav", FIRST),
        recording("b.wav", FIRST, faults=("duplicate",), duplicate_of="card/a.wav"),
        recording("c.wav", None, faults=("unreadable",), duration_s=None, frames=None, sample_rate_hz=None),
        recording("d.wav", datetime(1970, 1, 1), faults=("clock-reset",)),
        recording("e.wav", datetime(2098, 1, 1), faults=("clock-in-future",)),
    ]
    summary = summary_of(tmp_path, rows)
    assert (summary.files, summary.ok, summary.suspect, summary.quarantined) == (5, 1, 3, 1)
    assert summary.hours == pytest.approx(3 / 60)
    assert (summary.first_day, summary.last_day) == (date(2023, 5, 10), date(2023, 5, 10))
    assert summary.sites[0].missing_days == 0


def test_recordings_without_site_or_clock_are_shown_as_such(tmp_path: Path) -> None:
    summary = summary_of(tmp_path, [recording("a.wav", None, None, faults=("no-start-time",))])
    assert summary.sites[0].site == NO_SITE
    assert summary.sites[0].first_day is None
    assert NO_SITE in shown(summary)


def test_recordings_without_a_pause_are_described_as_such(tmp_path: Path) -> None:
    rows = [recording(f"{step}.wav", FIRST + timedelta(minutes=step)) for step in range(10)]
    text = shown(summary_of(tmp_path, rows))
    assert "1 min, no pause" in text
    assert "100 %" in text


def test_every_fault_is_explained_with_an_example(tmp_path: Path) -> None:
    rows = [recording(f"{code}.wav", FIRST, faults=(code,)) for code in FAULTS]
    text = " ".join(shown(summary_of(tmp_path, rows), 120).split())
    for code, fault in FAULTS.items():
        assert f"{fault.meaning[0].upper()}{fault.meaning[1:]}. {fault.advice}" in text
        assert f"card/{code}.wav" in text
    assert "Quarantined: excluded from all later steps" in text


def test_the_first_example_is_the_same_every_time(tmp_path: Path) -> None:
    rows = [recording(f"{name}.wav", FIRST, faults=("silent",)) for name in "cab"]
    assert summary_of(tmp_path, rows).faults[0].example == "card/a.wav"


@pytest.mark.parametrize(
    "name", ["[bold]red[/bold].wav", "[/].wav", "new\nline.wav", "\x1b[31m.wav", "[link=x].wav"]
)
def test_names_are_printed_literally(tmp_path: Path, name: str) -> None:
    rows = [recording(name, FIRST, name, faults=("silent",)), *schedule([0])]
    text = shown(summary_of(tmp_path, rows, {f".{name}": 2}), 120)
    assert text.count(name.replace("\n", "\\n").replace("\x1b", "\\x1b")) >= 2
    assert "\x1b" not in text


def test_many_sites_are_limited_to_those_with_most_recordings(tmp_path: Path) -> None:
    rows = [recording(f"{site}.wav", FIRST, f"s{site:03d}") for site in range(50)]
    rows += schedule([0], "zzz")
    summary = summary_of(tmp_path, rows)
    assert summary.site_count == 51
    assert len(summary.sites) == MAX_SITES
    assert summary.sites[-1].site == "zzz"
    assert "… and 31 more" in shown(summary)


def test_the_longest_gap_is_found_at_any_site(tmp_path: Path) -> None:
    rows = [row for site in range(25) for row in schedule([0, 1], f"s{site:03d}")]
    rows += [recording("x", FIRST, "rare"), recording("y", FIRST + timedelta(days=30), "rare")]
    summary = summary_of(tmp_path, rows)
    assert summary.longest_gap is not None
    assert (summary.longest_gap.site, summary.longest_gap.longest_gap_days) == ("rare", 29)


@pytest.mark.parametrize("width", [80, 120])
def test_a_healthy_card_fits_a_screen(tmp_path: Path, width: int) -> None:
    rows = [row for site in range(8) for row in schedule(list(range(5)), f"Acebuche {site}")]
    text = shown(summary_of(tmp_path, rows, {".txt": 3, "hidden": 10}), width)
    lines = text.splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= width
    assert "Not recordings: 3 .txt, 10 hidden" in text
    assert "1 min every 10 min" in text


def test_long_site_names_are_folded_not_cut(tmp_path: Path) -> None:
    text = shown(summary_of(tmp_path, schedule([0, 1], "Laguna del Acebuche 7")))
    assert "1 min every 10 min" in text
    assert "Acebuche" in text
    assert "…" not in text


def test_rates_and_other_files_are_listed(tmp_path: Path) -> None:
    rows = [recording("a.wav", FIRST), recording("b.wav", FIRST, sample_rate_hz=384_000)]
    text = shown(summary_of(tmp_path, rows, {f".x{number}": 1 for number in range(12)}), 120)
    assert "Sample rates: 48 kHz (1), 384 kHz (1)" in text
    assert "4 of other kinds" in text


def test_a_table_in_a_bucket_is_read(tmp_path: Path, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import boto3

    monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")
    local = summary_of(tmp_path, schedule([0]))
    boto3.client("s3").upload_file(
        str(tmp_path / "recordings.parquet"), bucket.removeprefix("s3://"), "t.parquet"
    )
    assert summarise(f"{bucket}/t.parquet") == local


def test_quantities_are_formatted_readably() -> None:
    assert [_span(value) for value in (1, 55, 60, 300, 3600, 86_400, 100, 150)] == [
        "1 s", "55 s", "1 min", "5 min", "1 h", "1 d", "100 s", "2.5 min"
    ]  # fmt: skip
    assert [_bytes(value) for value in (5, 1500, 2e12)] == ["5 bytes", "1.5 kB", "2.0 TB"]
