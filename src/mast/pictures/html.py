"""Self-contained HTML pages: one file with its style, pictures and sounds inside, that opens anywhere."""

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

LOUDEST, MOST_GAIN = 0.9, 100.0
"""A sound is made as loud as this, so that faint calls can be heard, but not more than so many times louder."""

PICTURE_DPI = 144


def render_page(template: str, values: Mapping[str, Any]) -> str:
    """A page from one of the templates; whatever text it is given, such as a label or a file name, stays text."""
    return _templates().get_template(template).render(values)


def picture_uri(figure: Figure, dpi: float = PICTURE_DPI) -> str:
    """A figure as the address of an image that holds it."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi)
    return _uri("image/png", buffer.getvalue())


def image_uri(image: Image) -> str:
    """An image as the address that holds it."""
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return _uri("image/png", buffer.getvalue())


def sound_uri(wave: NDArray[np.float32], sample_rate_hz: int) -> str:
    """A wave in -1…1, made louder where it is faint, as the address of a FLAC file that holds it."""
    peak = float(np.abs(wave).max(initial=0.0))
    gain = min(LOUDEST / peak, MOST_GAIN) if peak else 1.0
    buffer = io.BytesIO()
    soundfile.write(buffer, wave * np.float32(gain), sample_rate_hz, format="FLAC", subtype="PCM_16")
    return _uri("audio/flac", buffer.getvalue())


def _uri(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{b64encode(content).decode()}"


@cache
def _templates() -> Environment:
    """The templates of this package, in which every value is escaped and none may be missing."""
    templates = Environment(
        loader=PackageLoader("mast.pictures"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters |= {"share": _share, "count": lambda number: f"{number:,}", "seconds": _seconds}
    return templates


def _share(value: float, digits: int = 3) -> str:
    """A number between 0 and 1, or a dash where it cannot be told."""
    return f"{value:.{digits}f}" if np.isfinite(value) else "–"


def _seconds(time_s: float) -> str:
    """A time in a recording as h:mm:ss.s or m:ss.s."""
    minutes, rest_s = divmod(round(time_s, 1), 60)
    hours, minutes = divmod(int(minutes), 60)
    return f"{hours}:{minutes:02d}:{rest_s:04.1f}" if hours else f"{minutes}:{rest_s:04.1f}"
