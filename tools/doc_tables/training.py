"""Tables of training: pretraining, adapters, the shift benchmark, real studies, thresholds, active learning."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from statistics import mean
from typing import Any

from experiments.markdown import decimal, grid, interval, paragraphs
from experiments.shift.tables import (
    ABLATIONS,
    BUDGET,
    MAIN,
    ROLES,
    SPLITS,
    TABLES,
    column_titles,
    metric_cells,
)

from tools.doc_tables.io import A100_BF16, A100_UTILISATION, CHUNKS_PER_HOUR, a100_hours, result

TITLES = BUDGET | ABLATIONS | MAIN


def shift(name: str) -> Callable[[], str]:
    """Return the function of a table of the shift benchmark."""
    return lambda: TABLES[name](
        result("experiments/results/shift.json"), result("experiments/results/shift_summary.json")
    )


SHIFT = {f"shift_{name}": shift(name) for name in TABLES}
"""Functions of all tables of the benchmark, by their names on a page."""


def pretraining() -> str:
    """Return the cost of one pass over 1,000 hours of audio, measured on a CPU and computed for a GPU."""
    measured = result("benchmarks/results/pretrain_step.json")
    speeds, machine = measured["audio_hours_per_hour"], measured["machine"]
    lines = []
    for size, gmac in measured["forward_gmac_per_chunk"].items():
        minutes = 60 * a100_hours(1000 * CHUNKS_PER_HOUR, gmac * 1e9 * 6)
        measured_h = f"{1000 / speeds[size]:,.1f} h" if size in speeds else "not measured"
        lines.append([size, f"{measured['parameters'][size] / 1e6:.1f} M", measured_h, f"{minutes:.1f} min"])
    head = ["model", "parameters with decoder", f"this CPU ({machine['cores']} cores), measured"]
    return paragraphs(
        "One pass (epoch) over 1,000 hours of audio:",
        grid([*head, "one A100, computed"], lines),
        f"Measured: `benchmarks/results/pretrain_step.json` ({machine['processor']}, bf16, reading and "
        "log-mel included). Computed: 6 operations for each multiplication of a forward pass, at "
        f"{A100_UTILISATION:.0%} of an A100's {A100_BF16 / 1e12:.0f} TFLOP/s; a slower disk or network limits the "
        "speed instead.",
    )


def knn_probe() -> str:
    """Return the accuracy of nearest-neighbour labels from frozen features, with and without pretraining."""
    results = result("experiments/results/knn_probe.json")
    titles = {
        "random": "untrained encoder",
        "logmel": "log-mel, best pooling",
        "pretrained": "pretrained encoder",
    }
    lines = [
        [title, f"{results['mean'][name]:.3f}", ", ".join(f"{value:.3f}" for value in results[name])]
        for name, title in titles.items()
    ]
    return paragraphs(
        grid(["features", "accuracy", "by seed"], lines),
        f"{results['neighbours']} nearest neighbours on {results['clips']} clips of {results['classes']} "
        f"animal classes, never of the same fold or source recording; a {results['model']} encoder after "
        f"{results['settings']['epochs']} epochs on "
        f"{results['pretraining_hours']} h of other audio (`experiments/results/knn_probe.json`, which "
        "contains all other tested poolings of the same features).",
    )


def narrow_band() -> str:
    """Return the recall of narrow-band calls with the fine grid and with the encoder's grid."""
    results = result("experiments/results/narrow_band.json")
    widths = [width for width in results["recall"]["none"] if width != "all"]
    titles = {"upsampling": "upsampling (128 × 32)", "none": "none (64 × 8)"}
    lines = []
    for name, title in titles.items():
        recall = [results["recall"][name][width] for width in (*widths, "all")]
        lines.append([title, *map(decimal, (*recall, results["precision"][name], results["mean_iou"][name]))])
    head = ["adapter, and its feature map of 10.24 s", *(f"{width} Hz" for width in widths)]
    return paragraphs(
        grid([*head, "all", "precision", "mean IoU"], lines),
        f"Recall at IoU {results['min_iou']} by bandwidth, each detector at its own threshold: "
        f"{results['size']} models trained from scratch for {results['epochs']} epochs on {results['minutes']} "
        "minutes of noise with swept tones (`python -m experiments.narrow_band`).",
    )


REAL_METRICS = {
    "f1": "F1",
    "max_f1": "max F1",
    "average_precision": "AP, area",
    "precision": "precision",
    "recall": "recall",
    "mean_iou": "mean IoU",
}


