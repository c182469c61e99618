"""Baselines: each learns by MAST's own loop, comes back as it was saved, and is measured as MAST is."""

import json
import math
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from experiments.baselines import pyramids, yolo
from experiments.baselines.energy import DB_PER_SCORE, LEVELS_DB, PAUSES, SMOOTHING, Energy
from experiments.baselines.finding import (
    BASELINES,
    BaselineFinder,
    evaluate_baseline,
    load_baseline,
)
from experiments.baselines.network import InFull, best_boxes, optional
from experiments.baselines.train import BaselineRecipe, train_baseline
from experiments.run import measured_on
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from typer.testing import CliRunner

from mast.cli import app
from mast.config import Detection, Study, load_study
from mast.datasets.examples import detection_examples
from mast.datasets.loading import FixedChunks, read_batch
from mast.datasets.preparing import read_normalisation
from mast.detection.chunks import predict_chunks
from mast.errors import ConfigError, MissingExtraError, ModelError
from mast.models.frontend import FrontEnd
from mast.recordings.store import AudioStore
from mast.spectrogram import MelGrid
from mast.storage import join
from mast.training.finetune import FinetuneRecipe
from mast.training.hearing import hear
from mast.training.lessons import Lesson
from mast.training.run import Run
from mast.training.thresholds import choose_threshold
from tests.evaluation.studies import SHIFTED, random_detector, study_under_shift
from tests.training.test_finetune import batch_of, with_boxes
from tests.training.test_loop import stop_at

CPU = torch.device("cpu")
QUICK = (
    "model.size=tiny",
    "train.epochs=2",
    "train.warmup_epochs=0",
    "train.batch=8",
    "train.picture_epochs=2",
    "train.checkpoint_minutes=0",
    "detection.max_boxes=50",  # who has learned little finds hundreds
)
LIBRARY = {"detr": "transformers", "yolo": "ultralytics"}
LEARNERS = [name for name in BASELINES if name != "energy"]


