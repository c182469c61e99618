"""Tables of embeddings: search accuracy and speed, nearest-neighbour labels, and novelty."""

from __future__ import annotations

from experiments.markdown import grid, interval, paragraphs

from tools.doc_tables.io import multiples, percent, result, rounded, size_of


def search() -> str:
    """Return recall and speed of the nearest-neighbour search."""
    results = result("benchmarks/results/search.json")
    rows = [
        ("`mast search`, with its index", "", results["build_s"], results["bytes_per_event"]),
        (
            "`mast search --exact`",
            "exact_",
            None,
            results["bytes_per_event"] - results["index_bytes_per_event"],
        ),
        *([("`mast search`, the table on S3", "s3_", None, None)] if results.get("s3_median_ms") else []),
        ("FAISS in memory, exact", "faiss_flat_", None, None),
        ("FAISS in memory, the same index", "faiss_ivf_pq_", results["faiss_ivf_pq_build_s"], None),
    ]
    lines = [
        [
            title,
            f"{results.get(f'{name}recall_at_10', 1.0):.1%}",
            f"{results[f'{name}median_ms']:.1f} ms",
            "–" if build_s is None else f"{build_s:,.0f} s",
            "–" if size is None else f"{size:,}",
        ]
        for title, name, build_s, size in rows
    ]
    return paragraphs(
        f"{results['vectors']:,} vectors of {results['width']} dimensions:",
        grid(["", "recall of the 10 nearest", "time per search", "build time", "bytes per event"], lines),
        f"Medians of {results['queries']} searches. Vectors are synthetic and distributed like those of real "
        f"events, in clusters of uneven size with {results['directions']} directions of variation "
        "(`python -m benchmarks.search`).",
    )


EVENT_COUNTS = {"a million, measured": 1e6, "10⁹": 1e9, "10¹¹": 1e11}
STORAGE_USD = 0.023
FILTERED = 0.01


def search_scale() -> str:
    """Return costs of larger archives, computed from a table of a million vectors."""
    results = result("benchmarks/results/search.json")
    tables = {name: count / results["vectors"] for name, count in EVENT_COUNTS.items()}
    size, search_s = results["bytes_per_event"] * results["vectors"], results["median_ms"] / 1000
    core_h = results["build_s"] * results["machine"]["cores"] / 3600
    rows = [
        (f"tables of {results['vectors']:,} events", 1.0, lambda count: f"{count:,.0f}"),
        ("vectors, rows and index", size, size_of),
        ("… the index alone", results["index_bytes_per_event"] * results["vectors"], size_of),
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
        return "negligible"
    return f"{count:,.0f}" if count >= 10 else f"{count:.2g}"


def retrieval() -> str:
    """Return how often the nearest call of another recording has the same label, by type of vector."""
    measured = result("experiments/results/retrieval.json")
    whitenings = [*next(iter(measured["vectors"].values()))]
    lines = []
    for name, by_whitening in measured["vectors"].items():
        half = by_whitening["half whitened"]
        top_1 = [interval(by_whitening[whitening]["top_1"]) for whitening in whitenings]
        lines.append([name, *top_1, interval(half["top_5"]), f"{half['mean_rank'][0]:.1f}"])
    first = next(iter(measured["vectors"].values()))["raw"]
    mixed = [
        [voices, interval(pooled["box"]["top_1"]), interval(pooled["chunk"]["top_1"])]
        for voices, pooled in measured["mixtures"].items()
    ]
    head = [
        "vectors",
        *(f"{whitening}, Top-1" for whitening in whitenings),
        "half whitened, Top-5",
        "mean rank",
    ]
    return paragraphs(
        grid(head, lines),
        f"{first['queries']} calls of {first['labels']} labels in {first['recordings']} recordings, among "
        f"{measured['calls']} of {len(measured['labels'])} labels; 95 % intervals over recordings. Encoders are tiny, "
        "trained within minutes to hours.",
        grid(
            ["simultaneous calls, equally loud", "mean over the box, Top-1", "mean over the chunk, Top-1"],
            mixed,
        ),
    )


def novelty() -> str:
    """Return the fraction of calls of a held-out label among the most novel events of an archive."""
    measured = result("experiments/results/novelty.json")
    fractions = {f"{fraction:.0%}": fraction for fraction in measured["fractions"]}
    bound = next(iter(measured["vectors"].values()))["upper_bound"]
    lines = [
        ["by chance", *map(percent, fractions.values())],
        *(
            [name, *(percent(values["mean"][fraction]) for fraction in fractions)]
            for name, values in measured["vectors"].items()
            if "blocks" not in name
        ),
        ["upper bound", *(percent(bound[fraction]) for fraction in fractions)],
    ]
    return paragraphs(
        f"Each label of {measured['calls']} real calls was held out in turn, and a few of its calls were mixed "
        "with calls of the other labels. Fraction of these calls among the most novel events:",
        grid(["vectors", *(f"in the first {fraction}" for fraction in fractions)], lines),
        "`python -m experiments.novelty DATA --model …`",
    )
