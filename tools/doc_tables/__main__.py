"""Fill the tables of the documentation from the result files, so that no number is typed by hand.

A block `<!-- table NAME -->` … `<!-- end -->` of a page is replaced by the table that the function NAME returns.

    python -m tools.doc_tables            # rewrite the pages
    python -m tools.doc_tables --check    # fail if a page is out of date
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Mapping

from tools.doc_tables import ROOT, detection, embeddings, training

BLOCK = re.compile(r"(<!-- table (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
TABLES = (
    *(
        detection.engine_accuracy,
        detection.chunk_offset,
        detection.chunk_offset_variants,
        detection.throughput,
        detection.archive_costs,
        detection.starter_sets,
    ),
    *(detection.scale, detection.report_export, detection.detect_crash_recovery),
    *(training.pretraining, training.knn_probe, training.narrow_band),
    *(training.real_recordings, training.real_recordings_headline),
    training.new_sites,
    *(
        training.selftrain_rounds,
        training.teacher_precision,
        training.error_analysis,
        training.threshold_selection,
        training.synthetic_thresholds,
    ),
    *(training.site_thresholds, training.by_site),
    training.active_learning,
    *(embeddings.search, embeddings.search_scale, embeddings.retrieval, embeddings.novelty),
)
BY_NAME: Mapping[str, Callable[[], str]] = {
    **{table.__name__: table for table in TABLES},
    **training.SHIFT,
}


def main() -> None:
    """Rewrite the pages, or list the pages that are out of date."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    stale = []
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        text = page.read_text("utf-8")
        filled = BLOCK.sub(lambda block: block[1] + BY_NAME[block[2]]() + block[3], text)
        if filled != text:
            stale.append(str(page.relative_to(ROOT)))
            if not check:
                page.write_text(filled, "utf-8")
    if check and stale:
        sys.exit(f"{', '.join(stale)}: out of date; run python -m tools.doc_tables")


if __name__ == "__main__":
    main()
