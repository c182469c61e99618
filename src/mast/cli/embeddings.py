"""The verbs of likeness: how sounds sound to a model, which are alike, what they may be called, and what is new."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer

from mast.cli.options import (
    EXPORTS_HELP,
    Device,
    EventsFolder,
    Examples,
    LeastScore,
    ModelFolder,
    Overrides,
    StudyFile,
    TableModel,
    VectorTable,
    Workers,
    format_named,
    seconds_of,
)
from mast.cli.progress import progress_bars
from mast.errors import ConfigError


def embed(
    events: EventsFolder,
    model: Annotated[
        str,
        typer.Option(
            metavar="MODEL", help="A pretrained encoder, or a detector: a folder, s3://… or hf://owner/name."
        ),
    ],
    pool: Annotated[
        str,
        typer.Option(help="What a box is read from: the encoder's last block, or its last three (blocks)."),
    ] = "last",
    out: Annotated[
        str | None,
        typer.Option(metavar="TABLE", help="Where vectors go. [default: embeddings.lance in EVENTS]"),
    ] = None,
    workers: Workers = None,
    device: Device = "auto",
) -> None:
    """Write down how every sound that was found sounds to a model, to search for those that are alike.

    May be stopped at any moment and goes on with the same command, also after mast detect has found more.
    """
    from mast.detection.local import choose_compute
    from mast.embeddings.boxes import pool_named
    from mast.embeddings.embed import embed_events

    chosen, compute = pool_named(pool), choose_compute(device, workers)
    for line in filter(None, (compute.warning, compute.told())):
        typer.echo(line, err=True)
    with progress_bars() as on_progress:
        result = embed_events(events, model, chosen, out, compute, on_progress)
    typer.echo(result.summary())


def search(
    events: EventsFolder,
    like: Annotated[
        tuple[str, str, str, float, float] | None,
        typer.Option(
            metavar="RECORDING START END LOW HIGH",
            help="A box: a recording as the events name it, or a sound file; seconds or h:mm:ss; Hz.",
        ),
    ] = None,
    like_event: Annotated[
        str | None, typer.Option(metavar="ID", help="A sound by its name, from an earlier search.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="The model of the vectors, for --like. [default: where it was]"),
    ] = None,
    site: Annotated[
        list[str] | None, typer.Option(metavar="SITE", help="Only of this site; may be given again.")
    ] = None,
    since: Annotated[
        datetime | None,
        typer.Option("--from", metavar="TIME", help="Only from this day or moment on, in UTC."),
    ] = None,
    until: Annotated[
        datetime | None, typer.Option("--to", metavar="TIME", help="Only before this day or moment, in UTC.")
    ] = None,
    low_hz: Annotated[
        float | None, typer.Option("--low", metavar="HZ", help="Only sounds that reach no lower.")
    ] = None,
    high_hz: Annotated[
        float | None, typer.Option("--high", metavar="HZ", help="Only sounds that reach no higher.")
    ] = None,
    min_score: LeastScore = None,
    top: Annotated[int, typer.Option(metavar="N", help="How many sounds.")] = 24,
    *,
    exact: Annotated[
        bool, typer.Option("--exact", help="Compare with every sound, also where there is an index.")
    ] = False,
    table: VectorTable = None,
    out: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="The page to write. [default: alike-….html in EVENTS]"),
    ] = None,
    device: Device = "auto",
) -> None:
    """Find the sounds most like a given one.

    Writes a page to look at and listen to, the most similar first, and a table of the same name in CSV.
    """
    from mast.detection.found import open_found
    from mast.embeddings.neighbours import Wanted, box_query, event_query, neighbours
    from mast.embeddings.sheet import write_sheet
    from mast.embeddings.table import EMBEDDINGS
    from mast.events import Event
    from mast.storage import join

    if (like is None) == (like_event is None):
        raise ConfigError("Give either a box with --like or the name of a sound with --like-event.")
    wanted = Wanted(tuple(site or ()), since, until, low_hz, high_hz, min_score)
    found, location = open_found(events, min_score), table or join(events, EMBEDDINGS)
    if like is not None:
        recording, start, end, low, high = like
        try:
            box = Event(recording, seconds_of("--like", start), seconds_of("--like", end), low, high)
        except ValueError as error:
            raise ConfigError(f"--like: {error}.") from None
        query = box_query(found, location, box, model, device)
    else:
        query = event_query(found, location, like_event or "")
    alike = neighbours(location, query, wanted, top, exact=exact)
    typer.echo(write_sheet(found, query, alike, wanted, out).summary())


def name(
    events: EventsFolder,
    examples: Examples,
    neighbours: Annotated[int, typer.Option(metavar="N", help="Nearest examples that vote.")] = 5,
    max_wrong: Annotated[
        float, typer.Option(metavar="SHARE", help="Share of wrong names among those given, at most.")
    ] = 0.1,
    model: TableModel = None,
    table: VectorTable = None,
    device: Device = "auto",
) -> None:
    """Give sounds the names of the examples that they are most like, and none where that is not sure.

    How sure a name must be is measured on the examples, each named by those of other recordings.
    """
    from mast.embeddings.examples import open_known
    from mast.embeddings.names import name_events

    known = open_known(events, examples, table, model, device)
    with progress_bars() as on_progress:
        named = name_events(
            known, neighbours, max_wrong, lambda done, total: on_progress("naming", done, total)
        )
    typer.echo(named.summary())


def discover(
    events: EventsFolder,
    examples: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="Boxes that experts have named: a study file, or annotations of these recordings. [default: none]",
        ),
    ] = None,
    least: Annotated[int, typer.Option(metavar="N", help="Sounds that make a group, at least.")] = 5,
    take: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBERS", help="Write these groups for an expert, such as 3,7, and nothing else."
        ),
    ] = None,
    to: Annotated[str, typer.Option(metavar="FORMAT", help=f"With --take: {EXPORTS_HELP}")] = "raven",
    out: Annotated[
        str | None,
        typer.Option(
            metavar="PATH", help="The page, or with --take the folder. [default: in clusters of EVENTS]"
        ),
    ] = None,
    model: TableModel = None,
    table: VectorTable = None,
    device: Device = "auto",
) -> None:
    """Group sounds that are alike, and show first what nobody has named.

    Groups are ordered by how unlike they are to the examples, on how many days and at how many sites they were heard.
    """
    from mast.embeddings.discover import discover as group
    from mast.embeddings.discover import take as write_groups
    from mast.embeddings.discover_page import check_umap, write_page
    from mast.embeddings.examples import open_known
    from mast.embeddings.table import EMBEDDINGS, open_vectors
    from mast.storage import join

    if take is not None:
        try:
            numbers = [int(word) for word in take.split(",")]
        except ValueError:
            raise ConfigError(f"--take {take}: give numbers of groups, such as 3,7.") from None
        typer.echo(write_groups(events, numbers, format_named("--to", to), out).summary())
        return
    check_umap()
    known = open_known(events, examples, table, model, device) if examples else None
    with progress_bars() as on_progress:
        discovered = group(events, known, table, least, on_progress=on_progress)
        on_progress("drawing", 0, None)
        page = write_page(discovered, open_vectors(table or join(events, EMBEDDINGS))[0], out)
    typer.echo(f"{discovered.summary()}\nLook and listen: {page}")


def map_(
    study: StudyFile,
    model: ModelFolder,
    out: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="PNG, PDF or SVG. [default: chunk_map.png in the work folder]"),
    ] = None,
    chunks: Annotated[
        int, typer.Option(min=16, help="Chunks on the map, spread over all recordings.")
    ] = 2000,
    device: Device = "auto",
    overrides: Overrides = None,
) -> None:
    """Draw sound by how alike it is to a model, coloured by site, hour and expert boxes."""
    from functools import partial

    from mast.config import load_study
    from mast.embeddings.chunk_map import map_study

    settings = load_study(study, overrides or ())
    with progress_bars() as on_progress:
        result = map_study(
            settings, model, out, chunks, device=device, on_progress=partial(on_progress, "mapping")
        )
    typer.echo(result.summary())
