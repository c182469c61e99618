"""Tables of detection on archives: speed and costs, sensitivity to the chunk offset, and crash recovery."""

from __future__ import annotations

from typing import Any

from experiments.markdown import decimal, grid, interval, paragraphs

from tools.doc_tables.io import (
    A100_BF16,
    A100_UTILISATION,
    CHUNKS_PER_HOUR,
    a100_hours,
    multiples,
    result,
    rounded,
    size_of,
)


def engine_accuracy() -> str:
    """Return the accuracy of engines and hops, compared with float32 and chunks that overlap by half."""
    results = result("experiments/results/engine_accuracy.json")
    lines = [
        [row["engine"], f"{row['hop']:g}", f"{row['ap']:.3f}", f"{row['f1']:.3f}", f"{row['events']:,}"]
        for row in results["engines"]
    ]
    return paragraphs(
        grid(["precision", "hop, in chunks", "average precision", "F1", "events"], lines),
        f"One tiny detector on the {results['recordings']} recordings of the shift benchmark's test sets, with "
        f"{results['engines'][0]['calls']:,} calls (`python -m experiments.engine_accuracy STUDY.yaml MODEL`); "
        "no intervals were computed.",
    )


def chunk_offset() -> str:
    """Return the fraction of events detected again at other chunk offsets, and the recall of calls cut by chunks."""
    results = result("experiments/results/chunk_offset.json")
    lines = [["all", f"{results['events_compared']:,}", *map(interval, results["same_at_iou"].values())]]
    for name, unit in (("score", ""), ("length", "_s"), ("depth", "_s")):
        for row in results[f"by_{name}{unit}"]:
            if row["events"]:
                group = f"{name} ≥ {row['from']:g}{' s' if unit else ''}"
                lines.append([group, f"{row['events']:,}", *map(decimal, row["same_at_iou"].values())])
    return paragraphs(
        grid(["events", "number", "detected again, IoU 0.5", "IoU 0.7", "IoU 0.9"], lines),
        _outcomes(results),
        _cut_calls(results["recall_of_the_same_calls"]),
    )


def _outcomes(results: dict[str, Any]) -> str:
    """Describe the outcomes of events at other chunk offsets."""
    outcomes, edges = results["outcomes"], results["edges"]
    (frames, bins), distance = edges["median_sides_frames_bins"], edges["median_apart_frames_bins"]
    return (
        f"{results['recordings']} recordings at {len(results['same_by_offset_frames'])} other chunk offsets. "
        "Each row ends "
        "where the next row begins; depth is the distance from an event's middle to the nearer edge of its chunk; 95 % "
        "intervals over recordings (`python -m experiments.chunk_offset.measure STUDY.yaml MODEL`). Of the events "
        f"above the threshold, {outcomes['same']:.0%} are detected again at IoU 0.9, "
        f"{results['same_at_offsets_of_whole_patches']:.0%} if the offset is a multiple of the encoder's patch; "
        f"{outcomes['moved']:.0%} have other edges, {outcomes['lower score']:.1%} are below the threshold, "
        f"{outcomes['moved and lower score']:.0%} both, and {outcomes['missing']:.1%} have no detection with "
        "an IoU of at least 0.5. "
        f"The median distance between two starts is {distance[0]:.1f} frames, between ends {distance[2]:.1f}, "
        "between lower "
        f"edges {distance[1]:.1f} bins and between upper edges {distance[3]:.1f} bins; the median box is "
        f"{frames:.0f} frames long and {bins:.0f} bins high."
    )


def _cut_calls(calls: dict[str, Any]) -> str:
    """Describe the recall of the same calls, cut by a chunk and not."""
    return (
        f"Of {calls['calls']} calls that a chunk cuts at some offsets and not at others, "
        f"{interval(calls['cut'])} are detected when cut and {interval(calls['inside'])} when not, a difference of "
        f"{interval(calls['difference'])}."
    )