def real_recordings() -> str:
    """Return metrics on real studies: the recommended method, baselines, and pretrained detectors."""
    results = result("experiments/results/real_recordings.json")
    shown, titles = [*REAL_METRICS], [*REAL_METRICS.values()]
    lines = [
        [
            study,
            tested,
            f"{counts['recordings']}, {counts['annotations']}",
            MAIN[row],
            *(interval(sets[tested][name]) for name in shown),
        ]
        for study, values in results["studies"].items()
        for tested, counts in values["rows"]["scratch"].items()
        for row, sets in sorted(values["rows"].items(), key=lambda entry: [*MAIN].index(entry[0]))
    ]
    differences = [
        [
            study,
            " − ".join(MAIN[side] for side in pair.split(" - ")),
            *(interval(sets["both"][name]) for name in shown[:3]),
        ]
        for study, values in results["studies"].items()
        for pair, sets in values["differences"].items()
    ]
    errors = [
        run["selftrain_error"]
        for values in results["studies"].values()
        for run in values["training"]["synthetic_then_labels_selftrain"].values()
    ]
    sources = sorted({name for names in results["start_sources"].values() for name in names})
    starts = [f"{MAIN[name]}: {steps:,}" for name, steps in results["start_steps"].items()]
    return paragraphs(
        grid(["study", "test set", "recordings, boxes", "detector", *titles], lines),
        grid(["study, both test sets", "difference", *titles[:3]], differences),
        f"Per chunk, IoU 0.5, 95 % intervals over recordings. Methods train for up to {2 * results['steps']} steps on "
        f"a study; initial detectors were trained before ({'; '.join(starts)}), on soundscapes of "
        f"{', '.join(sources)}. In "
        f"{sum(map(bool, errors))} of {len(errors)} cases the teacher was too uncertain for self-training and "
        "remained the model (`python -m experiments.real_recordings DATA --start shift/small`).",
    )


REAL_HEADLINE = {
    "energy": "energy threshold",
    "fcos_band_median": "FCOS, band medians",
    "joint_synthetic_hybrid": "`mast train`",
    "transfer_hybrid": "`mast train`, initialised with a detector of simulated sites",
}


def real_recordings_headline() -> str:
    """Return F1 of four detectors on the real studies, over all test sets of a study."""
    studies = result("experiments/results/real_recordings.json")["studies"]
    lines = []
    for name, study in studies.items():
        first = next(iter(study["rows"].values()))
        boxes = sum(counts["annotations"] for test_set, counts in first.items() if test_set != "both")
        cells = [interval(study["rows"][row]["both"]["f1"]) for row in REAL_HEADLINE]
        lines.append([f"{name} ({boxes} boxes)", *cells])
    return paragraphs(
        grid(["F1", *REAL_HEADLINE.values()], lines),
        "One seed; few boxes, so the intervals are wide (`python -m experiments.real_recordings`).",
    )


def selftrain_rounds() -> str:
    """Return self-training by round: the pseudo-labels, their precision, and the student's metrics."""
    results = result("experiments/results/selftrain_rounds.json")
    lines = []
    for cell, rounds in results["cells"].items():
        method, seed = cell.split("/")
        for row in rounds:
            labels, site = row["pseudo_labels"], row["site"]
            label_cells = (
                [f"{labels['boxes']:,}", decimal(labels["precision"]), decimal(labels["recall"])]
                if labels
                else ["–"] * 3
            )
            tests = [row["in_domain"]["ap"], site["precision"], site["recall"], site["f1"], site["ap"]]
            name = TITLES[method] + (f", seed {seed}" if seed != "0" else "")
            outcome = f"rolled back: {row['rollback_reason']}" if row["rollback_reason"] else "kept"
            outcome = outcome if row["round"] else "the first teacher"
            lines.append([name, str(row["round"]), *label_cells, *map(decimal, tests), outcome])
    head = ["method", "round", "pseudo-labels", "their precision", "their recall", "in-domain, AP"]
    sites = [f"other sites, {name}" for name in ("precision", "recall", "F1", "AP")]
    cells = " ".join(f"shift/{results['size']}/cells/{name}" for name in results["cells"])
    return paragraphs(
        grid([*head, *sites, "outcome"], lines), f"`python -m experiments.selftrain_rounds {cells}`"
    )


