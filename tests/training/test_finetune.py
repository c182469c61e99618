"""Training a detector: it learns, from any start, the same in portions, in company and after a stop."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from typer.testing import CliRunner

from mast.cli import app
from mast.config import Augmentation, Study, load_study
from mast.datasets.loading import Batch, FixedChunks
from mast.detection.chunks import BoxFinder, predict_chunks
from mast.errors import ModelError, TrainingError
from mast.models.checkpoint import Description, load_model, save_model
from mast.models.encoder import SIZES, Encoder, EncoderShape
from mast.models.loading import load_detector
from mast.normalisation import Normalisation
from mast.recordings.store import AudioStore
from mast.storage import join
from mast.training.devices import start_fabric
from mast.training.finetune import FinetuneRecipe, learned_under, train_study, varied
from mast.training.finetune import generator as randomness
from mast.training.lessons import EXPERTS, Lesson
from mast.training.loop import OnProgress, Sound, train
from mast.training.run import Run
from mast.training.starting import WIDTHS
from tests.training.test_loop import stop_at

SMALL = EncoderShape(width=32, heads=2, depth=3)
QUICK = (
    "model.adapter=none",
    "model.levels=2",
    "train.epochs=2",
    "train.warmup_epochs=1",
    "train.batch=32",
    "train.lr=2e-3",
    "train.precision=fp32",
    "train.checkpoint_minutes=0",
    "train.picture_epochs=2",
)
CPU = torch.device("cpu")
SMALL_MAST = """
from mast.cli import main
from mast.models.encoder import SIZES, EncoderShape
from mast.training.starting import WIDTHS

