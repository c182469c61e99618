"""The public Python names of MAST. `mast/__init__.py` imports each of them on first use.

Heavy imports (torch, matplotlib, lance) happen inside the functions, so that `import mast` takes milliseconds.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast, get_args

from mast.config import AnnotationFormat, Detection, Study
from mast.config import load_study as _load_study
from mast.errors import AudioError, ConfigError, ModelError
from mast.version import STARTER

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from mast.annotations import Annotations
    from mast.detection.chunk_detector import ModelChunkDetector
    from mast.detection.detections import Detections
    from mast.embeddings.box_encoder import BoxEncoder, Layers
    from mast.embeddings.vector_search import Neighbour
    from mast.evaluation.evaluate import EvaluationResult
    from mast.models.checkpoint import ModelInfo
    from mast.models.loading import AnyEncoder
    from mast.records import Event, Recording
    from mast.training.run_dir import TrainingRun

Location = str | os.PathLike[str]
"""A file or folder: a local path, s3://bucket/key, or for models hf://owner/name."""


class Model:
    """A model in memory: a detector, or an encoder. Make one with `mast.load_model`.

    Attributes:
        info: Content of the model's `model.json`: kind, spectrogram, chunk length, licence, source, measured results.
    """

    def __init__(self, location: Location, device: str = "auto") -> None:
        from mast.models.location import require_model

        require_model(os.fspath(location))
        from mast.models.checkpoint import read_model_info
        from mast.models.loading import LoadedModel, load_detector, load_encoder

        self._location, self._device = os.fspath(location), device
        self.info: ModelInfo = read_model_info(self._location)
        detector = load_detector(self._location) if self.info.kind == "detector" else None
        self._loaded_detector = detector
        self._loaded_encoder = (
            LoadedModel(self.info, cast("AnyEncoder", detector.network.encoder), detector.frontend)
            if detector
            else load_encoder(self._location)
        )
        self._detectors: dict[Detection, ModelChunkDetector] = {}
        self._encoders: dict[Layers, BoxEncoder] = {}

    def __repr__(self) -> str:
        return f"Model({self.info.kind} {self.info.identity}, {self._location!r})"

    def detect(
        self,
        path: Location,
        *,
        min_score: float | None = None,
        site: str | None = None,
        time_zone: str | None = None,
        time_expansion: float = 1.0,
    ) -> Detections:
        """Detect animal sounds in a recording of any length, sample rate and format that libsndfile reads.

        Args:
            path: A sound file, on disk or at s3://….
            min_score: Smallest score to report. By default the threshold that the model was saved with.
            site: The recording's site. By default it is read from the file's header, name or folder.
            time_zone: Zone of a clock that does not state its own, such as `Europe/Madrid`.
            time_expansion: Factor by which the recording is slowed down before detection: 10 for bats.

        Returns:
            The events, by start, each a box in seconds and Hz with a score.

        Raises:
            AudioError: The recording cannot be read.
            ModelError: The model is an encoder, not a detector.

        Example:
            >>> model = mast.load_model("model")
            >>> detections = model.detect("card/A1/20240510_053000.WAV", time_zone="Europe/Madrid")
            >>> detections.to_pandas().columns[:4].tolist()
            ['recording_id', 'start_s', 'end_s', 'low_hz']
        """
        detections = self.detect_many(
            [path], min_score=min_score, site=site, time_zone=time_zone, time_expansion=time_expansion
        )
        for reason in detections.failed.values():
            raise AudioError(reason)
        return detections

    def detect_many(
        self,
        paths: Iterable[Location],
        *,
        min_score: float | None = None,
        site: str | None = None,
        time_zone: str | None = None,
        time_expansion: float = 1.0,
    ) -> Detections:
        """Detect animal sounds in several recordings, one after the other.

        A recording that cannot be read does not end the call: it is listed with its reason in `failed`, and events
        before the point of failure are kept. For more recordings than fit in memory, run `mast detect`.

        Args:
            paths: Sound files, on disk or at s3://….
            min_score: Smallest score to report. By default the threshold that the model was saved with.
            site: Site of all recordings. By default it is read from each file's header, name or folder.
            time_zone: Zone of clocks that do not state their own, such as `Europe/Madrid`.
            time_expansion: Factor by which recordings are slowed down before detection: 10 for bats.

        Returns:
            The events of all recordings, in the order of `paths` and then by start.

        Raises:
            ModelError: The model is an encoder, not a detector.

        Example:
            >>> detections = mast.load_model("model").detect_many(["card/A1/20240510_053000.WAV", "missing.wav"])
            >>> list(detections.failed)
            ['missing.wav']
        """
        from mast.detection.detect import detect_recording
        from mast.detection.detections import Detections
        from mast.recordings.metadata import NamingScheme
        from mast.recordings.probe import probe

        detector, naming = self._open_detector(min_score), NamingScheme(time_zone=time_zone)
        events: list[Event] = []
        recordings: dict[str, Recording] = {}
        failed: dict[str, str] = {}
        for path in [os.fspath(item) for item in paths]:
            folder, _, name = path.rpartition("/")
            above, _, parent = folder.rpartition("/")  # the site may be the name of the parent folder
            inside = f"{parent}/{name}" if parent else name
            recording = probe(above or ("/" if path.startswith("/") else "."), "", inside, naming)
            recordings[path] = replace(recording, site=site or recording.site)
            try:
                for event in detect_recording(
                    path, detector, min_score=min_score, time_expansion=time_expansion
                ):
                    events.append(event)  # events before a failure are kept
            except AudioError as error:
                failed[path] = str(error)
        return Detections(events, recordings, self.info.identity, failed)

    def embed(
        self, path: Location, events: Sequence[Event], *, layers: str = "last", time_expansion: float = 1.0
    ) -> NDArray[np.float32]:
        """Compute an embedding for each event of a recording: similar sounds have similar vectors.

        Args:
            path: The recording.
            events: Boxes in the recording's own seconds and Hz, such as detections or annotations.
            layers: `last` for the encoder's last layer, `blocks` for the mean of its last three.
            time_expansion: Factor by which the recording is slowed down: 10 for bats.

        Returns:
            One unit vector for each event, (N, C). A row is NaN where the event has no audio or lies outside the
            encoder's frequency band.

        Raises:
            AudioError: The recording cannot be read.
            ConfigError: `layers` is neither `last` nor `blocks`.

        Example:
            >>> model = mast.load_model("model")
            >>> path = "card/A1/20240510_053000.WAV"
            >>> model.embed(path, [mast.Event(path, 1.0, 2.0, 1000.0, 4000.0)]).shape[0]
            1
        """
        import numpy as np

        from mast.audio.reader import open_audio
        from mast.embeddings.box_encoder import BoxEncoder, embed_boxes, parse_layers

        chosen = parse_layers(layers)
        if chosen not in self._encoders:
            self._encoders[chosen] = BoxEncoder(self._loaded_encoder, chosen, self._device)
        encoder = self._encoders[chosen]
        unbounded = [event for event in events if event.low_hz is None or event.high_hz is None]
        if unbounded:
            raise ConfigError(f"{unbounded[0]}: an embedding needs both frequency limits.")
        bounds = np.array(
            [(event.start_s, event.low_hz, event.end_s, event.high_hz) for event in events], np.float64
        ).reshape(-1, 4)
        with open_audio(os.fspath(path), encoder.rate_hz, time_expansion) as audio:
            vectors, rows = embed_boxes(audio, bounds, encoder, time_expansion)
        result = np.full((len(events), encoder.width), np.nan, np.float32)
        result[rows] = vectors
        return result

    def _open_detector(self, min_score: float | None) -> ModelChunkDetector:
        from mast.detection.chunk_detector import ModelChunkDetector
        from mast.detection.detect import detection_settings

        if self.info.kind != "detector" or self._loaded_detector is None:
            raise ModelError(
                f"{self._location} is an {self.info.kind}, which cannot detect. Train a detector from it: "
                f"mast train STUDY --set train.init_from={self._location}"
            )
        settings = detection_settings(self.info, min_score)
        if settings not in self._detectors:
            self._detectors[settings] = ModelChunkDetector(self._loaded_detector, settings, self._device)
        return self._detectors[settings]


