"""Compare the log-mel spectrogram with Kaldi's reference output and with lhotse's Kaldi layer: error and speed.

python -m benchmarks.fbank
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from benchmarks.results import FOLDER, write_result
from mast.audio.spectrogram import LogMel
from mast.config import Spectrogram

GOLDEN = Path(__file__).parents[1] / "tests" / "data" / "kaldi_fbank_golden.npz"
RATE_HZ, CHUNK_S = 16_000, 10.24
ROUNDS = 15


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--out", type=Path, default=FOLDER / "fbank.json")
    parser.add_argument("--batch", type=int, default=8, help="chunks per batch")
    parser.add_argument(
        "--rounds", type=int, default=ROUNDS, help="alternating rounds; the best round counts"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    ours, theirs = LogMel(Spectrogram(), RATE_HZ), lhotse_layer()
    waves = (
        torch.randn(options.batch, round(RATE_HZ * CHUNK_S), generator=torch.Generator().manual_seed(0)) / 10
    )
    seconds = fastest([ours, theirs], waves, options.rounds)
    audio_s = options.batch * CHUNK_S
    metrics = {
        "max_abs_error": max_abs_error(lambda wave: ours(wave).transpose(1, 2)),
        "lhotse_max_abs_error": max_abs_error(theirs),
        "ratio_to_lhotse": round(seconds[1] / seconds[0], 3),
        "audio_s_per_s": round(audio_s / seconds[0]),
        "lhotse_audio_s_per_s": round(audio_s / seconds[1]),
        "threads": 1,
        "batch": options.batch,
    }
    write_result(options.out, metrics, ("torch", "lhotse", "numpy"))
    print(
        f"{metrics['ratio_to_lhotse']} x lhotse, {metrics['audio_s_per_s']} s of audio per second, "
        f"at most {metrics['max_abs_error']:.1e} off Kaldi → {options.out}"
    )


def lhotse_layer() -> Callable[[Tensor], Tensor]:
    """Return lhotse's layer with the paper's Kaldi settings."""
    from lhotse.features.kaldi.layers import Wav2LogFilterBank

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # lhotse warns about snip_edges, which the paper uses
        layer: Callable[[Tensor], Tensor] = Wav2LogFilterBank(
            sampling_rate=RATE_HZ,
            window_type="hanning",
            snip_edges=True,
            num_filters=128,
            high_freq=0.0,
            energy_floor=0.0,
        )
    return layer


def max_abs_error(layer: Callable[[Tensor], Tensor]) -> float:
    """Return the largest deviation from Kaldi's reference over all its recordings."""
    errors = []
    with np.load(GOLDEN) as golden, torch.no_grad():
        for name in golden.files:
            if name.endswith(".wav_i16"):
                wave = torch.from_numpy(golden[name]).float() / 32768
                expected = torch.from_numpy(golden[name.replace("wav_i16", "fbank")])
                errors.append(float((layer((wave - wave.mean())[None])[0] - expected).abs().max()))
    return max(errors)


def fastest(layers: list[Callable[[Tensor], Tensor]], waves: Tensor, rounds: int) -> list[float]:
    """Return the shortest time of each layer over alternating rounds, so that both have the same system load."""
    best = [float("inf")] * len(layers)
    with torch.no_grad():
        for _ in range(rounds + 1):  # the first round warms up
            for number, layer in enumerate(layers):
                start = time.perf_counter()
                layer(waves)
                best[number] = min(best[number], time.perf_counter() - start)
    return best


if __name__ == "__main__":
    main()
