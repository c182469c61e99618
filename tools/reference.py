"""Writes the reference pages that follow from the code: settings and commands.

python tools/reference.py        write them
python tools/reference.py --check    fail where they differ
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
    """Every setting with its default and meaning, group by group."""
    lines = [
        "# Settings",
        "",
        "A study is one YAML file. What it does not say has the default below; `--set a.b=c` changes a value for one "
        "command. `mast config study.yaml` prints all settings as they stand. Unknown names are refused.",
        "",
        "| setting | default | meaning |",
        "|---|---|---|",
        *_rows(Study, ""),
        "",
        "A study may be as short as this:",
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
            default = "(required)" if field.default is PydanticUndefined else f"`{_shown(field.default)}`"
            yield f"| `{key}` | {default} | {field.description} |"
        else:
            middle = {"dict": "<name>.", "tuple": "<number>."}.get(
                getattr(get_origin(field.annotation), "__name__", ""), ""
            )
            yield f"| **`{key}`** | | {field.description} |"
            yield from _rows(inner, f"{key}.{middle}")


def _inner(annotation: Any) -> type[Settings] | None:
    """The group of settings a field holds, be it in a dict or a tuple."""
    for candidate in (annotation, *get_args(annotation)):
        if isinstance(candidate, type) and issubclass(candidate, Settings):
            return candidate
    return None


def _shown(default: Any) -> str:
    if default is None:
        return "none"
    return (
        "[" + ", ".join(repr(item) for item in default) + "]" if isinstance(default, tuple) else str(default)
    )


def commands_page() -> str:
    """Every verb with its arguments and options, as its own --help tells."""
    lines = [
        "# Commands",
        "",
        "Every verb answers `--help`. Exit codes: 0 done; 1 an error that you can put right, told in one message; "
        "2 a command that cannot be understood; 3 done, but some recordings could not be heard (`mast detect`); 130 or "
        "143 stopped by Ctrl-C or SIGTERM, and the same command goes on.",
    ]
    group = typer.main.get_command(app)
    context = group.make_context("mast", [], resilient_parsing=True)
    lines += _verbs(group, context)
    return "\n".join(lines) + "\n"


def _verbs(group: Any, context: Any) -> Iterator[str]:
    """The help of every verb of a group, and of the verbs below it."""
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
                yield from _verbs(command, inner)


def main() -> None:
    """Write the pages, or say which are out of date."""
    pages = {REFERENCE / "settings.md": settings_page(), REFERENCE / "commands.md": commands_page()}
    stale = [
        path.name for path, text in pages.items() if not path.exists() or path.read_text("utf-8") != text
    ]
    if "--check" not in sys.argv:
        for path, text in pages.items():
            path.write_text(text, encoding="utf-8")
    elif stale:
        sys.exit(f"{', '.join(stale)}: out of date; run python tools/reference.py")


if __name__ == "__main__":
    main()
