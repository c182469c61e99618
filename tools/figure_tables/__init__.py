"""The documentation's tables: what pages tell of result files. Each function makes one block of Markdown.

Experiments, which some of the wording is shared with, are read from the project's folder.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
if str(ROOT) not in sys.path:
    sys.path.append(str(ROOT))
