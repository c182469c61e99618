"""Whole archives: what hearing them costs, what is the same wherever chunks begin, and what a kill leaves."""

from __future__ import annotations

from typing import Any

from experiments.markdown import grid, interval, paragraphs, share

from figure_tables.reading import (
    A100_BF16,
    A100_SHARE,
    CHUNKS_AN_HOUR,
    a100_hours,
    multiples,
    result,
    rounded,
    size_of,
)


def engines() -> str:
    """What an engine and the product's hop cost, against float32 in chunks that overlap by half."""
    found = result("experiments/results/engines.json")
    lines = [
        [row["engine"], f"{row['hop']:g}", f"{row['ap']:.3f}", f"{row['f1']:.3f}", f"{row['events']:,}"]
        for row in found["engines"]
    ]
    return paragraphs(
        grid(["arithmetic", "hop, in chunks", "average precision", "F1", "events"], lines),
        f"One tiny detector over the {found['recordings']} recordings of the shift benchmark's test sets, with "
        f"{found['engines'][0]['calls']:,} calls (`python -m experiments.engines STUDY.yaml MODEL`); no intervals were "
        "computed.",
    )


def phase() -> str:
    """How many events are found again where chunks begin elsewhere, and calls when chunks cut them and when not."""
    found = result("experiments/results/phase.json")
    lines = [["all", f"{found['events_compared']:,}", *map(interval, found["same_at_iou"].values())]]
    for told, unit in (("score", ""), ("length", "_s"), ("depth", "_s")):
        for row in found[f"by_{told}{unit}"]:
            if row["events"]:
                at_least = f"{told} from {row['from']:g}{' s' if unit else ''} on"
                lines.append([at_least, f"{row['events']:,}", *map(share, row["same_at_iou"].values())])
    return paragraphs(
        grid(["events", "number", "found again, IoU 0.5", "IoU 0.7", "IoU 0.9"], lines),
        _fates(found),
        _cut_calls(found["recall_of_the_same_calls"]),
    )


def _fates(found: dict[str, Any]) -> str:
    """What becomes of events at other phases, in words."""
    fates, edges = found["fates"], found["edges"]
    (frames, bins), apart = edges["median_sides_frames_bins"], edges["median_apart_frames_bins"]
    return (
        f"{found['recordings']} recordings at {len(found['same_by_phase_frames'])} other phases, rows up to where the "
        "next begins; depth is from an event's middle to the nearer edge of its chunk; 95 % intervals over recordings "
        "(`python -m experiments.phase STUDY.yaml MODEL`). Of the events "
        f"above the threshold, {fates['same']:.0%} are found again at IoU 0.9, "
        f"{found['same_at_phases_of_whole_patches']:.0%} where the shift is a whole number of the encoder's patches; "
        f"{fates['moved']:.0%} have other edges, {fates['fainter']:.1%} are there but below the threshold, "
        f"{fates['moved and fainter']:.0%} both, and {fates['gone']:.1%} have nothing with an IoU of 0.5 in their place. "
        f"The median distance between two starts is {apart[0]:.1f} frames, between ends {apart[2]:.1f}, between lower "
        f"edges {apart[1]:.1f} bins and between upper ones {apart[3]:.1f}; that of boxes' sides is {frames:.0f} frames "
        f"and {bins:.0f} bins."
    )


def _cut_calls(calls: dict[str, Any]) -> str:
    """Recall of the same calls, cut and not, in words."""
    return (
        f"Of {calls['calls']} calls that a chunk cuts at some phases and not at others, "
        f"{interval(calls['cut'])} are found when cut and {interval(calls['inside'])} when not, a difference of "
        f"{interval(calls['difference'])}."
    )


def phase_ways() -> str:
    """What ways to depend less on chunks gain and cost."""
    found = result("experiments/results/phase_ways.json")
    lines = []
    for row in found["ways"]:
        value, low, high = row["ap_gain"]
        lines.append(
            [
                row["way"],
                *(share(row["same_at_iou"][iou][0]) for iou in ("0.5", "0.7", "0.9")),
                f"{row['ap']:.3f}",
                f"{value:+.3f} ({low:+.3f} to {high:+.3f})",
                f"{row['f1']:.3f}",
                f"{row['times_the_chunks']:.2f}",
            ]
        )
    head = ["way", "found again, IoU 0.5", "IoU 0.7", "IoU 0.9", "average precision", "against the first"]
    return paragraphs(
        grid([*head, "F1", "× the chunks"], lines),
        f"{found['recordings']} recordings at {len(found['phases_frames'])} phases "
        "(`python -m experiments.phase_ways STUDY.yaml MODEL`); every way tells as many events as the first.",
    )


