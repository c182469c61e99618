"""What the paper claims, and ideas beyond it, beside what the benchmark found. Nothing of MAST is needed to make it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.markdown import figure_of, grid


@dataclass(frozen=True, slots=True)
class Claim:
    """That the first of a pair of methods is better than the second, and by how much the paper has it (F1, AP).

    The paper's figures are those of the rainforest at other sites, unless `split` says otherwise.
    """

    text: str
    pair: tuple[str, str]
    paper: tuple[float, float | None]
    split: str = "site"

    @property
    def about(self) -> str:
        """The figure that the paper's difference is larger in."""
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
    Claim("a round of self-training helps", ("mast_st", "mast"), (0.0976, 0.1291)),
    Claim("two stages are better than both in one", ("mast_st", "st_union"), (0.2852, -0.0030)),
    Claim(
        "two stages are better than the teacher's boxes alone",
        ("scratch_st", "scratch_stage_1"),
        (0.3304, 0.2133),
    ),
    Claim(
        "two stages are better than the labels again alone",
        ("scratch_st", "scratch_stage_2"),
        (0.3549, 0.2075),
    ),
    Claim(
        "labels spread over the day beat as many in a row, in-domain",
        ("labels_25_time_balanced", "labels_25_sequential"),
        (0.130, None),
        "in_domain",
    ),
)
"""Differences of the paper's main table, ablations, adapters and label budget; rows of this benchmark that ask the same.

Both sides of a pair hear sound scaled alike. Ablations of the detector, and of the stages of self-training, start from
random weights here.
"""


@dataclass(frozen=True, slots=True)
class Idea:
    """Something that the paper has not: what switches it on, and the pair of methods that tells what it is worth."""

    text: str
    switch: tuple[str, ...]
    pair: tuple[str, str]


IDEAS: Sequence[Idea] = (
    Idea(
        "the median of each band taken away, chunk by chunk (by FCOS)",
        ("normalisation=band-median",),
        ("fcos_band_median", "fcos"),
    ),
    Idea(
        "an adapter that looks at the picture itself by convolutions",
        ("model.adapter=detail",),
        ("scratch_detail", "scratch"),
    ),
    Idea(
        "made-up calls over the sites' own quiet sound, before the labels",
        ("mast rehearse",),
        ("rehearsed", "scratch"),
    ),
    Idea(
        "such calls beside the labels", ("train.rehearsed_share=0.5",), ("at_once_detail", "scratch_detail")
    ),
    Idea("the same by FCOS", (), ("fcos_at_once", "fcos_band_median")),
    Idea(
        "self-training by a teacher that is sure, silent where it is not, made-up calls beside its boxes",
        ("selftrain.min_precision=0.8", "selftrain.silence_unsure=true", "selftrain.rehearsed_share=0.5"),
        ("at_once_detail_st", "at_once_detail_control"),
    ),
    Idea(
        "a teacher's boxes drawn anew at every step (mean teacher), in stage 1 alone; taken out since",
        ("selftrain.redraw=true",),
        ("scratch_stage_1_redrawn", "scratch_stage_1"),
    ),
)
"""Ideas that are a switch of training; what needs no training is measured by commands of its own."""

FIGURES = ("f1", "ap")
NOTHING = dict.fromkeys(("f1", "f1_interval", "ap", "ap_interval"))
"""A difference that was not measured."""


def claims(differences: Mapping[str, Mapping[str, Any]]) -> str:
    """Each claim, by how much it holds in the paper and here, and what can be said of it."""
    lines = []
    for claim in CLAIMS:
        found = differences.get(" - ".join(claim.pair), {})
        here = [figure_of(found.get(claim.split, NOTHING), name) for name in FIGURES]
        paper = ["–" if value is None else f"{value:+.2f}" for value in claim.paper]
        lines.append([claim.text, *paper, *here, verdict(found, claim.about, claim.split)])
    head = ["the paper says", "there, F1", "there, mAP", "here, F1", "here, AP", "seen here"]
    return grid(head, lines)


def ideas(differences: Mapping[str, Mapping[str, Any]]) -> str:
    """Each idea, what it is worth at other sites, at the unseen one and at home, and whether it helps under shift."""
    lines = []
    for idea in IDEAS:
        found = differences.get(" - ".join(idea.pair), {})
        worth = [figure_of(found.get(split, NOTHING), name) for split, name in WORTH]
        switch = ", ".join(f"`{item}`" for item in idea.switch) or "–"
        lines.append([idea.text, switch, *worth, verdict(found, "ap", "site")])
    head = ["idea", "switch", "other sites, F1", "other sites, AP", "unseen site, AP", "in-domain, AP"]
    return grid([*head, "helps at other sites"], lines)


WORTH = (("site", "f1"), ("site", "ap"), ("unseen", "ap"), ("in_domain", "ap"))
"""Test sets and figures that an idea is told by."""


def verdict(found: Mapping[str, Any], figure: str, split: str) -> str:
    """What a difference says, by its interval over recordings; and whether it rests on a training or two alone."""
    there = found.get(split, NOTHING)
    if there[figure] is None:
        return "not measured"
    low, high = there[f"{figure}_interval"] or (None, None)
    if low is None or high is None:
        return "no interval"
    said = "yes" if low > 0 else "the opposite" if high < 0 else "not sure"
    return said if min(found["seeds"]) > 1 else f"{said}, one seed"
