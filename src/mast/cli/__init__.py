"""The command line: one thin function a verb, a file a station. Heavy imports wait until a verb needs them."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Annotated

import typer

from mast.cli import archives, embeddings, files, review, study, training
from mast.errors import MastError

VERBS: dict[str, Callable[..., None]] = {
    "example": study.example,
    "scan": study.scan,
    "init": study.init,
    "status": study.status,
    "splits": study.splits,
    "budget": study.budget,
    "prepare": study.prepare,
    "import": training.import_,
    "pretrain": training.pretrain,
    "rehearse": training.rehearse,
    "train": training.train,
    "selftrain": training.selftrain,
    "evaluate": training.evaluate,
    "compare": training.compare,
    "detect": archives.detect,
    "report": archives.report,
    "export": archives.export,
    "export-model": archives.export_model,
    "review": review.review,
    "precision": review.precision,
    "agreement": review.agreement,
    "labels": review.labels,
    "embed": embeddings.embed,
    "search": embeddings.search,
    "name": embeddings.name,
    "discover": embeddings.discover,
    "map": embeddings.map_,
    "show": files.show,
    "convert": files.convert,
    "config": study.config,
}
"""Every verb in the order in which a study needs it, which is the order of `mast --help`."""

USERS_VERBS: dict[str, Callable[..., None]] = {
    "add": review.users_add,
    "list": review.users_list,
    "remove": review.users_remove,
    "password": review.users_password,
}

app = typer.Typer(
    name="mast",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Find animal sounds in field recordings, each as a box in time and frequency, from few expert labels.",
)
users_app = typer.Typer(no_args_is_help=True, help="Say who may review, and in which role.")
app.add_typer(users_app, name="users")
for name, verb in VERBS.items():
    app.command(name)(verb)
for name, verb in USERS_VERBS.items():
    users_app.command(name)(verb)


@app.callback(invoke_without_command=True)
def about(
    *,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.", is_eager=True)
    ] = False,
) -> None:
    """What `mast` does without a verb."""
    if version:
        from mast import __version__

        typer.echo(__version__)
        raise typer.Exit


def main() -> None:
    """Run `mast`; an error a person can put right is one message and exit code 1."""
    try:
        app()
    except MastError as error:
        message = str(error)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            message = (
                "The disk is full. Make room, or set TMPDIR to a folder that has some, and run it again."
            )
        elif "AWS Error" in str(error):  # from wherever a bucket is used
            message = f"{error}. Check the bucket, the AWS_ variables and the network, and run it again."
        else:
            raise
    else:
        return
    typer.secho(message, err=True, fg="red")
    raise SystemExit(1)
