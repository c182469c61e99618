"""Match file names in tables to recordings: extensions, folders and slashes may differ."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from mast.annotations.model import Annotations, merge_metadata

AUDIO_ENDING = re.compile(r"\.(wav|wave|flac|mp3|ogg|opus|aiff?|m4a|mp4|wma|wv|wac|w4v)$", re.IGNORECASE)


def _name(name: str) -> str:
    return name.casefold().strip()


def _stem(name: str) -> str:
    return AUDIO_ENDING.sub("", _name(name)).strip(" .")


def _loose_stem(name: str) -> str:
    """Return the stem without spaces, and without leading zeros in a leading device name: `am2_1` for `am02_1`."""
    return re.sub(r"^([a-z]+)0+(?=\d)", r"\1", re.sub(r"\s+", "", _stem(name)))


NAME_MATCH_LEVELS: tuple[Callable[[str], str], ...] = (_name, _stem, _loose_stem)
"""Functions that normalise a file name for comparison, strictest first."""


@dataclass(frozen=True, slots=True)
class RecordingMatch:
    """Annotations with ids of existing recordings; excluded recordings by their name in the table."""

    annotations: Annotations
    unmatched: Mapping[str, int]
    ambiguous: Mapping[str, tuple[str, ...]]


def match_recordings(annotations: Annotations, recording_ids: Iterable[str]) -> RecordingMatch:
    """Match the recording names of annotations to recordings.

    Args:
        annotations: Annotations with recording names as written in their tables.
        recording_ids: Existing recordings.

    Returns:
        Annotations of the matched recordings. Names that match no recording (`unmatched`, with their number of
        events; 0 for a reviewed recording without events) or several recordings (`ambiguous`) are excluded and counted
        in `problems`.
    """
    resolved, ambiguous = resolve(annotations.recording_ids(), recording_ids)
    counts = Counter(event.recording_id for event in annotations.events)
    mentioned = [*counts, *(span.recording_id for span in annotations.reviewed)]
    unmatched = {name: counts[name] for name in mentioned if name not in resolved and name not in ambiguous}
    problems = Counter(annotations.problems)
    problems["event of a recording that was not found"] += sum(unmatched.values())
    problems["event with an ambiguous recording name"] += sum(counts[name] for name in ambiguous)
    problems["reviewed span of a recording that was not found or is ambiguous"] += sum(
        span.recording_id not in resolved for span in annotations.reviewed
    )
    kept = {name: resolved[name] for name in annotations.recording_ids() if name in resolved}
    matched = replace(
        annotations,
        events=tuple(event for event in annotations.events if event.recording_id in kept),
        reviewed=tuple(span for span in annotations.reviewed if span.recording_id in kept),
        recordings=tuple(item for item in annotations.recordings if item.recording_id in kept),
        problems=+problems,
    )
    return RecordingMatch(rename_recordings(matched, kept), unmatched, ambiguous)


def rename_recordings(annotations: Annotations, names: Mapping[str, str]) -> Annotations:
    """Rename recordings; those not in `names` keep their names."""

    def renamed(name: str) -> str:
        return names.get(name, name)

    return replace(
        annotations,
        events=tuple(replace(item, recording_id=renamed(item.recording_id)) for item in annotations.events),
        reviewed=tuple(
            dict.fromkeys(
                replace(item, recording_id=renamed(item.recording_id)) for item in annotations.reviewed
            )
        ),
        recordings=merge_metadata(
            replace(item, recording_id=renamed(item.recording_id)) for item in annotations.recordings
        ),
    )


def resolve(
    names: Iterable[str], recording_ids: Iterable[str]
) -> tuple[dict[str, str], dict[str, tuple[str, ...]]]:
    """Return the recording of each name, and the candidates of each name that matches several equally well.

    An exact match takes precedence; then the file name, its stem without the audio extension, and its loose stem. Of
    several recordings that match, the one that shares most folders with the name, counted from the file, is chosen.
    Recorders at several sites write the same file names: if several names match one recording, the name that shares
    most folders with it is assigned.
    """
    ids = list(dict.fromkeys(recording_ids))
    existing = set(ids)
    indexes = [_index(ids, normalise) for normalise in NAME_MATCH_LEVELS]
    resolved: dict[str, str] = {}
    ambiguous: dict[str, tuple[str, ...]] = {}
    for name in names:
        if name in existing:
            resolved[name] = name
            continue
        *folders, file = _parts(name)
        groups = (
            index.get(normalise(file)) for normalise, index in zip(NAME_MATCH_LEVELS, indexes, strict=True)
        )
        best = _nearest(folders, next((group for group in groups if group), None))
        if len(best) == 1:
            resolved[name] = best[0]
        elif best:
            ambiguous[name] = best
    _resolve_conflicts(resolved, ambiguous)
    return resolved, ambiguous


def _resolve_conflicts(resolved: dict[str, str], ambiguous: dict[str, tuple[str, ...]]) -> None:
    """Keep, for each recording, the names that share most folders with it; if their folders differ, keep none."""
    claims: dict[str, list[str]] = {}
    for name, recording_id in resolved.items():
        claims.setdefault(recording_id, []).append(name)
    for recording_id, names in claims.items():
        if len(names) == 1:
            continue
        nearest = _nearest(_parts(recording_id)[:-1], _index_by_folder(names, 1))
        folders = {tuple(map(_name, _parts(name)[:-1])) for name in nearest} - {()}
        for name in names:
            if name not in nearest or len(folders) > 1:
                del resolved[name]
            if name in nearest and len(folders) > 1:
                ambiguous[name] = (recording_id,)


def name_prefilter(names: Iterable[str]) -> Callable[[str], bool]:
    """Return a fast filter for recordings that any of these names may match; it has no false negatives."""
    keys = {_loose_stem(_parts(name)[-1]) for name in names}
    return lambda recording_id: _loose_stem(_parts(recording_id)[-1]) in keys


def _parts(name: str) -> list[str]:
    return name.replace("\\", "/").split("/")


@dataclass(frozen=True, slots=True)
class _NameIndex:
    """Recordings with equal normalised file names, indexed by their folders, from the file upwards."""

    recording_ids: tuple[str, ...]
    by_folder: Mapping[str, _NameIndex]


def _index(ids: Iterable[str], normalise: Callable[[str], str]) -> dict[str, _NameIndex]:
    groups: dict[str, list[str]] = {}
    for recording_id in ids:
        groups.setdefault(normalise(_parts(recording_id)[-1]), []).append(recording_id)
    return {name: _index_by_folder(group, 1) for name, group in groups.items()}


def _index_by_folder(ids: list[str], level: int) -> _NameIndex:
    """Index recordings by the folder `level` levels above their file; a single recording needs no index."""
    groups: dict[str, list[str]] = {}
    for recording_id in ids if len(ids) > 1 else ():
        parts = _parts(recording_id)
        if len(parts) > level:
            groups.setdefault(_name(parts[-1 - level]), []).append(recording_id)
    return _NameIndex(
        tuple(ids), {folder: _index_by_folder(group, level + 1) for folder, group in groups.items()}
    )


def _nearest(folders: list[str], group: _NameIndex | None) -> tuple[str, ...]:
    """Return the recordings of a group that share most folders with a name."""
    if group is None:
        return ()
    for folder in reversed(folders):
        subgroup = group.by_folder.get(_name(folder))
        if subgroup is None:
            break
        group = subgroup
    return group.recording_ids