def load_model(location: Location = STARTER, *, device: str = "auto") -> Model:
    """Load a detector or an encoder once, to use it on any number of recordings.

    Args:
        location: A name that `mast models` lists, a model folder, s3://bucket/prefix or hf://owner/name. By default the
            detector that is installed with MAST.
        device: `auto`, `cpu` or `cuda`.

    Returns:
        The model, with `detect`, `detect_many` and `embed`.

    Raises:
        ModelError: The location holds no model that this version of MAST can read.

    Example:
        >>> model = mast.load_model("model")
        >>> model.info.kind
        'detector'
    """
    return Model(location, device)


def detect(
    path: Location, model: Location | Model = STARTER, *, min_score: float | None = None, device: str = "auto"
) -> Detections:
    """Detect animal sounds in one recording. For several recordings use `load_model`, which loads the model once.

    Args:
        path: A sound file, on disk or at s3://….
        model: A name that `mast models` lists, a model folder, s3://…, hf://owner/name, or a loaded model. By default the
            detector that is installed with MAST.
        min_score: Smallest score to report. By default the threshold that the model was saved with.
        device: `auto`, `cpu` or `cuda`.

    Returns:
        The events, by start, each a box in seconds and Hz with a score.

    Raises:
        AudioError: The recording cannot be read.
        ModelError: The location holds no detector.

    Example:
        >>> detections = mast.detect("card/A1/20240510_053000.WAV", "model")
        >>> all(event.start_s < event.end_s for event in detections)
        True
    """
    opened = model if isinstance(model, Model) else load_model(model, device=device)
    return opened.detect(path, min_score=min_score)


