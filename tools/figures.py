"""Fill the figures of the documentation from the result files, so that no number is typed by hand.

A block `<!-- figures NAME -->` … `<!-- end -->` of a page is replaced by what the function NAME makes of the results.

    python tools/figures.py            # rewrite the pages
    python tools/figures.py --check    # fail where a page is out of date
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Mapping

from figure_tables import ROOT, archives, learning, likeness

BLOCK = re.compile(r"(<!-- figures (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
TABLES = (
    *(archives.engines, archives.phase, archives.phase_ways, archives.throughput, archives.archive_costs),
    *(archives.scale, archives.use_events, archives.crashes),
    *(learning.pretraining, learning.knn_probe, learning.narrow_band, learning.real, learning.new_sites),
    *(
        learning.rounds,
        learning.sure_teachers,
        learning.anatomy,
        learning.thresholds,
        learning.made_up_thresholds,
    ),
    *(learning.site_thresholds, learning.by_site),
    learning.review_loop,
    *(likeness.search, likeness.search_scale, likeness.retrieval, likeness.novelty),
)
FIGURES: Mapping[str, Callable[[], str]] = {
    **{table.__name__: table for table in TABLES},
    **learning.SHIFT,
}


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


if __name__ == "__main__":
    main()