def throughput() -> str:
    """Speed of detection by model and arithmetic, beside the bare network and BirdNET."""
    found = result("benchmarks/results/throughput.json")
    lines = [
        [
            row["size"],
            f"{row['precision']} ({row['engine']})" if row["precision"] == "fastest" else row["precision"],
            f"{row['x_real_time']:.0f}",
            share(row["ratio_to_bare"]),
            share(row["ratio_to_birdnet"]),
        ]
        for row in found["models"]
    ]
    head = ["model", "arithmetic", "× real time, one core"]
    machine = found["machine"]
    return paragraphs(
        grid([*head, "of the bare network's speed", "of bare BirdNET's"], lines),
        f"`benchmarks/results/throughput.json`, {machine['cores']} cores of an {machine['processor']}.",
    )


def archive_costs() -> str:
    """What does not depend on the model."""
    memory, crash, speed = (
        result(f"benchmarks/results/{name}.json") for name in ("memory", "crash", "throughput")
    )
    rows = {
        "memory of a run of 10 files": f"{memory['peak_mb_10_files']:,} MB for {memory['workers']} workers",
        f"… of {memory['files']:,} files": f"{memory['peak_mb_100k_files']:,} MB",
        f"… of files of {memory['hours']:g} hours": f"{memory['peak_mb_15h_file']:,} MB",
        f"plan and resume of {memory['plan_rows']:,} recordings": f"{memory['plan_10m_s']:.0f} s, "
        f"{memory['plan_10m_mb']:,} MB",
        "an event on disk": f"{crash['event_bytes']:.0f} bytes",
        "a recording's status on disk": f"{crash['status_bytes']:.0f} bytes",
        "on a Ray of the same cores": f"{speed['ray_ratio']:.2f} of the local engine's speed",
        "as two shards on the same cores": f"{speed['shard_ratio']:.2f} of one run's speed",
        "with `--embed`": f"{speed['embed_time_ratio']:.2f} of the time without",
    }
    return grid(["what", "measured"], [*rows.items()])


SIZES_H = {"1,000 h": 1e3, "100,000 h": 1e5, "17 million h": 17e6}
BYTES_AN_HOUR = 48_000 * 2 * 3600
EVENTS_AN_HOUR = {"quiet": 60, "tropical dawn": 12 * 360}
PART_H = 4
HOP_CHUNKS = 0.9
CORE_USD = 0.04


def scale() -> str:
    """Arithmetic from the unit costs to three sizes."""
    speed, crash = (result(f"benchmarks/results/{name}.json") for name in ("throughput", "crash"))
    best = {row["size"]: row for row in speed["models"] if row["precision"] == "fastest"}
    rows = [
        *((f"core-hours, {size}", 1 / row["x_real_time"], rounded) for size, row in best.items()),
        ("bytes to read, 48 kHz WAV", BYTES_AN_HOUR, size_of),
        ("recordings of a minute", 60, rounded),
        (f"parts of {PART_H} h, two files each", 1 / PART_H, rounded),
    ]
    for place, events in EVENTS_AN_HOUR.items():
        rows.append((f"events, {place} ({events:,} an hour)", events, rounded))
        rows.append(("… on disk", events * crash["event_bytes"], size_of))
    for size, row in best.items():
        hours = a100_hours(CHUNKS_AN_HOUR / HOP_CHUNKS, row["gmac_a_chunk"] * 2e9)
        rows.append((f"A100-hours, {size}, computed", hours, rounded))
    costs = [f"{size} {1000 / row['x_real_time'] * CORE_USD:.2f} USD" for size, row in best.items()]
    return paragraphs(
        multiples(SIZES_H, rows),
        f"Money for 1,000 hours of sound on processors, at {CORE_USD:.2f} USD a core-hour (an assumption; put in your "
        f"own): {', '.join(costs)}. A100-hours are computed from the network's multiplications at "
        f"{A100_SHARE:.0%} of its {A100_BF16 / 1e12:.0f} TFLOP/s; none was at hand, and decoding will set the "
        "pace of a tiny model there.",
    )


USES = {
    "report": "`mast report`",
    "csv": "`mast export --to csv`",
    "raven": "`… --to raven --combined`",
    "camtrap_dp": "`… --to camtrap-dp`",
}


def use_events() -> str:
    """Time and memory of what people do with events, by how many there are."""
    runs = result("benchmarks/results/use_events.json")["runs"]
    counts = sorted({run["events"] for run in runs})
    lines = []
    for name, told in USES.items():
        own = {run["events"]: run for run in runs if run["command"] == name}
        lines.append([told, *(f"{own[count]['s']:.0f} s, {own[count]['peak_mb']:,} MB" for count in counts)])
    return paragraphs(
        grid(["", *(f"{count:,} events" for count in counts)], lines),
        "`benchmarks/results/use_events.json`.",
    )


def crashes() -> str:
    """Runs that were killed, against those that were not."""
    lines = []
    for name in ("crash", "crash_ray"):
        found = result(f"benchmarks/results/{name}.json")
        moments = ", ".join(
            f"{count} {moment}" for moment, count in found["kills_by_moment"].items() if count
        )
        lines.append(
            [
                found["engine"],
                f"{found['recordings']:,}, {found['corrupt']:,}",
                f"{found['kills']} ({moments})",
                "yes" if found["identical"] else "no",
            ]
        )
    return grid(["engine", "recordings, corrupt", "kills", "files identical"], lines)
