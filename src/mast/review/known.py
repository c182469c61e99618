"""What is known of a study before anyone reviews it: its recordings, and its experts' boxes as sounds to decide about."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mast.annotations.study import Expertise, read_expertise
from mast.config import Study
from mast.errors import ConfigError
from mast.events import Annotation, to_table
from mast.storage import exists, join, open_binary

if TYPE_CHECKING:
    import pyarrow as pa


def known_of(study: Study, study_file: str = "study.yaml") -> tuple[pa.Table, Expertise, pa.Table]:
    """Recordings, what experts say of them, and a sound for each of their boxes, in the same order.

    A box without frequencies is as high as its recording. What came of reviewing the study itself is left out, so that
    the review goes on from what it began with.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    table = join(study.work, "recordings.parquet")
    if not exists(table):
        raise ConfigError(
            f"{study_file}: its recordings are not known yet. Run mast scan {study_file} first."
        )
    with open_binary(table) as file:
        recordings = pq.read_table(file)
    expertise = read_expertise(study, recordings["recording_id"].to_pylist(), before_its_review=True)
    boxes = to_table(expertise.annotations, Annotation)
    sounds = boxes.select(["recording_id", "start_s", "end_s", "low_hz", "high_hz", "score", "label"])
    rows = pc.index_in(sounds["recording_id"], recordings["recording_id"].combine_chunks())
    tops_hz = pc.divide(pc.cast(recordings["sample_rate_hz"].take(rows), "float64"), 2.0)
    for name, missing in (("low_hz", 0.0), ("high_hz", tops_hz)):
        place = sounds.schema.get_field_index(name)
        sounds = sounds.set_column(place, name, pc.coalesce(sounds[name], missing))
    empty = pa.nulls(len(sounds), pa.string())
    for name in ("start_utc", "start_local", "utc_offset_min", "model"):
        sounds = sounds.append_column(name, empty)
    return recordings, expertise, sounds.append_column("site", recordings["site"].take(rows))
