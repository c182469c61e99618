"""Plot a benchmark: a spectrogram of every site with its boxes, and call rates over the day."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from experiments.soundscapes.scene import MINUTE_S
from experiments.soundscapes.sites import Site, World, rates
from mast.annotations import read_annotations
from mast.audio.reader import open_audio
from mast.plotting.spectrogram import plot_spectrogram
from mast.records import Event

SHOWN_S = 12.0
WIDTH_IN, STRIP_IN, CURVES_IN, DPI = 10.0, 1.7, 2.0, 100
COLOURS = 256
"""Colours of the palette: enough for spectrograms, at half of the file size."""


def plot_benchmark(folder: Path, world: World) -> Path:
    """Plot a benchmark into `soundscapes.png` beside its study file."""
    events = read_annotations(folder / "boxes", "raven").events
    figures = [*(_strip(folder, site, events) for site in world.sites), _curves(world)]
    parts = [_image(figure) for figure in figures]
    image = Image.new("RGB", (parts[0].width, sum(part.height for part in parts)))
    top = 0
    for part in parts:
        image.paste(part, (0, top))
        top += part.height
    image.quantize(COLOURS, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE).save(
        folder / "soundscapes.png", optimize=True
    )
    return folder / "soundscapes.png"


def _strip(folder: Path, site: Site, events: Sequence[Event]) -> Figure:
    """Plot the annotated seconds of a site with the most calls; all boxes in one colour."""
    site_events = [event for event in events if event.recording_id.startswith(f"{site.name}/")]
    names = sorted(
        path.relative_to(folder / "card").as_posix() for path in folder.glob(f"card/{site.name}/*")
    )
    spans = [
        (name, start_s, start_s + SHOWN_S)
        for name in names
        for start_s in np.arange(0.0, MINUTE_S - SHOWN_S + 1, 5).tolist()
    ]
    visible = [[replace(event, label=None) for event in site_events if _is_in(event, span)] for span in spans]
    best = max(range(len(spans)), key=lambda number: len(visible[number]))
    name, start_s, end_s = spans[best]
    with open_audio(str(folder / "card" / name), None) as audio:
        figure = plot_spectrogram(audio, (start_s, end_s), visible[best], title=name)
    figure.set_size_inches(WIDTH_IN, STRIP_IN)
    figure.axes[0].set_xlabel("")
    return figure


def _is_in(event: Event, span: tuple[str, float, float]) -> bool:
    name, start_s, end_s = span
    return event.recording_id == name and event.end_s > start_s and event.start_s < end_s


def _curves(world: World) -> Figure:
    """Plot calls per minute over the day at every site: of each species, and of all species in black."""
    figure = Figure(figsize=(WIDTH_IN, CURVES_IN), layout="constrained")
    hours = np.arange(0, 24.1, 0.25)
    for site, axes in zip(world.sites, figure.subplots(1, len(world.sites), sharey=True), strict=True):
        labels = [voice.label for voice in site.voices]
        hourly = [rates(site, labels, float(hour)) for hour in hours]
        for label in labels:
            axes.plot(hours, [row[label] for row in hourly], linewidth=0.8)
        axes.plot(hours, [sum(row.values()) for row in hourly], color="black", linewidth=1.6)
        axes.set_title(f"Site {site.name}", loc="left", fontsize=9)
        axes.set(xlim=(0, 24), xticks=[0, 6, 12, 18, 24], xlabel="Hour")
        axes.spines[["top", "right"]].set_visible(False)
    figure.axes[0].set_ylabel("Calls per minute")
    return figure


def _image(figure: Figure) -> Image.Image:
    with io.BytesIO() as file:
        figure.savefig(file, format="png", dpi=DPI)
        return Image.open(file).convert("RGB")