@pytest.fixture(autouse=True, scope="module")
def small():
    """Fewer regions to look into; promises about bits are for one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pyramids, "PROPOSALS", 100)
        patch.setattr(pyramids, "DRAWN", 16)
        yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def study_file(tmp_path_factory) -> Path:
    """The example with one site to learn from, and pictures of half the height: seconds, not minutes."""
    file = study_under_shift(tmp_path_factory.mktemp("study"))
    values = json.loads(file.read_text())
    values["spectrogram"] = {"bins": 64}
    values["splits"]["held_out"]["unused"] = {"paths": ["A1/*", "B1/20240510*"]}
    file.write_text(json.dumps(values))
    for verb in ("splits", "prepare"):
        assert CliRunner().invoke(app, [verb, str(file)]).exit_code == 0
    return file


@pytest.fixture(params=LEARNERS)
def learner(request) -> str:
    if request.param in LIBRARY:
        pytest.importorskip(LIBRARY[request.param])
    return request.param


def study_with(path: Path, *changes: str) -> Study:
    return load_study(path, [*QUICK, *changes])


def store_of(study: Study) -> AudioStore:
    return AudioStore(join(study.work, "audio.lance"))


def made(name: str, **changed):
    """A baseline with random weights that tells all its boxes."""
    torch.manual_seed(0)
    return BASELINES[name].make(Detection(min_score=0.0, **changed), "tiny").eval()


def picture(frames=512, boxes=((300.0, 40.0, 380.0, 60.0), (401.0, 10.0, 421.0, 90.0))):
    """Faint noise with bright boxes in it. → (1, F, T), [(n, 4)]"""
    spec = 0.1 * torch.randn(1, 128, frames, generator=torch.Generator().manual_seed(0))
    own = torch.tensor(boxes).reshape(-1, 4)
    for start, low, end, high in own.int().tolist():
        spec[0, low:high, start:end] += 3
    return spec, [own]


# Boxes as MAST reports them


def test_no_box_stays_no_box():
    found = best_boxes(torch.zeros(0, 4), torch.zeros(0), (512, 128), Detection())
    assert found.boxes.shape == (0, 4) and found.scores.shape == (0,)


def test_boxes_are_cut_to_the_grid_sorted_and_without_duplicates_faint_or_empty_ones():
    boxes = torch.tensor(
        [
            [500.0, 10, 530, 20],  # beyond the end
            [10, 10, 30, 30],
            [11, 10, 31, 30],  # again
            [90, 10, 95, 30],  # too faint
            [520, 10, 540, 30],  # outside
        ]
    )
    found = best_boxes(boxes, torch.tensor([0.6, 0.8, 0.9, 0.01, 0.7]), (512, 128), Detection())
    assert found.boxes.tolist() == [[11, 10, 31, 30], [500, 10, 512, 20]]
    assert found.scores.tolist() == pytest.approx([0.9, 0.6])
    assert len(best_boxes(boxes, torch.ones(5), (512, 128), Detection(max_boxes=1)).boxes) == 1


def test_answers_are_told_in_full_under_autocast():
    part = InFull(nn.Linear(4, 4))
    with torch.autocast("cpu", torch.bfloat16):
        assert part.part(torch.ones(1, 4)).dtype == torch.bfloat16
        assert part(torch.ones(1, 4)).dtype == torch.float32


def test_a_missing_library_is_told_with_the_line_that_brings_it():
    with pytest.raises(MissingExtraError, match=r'YOLO26.*pip install "mast-bioacoustics\[yolo\]"'):
        optional("ultralytics_of_nobody", yolo.PURPOSE, yolo.EXTRA)


# Detectors that learn


def test_a_chunk_without_boxes_is_background_to_learn_from(learner):
    spec, _ = picture()
    losses = made(learner).train().losses(spec.repeat(2, 1, 1), [torch.zeros(0, 4)] * 2)
    total = torch.stack([*losses.values()]).sum()
    assert 0 < total < math.inf
    total.backward()


def test_losses_are_those_of_float32_under_autocast_and_in_evaluation(learner):
    spec, boxes = picture()
    network = made(learner)
    torch.manual_seed(0)
    with torch.no_grad():
        full = network.losses(spec, boxes)
        with torch.autocast("cpu", torch.bfloat16):
            torch.manual_seed(0)
            mixed = network.losses(spec, boxes)
    for name, value in full.items():
        assert mixed[name].dtype == torch.float32
        assert mixed[name].item() == pytest.approx(value.item(), rel=0.1, abs=0.02), name


def test_boxes_lie_in_the_picture_and_are_not_rounded_to_what_bf16_can_tell(learner):
    spec, _ = picture()
    network = made(learner, nms_iou=0.9)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        for item in network.parameters():
            if item.ndim == 1:  # some begin with the same round number everywhere
                item.add_(0.1 * torch.rand(item.shape, generator=torch.Generator().manual_seed(0)))
        found = network.find(spec)[0]
    assert found.boxes.dtype == found.scores.dtype == torch.float32
    assert (found.boxes >= 0).all() and (found.boxes <= torch.tensor([512.0, 128, 512, 128])).all()
    assert (found.scores.diff() <= 0).all() and 0 < len(found.boxes) <= 200
    inside = found.boxes[:, 0::2][(found.boxes[:, 0::2] > 256) & (found.boxes[:, 0::2] < 512)]
    assert (inside % 2 != 0).any()


def test_the_loss_falls_as_a_detector_learns(learner):
    spec, boxes = picture(frames=128, boxes=((10.0, 40.0, 60.0, 70.0), (81.0, 10.0, 111.0, 90.0)))
    network = made(learner).train()
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


def test_every_part_of_a_detector_learns(learner):
    spec, boxes = picture()
    network = made(learner).train()
    torch.stack([*network.losses(spec.repeat(2, 1, 1), boxes * 2).values()]).sum().backward()
    assert all(item.grad is not None for item in network.parameters())
    assert not any("Frozen" in type(part).__name__ for part in network.modules())


# The recipe


def test_a_baseline_is_taught_the_very_chunks_that_mast_is(study_file):
    study = study_with(study_file, "augmentation.probability=1")
    ours = FinetuneRecipe(study, store_of(study))
    theirs = BaselineRecipe("fcos", study, store_of(study))
    chosen = [*with_boxes(ours, 3), 0]
    spec, boxes = theirs.inputs(batch_of(theirs, chosen), 7, CPU)
    assert torch.equal(spec, ours.inputs(batch_of(ours, chosen), 7, CPU)[0])
    assert [len(own) for own in boxes[1:3]] == [len(own) for own in boxes][1:3]
    assert len(theirs.sound.examples) == len(ours.sound.examples) and len(theirs.held) == len(ours.held)


def test_all_of_a_baseline_learns_at_its_share_of_the_rate(study_file):
    study = study_with(study_file)
    for name, rate in (("fcos", 1.0), ("detr", 0.1)):
        if name in LIBRARY:
            pytest.importorskip(LIBRARY[name])
        recipe = BaselineRecipe(name, study, store_of(study))
        (group,) = recipe.groups()
        assert group.multiple == rate
        assert sorted(map(id, group.parameters)) == sorted(map(id, recipe.module.parameters()))


def test_a_yolo_is_told_how_far_it_is_and_moves_weight_to_its_second_head(study_file):
    pytest.importorskip("ultralytics")
    study = study_with(study_file, "train.epochs=4")
    recipe = BaselineRecipe("yolo", study, store_of(study))
    recipe.begin_epoch(2)
    assert recipe.module.detector.learned == 0.5
    spec, boxes = picture()
    network, heads = made("yolo"), {}
    for network.learned in (0.0, 1.0):
        heads[network.learned] = network.losses(spec, boxes)["classification"].item()
    assert heads[0.0] != heads[1.0]


# Runs and evaluations


@pytest.fixture(scope="module")
def trained(study_file, tmp_path_factory):
    """A run of each baseline, made when first asked for."""
    runs: dict[str, Run] = {}

    def run_of(name: str) -> Run:
        if name not in runs:
            run = Run(tmp_path_factory.mktemp(name))
            assert train_baseline(name, study_with(study_file), run, "cpu") == "finished"
            runs[name] = run
        return runs[name]

    return run_of


@pytest.mark.parametrize("name", ["energy", "fcos"])
def test_a_run_leaves_a_model_that_is_measured_as_mast_is(name, study_file, trained, tmp_path):
    run, study = trained(name), study_with(study_file)
    model = json.loads((run.model / "model.json").read_text())
    assert model["architecture"] == {"baseline": name, "size": "tiny"}
    assert {"score", "nms_iou"} == model["thresholds"].keys() and "threshold" in model["results"]
    assert name == "energy" or {"loss", "detection", "gradient", "lr"} <= run.read()[0].keys()
    done = evaluate_baseline(study, str(run.model), str(tmp_path), "cpu", resamples=5)
    assert done.results.threshold == model["thresholds"]["score"]
    assert done.results.threshold_source == "the threshold the model was saved with"
    for split in ("test", SHIFTED):
        measured = measured_on(tmp_path, split)
        assert measured["recordings"] > 0 and {"best_f1", "f1", "ap_101_points"} <= measured.keys()
    assert (tmp_path / "report.html").exists()


def test_a_baseline_learns_from_the_chunks_that_it_is_given_alone(study_file):
    study = study_with(study_file)
    store = store_of(study)
    every = detection_examples(study, store, "train").chunks
    rows = np.array([0, len(every) - 1])
    chosen = FixedChunks(every.places(0, rows), every.boxes(rows))
    learned = BaselineRecipe("fcos", study, store, lesson=Lesson(chosen)).sound.examples
    assert len(learned) == 2 < len(every)
    assert np.array_equal(learned.places(0, np.arange(2)), every.places(0, rows))


def test_a_finished_run_is_left_alone_and_another_baseline_is_refused_there(study_file, trained):
    run = trained("energy")
    assert train_baseline("energy", study_with(study_file), run, "cpu") == "finished"
    with pytest.raises(Exception, match="baseline was energy, is now fcos"):
        train_baseline("fcos", study_with(study_file), run, "cpu")


def test_a_baseline_comes_back_as_it_was_saved(learner, study_file, tmp_path):
    study = study_with(study_file, "detection.min_score=0")
    recipe = BaselineRecipe(learner, study, store_of(study))
    recipe.module.eval()
    recipe.module.detector.to(memory_format=torch.contiguous_format)  # as it comes back; bits depend on it
    recipe.save(recipe.module, Run(tmp_path))
    again = load_baseline(str(tmp_path / "model"), study.detection, recipe.store)
    places = recipe.held.places(0, np.arange(3))
    told: list[tuple[int, int]] = []
    found, same = (
        list(predict_chunks(finder, recipe.store, places, lambda *now: told.append(now)))
        for finder in (
            BaselineFinder(recipe.module.detector, recipe.module.frontend, "cpu"),
            BaselineFinder(again.network, again.frontend, "cpu"),
        )
    )
    for one, other in zip(found, same, strict=True):
        assert torch.equal(one.boxes, other.boxes) and torch.equal(one.scores, other.scores)
    assert told[-1] == (3, 3) and sum(len(item.boxes) for item in found) > 0


def test_a_run_told_to_stop_goes_on_to_the_very_same_weights(study_file, trained, tmp_path):
    study, run, whole = study_with(study_file), Run(tmp_path), trained("fcos")
    steps = [line["step"] for line in whole.read() if "loss" in line]
    assert train_baseline("fcos", study, run, "cpu", stop_at(steps[0])) == "stopped"
    assert train_baseline("fcos", study, run, "cpu") == "finished"
    ours, theirs = ((item.model / "weights.safetensors").read_bytes() for item in (run, whole))
    assert ours == theirs


def test_what_is_no_baseline_is_refused_and_a_baseline_starts_from_nothing(study_file, tmp_path):
    study = study_with(study_file)
    mast = random_detector(study_file, tmp_path / "model")
    with pytest.raises(ModelError, match="is no baseline"):
        load_baseline(mast, study.detection, store_of(study))
    with pytest.raises(ConfigError, match="baselines start from random weights"):
        train_baseline("fcos", study_with(study_file, f"train.start={mast}"), Run(tmp_path / "run"))


def test_a_baseline_may_learn_from_made_up_calls_as_well(study_file):
    study = study_with(study_file, "train.rehearsed_share=0.5")
    recipe = BaselineRecipe("fcos", study, store_of(study))
    labelled = len(recipe.sound.examples) // 2
    assert recipe.made_up_from == labelled
    batch = read_batch(recipe.store, recipe.sound.examples, np.arange(labelled, 2 * labelled))
    assert sum(len(own) for own in batch.boxes) == 0
    _, boxes = recipe.inputs(batch, 0, torch.device("cpu"))
    assert sum(len(own) for own in boxes) > 0


# Energy


def burst(start_s=1.0, end_s=1.4, hz=3000.0, level=0.1, seconds=5.12):
    """A tone in noise as the store keeps sound. → (1, N)"""
    time_s = np.arange(round(seconds * 16_000)) / 16_000
    tone = level * np.sin(2 * np.pi * hz * time_s) * ((time_s >= start_s) & (time_s < end_s))
    noise = 0.003 * np.random.default_rng(0).standard_normal(len(time_s))
    return np.round((tone + noise) * 32767).astype(np.int16)[None]


def finder_with(study: Study, level_db: float, pause: int = 0) -> BaselineFinder:
    frontend = FrontEnd(
        study.chunking.model_copy(update={"chunk_s": 5.12}), study.spectrogram, read_normalisation(study)
    )
    return BaselineFinder(Energy(study.detection, level_db, pause), frontend, "cpu")


def test_nothing_stands_out_of_silence_or_of_even_noise(study_file):
    finder = finder_with(study_with(study_file), 10.0)
    for sound in (np.zeros((1, 81_920), np.int16), burst(level=0.0)):
        assert len(finder(sound, np.array([81_920]))[0].boxes) == 0


def test_a_loud_tone_in_noise_gets_a_tight_box_and_scores_by_its_level(study_file):
    study = study_with(study_file)
    finder = finder_with(study, 10.0)
    loud, soft = (finder(burst(level=level), np.array([81_920]))[0] for level in (0.1, 0.03))
    (start, low, end, high), slack = loud.boxes[0].tolist(), SMOOTHING[1]
    assert abs(start - 100) <= slack and abs(end - 140) <= slack
    (place,) = MelGrid(study.spectrogram, 512).bins_at(torch.tensor([3000.0])).tolist()
    assert low <= place <= high and high - low <= 10
    assert soft.scores[0] < loud.scores[0] and 10 < loud.scores[0] * DB_PER_SCORE < 60


def test_two_notes_with_a_pause_between_are_two_sounds_or_one(study_file):
    study, sound = study_with(study_file), burst() + burst(1.6, 2.0, 3050.0)
    apart, joined = (finder_with(study, 10.0, pause)(sound, np.array([81_920]))[0] for pause in (0, 25))
    assert len(apart.boxes) == 2 and len(joined.boxes) == 1
    assert (joined.boxes[0, 0], joined.boxes[0, 2]) == (apart.boxes[:, 0].min(), apart.boxes[:, 2].max())
    assert apart.scores.min() <= joined.scores[0] <= apart.scores.max(), "a pause is not part of the level"
    assert len(finder_with(study, 10.0, 10)(sound, np.array([81_920]))[0].boxes) == 2


def test_what_lies_beyond_the_sound_is_neither_background_nor_found(study_file):
    finder = finder_with(study_with(study_file), 10.0)
    sound = burst()
    filled = np.array([round(1.3 * 16_000)])
    sound[:, filled[0] :] = 0
    found = finder(sound, filled)[0]
    assert len(found.boxes) == 1 and 125 <= found.boxes[0, 2] <= 130


@given(seed=st.integers(0, 1000))
@settings(max_examples=10)
def test_regions_are_those_of_a_naive_flood_fill(seed):
    rng = np.random.default_rng(seed)
    is_loud = torch.from_numpy(rng.random((12, 30)) < 0.55)
    found = Energy(Detection(nms_iou=1.0, min_score=0.0))._regions(torch.full((12, 30), 20.0), is_loud)
    assert sorted(map(tuple, found.boxes.tolist())) == sorted(flooded(is_loud.numpy()))


def flooded(is_loud):
    """Boxes of regions of enough cells that touch at their sides, cell by cell."""
    left, boxes = {(int(y), int(x)) for y, x in np.argwhere(is_loud)}, []
    while left:
        region, edge = set(), [left.pop()]
        while edge:
            y, x = edge.pop()
            region.add((y, x))
            near = {(y + 1, x), (y - 1, x), (y, x + 1), (y, x - 1)} & left
            left -= near
            edge += near
        ys, xs = zip(*region, strict=True)
        if len(region) >= math.prod(SMOOTHING):
            boxes.append((min(xs), min(ys), max(xs) + 1, max(ys) + 1))
    return boxes


def test_the_level_that_serves_validation_best_is_kept_with_the_model(study_file, trained):
    study = study_with(study_file)
    loaded = load_baseline(str(trained("energy").model), study.detection, store_of(study))
    kept = loaded.network.level_db.item(), loaded.network.pause.item()
    recipe = BaselineRecipe("fcos", study, store_of(study))
    f1 = {}
    for level_db, pause in product(LEVELS_DB, PAUSES):
        finder = BaselineFinder(Energy(study.detection, level_db, pause), loaded.frontend, "cpu")
        chosen = choose_threshold(hear(finder, recipe.store, recipe.held), study.detection.min_score)
        f1[level_db, pause] = chosen.results.get("validation_f1", 0.0)
    assert f1[kept] == max(f1.values()) > 0