def load_audio(
    path: Location,
    *,
    sample_rate_hz: int | None = None,
    start_s: float = 0.0,
    duration_s: float | None = None,
) -> tuple[NDArray[np.float32], int]:
    """Decode a span of a recording as mono audio.

    Args:
        path: A sound file, on disk or at s3://….
        sample_rate_hz: Sample rate to resample to. By default the file's own.
        start_s: Start of the span.
        duration_s: Length of the span. By default to the end of the recording.

    Returns:
        Samples from -1 to 1, and their sample rate in Hz.

    Raises:
        AudioError: The recording cannot be read.

    Example:
        >>> wave, rate_hz = mast.load_audio("card/A1/20240510_053000.WAV", sample_rate_hz=16_000, duration_s=1.0)
        >>> len(wave), rate_hz
        (16000, 16000)
    """
    from mast.audio.reader import open_audio

    with open_audio(os.fspath(path), sample_rate_hz) as audio:
        length_s = audio.duration_s - start_s if duration_s is None else duration_s
        return audio.read(start_s, max(0.0, length_s)), audio.sample_rate_hz


def plot_spectrogram(
    path: Location,
    events: Sequence[Event] = (),
    *,
    start_s: float = 0.0,
    end_s: float | None = None,
    low_hz: float = 0.0,
    high_hz: float | None = None,
) -> Figure:
    """Plot the spectrogram of a recording with boxes around its events.

    Args:
        path: A sound file, on disk or at s3://….
        events: Detections or annotations. Those of other recordings are left out.
        start_s: Start of the span to plot.
        end_s: End of the span. By default a minute after the start.
        low_hz: Lower limit of the frequency axis.
        high_hz: Upper limit. By default the Nyquist frequency.

    Returns:
        A matplotlib figure, to show in a notebook or to write with `savefig`.

    Raises:
        AudioError: The recording cannot be read, or has no audio in the span.

    Example:
        >>> mast.plot_spectrogram("card/A1/20240510_053000.WAV", end_s=10).savefig("spectrogram.png")
    """
    from mast.plotting.plot_recording import recording_figure

    location = os.fspath(path)
    own = [event for event in events if event.recording_id == location]
    return recording_figure(location, own, span_s=(start_s, end_s), band_hz=(low_hz, high_hz))[0]


