"""The public Python names: what they are, that importing them is fast, and that every documented example runs."""

import doctest
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import mast
from mast import api
from mast.cli import app
from mast.detection.detections import Detections
from mast.errors import AudioError, ConfigError, ModelError
from mast.example_data import write_example
from tests.small_models import shrink

PUBLIC = [
    "Detections",
    "Event",
    "LogMel",
    "Model",
    "Recording",
    "__version__",
    "detect",
    "evaluate",
    "load_audio",
    "load_model",
    "load_study",
    "plot_spectrogram",
    "pretrain",
    "read_annotations",
    "search",
    "train",
    "write_annotations",
]
FIRST, SECOND = "card/A1/20240510_053000.WAV", "card/A1/20240511_073000.WAV"


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    """A folder with a card, annotations, a prepared study, a detector and a detection run with embeddings."""
    folder = tmp_path_factory.mktemp("api")
    write_example(folder / "demo")
    for name in ("card", "boxes"):
        shutil.move(folder / "demo" / name, folder / name)
    with pytest.MonkeyPatch.context() as patch:
        shrink(patch)
        patch.chdir(folder)
        for command in (
            "init card --annotations boxes --noise insect --preset trial --time-zone Europe/Madrid",
            "scan study.yaml",
            "split study.yaml",
            "prepare study.yaml",
            "train study.yaml --run-name first",
            f"detect {FIRST} {SECOND} --model work/runs/train/first/model --min-score 0.001 --out events --workers 1",
            "embed events --model work/runs/train/first/model --workers 1",
        ):
            done = CliRunner().invoke(app, command.split())
            assert done.exit_code == 0, f"mast {command}\n{done.output}{done.exception}"
        shutil.copytree("work/runs/train/first/model", "model")
    return folder


@pytest.fixture
def here(desk, monkeypatch):
    shrink(monkeypatch)
    monkeypatch.chdir(desk)
    return desk


def test_the_public_names_are_these():
    assert sorted(mast.__all__) == sorted(PUBLIC)
    assert all(hasattr(mast, name) for name in mast.__all__)
    assert set(mast.__all__) <= set(dir(mast))


def test_other_names_do_not_exist():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = mast.nothing


def test_importing_mast_and_its_records_does_not_import_torch():
    program = "import mast, sys; mast.Event, mast.load_study, mast.read_annotations; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize(
    "name",
    [name for name in PUBLIC if name not in ("__version__", "Recording", "Event", "LogMel", "Detections")],
)
def test_every_public_function_has_an_example_that_runs(name, here):
    thing = getattr(mast, name)
    finder = doctest.DocTestFinder(exclude_empty=True)
    examples = [item for item in finder.find(thing, name, globs={"mast": mast}) if item.examples]
    assert examples
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for item in examples:
        assert runner.run(item).failed == 0


@pytest.mark.parametrize("name", [name for name in PUBLIC if callable(getattr(api, name, None))])
def test_every_public_function_documents_its_arguments_and_its_result(name):
    thing = getattr(mast, name)
    for part in [thing] if not isinstance(thing, type) else [thing.detect, thing.detect_many, thing.embed]:
        assert all(f"{section}:" in part.__doc__ for section in ("Args", "Returns", "Raises", "Example"))


def test_the_six_lines_of_the_docs_go_from_a_model_to_a_figure(here):
    page = (Path(__file__).parents[1] / "docs" / "reference" / "python.md").read_text("utf-8")
    program = page.split("```python\n")[1].split("```")[0]
    exec(program.replace("A2/20240510_073000.WAV", "A1/20240511_073000.WAV"), names := {})
    assert (here / "detections.png").read_bytes().startswith(b"\x89PNG")
    assert {*names["detections"].recordings} == {FIRST, SECOND}


