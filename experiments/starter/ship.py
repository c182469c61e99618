"""Write a trained detector into the package: weights in half precision, and the model card.

python -m experiments.starter.ship DATA MODEL [--results experiments/results/starter.json]
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from experiments.starter.sources import HELD_OUT_CLASSES, Clip, attributions, read_clips
from mast.models.checkpoint import ModelInfo, load_model, save_model
from mast.models.included import CARD
from mast.models.location import INCLUDED
from mast.version import STARTER

MAX_MEGABYTES = 12.0


def ship(model: str, folder: Path, card: str) -> None:
    """Write the model and its card to a folder; kernels are stored in half precision, all else in full."""
    info, tensors = load_model(model)
    half = {name: value.half() if value.ndim > 1 else value for name, value in tensors.items()}
    megabytes = sum(value.numel() * value.element_size() for value in half.values()) / 1e6
    if megabytes > MAX_MEGABYTES:
        raise SystemExit(f"{model}: {megabytes:.1f} MB are more than {MAX_MEGABYTES:g} MB.")
    # Torch copies each tensor into its own module parameter, so the network computes in full precision.
    save_model(str(folder), replace(info, parent=None, data=None), half)
    (folder / CARD).write_text(card, encoding="utf-8")


def model_card(info: ModelInfo, clips: list[Clip], measured: dict[str, Any]) -> str:
    """Return the model card as Markdown."""
    train = [clip for clip in clips if clip.part == "train"]
    calls = [clip for clip in train if clip.role == "call"]
    lines = [
        f"# The {STARTER} detector",
        "",
        "It detects animal sounds between 20 Hz and 8 kHz as boxes in time and frequency. It knows no species.",
        "",
        "## Training",
        "",
        f"- Network: `{info.architecture['encoder']}`, feature pyramid and head of MAST.",
        f"- Run: {info.source}. Initial weights: EfficientNet-Lite0, trained on ImageNet (Apache-2.0).",
        f"- Data: synthetic calls, {len(calls)} real calls of {len({clip.label for clip in calls})} kinds of animals, "
        f"and {len(train) - len(calls)} clips of weather, machines and people, mixed differently for every example.",
        f"- Held out: one of five original recordings, and all of {', '.join(sorted(HELD_OUT_CLASSES))}.",
        f"- In the validation world: F1 {info.results['f1']}, average precision {info.results['ap']} at IoU 0.5. "
        f"The score threshold, {info.thresholds['score']}, was chosen there.",
        "",
        *_tests(measured),
        "## Licence",
        "",
        f"{info.licence}.",
        "",
        "## Recordings",
        "",
        "ESC-50's clips are used singly, under the licence of each author; the collection as a whole is CC BY-NC and is "
        "not part of MAST.",
        "",
        *(f"- {line}" for line in attributions(train)),
    ]
    return "\n".join(lines) + "\n"


def _tests(measured: dict[str, Any]) -> list[str]:
    """Return the results on recordings that the detector never learned from."""
    if not measured:
        return []
    lines = [
        "## Tests on recordings that it never learned from",
        "",
        "| set | F1 | AP | AP, time only |",
        "|---|---|---|---|",
    ]
    for name, values in measured["sets"].items():
        lines.append(f"| {name} | {values['f1']:.2f} | {values['ap']:.2f} | {values['time_ap']:.2f} |")
    return [*lines, ""]


def main() -> None:
    """Write the model into the package."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, help="folder of recordings, one folder a source")
    parser.add_argument("model", help="trained detector")
    parser.add_argument("--results", type=Path, help="results on the test sets")
    parser.add_argument("--out", type=Path, default=INCLUDED / STARTER, help="folder to write")
    options = parser.parse_args()
    torch.set_num_threads(1)
    info, _ = load_model(options.model)
    measured = json.loads(options.results.read_text("utf-8")) if options.results else {}
    ship(options.model, options.out, model_card(info, read_clips(options.data), measured))
    print(f"Written: {options.out}")


if __name__ == "__main__":
    main()