def read_annotations(path: Location, format: AnnotationFormat | None = None) -> Annotations:  # noqa: A002
    """Read annotations from a file or a folder of files.

    Args:
        path: A Raven selection table, Audacity label track, AOEF or BatDetect2 JSON, Camtrap-DP folder, BIRDeep,
            Audubon Core or plain CSV; or a folder of them.
        format: Name of the format, such as `raven`. By default it is detected.

    Returns:
        The annotations: `events`, `reviewed` spans, `recordings` and counted `problems`.

    Raises:
        AnnotationError: The file cannot be read or its format is unknown.

    Example:
        >>> annotations = mast.read_annotations("boxes")
        >>> annotations.events[0].origin
        'expert'
    """
    from mast.annotations import detect_format
    from mast.annotations import read_annotations as read

    location = os.fspath(path)
    return read(location, format or detect_format(location))


def write_annotations(
    annotations: Annotations | Detections,
    path: Location,
    format: AnnotationFormat,  # noqa: A002
) -> Counter[str]:
    """Write annotations or detections in a format that other programs read.

    Args:
        annotations: What `read_annotations` returned, or detections.
        path: File or folder to write.
        format: `raven`, `audacity`, `csv`, `aoef`, `batdetect2`, `birdeep`, `audubon-core` or `camtrap-dp`.

    Returns:
        Count of everything that the format cannot hold, by description. Empty if nothing was lost.

    Raises:
        ConfigError: The format is unknown.
        StorageError: The file cannot be written.

    Example:
        >>> detections = mast.detect("card/A1/20240510_053000.WAV", "model")
        >>> sorted(mast.write_annotations(detections, "selections.txt", "raven"))  # doctest: +ELLIPSIS
        [...]
    """
    from mast.annotations import Annotations
    from mast.annotations import write_annotations as write

    if format not in get_args(AnnotationFormat):
        raise ConfigError(f"Format {format!r}: use {', '.join(get_args(AnnotationFormat))}.")
    location = os.fspath(path)
    if isinstance(annotations, Annotations):
        return write(annotations, location, format)
    recordings = tuple(annotations.recordings.values())
    return write(Annotations(tuple(annotations)), location, format, recordings)


def load_study(path: Location | None = None, overrides: Sequence[str] = ()) -> Study:
    """Load the settings of a study.

    Args:
        path: The study's YAML file. Without one, all settings have their defaults.
        overrides: Settings to change, as `key=value`, such as `train.epochs=5`.

    Returns:
        The validated settings.

    Raises:
        ConfigError: A setting is unknown or has an invalid value.

    Example:
        >>> mast.load_study("study.yaml", ["train.epochs=5"]).train.epochs
        5
    """
    return _load_study(None if path is None else Path(path), overrides)


def pretrain(
    study: Study | Location, *, run_name: str = "main", out: Location | None = None, device: str = "auto"
) -> TrainingRun:
    """Pretrain an encoder on a study's unlabelled recordings (masked-audio pretraining).

    The study must be scanned, split and prepared. A run that was interrupted resumes.

    Args:
        study: A study, or its YAML file.
        run_name: Name of the run's folder.
        out: Folder of runs. By default `runs` in the study's work folder.
        device: `auto`, `cpu` or `cuda`.

    Returns:
        The run: `folder`, `model` (what `load_model` takes) and `is_finished`.

    Raises:
        StorageError: The study is not prepared.
        TrainingError: Training cannot go on.

    Example:
        >>> study = mast.load_study("study.yaml")
        >>> mast.pretrain(study).is_finished  # doctest: +SKIP
        True
    """
    from mast.training.pretrain import pretrain_study

    settings, run = _training_run("pretrain", study, run_name, out)
    pretrain_study(settings, run, device)
    return run


