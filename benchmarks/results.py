"""Write the result of a benchmark: metrics, with the command, the machine, the versions and the date."""

from __future__ import annotations

import json
import math
import os
import platform
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
FOLDER = Path(__file__).parent / "results"


def write_result(path: Path, metrics: Mapping[str, Any], packages: tuple[str, ...]) -> None:
    """Write metrics as JSON with their command, machine, versions and date."""
    result = {
        **metrics,
        "command": "python " + " ".join([_module(sys.argv[0]), *map(_without_folders, sys.argv[1:])]),
        "machine": {
            "processor": _processor(),
            "cores": os.cpu_count(),
            "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
            "system": platform.system(),
        },
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in packages}},
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=2, allow_nan=False) + "\n", encoding="utf-8")


def rounded(value: float | np.floating[Any]) -> float | None:
    """Return a metric with four decimals; None if it is not finite."""
    return round(float(value), 4) if math.isfinite(value) else None


def peak_mb() -> float:
    """Return the peak memory of this process in MB; unlike `ru_maxrss`, without the memory of its parent process."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return float("nan")


def _module(script: str) -> str:
    path = Path(script)
    inside = path.relative_to(ROOT) if path.is_relative_to(ROOT) else Path(path.parent.name, path.name)
    return f"-m {'.'.join(inside.with_suffix('').parts)}"


def _without_folders(argument: str) -> str:
    """Return an argument without the folders of an absolute path."""
    return Path(argument).name if Path(argument).is_absolute() else argument


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
