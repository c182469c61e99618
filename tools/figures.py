"""Fill the figures of the documentation from the result files, so that no number is typed by hand.

A block `<!-- figures NAME -->` … `<!-- end -->` of a page is replaced by what the function NAME makes of the results.

    python tools/figures.py            # rewrite the pages
    python tools/figures.py --check    # fail where a page is out of date
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"(<!-- figures (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
A100_BF16 = 312e12
A100_SHARE = 0.35
"""Share of an A100's peak that ViT training usually reaches: an assumption, and stated beside the figure."""

CHUNKS_AN_HOUR = 3600 / 10.24


def main() -> None:
    """Rewrite the pages, or tell which are out of date."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    stale = []
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        text = page.read_text("utf-8")
        filled = BLOCK.sub(lambda block: block[1] + FIGURES[block[2]]() + block[3], text)
        if filled != text:
            stale.append(str(page.relative_to(ROOT)))
            if not check:
                page.write_text(filled, "utf-8")
    if check and stale:
        sys.exit(f"{', '.join(stale)}: out of date; run python tools/figures.py")


def shift(name: str) -> Callable[[], str]:
    """A table of the shift benchmark."""
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    from experiments.shift.tables import TABLES

    return lambda: TABLES[name](
        result("experiments/results/shift.json"), result("experiments/results/shift_summary.json")
    )


def result(path: str) -> dict[str, Any]:
    """A result file."""
    values: dict[str, Any] = json.loads((ROOT / path).read_text("utf-8"))
    return values


def pretraining() -> str:
    """Cost of 1,000 hours of sound, once through, measured on a CPU and computed for a GPU."""
    measured = result("benchmarks/results/pretrain_step.json")
    lines = [
        "One pass (epoch) over 1,000 hours of sound:",
        "",
        f"| model | parameters with decoder | this CPU ({measured['machine']['cores']} cores), measured "
        "| one A100, computed |",
        "|---|---|---|---|",
    ]
    for size, speed in measured["audio_hours_per_hour"].items():
        lines.append(
            f"| {size} | {measured['parameters'][size] / 1e6:.1f} M | {1000 / speed:,.1f} h "
            f"| {_a100_minutes(measured['forward_gmac_per_chunk'][size]):.1f} min |"
        )
    base = measured["forward_gmac_per_chunk"].get("base")
    if base and "base" not in measured["audio_hours_per_hour"]:
        lines.append(
            f"| base | {measured['parameters']['base'] / 1e6:.1f} M | not measured | {_a100_minutes(base):.1f} min |"
        )
    lines += [
        "",
        f"Measured: `benchmarks/results/pretrain_step.json` ({measured['machine']['processor']}, bf16, reading and "
        "log-mel included). Computed: 6 operations for each multiplication of a forward pass, at "
        f"{A100_SHARE:.0%} of an A100's {A100_BF16 / 1e12:.0f} TFLOP/s; a disk or network that cannot bring "
        "the sound that fast will set the pace instead.",
    ]
    return "\n".join(lines) + "\n"


def _a100_minutes(forward_gmac: float) -> float:
    return 1000 * CHUNKS_AN_HOUR * forward_gmac * 1e9 * 6 / (A100_BF16 * A100_SHARE) / 60


def knn_probe() -> str:
    """How well frozen features name animals, with and without pretraining."""
    found = result("experiments/results/knn_probe.json")
    seeds = {name: ", ".join(f"{value:.3f}" for value in found[name]) for name in found["mean"]}
    titles = {
        "random": "untrained encoder",
        "logmel": "log-mel, the reading that serves it best",
        "pretrained": "pretrained encoder",
    }
    lines = ["| features | accuracy | by seed |", "|---|---|---|"]
    lines += [f"| {title} | {found['mean'][name]:.3f} | {seeds[name]} |" for name, title in titles.items()]
    lines += [
        "",
        f"{found['neighbours']} nearest neighbours on {found['clips']} clips of {found['classes']} animal classes, never "
        f"of the same fold or source recording; a {found['model']} encoder after {found['settings']['epochs']} epochs on "
        f"{found['pretraining_hours']} h of other sound (`experiments/results/knn_probe.json`, with every other way of "
        "reading the same features that was looked at).",
    ]
    return "\n".join(lines) + "\n"


def narrow_band() -> str:
    """Narrow calls found with the fine grid and with the encoder's own."""
    found = result("experiments/results/narrow_band.json")
    widths = [width for width in found["recall"]["none"] if width != "all"]
    titles = {"upsampling": "upsampling (128 × 32)", "none": "none (64 × 8)"}
    lines = [
        "| adapter, and its map of 10.24 s | "
        + " | ".join(f"{width} Hz" for width in widths)
        + " | all | precision | mean IoU |",
        "|---|" + "---|" * (len(widths) + 3),
    ]
    for name, title in titles.items():
        recall = [*(found["recall"][name][width] for width in widths), found["recall"][name]["all"]]
        others = (found["precision"][name], found["mean_iou"][name])
        cells = " | ".join("–" if value is None else f"{value:.2f}" for value in (*recall, *others))
        lines.append(f"| {title} | {cells} |")
    lines += [
        "",
        f"Share of calls found at IoU {found['min_iou']}, by bandwidth, each detector at its own threshold: "
        f"{found['size']} models trained from scratch for {found['epochs']} epochs on {found['minutes']} minutes of "
        "noise with swept tones (`python -m experiments.narrow_band`).",
    ]
    return "\n".join(lines) + "\n"


