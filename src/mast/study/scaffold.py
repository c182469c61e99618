"""Write a first study file from a preview of the recordings and annotations (`mast init`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import yaml

from mast.annotations import detect_format, read_annotations
from mast.config import AnnotationFormat
from mast.recordings.discover_files import walk
from mast.recordings.metadata import NamingScheme
from mast.recordings.probe import probe
from mast.wording import counted

PREVIEW_FILES = 200
"""Number of recordings in a preview: enough to see the naming and format of a card."""


@dataclass(frozen=True, slots=True)
class RecordingsPreview:
    """Sites, zones and sample rates of the first recordings of a folder."""

    recordings: int
    more: bool
    sites: tuple[str, ...]
    without_site: int
    without_zone: int
    rates_hz: tuple[int, ...]

    def summary(self) -> str:
        """Describe the preview for the user."""
        rates = ", ".join(f"{rate_hz / 1000:g} kHz" for rate_hz in self.rates_hz) or "unknown rate"
        shown = ", ".join(self.sites[:6]) + (" …" if len(self.sites) > 6 else "")
        lines = [f"{'The first ' if self.more else ''}{counted(self.recordings, 'recording')}: {rates}"]
        lines += [f"  sites: {shown}"] if self.sites else []
        lines += [f"  {self.without_site} without a site"] if self.without_site else []
        lines += [f"  {self.without_zone} without a time zone"] if self.without_zone else []
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class AnnotationsPreview:
    """Format of the annotation files, and every label with its number of annotations."""

    path: str
    format: AnnotationFormat
    labels: Counter[str]

    def summary(self) -> str:
        """Describe format and labels for the user."""
        labels = ", ".join(f"{label} ({count})" for label, count in self.labels.most_common(12))
        return (
            f"{self.path}: {self.format}, labels: {labels or 'none'}{' …' if len(self.labels) > 12 else ''}"
        )


@dataclass(frozen=True, slots=True)
class Answers:
    """Values of a study file that differ from the defaults."""

    recordings: str
    site: str | None = None
    time_zone: str | None = None
    tables: AnnotationsPreview | None = None
    noise: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    preset: str = "laptop"


def preview_recordings(root: str, naming: NamingScheme) -> RecordingsPreview:
    """Probe the first recordings below a folder."""
    files = list(islice((file for file in walk(root, Counter()) if not file.fault), PREVIEW_FILES + 1))
    probed = [probe(root, "", file.path, naming) for file in files[:PREVIEW_FILES]]
    usable = [recording for recording in probed if recording.status != "quarantined"]
    return RecordingsPreview(
        recordings=len(probed),
        more=len(files) > PREVIEW_FILES,
        sites=tuple(sorted({recording.site for recording in usable if recording.site})),
        without_site=sum(recording.site is None for recording in usable),
        without_zone=sum("no-time-zone" in recording.faults for recording in usable),
        rates_hz=tuple(
            sorted({recording.sample_rate_hz for recording in usable if recording.sample_rate_hz})
        ),
    )


def look_at_tables(path: str, format_: AnnotationFormat | None = None) -> AnnotationsPreview:
    """Read annotation files for their format and labels."""
    file_format = format_ or detect_format(path)
    labels = Counter(event.label for event in read_annotations(path, file_format).events if event.label)
    return AnnotationsPreview(path, file_format, labels)


def write_draft(answers: Answers, out: Path) -> str:
    """Return the text of a study file with a comment at every choice and paths relative to `out`."""
    name = Path(answers.recordings.rstrip("/")).name or "recordings"
    lines = [
        "# A study: its recordings, their annotations, and the settings.",
        "# A setting that is not listed here has its default value; `mast show-config` prints all settings.",
        "",
        "# starter: from the installed detector, in minutes; laptop: a small vision transformer for any machine;",
        "# paper: for a GPU; trial: to test commands",
        f"preset: {answers.preset}",
        "",
        "work_dir: work                  # folder for all outputs of MAST",
        "",
        "collections:",
        f"  {_plain(name)}:",
        f"    root: {_plain(_relative(answers.recordings, out))}",
        *_option("site", answers.site, '"{site}/*"', "where the path contains the site"),
        *_option("time_zone", answers.time_zone, "Europe/Madrid", "of clocks that do not state their zone"),
        "    # time_expansion: 10        # for bats: read 384 kHz at a tenth of its speed",
        "",
        "# The detector covers 20 Hz to 8 kHz. Many insects and some frogs and birds call above: then set both options.",
        "# chunking: {sample_rate_hz: 32000}",
        "# spectrogram: {high_hz: 16000}",
        "",
        *_annotations(answers, out),
        "",
        "splits:                         # fractions of the reviewed audio; see mast split",
        "  train: 0.70",
        "  val: 0.15",
        "  test: 0.15",
        "  # held_out:                   # test sets under shift, by name",
        "  #   other-days: {dates: [2024-05-12]}",
        "  #   other-sites: {sites: [B1]}",
    ]
    return "\n".join(lines) + "\n"


def _annotations(answers: Answers, out: Path) -> list[str]:
    if answers.tables is None:
        return [
            "# annotations:                  # none yet: mast sample selects spans to annotate",
            "#   - {path: boxes, format: raven}",
        ]
    others = set(answers.noise) | set(answers.ignore)
    animals = [label for label, _ in answers.tables.labels.most_common() if label not in others]
    return [
        "annotations:",
        f"  - path: {_plain(_relative(answers.tables.path, out))}",
        f"    format: {answers.tables.format}",
        "",
        "labels:                         # a label that is not listed here is an error",
        f"  animal: {_flow(animals or ['*'])}",
        f"  noise: {_flow(answers.noise)}       # other sounds: hard negatives",
        f"  ignore: {_flow(answers.ignore)}     # neither",
    ]


def _option(name: str, value: str | None, example: str, meaning: str) -> list[str]:
    if value is None:
        return [f"    # {f'{name}: {example}':<26}# {meaning}"]
    return [f"    {f'{name}: {_plain(value)}':<28}# {meaning}"]


def _relative(path: str, out: Path) -> str:
    """Return a path relative to the study file's folder if it is below that folder, else absolute."""
    if "://" in path:
        return path
    folder, target = out.absolute().parent, Path(path).absolute()
    return target.relative_to(folder).as_posix() if target.is_relative_to(folder) else str(target)


def _plain(text: str) -> str:
    """Format text as a YAML value on one line."""
    return yaml.safe_dump(text, allow_unicode=True, width=10_000).removesuffix("...\n").strip()


def _flow(items: Sequence[str]) -> str:
    dumped = yaml.safe_dump(list(items), default_flow_style=True, allow_unicode=True, width=10_000)
    return dumped.strip()
