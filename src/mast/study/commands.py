"""Format commands for the user to paste into a shell."""

from __future__ import annotations

import shlex


def mast_command(*arguments: object) -> str:
    """Return a MAST command line, with shell quoting where needed."""
    return shlex.join(["mast", *map(str, arguments)])
