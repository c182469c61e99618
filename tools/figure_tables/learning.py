"""What was learned, and how well: pretraining, adapters, the shift benchmark, real studies, thresholds, review."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from statistics import mean
from typing import Any

from experiments.markdown import grid, interval, paragraphs, share
from experiments.shift.tables import ABLATIONS, BUDGET, MAIN, ROLES, SPLITS, TABLES, figures, heads

from figure_tables.reading import A100_BF16, A100_SHARE, CHUNKS_AN_HOUR, a100_hours, result

TITLES = BUDGET | ABLATIONS | MAIN


def shift(name: str) -> Callable[[], str]:
    """A table of the shift benchmark."""
    return lambda: TABLES[name](
        result("experiments/results/shift.json"), result("experiments/results/shift_summary.json")
    )


SHIFT = {f"shift_{name}": shift(name) for name in TABLES}
"""All tables of the benchmark by their names on a page."""


def pretraining() -> str:
    """Cost of 1,000 hours of sound, once through, measured on a CPU and computed for a GPU."""
    measured = result("benchmarks/results/pretrain_step.json")
    speeds, machine = measured["audio_hours_per_hour"], measured["machine"]
    lines = []
    for size, gmac in measured["forward_gmac_per_chunk"].items():
        minutes = 60 * a100_hours(1000 * CHUNKS_AN_HOUR, gmac * 1e9 * 6)
        here = f"{1000 / speeds[size]:,.1f} h" if size in speeds else "not measured"
        lines.append([size, f"{measured['parameters'][size] / 1e6:.1f} M", here, f"{minutes:.1f} min"])
    head = ["model", "parameters with decoder", f"this CPU ({machine['cores']} cores), measured"]
    return paragraphs(
        "One pass (epoch) over 1,000 hours of sound:",
        grid([*head, "one A100, computed"], lines),
        f"Measured: `benchmarks/results/pretrain_step.json` ({machine['processor']}, bf16, reading and "
        "log-mel included). Computed: 6 operations for each multiplication of a forward pass, at "
        f"{A100_SHARE:.0%} of an A100's {A100_BF16 / 1e12:.0f} TFLOP/s; a disk or network that cannot bring "
        "the sound that fast will set the pace instead.",
    )


def knn_probe() -> str:
    """How well frozen features name animals, with and without pretraining."""
    found = result("experiments/results/knn_probe.json")
    titles = {
        "random": "untrained encoder",
        "logmel": "log-mel, the reading that serves it best",
        "pretrained": "pretrained encoder",
    }
    lines = [
        [title, f"{found['mean'][name]:.3f}", ", ".join(f"{value:.3f}" for value in found[name])]
        for name, title in titles.items()
    ]
    return paragraphs(
        grid(["features", "accuracy", "by seed"], lines),
        f"{found['neighbours']} nearest neighbours on {found['clips']} clips of {found['classes']} animal classes, never "
        f"of the same fold or source recording; a {found['model']} encoder after {found['settings']['epochs']} epochs on "
        f"{found['pretraining_hours']} h of other sound (`experiments/results/knn_probe.json`, with every other way of "
        "reading the same features that was looked at).",
    )


def narrow_band() -> str:
    """Narrow calls found with the fine grid and with the encoder's own."""
    found = result("experiments/results/narrow_band.json")
    widths = [width for width in found["recall"]["none"] if width != "all"]
    titles = {"upsampling": "upsampling (128 × 32)", "none": "none (64 × 8)"}
    lines = []
    for name, title in titles.items():
        recall = [found["recall"][name][width] for width in (*widths, "all")]
        lines.append([title, *map(share, (*recall, found["precision"][name], found["mean_iou"][name]))])
    head = ["adapter, and its map of 10.24 s", *(f"{width} Hz" for width in widths)]
    return paragraphs(
        grid([*head, "all", "precision", "mean IoU"], lines),
        f"Share of calls found at IoU {found['min_iou']}, by bandwidth, each detector at its own threshold: "
        f"{found['size']} models trained from scratch for {found['epochs']} epochs on {found['minutes']} minutes of "
        "noise with swept tones (`python -m experiments.narrow_band`).",
    )


