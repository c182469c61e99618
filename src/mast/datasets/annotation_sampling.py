"""Sample spans of unlabelled audio to annotate, extract them for an annotator, and import the annotations.

The paper (Label Budget and Sampling Strategy) finds that labels spread over the hours of the day train a better detector
than the same number in sequence: +0.13 F1 at 1,000 chunks. So `time-balanced` is the default.
"""

from __future__ import annotations

import io
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal

import numpy as np
import soundfile

from mast.annotations import (
    Annotations,
    SourceFile,
    audacity,
    match_recordings,
    merge,
    raven,
    write_annotations,
)
from mast.annotations.delimited import decimal, format_number, read_table, read_text, write_table
from mast.annotations.model import by_recording
from mast.annotations.recording_names import AUDIO_ENDING
from mast.audio.reader import open_audio
from mast.config import Collection, Study, collection_of
from mast.datasets.split_summary import query_chunks
from mast.datasets.split_table import SPLITS_TABLE, require_artifact
from mast.errors import AnnotationError, AudioError, ConfigError, StorageError
from mast.records import ReviewedSpan
from mast.storage import atomic_write, is_remote, join

Strategy = Literal["time-balanced", "random", "sequential"]

SPAN_S = 60.0
UNKNOWN_HOUR = 24
INDEX = "index.csv"
BOXES = "boxes.csv"
INDEX_COLUMNS = ("file", "recording_id", "start_s", "end_s", "site", "start_local", "reviewed")
RAVEN_HEADER = (
    "Selection", "View", "Channel", "Begin Time (s)", "End Time (s)", "Low Freq (Hz)", "High Freq (Hz)", "Begin File",
    "Begin Path", "File Offset (s)", "Annotation",
)  # fmt: skip
PENDING = "span not reviewed yet: not imported"

_README = """# Please annotate these sounds

Each WAV file is a span of a longer recording. Draw a box around every animal sound in it.

- In Raven: open the WAV file, then its selection table, whose name begins with the name of the WAV file. Type the
  label into the column Annotation. Save the table.
- In Audacity: import the WAV file, then its label file (File > Import > Labels). Switch to the spectrogram, select
  sounds in time and frequency, add labels. Export the labels to the same file.
- When you have reviewed a span from start to end, write `yes` in its row of index.csv, in the column `reviewed`. Spans
  with boxes count as reviewed unless you write `no`; spans without boxes count only with a `yes`.

Do not rename files: mast sample uses the names in index.csv to assign annotations to recordings.
"""


@dataclass(frozen=True, slots=True)
class Span:
    """A span of a recording to annotate, in seconds of its real time; `start_local` is None if the clock is unknown."""

    recording_id: str
    start_s: float
    end_s: float
    site: str | None = None
    start_local: datetime | None = None

    @property
    def duration_s(self) -> float:
        """Duration of the span."""
        return self.end_s - self.start_s

    @property
    def hour(self) -> int:
        """Hour of the day at the start, `UNKNOWN_HOUR` without a clock."""
        return UNKNOWN_HOUR if self.start_local is None else self.start_local.hour


def sample_spans(
    candidates: Sequence[Span], hours: float, strategy: Strategy = "time-balanced", seed: int = 0
) -> tuple[Span, ...]:
    """Sample spans up to a total of `hours`, at least one span; the order of the candidates does not matter."""
    ordered = sorted(candidates, key=lambda span: (span.recording_id, span.start_s))
    chosen: list[Span] = []
    remaining_s = hours * 3600 + 1e-6
    for index in STRATEGIES[strategy](ordered, np.random.default_rng(seed)):
        remaining_s -= ordered[index].duration_s
        if remaining_s < 0 and chosen:
            break
        chosen.append(ordered[index])
    return tuple(chosen)


def _sequential(spans: Sequence[Span], _: np.random.Generator) -> Iterator[int]:
    """Yield indices in the order of recording; spans without a clock come last."""
    yield from sorted(range(len(spans)), key=lambda index: spans[index].start_local or datetime.max)


def _random(spans: Sequence[Span], rng: np.random.Generator) -> Iterator[int]:
    yield from rng.permutation(len(spans)).tolist()


def _time_balanced(spans: Sequence[Span], rng: np.random.Generator) -> Iterator[int]:
    yield from balanced_order(spans, list(_random(spans, rng)), rng)


