"""Write the soundscape benchmark.

python -m experiments.soundscapes DATA OUT --size smoke
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from experiments.soundscapes.material import read_material
from experiments.soundscapes.picture import draw_benchmark
from experiments.soundscapes.world import SIZES
from experiments.soundscapes.write import write_benchmark
from mast.errors import MastError


def main() -> None:
    """Read the sources, write what is missing of the benchmark, and draw it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, help="folder of the sources")
    parser.add_argument("out", type=Path, help="folder to write to; a run that was broken off goes on there")
    parser.add_argument("--size", choices=SIZES, default="smoke")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    try:
        material = read_material(options.data)
        print(f"{len(material.calls)} calls, {len(material.backgrounds)} backgrounds", flush=True)
        world = write_benchmark(material, options.out, SIZES[options.size], options.seed, _tell)
        draw_benchmark(options.out, world)
    except MastError as error:
        sys.exit(str(error))
    print(f"Next: mast scan {options.out / 'study.yaml'}")


def _tell(done: int, total: int) -> None:
    if done % 50 == 0 or done == total:
        print(f"{done} of {total} recordings", flush=True)


if __name__ == "__main__":
    main()
