"""Check commit subjects: at most 72 characters, one change each, opening with an imperative.

python -m tools.check_commits            # all commits since the rules apply
python -m tools.check_commits origin/main..HEAD
"""

from __future__ import annotations

import subprocess
import sys

SINCE = "bc0e550"
"""Last commit before these rules."""

MAX_CHARACTERS = 72

IMPERATIVES = frozenset(
    [
        "Accept",
        "Add",
        "Allow",
        "Apply",
        "Avoid",
        "Benchmark",
        "Build",
        "Bump",
        "Cache",
        "Call",
        "Cap",
        "Change",
        "Check",
        "Clarify",
        "Clean",
        "Close",
        "Collect",
        "Compare",
        "Compute",
        "Convert",
        "Copy",
        "Correct",
        "Count",
        "Cover",
        "Create",
        "Cut",
        "Decode",
        "Default",
        "Delete",
        "Deprecate",
        "Describe",
        "Detect",
        "Disable",
        "Document",
        "Download",
        "Draw",
        "Drop",
        "Embed",
        "Enable",
        "Ensure",
        "Evaluate",
        "Explain",
        "Export",
        "Extend",
        "Extract",
        "Find",
        "Fix",
        "Fold",
        "Follow",
        "Format",
        "Generate",
        "Give",
        "Group",
        "Guard",
        "Handle",
        "Hide",
        "Ignore",
        "Implement",
        "Import",
        "Improve",
        "Inline",
        "Install",
        "Keep",
        "Label",
        "Let",
        "Limit",
        "Link",
        "List",
        "Load",
        "Lock",
        "Log",
        "Make",
        "Mark",
        "Measure",
        "Merge",
        "Migrate",
        "Mix",
        "Move",
        "Name",
        "Normalise",
        "Open",
        "Pad",
        "Parse",
        "Pin",
        "Plot",
        "Prefer",
        "Prepare",
        "Pretrain",
        "Print",
        "Publish",
        "Quantise",
        "Raise",
        "Read",
        "Record",
        "Reduce",
        "Refactor",
        "Refuse",
        "Release",
        "Remove",
        "Rename",
        "Replace",
        "Report",
        "Require",
        "Reset",
        "Resolve",
        "Restore",
        "Restrict",
        "Resume",
        "Return",
        "Reuse",
        "Revert",
        "Rewrite",
        "Run",
        "Save",
        "Scan",
        "Search",
        "Select",
        "Send",
        "Separate",
        "Set",
        "Share",
        "Ship",
        "Show",
        "Simplify",
        "Skip",
        "Sort",
        "Speed",
        "Split",
        "Start",
        "State",
        "Stop",
        "Store",
        "Stream",
        "Support",
        "Swap",
        "Sync",
        "Take",
        "Test",
        "Track",
        "Train",
        "Trim",
        "Try",
        "Tune",
        "Turn",
        "Type",
        "Unify",
        "Update",
        "Upgrade",
        "Use",
        "Validate",
        "Verify",
        "Warn",
        "Wrap",
        "Write",
    ]
)
"""First words of a subject; add a missing one in its base form."""


def problems(subject: str) -> list[str]:
    """Return what is wrong with a commit subject."""
    wrong = []
    if len(subject) > MAX_CHARACTERS:
        wrong.append(f"{len(subject)} characters; the limit is {MAX_CHARACTERS}")
    if subject.split(" ", 1)[0] not in IMPERATIVES:
        wrong.append("open with an imperative, such as Add, Fix or Rename")
    if ";" in subject:
        wrong.append("one change per commit, without a semicolon")
    return wrong


def subjects(span: str) -> list[str]:
    """Return the subjects of a span of commits, without merges; none where the span is not in this clone."""
    command = ["git", "log", "--no-merges", "--format=%s", span]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.splitlines() if done.returncode == 0 else []


def main() -> None:
    """Print what is wrong and exit with 1 if anything is."""
    span = sys.argv[1] if len(sys.argv) > 1 else f"{SINCE}..HEAD"
    lines = [f"{subject}: {wrong}" for subject in subjects(span) for wrong in problems(subject)]
    if lines:
        sys.exit("\n".join(lines))


if __name__ == "__main__":
    main()
