"""Read and write annotations in the formats of other programs, with the reviewed spans that hold no events."""

from mast.annotations.convert import Conversion, convert
from mast.annotations.formats import FORMATS, detect_format, read_annotations, write_annotations
from mast.annotations.label_map import label_kind, label_kinds
from mast.annotations.model import Annotations, RecordingMetadata, SourceFile, merge, with_recordings
from mast.annotations.recording_names import RecordingMatch, match_recordings

__all__ = [
    "FORMATS",
    "Annotations",
    "Conversion",
    "RecordingMatch",
    "RecordingMetadata",
    "SourceFile",
    "convert",
    "detect_format",
    "label_kind",
    "label_kinds",
    "match_recordings",
    "merge",
    "read_annotations",
    "with_recordings",
    "write_annotations",
]