REAL_FIGURES = {
    "f1": "F1",
    "best_f1": "best F1",
    "ap_area": "AP, area",
    "precision": "precision",
    "recall": "recall",
    "mean_iou": "mean IoU",
}


def real() -> str:
    """Real studies: what is recommended, baselines, random weights, and starts from made-up calls and sites."""
    found = result("experiments/results/real.json")
    shown, titles = [*REAL_FIGURES], [*REAL_FIGURES.values()]
    lines = [
        [
            study,
            tested,
            f"{counts['recordings']}, {counts['truths']}",
            MAIN[row],
            *(interval(sets[tested][name]) for name in shown),
        ]
        for study, own in found["studies"].items()
        for tested, counts in own["rows"]["scratch"].items()
        for row, sets in sorted(own["rows"].items(), key=lambda item: [*MAIN].index(item[0]))
    ]
    differences = [
        [
            study,
            "{}, less {}".format(*(MAIN[side] for side in pair.split(" - "))),
            *(interval(sets["both"][name]) for name in shown[:3]),
        ]
        for study, own in found["studies"].items()
        for pair, sets in own["differences"].items()
    ]
    taught = [
        item["stayed"] for own in found["studies"].values() for item in own["made"]["rehearsed_st"].values()
    ]
    heard = sorted({name for names in found["start_heard"].values() for name in names})
    starts = [f"{MAIN[name]}: {steps:,}" for name, steps in found["start_steps"].items()]
    return paragraphs(
        grid(["study", "test set", "recordings, boxes", "detector", *titles], lines),
        grid(["study, both test sets", "difference", *titles[:3]], differences),
        f"Per chunk, IoU 0.5, 95 % intervals over recordings. What learns takes up to {2 * found['steps']} steps on a "
        f"study; what some start from took steps before ({'; '.join(starts)}), on soundscapes of {', '.join(heard)}. In "
        f"{sum(map(bool, taught))} of {len(taught)} cases the teacher was not sure enough to teach, and stayed as it was "
        "(`python -m experiments.real DATA --start shift/small`).",
    )


def rounds() -> str:
    """Self-training round by round: what was taught, how much of it was right, and what came of it."""
    found = result("experiments/results/rounds.json")
    lines = []
    for cell, own in found["cells"].items():
        method, seed = cell.split("/")
        for item in own:
            taught, site = item["lesson"], item["site"]
            lesson = (
                [f"{taught['boxes']:,}", share(taught["precision"]), share(taught["recall"])]
                if taught
                else ["–"] * 3
            )
            tests = [item["in_domain"]["ap"], site["precision"], site["recall"], site["f1"], site["ap"]]
            name = TITLES[method] + (f", seed {seed}" if seed != "0" else "")
            ended = f"taken back: {item['taken_back']}" if item["taken_back"] else "kept"
            guard = ended if item["round"] else "the first teacher"
            lines.append([name, str(item["round"]), *lesson, *map(share, tests), guard])
    head = ["method", "round", "boxes taught", "of them right", "of all calls", "in-domain, AP"]
    sites = [f"other sites, {name}" for name in ("precision", "recall", "F1", "AP")]
    cells = " ".join(f"shift/{found['size']}/cells/{name}" for name in found["cells"])
    return paragraphs(grid([*head, *sites, "guard"], lines), f"`python -m experiments.rounds {cells}`")


