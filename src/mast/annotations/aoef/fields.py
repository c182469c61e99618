"""Names of the AOEF tags, features and notes that hold the fields of an event."""

LABEL_KEYS = (
    "dwc:scientificName",
    "species",
    "scientific_name",
    "label",
    "class",
    "event",
    "common_name",
)
"""Tags that may hold the label, in order of preference. Other tags are free columns."""

ORIGIN_KEY = "mast:origin"
SCORE_KEY = "score"
NOTES_COLUMN = "notes"
BOX_MEASURES = frozenset({"low_freq", "high_freq", "bandwidth", "duration"})
"""Features that repeat the box."""
