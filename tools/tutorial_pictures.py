"""Plot the tutorial's figures with the tutorial's commands, small enough for the repository.

python -m tools.tutorial_pictures
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

TUTORIAL = Path(__file__).parents[1] / "docs" / "tutorial"
SIZE = (1600, 640)


def main() -> None:
    """Run every command of the page that writes the card or a figure, then shrink the figures."""
    page = (TUTORIAL / "card-to-spectrogram.md").read_text("utf-8")
    with tempfile.TemporaryDirectory() as folder:
        for command in re.findall(r"^\$ mast ((?:example-data|plot) .*)$", page, re.MULTILINE):
            code = "from mast.cli import main; main()"
            subprocess.run([sys.executable, "-c", code, *shlex.split(command)], cwd=folder, check=True)
        for figure in sorted(Path(folder).glob("*.png")):
            small = Image.open(figure).convert("RGB").resize(SIZE, Image.Resampling.LANCZOS).quantize(128)
            small.save(TUTORIAL / "images" / figure.name, optimize=True)


if __name__ == "__main__":
    main()
