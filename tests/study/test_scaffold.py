"""A first study file contains the answers, explains the other choices in comments, and loads."""

import re
from pathlib import Path

import numpy as np
import pytest
import soundfile

from mast.config import load_study
from mast.example_data import write_example
from mast.recordings.metadata import NamingScheme
from mast.study.scaffold import PREVIEW_FILES, Answers, look_at_tables, preview_recordings, write_draft


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("draft") / "demo"
    write_example(folder)
    return folder


def drafted(answers: Answers, folder: Path):
    out = folder / "study.yaml"
    out.write_text(write_draft(answers, out), encoding="utf-8")
    return load_study(out)


def test_the_preview_of_the_example_card_lists_its_sites_rates_and_zones(demo):
    preview = preview_recordings(str(demo / "card"), NamingScheme(site="{site}/*"))
    assert preview.sites == preview_recordings(str(demo / "card"), NamingScheme()).sites == ("A1", "A2", "B1")
    assert (preview.recordings, preview.more, preview.without_site, preview.without_zone) == (16, False, 0, 0)
    assert preview.summary() == "16 recordings: 32 kHz\n  sites: A1, A2, B1"


def test_the_preview_is_limited_to_the_first_recordings(tmp_path):
    for number in range(PREVIEW_FILES + 5):
        soundfile.write(
            tmp_path / f"SM4_20240510_{number // 60:02}{number % 60:02}00.wav", np.ones(80) / 9, 8000
        )
    preview = preview_recordings(str(tmp_path), NamingScheme())
    assert preview.more
    assert preview.without_zone == PREVIEW_FILES
    assert "The first 200 recordings: 8 kHz" in preview.summary()
    assert "200 without a time zone" in preview.summary()


def test_an_empty_folder_has_an_empty_preview(tmp_path):
    assert preview_recordings(str(tmp_path), NamingScheme()).summary() == "0 recordings: unknown rate"


def test_annotation_tables_give_their_format_and_labels(demo):
    tables = look_at_tables(str(demo / "boxes"))
    assert tables.format == "raven"
    assert tables.labels["insect"] == 6
    assert "insect (6)" in tables.summary()


def test_a_draft_loads_with_the_given_answers(demo):
    tables = look_at_tables(str(demo / "boxes"))
    answers = Answers(str(demo / "card"), "{site}/*", "Asia/Kolkata", tables, ("insect",), ("hoot",))
    study = drafted(answers, demo)
    assert study.collections["card"].root == str(demo / "card")
    assert study.collections["card"].site == "{site}/*"
    assert study.collections["card"].time_zone == "Asia/Kolkata"
    assert study.annotations[0].path == str(demo / "boxes")
    assert set(study.labels.animal) == {"whistle", "frog", "two-note song", "trill"}
    assert (study.labels.noise, study.labels.ignore) == (("insect",), ("hoot",))


def test_a_draft_without_answers_loads_and_keeps_every_choice_as_a_comment(tmp_path):
    study = drafted(Answers("s3://bucket/cards"), tmp_path)
    assert study.collections["cards"].root == "s3://bucket/cards"
    assert study.annotations == ()
    assert (study.preset, study.normalisation, study.model.adapter) == ("laptop", "band-median", "hybrid")
    text = (tmp_path / "study.yaml").read_text()
    assert "# site:" in text and "# time_zone:" in text and "# annotations:" in text


def test_a_draft_states_the_frequency_range_and_how_to_extend_it(tmp_path):
    plain, out = drafted(Answers("card"), tmp_path), tmp_path / "study.yaml"
    assert (plain.spectrogram.low_hz, plain.spectrogram.high_hz) == (20, 8_000)
    assert "The detector covers 20 Hz to 8 kHz." in out.read_text("utf-8")
    out.write_text(re.sub(r"(?m)^# (chunking|spectrogram):", r"\1:", out.read_text("utf-8")), "utf-8")
    higher = load_study(out)
    assert (higher.chunking.sample_rate_hz, higher.spectrogram.high_hz) == (32_000, 16_000)


@pytest.mark.parametrize("preset", ["laptop", "paper", "trial"])
def test_a_draft_uses_the_given_preset(tmp_path, preset):
    expected = load_study(None, [f"preset={preset}"])
    study = drafted(Answers("cards", preset=preset), tmp_path)
    assert (study.preset, study.train, study.selftrain) == (preset, expected.train, expected.selftrain)


@pytest.mark.parametrize("name", ["on", "7", "a: b", "# not a comment", "ñandú", "it's", "x\ty"])
def test_unusual_folder_names_and_labels_are_preserved(tmp_path, name):
    from collections import Counter

    from mast.study.scaffold import AnnotationsPreview

    tables = AnnotationsPreview(str(tmp_path / name), "csv", Counter({name: 2, "owl": 1}))
    study = drafted(Answers(str(tmp_path / name), tables=tables), tmp_path)
    assert study.collections[name].root == str(tmp_path / name)
    assert study.labels.animal == (name, "owl")
