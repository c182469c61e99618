"""Export the events of a run to the file formats of other programs; events are streamed, so memory use is constant.

Every export includes a table of effort: counts of events mean little without the hours of audio that were processed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from mast.annotations import camtrap_dp
from mast.annotations.delimited import file_name, format_counts, format_number, open_table
from mast.annotations.formats import STREAMING_FORMATS
from mast.annotations.model import Annotations, by_recording, metadata_of
from mast.annotations.paths import remove_stale_exports, table_path
from mast.annotations.table_io import Columns
from mast.config import AnnotationFormat
from mast.errors import ConfigError
from mast.recordings.clocks import format_duration
from mast.records import BOX_COLUMNS, Event, Recording, RecordingStatus, event_id, from_table
from mast.runs.results import DetectionResults, open_results
from mast.storage import join
from mast.wording import counted

if TYPE_CHECKING:
    import pyarrow as pa

EFFORT = "effort.csv"
EFFORT_COLUMNS = (
    *("recording", "site", "start_utc", "start_local", "utc_offset_min", "duration_s"),
    *("effort_s", "events", "status", "reason"),
)


@dataclass(frozen=True, slots=True)
class ExportLayout:
    """Layout of an export format: the ending of its file names, empty for a folder, and its additional columns.

    `combined` lists the supported values: True for a file of many recordings, False for one; the default comes first.
    """

    ending: str
    combined: tuple[bool, ...]
    columns: Columns = Columns()  # noqa: RUF009  # frozen


EXPORT_LAYOUTS: dict[AnnotationFormat, ExportLayout] = {
    "raven": ExportLayout(
        ".Table.1.selections.txt",
        (False, True),
        Columns(frozenset({"score", "low_hz", "high_hz"}), ("site", "start_utc", "start_local", "model")),
    ),
    "audacity": ExportLayout(".txt", (False,)),
    "csv": ExportLayout(
        ".csv",
        (True, False),
        Columns(frozenset({"score"}), ("site", "start_utc", "start_local", "utc_offset_min", "model")),
    ),
    "aoef": ExportLayout(".json", (True, False)),
    "audubon-core": ExportLayout(
        ".csv", (True, False), Columns(frozenset({"score", "annotator"}), ("site", "start_local"))
    ),
    "camtrap-dp": ExportLayout("", (True,)),
}


ANNOTATOR_FORMATS = ("aoef", "audubon-core", "camtrap-dp")
"""Formats with a field for the annotator, which names the model; other formats have a column for the model."""

Labels = Callable[[int], Mapping[str, str]]
"""`labels(part)` returns the labels of a part's events by `event_id`."""


@dataclass
class ExportResult:
    """Counts and location of a finished export; `losses` counts what the format cannot represent.

    `changed` counts tables of earlier exports that were kept because they were edited since.
    """

    format: AnnotationFormat
    out: str
    unfinished: int
    files: int = 0
    changed: int = 0
    recordings: int = 0
    unprocessed: int = 0
    processed_s: float = 0.0
    events: int = 0
    losses: Counter[str] = field(default_factory=Counter)

    def summary(self) -> str:
        """Return a text summary for the user."""
        lines = [
            f"{counted(self.events, 'event')} in {counted(self.recordings, 'recording')}, "
            f"{format_duration(self.processed_s)} of audio"
        ]
        if self.unprocessed:
            lines.append(f"{counted(self.unprocessed, 'recording')} not processed: reasons in {EFFORT}")
        if self.unfinished:
            lines.append(f"{counted(self.unfinished, 'part')} of the run not finished, and not exported")
        lines += format_counts(f"Not representable in {self.format}:", self.losses)
        lines += changed_tables_note(self.changed)
        return "\n".join([*lines, f"Written: {self.out} ({self.files:,} {self.format}, and {EFFORT})"])


def changed_tables_note(changed: int) -> list[str]:
    """Return a line about edited tables of earlier exports that were kept, if there are any."""
    return [f"{counted(changed, 'edited table')} of an earlier export kept"] if changed else []