def real() -> str:
    """Real studies: after rehearsal, with and without self-training, from random weights, and an energy threshold."""
    from experiments.shift.tables import MAIN, interval

    found = result("experiments/results/real.json")
    shown = ("f1", "best_f1", "ap_area", "precision", "recall", "mean_iou")
    titles = ("F1", "best F1", "AP, area", "precision", "recall", "mean IoU")
    lines = [
        f"| study | test set | recordings, boxes | detector | {' | '.join(titles)} |",
        "|---" * (len(titles) + 4) + "|",
    ]
    for study, own in found["studies"].items():
        for tested, counts in own["rows"]["scratch"].items():
            place = f"| {study} | {tested} | {counts['recordings']}, {counts['truths']} |"
            for row, sets in own["rows"].items():
                cells = " | ".join(interval(sets[tested][name]) for name in shown)
                lines.append(f"{place} {MAIN[row]} | {cells} |")
    lines += ["", "| study, both test sets | difference | F1 | best F1 | AP, area |", "|---" * 5 + "|"]
    for study, own in found["studies"].items():
        for pair, sets in own["differences"].items():
            one, other = pair.split(" - ")
            cells = " | ".join(interval(sets["both"][name]) for name in shown[:3])
            lines.append(f"| {study} | {MAIN[one]}, less {MAIN[other]} | {cells} |")
    taught = [
        item["stayed"] for own in found["studies"].values() for item in own["made"]["rehearsed_st"].values()
    ]
    heard = sorted({name for names in found["start_heard"].values() for name in names})
    starts = [f"{MAIN[name]}: {steps:,}" for name, steps in found["start_steps"].items()]
    lines += [
        "",
        f"Per chunk, IoU 0.5, 95 % intervals over recordings. What learns takes up to {2 * found['steps']} steps on a "
        f"study; what some start from took steps before ({'; '.join(starts)}), on soundscapes of {', '.join(heard)}. In "
        f"{sum(map(bool, taught))} of {len(taught)} cases the teacher was not sure enough to teach, and stayed as it was "
        "(`python -m experiments.real DATA --start shift/small`).",
    ]
    return "\n".join(lines) + "\n"


