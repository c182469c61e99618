"""Convert annotations to soundevent objects; identifiers are hashes of the content, so output is reproducible."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from uuid import NAMESPACE_URL, UUID, uuid5

from soundevent import data

from mast.annotations.aoef.fields import LABEL_KEYS, NOTES_COLUMN, ORIGIN_KEY, SCORE_KEY
from mast.annotations.model import Annotations, RecordingMetadata, by_recording, local_start
from mast.errors import AnnotationError
from mast.records import Event, ReviewedSpan

NO_METADATA = "event of a recording with unknown duration or sample rate: not written"
NO_TAGS = "label or free column: not written"
NO_METADATA_REVIEWED = "reviewed span of a recording with unknown duration or sample rate: not written"


def collection_of(
    annotations: Annotations, location: str
) -> tuple[data.AnnotationProject | data.PredictionSet | data.Dataset, Counter[str]]:
    """Return the collection type that fits the annotations, and counts of everything it cannot store."""
    kept, losses = _recordings_with_metadata(annotations)
    names = annotations.recording_ids()
    if names and not kept:
        raise AnnotationError(
            f"{location}: AOEF needs the duration and sample rate of recordings, and none is known. Pass "
            "--recordings recordings.parquet, as written by mast scan."
        )
    identity = _uuid("collection", *names)
    if not annotations.events and not annotations.reviewed and not annotations.processed:
        recordings = [recording for recording, _ in kept]
        return data.Dataset(uuid=identity, name="MAST", recordings=recordings), losses
    if _all_predicted(annotations):
        return predictions_of(kept, identity), losses
    annotated = [pair for recording, part in kept for pair in _annotated(recording, part)]
    project = data.AnnotationProject(
        uuid=identity,
        name="MAST",
        clip_annotations=[clip for clip, _ in annotated],
        tasks=[task for _, task in annotated],
    )
    return project, losses


def predicted_part(annotations: Annotations) -> tuple[data.PredictionSet, Counter[str]]:
    """Return a part of a larger prediction set, without tags: their numbers would restart in every part."""
    without_tags = tuple(replace(event, label=None, columns=()) for event in annotations.events)
    kept, losses = _recordings_with_metadata(replace(annotations, events=without_tags))
    losses[NO_TAGS] += sum(bool(event.label or event.columns) for event in annotations.events)
    return predictions_of(kept, _uuid("part", *annotations.recording_ids())), +losses


def predictions_of(kept: Sequence[tuple[data.Recording, Annotations]], identity: UUID) -> data.PredictionSet:
    """Return a prediction set of detections and of processed recordings without detections."""
    clips = [_predicted(recording, part) for recording, part in kept if part.events or part.processed]
    return data.PredictionSet(uuid=identity, name="MAST", clip_predictions=clips)


def _recordings_with_metadata(
    annotations: Annotations,
) -> tuple[list[tuple[data.Recording, Annotations]], Counter[str]]:
    """Return the recordings that AOEF can store, each with its annotations, and counts of losses for the others."""
    losses: Counter[str] = Counter()
    kept = []
    for part in by_recording(annotations).values():
        recording = _recording(part.recordings[0])
        if recording:
            kept.append((recording, part))
        else:
            losses[NO_METADATA] += len(part.events)
            losses[NO_METADATA_REVIEWED] += len(part.reviewed)
    return kept, +losses


def _uuid(*parts: object) -> UUID:
    return uuid5(NAMESPACE_URL, "mast:" + "\x1f".join(map(str, parts)))


def _recording(metadata: RecordingMetadata) -> data.Recording | None:
    if metadata.duration_s is None or metadata.sample_rate_hz is None:
        return None
    start: datetime | None = local_start(metadata)
    return data.Recording(
        uuid=_uuid("recording", metadata.recording_id),
        path=metadata.recording_id,  # type: ignore[arg-type]
        duration=metadata.duration_s,
        channels=metadata.channels or 1,
        samplerate=metadata.sample_rate_hz,
        date=start.date() if start else None,
        time=start.time() if start else None,
    )


def _all_predicted(annotations: Annotations) -> bool:
    """Return True if a prediction set can store all annotations: every event has a score, none is reviewed."""
    return not annotations.reviewed and all(
        event.origin != "expert"
        and event.annotator is None
        and event.score is not None
        and 0 <= event.score <= 1
        and NOTES_COLUMN not in dict(event.columns)
        for event in annotations.events
    )


def _predicted(recording: data.Recording, part: Annotations) -> data.ClipPrediction:
    """Return the detections of a recording; the clip is the processed part of the recording."""
    items = [
        data.SoundEventPrediction(
            uuid=_uuid("prediction", recording.uuid, index),
            sound_event=_sound_event(recording, event, index, ()),
            score=event.score or 0.0,
            tags=[data.PredictedTag(tag=tag, score=event.score or 0.0) for tag in _tags(event, "model")],
        )
        for index, event in enumerate(part.events)
    ]
    processed_s = part.processed[0].effort_s if part.processed else recording.duration
    clip = _span(recording, 0.0, min(processed_s, recording.duration))
    return data.ClipPrediction(uuid=_uuid("clip", clip.uuid), clip=clip, sound_events=items)


def _annotated(
    recording: data.Recording, part: Annotations
) -> list[tuple[data.ClipAnnotation, data.AnnotationTask]]:
    """Return a done clip for each reviewed span, and an open clip of the whole recording for events outside them."""
    spans = list(dict.fromkeys((span.start_s, _end(span, recording)) for span in part.reviewed))
    by_clip: dict[tuple[float, float], list[data.SoundEventAnnotation]] = {span: [] for span in spans}
    whole_clip = (0.0, recording.duration)
    for index, event in enumerate(part.events):
        clip_span = next((span for span in spans if span[0] <= event.start_s <= span[1]), whole_clip)
        by_clip.setdefault(clip_span, []).append(_annotation(recording, event, index))
    return [_clip(recording, span, items, done=span in spans) for span, items in by_clip.items()]


def _end(span: ReviewedSpan, recording: data.Recording) -> float:
    return max(span.start_s, recording.duration if span.end_s is None else span.end_s)


def _span(recording: data.Recording, start_s: float, end_s: float) -> data.Clip:
    identity = _uuid("span", recording.uuid, start_s, end_s)
    return data.Clip(uuid=identity, recording=recording, start_time=start_s, end_time=end_s)


def _clip(
    recording: data.Recording,
    span: tuple[float, float],
    items: list[data.SoundEventAnnotation],
    *,
    done: bool,
) -> tuple[data.ClipAnnotation, data.AnnotationTask]:
    clip = _span(recording, *span)
    badges = [data.StatusBadge(state=data.AnnotationState.completed)] if done else []
    annotation = data.ClipAnnotation(uuid=_uuid("clip", clip.uuid), clip=clip, sound_events=items)
    return annotation, data.AnnotationTask(uuid=_uuid("task", clip.uuid), clip=clip, status_badges=badges)


def _annotation(recording: data.Recording, event: Event, index: int) -> data.SoundEventAnnotation:
    user = data.User(uuid=_uuid("user", event.annotator), name=event.annotator) if event.annotator else None
    notes = dict(event.columns).get(NOTES_COLUMN, "")
    score = [] if event.score is None else [data.Feature(term=_term(SCORE_KEY), value=event.score)]
    return data.SoundEventAnnotation(
        uuid=_uuid("annotation", recording.uuid, index),
        sound_event=_sound_event(recording, event, index, score),
        tags=_tags(event, "expert"),
        created_by=user,
        notes=[
            data.Note(uuid=_uuid("note", recording.uuid, index, line), message=text)
            for line, text in enumerate(notes.split("\n") if notes else ())
        ],
    )


def _tags(event: Event, implied_origin: str) -> list[data.Tag]:
    """Return an event's label, free columns and origin as tags."""
    pairs = [] if event.label is None else [(LABEL_KEYS[0], event.label)]
    pairs += [pair for pair in event.columns if pair[0] != NOTES_COLUMN]
    pairs += [] if event.origin == implied_origin else [(ORIGIN_KEY, event.origin)]
    return [data.Tag(term=_term(key), value=value) for key, value in pairs]


def _term(key: str) -> data.Term:
    return data.Term(name=key, label=key, definition="A column of an annotation table")


def _sound_event(
    recording: data.Recording, event: Event, index: int, features: Sequence[data.Feature]
) -> data.SoundEvent:
    geometry: data.BoundingBox | data.TimeInterval
    if event.low_hz is None or event.high_hz is None:
        geometry = data.TimeInterval(coordinates=[event.start_s, event.end_s])
    else:
        geometry = data.BoundingBox(coordinates=[event.start_s, event.low_hz, event.end_s, event.high_hz])
    return data.SoundEvent(
        uuid=_uuid("event", recording.uuid, index),
        recording=recording,
        geometry=geometry,
        features=list(features),
    )
