"""AOEF, the exchange format of soundevent and Whombat, read and written with the soundevent package.

A clip annotation is a reviewed span; in a project, only if its task is completed or verified.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, cast, get_args

from mast.annotations.aoef.fields import BOX_MEASURES, LABEL_KEYS, NOTES_COLUMN, ORIGIN_KEY, SCORE_KEY
from mast.annotations.delimited import format_number, read_text
from mast.annotations.model import Annotations, RecordingMetadata, SourceFile, merge_metadata
from mast.annotations.table_io import Columns, band
from mast.errors import AnnotationError
from mast.records import Event, FreeColumns, Origin, ReviewedSpan
from mast.storage import atomic_write

SUFFIXES = (".json", ".aoef")

DONE = frozenset({"completed", "verified"})
"""States of a completed annotation task."""


def sniff(head: str) -> bool:
    """Return True if a file begins like AOEF."""
    return head.lstrip().startswith("{") and '"collection_type"' in head


def read(path: str | Path, name: str | None = None) -> Annotations:
    """Read any AOEF collection; `name` is unused because AOEF names its recordings."""
    location = str(path)
    stored = _load(location)
    problems: Counter[str] = Counter()
    try:
        return Annotations(
            events=tuple(_events(stored, problems)),
            reviewed=tuple(dict.fromkeys(_reviewed(stored))),
            recordings=merge_metadata(_metadata(item, problems) for item in stored.recordings or ()),
            problems=+problems,
            sources=(SourceFile(location, "aoef"),),
        )
    except KeyError as error:
        raise AnnotationError(f"{location}: refers to {error.args[0]}, which is not in the file.") from None
    except ValueError as error:
        raise AnnotationError(f"{location}: {error}.") from None


def _load(location: str) -> Any:
    """Load the stored objects, validated by soundevent; they refer to each other by identifiers."""
    from pydantic import ValidationError
    from soundevent.io.aoef import AOEFObject

    text = read_text(location)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # soundevent warns about its old model runs
            stored = AOEFObject.model_validate_json(text).data
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise AnnotationError(
            f"{location}: not an AOEF file: {field or 'the file'}: {first['msg']}."
        ) from None
    if stored.collection_type == "evaluation":
        raise AnnotationError(
            f"{location}: an evaluation holds scores, not annotations. Export the evaluation set instead."
        )
    return stored


def _all(stored: Any, *names: str) -> list[Any]:
    """Return the items of a collection's lists; lists that this kind of collection lacks are empty."""
    return [item for name in names for item in getattr(stored, name, None) or ()]


def _events(stored: Any, problems: Counter[str]) -> Iterator[Event]:
    problems["sequence of sound events: not imported"] += len(_all(stored, "sequences"))
    for clip in _all(stored, "clip_annotations", "clip_predictions"):
        problems["tag on a whole clip: not imported"] += len(clip.tags or ())
        problems["note on a whole clip: not imported"] += len(_all(clip, "notes"))
    sounds = {item.uuid: item for item in _all(stored, "sound_events")}
    paths = _paths(stored)
    tags = {tag.id: (tag.key, tag.value) for tag in _all(stored, "tags")}
    users = {user.uuid: user.name or user.username for user in _all(stored, "users")}
    for item in _all(stored, "sound_event_annotations", "sound_event_predictions"):
        sound = sounds[item.sound_event]
        predicted = hasattr(item, "score")
        pairs = [tags[tag[0] if predicted else tag] for tag in item.tags or ()]
        features = sound.features or {}
        origin = dict(pairs).get(ORIGIN_KEY, "model" if predicted else "expert")
        if origin not in get_args(Origin):
            raise ValueError(f"{ORIGIN_KEY} is {origin!r}; it must be expert, model or pseudo")
        start_s, low_hz, end_s, high_hz = _box(sound.geometry, problems)
        low_hz, high_hz = band(low_hz, high_hz, problems)
        label, columns = _label_and_columns(
            pairs, features, "\n".join(note.message for note in _all(item, "notes"))
        )
        yield Event(
            recording_id=paths[sound.recording],
            start_s=start_s,
            end_s=end_s,
            low_hz=low_hz,
            high_hz=high_hz,
            label=label,
            score=item.score if predicted else features.get(SCORE_KEY),
            origin=cast(Origin, origin),
            annotator=users.get(getattr(item, "created_by", None)),
            columns=columns,
        )


