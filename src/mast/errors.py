"""Every error a user can meet, as one tree.

MastError                  something a person can put right: what happened, where, and what to do
├── ConfigError            a study file or a --set that does not say what it should
├── AudioError             a recording that cannot be read or does not hold what is asked of it
├── AnnotationError        a table of boxes that cannot be read or written
├── StorageError           a folder, file or bucket that cannot be reached
├── ModelError             a model that cannot be read, or does not fit what is asked of it
├── TrainingError          a run that cannot start, go on or make sense of its numbers
└── MissingExtraError      an optional part that is not installed

The command line prints a MastError as one message and exits with 1; anything else is a defect of MAST.
"""


class MastError(Exception):
    """Something a person can put right; its text says what happened, where, and what to do."""


class ConfigError(MastError):
    """A study file or a `--set` that does not say what it should."""


class AudioError(MastError):
    """A recording that cannot be read, or does not hold what is asked of it."""


class AnnotationError(MastError):
    """A table of boxes that cannot be read or written."""


class StorageError(MastError):
    """A folder, file or bucket that cannot be reached."""


class ModelError(MastError):
    """A model that cannot be read, or does not fit what is asked of it."""


class TrainingError(MastError):
    """A run that cannot start, go on, or make sense of its numbers."""


class MissingExtraError(MastError):
    """An optional part that is not installed; the text is the `pip install` line that brings it."""

    def __init__(self, purpose: str, extra: str) -> None:
        super().__init__(f'{purpose} needs an optional part: pip install "mast-bioacoustics[{extra}]"')
