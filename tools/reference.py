"""Generate the reference pages of settings and commands from the code.

python -m tools.reference            write the pages
python -m tools.reference --check    fail if a page is out of date
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_origin

import typer.main
from pydantic_core import PydanticUndefined

from mast.cli import app
from mast.config import Settings, Study

REFERENCE = Path(__file__).parents[1] / "docs" / "reference"


def settings_page() -> str:
    """Return the page of every setting with its default and meaning, by group."""
    lines = [
        "# Settings",
        "",
        "A study is one YAML file. Settings that it does not contain have the default below; `--set a.b=c` changes a "
        "setting for one command. `mast show-config study.yaml` prints all effective settings. An unknown name "
        "is an error.",
        "",
        "| setting | default | meaning |",
        "|---|---|---|",
        *_rows(Study, ""),
        "",
        "A minimal study:",
        "",
        "```yaml",
        "collections:",
        "  cards:",
        "    root: cards",
        "    time_zone: Europe/Madrid",
        "annotations:",
        "  - { path: boxes, format: raven }",
        "labels:",
        "  animal: ['*']",
        "  noise: [rain, vehicle]",
        "```",
    ]
    return "\n".join(lines) + "\n"


def _rows(group: type[Settings], prefix: str) -> Iterator[str]:
    for name, field in group.model_fields.items():
        key, inner = f"{prefix}{name}", _inner(field.annotation)
        if inner is None:
            default = (
                "(required)" if field.default is PydanticUndefined else f"`{_format_default(field.default)}`"
            )
            yield f"| `{key}` | {default} | {field.description} |"
        else:
            infix = {"dict": "<name>.", "tuple": "<number>."}.get(
                getattr(get_origin(field.annotation), "__name__", ""), ""
            )
            yield f"| **`{key}`** | | {field.description} |"
            yield from _rows(inner, f"{key}.{infix}")


def _inner(annotation: Any) -> type[Settings] | None:
    """Return the group of settings of a field, also inside a dict or a tuple, None for a plain field."""
    for candidate in (annotation, *get_args(annotation)):
        if isinstance(candidate, type) and issubclass(candidate, Settings):
            return candidate
    return None


def _format_default(default: Any) -> str:
    if default is None:
        return "none"
    return (
        "[" + ", ".join(repr(value) for value in default) + "]"
        if isinstance(default, tuple)
        else str(default)
    )


def commands_page() -> str:
    """Return the page of every command with its `--help` text."""
    lines = [
        "# Commands",
        "",
        "Every command has `--help`. Exit codes: 0 success; 1 an error that the user can correct, described in "
        "one message; "
        "2 invalid arguments; 3 success, but some recordings could not be processed (`mast detect`); 130 or "
        "143 stopped by Ctrl-C or SIGTERM: run the same command again to resume.",
    ]
    group = typer.main.get_command(app)
    context = group.make_context("mast", [], resilient_parsing=True)
    lines += _command_help(group, context)
    return "\n".join(lines) + "\n"


def _command_help(group: Any, context: Any) -> Iterator[str]:
    """Yield the help of every command of a group, and of its subcommands."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        with command.make_context(name, [], parent=context, resilient_parsing=True) as inner:
            inner.max_content_width = inner.terminal_width = 100
            yield from (
                "",
                f"## {inner.command_path}",
                "",
                "```text",
                command.get_help(inner).rstrip(),
                "```",
            )
            if hasattr(command, "list_commands"):
                yield from _command_help(command, inner)


def main() -> None:
    """Write the pages, or list the pages that are out of date."""
    pages = {REFERENCE / "settings.md": settings_page(), REFERENCE / "commands.md": commands_page()}
    stale = [
        path.name for path, text in pages.items() if not path.exists() or path.read_text("utf-8") != text
    ]
    if "--check" not in sys.argv:
        for path, text in pages.items():
            path.write_text(text, encoding="utf-8")
    elif stale:
        sys.exit(f"{', '.join(stale)}: out of date; run python -m tools.reference")


if __name__ == "__main__":
    main()
