"""Check that code and docs use the field's words, and that docstrings are imperative.

    python -m tools.check_language             # the whole project
    python -m tools.check_language src/mast    # some files or folders

Identifiers, comments, docstrings, messages and pages must not use a retired word; `ALLOWED` lists the places where a
word has its literal meaning. A docstring must not open with a question word.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = (
    "src",
    "tests",
    "docs",
    "configs",
    "experiments",
    "benchmarks",
    "tools",
    "README.md",
    "CONTRIBUTING.md",
)
SUFFIXES = {".py", ".md", ".yaml", ".yml", ".html", ".js", ".css"}
SKIPPED = ("experiments/results/", "benchmarks/results/", "tests/data/", "tools/check_language.py")

RETIRED = {
    r"hears?|heard|hearing|hearers?|unheard": "process, predict, detect",
    r"tells?|told|telling": "report, print, state, describe",
    r"lessons?": "training data",
    r"story|stories": "metadata, manifest",
    r"rehears(?:e|es|ed|al|ing)": "train on synthetic calls",
    r"made[- _]up": "synthetic",
    r"so many|as many as": "a number or a parameter name",
    r"nobody": "no annotator, unlabelled",
    r"anew": "again",
    r"verbs?": "command",
    r"lottery|by lot": "random sample",
    r"expertise": "annotations",
    r"stations?": "layer",
    r"taken back": "rolled back",
}
"""Retired words, and what to write instead."""

QUESTION = re.compile(r"(?:What|How|Where|Whether|Which|Who|When|Why)\b")

ALLOWED = {
    "benchmarks/postgres.py": 2,  # the operating system's user
    "src/mast/models/included/starter/README.md": 2,  # titles of recordings
}
"""Number of literal uses of retired words by file."""

_WORD = re.compile(rf"(?<![a-z])({'|'.join(RETIRED)})(?![a-z])", re.IGNORECASE)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_FILE_METHOD = re.compile(r"\.tell\(\)|def tell\(self\)")


def files(paths: list[str]) -> Iterator[Path]:
    """Yield the text files to check, in order."""
    for name in paths or FOLDERS:
        path = ROOT / name
        found = [path] if path.is_file() else sorted(path.rglob("*"))
        for file in found:
            inside = file.relative_to(ROOT).as_posix()
            if file.suffix in SUFFIXES and not inside.startswith(SKIPPED) and "/." not in f"/{inside}":
                yield file


def retired_words(text: str) -> list[tuple[int, str]]:
    """Return the line number and the spelling of every retired word."""
    found = []
    for number, line in enumerate(text.split("\n"), 1):
        plain = _FILE_METHOD.sub("", line)
        found += [(number, match[1]) for match in _WORD.finditer(_CAMEL.sub("_", plain))]
    return found


def question_docstrings(text: str) -> list[tuple[int, str]]:
    """Return the line number and the first words of every docstring that opens with a question word."""
    found = []
    for node in ast.walk(ast.parse(text)):
        body = getattr(node, "body", None)
        if not isinstance(body, list):
            continue
        for item in body:  # docstrings of modules, classes and functions, and those below a constant
            if (
                isinstance(item, ast.Expr)
                and isinstance(item.value, ast.Constant)
                and isinstance(item.value.value, str)
            ):
                opening = item.value.value.strip().split("\n")[0]
                if QUESTION.match(opening):
                    found.append((item.lineno, opening[:60]))
    return found


def main() -> None:
    """Print what is wrong and exit with 1 if anything is."""
    wrong = 0
    for file in files(sys.argv[1:]):
        name, text = file.relative_to(ROOT).as_posix(), file.read_text("utf-8")
        words = retired_words(text)
        if len(words) > ALLOWED.get(name, 0):
            wrong += len(words)
            for number, word in words:
                print(f"{name}:{number}: {word!r} is retired")
        if file.suffix == ".py":
            for number, opening in question_docstrings(text):
                wrong += 1
                print(f"{name}:{number}: docstring opens with a question word: {opening}")
    if wrong:
        sys.exit(f"{wrong} places to rewrite. CONTRIBUTING.md says how.")


if __name__ == "__main__":
    main()