def teacher_precision() -> str:
    """Return estimates of teachers' precision, and the pseudo-labels that each estimate selects."""
    results = result("experiments/results/teacher_precision.json")
    scores, chosen = [], []
    for cell, values in results["cells"].items():
        name = f"seed {cell.split('/')[1]}"
        for score, precision in values["precision"].items():
            scores.append([name, score, *map(decimal, precision.values())])
        for estimate, title in (
            ("validation", "validation only"),
            ("both", "validation and synthetic calls"),
        ):
            selected = values["chosen"][estimate]
            label_cells = (
                [
                    f"{selected['score']:.2f}",
                    f"{selected['boxes']:,}",
                    decimal(selected["precision"]),
                    decimal(selected["recall"]),
                ]
                if selected
                else ["–"] * 4
            )
            chosen.append([name, title, *label_cells])
    first = next(iter(results["cells"].values()))
    cells = " ".join(f"shift/{results['size']}/cells/{name}" for name in results["cells"])
    return paragraphs(
        grid(
            ["teacher", "minimum score", "validation", "synthetic calls", "both", "pool (ground truth)"],
            scores,
        ),
        f"Precision of a teacher; validation has {first['boxes']['validation']} annotations, synthetic calls "
        "are added up to "
        f"200 boxes. Pseudo-labels above the score with a precision of {first['min_pseudo_label_precision']:.0%}:",
        grid(["teacher", "estimate", "score", "pseudo-labels", "their precision", "their recall"], chosen),
        f"`python -m experiments.teacher_precision {cells}`",
    )


def new_sites() -> str:
    """Return metrics of the shift benchmark's detectors at new simulated sites, and differences to the first."""
    results = result("experiments/results/new_sites.json")
    seeds = Counter(cell.partition("/")[0] for cell in results["cells"])
    sets = {
        "in_domain": "animals of the training data",
        "temporal": "one new site",
        "site": "three new sites",
        "unseen": "a fifth",
    }
    cells = " ".join(f"shift/small/cells/{name}" for name in results["cells"])
    lines = []
    for names, metrics in {**results["detectors"], **results["differences"]}.items():
        sides = names.split(" - ")
        counts = " and ".join(str(seeds[side]) for side in sides)
        lines.append([" − ".join(TITLES[side] for side in sides), counts, *metric_cells(metrics)])
    return paragraphs(
        grid(["detector", "seeds", *column_titles(sets)], lines),
        f"`python -m experiments.new_sites DATA {cells}`",
    )


def by_site() -> str:
    """Return differences of pairs of methods at each site."""
    results = result("experiments/results/by_site.json")
    sites = {site for by_site in results["differences"].values() for site in by_site}
    order = sorted(sites, key=lambda site: (site in results["shared"], site))
    lines = [
        [
            " − ".join({**TITLES, **ROLES}[side] for side in pair.split(" - ")),
            *(interval(values[site][name]) for site in order for name in ("f1", "ap")),
        ]
        for pair, values in results["differences"].items()
    ]
    head = ["difference", *(f"{site}, {name}" for site in order for name in ("F1", "AP"))]
    return paragraphs(grid(head, lines), "`python -m experiments.by_site`")


def error_analysis() -> str:
    """Return outcomes of annotations and predictions, recall by loudness and bandwidth, and AP at lower IoUs."""
    results = result("experiments/results/error_analysis.json")["detectors"]

    def fractions(counts: dict[str, int]) -> str:
        return " / ".join(decimal(count / max(1, sum(counts.values()))) for count in counts.values())

    def recall_of(group: dict[str, Any]) -> str:
        return "–" if group["recall"] is None else f"{group['recall']:.2f} of {group['annotations']}"

    lines = [
        [
            TITLES[name.partition("/")[0]],
            SPLITS[split],
            fractions(values["annotations"]),
            fractions(values["predictions"]),
            " / ".join(str(count) for count in values["loose_reasons"].values()),
            " / ".join(decimal(group["recall"]) for group in values["by_loudness"]),
            " / ".join(recall_of(group) for group in values["by_width"]),
            " / ".join(decimal(values[key]) for key in ("ap_at_50", "ap_at_30", "ap_at_10")),
        ]
        for name, sets in results.items()
        for split, values in sets.items()
    ]
    head = [
        "detector",
        "test set",
        "annotations detected / loose / missed",
        "predictions correct / loose / duplicate / false positive",
        "loose annotations: box too long / short / wide / narrow / displaced",
        "recall of the faintest / middle / loudest third",
        "recall of bands under 6 bins / under 24 / wider",
        "AP at IoU 0.5 / 0.3 / 0.1",
    ]
    folders = " ".join(f"shift/small/cells/{name}/evaluation" for name in results)
    return paragraphs(grid(head, lines), f"`python -m experiments.error_analysis {folders}`")