def chunk_offset_variants() -> str:
    """Return the gain and cost of variants that reduce the sensitivity to the chunk offset."""
    results = result("experiments/results/chunk_offset_variants.json")
    lines = []
    for row in results["variants"]:
        value, low, high = row["ap_gain"]
        lines.append(
            [
                row["variant"],
                *(decimal(row["same_at_iou"][iou][0]) for iou in ("0.5", "0.7", "0.9")),
                f"{row['ap']:.3f}",
                f"{value:+.3f} ({low:+.3f} to {high:+.3f})",
                f"{row['f1']:.3f}",
                f"{row['times_the_chunks']:.2f}",
            ]
        )
    head = [
        "variant",
        "detected again, IoU 0.5",
        "IoU 0.7",
        "IoU 0.9",
        "average precision",
        "difference to the first",
    ]
    return paragraphs(
        grid([*head, "F1", "relative number of chunks"], lines),
        f"{results['recordings']} recordings at {len(results['offsets_frames'])} chunk offsets "
        "(`python -m experiments.chunk_offset.variants STUDY.yaml MODEL`); every variant reports the same "
        "number of events as the first.",
    )


def throughput() -> str:
    """Return the speed of detection by model and precision, compared with the bare network and BirdNET."""
    results = result("benchmarks/results/throughput.json")
    lines = [
        [
            row["size"],
            f"{row['precision']} ({row['engine']})" if row["precision"] == "fastest" else row["precision"],
            f"{row['x_real_time']:.0f}",
            decimal(row["ratio_to_bare"]),
            decimal(row["ratio_to_birdnet"]),
        ]
        for row in results["models"]
    ]
    head = ["model", "precision", "× real time, one core"]
    machine = results["machine"]
    return paragraphs(
        grid([*head, "relative to the bare network", "relative to bare BirdNET"], lines),
        f"`benchmarks/results/throughput.json`, {machine['cores']} cores of an {machine['processor']}.",
    )


def archive_costs() -> str:
    """Return costs that do not depend on the model."""
    memory, crash, speed = (
        result(f"benchmarks/results/{name}.json")
        for name in ("memory", "detect_crash_recovery", "throughput")
    )
    rows = {
        "memory of a run of 10 files": f"{memory['peak_mb_10_files']:,} MB for {memory['workers']} workers",
        f"… of {memory['files']:,} files": f"{memory['peak_mb_100k_files']:,} MB",
        f"… of files of {memory['hours']:g} hours": f"{memory['peak_mb_15h_file']:,} MB",
        f"plan and resume of {memory['plan_rows']:,} recordings": f"{memory['plan_10m_s']:.0f} s, "
        f"{memory['plan_10m_mb']:,} MB",
        "an event on disk": f"{crash['event_bytes']:.0f} bytes",
        "a recording's status on disk": f"{crash['status_bytes']:.0f} bytes",
        "on a Ray cluster of the same cores": f"{speed['ray_ratio']:.2f} of the local engine's speed",
        "as two shards on the same cores": f"{speed['shard_ratio']:.2f} of one run's speed",
        "with `--embed`": f"{speed['embed_time_ratio']:.2f} of the time without it",
    }
    return grid(["quantity", "measured"], [*rows.items()])


SIZES_H = {"1,000 h": 1e3, "100,000 h": 1e5, "17 million h": 17e6}
BYTES_PER_HOUR = 48_000 * 2 * 3600
EVENTS_PER_HOUR = {"quiet": 60, "tropical dawn": 12 * 360}
PART_H = 4
HOP_CHUNKS = 0.9
CORE_USD = 0.04


