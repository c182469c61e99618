"""Clustering a run: the clusters, the page with spectrograms and audio, and exported annotations."""

import csv
import re
from base64 import b64encode
from hashlib import sha256
from pathlib import Path

import lance
import numpy as np
import pytest
from typer.testing import CliRunner

from mast.annotations import read_annotations
from mast.cli import app
from mast.embeddings.clustering import cluster, report
from mast.embeddings.clustering import run as clustering_run
from mast.embeddings.clustering.report import clustering_page
from mast.embeddings.clustering.run import cluster_events, export_clusters
from mast.embeddings.references import load_references
from mast.errors import ConfigError, StorageError
from mast.runs.results import open_results
from mast.storage import list_files
from tests.embeddings.runs import build_table, rows_of
from tests.embeddings.test_label_events import labelled_run  # noqa: F401
from tests.runs.finished import write_run


def numbers_of(run) -> dict[str, int]:
    results = open_results(run)
    return {name: number for part in results.numbers for name, number in results.clusters(part).items()}


def test_a_run_without_events_has_no_clusters_and_its_page_reports_it(tmp_path):
    run = write_run(tmp_path / "found", [])
    dataset = build_table(f"{run}/embeddings.lance", np.zeros((0, 8), np.float16))
    result = cluster_events(run)
    assert (result.events, result.unclustered, len(result.clusters)) == (0, 0, 0)
    assert "No events are similar enough" in clustering_page(result, dataset)
    assert result.min_size is None and "--min-cluster-size" not in result.summary()


def test_a_run_without_clusters_cannot_be_exported(run):
    if not Path(run, "clusters").exists():
        with pytest.raises(StorageError, match="without --export first"):
            export_clusters(run, [1], "raven")


@pytest.fixture(autouse=True)
def few_tiles(monkeypatch):
    monkeypatch.setattr(report, "MAX_CARDS", 3)
    monkeypatch.setattr(report, "EXAMPLES", 4)


@pytest.fixture(scope="module")
def clustered(labelled_run):  # noqa: F811
    run, location = labelled_run
    return run, location, cluster_events(run, load_references(run, location), min_cluster_size=2)


def test_every_event_has_a_cluster_or_none_and_the_table_lists_each_cluster(clustered):
    run, _, result = clustered
    events, numbers = rows_of(f"{run}/embeddings.lance"), numbers_of(run)
    assert result.events == len(events) == len(numbers) + result.unclustered and len(result.clusters) > 1
    with Path(run, "clusters", "clusters.csv").open(encoding="utf-8", newline="") as file:
        table = list(csv.DictReader(file))
    assert [int(row["cluster"]) for row in table] == [item.number for item in result.clusters]
    for row, item in zip(table, result.clusters, strict=True):
        members = {name for name, number in numbers.items() if number == item.number}
        assert int(row["events"]) == item.stats.events == len(members)
        assert float(row["review_priority"]) == pytest.approx(item.stats.priority, abs=1e-3)
        assert set(row["exemplars"].split()) <= members and row["nearest_name"] in ("high", "low")
    ranking = [(not item.stats.is_candidate, -item.stats.priority) for item in result.clusters]
    assert ranking == sorted(ranking)
    assert f"{len(result.clusters):,} clusters" in result.summary()


def test_the_page_has_a_point_for_each_tile_and_runs_no_other_script(clustered):
    run, _, result = clustered
    page = clustering_page(result, lance.dataset(f"{run}/embeddings.lance"))
    tiles = re.findall(r'<figure class="tile" id="([^"]+)"', page)
    points = re.findall(r'data-tile="([^"]+)"', page.partition("<script>")[0])
    assert sorted(tiles) == sorted(points) and any(name.startswith("x-") for name in tiles)
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    allowed = b64encode(sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{allowed}'" in page and "http://" not in page and "https://" not in page


def test_more_events_than_the_maximum_are_clustered_by_cells(clustered, monkeypatch):
    run, _, _ = clustered
    monkeypatch.setattr(clustering_run, "MAX_EVENTS", 20)
    monkeypatch.setattr(cluster, "CELLS", 8)
    result = cluster_events(run)
    assert result.events == len(numbers_of(run)) + result.unclustered
    assert all(item.stats.mean(item.stats.novelty) == 1 for item in result.clusters)  # no references


def test_a_cluster_size_that_is_too_large_is_reported_with_one_that_gives_clusters(clustered):
    run, _, result = clustered
    too_large = cluster_events(run, min_cluster_size=result.events)
    assert (
        not too_large.clusters
        and f"No clusters at this size; --min-cluster-size {too_large.min_size} gives some."
        in too_large.summary()
    )
    assert cluster_events(run, min_cluster_size=too_large.min_size).clusters


def test_only_the_chosen_clusters_are_exported(clustered, tmp_path):
    run, location, _ = clustered
    result = cluster_events(run, load_references(run, location), min_cluster_size=2)
    numbers = numbers_of(run)
    wanted = [result.clusters[0].number, result.clusters[-1].number]
    exported = export_clusters(run, wanted, "raven", str(tmp_path / "raven"))
    annotations = read_annotations(tmp_path / "raven", "raven")
    assert {event.label for event in annotations.events} == {f"cluster {number}" for number in wanted}
    assert len(annotations.events) == exported.events == sum(number in wanted for number in numbers.values())
    with pytest.raises(ConfigError, match="no such cluster"):
        export_clusters(run, [999], "raven", str(tmp_path / "none"))


def test_an_export_replaces_earlier_exports_and_a_new_clustering_removes_them(clustered):
    run, location, _ = clustered
    numbers = [
        item.number
        for item in cluster_events(run, load_references(run, location), min_cluster_size=2).clusters
    ]
    folder = Path(run, "clusters", "raven")
    for number in (numbers[0], numbers[-1]):
        export_clusters(run, [number], "raven")
        assert {event.label for event in read_annotations(folder, "raven").events} == {f"cluster {number}"}
    with pytest.raises(ConfigError, match="no such cluster"):
        export_clusters(run, [999], "raven")
    assert read_annotations(folder, "raven").events
    export_clusters(run, numbers, "camtrap-dp")
    cluster_events(run, load_references(run, location), min_cluster_size=3)
    assert list_files(str(folder)) == list_files(str(folder.with_name("camtrap-dp"))) == []


def test_an_interrupted_clustering_cannot_be_exported(clustered, monkeypatch, tmp_path):
    run, location, _ = clustered
    write_part = clustering_run._write_part

    def killed(*part):
        write_part(*part)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(clustering_run, "_write_part", killed)
        cluster_events(run, load_references(run, location), min_cluster_size=3)
    with pytest.raises(StorageError, match="without --export first"):
        export_clusters(run, [1], "raven", str(tmp_path / "raven"))
    cluster_events(run, load_references(run, location), min_cluster_size=2)
    export_clusters(run, [1], "raven", str(tmp_path / "raven"))


def test_the_command_clusters_and_exports(clustered):
    run, location, _ = clustered
    done = CliRunner().invoke(app, ["cluster", run, "--examples", location, "--min-cluster-size", "2"])
    assert done.exit_code == 0, done.output
    assert "may be new" in done.stdout and Path(run, "clusters", "clusters.html").exists()
    done = CliRunner().invoke(app, ["cluster", run, "--export", "1", "--to", "csv"])
    assert done.exit_code == 0 and Path(run, "clusters", "csv", "events.csv").exists()
    done = CliRunner().invoke(app, ["cluster", run, "--export", "one"])
    assert "such as 3,7" in str(done.exception)
