"""The verbs of people: who reviews, what they decide, how far that can be trusted, and what follows from it."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from mast.cli.options import Database, EventsFolder, LeastScore, Overrides, Reviewed, StudyFile, Verdicts
from mast.cli.study import read_experts
from mast.errors import ConfigError


def review(
    source: Reviewed,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Where to listen; others can only come in with users.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="Port of the page; 0 takes a free one.")
    ] = 8642,
    database: Database = None,
    min_score: LeastScore = None,
    proxy: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="The reverse proxy that people come through.")
    ] = None,
    trust_header: Annotated[
        str | None,
        typer.Option(metavar="HEADER", help="In which the proxy says who is there, such as X-Remote-User."),
    ] = None,
    *,
    browser: Annotated[bool, typer.Option(help="Open the page in a browser.")] = True,
) -> None:
    """Check, correct and add sounds in the browser.

    Look and listen, accept, reject, name, draw and move boxes; every verdict is kept at once, and who gave it.
    """
    from mast.review.serving import Gate, open_browser, serve

    def on_start(address: str) -> None:
        typer.echo(f"Review: {address}  (Ctrl-C ends it; every verdict is kept at once)")
        if browser:
            open_browser(address)

    serve(source, database, Gate(host, proxy, trust_header), port, min_score, on_start)


def precision(
    events: EventsFolder,
    asked: Annotated[
        float, typer.Option(metavar="SHARE", help="Share of sounds that have to be animals.")
    ] = 0.9,
    verdicts: Verdicts = None,
    min_score: LeastScore = None,
) -> None:
    """Tell how many of the sounds found are animals, and from which score on enough of them are.

    From the verdicts on sounds drawn by lot, the queue audit of mast review. Writes precision.json, which mast export
    and mast report use with --calibrated, and precision.png.
    """
    from rich.console import Console

    from mast.review.precision import PICTURE, measure_precision, render
    from mast.storage import join

    told = measure_precision(events, asked, verdicts, min_score)
    Console().print(render(told))
    typer.echo(f"{told.summary()}\nPicture: {join(events, PICTURE)}")


def agreement(events: EventsFolder, verdicts: Verdicts = None) -> None:
    """Tell how far people agree who decided about the same sounds or reviewed the same minutes."""
    from rich.console import Console

    from mast.review.agreement import measure_agreement, render

    found = measure_agreement(events, verdicts)
    Console().print(render(found))
    typer.echo("\n".join(item.sentences() for item in found))


def labels(
    study: StudyFile,
    events: Annotated[
        str | None,
        typer.Argument(
            metavar="EVENTS",
            help="The folder that mast detect has written; without one, the study's own review.",
        ),
    ] = None,
    verdicts: Verdicts = None,
    min_score: LeastScore = None,
    overrides: Overrides = None,
) -> None:
    """Take what people decided about a run, or about the study's recordings themselves, into the study.

    The next training learns from it. What was newly reviewed from end to end is shared out for training and tests;
    held-out sets stay apart. After a review with --min-score, give the same.
    """
    from mast.config import load_study
    from mast.datasets.split_summary import split_study
    from mast.datasets.split_table import SPLITS_TABLE
    from mast.review.labels import write_labels
    from mast.study.commands import mast_command
    from mast.study.products import remember

    if events is None and min_score is not None:
        raise ConfigError("--min-score is for the review of a run: give EVENTS as well.")
    settings = load_study(study, overrides or ())
    typer.echo(write_labels(settings, events, verdicts, min_score).summary())
    read_experts(settings)
    split_study(settings)
    remember(settings, SPLITS_TABLE)
    typer.echo(f"Next: {mast_command('status', study)}")


def users_add(
    source: Reviewed,
    name: Annotated[str, typer.Argument(help="A name to sign in with.")],
    role: Annotated[str, typer.Option(help="annotator, reviewer or admin.")] = "annotator",
    database: Database = None,
    *,
    password: Annotated[
        bool, typer.Option(help="Ask for a password; not where a proxy says who is there.")
    ] = True,
) -> None:
    """Let someone review; from the first one on, everyone signs in.

    An annotator decides, but does not overrule a reviewer. An admin also lets people in from the page.
    """
    from mast.review.serving import add_user, opened

    with opened(source, database) as store:
        user = add_user(store, name, role, _password() if password else None)
    typer.echo(f"{user.name} may review as {user.role}.")


def users_list(source: Reviewed, database: Database = None) -> None:
    """Tell who may review."""
    from mast.review.serving import opened, users

    with opened(source, database) as store:
        known = users(store)
    for user in known:
        typer.echo(f"{user.name}\t{user.role}")
    if not known:
        typer.echo("Nobody has to sign in: the page only answers on this machine.")


def users_remove(
    source: Reviewed, name: Annotated[str, typer.Argument(help="Who.")], database: Database = None
) -> None:
    """Let someone review no more; what they decided stays."""
    from mast.review.serving import opened, remove_user

    with opened(source, database) as store:
        remove_user(store, name)
    typer.echo(f"{name} may review no more.")


def users_password(
    source: Reviewed, name: Annotated[str, typer.Argument(help="Who.")], database: Database = None
) -> None:
    """Give someone a new password."""
    from mast.review.serving import change_password, opened

    with opened(source, database) as store:
        change_password(store, name, _password())
    typer.echo(f"{name} has a new password, and signs in with it.")


def _password() -> str:
    """A password from a person, twice and unseen; or one line from another program."""
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\n")
    typed: str = typer.prompt("Password", hide_input=True, confirmation_prompt=True)
    return typed