def scale() -> str:
    """Return costs for three archive sizes, computed from unit costs."""
    speed, crash = (
        result(f"benchmarks/results/{name}.json") for name in ("throughput", "detect_crash_recovery")
    )
    best = {row["size"]: row for row in speed["models"] if row["precision"] == "fastest"}
    rows = [
        *((f"core-hours, {size}", 1 / row["x_real_time"], rounded) for size, row in best.items()),
        ("bytes to read, 48 kHz WAV", BYTES_PER_HOUR, size_of),
        ("recordings of one minute", 60, rounded),
        (f"parts of {PART_H} h, two files each", 1 / PART_H, rounded),
    ]
    for soundscape, events in EVENTS_PER_HOUR.items():
        rows.append((f"events, {soundscape} ({events:,} per hour)", events, rounded))
        rows.append(("… on disk", events * crash["event_bytes"], size_of))
    for size, row in best.items():
        hours = a100_hours(CHUNKS_PER_HOUR / HOP_CHUNKS, row["gmac_per_chunk"] * 2e9)
        rows.append((f"A100-hours, {size}, computed", hours, rounded))
    costs = [f"{size} {1000 / row['x_real_time'] * CORE_USD:.2f} USD" for size, row in best.items()]
    return paragraphs(
        multiples(SIZES_H, rows),
        f"Cost of 1,000 hours of audio on CPUs, at {CORE_USD:.2f} USD per core-hour (an assumption; use your own price): "
        f"{', '.join(costs)}. A100-hours are computed from the network's multiplications at "
        f"{A100_UTILISATION:.0%} of its {A100_BF16 / 1e12:.0f} TFLOP/s; no A100 was available, and decoding will "
        "limit the speed of a tiny model there.",
    )


COMMANDS = {
    "report": "`mast report`",
    "csv": "`mast export --to csv`",
    "raven": "`… --to raven --combined`",
    "camtrap_dp": "`… --to camtrap-dp`",
}


def report_export() -> str:
    """Return time and memory of reports and exports, by number of events."""
    runs = result("benchmarks/results/report_export.json")["runs"]
    counts = sorted({run["events"] for run in runs})
    lines = []
    for name, title in COMMANDS.items():
        by_events = {run["events"]: run for run in runs if run["command"] == name}
        cells = [f"{by_events[count]['s']:.0f} s, {by_events[count]['peak_mb']:,} MB" for count in counts]
        lines.append([title, *cells])
    return paragraphs(
        grid(["", *(f"{count:,} events" for count in counts)], lines),
        "`benchmarks/results/report_export.json`.",
    )


def detect_crash_recovery() -> str:
    """Compare runs that were killed with uninterrupted runs."""
    lines = []
    for name in ("detect_crash_recovery", "detect_crash_recovery_ray"):
        results = result(f"benchmarks/results/{name}.json")
        moments = ", ".join(
            f"{count} {moment}" for moment, count in results["kills_by_moment"].items() if count
        )
        lines.append(
            [
                results["engine"],
                f"{results['recordings']:,}, {results['corrupt']:,}",
                f"{results['kills']} ({moments})",
                "yes" if results["identical"] else "no",
            ]
        )
    return grid(["engine", "recordings, corrupt", "kills", "files identical"], lines)


def starter_sets() -> str:
    """Return the installed detector on recordings that it never learned from, and its false alarms."""
    results = result("experiments/results/starter.json")
    lines = []
    for name, values in results["sets"].items():
        f1 = f"{decimal(values['f1'])} ({decimal(values['f1_interval'][0])} to {decimal(values['f1_interval'][1])})"
        cells = [f1, decimal(values["ap"]), decimal(values["recall_iomin"])]
        if not values["is_complete"]:
            cells = ["–", "–", cells[2]]
        peers = [
            decimal(values[key]) if key in values else "–" for key in ("birdnet_time_ap", "yamnet_time_ap")
        ]
        time_ap = decimal(values["time_ap"]) if values["is_complete"] else "–"
        peers = peers if values["is_complete"] else ["–", "–"]
        lines.append([f"{name} ({values['taxon']}, {values['boxes']} boxes)", *cells, time_ap, *peers])
    alarms = ", ".join(f"{kind} {value:.0f}" for kind, value in results["false_alarms_per_hour"].items())
    header = ["", "F1", "AP", "recall, IoMin 0.5", "time AP", "time AP, BirdNET V2.4", "time AP, YAMNet"]
    return paragraphs(
        grid(header, lines),
        "F1 (95 % intervals over recordings) and AP at IoU 0.5. Where one species is annotated, other detections "
        "may be right, so there is only a recall.",
        f"False alarms per hour on held-out sounds without animals: {alarms}.",
    )
