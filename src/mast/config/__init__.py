"""Define all settings and their defaults; values come from defaults < preset < YAML < `--set a.b=c`."""

from mast.config.base import Settings, validate
from mast.config.data import (
    PATCH_SIZE,
    AnnotationFormat,
    AnnotationSource,
    Chunking,
    Collection,
    HeldOut,
    Labels,
    Spectrogram,
    Splits,
)
from mast.config.loading import dump_study, flatten, load_study
from mast.config.selftraining import PseudoLabelStage, RollbackCriteria, Selftrain, SupervisedStage
from mast.config.study import Detection, Study, collection_of
from mast.config.training import (
    Augmentation,
    DetectorStage,
    ModelSettings,
    OptimisationSettings,
    Pretrain,
    SyntheticTraining,
    Train,
    Unfreezing,
)

__all__ = [
    "PATCH_SIZE",
    "AnnotationFormat",
    "AnnotationSource",
    "Augmentation",
    "Chunking",
    "Collection",
    "Detection",
    "DetectorStage",
    "HeldOut",
    "Labels",
    "ModelSettings",
    "OptimisationSettings",
    "Pretrain",
    "PseudoLabelStage",
    "RollbackCriteria",
    "Selftrain",
    "Settings",
    "Spectrogram",
    "Splits",
    "Study",
    "SupervisedStage",
    "SyntheticTraining",
    "Train",
    "Unfreezing",
    "collection_of",
    "dump_study",
    "flatten",
    "load_study",
    "validate",
]
