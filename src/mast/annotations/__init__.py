"""Expert boxes from and to the files others use; what was reviewed is kept, also where nothing was found."""

from mast.annotations.convert import Conversion, convert
from mast.annotations.formats import FORMATS, guess_format, read_annotations, write_annotations
from mast.annotations.labels import kind_of, kinds_of
from mast.annotations.matching import Matching, match_recordings
from mast.annotations.tables import Annotations, RecordingFacts, Source, merge, with_recordings

__all__ = [
    "FORMATS",
    "Annotations",
    "Conversion",
    "Matching",
    "RecordingFacts",
    "Source",
    "convert",
    "guess_format",
    "kind_of",
    "kinds_of",
    "match_recordings",
    "merge",
    "read_annotations",
    "with_recordings",
    "write_annotations",
]
