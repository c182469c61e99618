"""Annotations as soundevent's objects; identifiers follow from content, so that the same input gives the same file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from uuid import NAMESPACE_URL, UUID, uuid5

from soundevent import data

from mast.annotations.aoef import LABEL_KEYS, NOTES_COLUMN, ORIGIN_KEY, SCORE_KEY
from mast.annotations.tables import Annotations, RecordingFacts, by_recording, local_start
from mast.errors import AnnotationError
from mast.events import Event, Reviewed

NO_FACTS = "event of a recording whose duration or sample rate is unknown: left out"
NO_TAGS = "label or free column: left out"
NO_FACTS_REVIEWED = "reviewed span of a recording whose duration or sample rate is unknown: left out"


def collection_of(
    annotations: Annotations, location: str
) -> tuple[data.AnnotationProject | data.PredictionSet | data.Dataset, Counter[str]]:
    """The fitting collection, and what it cannot hold."""
    kept, losses = _known(annotations)
    names = annotations.recording_ids()
    if names and not kept:
        raise AnnotationError(
            f"{location}: AOEF needs the duration and sample rate of recordings, and none is known. Give them with "
            "--recordings recordings.parquet, which mast scan writes."
        )
    identity = _uuid("collection", *names)
    if not annotations.events and not annotations.reviewed and not annotations.heard:
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
    """Some recordings of a larger prediction set; it has no tags, which are numbered anew in every part."""
    bare = tuple(replace(event, label=None, columns=()) for event in annotations.events)
    kept, losses = _known(replace(annotations, events=bare))
    losses[NO_TAGS] += sum(bool(event.label or event.columns) for event in annotations.events)
    return predictions_of(kept, _uuid("part", *annotations.recording_ids())), +losses


def predictions_of(kept: Sequence[tuple[data.Recording, Annotations]], identity: UUID) -> data.PredictionSet:
    """A prediction set of what a model found, or has heard in vain."""
    clips = [_predicted(recording, part) for recording, part in kept if part.events or part.heard]
    return data.PredictionSet(uuid=identity, name="MAST", clip_predictions=clips)


def _known(annotations: Annotations) -> tuple[list[tuple[data.Recording, Annotations]], Counter[str]]:
    """Recordings that AOEF can hold, with what is said about each; and what is lost with the others."""
    losses: Counter[str] = Counter()
    kept = []
    for part in by_recording(annotations).values():
        recording = _recording(part.recordings[0])
        if recording:
            kept.append((recording, part))
        else:
            losses[NO_FACTS] += len(part.events)
            losses[NO_FACTS_REVIEWED] += len(part.reviewed)
    return kept, +losses


def _uuid(*parts: object) -> UUID:
    return uuid5(NAMESPACE_URL, "mast:" + "\x1f".join(map(str, parts)))


def _recording(facts: RecordingFacts) -> data.Recording | None:
    if facts.duration_s is None or facts.sample_rate_hz is None:
        return None
    start: datetime | None = local_start(facts)
    return data.Recording(
        uuid=_uuid("recording", facts.recording_id),
        path=facts.recording_id,  # type: ignore[arg-type]
        duration=facts.duration_s,
        channels=facts.channels or 1,
        samplerate=facts.sample_rate_hz,
        date=start.date() if start else None,
        time=start.time() if start else None,
    )


def _all_predicted(annotations: Annotations) -> bool:
    """Whether a prediction set holds everything: scored by a model, looked at by nobody."""
    return not annotations.reviewed and all(
        event.origin != "expert"
        and event.annotator is None
        and event.score is not None
        and 0 <= event.score <= 1
        and NOTES_COLUMN not in dict(event.columns)
        for event in annotations.events
    )


def _predicted(recording: data.Recording, part: Annotations) -> data.ClipPrediction:
    """What a model found in a recording; the clip is as much of it as was heard."""
    items = [
        data.SoundEventPrediction(
            uuid=_uuid("prediction", recording.uuid, index),
            sound_event=_sound_event(recording, event, index, ()),
            score=event.score or 0.0,
            tags=[data.PredictedTag(tag=tag, score=event.score or 0.0) for tag in _tags(event, "model")],
        )
        for index, event in enumerate(part.events)
    ]
    heard_s = part.heard[0].effort_s if part.heard else recording.duration
    clip = _span(recording, 0.0, min(heard_s, recording.duration))
    return data.ClipPrediction(uuid=_uuid("clip", clip.uuid), clip=clip, sound_events=items)


def _annotated(
    recording: data.Recording, part: Annotations
) -> list[tuple[data.ClipAnnotation, data.AnnotationTask]]:
    """Clips of one recording: each reviewed span, done, and the whole recording, open, for events outside them."""
    spans = list(dict.fromkeys((span.start_s, _end(span, recording)) for span in part.reviewed))
    inside: dict[tuple[float, float], list[data.SoundEventAnnotation]] = {span: [] for span in spans}
    whole = (0.0, recording.duration)
    for index, event in enumerate(part.events):
        home = next((span for span in spans if span[0] <= event.start_s <= span[1]), whole)
        inside.setdefault(home, []).append(_annotation(recording, event, index))
    return [_clip(recording, span, items, done=span in spans) for span, items in inside.items()]


def _end(span: Reviewed, recording: data.Recording) -> float:
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
    """An event's label, free columns and origin as tags."""
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