def sure_teachers() -> str:
    """How often a teacher is right by validation, by made-up calls and in truth, and what each way lets it teach."""
    found = result("experiments/results/sure_teachers.json")
    scores, chosen = [], []
    for cell, own in found["cells"].items():
        name = f"seed {cell.split('/')[1]}"
        scores += [[name, score, *map(share, right.values())] for score, right in own["right"].items()]
        for way, title in (("validation", "validation alone"), ("both", "validation and made-up calls")):
            told = own["chosen"][way]
            taught = (
                [
                    f"{told['score']:.2f}",
                    f"{told['boxes']:,}",
                    share(told["precision"]),
                    share(told["recall"]),
                ]
                if told
                else ["–"] * 4
            )
            chosen.append([name, title, *taught])
    own = next(iter(found["cells"].values()))
    cells = " ".join(f"shift/{found['size']}/cells/{name}" for name in found["cells"])
    return paragraphs(
        grid(
            ["teacher", "from score", "validation", "made-up calls", "both", "in truth, in the pool"], scores
        ),
        f"Share of a teacher's boxes that are right; validation has {own['boxes']['validation']} true boxes, made-up "
        f"calls fill up to 200. From the score at which that is {own['min_precision']:.0%} it teaches:",
        grid(["teacher", "by", "score", "boxes taught", "of them right", "of all calls"], chosen),
        f"`python -m experiments.sure_teachers {cells}`",
    )


def new_sites() -> str:
    """Detectors of the shift benchmark at sites of another world, and what they have more than the first."""
    found = result("experiments/results/new_sites.json")
    seeds = Counter(cell.partition("/")[0] for cell in found["cells"])
    sets = {
        "in_domain": "animals of the labels",
        "temporal": "one new site",
        "site": "three new sites",
        "unseen": "a fifth",
    }
    cells = " ".join(f"shift/small/cells/{name}" for name in found["cells"])
    lines = []
    for names, own in {**found["detectors"], **found["differences"]}.items():
        sides = names.split(" - ")
        counts = " and ".join(str(seeds[side]) for side in sides)
        lines.append([", less ".join(TITLES[side] for side in sides), counts, *figures(own)])
    return paragraphs(
        grid(["detector", "seeds", *heads(sets)], lines), f"`python -m experiments.new_sites DATA {cells}`"
    )


def by_site() -> str:
    """What pairs of methods differ by at each site."""
    found = result("experiments/results/by_site.json")
    sites = {site for own in found["differences"].values() for site in own}
    order = sorted(sites, key=lambda site: (site in found["shared"], site))
    lines = [
        [
            "{}, less {}".format(*({**TITLES, **ROLES}[side] for side in pair.split(" - "))),
            *(interval(own[site][name]) for site in order for name in ("f1", "ap")),
        ]
        for pair, own in found["differences"].items()
    ]
    head = ["difference", *(f"{site}, {name}" for site in order for name in ("F1", "AP"))]
    return paragraphs(grid(head, lines), "`python -m experiments.by_site`")


