"""Commands for embeddings: compute, search, label, cluster and plot them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer

from mast.cli.options import (
    EXPORTS_HELP,
    Device,
    EventsFolder,
    Examples,
    MinScore,
    ModelFolder,
    Overrides,
    StudyFile,
    TableModel,
    VectorTable,
    Workers,
    existing_model,
    parse_format,
    parse_seconds,
)
from mast.cli.progress import progress_bars
from mast.errors import ConfigError


def embed(
    events: EventsFolder,
    model: Annotated[
        str,
        typer.Option(
            metavar="MODEL",
            help="Pretrained encoder or detector: a folder, s3://… or hf://owner/name.",
            callback=existing_model,
        ),
    ],
    layers: Annotated[
        str,
        typer.Option(
            help="Encoder layers that are pooled: the last block (last), or the last three (blocks)."
        ),
    ] = "last",
    out: Annotated[
        str | None,
        typer.Option(metavar="TABLE", help="Embedding table to write. [default: embeddings.lance in EVENTS]"),
    ] = None,
    workers: Workers = None,
    device: Device = "auto",
) -> None:
    """Compute an embedding for every detected event.

    An interrupted run resumes with the same command. After further detection, the same command adds the new events.
    """
    from mast.embeddings.box_encoder import parse_layers
    from mast.embeddings.embed import embed_events
    from mast.runs.local import choose_compute

    pooled_layers, compute = parse_layers(layers), choose_compute(device, workers)
    for line in filter(None, (compute.warning, compute.describe())):
        typer.echo(line, err=True)
    with progress_bars() as on_progress:
        result = embed_events(events, model, pooled_layers, out, compute, on_progress)
    typer.echo(result.summary())


def search(
    events: EventsFolder,
    query_box: Annotated[
        tuple[str, str, str, float, float] | None,
        typer.Option(
            "--query",
            metavar="RECORDING START END LOW HIGH",
            help="Query box: recording id in the events or audio file; start and end in seconds or h:mm:ss; Hz.",
        ),
    ] = None,
    query_event: Annotated[
        str | None, typer.Option(metavar="ID", help="Query event: its id, as listed by an earlier search.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="Model of the embeddings, for --query. [default: its original path]",
            callback=existing_model,
        ),
    ] = None,
    site: Annotated[
        list[str] | None, typer.Option(metavar="SITE", help="Only events of this site; repeatable.")
    ] = None,
    since: Annotated[
        datetime | None,
        typer.Option("--from", metavar="TIME", help="Only events from this date or time, in UTC."),
    ] = None,
    until: Annotated[
        datetime | None,
        typer.Option("--to", metavar="TIME", help="Only events before this date or time, in UTC."),
    ] = None,
    low_hz: Annotated[
        float | None,
        typer.Option("--low", metavar="HZ", help="Only events with a low frequency of at least this."),
    ] = None,
    high_hz: Annotated[
        float | None,
        typer.Option("--high", metavar="HZ", help="Only events with a high frequency of at most this."),
    ] = None,
    min_score: MinScore = None,
    top: Annotated[int, typer.Option(metavar="N", help="Number of results.")] = 24,
    *,
    exact: Annotated[
        bool, typer.Option("--exact", help="Compare with all events, even if there is an index.")
    ] = False,
    table: VectorTable = None,
    out: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="HTML file to write. [default: search-….html in EVENTS]"),
    ] = None,
    device: Device = "auto",
) -> None:
    """Search for events similar to a query event or box.

    Writes an HTML page with spectrograms and audio, most similar first, and a CSV table with the same name.
    """
    from mast.embeddings.search_report import write_search_report
    from mast.embeddings.vector_search import SearchFilter, box_query, event_query, nearest_events
    from mast.embeddings.vector_table import EMBEDDINGS
    from mast.records import Event
    from mast.runs.results import open_results
    from mast.storage import join

    if (query_box is None) == (query_event is None):
        raise ConfigError("Specify either a box with --query or an event id with --query-event.")
    search_filter = SearchFilter(tuple(site or ()), since, until, low_hz, high_hz, min_score)
    results, location = open_results(events, min_score), table or join(events, EMBEDDINGS)
    if query_box is not None:
        recording, start, end, low, high = query_box
        try:
            box = Event(recording, parse_seconds("--query", start), parse_seconds("--query", end), low, high)
        except ValueError as error:
            raise ConfigError(f"--query: {error}.") from None
        query = box_query(results, location, box, model, device)
    else:
        query = event_query(results, location, query_event or "")
    matches = nearest_events(location, query, search_filter, top, exact=exact)
    typer.echo(write_search_report(results, query, matches, search_filter, out).summary())


def label_events_command(
    events: EventsFolder,
    examples: Examples,
    neighbours: Annotated[int, typer.Option(metavar="N", help="Number of nearest examples that vote.")] = 5,
    max_error_rate: Annotated[
        float,
        typer.Option(metavar="FRACTION", help="Maximum fraction of wrong labels among the assigned labels."),
    ] = 0.1,
    model: TableModel = None,
    table: VectorTable = None,
    device: Device = "auto",
) -> None:
    """Label events by their nearest labelled examples.

    Events below a confidence threshold get no label. The threshold is chosen on the examples: each is labelled by the
    examples of other recordings.
    """
    from mast.embeddings.label_events import label_events
    from mast.embeddings.references import load_references

    references = load_references(events, examples, table, model, device)
    with progress_bars() as on_progress:
        labelled = label_events(
            references, neighbours, max_error_rate, lambda done, total: on_progress("labelling", done, total)
        )
    typer.echo(labelled.summary())


def cluster(
    events: EventsFolder,
    examples: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="Labelled examples: a study file, or annotations of these recordings. [default: none]",
        ),
    ] = None,
    min_cluster_size: Annotated[
        int, typer.Option(metavar="N", help="Minimum number of events in a cluster.")
    ] = 5,
    export: Annotated[
        str | None,
        typer.Option(metavar="NUMBERS", help="Only export these clusters for annotation, such as 3,7."),
    ] = None,
    to: Annotated[str, typer.Option(metavar="FORMAT", help=f"With --export: {EXPORTS_HELP}")] = "raven",
    out: Annotated[
        str | None,
        typer.Option(
            metavar="PATH", help="HTML file, or folder with --export. [default: in EVENTS/clusters]"
        ),
    ] = None,
    model: TableModel = None,
    table: VectorTable = None,
    device: Device = "auto",
) -> None:
    """Cluster events and list unlabelled clusters first.

    Clusters are ordered by their distance from the labelled examples, and by their numbers of days and sites.
    """
    from mast.embeddings.clustering.report import require_umap, write_page
    from mast.embeddings.clustering.run import cluster_events, export_clusters
    from mast.embeddings.references import load_references
    from mast.embeddings.vector_table import EMBEDDINGS, open_vectors
    from mast.storage import join

    if export is not None:
        try:
            numbers = [int(word) for word in export.split(",")]
        except ValueError:
            raise ConfigError(f"--export {export}: write the numbers of clusters, such as 3,7.") from None
        typer.echo(export_clusters(events, numbers, parse_format("--to", to), out).summary())
        return
    require_umap()
    references = load_references(events, examples, table, model, device) if examples else None
    with progress_bars() as on_progress:
        clustering = cluster_events(events, references, table, min_cluster_size, on_progress=on_progress)
        on_progress("writing page", 0, None)
        page = write_page(clustering, open_vectors(table or join(events, EMBEDDINGS))[0], out)
    typer.echo(f"{clustering.summary()}\nReport: {page}")


def plot_embeddings(
    study: StudyFile,
    model: ModelFolder,
    out: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="PNG, PDF or SVG file to write. [default: chunk_map.png in the work folder]"
        ),
    ] = None,
    chunks: Annotated[int, typer.Option(min=16, help="Number of chunks, spread over all recordings.")] = 2000,
    device: Device = "auto",
    overrides: Overrides = None,
) -> None:
    """Plot a UMAP of chunk embeddings.

    Points are coloured by site, hour and annotation count.
    """
    from functools import partial

    from mast.config import load_study

    settings = load_study(study, overrides or ())
    from mast.embeddings.umap_map import map_study

    with progress_bars() as on_progress:
        result = map_study(
            settings, model, out, chunks, device=device, on_progress=partial(on_progress, "mapping")
        )
    typer.echo(result.summary())
