"""Read the real recordings on which the detector that ships is tested, none of which it may learn from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from experiments.soundscapes.sources import read_rows

Box = tuple[float, float, float, float]
"""start_s, low_hz, end_s, high_hz"""

Row = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TestRecording:
    """A recording with its annotations; `spans` are the annotated parts in seconds, None for all of it."""

    path: Path
    boxes: tuple[Box, ...]
    spans: tuple[tuple[float, float], ...] | None = None


@dataclass(frozen=True, slots=True)
class TestSet:
    """A set of test recordings; if only one species is annotated, other detections may be right or wrong."""

    name: str
    taxon: str
    source: str
    time_expansion: float = 1.0
    is_complete: bool = True
    keep: Callable[[Row], bool] = lambda row: True

    def recordings(self, data: Path) -> list[TestRecording]:
        """Read the recordings and their annotations."""
        folder = data / self.source
        boxes: dict[str, list[Box]] = {}
        for row in filter(self.keep, read_rows(folder / "annotations.csv")):
            edges = (float(row[name] or limit) for name, limit in _EDGES)
            start_s, end_s, low_hz, high_hz = edges
            boxes.setdefault(row["recording"], []).append((start_s, low_hz, end_s, high_hz))
        spans: dict[str, list[tuple[float, float]]] = {}
        if (folder / "annotated_clips.csv").exists():
            for row in read_rows(folder / "annotated_clips.csv"):
                spans.setdefault(row["recording"], []).append((float(row["start_s"]), float(row["end_s"])))
        names = [row["recording"] for row in read_rows(folder / "recordings.csv")]
        return [
            TestRecording(
                folder / "audio" / name, tuple(boxes.get(name, ())), tuple(spans[name]) if spans else None
            )
            for name in names
            if (name in boxes or self.is_complete or self.name == "boobook") and (not spans or name in spans)
        ]


_EDGES = (("start_s", "0"), ("end_s", "0"), ("low_hz", "0"), ("high_hz", "1e6"))

TEST_SETS = (
    TestSet("birdeep-am1", "birds", "birdeep-am1"),
    TestSet("boobook", "owl", "qut-boobook", is_complete=False),
    TestSet("hermits", "hummingbirds", "naturesounds-est", is_complete=False,
            keep=lambda row: row["label"] == "Phaethornis longirostris"),
    TestSet("parakeets", "parrots", "naturesounds-est", is_complete=False,
            keep=lambda row: row["label"] == "Myiopsitta monachus"),
    TestSet("xc-green-hermit", "hummingbirds", "xc-green-hermit"),
    TestSet("whombat-bats", "bats", "whombat-bats", time_expansion=10.0),
)  # fmt: skip