def anatomy() -> str:
    """What became of sounds and predictions, where loudness matters, and what sharper edges could win."""
    found = result("experiments/results/anatomy.json")["detectors"]

    def shares(counts: dict[str, int]) -> str:
        return " / ".join(share(count / max(1, sum(counts.values()))) for count in counts.values())

    def found_of(part: dict[str, Any]) -> str:
        return "–" if part["found"] is None else f"{part['found']:.2f} of {part['sounds']}"

    lines = [
        [
            TITLES[name.partition("/")[0]],
            SPLITS[split],
            shares(own["sounds"]),
            shares(own["predictions"]),
            " / ".join(str(count) for count in own["loose_because"].values()),
            " / ".join(share(part["found"]) for part in own["by_loudness"]),
            " / ".join(found_of(part) for part in own["by_width"]),
            " / ".join(share(own[key]) for key in ("ap_at_50", "ap_at_30", "ap_at_10")),
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
    folders = " ".join(f"shift/small/cells/{name}/evaluation" for name in found)
    return paragraphs(grid(head, lines), f"`python -m experiments.anatomy {folders}`")


def thresholds() -> str:
    """What a threshold from few validation boxes costs, by the rule that chooses it."""
    found = result("experiments/results/thresholds.json")
    titles = {"best": "highest F1", "bagged": "mean over resamples", "steady": "amid nearly the highest"}
    lines = []
    for size, own in found["sizes"].items():
        rules = [own["rules"][name] for name in titles]
        lines.append([size, *(f"{rule['lost']:.3f} ({rule['lost_by_a_tenth']:.2f})" for rule in rules)])
    return paragraphs(
        grid(["validation boxes", *titles.values()], lines),
        "F1 lost against the best threshold for the sound that is tested, and in brackets what a tenth of all draws lose "
        f"at least; {found['evaluations']} detectors, up to {max(own['sets'] for own in found['sizes'].values())} test "
        f"sets, {found['draws']} draws of validation recordings each "
        "(`python -m experiments.thresholds shift/small/cells/NAME/0/evaluation …`).",
    )


def made_up_thresholds() -> str:
    """What made-up calls add to a threshold from few validation boxes."""
    found = result("experiments/results/made_up_thresholds.json")
    cells = found["cells"]
    lines = []
    for told, names in (
        ("learned from made-up calls, too", [name for name in cells if name.startswith("at_once")]),
        ("FCOS, learned from labels alone", [name for name in cells if name.startswith("fcos_band")]),
    ):
        sizes = cells[names[0]]["f1"]
        totals = sizes[[*sizes][-1]]
        for size, own in sizes.items():
            row = [
                _lost([cells[name] for name in names], size, total) if total in own else "–"
                for total in totals
            ]
            lines.append([told, f"{size} (all)" if size == [*sizes][-1] else size, *row])
    head = [
        "detector",
        "validation boxes",
        *(f"up to {total}" if int(total) else "alone" for total in totals),
    ]
    return paragraphs(
        grid(head, lines),
        "F1 lost against the best threshold for the sound that is tested, in the mean over all test sets, and in "
        f"brackets what a tenth of {found['draws']} deals of validation chunks loses at least; "
        f"{sum(name.startswith('at_once') for name in cells)} detectors of one seed that had learned from made-up calls, "
        "one that had not. *Up to 200*: made-up calls over quiet validation chunks fill up to 200 boxes "
        "(`python -m experiments.made_up_thresholds shift/small/soundscapes/study.yaml shift/small/cells/…`).",
    )


def _lost(cells: list[dict[str, Any]], size: str, total: str) -> str:
    """F1 lost in the mean over detectors and test sets, and in the worst tenth."""
    lost = {
        way: mean(
            cell["best"][name] - own[way] for cell in cells for name, own in cell["f1"][size][total].items()
        )
        for way in ("mean", "tenth")
    }
    return f"{lost['mean']:.3f} ({lost['tenth']:.2f})"


def site_thresholds() -> str:
    """F1 at other sites with one threshold, with one for each found without labels, and in hindsight."""
    found = result("experiments/results/site_thresholds.json")["detectors"]
    ways = [*next(iter(found.values()))]
    lines = [
        [TITLES[name.partition("/")[0]], *(share(own[way]) for way in ways)] for name, own in found.items()
    ]
    folders = " ".join(f"shift/small/cells/{name}/evaluation" for name in found)
    return paragraphs(
        grid(["F1 at other sites", *ways], lines), f"`python -m experiments.site_thresholds {folders}`"
    )


def review_loop() -> str:
    """What a detector finds on later days after each round of two reviewers."""
    found = result("experiments/results/review_loop.json")
    lines = []
    for reviewer, seeds in found["reviewers"].items():
        for seed, rounds in seeds.items():
            who = reviewer if len(seeds) == 1 else f"{reviewer}, seed {seed}"
            for number, row in enumerate(rounds):
                f1, area = (
                    interval([row[name][part] for part in ("value", "low", "high")])
                    for name in ("f1", "ap_area")
                )
                learned_from = f"{row['chunks']}, {row['boxes']}"
                lines.append([who, str(number), learned_from, f1, share(row["best_f1"]), area])
    return paragraphs(
        grid(["asked for", "round", "chunks, boxes learned from", "F1", "best F1", "AP"], lines),
        "`experiments/results/review_loop.json`; 95 % intervals over recordings.",
    )