def balanced_order(
    spans: Sequence[Span], preference: Sequence[int], rng: np.random.Generator, done: Iterable[Span] = ()
) -> Iterator[int]:
    """Yield indices that balance hours of the day, and sites within an hour; ties are broken at random.

    Each span comes from the hour with the least sampled time, and there from the site with the least. Within a site and
    hour, the last of `preference` comes first. The spans in `done` count as sampled.
    """
    pending: dict[int, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for index in preference:
        pending[spans[index].hour][spans[index].site or ""].append(index)
    sites = sorted({span.site or "" for span in spans})
    site_tiebreak = dict(zip(sites, rng.random(len(sites)), strict=True))
    hour_tiebreak = rng.random(UNKNOWN_HOUR + 1)
    hour_s: dict[int, float] = defaultdict(float)
    site_s: dict[str, float] = defaultdict(float)
    for span in done:
        hour_s[span.hour] += span.duration_s
        site_s[span.site or ""] += span.duration_s
    while pending:
        hour = min(pending, key=lambda hour: (hour_s[hour], hour_tiebreak[hour]))
        site = min(pending[hour], key=lambda site: (site_s[site], site_tiebreak[site]))
        index = pending[hour][site].pop()
        hour_s[hour] += spans[index].duration_s
        site_s[site] += spans[index].duration_s
        if not pending[hour][site]:
            del pending[hour][site]
        if not pending[hour]:
            del pending[hour]
        yield index


STRATEGIES: dict[Strategy, Callable[[Sequence[Span], np.random.Generator], Iterator[int]]] = {
    "time-balanced": _time_balanced,
    "random": _random,
    "sequential": _sequential,
}


def parse_strategy(name: str) -> Strategy:
    """Return the strategy with a name; raise ConfigError with the valid names for an unknown one."""
    for strategy in STRATEGIES:
        if strategy == name:
            return strategy
    raise ConfigError(f"--strategy {name}: use {', '.join(STRATEGIES)}.")


def unlabelled_spans(study: Study, span_s: float = SPAN_S) -> list[Span]:
    """Return spans of the study's unlabelled audio outside held-out sets.

    A remainder of at least half a span becomes a span; a shorter one is left out unless it is the only audio.
    """
    spans: list[Span] = []
    for recording_id, site, start, first_s, last_s in query_chunks(
        require_artifact(study, SPLITS_TABLE), _RUNS
    ):
        expansion = study.collections[collection_of(recording_id, study.collections)].time_expansion
        spans += _tile(Span(recording_id, first_s / expansion, last_s / expansion, site, start), span_s)
    return spans


def _tile(run: Span, span_s: float) -> list[Span]:
    pieces = max(1, int(run.duration_s / span_s + 0.5))
    starts_s = [number * span_s for number in range(pieces)]
    return [
        replace(
            run,
            start_s=round(run.start_s + at_s, 6),
            end_s=round(min(run.start_s + at_s + span_s, run.end_s), 6),
            start_local=run.start_local and run.start_local + timedelta(seconds=at_s),
        )
        for at_s in starts_s
    ]


_RUNS = """
    , numbered AS (
        SELECT *, index - row_number() OVER (PARTITION BY recording_id ORDER BY index) AS run
        FROM chunk WHERE split = 'unlabelled' AND domain = 'in-domain'
    )
    SELECT recording_id, any_value(site), min(start_local), min(start_s), max(start_s + audio_s)
    FROM numbered GROUP BY recording_id, run ORDER BY recording_id, run
"""


@dataclass(frozen=True, slots=True)
class AnnotationBatch:
    """The spans extracted for an annotator.

    `exhausted` is True if no unlabelled span remains; `unreadable` has an error for each span that was not extracted.
    """

    folder: str
    spans: tuple[Span, ...]
    requested_hours: float
    exhausted: bool = False
    unreadable: tuple[str, ...] = ()

    def summary(self) -> str:
        """Return the report to print."""
        minutes = sum(span.duration_s for span in self.spans) / 60
        sites = len({span.site for span in self.spans})
        hours_of_day = len({span.start_local.hour for span in self.spans if span.start_local})
        lines = [
            f"Extracted: {len(self.spans)} x up to {SPAN_S:g} s, {minutes:.1f} min → {self.folder}",
            f"  sites: {sites}, hours of the day: {hours_of_day} of 24",
        ]
        if self.exhausted and minutes < 60 * self.requested_hours - 1e-6:
            lines.append(f"  That is all unlabelled audio; --hours requested {self.requested_hours:g} hours.")
        return "\n".join([*lines, *(f"  not extracted: {reason}" for reason in self.unreadable)])


def sample_study(
    study: Study, hours: float, strategy: Strategy = "time-balanced", *, folder: str | None = None
) -> AnnotationBatch:
    """Run `mast sample`: sample spans and extract them into a new folder, by default in the work folder."""
    if hours <= 0:
        raise ConfigError(f"--hours {hours:g}: use a number above 0.")
    name = f"sample-{strategy}-{hours:g}h"
    target = folder or (name if is_remote(study.work_dir) else join(study.work_dir, name))
    candidates = unlabelled_spans(study)
    if not candidates:
        raise StorageError(f"{study.work_dir}: there is no unlabelled audio outside held-out sets.")
    spans = sample_spans(candidates, hours, strategy, study.splits.seed)
    written, unreadable = write_annotation_files(spans, Path(target), study.collections)
    return AnnotationBatch(target, written, hours, len(spans) == len(candidates), unreadable)


def write_annotation_files(
    spans: Iterable[Span], folder: Path, collections: Mapping[str, Collection]
) -> tuple[tuple[Span, ...], tuple[str, ...]]:
    """Write each span as a WAV file with empty tables; return the written spans and the errors of the others."""
    if folder.exists() and any(folder.iterdir()):
        raise StorageError(f"{folder} is not empty and may contain annotations. Use a new folder.")
    names, errors = span_names(spans), []
    written: dict[str, Span] = {}
    for name, span in names.items():
        collection = collection_of(span.recording_id, collections)
        path = span.recording_id.removeprefix(f"{collection}/")
        try:
            content = _wav(join(collections[collection].root, path), span)
        except AudioError as error:
            errors.append(str(error))
            continue
        _write(folder / f"{name}.wav", content)
        _write(folder / f"{name}{raven.ENDING}", ("\t".join(RAVEN_HEADER) + "\n").encode())
        _write(folder / f"{name}{audacity.ENDING}", b"")
        written[name] = span
    _write(folder / "README.md", _README.encode())
    _write_index(written, str(folder / INDEX))
    return tuple(written.values()), tuple(errors)


def span_names(spans: Iterable[Span]) -> dict[str, Span]:
    """Return a unique plain file name for each span: the recording's path and the start in seconds."""
    names: dict[str, Span] = {}
    used: set[str] = set()
    for span in spans:
        stem = re.sub(r"[^\w.-]+", "_", AUDIO_ENDING.sub("", span.recording_id.replace("/", "_"))).strip("._")
        base = name = f"{stem[-120:]}_{span.start_s:05.0f}s"
        count = 1
        while name.casefold() in used:
            count += 1
            name = f"{base}-{count}"
        used.add(name.casefold())
        names[name] = span
    return names


def _wav(location: str, span: Span) -> bytes:
    with open_audio(location, None) as audio:
        samples = audio.read(span.start_s, span.duration_s)
        content = io.BytesIO()
        soundfile.write(content, samples, audio.sample_rate_hz, format="WAV", subtype="PCM_16")
    return content.getvalue()


def _write(path: Path, content: bytes) -> None:
    with atomic_write(str(path)) as file:
        file.write(content)


def _write_index(spans: Mapping[str, Span], location: str) -> None:
    rows = [
        (
            f"{name}.wav",
            span.recording_id,
            format_number(span.start_s),
            format_number(span.end_s),
            span.site or "",
            span.start_local.isoformat(sep=" ", timespec="seconds") if span.start_local else "",
            "",
        )
        for name, span in spans.items()
    ]
    write_table(location, INDEX_COLUMNS, rows)


def read_annotated_spans(folder: Path) -> Annotations:
    """Read the annotations of extracted files, in the time of their recordings, and the reviewed spans."""
    location = folder / INDEX
    if not location.is_file():
        raise AnnotationError(f"{folder}: there is no {INDEX}. Use a folder that mast sample wrote.")
    table = read_table(str(location))
    rows = [(table.where(line), dict(zip(table.header, cells, strict=False))) for line, cells in table.rows]
    annotated = replace(merge(_tables(folder)), reviewed=())
    matched = match_recordings(annotated, [row["file"] for _, row in rows]).annotations
    by_file = by_recording(matched)
    by_span = [_to_recording_time(row, where, by_file.get(row["file"], Annotations())) for where, row in rows]
    pending = Counter({PENDING: sum(not span.reviewed for span in by_span)})
    combined = merge(by_span)
    return replace(
        combined, problems=matched.problems + pending, sources=(SourceFile(str(folder), "sample"),)
    )


def _to_recording_time(row: Mapping[str, str], where: str, annotated: Annotations) -> Annotations:
    """Return the annotations of an extracted file in the time of its recording."""
    start_s, end_s = (float(decimal(row[name], where, name) or 0) for name in ("start_s", "end_s"))
    recording_id, answer = row["recording_id"], row.get("reviewed", "").casefold()
    events = tuple(
        replace(
            event,
            recording_id=recording_id,
            start_s=round(event.start_s + start_s, 6),
            end_s=round(event.end_s + start_s, 6),
        )
        for event in annotated.events
    )
    is_reviewed = answer.startswith("y") or (events and not answer.startswith("n"))
    return Annotations(events, (ReviewedSpan(recording_id, start_s, end_s),) if is_reviewed else ())


def import_annotations(folder: Path) -> str:
    """Run `mast sample --import`: write the annotations of a folder as one table; return the report to print."""
    annotations = read_annotated_spans(folder)
    target = folder / BOXES
    losses = write_annotations(annotations, target, "csv")
    lines = [f"{len(annotations.events)} boxes, {len(annotations.reviewed)} spans reviewed → {target}"]
    lines += [f"  {count} x {problem}" for problem, count in (annotations.problems + losses).items()]
    return "\n".join(lines)


def _tables(folder: Path) -> Iterable[Annotations]:
    """Yield the annotations of the folder's Raven selection tables and Audacity label tracks."""
    for path in sorted(folder.glob("*.txt")):
        module = raven if raven.sniff(read_text(str(path))) else audacity
        yield module.read(path)
