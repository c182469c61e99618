"""A run of `mast detect` on synthetic recordings, an encoder for its events, and tables of synthetic vectors."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import lance
import numpy as np
import torch

from mast.embeddings.box_encoder import BoxEncoder
from mast.embeddings.vector_table import (
    EMBEDDINGS,
    TableMetadata,
    append,
    open_or_create,
    vector_batch,
    vector_schema,
)
from mast.embeddings.worker import EmbedConfig, embed_part, fit_table_whitening, open_encoder
from mast.models.checkpoint import save_model
from mast.models.encoder import Encoder, EncoderShape
from mast.models.loading import load_encoder
from mast.runs.results import open_results
from tests.runs.archives import DESCRIPTION, card, open_paths, process_missing

SHAPE = EncoderShape(width=32, heads=2, depth=4)


def save_encoder(folder: Path, seed: int = 1, **changed) -> str:
    """Save an encoder with random weights and four blocks, for chunks of 1.28 s."""
    torch.manual_seed(seed)
    tensors = {f"encoder.{name}": value for name, value in Encoder(SHAPE, 128).state_dict().items()}
    description = replace(
        DESCRIPTION, kind="encoder", architecture={"encoder": asdict(SHAPE)}, thresholds={}, **changed
    )
    save_model(str(folder), description, tensors)
    return str(folder)


def detect_card(folder: Path, detector: str, files: int = 5) -> str:
    """Run detection on a card with two sites, A and B."""
    root = card(folder / "card", files, seconds=2.5)
    process_missing(open_paths(root, detector, folder / "found", site="{site}/*", time_zone="UTC"))
    return str(folder / "found")


def embed_in_process(run: str, model: str, table: str | None = None, layers="last", numbers=None) -> str:
    """Embed parts of a run as `mast embed` does, in this process and without the final compaction."""
    results, location = open_results(run), table or f"{run}/{EMBEDDINGS}"
    loaded = load_encoder(model)
    identity, width = loaded.description.identity, loaded.network.shape.width
    dataset = open_or_create(location, TableMetadata(results.fingerprint, identity, layers, width, model))
    config = EmbedConfig(run, location, model, identity, layers)
    fit_table_whitening(results, BoxEncoder(loaded, layers, "cpu"), location)
    encoder = open_encoder(config, "cpu")
    for number in results.numbers if numbers is None else numbers:
        dataset = append(dataset, embed_part(results, number, encoder, location).fragments)
    return location


def build_table(location: str, vectors: np.ndarray, parts: int = 1, **columns) -> lance.LanceDataset:
    """Write a table of vectors; event ids are row numbers, and `columns` replace default values."""
    width = vectors.shape[1]
    dataset = open_or_create(location, TableMetadata("f0", "m0", "last", width, "nowhere"))
    for part, part_rows in enumerate(np.array_split(np.arange(len(vectors)), parts)):
        rows = [build_row(int(number), part, columns) for number in part_rows]
        if not rows:
            continue
        fragments = lance.fragment.write_fragments(
            vector_batch(rows, vectors[part_rows].astype(np.float16)), dataset, vector_schema(width)
        )
        dataset = append(dataset, [json.dumps(fragment.to_json()) for fragment in fragments])
    return dataset


def build_row(number: int, part: int, columns: dict) -> tuple:
    defaults = {
        "event_id": f"{number:06}", "part": part, "recording_id": "card/1.WAV", "start_s": float(number),
        "end_s": number + 0.5, "low_hz": 1000.0, "high_hz": 3000.0, "score": 0.5, "start_utc": None,
        "start_local": None, "site": None,
    }  # fmt: skip
    return tuple((defaults | {name: values[number] for name, values in columns.items()}).values())


def rows_of(location: str) -> list[dict]:
    """Return all rows of a table, ordered by event id."""
    return sorted(lance.dataset(location).to_table().to_pylist(), key=lambda row: row["event_id"])


def clustered_vectors(count: int, width: int = 32, seed: int = 0) -> np.ndarray:
    """Return unit vectors in 20 clusters."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(20, width))
    vectors = centres[rng.integers(0, 20, count)] + 0.3 * rng.normal(size=(count, width))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float16)