SIZES["tiny"] = EncoderShape(width=32, heads=2, depth=3)
WIDTHS["tiny"] = {"channels": 64, "head_width": 32}
main()
"""
"""`mast` whose tiny model is the one of these tests."""


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SIZES, "tiny", SMALL)
    monkeypatch.setitem(WIDTHS, "tiny", {"channels": 64, "head_width": 32})


def study_with(path: Path, *changes: str) -> Study:
    return load_study(path, [*QUICK, *changes])


def recipe_of(study: Study, lesson: Lesson = EXPERTS) -> FinetuneRecipe:
    return FinetuneRecipe(study, AudioStore(join(study.work, "audio.lance")), lesson=lesson)


def batch_of(recipe: FinetuneRecipe, chosen: list[int]) -> Batch:
    numbers, samples = np.array(chosen), recipe.store.layout.step_samples
    places = recipe.sound.examples.places(0, numbers)
    return Batch(
        0,
        torch.from_numpy(numbers),
        torch.from_numpy(recipe.store.read(places, samples)),
        torch.from_numpy(recipe.store.filled(places, samples)),
        recipe.sound.examples.boxes(numbers),
        recipe.sound.examples.weights(numbers),
    )


def with_boxes(recipe: FinetuneRecipe, count: int) -> list[int]:
    every = recipe.sound.examples.boxes(np.arange(len(recipe.sound.examples)))
    return [number for number, own in enumerate(every) if len(own)][:count]


def pretrained(
    study: Study, folder: Path, shape: EncoderShape = SMALL, normalisation: Normalisation | None = None
) -> str:
    """An encoder at rest, of chunks twice as long."""
    torch.manual_seed(7)
    encoder = Encoder(shape, 512)
    recipe = recipe_of(study)
    description = Description(
        kind="encoder",
        architecture={"encoder": {name: getattr(shape, name) for name in shape.__slots__}},
        spectrogram=study.spectrogram,
        chunking=study.chunking,
        normalisation=normalisation or recipe.module.frontend.normalisation,
        licence="none",
        source="made up",
    )
    save_model(
        str(folder), description, {f"encoder.{name}": item for name, item in encoder.state_dict().items()}
    )
    return str(folder)


def learn(study: Study, run: Run, on_progress: OnProgress = lambda progress: None) -> str:
    return train_study(study, run, "cpu", on_progress)


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Bits are promised for a fixed number of threads; here it is one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def trained(study_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = Run(tmp_path_factory.mktemp("trained"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SIZES, "tiny", SMALL)
        patch.setitem(WIDTHS, "tiny", {"channels": 64, "head_width": 32})
        assert learn(study_with(study_file), run) == "finished"
    return run


def test_a_run_leaves_a_detector_with_its_threshold_results_losses_and_pictures(trained: Run) -> None:
    model = json.loads((trained.model / "model.json").read_text())
    assert model["kind"] == "detector"
    assert model["thresholds"]["nms_iou"] == 0.5 and 0 < model["thresholds"]["score"] <= 1
    assert {"validation_loss", "threshold"} <= model["results"].keys()
    line = next(line for line in trained.read() if "loss" in line)
    assert {"loss", "detection", "classification", "giou", "l1", "centerness", "contrastive"} <= line.keys()
    assert line["loss"] == pytest.approx(line["detection"] + 0.5 * line["contrastive"], rel=1e-4)
    assert (trained.folder / "predictions_0002.png").exists()
    assert load_detector(str(trained.model)).description.identity


def test_a_finished_run_is_left_alone(study_file: Path, trained: Run) -> None:
    assert learn(study_with(study_file), trained) == "finished"


def test_a_run_told_to_stop_goes_on_to_the_very_same_weights(
    study_file: Path, trained: Run, tmp_path: Path
) -> None:
    study, run = study_with(study_file), Run(tmp_path)
    steps = [line["step"] for line in trained.read() if "loss" in line]
    assert learn(study, run, stop_at(steps[0])) == "stopped"
    assert learn(study, run) == "finished"
    assert (run.model / "weights.safetensors").read_bytes() == (
        trained.model / "weights.safetensors"
    ).read_bytes()
    again, whole = ([line["loss"] for line in item.read() if "loss" in line] for item in (run, trained))
    assert again == whole


def test_two_processes_share_a_batch_and_one_of_them_draws_and_saves(
    study_file: Path, tmp_path: Path
) -> None:
    sets = [*QUICK, "train.epochs=1", "train.batch=8", "train.picture_epochs=1", "train.warmup_epochs=0"]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    mast = [sys.executable, "-c", SMALL_MAST]
    command = [*torchrun, "--no-python", *mast, "train", str(study_file), "--out", str(tmp_path)]
    for item in sets:
        command += ["--set", item]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("Finished.") == done.stdout.count("Score threshold") == 1
    assert done.stderr.count("Starting from random weights.") == 1
    folder = tmp_path / "train" / "main"
    assert load_detector(str(folder / "model")).description.kind == "detector"
    assert (folder / "predictions_0001.png").exists()
    assert all(np.isfinite(line["loss"]) for line in Run(folder).read() if "loss" in line)


def test_a_detector_learns_a_few_chunks_by_heart(study_file: Path, tmp_path: Path) -> None:
    study = study_with(
        study_file,
        "train.epochs=60",
        "train.ema_decay=0",
        "train.batch=4",
        "train.lr=4e-3",
        "train.picture_epochs=100",
        "train.checkpoint_minutes=60",
        "augmentation.probability=0",
    )
    recipe, run = recipe_of(study), Run(tmp_path)
    chosen = np.array(with_boxes(recipe, 4))
    few = FixedChunks(recipe.sound.examples.places(0, chosen), recipe.sound.examples.boxes(chosen))
    recipe.held = few
    train(recipe, Sound(recipe.store, few), study.train, run, start_fabric("fp32", run, "cpu"))
    results = json.loads((run.model / "model.json").read_text())["results"]
    assert results["validation_f1"] == 1.0
    assert results["threshold"] == "nearly the highest F1 on validation"


def test_an_example_is_varied_the_same_in_any_company_and_anew_at_each_step(study_file: Path) -> None:
    recipe = recipe_of(study_with(study_file, "augmentation.probability=1"))
    first, second = with_boxes(recipe, 2)
    together = recipe.inputs(batch_of(recipe, [first, second]), 5, CPU)
    alone = recipe.inputs(batch_of(recipe, [second]), 5, CPU)
    later = recipe.inputs(batch_of(recipe, [second]), 6, CPU)
    assert torch.equal(together[0][1], alone[0][0])
    assert torch.equal(together[2].negatives[1], alone[2].negatives[0])
    assert not torch.equal(alone[0], later[0])


def test_no_box_is_moved_to_where_the_picture_is_blank(study_file: Path) -> None:
    """Of a chunk whose sound ends half-way `band-median` shows nothing beyond; others show what was moved there."""
    last_frames = {}
    others = ("max_shift_bins", "max_warp", "max_mask_frames", "max_mask_bins", "noise_std", "max_gain_db")
    shifts = ("probability=1", "max_shift_frames=25", *(f"{name}=0" for name in others))
    for kind in ("band-median", "dataset"):
        changes = [f"augmentation.{item}" for item in shifts]
        recipe = recipe_of(study_with(study_file, f"normalisation={kind}", *changes))
        batch = batch_of(recipe, with_boxes(recipe, 4))
        half = batch.sound.shape[1] // 2
        own = torch.tensor([[90.0, 20.0, 120.0, 40.0]])
        short = replace(batch, filled=torch.full((4,), half), boxes=(own,) * 4)
        ends = [recipe.inputs(short, step, CPU)[1].boxes[:, 2] for step in range(8)]
        last_frames[kind] = float(torch.cat(ends).max())
    assert half / 160 == 128
    assert last_frames["band-median"] == 128 < last_frames["dataset"]


def test_portions_add_up_to_the_whole_batch(study_file: Path) -> None:
    recipe = recipe_of(study_with(study_file))
    recipe.module.eval()  # BatchNorm sees portions one by one
    inputs = recipe.inputs(batch_of(recipe, [*with_boxes(recipe, 3), 0]), 0, CPU)
    whole = recipe.module(*inputs)
    portions = [(0, 1), (1, 4)]
    parts = [recipe.module(*(item[first:last] for item in inputs)) for first, last in portions]
    for name, value in whole.items():
        shares = [
            (last - first) / 4 * part[name].item()
            for (first, last), part in zip(portions, parts, strict=True)
        ]
        assert sum(shares) == pytest.approx(value.item(), rel=1e-4), name


def test_the_recipe_looks_where_the_head_does(study_file: Path) -> None:
    for adapter in ("none", "anisotropic", "upsampling"):
        recipe = recipe_of(study_with(study_file, f"model.adapter={adapter}", "model.levels=4"))
        with torch.no_grad():
            seen = recipe.module.detector(torch.zeros(1, 128, 256)).locations
        expected = recipe.locations(CPU)
        assert torch.equal(seen.centres, expected.centres) and seen.level_sizes == expected.level_sizes


def test_chunks_without_boxes_are_background_to_learn_from(study_file: Path) -> None:
    recipe = recipe_of(study_with(study_file))
    every = recipe.sound.examples.boxes(np.arange(len(recipe.sound.examples)))
    empty = [number for number, own in enumerate(every) if not len(own)][:2]
    losses = recipe.module(*recipe.inputs(batch_of(recipe, empty), 0, CPU))
    assert losses["classification"] > 0 and losses["giou"] == 0 and losses["contrastive"] == 0
    losses["loss"].backward()


def test_weights_scale_what_examples_teach(study_file: Path) -> None:
    recipe = recipe_of(study_with(study_file, "train.contrastive_weight=0"))
    recipe.module.eval()
    spec, targets, regions, weights, divisors = recipe.inputs(batch_of(recipe, with_boxes(recipe, 2)), 0, CPU)
    whole = recipe.module(spec, targets, regions, weights, divisors)
    half = recipe.module(spec, targets, regions, weights / 2, divisors)
    assert "contrastive" not in whole
    assert half["loss"].item() == pytest.approx(whole["loss"].item() / 2, rel=1e-5)


def test_mixup_takes_the_next_example_of_the_batch() -> None:
    levels = torch.stack([torch.full((8, 64), -10.0), torch.full((8, 64), 0.0)])
    boxes = [torch.tensor([[1.0, 1, 20, 6]]), torch.tensor([[30.0, 1, 60, 6]])]
    quiet = dict.fromkeys(
        ("max_shift_frames", "max_shift_bins", "max_warp", "max_mask_frames", "max_mask_bins"), 0
    )
    settings = Augmentation(probability=1, mixup=True, max_gain_db=0, noise_std=0, **quiet)
    rngs = [randomness(0, 0, number) for number in range(2)]
    spec, mixed = varied(levels, boxes, settings, rngs, torch.zeros(0, 8, 64))
    assert [len(own) for own in mixed] == [2, 2]
    assert spec[0].mean() > -10


def test_a_random_encoder_learns_from_the_first_epoch_at_full_rate(study_file: Path) -> None:
    recipe = recipe_of(study_with(study_file))
    recipe.begin_epoch(0)
    assert all(item.requires_grad for item in recipe.module.parameters())
    assert {group.multiple for group in recipe.groups()} == {1.0}
    grouped = sorted(id(item) for group in recipe.groups() for item in group.parameters)
    assert grouped == sorted(map(id, recipe.module.parameters()))


def test_a_pretrained_encoder_is_taken_over_and_rests_until_its_turn(
    study_file: Path, tmp_path: Path
) -> None:
    start = pretrained(study_with(study_file), tmp_path / "start")
    study = study_with(
        study_file, f"train.start={start}", "train.unfreezing={first_epoch: 1, every_epochs: 1, blocks: 2}"
    )
    recipe = recipe_of(study)
    torch.manual_seed(7)
    assert torch.equal(
        recipe.encoder.blocks[0].attn.qkv.weight, Encoder(SMALL, 512).blocks[0].attn.qkv.weight
    )
    assert recipe.description.parent is not None
    assert [group.multiple for group in recipe.groups()] == [1.0, 1.0, 0.005, 0.1]
    for epoch, resting in ((0, 4), (1, 2), (2, 0)):
        recipe.begin_epoch(epoch)
        recipe.module.train()
        assert len(recipe.module.frozen) == resting
        assert not any(part.training for part in recipe.module.frozen)
        assert recipe.module.detector.adapter.training
    before = {name: value.clone() for name, value in recipe.module.detector.state_dict().items()}
    run = Run(tmp_path / "run")
    learn(study.model_copy(update={"train": study.train.model_copy(update={"epochs": 1})}), run)
    after = load_detector(str(run.model)).network.state_dict()
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert not any(name.startswith(("encoder.blocks", "encoder.patch", "encoder.cls")) for name in moved)
    assert any(name.startswith("encoder.norm") for name in moved) and any(
        name.startswith("head") for name in moved
    )


def test_an_encoder_that_never_opens_stays_as_it_was(study_file: Path, tmp_path: Path) -> None:
    start = pretrained(study_with(study_file), tmp_path / "start")
    study = study_with(study_file, f"train.start={start}", "train.unfreezing.blocks=0", "train.epochs=1")
    run = Run(tmp_path / "run")
    learn(study, run)
    before, after = (load_model(place)[1] for place in (start, str(run.model)))
    moved = [
        name
        for name in before
        if not name.endswith("pos_embed") and not torch.equal(before[name], after[name])
    ]
    assert not moved


def test_a_detector_goes_on_from_another_and_not_from_one_that_is_built_otherwise(
    study_file: Path, trained: Run
) -> None:
    study = study_with(study_file, f"train.start={trained.model}")
    kept = load_detector(str(trained.model)).network.state_dict()
    for name, value in recipe_of(study).module.detector.state_dict().items():
        assert torch.equal(value, kept[name]), name
    with pytest.raises(ModelError, match="levels 2, not 3. Set model.adapter and model.levels"):
        recipe_of(study_with(study_file, f"train.start={trained.model}", "model.levels=3"))
    with pytest.raises(ModelError, match="Set model.size"):
        recipe_of(study_with(study_file, f"train.start={trained.model}", "model.size=small"))


def test_a_detector_that_hears_through_another_normalisation_is_refused_and_an_encoder_is_not(
    study_file: Path, tmp_path: Path
) -> None:
    recipe = recipe_of(study_with(study_file))
    detector = str(tmp_path / "detector")
    save_model(detector, recipe.description, recipe.module.detector.state_dict())
    other = "normalisation=band-median"
    with pytest.raises(
        ModelError, match="normalisation dataset; .* normalisation band-median. Set normalisation=dataset"
    ):
        recipe_of(study_with(study_file, f"train.start={detector}", other))
    encoder = pretrained(study_with(study_file), tmp_path / "encoder")
    started = recipe_of(study_with(study_file, f"train.start={encoder}", other))
    assert started.module.frontend.normalisation.kind == "band-median"


def test_an_encoder_with_positions_and_numbers_of_its_own_keeps_them(
    study_file: Path, tmp_path: Path
) -> None:
    """As Bird-MAE has: positions on a raster of 8 × 32, and other statistics than AudioMAE's."""
    bird = Normalisation("audiomae", -7.2, 4.43)
    start = pretrained(study_with(study_file), tmp_path, replace(SMALL, raster_tokens=32), bird)
    recipe = recipe_of(study_with(study_file, f"train.start={start}", "normalisation=audiomae"))
    assert recipe.description.normalisation == recipe.module.frontend.normalisation == bird
    assert cast(Any, recipe.description.architecture)["encoder"]["raster_tokens"] == 32
    tokens = recipe.encoder.pos_embed.shape[1]
    assert torch.equal(
        recipe.encoder.pos_embed, load_model(start)[1]["encoder.pos_embed"][:, :tokens]
    ) and not torch.equal(recipe.encoder.pos_embed, Encoder(SMALL, 256).pos_embed)
    measured = recipe_of(study_with(study_file, f"train.start={start}"))
    assert (
        measured.module.frontend.normalisation == recipe_of(study_with(study_file)).description.normalisation
    )


