"""Baselines: training with MAST's loop, saving and loading, and evaluation with MAST's method."""

import json
import math
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from experiments.baselines import torchvision_detectors, yolo
from experiments.baselines.base import Float32Output, best_boxes, optional
from experiments.baselines.energy import DB_PER_SCORE, LEVELS_DB, PAUSES, SMOOTHING, Energy
from experiments.baselines.evaluate import (
    BASELINES,
    BaselineDetector,
    evaluate_baseline,
    load_baseline,
)
from experiments.baselines.train import BaselineTask, train_baseline
from experiments.shift.run import metrics_on
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from typer.testing import CliRunner

from mast.audio.spectrogram import MelGrid
from mast.cli import app
from mast.config import Detection, Study, load_study
from mast.datasets.loader import FixedChunkDataset, read_batch
from mast.datasets.prepare import read_normalisation
from mast.datasets.study_datasets import detection_dataset
from mast.detection.chunk_detector import predict_chunks
from mast.errors import ConfigError, MissingExtraError, ModelError
from mast.models.frontend import FrontEnd
from mast.storage import join
from mast.store.audio_store import AudioStore
from mast.training.run_dir import TrainingRun
from mast.training.supervised import DetectorTask
from mast.training.thresholds import choose_threshold
from mast.training.training_data import TrainingData
from mast.training.validation import predict
from tests.evaluation.studies import SHIFTED, random_detector, study_under_shift
from tests.training.test_loop import stop_at
from tests.training.test_supervised import batch_of, with_boxes

CPU = torch.device("cpu")
QUICK = (
    "model.size=tiny",
    "train.epochs=2",
    "train.warmup_epochs=0",
    "train.batch_size=8",
    "train.plot_every_epochs=2",
    "train.checkpoint_minutes=0",
    "detection.max_detections=50",  # a detector after a few steps has hundreds of detections
)
LIBRARY = {"detr": "transformers", "yolo": "ultralytics"}
LEARNERS = [name for name in BASELINES if name != "energy"]