def threshold_selection() -> str:
    """Return the loss of F1 of thresholds chosen on few validation boxes, by selection rule."""
    results = result("experiments/results/threshold_selection.json")
    titles = {
        "best": "highest F1",
        "bagged": "mean over bootstrap samples",
        "robust": "middle of the range near the highest F1",
    }
    lines = []
    for size, values in results["sizes"].items():
        rules = [values["rules"][name] for name in titles]
        lines.append([size, *(f"{rule['f1_loss']:.3f} ({rule['f1_loss_p90']:.2f})" for rule in rules)])
    return paragraphs(
        grid(["validation boxes", *titles.values()], lines),
        "Loss of F1 compared with the best threshold on the test recordings, and in brackets its 90 % quantile over all "
        f"samples; {results['evaluations']} detectors, up to "
        f"{max(values['sets'] for values in results['sizes'].values())} test sets, {results['draws']} samples of "
        "validation recordings each "
        "(`python -m experiments.threshold_selection shift/small/cells/NAME/0/evaluation …`).",
    )


def synthetic_thresholds() -> str:
    """Return the effect of synthetic calls on thresholds chosen on few validation boxes."""
    results = result("experiments/results/synthetic_thresholds.json")
    cells = results["cells"]
    lines = []
    for title, names in (
        ("trained also on synthetic calls", [name for name in cells if name.startswith("joint_synthetic")]),
        ("FCOS, trained on annotations only", [name for name in cells if name.startswith("fcos_band")]),
    ):
        sizes = cells[names[0]]["f1"]
        totals = sizes[[*sizes][-1]]
        for size, values in sizes.items():
            row = [
                _f1_loss([cells[name] for name in names], size, total) if total in values else "–"
                for total in totals
            ]
            lines.append([title, f"{size} (all)" if size == [*sizes][-1] else size, *row])
    head = [
        "detector",
        "validation boxes",
        *(f"up to {total}" if int(total) else "validation only" for total in totals),
    ]
    return paragraphs(
        grid(head, lines),
        "Mean loss of F1 over all test sets, compared with the best threshold on the test recordings, and in "
        f"brackets its 90 % quantile over {results['draws']} samples of validation chunks; "
        f"{sum(name.startswith('joint_synthetic') for name in cells)} detectors of one seed that were trained "
        "on synthetic "
        "calls, one that was not. *Up to 200*: synthetic calls in background chunks of validation are added up "
        "to 200 boxes "
        "(`python -m experiments.synthetic_thresholds shift/small/soundscapes/study.yaml shift/small/cells/…`).",
    )


def _f1_loss(cells: list[dict[str, Any]], size: str, total: str) -> str:
    """Return the loss of F1, averaged over detectors and test sets: its mean and its 90 % quantile."""
    loss = {
        statistic: mean(
            cell["best"][name] - values[statistic]
            for cell in cells
            for name, values in cell["f1"][size][total].items()
        )
        for statistic in ("mean", "p10")
    }
    return f"{loss['mean']:.3f} ({loss['p10']:.2f})"


def site_thresholds() -> str:
    """Return F1 at other sites with one threshold, with unsupervised thresholds per site, and with oracle thresholds."""
    results = result("experiments/results/site_thresholds.json")["detectors"]
    methods = [*next(iter(results.values()))]
    lines = [
        [TITLES[name.partition("/")[0]], *(decimal(values[method]) for method in methods)]
        for name, values in results.items()
    ]
    folders = " ".join(f"shift/small/cells/{name}/evaluation" for name in results)
    return paragraphs(
        grid(["F1 at other sites", *methods], lines), f"`python -m experiments.site_thresholds {folders}`"
    )


def active_learning() -> str:
    """Return the metrics on later days after each round of two review queues."""
    results = result("experiments/results/active_learning.json")
    lines = []
    for reviewer, seeds in results["reviewers"].items():
        for seed, rounds in seeds.items():
            title = reviewer if len(seeds) == 1 else f"{reviewer}, seed {seed}"
            for number, row in enumerate(rounds):
                f1, area = (
                    interval([row[name][part] for part in ("value", "low", "high")])
                    for name in ("f1", "average_precision")
                )
                training_data = f"{row['chunks']}, {row['boxes']}"
                lines.append([title, str(number), training_data, f1, decimal(row["max_f1"]), area])
    return paragraphs(
        grid(["queue", "round", "training chunks, boxes", "F1", "max F1", "AP"], lines),
        "`experiments/results/active_learning.json`; 95 % intervals over recordings.",
    )