def test_detections_are_a_sequence_with_clock_times_and_site(here):
    detections = mast.load_model("model").detect_many([FIRST, SECOND], min_score=0.001)
    assert len(detections) == len(list(detections)) > 2
    assert detections[0] == next(iter(detections)) and isinstance(detections[:2], Detections)
    assert detections[:2] == list(detections)[:2]
    table = detections.to_pandas()
    assert len(table) == len(detections) and set(table["site"]) == {"A1"}
    first = table.iloc[0]
    start = detections.recordings[first["recording_id"]].start_utc
    assert (first["start_utc"] - start).total_seconds() == pytest.approx(first["start_s"], abs=1e-6)
    assert detections.to_arrow().schema.names == list(table.columns)


def test_the_site_may_be_stated_and_then_holds(here):
    detections = mast.load_model("model").detect(FIRST, min_score=0.001, site="pond")
    assert set(detections.to_arrow()["site"].to_pylist()) == {"pond"}


def test_detections_equal_those_of_the_command(here):
    from mast.review.event_table import run_events
    from mast.runs.results import open_results

    table = run_events(open_results("events")).to_pylist()
    expected = [row for row in table if row["recording_id"].endswith("20240511_073000.WAV")]
    detections = mast.detect(SECOND, "model", min_score=0.001)
    assert [event.start_s for event in detections] == pytest.approx(
        [row["start_s"] for row in expected], abs=1e-3
    )


def test_an_unreadable_recording_is_listed_and_does_not_end_the_call(here):
    model = mast.load_model("model")
    detections = model.detect_many([FIRST, "card/B1/notes.wav", "nowhere.wav"], min_score=0.001)
    assert len(detections) and [*detections.failed] == ["card/B1/notes.wav", "nowhere.wav"]
    assert repr(detections).endswith("events in 3 recordings, 2 failed)")
    with pytest.raises(AudioError, match="nowhere.wav"):
        model.detect("nowhere.wav")


def test_an_embedding_is_a_unit_vector_or_nan(here):
    events = [mast.Event(FIRST, 1.0, 2.0, 1000.0, 4000.0), mast.Event(FIRST, 900.0, 901.0, 1000.0, 4000.0)]
    vectors = mast.load_model("model").embed(FIRST, events)
    assert np.linalg.norm(vectors[0]) == pytest.approx(1, abs=1e-2) and np.isnan(vectors[1]).all()
    with pytest.raises(ConfigError, match="both frequency limits"):
        mast.load_model("model").embed(FIRST, [mast.Event(FIRST, 1.0, 2.0)])


def test_a_model_that_does_not_exist_is_refused_before_torch_is_imported(tmp_path):
    program = (
        "import sys, mast\n"
        "try: mast.load_model('nowhere')\n"
        "except Exception as error: assert 'nowhere' in str(error), error\n"
        "else: sys.exit('no error')\n"
        "assert 'torch' not in sys.modules\n"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False, cwd=tmp_path).returncode == 0


def test_an_encoder_does_not_detect(here, monkeypatch):
    model = mast.load_model("model")
    monkeypatch.setattr(type(model.info), "kind", "encoder", raising=False)
    with pytest.raises(ModelError, match="cannot detect"):
        model.detect_many([FIRST])


def test_annotations_are_written_and_read_back(here, tmp_path):
    annotations = mast.read_annotations("boxes")
    assert not mast.write_annotations(annotations, tmp_path / "boxes.csv", "csv")
    back = mast.read_annotations(tmp_path / "boxes.csv")
    assert len(back.events) == len(annotations.events)
    with pytest.raises(ConfigError, match="use raven"):
        mast.write_annotations(annotations, tmp_path / "boxes", "word")


def test_a_recording_may_be_named_from_its_own_folder(here, monkeypatch):
    monkeypatch.chdir(here / "card" / "A1")
    detections = mast.load_model("../../model").detect("20240510_053000.WAV", min_score=0.001)
    assert len(detections) and detections.recordings["20240510_053000.WAV"].duration_s == 30.0