@pytest.fixture(autouse=True, scope="module")
def small():
    """Fewer proposals, and one thread, because results are reproducible for a fixed number of threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torchvision_detectors, "PROPOSALS", 100)
        patch.setattr(torchvision_detectors, "SAMPLED_PROPOSALS", 16)
        yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def study_file(tmp_path_factory) -> Path:
    """The example data with one training site and spectrograms of half the height, for speed."""
    file = study_under_shift(tmp_path_factory.mktemp("study"))
    values = json.loads(file.read_text())
    values["spectrogram"] = {"n_mels": 64}
    values["splits"]["held_out"]["unused"] = {"paths": ["A1/*", "B1/20240510*"]}
    file.write_text(json.dumps(values))
    for command in ("split", "prepare"):
        assert CliRunner().invoke(app, [command, str(file)]).exit_code == 0
    return file


@pytest.fixture(params=LEARNERS)
def learner(request) -> str:
    if request.param in LIBRARY:
        pytest.importorskip(LIBRARY[request.param])
    return request.param


def study_with(path: Path, *changes: str) -> Study:
    return load_study(path, [*QUICK, *changes])


def open_store(study: Study) -> AudioStore:
    return AudioStore(join(study.work_dir, "audio.lance"))


def random_baseline(name: str, **changed):
    """Create a baseline with random weights that returns all its boxes."""
    torch.manual_seed(0)
    return BASELINES[name].make(Detection(score_threshold=0.0, **changed), "tiny").eval()


def synthetic_spectrogram(frames=512, boxes=((300.0, 40.0, 380.0, 60.0), (401.0, 10.0, 421.0, 90.0))):
    """Create faint noise with bright boxes. → (1, F, T), [(n, 4)]"""
    spec = 0.1 * torch.randn(1, 128, frames, generator=torch.Generator().manual_seed(0))
    ground_truth = torch.tensor(boxes).reshape(-1, 4)
    for start, low, end, high in ground_truth.int().tolist():
        spec[0, low:high, start:end] += 3
    return spec, [ground_truth]


# Postprocessing of boxes


def test_no_boxes_stay_no_boxes():
    detections = best_boxes(torch.zeros(0, 4), torch.zeros(0), (512, 128), Detection())
    assert detections.boxes.shape == (0, 4) and detections.scores.shape == (0,)


def test_boxes_are_clipped_sorted_and_without_duplicates_low_scores_or_empty_ones():
    boxes = torch.tensor(
        [
            [500.0, 10, 530, 20],  # beyond the end
            [10, 10, 30, 30],
            [11, 10, 31, 30],  # a duplicate
            [90, 10, 95, 30],  # low score
            [520, 10, 540, 30],  # outside
        ]
    )
    detections = best_boxes(boxes, torch.tensor([0.6, 0.8, 0.9, 0.01, 0.7]), (512, 128), Detection())
    assert detections.boxes.tolist() == [[11, 10, 31, 30], [500, 10, 512, 20]]
    assert detections.scores.tolist() == pytest.approx([0.9, 0.6])
    assert len(best_boxes(boxes, torch.ones(5), (512, 128), Detection(max_detections=1)).boxes) == 1


def test_outputs_are_float32_under_autocast():
    part = Float32Output(nn.Linear(4, 4))
    with torch.autocast("cpu", torch.bfloat16):
        assert part.part(torch.ones(1, 4)).dtype == torch.bfloat16
        assert part(torch.ones(1, 4)).dtype == torch.float32


def test_the_error_for_a_missing_library_has_the_install_command():
    with pytest.raises(MissingExtraError, match=r'YOLO26.*pip install "mast-bioacoustics\[yolo\]"'):
        optional("ultralytics_not_installed", yolo.PURPOSE, yolo.EXTRA)


# Trainable detectors


def test_a_chunk_without_boxes_is_trained_as_background(learner):
    spec, _ = synthetic_spectrogram()
    losses = random_baseline(learner).train().losses(spec.repeat(2, 1, 1), [torch.zeros(0, 4)] * 2)
    total = torch.stack([*losses.values()]).sum()
    assert 0 < total < math.inf
    total.backward()


def test_losses_are_those_of_float32_under_autocast_and_in_evaluation(learner):
    spec, boxes = synthetic_spectrogram()
    network = random_baseline(learner)
    torch.manual_seed(0)
    with torch.no_grad():
        full = network.losses(spec, boxes)
        with torch.autocast("cpu", torch.bfloat16):
            torch.manual_seed(0)
            mixed = network.losses(spec, boxes)
    for name, value in full.items():
        assert mixed[name].dtype == torch.float32
        assert mixed[name].item() == pytest.approx(value.item(), rel=0.1, abs=0.02), name


def test_boxes_are_inside_the_spectrogram_and_not_rounded_to_bf16(learner):
    spec, _ = synthetic_spectrogram()
    network = random_baseline(learner, nms_iou_threshold=0.9)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        for item in network.parameters():
            if item.ndim == 1:  # some are initialised with the same round number everywhere
                item.add_(0.1 * torch.rand(item.shape, generator=torch.Generator().manual_seed(0)))
        detections = network.predict(spec)[0]
    assert detections.boxes.dtype == detections.scores.dtype == torch.float32
    assert (detections.boxes >= 0).all() and (detections.boxes <= torch.tensor([512.0, 128, 512, 128])).all()
    assert (detections.scores.diff() <= 0).all() and 0 < len(detections.boxes) <= 200
    inside = detections.boxes[:, 0::2][(detections.boxes[:, 0::2] > 256) & (detections.boxes[:, 0::2] < 512)]
    assert (inside % 2 != 0).any()


@pytest.mark.slow
def test_the_loss_of_a_detector_falls_in_training(learner):
    spec, boxes = synthetic_spectrogram(
        frames=128, boxes=((10.0, 40.0, 60.0, 70.0), (81.0, 10.0, 111.0, 90.0))
    )
    network = random_baseline(learner).train()
    optimiser = torch.optim.AdamW(network.parameters(), lr=1e-3)
    history = []
    for step in range(15):
        torch.manual_seed(step)
        with torch.autocast("cpu", torch.bfloat16):
            loss = torch.stack([*network.losses(spec.repeat(2, 1, 1), boxes * 2).values()]).sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        history.append(loss.item())
    assert np.mean(history[-3:]) < 0.9 * np.mean(history[:3])


def test_every_part_of_a_detector_has_gradients(learner):
    spec, boxes = synthetic_spectrogram()
    network = random_baseline(learner).train()
    torch.stack([*network.losses(spec.repeat(2, 1, 1), boxes * 2).values()]).sum().backward()
    assert all(item.grad is not None for item in network.parameters())
    assert not any("Frozen" in type(part).__name__ for part in network.modules())


# The training task


def test_a_baseline_is_trained_on_exactly_the_chunks_of_mast(study_file):
    study = study_with(study_file, "augmentation.probability=1")
    ours = DetectorTask(study, open_store(study))
    theirs = BaselineTask("fcos", study, open_store(study))
    rows = [*with_boxes(ours, 3), 0]
    spec, boxes = theirs.prepare_batch(batch_of(theirs, rows), 7, CPU)
    assert torch.equal(spec, ours.prepare_batch(batch_of(ours, rows), 7, CPU)[0])
    assert [len(item) for item in boxes[1:3]] == [len(item) for item in boxes][1:3]
    assert len(theirs.training_set.examples) == len(ours.training_set.examples) and len(
        theirs.validation_set
    ) == len(ours.validation_set)


def test_all_parameters_of_a_baseline_have_its_factor_of_the_learning_rate(study_file):
    study = study_with(study_file)
    for name, rate in (("fcos", 1.0), ("detr", 0.1)):
        if name in LIBRARY:
            pytest.importorskip(LIBRARY[name])
        task = BaselineTask(name, study, open_store(study))
        (group,) = task.param_groups()
        assert group.lr_scale == rate
        assert sorted(map(id, group.parameters)) == sorted(map(id, task.module.parameters()))


def test_a_yolo_gets_the_training_progress_and_moves_weight_to_its_second_head(study_file):
    pytest.importorskip("ultralytics")
    study = study_with(study_file, "train.epochs=4")
    task = BaselineTask("yolo", study, open_store(study))
    task.begin_epoch(2)
    assert task.module.detector.progress == 0.5
    spec, boxes = synthetic_spectrogram()
    network, losses = random_baseline("yolo"), {}
    for network.progress in (0.0, 1.0):
        losses[network.progress] = network.losses(spec, boxes)["classification"].item()
    assert losses[0.0] != losses[1.0]


# Runs and evaluations


@pytest.fixture(scope="module")
def trained(study_file, tmp_path_factory):
    """Function that trains each baseline once and returns its run."""
    runs: dict[str, TrainingRun] = {}

    def run_of(name: str) -> TrainingRun:
        if name not in runs:
            run = TrainingRun(tmp_path_factory.mktemp(name))
            assert train_baseline(name, study_with(study_file), run, "cpu") == "finished"
            runs[name] = run
        return runs[name]

    return run_of


@pytest.mark.parametrize("name", ["energy", pytest.param("fcos", marks=pytest.mark.slow)])
def test_a_run_saves_a_model_that_is_evaluated_like_mast(name, study_file, trained, tmp_path):
    run, study = trained(name), study_with(study_file)
    model = json.loads((run.model / "model.json").read_text())
    assert model["architecture"] == {"baseline": name, "size": "tiny"}
    assert {"score", "nms_iou_threshold"} == model["thresholds"].keys() and "threshold" in model["results"]
    assert name == "energy" or {"loss", "detection", "gradient", "lr"} <= run.read()[0].keys()
    result = evaluate_baseline(study, str(run.model), str(tmp_path), "cpu", resamples=5)
    assert result.results.threshold == model["thresholds"]["score"]
    assert result.results.threshold_source == "the threshold the model was saved with"
    for split in ("test", SHIFTED):
        metrics = metrics_on(tmp_path, split)
        assert metrics["recordings"] > 0 and {"max_f1", "f1", "average_precision_coco"} <= metrics.keys()
    assert (tmp_path / "report.html").exists()


def test_a_baseline_is_trained_only_on_the_given_chunks(study_file):
    study = study_with(study_file)
    store = open_store(study)
    chunks = detection_dataset(study, store, "train").chunks
    rows = np.array([0, len(chunks) - 1])
    subset = FixedChunkDataset(chunks.locations(0, rows), chunks.boxes(rows))
    examples = BaselineTask("fcos", study, store, training_data=TrainingData(subset)).training_set.examples
    assert len(examples) == 2 < len(chunks)
    assert np.array_equal(examples.locations(0, np.arange(2)), chunks.locations(0, rows))


def test_a_finished_run_does_nothing_and_another_baseline_is_refused_in_its_folder(study_file, trained):
    run = trained("energy")
    assert train_baseline("energy", study_with(study_file), run, "cpu") == "finished"
    with pytest.raises(Exception, match="baseline was energy, is now fcos"):
        train_baseline("fcos", study_with(study_file), run, "cpu")


def test_a_loaded_baseline_predicts_like_the_saved_one(learner, study_file, tmp_path):
    study = study_with(study_file, "detection.score_threshold=0")
    task = BaselineTask(learner, study, open_store(study))
    task.module.eval()
    task.module.detector.to(memory_format=torch.contiguous_format)  # as after loading; results depend on it
    task.save(task.module, TrainingRun(tmp_path))
    loaded = load_baseline(str(tmp_path / "model"), study.detection, task.store)
    locations = task.validation_set.locations(0, np.arange(3))
    progress: list[tuple[int, int]] = []
    expected, predictions = (
        list(predict_chunks(detector, task.store, locations, lambda *done: progress.append(done)))
        for detector in (
            BaselineDetector(task.module.detector, task.module.frontend, "cpu"),
            BaselineDetector(loaded.network, loaded.frontend, "cpu"),
        )
    )
    for item, other in zip(expected, predictions, strict=True):
        assert torch.equal(item.boxes, other.boxes) and torch.equal(item.scores, other.scores)
    assert progress[-1] == (3, 3) and sum(len(item.boxes) for item in expected) > 0


def test_a_stopped_run_resumes_to_identical_weights(study_file, trained, tmp_path):
    study, run, complete = study_with(study_file), TrainingRun(tmp_path), trained("fcos")
    steps = [line["step"] for line in complete.read() if "loss" in line]
    assert train_baseline("fcos", study, run, "cpu", stop_at(steps[0])) == "stopped"
    assert train_baseline("fcos", study, run, "cpu") == "finished"
    weights, expected = ((item.model / "weights.safetensors").read_bytes() for item in (run, complete))
    assert weights == expected


def test_a_model_that_is_not_a_baseline_is_refused_and_a_baseline_starts_from_random_weights(
    study_file, tmp_path
):
    study = study_with(study_file)
    mast = random_detector(study_file, tmp_path / "model")
    with pytest.raises(ModelError, match="is not a baseline"):
        load_baseline(mast, study.detection, open_store(study))
    with pytest.raises(ConfigError, match="baselines start from random weights"):
        train_baseline(
            "fcos", study_with(study_file, f"train.init_from={mast}"), TrainingRun(tmp_path / "run")
        )


def test_a_baseline_can_be_trained_on_synthetic_calls_as_well(study_file):
    study = study_with(study_file, "train.synthetic_fraction=0.5")
    task = BaselineTask("fcos", study, open_store(study))
    labelled = len(task.training_set.examples) // 2
    assert task.synthetic_start == labelled
    batch = read_batch(task.store, task.training_set.examples, np.arange(labelled, 2 * labelled))
    assert sum(len(item) for item in batch.boxes) == 0
    _, boxes = task.prepare_batch(batch, 0, torch.device("cpu"))
    assert sum(len(item) for item in boxes) > 0


# Energy


def burst(start_s=1.0, end_s=1.4, hz=3000.0, level=0.1, seconds=5.12):
    """Create a tone in noise in the sample format of the store. → (1, N)"""
    time_s = np.arange(round(seconds * 16_000)) / 16_000
    tone = level * np.sin(2 * np.pi * hz * time_s) * ((time_s >= start_s) & (time_s < end_s))
    noise = 0.003 * np.random.default_rng(0).standard_normal(len(time_s))
    return np.round((tone + noise) * 32767).astype(np.int16)[None]


def energy_detector(study: Study, level_db: float, pause: int = 0) -> BaselineDetector:
    frontend = FrontEnd(
        study.chunking.model_copy(update={"chunk_s": 5.12}), study.spectrogram, read_normalisation(study)
    )
    return BaselineDetector(Energy(study.detection, level_db, pause), frontend, "cpu")


def test_there_are_no_detections_in_silence_or_stationary_noise(study_file):
    detector = energy_detector(study_with(study_file), 10.0)
    for audio in (np.zeros((1, 81_920), np.int16), burst(level=0.0)):
        assert len(detector(audio, np.array([81_920]))[0].boxes) == 0


def test_a_loud_tone_in_noise_has_a_tight_box_and_a_score_by_its_level(study_file):
    study = study_with(study_file)
    detector = energy_detector(study, 10.0)
    loud, soft = (detector(burst(level=level), np.array([81_920]))[0] for level in (0.1, 0.03))
    (start, low, end, high), tolerance = loud.boxes[0].tolist(), SMOOTHING[1]
    assert abs(start - 100) <= tolerance and abs(end - 140) <= tolerance
    (tone_bin,) = MelGrid(study.spectrogram, 512).hz_to_bins(torch.tensor([3000.0])).tolist()
    assert low <= tone_bin <= high and high - low <= 10
    assert soft.scores[0] < loud.scores[0] and 10 < loud.scores[0] * DB_PER_SCORE < 60


def test_two_notes_with_a_pause_are_two_detections_or_one(study_file):
    study, audio = study_with(study_file), burst() + burst(1.6, 2.0, 3050.0)
    separate, joined = (
        energy_detector(study, 10.0, pause)(audio, np.array([81_920]))[0] for pause in (0, 25)
    )
    assert len(separate.boxes) == 2 and len(joined.boxes) == 1
    assert (joined.boxes[0, 0], joined.boxes[0, 2]) == (
        separate.boxes[:, 0].min(),
        separate.boxes[:, 2].max(),
    )
    assert separate.scores.min() <= joined.scores[0] <= separate.scores.max(), "the level excludes the pause"
    assert len(energy_detector(study, 10.0, 10)(audio, np.array([81_920]))[0].boxes) == 2


def test_padding_beyond_the_audio_is_neither_background_nor_detected(study_file):
    detector = energy_detector(study_with(study_file), 10.0)
    audio = burst()
    valid_samples = np.array([round(1.3 * 16_000)])
    audio[:, valid_samples[0] :] = 0
    detections = detector(audio, valid_samples)[0]
    assert len(detections.boxes) == 1 and 125 <= detections.boxes[0, 2] <= 130


@given(seed=st.integers(0, 1000))
@settings(max_examples=10)
def test_regions_are_those_of_a_naive_flood_fill(seed):
    rng = np.random.default_rng(seed)
    is_loud = torch.from_numpy(rng.random((12, 30)) < 0.55)
    detections = Energy(Detection(nms_iou_threshold=1.0, score_threshold=0.0))._regions(
        torch.full((12, 30), 20.0), is_loud
    )
    assert sorted(map(tuple, detections.boxes.tolist())) == sorted(flood_fill(is_loud.numpy()))


def flood_fill(is_loud):
    """Find, cell by cell, the boxes of regions with enough cells that touch at their sides."""
    remaining, boxes = {(int(y), int(x)) for y, x in np.argwhere(is_loud)}, []
    while remaining:
        region, edge = set(), [remaining.pop()]
        while edge:
            y, x = edge.pop()
            region.add((y, x))
            near = {(y + 1, x), (y - 1, x), (y, x + 1), (y, x - 1)} & remaining
            remaining -= near
            edge += near
        ys, xs = zip(*region, strict=True)
        if len(region) >= math.prod(SMOOTHING):
            boxes.append((min(xs), min(ys), max(xs) + 1, max(ys) + 1))
    return boxes


def test_the_level_with_the_best_f1_on_validation_is_saved_with_the_model(study_file, trained):
    study = study_with(study_file)
    loaded = load_baseline(str(trained("energy").model), study.detection, open_store(study))
    saved = loaded.network.level_db.item(), loaded.network.pause.item()
    task = BaselineTask("fcos", study, open_store(study))
    f1 = {}
    for level_db, pause in product(LEVELS_DB, PAUSES):
        detector = BaselineDetector(Energy(study.detection, level_db, pause), loaded.frontend, "cpu")
        predictions = predict(detector, task.store, task.validation_set)
        threshold = choose_threshold(predictions, study.detection.score_threshold)
        f1[level_db, pause] = threshold.results.get("validation_f1", 0.0)
    assert f1[saved] == max(f1.values()) > 0