def export(
    events: str,
    to: AnnotationFormat,
    out: str | None = None,
    *,
    combined: bool | None = None,
    min_score: float | None = None,
    labels: Labels | None = None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> ExportResult:
    """Write the events of a run into a folder: one file per recording, or one combined file.

    Tables of an earlier export of this run in the same folder are removed, unless they were edited. With `labels`, only
    labelled events and their recordings are exported; else all events with their tentative labels.
    """
    layout = _layout(to)
    folder = out or join(events, to)
    path = file_or_folder(to, combined, folder)
    results = open_results(events, min_score)
    result = ExportResult(to, folder, results.unfinished)
    with open_table(join(folder, EFFORT), EFFORT_COLUMNS) as add_effort:
        parts = _parts(results, to, min_score, labels, result, add_effort, on_progress)
        if path != folder or not layout.ending:
            result.losses += STREAMING_FORMATS[to].write_parts(parts, path, layout.columns)
            names = output_names(to, path)
            result.files = 1
        else:
            names = [name for part in parts for name in _write_each(part, to, layout, result)]
    result.changed = remove_stale_exports([EFFORT, *names], folder, results.fingerprint)
    return result


def _layout(to: AnnotationFormat) -> ExportLayout:
    if to not in EXPORT_LAYOUTS:
        raise ConfigError(
            f"--to {to}: use {', '.join(EXPORT_LAYOUTS)}; convert to other formats with mast convert."
        )
    return EXPORT_LAYOUTS[to]


def file_or_folder(to: AnnotationFormat, combined: bool | None, folder: str) -> str:  # noqa: FBT001
    """Return the path of the combined file in a folder, or the folder itself if each recording gets its own file."""
    layout = _layout(to)
    return (
        join(folder, f"events{layout.ending}")
        if _is_combined(to, layout, combined) and layout.ending
        else folder
    )


def output_names(to: AnnotationFormat, path: str) -> list[str]:
    """Return the file names of a combined export: one file, or the files of a package."""
    return [file_name(path)] if EXPORT_LAYOUTS[to].ending else [*camtrap_dp.FILES]


def _is_combined(to: AnnotationFormat, layout: ExportLayout, combined: bool | None) -> bool:  # noqa: FBT001
    if combined is None or combined in layout.combined:
        return layout.combined[0] if combined is None else combined
    raise ConfigError(
        f"--combined: a {to} file contains only one recording. Omit the option."
        if combined
        else f"--per-recording: {to} is one package of all recordings. Omit the option."
    )


def _write_each(
    part: Annotations, to: AnnotationFormat, layout: ExportLayout, result: ExportResult
) -> Iterator[str]:
    """Write a file for every processed recording, also without events, because that is effort too; yield file names."""
    for recording_id, single in by_recording(part).items():
        if single.processed:
            name = table_path(recording_id, layout.ending)
            result.losses += STREAMING_FORMATS[to].write_parts(
                [single], join(result.out, name), layout.columns
            )
            result.files += 1
            yield name


def _parts(
    results: DetectionResults,
    to: AnnotationFormat,
    min_score: float | None,
    labels: Labels | None,
    result: ExportResult,
    add_effort: Callable[[Iterable[Sequence[str]]], None],
    on_progress: Callable[[int, int], None],
) -> Iterator[Annotations]:
    """Yield the annotations of every part; add to the counts of `result` and write effort along the way."""
    for done, part in enumerate(results.parts(min_score), start=1):
        recordings: list[Recording] = from_table(part.recordings, Recording)
        label_source = (labels or results.labels)(part.number)
        events = list(
            annotations_for(to, results, part.events, label_source, only_labelled=labels is not None)
        )
        counts = Counter(event.recording_id for event in events)
        status = [
            _count_recording(item, counts[item.recording_id])
            for item in from_table(part.status, RecordingStatus)
        ]
        add_effort(map(_effort, recordings, status))
        processed = [
            item
            for item in status
            if (counts[item.recording_id] if labels else item.effort_s > 0 or item.status != "quarantined")
        ]
        result.events += len(events)
        result.recordings += len(processed)
        result.unprocessed += 0 if labels else len(status) - len(processed)
        result.processed_s += sum(item.effort_s for item in status)
        metadata = (
            replace(metadata_of(item), location=results.location(item.collection, item.path))
            for item in recordings
            if item.status != "quarantined" and (counts[item.recording_id] or not labels)
        )
        yield Annotations(events=tuple(events), recordings=tuple(metadata), processed=tuple(processed))
        on_progress(done, len(results.numbers))


def _count_recording(item: RecordingStatus, events: int) -> RecordingStatus:
    """Return the status of a recording of which `events` events are exported."""
    status = item.status if events or item.status == "quarantined" else "empty"
    return replace(item, events=events, status=status)


def _effort(recording: Recording, status: RecordingStatus) -> list[str]:
    return [
        recording.recording_id,
        recording.site or "",
        clock_text(recording.start_utc),
        clock_text(recording.start_local),
        format_number(recording.utc_offset_min),
        format_number(recording.duration_s),
        format_number(round(status.effort_s, 6)),
        str(status.events),
        status.status,
        status.reason or "",
    ]


def annotations_for(
    to: AnnotationFormat,
    results: DetectionResults,
    events: pa.Table,
    label_source: Mapping[str, str],
    *,
    only_labelled: bool = False,
) -> Iterator[Event]:
    """Yield a run's events in their order, in the form that suits a format, rounded to significant digits.

    `label_source` maps `event_id` to labels.
    """
    columns, model = EXPORT_LAYOUTS[to].columns.free, f"MAST {results.version}, model {results.model}"
    for row in events.to_pylist():
        score = round(row["score"], 6)
        label = label_source.get(event_id(*(row[column] for column in BOX_COLUMNS))) if label_source else None
        if only_labelled and label is None:
            continue
        yield Event(
            recording_id=row["recording_id"],
            start_s=round(row["start_s"], 6),
            end_s=round(row["end_s"], 6),
            low_hz=round(row["low_hz"], 3),
            high_hz=round(row["high_hz"], 3),
            label=_track_label(label, score) if to == "audacity" else label,
            score=None if to == "audacity" else score,
            origin="model",
            annotator=model if to in ANNOTATOR_FORMATS else None,
            columns=tuple((column, _text(row[column])) for column in columns),
        )


def _track_label(label: str | None, score: float) -> str:
    """Return the text in an Audacity label track: the label, if any, and the score."""
    return f"{label} {score:.2f}" if label else f"{score:.2f}"


def _text(value: Any) -> str:
    return clock_text(value) if isinstance(value, datetime) else "" if value is None else str(value)


def clock_text(moment: datetime | None) -> str:
    """Format a time as ISO 8601 in milliseconds: with Z in UTC, without a zone for the recorder's clock."""
    return "" if moment is None else moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
