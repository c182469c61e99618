"""A run of `mast detect` over made-up cards, an encoder to hear its sounds with, and tables of made-up vectors."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import lance
import numpy as np
import torch

from mast.detection.found import open_found
from mast.embeddings.boxes import BoxEncoder
from mast.embeddings.part import Orders, embed_part, measure_whitening, open_encoder
from mast.embeddings.table import EMBEDDINGS, Story, append, open_or_create, vector_batch, vector_schema
from mast.models.checkpoint import save_model
from mast.models.encoder import Encoder, EncoderShape
from mast.models.loading import load_encoder
from tests.detection.archives import DESCRIPTION, card, heard, opened

SHAPE = EncoderShape(width=32, heads=2, depth=4)


def save_encoder(folder: Path, seed: int = 1, **changed) -> str:
    """A random encoder of four blocks that hears chunks of 1.28 s."""
    torch.manual_seed(seed)
    tensors = {f"encoder.{name}": value for name, value in Encoder(SHAPE, 128).state_dict().items()}
    description = replace(
        DESCRIPTION, kind="encoder", architecture={"encoder": asdict(SHAPE)}, thresholds={}, **changed
    )
    save_model(str(folder), description, tensors)
    return str(folder)


def detected(folder: Path, detector: str, files: int = 5) -> str:
    """The events of a card of two sites, A and B."""
    root = card(folder / "card", files, seconds=2.5)
    heard(opened(root, detector, folder / "found", site="{site}/*", time_zone="UTC"))
    return str(folder / "found")


def embedded_here(run: str, model: str, table: str | None = None, pool="last", numbers=None) -> str:
    """What `mast embed` does, in this process and without an end."""
    found, place = open_found(run), table or f"{run}/{EMBEDDINGS}"
    loaded = load_encoder(model)
    identity, width = loaded.description.identity, loaded.network.shape.width
    dataset = open_or_create(place, Story(found.fingerprint, identity, pool, width, model))
    orders = Orders(run, place, model, identity, pool)
    measure_whitening(found, BoxEncoder(loaded, pool, "cpu"), place)
    encoder = open_encoder(orders, "cpu")
    for number in found.numbers if numbers is None else numbers:
        dataset = append(dataset, embed_part(found, number, encoder, place).fragments)
    return place


def made_table(place: str, vectors: np.ndarray, parts: int = 1, **columns) -> lance.LanceDataset:
    """A table of these vectors; sounds are named by their number, and `columns` replace what is known about them."""
    width = vectors.shape[1]
    dataset = open_or_create(place, Story("f0", "m0", "last", width, "nowhere"))
    for part, own in enumerate(np.array_split(np.arange(len(vectors)), parts)):
        rows = [made_row(int(number), part, columns) for number in own]
        if not rows:
            continue
        fragments = lance.fragment.write_fragments(
            vector_batch(rows, vectors[own].astype(np.float16)), dataset, vector_schema(width)
        )
        dataset = append(dataset, [json.dumps(fragment.to_json()) for fragment in fragments])
    return dataset


def made_row(number: int, part: int, columns: dict) -> tuple:
    known = {
        "event_id": f"{number:06}", "part": part, "recording_id": "card/1.WAV", "start_s": float(number),
        "end_s": number + 0.5, "low_hz": 1000.0, "high_hz": 3000.0, "score": 0.5, "start_utc": None,
        "start_local": None, "site": None,
    }  # fmt: skip
    return tuple((known | {name: values[number] for name, values in columns.items()}).values())


def rows_of(place: str) -> list[dict]:
    """All rows of a table, by name."""
    return sorted(lance.dataset(place).to_table().to_pylist(), key=lambda row: row["event_id"])


def clustered(count: int, width: int = 32, seed: int = 0) -> np.ndarray:
    """Unit vectors in groups."""
    rng = np.random.default_rng(seed)
    middles = rng.normal(size=(20, width))
    found = middles[rng.integers(0, 20, count)] + 0.3 * rng.normal(size=(count, width))
    return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float16)
