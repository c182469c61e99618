"""A really prepared small study, and a tiny model with random weights that hears it."""

from dataclasses import asdict, replace
from pathlib import Path

import torch

from mast.annotations.study import read_expertise
from mast.config import AnnotationSource, Chunking, Collection, Splits, Study
from mast.datasets.preparing import prepare_study, read_normalisation
from mast.datasets.split_summary import split_study
from mast.events import Annotation, Reviewed, read_column, write_table
from mast.example import write_example
from mast.models.checkpoint import Description, save_model
from mast.models.encoder import Encoder, EncoderShape
from mast.recordings.scan import scan

SHORT = Chunking(chunk_s=2.56, hop_s=1.28)
SHAPE = EncoderShape(width=16, heads=2, depth=1)


def prepared_study(folder: Path) -> Study:
    """The example card, scanned, split and prepared as the verbs do it; the boxes of site B1 are left out."""
    write_example(folder / "demo")
    for table in (folder / "demo" / "boxes").rglob("*.txt"):
        if "B1" in str(table):
            table.unlink()
    study = Study(
        work=str(folder / "work"),
        collections={"card": Collection(root=str(folder / "demo" / "card"), site="{site}/*")},
        annotations=(AnnotationSource(path=str(folder / "demo" / "boxes"), format="raven"),),
        chunking=SHORT,
        splits=Splits(block_s=10, guard_s=2.56),
    )
    scan(study.collections, f"{study.work}/recordings.parquet")
    expertise = read_expertise(study, read_column(f"{study.work}/recordings.parquet", "recording_id"))
    write_table(expertise.annotations, Annotation, f"{study.work}/annotations.parquet")
    write_table(expertise.reviewed, Reviewed, f"{study.work}/reviewed.parquet")
    split_study(study)
    prepare_study(study)
    return study


def tiny_encoder() -> Encoder:
    torch.manual_seed(0)
    return Encoder(SHAPE, frames=256).eval()


def tiny_model(study: Study, location: Path, **changes: object) -> str:
    """A random encoder at rest; `changes` replace parts of its description."""
    description = Description(
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
