"""Recordings and annotations of a study as events to review."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mast.annotations.study_annotations import StudyAnnotations, read_study_annotations
from mast.config import Study
from mast.errors import ConfigError
from mast.records import Annotation, to_table
from mast.storage import exists, join, open_binary

if TYPE_CHECKING:
    import pyarrow as pa


def study_events(study: Study, study_file: str = "study.yaml") -> tuple[pa.Table, StudyAnnotations, pa.Table]:
    """Return the recordings, the annotations, and a table with an event for each annotation, in the same order.

    A box without frequencies spans all frequencies of its recording. The labels from a review of the study itself are
    left out, so that the review resumes from the annotations it began with.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    table = join(study.work_dir, "recordings.parquet")
    if not exists(table):
        raise ConfigError(
            f"{study_file}: the recordings are not scanned yet. Run mast scan {study_file} first."
        )
    with open_binary(table) as file:
        recordings = pq.read_table(file)
    annotations = read_study_annotations(study, recordings["recording_id"].to_pylist(), exclude_reviewed=True)
    boxes = to_table(annotations.annotations, Annotation)
    events = boxes.select(["recording_id", "start_s", "end_s", "low_hz", "high_hz", "score", "label"])
    rows = pc.index_in(events["recording_id"], recordings["recording_id"].combine_chunks())
    nyquist_hz = pc.divide(pc.cast(recordings["sample_rate_hz"].take(rows), "float64"), 2.0)
    for name, missing in (("low_hz", 0.0), ("high_hz", nyquist_hz)):
        column = events.schema.get_field_index(name)
        events = events.set_column(column, name, pc.coalesce(events[name], missing))
    empty = pa.nulls(len(events), pa.string())
    for name in ("start_utc", "start_local", "utc_offset_min", "model"):
        events = events.append_column(name, empty)
    return recordings, annotations, events.append_column("site", recordings["site"].take(rows))
