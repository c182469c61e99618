"""`mast init`: a first study file, written after a look at the recordings and the experts' tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import yaml

from mast.annotations import guess_format, read_annotations
from mast.config import AnnotationFormat
from mast.recordings.find import walk
from mast.recordings.metadata import Naming
from mast.recordings.probe import probe

LOOKED_AT = 200
"""So many recordings tell enough about the habits of a card."""


@dataclass(frozen=True, slots=True)
class Sighting:
    """What the first recordings of a folder tell about all of them."""

    recordings: int
    more: bool
    sites: tuple[str, ...]
    without_site: int
    without_zone: int
    rates_hz: tuple[int, ...]

    def summary(self) -> str:
        """What was seen, for a person to read."""
        rates = ", ".join(f"{rate_hz / 1000:g} kHz" for rate_hz in self.rates_hz) or "unknown rate"
        shown = ", ".join(self.sites[:6]) + (" …" if len(self.sites) > 6 else "")
        lines = [f"{'The first ' if self.more else ''}{self.recordings} recordings: {rates}"]
        lines += [f"  sites: {shown}"] if self.sites else []
        lines += [f"  {self.without_site} without a site"] if self.without_site else []
        lines += (
            [f"  {self.without_zone} whose clock does not say its time zone"] if self.without_zone else []
        )
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Tables:
    """What the experts' tables hold: their format, and every label with its number of events."""

    path: str
    format: AnnotationFormat
    labels: Counter[str]

    def summary(self) -> str:
        """What the tables hold, for a person to read."""
        named = ", ".join(f"{label} ({count})" for label, count in self.labels.most_common(12))
        return f"{self.path}: {self.format}, labels: {named or 'none'}{' …' if len(self.labels) > 12 else ''}"


@dataclass(frozen=True, slots=True)
class Answers:
    """What goes into a study file besides the defaults."""

    recordings: str
    site: str | None = None
    time_zone: str | None = None
    tables: Tables | None = None
    noise: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    preset: str = "laptop"


def look_at_recordings(root: str, naming: Naming) -> Sighting:
    """Probe the first recordings below a folder."""
    found = list(islice((item for item in walk(root, Counter()) if not item.fault), LOOKED_AT + 1))
    probed = [probe(root, "", item.path, naming) for item in found[:LOOKED_AT]]
    usable = [item for item in probed if item.status != "quarantined"]
    return Sighting(
        recordings=len(probed),
        more=len(found) > LOOKED_AT,
        sites=tuple(sorted({item.site for item in usable if item.site})),
        without_site=sum(item.site is None for item in usable),
        without_zone=sum("no-time-zone" in item.faults for item in usable),
        rates_hz=tuple(sorted({item.sample_rate_hz for item in usable if item.sample_rate_hz})),
    )


def look_at_tables(path: str, format_: AnnotationFormat | None = None) -> Tables:
    """Read the experts' tables for their format and labels."""
    known = format_ or guess_format(path)
    labels = Counter(event.label for event in read_annotations(path, known).events if event.label)
    return Tables(path, known, labels)


def write_draft(answers: Answers, out: Path) -> str:
    """A study file with a comment at every choice, its paths relative to where it will stand."""
    name = Path(answers.recordings.rstrip("/")).name or "recordings"
    lines = [
        "# A study: where the sound is, what experts said about it, and how it is used.",
        "# Every setting that is not here has its default; `mast config` shows them all.",
        "",
        "# laptop: a small model for any machine, which held best at new sites; paper: for a GPU; trial: to try commands",
        f"preset: {answers.preset}",
        "",
        "work: work                      # everything MAST makes goes here",
        "",
        "collections:",
        f"  {_plain(name)}:",
        f"    root: {_plain(_relative(answers.recordings, out))}",
        *_option("site", answers.site, '"{site}/*"', "where paths name the site"),
        *_option("time_zone", answers.time_zone, "Europe/Madrid", "of clocks that do not say theirs"),
        "    # time_expansion: 10        # for bats: read 384 kHz at a tenth of its speed",
        "",
        "# Sounds from 20 Hz to 8 kHz are heard. Many insects, some frogs and birds call above: then take both of these.",
        "# chunking: {sample_rate_hz: 32000}",
        "# spectrogram: {high_hz: 16000}",
        "",
        *_annotations(answers, out),
        "",
        "splits:                         # shares of the reviewed sound; see mast splits",
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
            "# annotations:                  # none yet: mast budget proposes what to annotate",
            "#   - {path: boxes, format: raven}",
        ]
    others = set(answers.noise) | set(answers.ignored)
    animals = [label for label, _ in answers.tables.labels.most_common() if label not in others]
    return [
        "annotations:",
        f"  - path: {_plain(_relative(answers.tables.path, out))}",
        f"    format: {answers.tables.format}",
        "",
        "labels:                         # a label that stands nowhere here is refused",
        f"  animal: {_flow(animals or ['*'])}",
        f"  noise: {_flow(answers.noise)}       # other sounds: hard negatives",
        f"  ignored: {_flow(answers.ignored)}     # neither",
    ]


def _option(name: str, value: str | None, example: str, meaning: str) -> list[str]:
    if value is None:
        return [f"    # {f'{name}: {example}':<26}# {meaning}"]
    return [f"    {f'{name}: {_plain(value)}':<28}# {meaning}"]


def _relative(path: str, out: Path) -> str:
    """A path as the study file should say it: from where the file stands, if it lies below."""
    if "://" in path:
        return path
    folder, target = out.absolute().parent, Path(path).absolute()
    return target.relative_to(folder).as_posix() if target.is_relative_to(folder) else str(target)


def _plain(text: str) -> str:
    """Text as one YAML value on one line."""
    return yaml.safe_dump(text, allow_unicode=True, width=10_000).removesuffix("...\n").strip()


def _flow(items: Sequence[str]) -> str:
    dumped = yaml.safe_dump(list(items), default_flow_style=True, allow_unicode=True, width=10_000)
    return dumped.strip()
