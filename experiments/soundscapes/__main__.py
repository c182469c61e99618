"""Write the soundscape benchmark.

python -m experiments.soundscapes DATA OUT --size smoke
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from experiments.soundscapes.plots import plot_benchmark
from experiments.soundscapes.sites import SIZES
from experiments.soundscapes.sources import read_sources
from experiments.soundscapes.write import write_benchmark
from mast.errors import MastError


def main() -> None:
    """Read the sources, write the missing files of the benchmark, and plot it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, help="folder of the source recordings")
    parser.add_argument("out", type=Path, help="output folder; an interrupted run resumes there")
    parser.add_argument("--size", choices=SIZES, default="smoke")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    try:
        source_audio = read_sources(options.data)
        print(f"{len(source_audio.calls)} calls, {len(source_audio.backgrounds)} backgrounds", flush=True)
        world = write_benchmark(source_audio, options.out, SIZES[options.size], options.seed, _print_progress)
        plot_benchmark(options.out, world)
    except MastError as error:
        sys.exit(str(error))
    print(f"Next: mast scan {options.out / 'study.yaml'}")


def _print_progress(done: int, total: int) -> None:
    if done % 50 == 0 or done == total:
        print(f"{done} of {total} recordings", flush=True)


if __name__ == "__main__":
    main()
