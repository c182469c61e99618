"""What the paper claims, beside what the benchmark found. Nothing of MAST is needed to make it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.markdown import grid, interval


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
    Claim("MAST is ahead of FCOS", ("mast", "fcos"), (0.2918, 0.1664)),
    Claim("pretraining helps", ("mast", "scratch"), (-0.0152, 0.0397)),
    Claim("the contrastive loss helps", ("scratch", "no_contrastive"), (0.0056, 0.0139)),
    Claim("an adapter helps", ("scratch", "no_adapter"), (0.0926, 0.0197)),
    Claim("plain convolutions are ahead of upsampling", ("conv_adapter", "scratch"), (-0.0051, 0.0431)),
    Claim(
        "anisotropic filters are ahead of upsampling", ("anisotropic_adapter", "scratch"), (0.0097, 0.0293)
    ),
    Claim("self-training helps", ("mast_st", "mast"), (0.1249, 0.1348)),
    Claim("two stages are better than both in one", ("mast_st", "st_union"), (0.2852, -0.0030)),
    Claim(
        "two stages are better than the teacher's boxes alone", ("mast_st", "st_stage_1"), (0.3304, 0.2133)
    ),
    Claim("two stages are better than the labels again alone", ("mast_st", "st_stage_2"), (0.3549, 0.2075)),
    Claim(
        "labels spread over the day beat as many in a row, in-domain",
        ("labels_25_time_balanced", "labels_25_sequential"),
        (0.130, None),
        "in_domain",
    ),
)
"""Tables 1 to 4 of the paper and its label budget, as differences; rows of this benchmark that ask the same.

Ablations of the detector start from random weights here.
"""

FIGURES = ("f1", "ap")


def claims(differences: Mapping[str, Mapping[str, Any]]) -> str:
    """Each claim, by how much it holds in the paper and here, and what can be said of it."""
    lines = []
    for claim in CLAIMS:
        found = differences.get(" - ".join(claim.pair), {}).get(claim.split, {})
        here = [interval([found.get(name), *(found.get(f"{name}_interval") or [])]) for name in FIGURES]
        paper = ["–" if value is None else f"{value:+.2f}" for value in claim.paper]
        lines.append(
            [claim.text, *paper, *here, verdict(found.get(claim.about), found.get(f"{claim.about}_interval"))]
        )
    head = ["the paper says", "there, F1", "there, mAP", "here, F1", "here, AP", "seen here"]
    return grid(head, lines)


def verdict(value: float | None, bounds: Sequence[float | None] | None) -> str:
    """What a difference says, by its interval over recordings."""
    if value is None:
        return "not measured"
    low, high = bounds or (None, None)
    if low is None or high is None:
        return "no interval"
    return "yes" if low > 0 else "the opposite" if high < 0 else "not sure"