def test_a_run_is_not_taken_for_one_from_a_model_that_was_replaced(
    study_file: Path, tmp_path: Path, trained: Run
) -> None:
    start, run = tmp_path / "start", Run(tmp_path / "run")
    shutil.copytree(trained.model, start)
    study = study_with(study_file, f"train.start={start}", "train.epochs=1")
    assert learn(study, run) == learn(study, run) == "finished"
    pretrained(study_with(study_file), start)
    with pytest.raises(TrainingError, match="started_from was [0-9a-f]{16}, is now [0-9a-f]{16}. Give"):
        learn(study, run)
    shutil.rmtree(start)
    assert learn(study, run) == "finished"


@pytest.mark.parametrize("name", ["annotations.parquet", "splits.parquet"])
def test_a_finished_run_is_not_taken_for_one_of_new_labels(
    name: str, study_file: Path, trained: Run, tmp_path: Path
) -> None:
    """Written again a table is what it was; with a row less it is another."""
    study = study_with(study_file).model_copy(update={"work": str(tmp_path)})
    for path in Path(study_with(study_file).work).iterdir():
        (tmp_path / path.name).symlink_to(path)
    table, place = pq.read_table(tmp_path / name), tmp_path / name
    place.unlink()
    pq.write_table(table, place, compression="gzip")
    assert learn(study, trained) == "finished"
    pq.write_table(table.slice(1), place)
    with pytest.raises(TrainingError, match=f"{name} was .*--name"):
        learn(study, trained)


