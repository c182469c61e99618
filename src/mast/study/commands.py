"""Commands for a person to run next, as they can be pasted into a shell."""

from __future__ import annotations

import shlex


def mast_command(*words: object) -> str:
    """A command of MAST; names that a shell would take apart are quoted."""
    return shlex.join(["mast", *map(str, words)])
