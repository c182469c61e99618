"""Which recording a table means: tables write file names with other endings, other folders, or Windows' slashes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from mast.annotations.tables import Annotations, join_facts

AUDIO_ENDING = re.compile(r"\.(wav|wave|flac|mp3|ogg|opus|aiff?|m4a|mp4|wma|wv|wac|w4v)$", re.IGNORECASE)


def _name(name: str) -> str:
    return name.casefold().strip()


def _stem(name: str) -> str:
    return AUDIO_ENDING.sub("", _name(name)).strip(" .")


def _loose_stem(name: str) -> str:
    """Without blanks, and with the number of a leading device name as a number: `am02_1` is `am2_1`."""
    return re.sub(r"^([a-z]+)0+(?=\d)", r"\1", re.sub(r"\s+", "", _stem(name)))


LIKENESS: tuple[Callable[[str], str], ...] = (_name, _stem, _loose_stem)
"""Ways in which file names may be alike, strictest first."""


@dataclass(frozen=True, slots=True)
class Matching:
    """Annotations under the names of recordings that exist; what was left out, by the name its table uses."""

    annotations: Annotations
    unmatched: Mapping[str, int]
    ambiguous: Mapping[str, tuple[str, ...]]


def match_recordings(annotations: Annotations, recording_ids: Iterable[str]) -> Matching:
    """Resolve names to recordings; names of none or of several are left out, counted and listed, never guessed.

    `unmatched` counts events, and is 0 for a reviewed recording without any.
    """
    resolved, ambiguous = resolve(annotations.recording_ids(), recording_ids)
    counts = Counter(event.recording_id for event in annotations.events)
    spoken_of = [*counts, *(span.recording_id for span in annotations.reviewed)]
    unmatched = {name: counts[name] for name in spoken_of if name not in resolved and name not in ambiguous}
    problems = Counter(annotations.problems)
    problems["event of a recording that was not found"] += sum(unmatched.values())
    problems["event whose recording could be one of several"] += sum(counts[name] for name in ambiguous)
    problems["reviewed span of a recording that was not found or could be one of several"] += sum(
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
    return Matching(renamed(matched, kept), unmatched, ambiguous)


def renamed(annotations: Annotations, names: Mapping[str, str]) -> Annotations:
    """Annotations with other names for their recordings; those not in `names` keep theirs."""

    def new(name: str) -> str:
        return names.get(name, name)

    return replace(
        annotations,
        events=tuple(replace(item, recording_id=new(item.recording_id)) for item in annotations.events),
        reviewed=tuple(
            dict.fromkeys(replace(item, recording_id=new(item.recording_id)) for item in annotations.reviewed)
        ),
        recordings=join_facts(
            replace(item, recording_id=new(item.recording_id)) for item in annotations.recordings
        ),
    )


def resolve(
    names: Iterable[str], recording_ids: Iterable[str]
) -> tuple[dict[str, str], dict[str, tuple[str, ...]]]:
    """Recording of each name, and the candidates of each name that fits several equally well.

    The very name wins; then the file name, its stem without the audio format's ending, and its stem loosely. Among
    recordings alike in that, the one that shares most folders with the name, counted from the file, is meant.
    Recorders at several sites write the same file names: of names that claim one recording, the nearest has it.
    """
    ids = list(dict.fromkeys(recording_ids))
    known = set(ids)
    indexes = [_index(ids, alike) for alike in LIKENESS]
    resolved: dict[str, str] = {}
    ambiguous: dict[str, tuple[str, ...]] = {}
    for name in names:
        if name in known:
            resolved[name] = name
            continue
        *folders, file = _parts(name)
        found = (index.get(alike(file)) for alike, index in zip(LIKENESS, indexes, strict=True))
        best = _nearest(folders, next((group for group in found if group), None))
        if len(best) == 1:
            resolved[name] = best[0]
        elif best:
            ambiguous[name] = best
    _settle(resolved, ambiguous)
    return resolved, ambiguous


def _settle(resolved: dict[str, str], ambiguous: dict[str, tuple[str, ...]]) -> None:
    """Leave each recording to the names that share most folders with it; if those differ in theirs, to none."""
    claims: dict[str, list[str]] = {}
    for name, recording_id in resolved.items():
        claims.setdefault(recording_id, []).append(name)
    for recording_id, names in claims.items():
        if len(names) == 1:
            continue
        nearest = _nearest(_parts(recording_id)[:-1], _told_apart(names, 1))
        folders = {tuple(map(_name, _parts(name)[:-1])) for name in nearest} - {()}
        for name in names:
            if name not in nearest or len(folders) > 1:
                del resolved[name]
            if name in nearest and len(folders) > 1:
                ambiguous[name] = (recording_id,)


def might_match(names: Iterable[str]) -> Callable[[str], bool]:
    """A quick test whether a recording may be meant by any of these names: it never misses one that is."""
    keys = {_loose_stem(_parts(name)[-1]) for name in names}
    return lambda recording_id: _loose_stem(_parts(recording_id)[-1]) in keys


def _parts(name: str) -> list[str]:
    return name.replace("\\", "/").split("/")


@dataclass(frozen=True, slots=True)
class _Alike:
    """Recordings with like file names, told apart by their folders, counted from the file up."""

    recording_ids: tuple[str, ...]
    by_folder: Mapping[str, _Alike]


def _index(ids: Iterable[str], alike: Callable[[str], str]) -> dict[str, _Alike]:
    groups: dict[str, list[str]] = {}
    for recording_id in ids:
        groups.setdefault(alike(_parts(recording_id)[-1]), []).append(recording_id)
    return {name: _told_apart(group, 1) for name, group in groups.items()}


def _told_apart(ids: list[str], level: int) -> _Alike:
    """Recordings by the folder `level` above their file; a single one needs no telling."""
    groups: dict[str, list[str]] = {}
    for recording_id in ids if len(ids) > 1 else ():
        parts = _parts(recording_id)
        if len(parts) > level:
            groups.setdefault(_name(parts[-1 - level]), []).append(recording_id)
    return _Alike(tuple(ids), {folder: _told_apart(group, level + 1) for folder, group in groups.items()})


def _nearest(folders: list[str], group: _Alike | None) -> tuple[str, ...]:
    """Recordings of a group that share the most folders with a name."""
    if group is None:
        return ()
    for folder in reversed(folders):
        nearer = group.by_folder.get(_name(folder))
        if nearer is None:
            break
        group = nearer
    return group.recording_ids
