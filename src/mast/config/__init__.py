"""Every setting and its default: a study is these groups, filled from defaults < preset < YAML < `--set a.b=c`."""

from mast.config.files import dotted, dump_study, load_study
from mast.config.learning import (
    Augmentation,
    DetectorStage,
    Model,
    Optimisation,
    Pretrain,
    Rehearse,
    Train,
    Unfreezing,
)
from mast.config.selftraining import ExpertStage, Guard, PseudoStage, Selftrain
from mast.config.settings import Settings, checked
from mast.config.sound import (
    PATCH,
    AnnotationFormat,
    AnnotationSource,
    Chunking,
    Collection,
    HeldOut,
    Labels,
    Spectrogram,
    Splits,
)
from mast.config.study import Detection, Study, collection_of

__all__ = [
    "PATCH",
    "AnnotationFormat",
    "AnnotationSource",
    "Augmentation",
    "Chunking",
    "Collection",
    "Detection",
    "DetectorStage",
    "ExpertStage",
    "Guard",
    "HeldOut",
    "Labels",
    "Model",
    "Optimisation",
    "Pretrain",
    "PseudoStage",
    "Rehearse",
    "Selftrain",
    "Settings",
    "Spectrogram",
    "Splits",
    "Study",
    "Train",
    "Unfreezing",
    "checked",
    "collection_of",
    "dotted",
    "dump_study",
    "load_study",
]
