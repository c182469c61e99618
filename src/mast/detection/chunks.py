"""Boxes of chunks: a trained detector over places of the prepared store."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from mast.config import Detection
from mast.datasets.loading import Places
from mast.models.decoding import Detections, find_boxes
from mast.models.detector import Detector
from mast.models.devices import DTYPES, accelerator, best_precision
from mast.models.folding import fold
from mast.models.loading import Loaded
from mast.recordings.store import AudioStore

BATCH = {"cpu": 4, "cuda": 64}
"""Chunks at once; on a CPU more are no faster."""

OnProgress = Callable[[int, int], None]
"""`on_progress(done, total)`, in chunks."""


def predict_chunks(
    loaded: Loaded[Detector],
    store: AudioStore,
    places: Places,
    settings: Detection,
    device: str = "auto",
    on_progress: OnProgress = lambda done, total: None,
) -> Iterator[Detections]:
    """Boxes of each chunk at some places of a store, in order; in frames and bins, in float32 on the CPU. (N, 2) → N

    A folded copy of the detector runs under autocast in the fastest arithmetic of the device.
    """
    kind, samples = accelerator(device), store.layout.step_samples
    dtype = DTYPES[best_precision(kind)]
    network = fold(loaded.network).to(kind).to(memory_format=torch.channels_last)
    frontend = loaded.frontend.to(kind)
    for first in range(0, len(places), BATCH[kind]):
        chosen = places[first : first + BATCH[kind]]
        sound = torch.from_numpy(store.read(chosen, samples)).to(kind)  # (B, samples)
        filled = torch.from_numpy(store.filled(chosen, samples)).to(kind)
        with torch.inference_mode(), torch.autocast(kind, dtype, enabled=dtype != torch.float32):
            output = network(frontend(sound, filled))
            found = find_boxes(output, settings.min_score, settings.max_boxes, settings.nms_iou)
        for item in found:
            yield Detections(item.boxes.float().cpu(), item.scores.float().cpu())
        on_progress(first + len(chosen), len(places))
