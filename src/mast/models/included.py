"""List the models that are installed with MAST, without importing torch."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from mast.models.location import DESCRIPTION, INCLUDED, WEIGHTS
from mast.version import INCLUDED_MODELS, STARTER

CARD = "README.md"
"""Model card: what a model learned from, with authors and licences, and where it was tested and fails."""


@dataclass(frozen=True, slots=True)
class IncludedModel:
    """A model that is installed with MAST."""

    name: str
    kind: str
    encoder: str
    licence: str
    source: str
    megabytes: float
    card: Path

    def summary(self) -> str:
        """Return the lines to print."""
        use = ", the default of mast detect and of mast.load_model" if self.name == STARTER else ""
        return "\n".join(
            [
                f"{self.name}: {self.kind}, {self.encoder}, {self.megabytes:.1f} MB{use}",
                f"  source:  {self.source}",
                f"  licence: {self.licence}",
                f"  card:    {self.card}",
            ]
        )


def included_models() -> list[IncludedModel]:
    """Return the models that are installed with MAST."""
    return [_describe(name, INCLUDED / name) for name in INCLUDED_MODELS]


def _describe(name: str, folder: Path) -> IncludedModel:
    info = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
    return IncludedModel(
        name,
        info["kind"],
        info["architecture"]["encoder"].get("network", "vit"),
        info["licence"],
        info["source"],
        (folder / WEIGHTS).stat().st_size / 1e6,
        folder / CARD,
    )
