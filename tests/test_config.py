"""A study is defaults < YAML < --set, and a wrong key or value is refused with the right one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mast.config import Collection, Labels, Study, dump_study, load_study
from mast.errors import ConfigError


@pytest.fixture
def study_file(tmp_path):
    def write(text: str):
        path = tmp_path / "study.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_an_empty_study_is_the_papers_defaults(study_file):
    study = load_study(study_file(""))
    assert study.chunking.sample_rate_hz == 16_000
    assert (study.chunking.chunk_s, study.chunking.hop_s, study.chunking.min_filled) == (10.24, 5.12, 0.5)
    assert (study.spectrogram.low_hz, study.spectrogram.high_hz, study.spectrogram.bins) == (20, 8000, 128)
    assert (study.spectrogram.window_s, study.spectrogram.shift_s) == (0.025, 0.010)


def test_set_beats_yaml_and_yaml_beats_the_default(study_file):
    path = study_file("spectrogram: {high_hz: 6000, bins: 64}\n")
    study = load_study(path, ["spectrogram.high_hz=4000", "labels.animal=[owl, frog]"])
    assert study.spectrogram.high_hz == 4000
    assert study.spectrogram.bins == 64
    assert study.spectrogram.low_hz == 20
    assert study.labels.animal == ("owl", "frog")


def test_set_reaches_into_lists_and_named_collections(study_file):
    path = study_file(
        "collections: {cards: {root: a}}\nannotations: [{path: boxes, format: raven}, {path: b.csv, format: csv}]\n"
    )
    study = load_study(path, ["collections.cards.time_zone=Asia/Makassar", "annotations.1.format=birdeep"])
    assert study.collections["cards"].time_zone == "Asia/Makassar"
    assert [source.format for source in study.annotations] == ["raven", "birdeep"]
    assert load_study(path, ["annotations.0={path: c.csv, format: csv}"]).annotations[0].format == "csv"


def test_relative_paths_start_at_the_study_file_and_buckets_stay_as_they_are(study_file, tmp_path):
    path = study_file("collections: {near: {root: cards}, far: {root: 's3://bucket/cards'}}\n")
    study = load_study(path)
    assert study.collections["near"].root == str(tmp_path / "cards")
    assert study.collections["far"].root == "s3://bucket/cards"
    assert study.work == str(tmp_path / "work")


@pytest.mark.parametrize("stage", ["pretrain", "rehearse", "train", "selftrain"])
def test_a_model_to_start_from_is_looked_for_beside_the_study_file(study_file, tmp_path, stage):
    path = study_file(f"{stage}: {{start: models/bird}}\n")
    assert getattr(load_study(path), stage).start == str(tmp_path / "models" / "bird")
    far = load_study(path, [f"{stage}.start=hf://owner/name"])
    assert getattr(far, stage).start == "hf://owner/name"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("spectogram: {}", "spectogram is not a setting. Did you mean spectrogram?"),
        (
            "spectrogram: {hihg_hz: 1}",
            "spectrogram.hihg_hz is not a setting. Did you mean spectrogram.high_hz?",
        ),
        ("collections: {a: {root: x, timezone: UTC}}", "Did you mean collections.a.time_zone?"),
        (
            "annotations: [{path: x, format: raven, labl: y}]",
            "annotations.0.labl is not a setting. Known here: path",
        ),
        ("spectrogram: {bins: many}", "spectrogram.bins: .*integer.*'many'"),
        ("collections: {a: {}}", "collections.a.root is missing."),
        ("collections: {a: {root: x, time_zone: Europe/Madird}}", "Did you mean Europe/Madrid?"),
        ("collections: {a: {root: x, time_zone: ''}}", "'' is not a time zone"),
        ("spectrogram: {low_hz: 9, high_hz: 5}", r"low_hz \(9\) must be below high_hz \(5\)"),
        ("spectrogram: {high_hz: 9000}", "spectrogram.high_hz .9000. is above 8000 Hz"),
        ("labels: {animal: [owl], noise: [owl]}", "'owl' stands in more than one group"),
        ("annotations: [{path: x, format: ravn}]", "annotations.0.format: .*'raven'.*'ravn'"),
        ("- a\n- b", "not a list"),
        ("a: [", "not valid YAML"),
    ],
)
def test_a_mistake_is_refused_with_its_place_and_the_remedy(study_file, text, message):
    with pytest.raises(ConfigError, match=message):
        load_study(study_file(text))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("chunking.chunk_s=10", "makes 1000 frames.* 16 at a time. Set chunking.chunk_s to 9.92 or 10.08"),
        ("chunking.chunk_s=0.1", "makes 10 frames.*Set chunking.chunk_s to 0.16$"),
        ("spectrogram.bins=100", r"spectrogram.bins \(100\) must be a multiple of 16"),
    ],
)
def test_a_chunk_that_the_encoder_cannot_take_is_refused_with_one_that_it_can(override, message):
    with pytest.raises(ConfigError, match=message):
        load_study(None, [override])


@given(st.integers(1, 4000), st.sampled_from([0.001, 0.005, 0.01, 0.02]))
def test_chunks_of_whole_patches_and_no_others_are_taken(frames, shift_s):
    overrides = [f"chunking.chunk_s={frames * shift_s!r}", f"spectrogram.shift_s={shift_s}"]
    if frames % 16 == 0:
        assert load_study(None, overrides).chunking.chunk_s == frames * shift_s
        return
    with pytest.raises(ConfigError) as error:
        load_study(None, overrides)
    *_, near_s = str(error.value).split()
    assert load_study(None, [f"chunking.chunk_s={near_s}", overrides[1]]).chunking.chunk_s == float(near_s)


def test_all_mistakes_are_told_at_once(study_file):
    with pytest.raises(ConfigError) as error:
        load_study(study_file("wrok: x\nspectrogram: {bins: -1}\n"))
    assert "Did you mean work?" in str(error.value)
    assert "spectrogram.bins" in str(error.value)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("spectrogram.bins", "write it as a.b=value"),
        ("=3", "write it as a.b=value"),
        ("work.name=3", "work is a single value and has no name"),
        ("labels.animal=[", "not a YAML value"),
        ("annotations.7.path=x", "should be a number from 0 to 0"),
    ],
)
def test_a_wrong_set_is_refused_with_the_right_form(study_file, override, message):
    path = study_file("work: here\nannotations: [{path: x, format: csv}]\n")
    with pytest.raises(ConfigError, match=message):
        load_study(path, [override])


def test_a_missing_file_and_a_folder_are_told_apart(tmp_path):
    with pytest.raises(ConfigError, match="no such study file"):
        load_study(tmp_path / "none.yaml")
    with pytest.raises(ConfigError, match="is a folder"):
        load_study(tmp_path)


def test_settings_cannot_be_changed_after_loading():
    with pytest.raises(ValueError, match="frozen"):
        Study().work = "elsewhere"


WORD = st.text("abcdefghij äñ", min_size=1, max_size=6).map(str.strip).filter(bool)


@given(WORD, st.sampled_from(["UTC", "Asia/Kathmandu", None]), st.lists(WORD, unique=True, max_size=4))
def test_a_printed_study_loads_to_the_same_study(tmp_path_factory, name, zone, labels):
    study = Study(
        work="/w",
        collections={name: Collection(root="/cards", time_zone=zone)},
        labels=Labels(animal=tuple(labels)),
    )
    path = tmp_path_factory.mktemp("study") / "study.yaml"
    path.write_text(dump_study(study), encoding="utf-8")
    assert load_study(path) == study


def test_a_preset_lies_below_the_file_and_above_the_defaults(study_file):
    study = load_study(study_file("preset: laptop\ntrain: {batch: 8}\n"), ["train.unfreezing.blocks=2"])
    assert (study.model.size, study.train.epochs) == ("tiny", 30)
    assert study.train.batch == 8
    assert study.train.unfreezing.blocks == 2 and study.train.unfreezing.first_epoch == 4
    assert study.train.clip == Study().train.clip
    assert load_study(None, ["preset=laptop"]).model.size == "tiny"
    assert load_study(study_file(dump_study(study))) == study


def test_the_papers_preset_is_the_defaults():
    paper = load_study(None, ["preset=paper"])
    assert paper == load_study().model_copy(update={"preset": "paper"})
    assert (paper.train.lr, paper.train.epochs, paper.train.ema_decay) == (3e-4, 200, 0.9995)


def test_an_unknown_preset_is_refused_with_those_there_are(study_file):
    with pytest.raises(ConfigError, match=r"preset: there is no 'phone'. Known: laptop, paper, trial."):
        load_study(study_file("preset: phone"))


def test_a_model_to_start_from_is_found_beside_the_study_file(study_file, tmp_path):
    study = load_study(study_file("train: {start: pretrained}\n"))
    assert study.train.start == str(tmp_path / "pretrained")
    assert load_study(None, ["train.start=hf://owner/name"]).train.start == "hf://owner/name"
