"""Compare the paper's claims, and ideas beyond it, with the benchmark's results. Needs no import of `mast`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.markdown import format_metric, grid


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim that the first of a pair of methods is better than the second, and the paper's difference (F1, AP).

    The paper's metrics are those of the rainforest at other sites, unless `split` is set.
    """

    text: str
    pair: tuple[str, str]
    paper: tuple[float, float | None]
    split: str = "site"

    @property
    def metric(self) -> str:
        """The metric in which the paper's difference is larger."""
        f1, ap = self.paper
        return "f1" if ap is None or f1 > ap else "ap"


CLAIMS: Sequence[Claim] = (
    Claim("MAST is ahead of FCOS", ("mast", "fcos_band_median"), (0.2918, 0.1664)),
    Claim("pretraining helps", ("mast", "scratch"), (-0.0152, 0.0397)),
    Claim("the contrastive loss helps", ("scratch", "no_contrastive"), (0.0056, 0.0139)),
    Claim("an adapter helps", ("scratch", "no_adapter"), (0.0926, 0.0197)),
    Claim("plain convolutions are ahead of upsampling", ("conv_adapter", "scratch"), (-0.0051, 0.0431)),
    Claim(
        "anisotropic filters are ahead of upsampling", ("anisotropic_adapter", "scratch"), (0.0097, 0.0293)
    ),
    Claim("a round of self-training helps", ("mast_selftrain", "mast"), (0.0976, 0.1291)),
    Claim(
        "two stages are better than one joint stage",
        ("mast_selftrain", "mast_joint_selftrain"),
        (0.2852, -0.0030),
    ),
    Claim(
        "two stages are better than pseudo-labels only",
        ("scratch_selftrain", "scratch_stage_1"),
        (0.3304, 0.2133),
    ),
    Claim(
        "two stages are better than more training on annotations only",
        ("scratch_selftrain", "scratch_stage_2"),
        (0.3549, 0.2075),
    ),
    Claim(
        "annotations spread over the day beat consecutive ones, in-domain",
        ("labels_25_time_balanced", "labels_25_sequential"),
        (0.130, None),
        "in_domain",
    ),
)
"""Differences in the paper's main table, ablations, adapters and label budget, and the matching rows of this benchmark.

Both methods of a pair use the same normalisation. Ablations of the detector, and of the stages of self-training, start
from random weights here.
"""


@dataclass(frozen=True, slots=True)
class Idea:
    """An idea beyond the paper: the settings that enable it, and the pair of methods that measures its effect."""

    text: str
    settings: tuple[str, ...]
    pair: tuple[str, str]


IDEAS: Sequence[Idea] = (
    Idea(
        "subtract the median of each band per chunk (FCOS)",
        ("normalisation=band-median",),
        ("fcos_band_median", "fcos"),
    ),
    Idea(
        "an adapter with convolutional features of the spectrogram",
        ("model.adapter=hybrid",),
        ("scratch_hybrid", "scratch"),
    ),
    Idea(
        "train on synthetic calls in background chunks of the sites, then on annotations",
        ("mast train-synthetic",),
        ("synthetic_then_labels", "scratch"),
    ),
    Idea(
        "train on synthetic calls and annotations together",
        ("train.synthetic_fraction=0.5",),
        ("joint_synthetic_hybrid", "scratch_hybrid"),
    ),
    Idea("the same with FCOS", (), ("fcos_joint_synthetic", "fcos_band_median")),
    Idea(
        "self-training with a minimum precision of pseudo-labels, masked uncertain regions and synthetic calls",
        (
            "selftrain.min_pseudo_label_precision=0.8",
            "selftrain.mask_uncertain_regions=true",
            "selftrain.synthetic_fraction=0.5",
        ),
        ("joint_synthetic_hybrid_selftrain", "joint_synthetic_hybrid_step_matched_control"),
    ),
    Idea(
        "pseudo-labels predicted again at every step (mean teacher), in stage 1 only; since removed",
        ("selftrain.redraw=true",),
        ("mean_teacher", "scratch_stage_1"),
    ),
)
"""Ideas that change training; ideas that need no training have their own commands."""

METRICS = ("f1", "ap")
NOT_MEASURED = dict.fromkeys(("f1", "f1_interval", "ap", "ap_interval"))
"""A difference that was not measured."""


def claims(differences: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a table of each claim, with the difference in the paper, the difference here, and the verdict."""
    lines = []
    for claim in CLAIMS:
        difference = differences.get(" - ".join(claim.pair), {})
        here = [format_metric(difference.get(claim.split, NOT_MEASURED), name) for name in METRICS]
        paper = ["–" if value is None else f"{value:+.2f}" for value in claim.paper]
        lines.append([claim.text, *paper, *here, verdict(difference, claim.metric, claim.split)])
    head = ["claim of the paper", "paper, F1", "paper, mAP", "here, F1", "here, AP", "confirmed here"]
    return grid(head, lines)


def ideas(differences: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a table of each idea, its effect at other sites, the unseen site and in-domain, and the verdict."""
    lines = []
    for idea in IDEAS:
        difference = differences.get(" - ".join(idea.pair), {})
        effects = [format_metric(difference.get(split, NOT_MEASURED), name) for split, name in EFFECTS]
        settings = ", ".join(f"`{setting}`" for setting in idea.settings) or "–"
        lines.append([idea.text, settings, *effects, verdict(difference, "ap", "site")])
    head = ["idea", "setting", "other sites, F1", "other sites, AP", "unseen site, AP", "in-domain, AP"]
    return grid([*head, "helps at other sites"], lines)


EFFECTS = (("site", "f1"), ("site", "ap"), ("unseen", "ap"), ("in_domain", "ap"))
"""Test sets and metrics of the ideas' table."""


def verdict(difference: Mapping[str, Any], metric: str, split: str) -> str:
    """Return the verdict on a difference by its interval over recordings, noting results of a single seed."""
    set_difference = difference.get(split, NOT_MEASURED)
    if set_difference[metric] is None:
        return "not measured"
    low, high = set_difference[f"{metric}_interval"] or (None, None)
    if low is None or high is None:
        return "no interval"
    answer = "yes" if low > 0 else "the opposite" if high < 0 else "inconclusive"
    return answer if min(difference["seeds"]) > 1 else f"{answer}, one seed"
