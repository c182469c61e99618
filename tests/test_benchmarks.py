"""Every benchmark runs in a small version and writes the keys of its full result in the repository."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.postgres import tools

from mast.recordings.faults import FAULTS

ROOT = Path(__file__).parents[1]
BENCHMARKS = {
    "fbank": (["--rounds", "1", "--batch", "1"], {"max_abs_error", "ratio_to_lhotse"}),
    "long_file": (["--hours", "0.02"], {"chunks", "chunks_expected", "peak_mb"}),
    "scan": (
        ["--files", "600"],
        {"files", "fault_classes_injected", "fault_classes_reported", "peak_mb", "ratio_to_info_loop"},
    ),
}
BENCHMARKS |= {
    "loader": (["--rows", "64"], {"ratio_local", "ratio_s3"}),
    "prepare": (["--small"], {"ratio_to_bare", "kills", "stores_equal"}),
}
BENCHMARKS |= {
    "evaluate": (
        ["--chunks", "300"],
        {"ratio_to_coco_eval", "max_ap_difference", "chunks", "predictions", "seconds", "peak_mb"},
    ),
    "pretrain_resume": (
        ["--small"],
        {"kills", "weights_equal", "ddp_max_loss_difference", "sigterm_exit_code"},
    ),
    "pretrain_step": (["--small"], {"ratio_to_bare", "cpu_ratio_to_bare", "audio_hours_per_hour"}),
    "train_step": (["--small"], {"ratio_to_bare", "mast_step_s", "bare_step_s"}),
}
BENCHMARKS |= {
    "search": (
        ["--small"],
        {"vectors", "recall_at_10", "median_ms", "build_s", "bytes_per_event", "faiss_flat_median_ms"},
    ),
}
BENCHMARKS |= {
    "report_export": (["--small"], {"runs", "events_per_minute"}),
    "review_load": (
        ["--small"],
        {"verdicts_sent", "verdicts_stored", "p95_verdict_ms", "p95_tile_cold_ms", "p95_tile_cached_ms"},
    ),
}
ALWAYS = {"command", "machine", "versions", "date"}
UNMEASURED = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
"""Benchmarks measure time and memory of processes; coverage would affect every measurement."""


SLOW = {
    "loader", "prepare", "pretrain_resume", "pretrain_step", "report_export", "review_load", "scan", "search",
    "train_step",
}  # fmt: skip


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in BENCHMARKS]
)
def test_a_small_run_writes_the_keys_of_the_full_result(name, tmp_path):
    options, keys = BENCHMARKS[name]
    if name == "review_load" and tools() is None:
        pytest.skip("PostgreSQL is not installed: initdb and pg_ctl are not found")
    command = [sys.executable, "-m", f"benchmarks.{name}", *options, "--out", str(tmp_path / "result.json")]
    subprocess.run(command, cwd=ROOT, env=UNMEASURED, check=True, capture_output=True)
    small = json.loads((tmp_path / "result.json").read_text("utf-8"))
    full = json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text("utf-8"))
    assert keys | ALWAYS <= small.keys()
    assert small.keys() == full.keys()
    if name == "fbank":
        assert small["max_abs_error"] < 1e-4
    if name == "long_file":
        assert small["chunks"] == small["chunks_expected"]
    if name == "prepare":
        assert small["stores_equal"] is True and small["kills"] == 2 and small["ratio_to_bare"] > 0
    if name == "scan":
        assert small["missed"] == []
        assert small["fault_classes_reported"] == small["fault_classes_injected"] >= len(FAULTS) - 1
        assert small["peak_mb"] < 400
    if name == "evaluate":
        assert small["max_ap_difference"] < 1e-6
    if name == "search":
        assert small["recall_at_10"] >= 0.9
        assert small["exact_recall_at_10"] >= 0.99
        assert small["s3_recall_at_10"] in (None, small["recall_at_10"])
    if name == "report_export":
        assert all(run["s"] > 0 and 50 < run["peak_mb"] < 2000 for run in small["runs"])
    if name == "review_load":
        assert small["verdicts_sent"] == small["verdicts_stored"] > 10
        assert small["lost"] == small["duplicated"] == small["failed"] == 0
    if name == "pretrain_resume":
        assert small["weights_equal"]
        assert small["metrics_equal"]
        assert small["ddp_max_loss_difference"] < 1e-4
