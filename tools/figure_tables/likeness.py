"""Sounds that are alike: how well and how fast they are found, named, and told from what is new."""

from __future__ import annotations

from experiments.markdown import grid, interval, paragraphs

from figure_tables.reading import multiples, percent, result, rounded, size_of


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
        [
            title,
            f"{found.get(f'{name}recall_at_10', 1.0):.1%}",
            f"{found[f'{name}median_ms']:.1f} ms",
            "–" if build_s is None else f"{build_s:,.0f} s",
            "–" if size is None else f"{size:,}",
        ]
        for title, name, build_s, size in rows
    ]
    return paragraphs(
        f"{found['vectors']:,} sounds of {found['width']} numbers:",
        grid(["", "of the 10 nearest, found", "a search", "built in", "bytes a sound"], lines),
        f"Medians of {found['queries']} searches. Vectors are made up to lie as those of real sounds do, in groups of "
        f"uneven size with {found['directions']} directions in which they differ "
        "(`python -m benchmarks.search`).",
    )


EVENT_COUNTS = {"a million, measured": 1e6, "10⁹": 1e9, "10¹¹": 1e11}
STORAGE_USD = 0.023
FILTERED = 0.01


def search_scale() -> str:
    """Arithmetic from a table of a million vectors to as many such tables as there are events."""
    found = result("benchmarks/results/search.json")
    tables = {name: count / found["vectors"] for name, count in EVENT_COUNTS.items()}
    size, search_s = found["bytes_per_event"] * found["vectors"], found["median_ms"] / 1000
    core_h = found["build_s"] * found["machine"]["cores"] / 3600
    rows = [
        (f"tables of {found['vectors']:,} events", 1.0, lambda count: f"{count:,.0f}"),
        ("vectors, rows and index", size, size_of),
        ("… the index alone", found["index_bytes_per_event"] * found["vectors"], size_of),
        ("core-hours to build all indexes", core_h, rounded),
        ("core-seconds of a search through everything", search_s, _seconds),
        (f"… through {FILTERED:.0%} of the tables", FILTERED * search_s, _seconds),
        ("USD a month to keep it", size / 1e9 * STORAGE_USD, rounded),
    ]
    return paragraphs(
        multiples(tables, rows),
        f"Storage at {STORAGE_USD} USD a GB and month, an assumption; `benchmarks/results/search.json`.",
    )


def _seconds(count: float) -> str:
    if count < 0.005:
        return "none to speak of"
    return f"{count:,.0f}" if count >= 10 else f"{count:.2g}"


def retrieval() -> str:
    """How often the nearest call of another recording has the right name, by the vectors that are compared."""
    measured = result("experiments/results/retrieval.json")
    ways = [*next(iter(measured["vectors"].values()))]
    lines = []
    for name, own in measured["vectors"].items():
        half = own["half whitened"]
        told = [interval(own[way]["top_1"]) for way in ways]
        lines.append([name, *told, interval(half["top_5"]), f"{half['mean_rank'][0]:.1f}"])
    first = next(iter(measured["vectors"].values()))["raw"]
    mixed = [
        [voices, interval(own["box"]["top_1"]), interval(own["chunk"]["top_1"])]
        for voices, own in measured["mixtures"].items()
    ]
    head = ["vectors", *(f"{way}, Top-1" for way in ways), "half whitened, Top-5", "mean rank"]
    return paragraphs(
        grid(head, lines),
        f"{first['queries']} calls of {first['labels']} labels in {first['recordings']} recordings, among "
        f"{measured['calls']} of {len(measured['labels'])} labels; 95 % intervals over recordings. Encoders are tiny, "
        "trained within minutes to hours.",
        grid(
            ["calls at once, equally loud", "mean under the box, Top-1", "mean over the chunk, Top-1"], mixed
        ),
    )


def novelty() -> str:
    """Which share of calls of a held-out label is among the most novel sounds of an archive."""
    measured = result("experiments/results/novelty.json")
    shares = {f"{share:.0%}": share for share in measured["shares"]}
    room = next(iter(measured["vectors"].values()))["room"]
    lines = [
        ["by chance", *map(percent, shares.values())],
        *(
            [name, *(percent(own["mean"][share]) for share in shares)]
            for name, own in measured["vectors"].items()
            if "blocks" not in name
        ),
        ["at best", *(percent(room[share]) for share in shares)],
    ]
    return paragraphs(
        f"Each label of {measured['calls']} real calls was held out in turn, and a few of its calls hidden among "
        "those of known ones. So many of them are among the most novel sounds:",
        grid(["vectors", *(f"in the first {share}" for share in shares)], lines),
        "`python -m experiments.novelty DATA --model …`",
    )
