"""Makes the pictures of the review's pages: the example card with an expert's boxes as if a model had found them.

python tools/review_pictures.py          needs Chromium
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from PIL import Image
from playwright.sync_api import Browser, sync_playwright

from mast.annotations.formats import read_annotations
from mast.events import Detected, Event, Heard, Recording, from_table, write_table
from mast.example import write_example
from mast.recordings.scan import collections_from_folders, scan

IMAGES = Path(__file__).parents[1] / "docs" / "howto" / "images"
DESK, TABLET = {"width": 1280, "height": 800}, {"width": 820, "height": 1000}


def main() -> None:
    """Show the card to a browser, decide a little, and take the pictures."""
    with tempfile.TemporaryDirectory() as folder:
        code = "from mast.cli import main; main()"
        command = [
            sys.executable,
            "-c",
            code,
            "review",
            write_run(Path(folder)),
            "--no-browser",
            "--port",
            "0",
        ]
        known = {**os.environ, "LOGNAME": "ann", "XDG_CACHE_HOME": folder}
        server = subprocess.Popen(command, env=known, stdout=subprocess.PIPE, text=True)  # noqa: S603
        assert server.stdout is not None  # noqa: S101
        try:
            address = server.stdout.readline().split()[1]
            with sync_playwright() as playwright:
                place = shutil.which("chromium")
                browser = playwright.chromium.launch(executable_path=place, args=["--no-sandbox"])
                take_pictures(browser, address)
        finally:
            server.kill()
    for name in ("review", "review-gallery"):
        picture = Image.open(IMAGES / f"{name}.png").convert("RGB").quantize(255)
        picture.save(IMAGES / f"{name}.png", optimize=True)


def take_pictures(browser: Browser, address: str) -> None:
    """A recording on a desk, and the gallery on a tablet."""
    page = browser.new_page(viewport=DESK)  # type: ignore[arg-type]
    page.goto(address)
    page.wait_for_selector("body.ready")
    for key in ("n", "r", "l"):
        page.keyboard.press(key)
    page.locator("#label").fill("two-note song")
    page.keyboard.press("Enter")
    for key in ("f", "a", "n"):
        page.keyboard.press(key)
    page.wait_for_timeout(2500)
    page.screenshot(path=IMAGES / "review.png")
    page.close()
    page = browser.new_page(viewport=TABLET)  # type: ignore[arg-type]
    page.goto(address)
    page.wait_for_selector("body.ready")
    page.locator("#mode-gallery").click()
    page.wait_for_selector("#cards article")
    for key in ("a", "r", "a"):
        page.keyboard.press(key)
    page.wait_for_timeout(4000)
    page.screenshot(path=IMAGES / "review-gallery.png")


def write_run(folder: Path) -> str:
    """The folder of a run that has found most of what the expert drew, and some noise."""
    write_example(folder)
    scan(
        collections_from_folders([str(folder / "card")], "{site}/*", "Europe/Madrid"),
        str(folder / "all.parquet"),
    )
    every = from_table(pq.read_table(folder / "all.parquet"), Recording)
    known = [item for item in every if item.duration_s and item.site]
    boxes = read_annotations(str(folder / "boxes"), "raven").events
    rng = np.random.default_rng(1)
    sounds = [(item, found(item, boxes, rng)) for item in known]
    events = folder / "events"
    write_table(known, Recording, str(events / "recordings.parquet"))
    write_table(
        [sound for _, own in sounds for sound in own], Detected, str(events / "events/part-000000.parquet")
    )
    heard = [
        Heard(item.recording_id, "ok", None, item.duration_s, len(own), item.site, None)
        for item, own in sounds
    ]
    write_table(heard, Heard, str(events / "status/part-000000.parquet"))
    collections = {known[0].collection: {"root": str(folder / "card"), "time_expansion": 1.0}}
    settings = {"model": "0" * 16, "threshold": 0.2}
    run = {
        "mast_version": "0",
        "fingerprint": "picture",
        "settings": settings,
        "collections": collections,
        "parts": 1,
    }
    (events / "run.json").write_text(json.dumps(run), encoding="utf-8")
    return str(events)


def found(item: Recording, boxes: tuple[Event, ...], rng: np.random.Generator) -> list[Detected]:
    """An expert's boxes of a recording, a little off, and two that are nothing."""
    own = [box for box in boxes if item.path.endswith(box.recording_id)]
    places = [
        (box.start_s, box.end_s, box.low_hz or 0.0, box.high_hz or 0.0, rng.uniform(0.5, 0.98)) for box in own
    ]
    for start_s, low_hz in zip(rng.uniform(1, 28, 2), rng.uniform(500, 9000, 2), strict=True):
        places.append((start_s, start_s + 0.4, low_hz, low_hz + 900, rng.uniform(0.2, 0.5)))
    times = (item.start_utc, item.start_local, item.utc_offset_min, item.site, "0" * 16)
    return [Detected(item.recording_id, *map(float, place), *times) for place in sorted(places)]  # type: ignore[arg-type,call-arg]


if __name__ == "__main__":
    main()
