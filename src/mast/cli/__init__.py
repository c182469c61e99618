"""Command line: one function per command, one module per group of commands. Commands import heavy modules when run."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from mast.cli import detect, embeddings, review, study, tools, training
from mast.errors import MastError

COMMANDS: dict[str, dict[str, Callable[..., None]]] = {
    "Data": {
        "scan": study.scan,
        "init": study.init,
        "status": study.status,
        "split": study.split,
        "sample": study.sample,
        "prepare": study.prepare,
    },
    "Training": {
        "import-checkpoint": training.import_checkpoint_command,
        "pretrain": training.pretrain,
        "train-synthetic": training.train_synthetic,
        "train": training.train,
        "self-train": training.self_train,
        "evaluate": training.evaluate,
        "compare": training.compare,
    },
    "Detection": {
        "detect": detect.detect,
        "models": detect.models,
        "report": detect.report,
        "export": detect.export,
        "export-model": detect.export_model,
    },
    "Review": {
        "review": review.review,
        "estimate-precision": review.estimate_precision_command,
        "agreement": review.agreement,
        "apply-review": review.apply_review,
    },
    "Embeddings": {
        "embed": embeddings.embed,
        "search": embeddings.search,
        "label-events": embeddings.label_events_command,
        "cluster": embeddings.cluster,
        "plot-embeddings": embeddings.plot_embeddings,
    },
    "Tools": {
        "plot": tools.plot,
        "convert": tools.convert,
        "show-config": study.show_config,
        "example-data": study.example_data,
    },
}
"""Commands by the group under which `mast --help` lists them, in its order."""

USER_COMMANDS: dict[str, Callable[..., None]] = {
    "add": review.users_add,
    "list": review.users_list,
    "remove": review.users_remove,
    "password": review.users_password,
}

SHORT_HELP_LENGTH = 1000
"""Maximum length of a command's line in `mast --help`; larger than any line, so that lines wrap and are never cut."""


class GroupedCommands(TyperGroup):
    """Main command whose help lists the commands by `rich_help_panel`, in plain text of any width."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands, group by group."""
        names = super().list_commands(ctx)
        return [name for group in COMMANDS for name in names if self._group_of(name) == group]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write one section for each group of commands."""
        width = max(map(len, self.commands))
        for group in COMMANDS:
            with formatter.section(group):
                formatter.write_dl(
                    [
                        (name.ljust(width), self.commands[name].get_short_help_str(SHORT_HELP_LENGTH))
                        for name in self.list_commands(ctx)
                        if self._group_of(name) == group
                    ]
                )

    def _group_of(self, name: str) -> str | None:
        return getattr(self.commands[name], "rich_help_panel", None)


app = typer.Typer(
    name="mast",
    cls=GroupedCommands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Detect animal sounds in field recordings as boxes in time and frequency, with few annotations.",
)
users_app = typer.Typer(no_args_is_help=True, help="Manage the users of the review page and their roles.")
for group, commands in COMMANDS.items():
    for name, command in commands.items():
        app.command(name, rich_help_panel=group)(command)
app.add_typer(users_app, name="users", rich_help_panel="Review")
for name, command in USER_COMMANDS.items():
    users_app.command(name)(command)


@app.callback(invoke_without_command=True)
def about(
    *,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)
    ] = False,
) -> None:
    """Print the version if requested."""
    if version:
        from mast.version import __version__

        typer.echo(__version__)
        raise typer.Exit


def main() -> None:
    """Run `mast`; print an error that the user can fix as one message and exit with code 1."""
    try:
        app()
    except MastError as error:
        message = str(error)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            message = (
                "The disk is full. Free some space, or set TMPDIR to a folder on another disk, "
                "and run the command again."
            )
        elif "AWS Error" in str(error):  # raised by any access to a bucket
            message = (
                f"{error}. Check the bucket, the AWS_ variables and the network, and run the command again."
            )
        else:
            raise
    else:
        return
    typer.secho(message, err=True, fg="red")
    raise SystemExit(1)