def train(
    study: Study | Location, *, run_name: str = "main", out: Location | None = None, device: str = "auto"
) -> TrainingRun:
    """Train a detector on a study's annotated recordings.

    The study must be scanned, split and prepared. A run that was interrupted resumes.

    Args:
        study: A study, or its YAML file.
        run_name: Name of the run's folder.
        out: Folder of runs. By default `runs` in the study's work folder.
        device: `auto`, `cpu` or `cuda`.

    Returns:
        The run: `folder`, `model` (what `load_model` takes) and `is_finished`.

    Raises:
        StorageError: The study is not prepared.
        TrainingError: There is nothing to train on, or training cannot go on.

    Example:
        >>> run = mast.train(mast.load_study("study.yaml"))
        >>> model = mast.load_model(run.model)
    """
    from mast.training.supervised import train_study

    settings, run = _training_run("train", study, run_name, out)
    train_study(settings, run, device)
    return run


def evaluate(
    study: Study | Location,
    model: Location,
    *,
    out: Location | None = None,
    splits: Sequence[str] = (),
    device: str = "auto",
) -> EvaluationResult:
    """Evaluate a detector on a study's test sets and write a report.

    Args:
        study: A study, or its YAML file.
        model: A model folder, s3://… or hf://owner/name.
        out: Folder for the report and the result files. By default one in the study's work folder.
        splits: Splits to evaluate on. By default `test` and all held-out sets.
        device: `auto`, `cpu` or `cuda`.

    Returns:
        The metrics with their confidence intervals, and the folder of the report.

    Raises:
        StorageError: The study is not prepared.
        ModelError: The location holds no detector for this study's chunks.

    Example:
        >>> result = mast.evaluate("study.yaml", "model", out="evaluation")
        >>> 0 <= result.results.sets[0].matching_modes["iou"].metrics["recall"].value <= 1
        True
    """
    from mast.evaluation.evaluate import evaluate_study

    settings = study if isinstance(study, Study) else load_study(study)
    folder = None if out is None else os.fspath(out)
    return evaluate_study(settings, os.fspath(model), folder, tuple(splits), device)


def search(
    events: Location,
    query: Event | str,
    *,
    top: int = 100,
    sites: Sequence[str] = (),
    min_score: float | None = None,
) -> list[Neighbour]:
    """Search a run's detections for the ones most similar to a query.

    Args:
        events: Folder of a detection run, after `mast embed`.
        query: A box in any recording, or the `event_id` of one of the run's events.
        top: Number of results.
        sites: Only events of these sites.
        min_score: Only events with at least this score.

    Returns:
        Pairs of `similarity` (cosine) and `event`, the most similar first.

    Raises:
        StorageError: The run has no embeddings.

    Example:
        >>> box = mast.Event("card/A1/20240510_053000.WAV", 1.0, 2.0, 1000.0, 4000.0)
        >>> [round(neighbour.similarity, 2) <= 1 for neighbour in mast.search("events", box, top=1)]
        [True]
    """
    from mast.embeddings.vector_search import SearchFilter
    from mast.embeddings.vector_search import search as search_events

    chosen = SearchFilter(sites=tuple(sites), min_score=min_score)
    if isinstance(query, str):
        return search_events(os.fspath(events), query_event=query, search_filter=chosen, top=top)
    return search_events(os.fspath(events), query, search_filter=chosen, top=top)


def _training_run(
    command: str, study: Study | Location, run_name: str, out: Location | None
) -> tuple[Study, TrainingRun]:
    from mast.training.run_dir import run_folder

    settings = study if isinstance(study, Study) else load_study(study)
    return settings, run_folder(settings.work_dir, command, run_name, None if out is None else Path(out))