def search() -> str:
    """How well and how fast the nearest sounds are found."""
    found = result("benchmarks/results/search.json")
    rows = [
        ("`mast search`, with its index", "", found["build_s"], found["bytes_per_event"]),
        ("`mast search --exact`", "exact_", None, found["bytes_per_event"] - found["index_bytes_per_event"]),
        *([("`mast search`, the table on S3", "s3_", None, None)] if found.get("s3_median_ms") else []),
        ("FAISS in memory, all compared", "faiss_flat_", None, None),
        ("FAISS in memory, the same index", "faiss_ivf_pq_", found["faiss_ivf_pq_build_s"], None),
    ]
    lines = [
        f"{found['vectors']:,} sounds of {found['width']} numbers:",
        "",
        "| | of the 10 nearest, found | a search | built in | bytes a sound |",
        "|---|---|---|---|---|",
    ]
    for title, name, build_s, size in rows:
        recall = found.get(f"{name}recall_at_10", 1.0)
        cells = [f"{recall:.1%}", f"{found[f'{name}median_ms']:.1f} ms"]
        cells += ["–" if build_s is None else f"{build_s:,.0f} s", "–" if size is None else f"{size:,}"]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    lines += [
        "",
        f"Medians of {found['queries']} searches. Vectors are made up to lie as those of real sounds do, in groups of "
        f"uneven size with {found['directions']} directions in which they differ "
        "(`python -m benchmarks.search`).",
    ]
    return "\n".join(lines) + "\n"


def _interval(numbers: list[float | None]) -> str:
    value, low, high = ("–" if number is None else f"{number:.2f}" for number in numbers)
    return f"{value} ({low}–{high})"


def engines() -> str:
    """What an engine and the product's hop cost, against float32 in chunks that overlap by half."""
    found = result("experiments/results/engines.json")
    lines = ["| arithmetic | hop, in chunks | average precision | F1 | events |", "|---|---|---|---|---|"]
    lines += [
        f"| {row['engine']} | {row['hop']:g} | {row['ap']:.3f} | {row['f1']:.3f} | {row['events']:,} |"
        for row in found["engines"]
    ]
    lines += [
        "",
        f"One tiny detector over the {found['recordings']} recordings of the shift benchmark's test sets, with "
        f"{found['engines'][0]['calls']:,} calls (`python -m experiments.engines STUDY.yaml MODEL`); no intervals were "
        "computed.",
    ]
    return "\n".join(lines) + "\n"


def phase() -> str:
    """How many events are found again where chunks begin elsewhere, and calls when chunks cut them and when not."""
    found = result("experiments/results/phase.json")
    lines = ["| events | number | found again, IoU 0.5 | IoU 0.7 | IoU 0.9 |", "|---|---|---|---|---|"]
    every = " | ".join(map(_interval, found["same_at_iou"].values()))
    lines.append(f"| all | {found['events_compared']:,} | {every} |")
    for told, unit in (("score", ""), ("length", "_s"), ("depth", "_s")):
        rows = [row for row in found[f"by_{told}{unit}"] if row["events"]]
        for row in rows:
            same = " | ".join(f"{value:.2f}" for value in row["same_at_iou"].values())
            at_least = f"{told} from {row['from']:g}{' s' if unit else ''} on"
            lines.append(f"| {at_least} | {row['events']:,} | {same} |")
    return "\n".join([*lines, "", _fates(found), "", _cut_calls(found["recall_of_the_same_calls"]), ""])


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
        f"Of {calls['calls']} experts' calls that a chunk cuts at some phases and not at others, "
        f"{_interval(calls['cut'])} are found when cut and {_interval(calls['inside'])} when not, a difference of "
        f"{_interval(calls['difference'])}."
    )


