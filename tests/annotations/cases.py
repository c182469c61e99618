"""Annotations for tests: fixed examples and hypothesis strategies."""

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime

from hypothesis import settings
from hypothesis import strategies as st

from mast.annotations import Annotations, RecordingMetadata
from mast.records import Event, Recording, ReviewedSpan

NAMES = ("forest/site a/x.wav", "y.flac", "Überwald/z 01.WAV", "q.wav")
DURATION_S = 3600.0
SLOW = settings(max_examples=60, deadline=None)

words = st.text(
    st.characters(exclude_categories=("C", "Z"), include_characters=" "), min_size=1, max_size=12
).map(lambda text: f"w{text}w")
column_names = st.from_regex(r"x_[A-Za-z]{1,4}", fullmatch=True)
columns = st.dictionaries(column_names, words, max_size=2).map(lambda items: tuple(items.items()))
milliseconds = st.integers(0, 3_500_000).map(lambda count: count / 1000)
any_seconds = st.just(0.0) | st.floats(1e-6, 3500)
frequencies = st.floats(0, 24_000, allow_subnormal=False)
bands = st.none() | st.tuples(frequencies, frequencies).map(lambda pair: (min(pair), max(pair)))
moments = st.datetimes(datetime(1990, 1, 1), datetime(2090, 1, 1))


@st.composite
def events(draw, seconds=any_seconds):
    start_s, end_s = sorted((draw(seconds), draw(seconds)))
    low_hz, high_hz = draw(bands) or (None, None)
    return Event(
        recording_id=draw(st.sampled_from(NAMES)),
        start_s=start_s,
        end_s=end_s,
        low_hz=low_hz,
        high_hz=high_hz,
        label=draw(st.none() | words),
        score=draw(st.none() | st.floats(0, 1, allow_subnormal=False)),
        origin=draw(st.sampled_from(("expert", "model", "pseudo"))),
        annotator=draw(st.none() | words),
        columns=draw(columns),
    )


def spans_of(name, seconds):
    limits = st.lists(seconds, min_size=2, max_size=4, unique=True).map(sorted)
    parts = limits.map(
        lambda times: tuple(ReviewedSpan(name, *pair) for pair in zip(times[::2], times[1::2], strict=False))
    )
    open_end = seconds.filter(bool).map(lambda start_s: (ReviewedSpan(name, start_s),))
    return st.just(()) | st.just((ReviewedSpan(name),)) | parts | open_end


@st.composite
def annotations(draw, seconds=any_seconds, reviewed=True):
    """Events and reviewed spans of recordings with metadata; no recording is both completely and partly reviewed."""
    start = draw(moments).replace(tzinfo=UTC)
    metadata = tuple(
        RecordingMetadata(
            name,
            duration_s=DURATION_S,
            sample_rate_hz=48_000,
            channels=1,
            start_utc=start,
            utc_offset_min=draw(st.sampled_from((0, 60, -330))),
            site=draw(st.none() | st.sampled_from(("ridge", "swamp"))),
        )
        for name in NAMES
    )
    spans = [span for name in NAMES for span in draw(spans_of(name, seconds))] if reviewed else []
    drawn = draw(st.lists(events(seconds), max_size=5))
    return Annotations(tuple(drawn), tuple(spans), metadata)


def tidy(items):
    """Sort the free columns of events by name: a table has one order of columns for all its rows."""
    return [
        replace(item, columns=tuple(sorted(item.columns))) if isinstance(item, Event) else item
        for item in items
    ]


def same(one, other):
    """Return True if two collections have equal items, in any order."""
    return Counter(tidy(one)) == Counter(tidy(other))


def fixed_annotations():
    """Return a box, an event without frequencies, and a reviewed recording without events."""
    return Annotations(
        events=(
            Event(
                "a/x.wav",
                1.5,
                2.25,
                1000.0,
                4000.0,
                "Parus major",
                annotator="Ann",
                columns=(("Quality", "A"),),
            ),
            Event("a/x.wav", 3.0, 3.0, label=None),
        ),
        reviewed=(ReviewedSpan("a/x.wav"), ReviewedSpan("a/empty.wav")),
    )


def recording(recording_id, **values):
    collection, _, path = recording_id.partition("/")
    return Recording(recording_id, collection, path, 1000, None, "ok", **values)
