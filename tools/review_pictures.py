"""Take the screenshots of the review pages and of the page of `mast cluster`.

They show the example card with its annotations as simulated detections.

python -m tools.review_pictures          needs Chromium
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
from mast.example_data import write_example
from mast.recordings.scan import collections_from_folders, scan
from mast.records import DetectedEvent, Event, Recording, RecordingStatus, from_table, write_table

IMAGES = Path(__file__).parents[1] / "docs" / "howto" / "images"
DESKTOP, TABLET = {"width": 1280, "height": 800}, {"width": 820, "height": 1000}


MAST = [sys.executable, "-c", "from mast.cli import main; main()"]
CLUSTER_COMMANDS = """
    init card --annotations boxes --preset trial
    scan study.yaml
    split study.yaml
    prepare study.yaml
    pretrain study.yaml
    embed events --model work/runs/pretrain/main/model
    cluster events --examples labelled --min-cluster-size 5
"""


def main() -> None:
    """Open the card in a browser, review a few events, and take the screenshots."""
    with tempfile.TemporaryDirectory() as temporary, sync_playwright() as playwright:
        folder = Path(temporary)
        events = write_run(folder)
        executable = shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        command = [*MAST, "review", events, "--no-browser", "--port", "0"]
        environment = {**os.environ, "LOGNAME": "ann", "XDG_CACHE_HOME": temporary}
        server = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None  # noqa: S101
        try:
            take_screenshots(browser, server.stdout.readline().split()[1])
        finally:
            server.kill()
        take_cluster_screenshot(browser, folder)
    for name in ("review", "review-gallery", "clusters"):
        image = Image.open(IMAGES / f"{name}.png").convert("RGB").quantize(255)
        image.save(IMAGES / f"{name}.png", optimize=True)


def take_screenshots(browser: Browser, address: str) -> None:
    """Take a recording on a desktop screen, and the gallery on a tablet."""
    page = browser.new_page(viewport=DESKTOP)  # type: ignore[arg-type]
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
    page.close()


def take_cluster_screenshot(browser: Browser, folder: Path) -> None:
    """Pretrain an encoder, cluster the events with the annotations of one site as examples, and take the page."""
    shutil.copytree(folder / "boxes", folder / "labelled", ignore=lambda _, names: set(names) & {"A2", "B1"})
    for command in CLUSTER_COMMANDS.strip().splitlines():
        subprocess.run([*MAST, *command.split()], cwd=folder, check=True)
    page = browser.new_page(viewport={"width": 1000, "height": 1142})
    page.goto((folder / "events" / "clusters" / "clusters.html").as_uri())
    page.locator("circle[data-tile]").first.click()
    page.wait_for_timeout(1000)
    page.screenshot(path=IMAGES / "clusters.png")


def write_run(folder: Path) -> str:
    """Write the folder of a run with detections of the annotations and some false positives; return it."""
    write_example(folder)
    scan(
        collections_from_folders([str(folder / "card")], "{site}/*", "Europe/Madrid"),
        str(folder / "all.parquet"),
    )
    scanned = from_table(pq.read_table(folder / "all.parquet"), Recording)
    recordings = [recording for recording in scanned if recording.duration_s and recording.site]
    boxes = read_annotations(str(folder / "boxes"), "raven").events
    rng = np.random.default_rng(1)
    detections = [(recording, simulate_detections(recording, boxes, rng)) for recording in recordings]
    events = folder / "events"
    write_table(recordings, Recording, str(events / "recordings.parquet"))
    write_table(
        [event for _, events_of_recording in detections for event in events_of_recording],
        DetectedEvent,
        str(events / "events/part-000000.parquet"),
    )
    statuses = [
        RecordingStatus(
            recording.recording_id, "ok", None, recording.duration_s, len(detected), recording.site, None
        )
        for recording, detected in detections
    ]
    write_table(statuses, RecordingStatus, str(events / "status/part-000000.parquet"))
    collections = {recordings[0].collection: {"root": str(folder / "card"), "time_expansion": 1.0}}
    settings = {"model": "0" * 16, "threshold": 0.2}
    run = {
        "mast_version": "0",
        "fingerprint": "screenshot",
        "settings": settings,
        "collections": collections,
        "parts": 1,
    }
    (events / "run.json").write_text(json.dumps(run), encoding="utf-8")
    return str(events)


def simulate_detections(
    recording: Recording, boxes: tuple[Event, ...], rng: np.random.Generator
) -> list[DetectedEvent]:
    """Return the annotations of a recording with random scores, and two false positives."""
    annotated = [box for box in boxes if recording.path.endswith(box.recording_id)]
    rows = [
        (box.start_s, box.end_s, box.low_hz or 0.0, box.high_hz or 0.0, rng.uniform(0.5, 0.98))
        for box in annotated
    ]
    for start_s, low_hz in zip(rng.uniform(1, 28, 2), rng.uniform(500, 9000, 2), strict=True):
        rows.append((start_s, start_s + 0.4, low_hz, low_hz + 900, rng.uniform(0.2, 0.5)))
    metadata = (
        recording.start_utc,
        recording.start_local,
        recording.utc_offset_min,
        recording.site,
        "0" * 16,
    )
    return [DetectedEvent(recording.recording_id, *map(float, row), *metadata) for row in sorted(rows)]  # type: ignore[arg-type,call-arg]


if __name__ == "__main__":
    main()
