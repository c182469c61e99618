"""A small prepared study, and a tiny encoder with random weights for it."""

from dataclasses import asdict, replace
from pathlib import Path

import torch

from mast.annotations.study_annotations import read_study_annotations
from mast.config import AnnotationSource, Chunking, Collection, Splits, Study
from mast.datasets.prepare import prepare_study, read_normalisation
from mast.datasets.split_summary import split_study
from mast.example_data import write_example
from mast.models.checkpoint import ModelInfo, save_model
from mast.models.encoder import Encoder, EncoderShape
from mast.recordings.scan import scan
from mast.records import Annotation, ReviewedSpan, read_column, write_table

SHORT = Chunking(chunk_s=2.56, hop_s=1.28)
SHAPE = EncoderShape(width=16, heads=2, depth=1)


def prepared_study(folder: Path) -> Study:
    """Return the example study, scanned, split and prepared as by the commands, without the annotations of site B1."""
    write_example(folder / "demo")
    for table in (folder / "demo" / "boxes").rglob("*.txt"):
        if "B1" in str(table):
            table.unlink()
    study = Study(
        work_dir=str(folder / "work"),
        collections={"card": Collection(root=str(folder / "demo" / "card"), site="{site}/*")},
        annotations=(AnnotationSource(path=str(folder / "demo" / "boxes"), format="raven"),),
        chunking=SHORT,
        splits=Splits(block_s=10, guard_s=2.56),
    )
    scan(study.collections, f"{study.work_dir}/recordings.parquet")
    annotations = read_study_annotations(
        study, read_column(f"{study.work_dir}/recordings.parquet", "recording_id")
    )
    write_table(annotations.annotations, Annotation, f"{study.work_dir}/annotations.parquet")
    write_table(annotations.reviewed, ReviewedSpan, f"{study.work_dir}/reviewed.parquet")
    split_study(study)
    prepare_study(study)
    return study


def tiny_encoder() -> Encoder:
    torch.manual_seed(0)
    return Encoder(SHAPE, frames=256).eval()


def tiny_model(study: Study, location: Path, **changes: object) -> str:
    """Save an encoder with random weights; `changes` replace fields of its description."""
    description = ModelInfo(
        kind="encoder",
        architecture={"encoder": asdict(SHAPE)},
        spectrogram=study.spectrogram,
        chunking=study.chunking,
        normalisation=read_normalisation(study),
        licence="none",
        source="random weights",
    )
    tensors = {f"encoder.{name}": value for name, value in tiny_encoder().state_dict().items()}
    save_model(str(location), replace(description, **changes), tensors)
    return str(location)