def phase_ways() -> str:
    """What ways to depend less on chunks gain and cost."""
    found = result("experiments/results/phase_ways.json")
    lines = [
        "| way | found again, IoU 0.5 | IoU 0.7 | IoU 0.9 | average precision | against the first | F1 | × the chunks |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in found["ways"]:
        same = " | ".join(f"{row['same_at_iou'][iou][0]:.2f}" for iou in ("0.5", "0.7", "0.9"))
        value, low, high = row["ap_gain"]
        gain = f"{value:+.3f} ({low:+.3f} to {high:+.3f})"
        lines.append(
            f"| {row['way']} | {same} | {row['ap']:.3f} | {gain} | {row['f1']:.3f} | {row['times_the_chunks']:.2f} |"
        )
    lines += [
        "",
        f"{found['recordings']} recordings at {len(found['phases_frames'])} phases "
        "(`python -m experiments.phase_ways STUDY.yaml MODEL`); every way tells as many events as the first.",
    ]
    return "\n".join(lines) + "\n"


def throughput() -> str:
    """Speed of detection by model and arithmetic, beside the bare network and BirdNET."""
    found = result("benchmarks/results/throughput.json")
    lines = [
        "| model | arithmetic | × real time, one core | of the bare network's speed | of bare BirdNET's |",
        "|---|---|---|---|---|",
    ]
    for row in found["models"]:
        ratios = " | ".join(
            "–" if value is None else f"{value:.2f}"
            for value in (row["ratio_to_bare"], row["ratio_to_birdnet"])
        )
        told = f"{row['precision']} ({row['engine']})" if row["precision"] == "fastest" else row["precision"]
        lines.append(f"| {row['size']} | {told} | {row['x_real_time']:.0f} | {ratios} |")
    return "\n".join([*lines, "", f"`benchmarks/results/throughput.json`, {_machine(found)}."]) + "\n"


def _machine(found: dict[str, Any]) -> str:
    return f"{found['machine']['cores']} cores of an {found['machine']['processor']}"


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
    lines = ["| what | measured |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows.items())]
    return "\n".join(lines) + "\n"


SIZES_H = {"1,000 h": 1e3, "100,000 h": 1e5, "17 million h": 17e6}
BYTES_AN_HOUR = 48_000 * 2 * 3600
EVENTS_AN_HOUR = {"quiet": 60, "tropical dawn": 12 * 360}
PART_H = 4
CORE_USD = 0.04
A100_INFERENCE_SHARE = 0.35


def _rounded(number: float) -> str:
    """A count to two digits."""
    if number < 10:
        return f"{number:.1f}"
    digits = len(f"{number:.0f}") - 2
    return f"{round(number, -digits):,.0f}"


def _bytes(count: float) -> str:
    for unit, size in (("PB", 1e15), ("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count / 1e3:.0f} kB"


def scale() -> str:
    """Arithmetic from the unit costs to three sizes."""
    speed, crash = (result(f"benchmarks/results/{name}.json") for name in ("throughput", "crash"))
    best = {row["size"]: row for row in speed["models"] if row["precision"] == "fastest"}
    lines = ["| | " + " | ".join(SIZES_H) + " |", "|---|" + "---|" * len(SIZES_H)]

    def add(name: str, an_hour: float, told: Callable[[float], str] = _rounded) -> None:
        lines.append(f"| {name} | " + " | ".join(told(hours * an_hour) for hours in SIZES_H.values()) + " |")

    for size, row in best.items():
        add(f"core-hours, {size}", 1 / row["x_real_time"])
    add("bytes to read, 48 kHz WAV", BYTES_AN_HOUR, _bytes)
    add("recordings of a minute", 60)
    add(f"parts of {PART_H} h, two files each", 1 / PART_H)
    for place, events in EVENTS_AN_HOUR.items():
        add(f"events, {place} ({events:,} an hour)", events)
        add("… on disk", events * crash["event_bytes"], _bytes)
    for size, row in best.items():
        add(f"A100-hours, {size}, computed", _a100_share_h(row["gmac_a_chunk"]))
    costs = [f"{size} {1000 / row['x_real_time'] * CORE_USD:.2f} USD" for size, row in best.items()]
    lines += [
        "",
        f"Money for 1,000 hours of sound on processors, at {CORE_USD:.2f} USD a core-hour (an assumption; put in your "
        f"own): {', '.join(costs)}. A100-hours are computed from the network's multiplications at "
        f"{A100_INFERENCE_SHARE:.0%} of its {A100_BF16 / 1e12:.0f} TFLOP/s; none was at hand, and decoding will set the "
        "pace of a tiny model there.",
    ]
    return "\n".join(lines) + "\n"


def _a100_share_h(gmac_a_chunk: float) -> float:
    """Hours of an A100 for an hour of sound, at a hop of 0.9 chunks."""
    chunks = CHUNKS_AN_HOUR / 0.9
    return chunks * gmac_a_chunk * 2e9 / (A100_BF16 * A100_INFERENCE_SHARE) / 3600


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
    lines = [
        "| | " + " | ".join(f"{count:,} events" for count in counts) + " |",
        "|---|" + "---|" * len(counts),
    ]
    for name, told in USES.items():
        own = {run["events"]: run for run in runs if run["command"] == name}
        cells = [f"{own[count]['s']:.0f} s, {own[count]['peak_mb']:,} MB" for count in counts]
        lines.append(f"| {told} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", "`benchmarks/results/use_events.json`."]) + "\n"


EVENT_COUNTS = {"a million, measured": 1e6, "10⁹": 1e9, "10¹¹": 1e11}
STORAGE_USD = 0.023
FILTERED = 0.01


def search_scale() -> str:
    """Arithmetic from a table of a million vectors to as many such tables as there are events."""
    found = result("benchmarks/results/search.json")
    tables = {name: count / found["vectors"] for name, count in EVENT_COUNTS.items()}
    lines = ["| | " + " | ".join(tables) + " |", "|---|" + "---|" * len(tables)]

    def add(name: str, a_table: float, told: Callable[[float], str] = _rounded) -> None:
        lines.append(f"| {name} | " + " | ".join(told(count * a_table) for count in tables.values()) + " |")

    size = found["bytes_per_event"] * found["vectors"]
    add(f"tables of {found['vectors']:,} events", 1, lambda count: f"{count:,.0f}")
    add("vectors, rows and index", size, _bytes)
    add("… the index alone", found["index_bytes_per_event"] * found["vectors"], _bytes)
    add("core-hours to build all indexes", found["build_s"] * found["machine"]["cores"] / 3600)
    add("core-seconds of a search through everything", found["median_ms"] / 1000, _seconds)
    add(f"… through {FILTERED:.0%} of the tables", FILTERED * found["median_ms"] / 1000, _seconds)
    add("USD a month to keep it", size / 1e9 * STORAGE_USD)
    lines += [
        "",
        f"Storage at {STORAGE_USD} USD a GB and month, an assumption; `benchmarks/results/search.json`.",
    ]
    return "\n".join(lines) + "\n"


def _seconds(count: float) -> str:
    if count < 0.005:
        return "none to speak of"
    return f"{count:,.0f}" if count >= 10 else f"{count:.2g}"


def crashes() -> str:
    """Runs that were killed, against those that were not."""
    lines = ["| engine | recordings, corrupt | kills | files identical |", "|---|---|---|---|"]
    for name in ("crash", "crash_ray"):
        found = result(f"benchmarks/results/{name}.json")
        moments = ", ".join(
            f"{count} {moment}" for moment, count in found["kills_by_moment"].items() if count
        )
        same = "yes" if found["identical"] else "no"
        lines.append(
            f"| {found['engine']} | {found['recordings']:,}, {found['corrupt']:,} | {found['kills']} ({moments}) "
            f"| {same} |"
        )
    return "\n".join(lines) + "\n"


def retrieval() -> str:
    """How often the nearest call of another recording has the right name, by the vectors that are compared."""
    measured = result("experiments/results/retrieval.json")
    ways = list(next(iter(measured["vectors"].values())))
    lines = [
        f"| vectors | {' | '.join(f'{way}, Top-1' for way in ways)} | half whitened, Top-5 | mean rank |"
    ]
    lines.append("|---" * (len(ways) + 3) + "|")
    for name, own in measured["vectors"].items():
        told = " | ".join(_interval(own[way]["top_1"]) for way in ways)
        half = own["half whitened"]
        lines.append(f"| {name} | {told} | {_interval(half['top_5'])} | {half['mean_rank'][0]:.1f} |")
    first = next(iter(measured["vectors"].values()))["raw"]
    lines += [
        "",
        f"{first['queries']} calls of {first['labels']} labels in {first['recordings']} recordings, among "
        f"{measured['calls']} of {len(measured['labels'])} labels; 95 % intervals over recordings. Encoders are tiny, "
        "trained within minutes to hours.",
        "",
        "| calls at once, equally loud | mean under the box, Top-1 | mean over the chunk, Top-1 |",
        "|---|---|---|",
    ]
    for voices, own in measured["mixtures"].items():
        lines.append(f"| {voices} | {_interval(own['box']['top_1'])} | {_interval(own['chunk']['top_1'])} |")
    return "\n".join([*lines, ""])


def review_loop() -> str:
    """What a detector finds on later days after each round of two reviewers."""
    found = result("experiments/results/review_loop.json")
    lines = [
        "| asked for | round | chunks, boxes learned from | F1 | best F1 | AP |",
        "|---|---|---|---|---|---|",
    ]
    for reviewer, seeds in found["reviewers"].items():
        for seed, rounds in seeds.items():
            for number, row in enumerate(rounds):
                f1, area = (
                    _interval([row[name][part] for part in ("value", "low", "high")])
                    for name in ("f1", "ap_area")
                )
                who = reviewer if len(seeds) == 1 else f"{reviewer}, seed {seed}"
                cells = [
                    who,
                    str(number),
                    f"{row['chunks']}, {row['boxes']}",
                    f1,
                    f"{row['best_f1']:.2f}",
                    area,
                ]
                lines.append(f"| {' | '.join(cells)} |")
    return (
        "\n".join([*lines, "", "`experiments/results/review_loop.json`; 95 % intervals over recordings."])
        + "\n"
    )


def novelty() -> str:
    """Which share of calls of a held-out label is among the most novel sounds of an archive."""
    measured = result("experiments/results/novelty.json")
    shares = [f"{share:.0%}" for share in measured["shares"]]
    lines = [
        f"Each label of {measured['calls']} real calls was held out in turn, and a few of its calls hidden among "
        "those of known ones. So many of them are among the most novel sounds:",
        "",
        f"| vectors | {' | '.join(f'in the first {share}' for share in shares)} |",
        "|---" * (len(shares) + 1) + "|",
        f"| by chance | {' | '.join(share.replace('%', ' %') for share in shares)} |",
    ]
    for name, own in measured["vectors"].items():
        if "blocks" not in name:
            told = " | ".join(f"{own['mean'][share]:.0%}".replace("%", " %") for share in shares)
            lines.append(f"| {name} | {told} |")
    room = next(iter(measured["vectors"].values()))["room"]
    told = " | ".join(f"{room[share]:.0%}".replace("%", " %") for share in shares)
    return "\n".join(
        [*lines, f"| at best | {told} |", "", "`python -m experiments.novelty DATA --model …`", ""]
    )


def site_thresholds() -> str:
    """F1 at other sites with one threshold, with one for each found without labels, and in hindsight."""
    from experiments.shift.tables import MAIN, grid

    found = result("experiments/results/site_thresholds.json")["detectors"]
    ways = [*next(iter(found.values()))]
    lines = [
        [MAIN[name.partition("/")[0]], *(f"{own[way]:.2f}" for way in ways)] for name, own in found.items()
    ]
    return grid(["F1 at other sites", *ways], lines)


def new_sites() -> str:
    """Detectors of the shift benchmark at sites of another world, and what they have more than the first."""
    from experiments.shift.tables import ABLATIONS, MAIN, figures, grid, heads

    found = result("experiments/results/new_sites.json")
    titles = ABLATIONS | MAIN
    rows = {titles[name]: own for name, own in found["detectors"].items()} | {
        "{}, less {}".format(*(titles[side] for side in pair.split(" - "))): own
        for pair, own in found["differences"].items()
    }
    sets = {
        "in_domain": "animals of the labels",
        "temporal": "one new site",
        "site": "three new sites",
        "unseen": "a fifth",
    }
    cells = " ".join(f"shift/small/cells/{name}" for name in found["cells"])
    lines = [[title, *figures(own)] for title, own in rows.items()]
    return grid(["detector", *heads(sets)], lines) + f"\n`python -m experiments.new_sites DATA {cells}`\n"


def anatomy() -> str:
    """What became of sounds and predictions, where loudness matters, and what sharper edges could win."""
    from experiments.shift.tables import ABLATIONS, MAIN, SPLITS, grid

    found = result("experiments/results/anatomy.json")["detectors"]
    titles = ABLATIONS | MAIN

    def shares(counts: dict[str, int]) -> str:
        return " / ".join(f"{count / max(1, sum(counts.values())):.2f}" for count in counts.values())

    def found_of(part: dict[str, Any]) -> str:
        return "–" if part["found"] is None else f"{part['found']:.2f} of {part['sounds']}"

    lines = [
        [
            titles[name.partition("/")[0]],
            SPLITS[split],
            shares(own["sounds"]),
            shares(own["predictions"]),
            " / ".join(str(count) for count in own["loose_because"].values()),
            " / ".join(f"{part['found']:.2f}" for part in own["by_loudness"]),
            " / ".join(found_of(part) for part in own["by_width"]),
            " / ".join(f"{own[key]:.2f}" for key in ("ap_at_50", "ap_at_30", "ap_at_10")),
        ]
        for name, sets in found.items()
        for split, own in sets.items()
    ]
    head = [
        "detector",
        "test set",
        "sounds found / loose / missed",
        "boxes right / loose / double / alarm",
        "loose sounds: box too long / short / wide / narrow / beside",
        "found of the faintest / middle / loudest third",
        "found of bands under 6 bins / under 24 / wider",
        "AP at IoU 0.5 / 0.3 / 0.1",
    ]
    return grid(head, lines) + "\n`python -m experiments.anatomy shift/small/cells/*/0/evaluation`\n"


def thresholds() -> str:
    """What a threshold from few validation boxes costs, by the rule that chooses it."""
    found = result("experiments/results/thresholds.json")
    titles = {"best": "highest F1", "bagged": "mean over resamples", "steady": "amid nearly the highest"}
    lines = [
        f"| validation boxes | {' | '.join(titles.values())} |",
        "|---" * (len(titles) + 1) + "|",
    ]
    for size, own in found["sizes"].items():
        rules = [own["rules"][name] for name in titles]
        cells = " | ".join(f"{rule['lost']:.3f} ({rule['lost_by_a_tenth']:.2f})" for rule in rules)
        lines.append(f"| {size} | {cells} |")
    lines += [
        "",
        "F1 lost against the best threshold for the sound that is tested, and in brackets what a tenth of all draws lose "
        f"at least; {found['evaluations']} detectors, up to {max(own['sets'] for own in found['sizes'].values())} test "
        f"sets, {found['draws']} draws of validation recordings each "
        "(`python -m experiments.thresholds shift/small/cells/*/0/evaluation`).",
    ]
    return "\n".join(lines) + "\n"


FIGURES: dict[str, Callable[[], str]] = {
    "review_loop": review_loop,
    "novelty": novelty,
    "retrieval": retrieval,
    "engines": engines,
    "phase": phase,
    "phase_ways": phase_ways,
    "throughput": throughput,
    "archive_costs": archive_costs,
    "scale": scale,
    "crashes": crashes,
    "search_scale": search_scale,
    "use_events": use_events,
    "pretraining": pretraining,
    "knn_probe": knn_probe,
    "narrow_band": narrow_band,
    "real": real,
    "search": search,
    "site_thresholds": site_thresholds,
    "thresholds": thresholds,
    "anatomy": anatomy,
    "new_sites": new_sites,
    **{f"shift_{name}": shift(name) for name in ("main", "differences", "targets", "ablations", "details")},
}

if __name__ == "__main__":
    main()