def test_rehearsal_knows_the_splits_and_no_labels(study_file: Path) -> None:
    study = study_with(study_file)
    known = learned_under(study, AudioStore(join(study.work, "audio.lance")), "rehearse")
    assert known["splits.parquet"] and "annotations.parquet" not in known


@pytest.mark.parametrize(
    ("verb", "change"),
    [
        ("rehearse", ()),
        ("train", ("train.rehearsed_share=0.5",)),
    ],
)
def test_a_run_that_hears_quiet_sound_knows_how_much_of_it_is_quiet(
    verb: str, change: tuple[str, ...], study_file: Path, tmp_path: Path
) -> None:
    def learned(*more: str) -> dict[str, Any]:
        study = study_with(study_file, *change, *more)
        return learned_under(study, AudioStore(join(study.work, "audio.lance")), verb)

    now = learned()
    Run(tmp_path).open({name: value for name, value in now.items() if name != "rehearse"})  # an older run
    Run(tmp_path).check(now)
    with pytest.raises(TrainingError, match=r"rehearse.quiet_share was 0.5, is now 0.1\. Give"):
        Run(tmp_path).check(learned("rehearse.quiet_share=0.1"))


def test_a_run_that_hears_no_quiet_sound_does_not_mind_how_much_of_it_is_quiet(study_file: Path) -> None:
    study = study_with(study_file)
    assert "rehearse" not in learned_under(study, AudioStore(join(study.work, "audio.lance")))


