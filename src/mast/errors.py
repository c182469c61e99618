"""All errors that a user can fix, as one class tree.

MastError                  an error that the user can fix: what happened, where, and what to do
├── ConfigError            an invalid study file, option or --set
├── AudioError             a recording that cannot be read or lacks the requested audio
├── AnnotationError        an annotation file that cannot be read or written
├── StorageError           a folder, file or bucket that cannot be read or written
├── ModelError             a model that cannot be read or does not fit the request
├── TrainingError          a training run that cannot start or resume, or has a non-finite loss
└── MissingExtraError      an optional dependency that is not installed

The command line prints a MastError as one message and exits with 1; any other exception is a bug in MAST.
"""


class MastError(Exception):
    """Error that the user can fix; the message says what happened, where, and what to do."""


class ConfigError(MastError):
    """Invalid study file, option or `--set`."""


class AudioError(MastError):
    """Recording that cannot be read, or that lacks the requested audio."""


class AnnotationError(MastError):
    """Annotation file that cannot be read or written."""


class StorageError(MastError):
    """Folder, file or bucket that cannot be read or written."""


class ModelError(MastError):
    """Model that cannot be read, or that does not fit the request."""


class TrainingError(MastError):
    """Training run that cannot start or resume, or has a non-finite loss or gradient."""


class MissingExtraError(MastError):
    """Optional dependency that is not installed; the message has the `pip install` command."""

    def __init__(self, purpose: str, extra: str) -> None:
        super().__init__(f'{purpose} needs an optional dependency: pip install "mast-bioacoustics[{extra}]"')
