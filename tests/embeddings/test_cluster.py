"""Clusters, novelty and ranking: cases worked out by hand, and comparison with naive versions."""

from datetime import date

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mast.embeddings.clustering import cluster
from mast.embeddings.clustering.cluster import (
    ClusterStats,
    PcaProjection,
    choose_min_cluster_size,
    cluster_all,
    cluster_cells,
    novelty,
    novelty_threshold,
    rank_clusters,
)
from mast.errors import ConfigError
from tests.evaluation.test_retrieval_metrics import named


def blobs(counts, width=6, seed=0):
    """Return points in distant blobs, and the blob of each point. → (N, C), (N,)"""
    rng = np.random.default_rng(seed)
    centres = 10 * np.eye(width)[: len(counts)]
    number = np.repeat(np.arange(len(counts)), counts)
    return (centres[number] + rng.normal(size=(len(number), width))).astype(np.float32), number


def test_no_events_give_no_clusters():
    empty = np.zeros((0, 4), np.float32)
    assert [len(item) for item in novelty(empty, np.ones((1, 4), np.float32))] == [0, 0]
    clusters = cluster_all(PcaProjection.of(empty)(empty))
    assert clusters.count == 0 and clusters.centroids.shape == (0, 4)
    assert clusters.numbers(0, empty).tolist() == []
    assert rank_clusters([]) == []
    assert choose_min_cluster_size(empty, 5) is None


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1000), block=st.integers(1, 5))
def test_novelty_is_one_minus_the_largest_cosine(seed, block):
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(6, 3)).astype(np.float32)
    references = rng.normal(size=(4, 3)).astype(np.float32)
    distances, nearest = novelty(vectors, references, block)
    cosines = [[float(vector @ other) for other in references] for vector in vectors]
    assert distances == pytest.approx([1 - max(row) for row in cosines], abs=1e-5)
    assert nearest.tolist() == [int(np.argmax(row)) for row in cosines]


def test_novelty_threshold_compares_references_with_those_of_other_recordings():
    calls = named([[1, 0], [1, 0], [0.6, 0.8]], "aab", "112")
    assert novelty_threshold(calls) == pytest.approx(0.4)
    with pytest.raises(ConfigError, match="at least two recordings"):
        novelty_threshold(named([[1, 0], [1, 0]], "ab", "11"))


def test_blobs_of_any_size_become_clusters_and_outliers_are_in_none():
    points, blob = blobs([40, 12, 25])
    outliers = np.full((3, 6), -30, np.float32) * np.arange(1, 4, dtype=np.float32)[:, None]
    vectors = np.concatenate([points, outliers])
    projection = PcaProjection.of(vectors)
    clusters = cluster_all(projection(vectors), min_cluster_size=5)
    assigned = clusters.numbers(0, projection(vectors))
    assert clusters.count == 3 and (assigned[-3:] == -1).all()
    assert len({pair for pair in zip(blob, assigned, strict=False) if pair[1] >= 0}) == 3
    assert (clusters.numbers(10, projection(vectors)[10:20]) == assigned[10:20]).all()
    centroid = projection(vectors)[assigned == assigned[0]].mean(axis=0)
    assert np.allclose(clusters.centroids[assigned[0]], centroid, atol=1e-4)


def test_choose_min_cluster_size_returns_a_smaller_size_that_gives_clusters():
    points, _ = blobs([4, 4])
    assert cluster_all(points, min_cluster_size=5).count == 0
    min_size = choose_min_cluster_size(points, min_cluster_size=40)
    assert min_size == 4 and cluster_all(points, min_size).count == 2
    assert choose_min_cluster_size(np.zeros((1, 4), np.float32), min_cluster_size=5) is None


def test_more_events_than_the_maximum_are_clustered_by_cells(monkeypatch):
    monkeypatch.setattr(cluster, "CELLS", 12)
    points, blob = blobs([400, 300, 200])
    order = np.random.default_rng(1).permutation(len(points))
    clusters = cluster_cells(lambda: np.array_split(points[order], 9))
    assigned = clusters.numbers(0, points)
    assert clusters.count >= 2 and (assigned >= 0).mean() > 0.8
    for number in range(clusters.count):  # no cluster mixes blobs
        assert len(set(blob[assigned == number])) == 1


def test_a_minimum_size_of_one_is_refused():
    with pytest.raises(ConfigError, match="--min-cluster-size 1: specify 2 or more"):
        cluster_all(np.zeros((3, 2), np.float32), min_cluster_size=1)


def stats_of(novelty, novel, days=1, sites=1):
    return ClusterStats(
        events=10, novelty=10 * novelty, novel=novel,
        days={date(2024, 5, 1 + day) for day in range(days)}, sites={str(site) for site in range(sites)},
    )  # fmt: skip


def test_novel_persistent_and_widespread_clusters_come_first():
    stats = [
        stats_of(0.9, 5, 9, 9),
        stats_of(0.5, 6),
        stats_of(0.5, 6, days=3),
        stats_of(0.5, 6, days=3, sites=2),
        stats_of(0.6, 6),
    ]
    assert rank_clusters(stats) == [3, 2, 4, 1, 0]
    assert stats_of(0.5, 6, days=3, sites=1).priority == pytest.approx(0.5 * 2 * 1)
    without_clock_and_site = ClusterStats(events=2, novelty=2.0, novel=2)
    assert without_clock_and_site.priority == 1