def test_a_study_without_validation_keeps_the_least_score(study_file: Path, tmp_path: Path) -> None:
    recipe, run = recipe_of(study_with(study_file)), Run(tmp_path)
    recipe.held = FixedChunks(np.zeros((0, 2), np.int64))
    assert recipe.validate(recipe.module, CPU) is None
    recipe.end_epoch(recipe.module, 1, run)
    recipe.save(recipe.module.eval(), run)
    model = json.loads((run.model / "model.json").read_text())
    assert model["thresholds"]["score"] == 0.05
    assert "no validation sound" in model["results"]["threshold"]


def test_what_has_learned_from_made_up_calls_is_asked_about_them_for_its_threshold(
    study_file: Path, tmp_path: Path
) -> None:
    study = study_with(study_file, "detection.min_score=0", "detection.max_boxes=5")
    for name, lesson in (("plain", EXPERTS), ("learned", Lesson(made_up_from=3))):
        recipe, run = recipe_of(study, lesson), Run(tmp_path / name)
        recipe.save(recipe.module.eval(), run)
        reason = json.loads((run.model / "model.json").read_text())["results"]["threshold"]
        assert ("made-up calls" in reason) == (name == "learned")


def test_chunks_are_asked_one_by_one_in_order(study_file: Path, trained: Run) -> None:
    study = study_with(study_file, "detection.min_score=0", "detection.max_boxes=3")
    recipe, loaded = recipe_of(study), load_detector(str(trained.model))
    places = recipe.held.places(0, np.arange(5))
    told: list[tuple[int, int]] = []
    finder = BoxFinder(loaded, study.detection, "cpu")
    every = list(predict_chunks(finder, recipe.store, places, lambda *done: told.append(done)))
    assert told[-1] == (5, 5) and len(every) == 5
    alone = next(predict_chunks(finder, recipe.store, places[4:]))
    torch.testing.assert_close(every[4].boxes, alone.boxes, atol=0.5, rtol=0.01)
    assert all(len(item.boxes) <= 3 and item.boxes.dtype == torch.float32 for item in every)
    assert list(predict_chunks(finder, recipe.store, places[:0])) == []
    with pytest.raises(ModelError, match="--device tpu: use auto, cpu or cuda"):
        BoxFinder(loaded, study.detection, "tpu")


def test_the_verb_tells_its_start_and_its_threshold(study_file: Path, tmp_path: Path, trained: Run) -> None:
    sets = [part for item in (*QUICK, "train.epochs=1") for part in ("--set", item)]
    (tmp_path / "pretrain" / "main" / "model").mkdir(parents=True)
    (tmp_path / "pretrain" / "main" / "model" / "model.json").write_text("{}")
    told = CliRunner().invoke(
        app, ["train", str(study_file), "--out", str(tmp_path), "--device", "cpu", *sets]
    )
    assert told.exit_code == 0, told.output
    assert "Starting from random weights" in told.output
    assert "There is a pretrained model: --set train.start=" in told.output
    assert "Finished. Model:" in told.output and "Score threshold 0." in told.output
