"""Render self-contained HTML pages: one file with its style, images and audio."""

from __future__ import annotations

import io
from base64 import b64encode
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import soundfile
from jinja2 import Environment, PackageLoader, StrictUndefined
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL.Image import Image

PEAK_LEVEL, MAX_GAIN = 0.9, 100.0
"""Peak level to which audio in a page is amplified, so that faint calls are audible, and the maximum gain."""

FIGURE_DPI = 144


def render_page(template: str, values: Mapping[str, Any]) -> str:
    """Render a template; all text values, such as labels and file names, are escaped."""
    return _templates().get_template(template).render(values)


def figure_data_uri(figure: Figure, dpi: float = FIGURE_DPI) -> str:
    """Return a figure as a PNG data URI."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi)
    return _uri("image/png", buffer.getvalue())


def image_uri(image: Image) -> str:
    """Return an image as a PNG data URI."""
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return _uri("image/png", buffer.getvalue())


def audio_data_uri(wave: NDArray[np.float32], sample_rate_hz: int) -> str:
    """Return audio in -1…1, amplified if it is quiet, as a FLAC data URI."""
    peak = float(np.abs(wave).max(initial=0.0))
    gain = min(PEAK_LEVEL / peak, MAX_GAIN) if peak else 1.0
    buffer = io.BytesIO()
    soundfile.write(buffer, wave * np.float32(gain), sample_rate_hz, format="FLAC", subtype="PCM_16")
    return _uri("audio/flac", buffer.getvalue())


def _uri(media_type: str, content: bytes) -> str:
    return f"data:{media_type};base64,{b64encode(content).decode()}"


@cache
def _templates() -> Environment:
    """Return the templates of this package; every value is escaped, and a missing value is an error."""
    templates = Environment(
        loader=PackageLoader("mast.plotting"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters |= {"decimal": _decimal, "count": lambda number: f"{number:,}", "seconds": _seconds}
    return templates


def _decimal(value: float, digits: int = 3) -> str:
    """Format a finite number, or return a dash."""
    return f"{value:.{digits}f}" if np.isfinite(value) else "–"


def _seconds(time_s: float) -> str:
    """Format a time in a recording as h:mm:ss.s or m:ss.s."""
    minutes, rest_s = divmod(round(time_s, 1), 60)
    hours, minutes = divmod(int(minutes), 60)
    return f"{hours}:{minutes:02d}:{rest_s:04.1f}" if hours else f"{minutes}:{rest_s:04.1f}"
