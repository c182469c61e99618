"""Commands for review: serve the review page, measure precision and agreement, apply verdicts, and manage users."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from mast.cli.options import (
    Database,
    EventsFolder,
    MinScore,
    Overrides,
    ReviewDatabaseOption,
    Reviewed,
    ReviewedFolder,
    StudyFile,
)
from mast.cli.study import read_study_annotations_table
from mast.errors import ConfigError


def review(
    source: Reviewed,
    host: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS",
            help="Network address to serve on; other machines can connect only if there are users.",
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="Port of the page; 0 selects a free port.")
    ] = 8642,
    database: Database = None,
    min_score: MinScore = None,
    proxy: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Address of the reverse proxy in front of the page.")
    ] = None,
    trust_header: Annotated[
        str | None,
        typer.Option(
            metavar="HEADER", help="HTTP header with the user name, set by the proxy, such as X-Remote-User."
        ),
    ] = None,
    *,
    browser: Annotated[bool, typer.Option(help="Open the page in a browser.")] = True,
) -> None:
    """Review detections in the browser.

    The page shows spectrograms and plays audio; annotators accept, reject and label events, and draw and move boxes.
    Every verdict is saved immediately with its user.
    """
    from mast.review.web.serve import AccessPolicy, open_browser, serve

    def on_start(address: str) -> None:
        typer.echo(f"Review: {address}  (stop with Ctrl-C; every verdict is saved immediately)")
        if browser:
            open_browser(address)

    serve(source, database, AccessPolicy(host, proxy, trust_header), port, min_score, on_start)


def estimate_precision_command(
    events: EventsFolder,
    target: Annotated[
        float,
        typer.Option(metavar="FRACTION", help="Required precision: fraction of detections that are animals."),
    ] = 0.9,
    review_database: ReviewDatabaseOption = None,
    min_score: MinScore = None,
) -> None:
    """Estimate precision from reviewed random samples.

    Also computes the score threshold that reaches the target precision, from the verdicts in the queue audit of mast
    review. Writes precision.json, which mast export and mast report use with --precision-threshold, and precision.png.
    """
    from rich.console import Console

    from mast.review.precision_estimate import FIGURE, measure_precision, render
    from mast.storage import join

    estimate = measure_precision(events, target, review_database, min_score)
    Console().print(render(estimate))
    typer.echo(f"{estimate.summary()}\nPlot: {join(events, FIGURE)}")


def agreement(events: ReviewedFolder, review_database: ReviewDatabaseOption = None) -> None:
    """Measure the agreement between annotators.

    Compares verdicts on the same events and reviews of the same minutes.
    """
    from mast.review.read_verdicts import require_verdicts, verdicts_location

    require_verdicts(verdicts_location(events, review_database))
    from rich.console import Console

    from mast.review.agreement import measure_agreement, render

    agreements = measure_agreement(events, review_database)
    Console().print(render(agreements))
    typer.echo("\n".join(item.sentences() for item in agreements))


def apply_review(
    study: StudyFile,
    events: Annotated[
        str | None,
        typer.Argument(
            metavar="EVENTS",
            help="Folder written by mast detect; without it, the review of the study itself.",
        ),
    ] = None,
    review_database: ReviewDatabaseOption = None,
    min_score: MinScore = None,
    overrides: Overrides = None,
) -> None:
    """Add reviewed detections to the study's annotations.

    The next training uses them. Newly reviewed recordings are split for training and testing; held-out sets stay
    separate. After a review with --min-score, specify the same value.
    """
    from mast.config import load_study

    settings = load_study(study, overrides or ())
    from mast.datasets.split_summary import split_study
    from mast.datasets.split_table import SPLITS_TABLE
    from mast.review.to_labels import write_labels
    from mast.study.artifacts import record_inputs
    from mast.study.commands import mast_command

    if events is None and min_score is not None:
        raise ConfigError("--min-score applies to the review of a run: specify EVENTS as well.")
    typer.echo(write_labels(settings, events, review_database, min_score).summary())
    read_study_annotations_table(settings)
    split_study(settings)
    record_inputs(settings, SPLITS_TABLE)
    typer.echo(f"Next: {mast_command('status', study)}")


def users_add(
    source: Reviewed,
    name: Annotated[str, typer.Argument(help="User name.")],
    role: Annotated[str, typer.Option(help="Role: annotator, reviewer or admin.")] = "annotator",
    database: Database = None,
    *,
    password: Annotated[
        bool, typer.Option(help="Set a password; not needed if a proxy signs users in.")
    ] = True,
) -> None:
    """Add a user; once there are users, everyone must sign in.

    An annotator cannot change the verdict of a reviewer. An admin can also add users on the page.
    """
    from mast.review.web.serve import add_user, open_review_store

    with open_review_store(source, database) as store:
        user = add_user(store, name, role, _password() if password else None)
    typer.echo(f"Added {user.name} as {user.role}.")


def users_list(source: Reviewed, database: Database = None) -> None:
    """List the users and their roles."""
    from mast.review.web.serve import open_review_store, users

    with open_review_store(source, database) as store:
        existing = users(store)
    for user in existing:
        typer.echo(f"{user.name}\t{user.role}")
    if not existing:
        typer.echo("There are no users: the page needs no sign-in and only serves this machine.")


def users_remove(
    source: Reviewed, name: Annotated[str, typer.Argument(help="User name.")], database: Database = None
) -> None:
    """Remove a user; the verdicts of the user are kept."""
    from mast.review.web.serve import open_review_store, remove_user

    with open_review_store(source, database) as store:
        remove_user(store, name)
    typer.echo(f"Removed {name}.")


def users_password(
    source: Reviewed, name: Annotated[str, typer.Argument(help="User name.")], database: Database = None
) -> None:
    """Change the password of a user."""
    from mast.review.web.serve import change_password, open_review_store

    with open_review_store(source, database) as store:
        change_password(store, name, _password())
    typer.echo(f"Changed the password of {name}.")


def _password() -> str:
    """Prompt for a password twice, without echo; if stdin is not a terminal, read one line."""
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\n")
    typed: str = typer.prompt("Password", hide_input=True, confirmation_prompt=True)
    return typed