def _paths(stored: Any) -> dict[Any, str]:
    return {item.uuid: item.path.as_posix() for item in _all(stored, "recordings")}


def _label_and_columns(
    pairs: list[tuple[str, str]], features: dict[str, float], notes: str
) -> tuple[str | None, FreeColumns]:
    """Return the label from an event's tags, and its other tags, features and notes as free columns."""
    label = next((pair for wanted in LABEL_KEYS for pair in pairs if pair[0] == wanted), None)
    columns = [pair for pair in pairs if pair != label and pair[0] != ORIGIN_KEY]
    columns += [
        (key, format_number(value))
        for key, value in features.items()
        if key not in (*BOX_MEASURES, SCORE_KEY)
    ]
    if notes:
        columns.append((NOTES_COLUMN, notes))
    return (label[1] if label else None), tuple(columns)


def _box(geometry: Any, problems: Counter[str]) -> tuple[float, float | None, float, float | None]:
    if geometry.type == "TimeStamp":
        return geometry.coordinates, None, geometry.coordinates, None
    if geometry.type == "TimeInterval":
        return geometry.coordinates[0], None, geometry.coordinates[1], None
    if geometry.type == "BoundingBox":
        start_s, low_hz, end_s, high_hz = geometry.coordinates
        return start_s, low_hz, end_s, high_hz
    problems[f"{geometry.type}: imported as its bounding box"] += 1
    times, frequencies = zip(*_points(geometry.coordinates), strict=True)
    return min(times), min(frequencies), max(times), max(frequencies)


def _points(coordinates: list[Any]) -> Iterator[tuple[float, float]]:
    """Yield all points (time in s, frequency in Hz) of a shape with coordinates nested to any depth."""
    if isinstance(coordinates[0], list | tuple):
        for part in coordinates:
            yield from _points(part)
    else:
        yield coordinates[0], coordinates[1]


def _reviewed(stored: Any) -> Iterator[ReviewedSpan]:
    """Yield annotated clips; in a project, only those whose task is done."""
    in_project = stored.collection_type == "annotation_project"
    done = {task.clip for task in _all(stored, "tasks") if _is_done(task)}
    clips = {clip.uuid: clip for clip in _all(stored, "clips")}
    durations = {item.uuid: item.duration for item in _all(stored, "recordings")}
    paths = _paths(stored)
    for item in _all(stored, "clip_annotations"):
        if not in_project or item.clip in done:
            clip = clips[item.clip]
            is_open_ended = clip.end_time >= durations[clip.recording]
            yield ReviewedSpan(
                paths[clip.recording], clip.start_time, None if is_open_ended else clip.end_time
            )


def _is_done(task: Any) -> bool:
    states = {badge.state.value for badge in task.status_badges or ()}
    return bool(states & DONE) and "rejected" not in states


def _metadata(recording: Any, problems: Counter[str]) -> RecordingMetadata:
    unused = len(_all(recording, "tags", "notes", "features"))
    problems["tag, note or feature of a recording: not imported"] += unused
    expanded = recording.time_expansion not in (None, 1)
    problems["time-expanded recording: times and frequencies are real ones"] += expanded
    started = recording.date and recording.time and datetime.combine(recording.date, recording.time)
    return RecordingMetadata(
        recording_id=recording.path.as_posix(),
        duration_s=recording.duration,
        sample_rate_hz=recording.samplerate,
        channels=recording.channels,
        start_local=started.replace(tzinfo=None) if started else None,
    )


def write(annotations: Annotations, path: str | Path) -> Counter[str]:
    """Write a project; a prediction set if all events are a model's; a dataset if there are only recordings."""
    from soundevent.io.aoef import to_aeof

    from mast.annotations.aoef.objects import collection_of

    collection, losses = collection_of(annotations, str(path))
    text = to_aeof(collection).model_dump_json(exclude_none=True)
    with atomic_write(str(path)) as file:
        file.write(text.encode())
    return losses


def write_parts(parts: Iterable[Annotations], path: str | Path, columns: Columns) -> Counter[str]:
    """Write one prediction set from parts of annotations, in order; the format cannot store further `columns`."""
    from mast.annotations.aoef.streaming import write_predictions

    return write_predictions(parts, str(path))
