"""Values come from defaults < YAML < --set; an error for a wrong key or value names the right one."""

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
    assert (study.chunking.chunk_s, study.chunking.hop_s, study.chunking.min_audio_fraction) == (
        10.24,
        5.12,
        0.5,
    )
    assert (study.spectrogram.low_hz, study.spectrogram.high_hz, study.spectrogram.n_mels) == (20, 8000, 128)
    assert (study.spectrogram.window_s, study.spectrogram.frame_shift_s) == (0.025, 0.010)


def test_set_overrides_yaml_and_yaml_overrides_the_default(study_file):
    path = study_file("spectrogram: {high_hz: 6000, n_mels: 64}\n")
    study = load_study(path, ["spectrogram.high_hz=4000", "labels.animal=[owl, frog]"])
    assert study.spectrogram.high_hz == 4000
    assert study.spectrogram.n_mels == 64
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
    assert study.work_dir == str(tmp_path / "work")


@pytest.mark.parametrize(
    ("stage", "name"),
    [
        ("pretrain", "init_from"),
        ("train_synthetic", "init_from"),
        ("train", "init_from"),
        ("selftrain", "teacher"),
    ],
)
def test_the_path_of_an_initial_model_is_relative_to_the_study_file(study_file, tmp_path, stage, name):
    path = study_file(f"{stage}: {{{name}: models/bird}}\n")
    assert getattr(getattr(load_study(path), stage), name) == str(tmp_path / "models" / "bird")
    far = load_study(path, [f"{stage}.{name}=hf://owner/name"])
    assert getattr(getattr(far, stage), name) == "hf://owner/name"


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
            "annotations.0.labl is not a setting. Valid settings: path",
        ),
        ("spectrogram: {n_mels: many}", "spectrogram.n_mels: .*integer.*'many'"),
        ("collections: {a: {}}", "collections.a.root is missing."),
        ("collections: {a: {root: x, time_zone: Europe/Madird}}", "Did you mean Europe/Madrid?"),
        ("collections: {a: {root: x, time_zone: ''}}", "'' is not a time zone"),
        ("spectrogram: {low_hz: 9, high_hz: 5}", r"low_hz \(9\) must be below high_hz \(5\)"),
        ("spectrogram: {high_hz: 9000}", "spectrogram.high_hz .9000. is above 8000 Hz"),
        ("labels: {animal: [owl], noise: [owl]}", "'owl' is listed more than once"),
        ("annotations: [{path: x, format: ravn}]", "annotations.0.format: .*'raven'.*'ravn'"),
        ("- a\n- b", "not a list"),
        ("a: [", "not valid YAML"),
    ],
)
def test_a_mistake_is_refused_with_its_key_and_a_fix(study_file, text, message):
    with pytest.raises(ConfigError, match=message):
        load_study(study_file(text))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "chunking.chunk_s=10",
            "gives 1000 frames.* multiple of 16, the encoder's patch size. Set chunking.chunk_s to 9.92 or 10.08",
        ),
        ("chunking.chunk_s=0.1", "gives 10 frames.*Set chunking.chunk_s to 0.16$"),
        ("spectrogram.n_mels=100", r"spectrogram.n_mels \(100\) must be a multiple of 16"),
    ],
)
def test_a_chunk_length_that_does_not_fit_the_patches_is_refused_with_one_that_does(override, message):
    with pytest.raises(ConfigError, match=message):
        load_study(None, [override])


@given(st.integers(1, 4000), st.sampled_from([0.001, 0.005, 0.01, 0.02]))
def test_only_chunks_of_complete_patches_are_accepted(frames, shift_s):
    overrides = [f"chunking.chunk_s={frames * shift_s!r}", f"spectrogram.frame_shift_s={shift_s}"]
    if frames % 16 == 0:
        assert load_study(None, overrides).chunking.chunk_s == frames * shift_s
        return
    with pytest.raises(ConfigError) as error:
        load_study(None, overrides)
    *_, near_s = str(error.value).split()
    assert load_study(None, [f"chunking.chunk_s={near_s}", overrides[1]]).chunking.chunk_s == float(near_s)


def test_all_mistakes_are_reported_at_once(study_file):
    with pytest.raises(ConfigError) as error:
        load_study(study_file("wrok_dir: x\nspectrogram: {n_mels: -1}\n"))
    assert "Did you mean work_dir?" in str(error.value)
    assert "spectrogram.n_mels" in str(error.value)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("spectrogram.n_mels", "use the form a.b=value"),
        ("=3", "use the form a.b=value"),
        ("work_dir.name=3", "work_dir is a single value and has no setting name"),
        ("labels.animal=[", "not a YAML value"),
        ("annotations.7.path=x", "must be a number from 0 to 0"),
    ],
)
def test_an_invalid_set_is_refused_with_the_valid_form(study_file, override, message):
    path = study_file("work_dir: results\nannotations: [{path: x, format: csv}]\n")
    with pytest.raises(ConfigError, match=message):
        load_study(path, [override])


def test_a_missing_file_and_a_folder_have_different_errors(tmp_path):
    with pytest.raises(ConfigError, match="no such study file"):
        load_study(tmp_path / "none.yaml")
    with pytest.raises(ConfigError, match="is a folder"):
        load_study(tmp_path)


def test_settings_cannot_be_changed_after_loading():
    with pytest.raises(ValueError, match="frozen"):
        Study().work_dir = "elsewhere"


WORD = st.text("abcdefghij äñ", min_size=1, max_size=6).map(str.strip).filter(bool)


@given(WORD, st.sampled_from(["UTC", "Asia/Kathmandu", None]), st.lists(WORD, unique=True, max_size=4))
def test_a_printed_study_loads_to_the_same_study(tmp_path_factory, name, zone, labels):
    study = Study(
        work_dir="/w",
        collections={name: Collection(root="/cards", time_zone=zone)},
        labels=Labels(animal=tuple(labels)),
    )
    path = tmp_path_factory.mktemp("study") / "study.yaml"
    path.write_text(dump_study(study), encoding="utf-8")
    assert load_study(path) == study


def test_a_preset_overrides_the_defaults_and_the_file_overrides_the_preset(study_file):
    study = load_study(
        study_file("preset: laptop\ntrain: {batch_size: 8}\n"), ["train.unfreezing.blocks_per_step=2"]
    )
    assert (study.model.size, study.train.epochs) == ("tiny", 30)
    assert study.train.batch_size == 8
    assert study.train.unfreezing.blocks_per_step == 2 and study.train.unfreezing.start_epoch == 4
    assert study.train.grad_clip_norm == Study().train.grad_clip_norm
    assert load_study(None, ["preset=laptop"]).model.size == "tiny"
    assert load_study(study_file(dump_study(study))) == study


def test_the_papers_preset_is_the_defaults():
    paper = load_study(None, ["preset=paper"])
    assert paper == load_study().model_copy(update={"preset": "paper"})
    assert (paper.train.lr, paper.train.epochs, paper.train.ema_decay) == (3e-4, 200, 0.9995)


def test_an_unknown_preset_is_refused_with_the_available_ones(study_file):
    with pytest.raises(
        ConfigError, match=r"preset: there is no preset 'phone'. Available: laptop, paper, starter, trial."
    ):
        load_study(study_file("preset: phone"))


def test_the_initial_model_of_training_is_relative_to_the_study_file(study_file, tmp_path):
    study = load_study(study_file("train: {init_from: pretrained}\n"))
    assert study.train.init_from == str(tmp_path / "pretrained")
    assert load_study(None, ["train.init_from=hf://owner/name"]).train.init_from == "hf://owner/name"
