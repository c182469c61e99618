"""A first study file: what was seen goes in, comments say the rest, and it loads."""

import re
from pathlib import Path

import numpy as np
import pytest
import soundfile

from mast.config import load_study
from mast.example import write_example
from mast.recordings.metadata import Naming
from mast.study.draft import LOOKED_AT, Answers, look_at_recordings, look_at_tables, write_draft


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("draft") / "demo"
    write_example(folder)
    return folder


def drafted(answers: Answers, folder: Path):
    out = folder / "study.yaml"
    out.write_text(write_draft(answers, out), encoding="utf-8")
    return load_study(out)


def test_the_example_card_tells_its_sites_rates_and_zones(demo):
    seen = look_at_recordings(str(demo / "card"), Naming(site="{site}/*"))
    assert seen.sites == ("A1", "A2", "B1")
    assert (seen.recordings, seen.more, seen.without_site, seen.without_zone) == (16, False, 0, 0)
    assert seen.summary() == "16 recordings: 32 kHz\n  sites: A1, A2, B1"


def test_many_recordings_are_judged_by_the_first(tmp_path):
    for number in range(LOOKED_AT + 5):
        soundfile.write(
            tmp_path / f"SM4_20240510_{number // 60:02}{number % 60:02}00.wav", np.ones(80) / 9, 8000
        )
    seen = look_at_recordings(str(tmp_path), Naming())
    assert seen.more
    assert seen.without_zone == LOOKED_AT
    assert "The first 200 recordings: 8 kHz" in seen.summary()
    assert "200 whose clock does not say its time zone" in seen.summary()


def test_an_empty_folder_is_no_trouble(tmp_path):
    assert look_at_recordings(str(tmp_path), Naming()).summary() == "0 recordings: unknown rate"


def test_tables_tell_their_format_and_labels(demo):
    tables = look_at_tables(str(demo / "boxes"))
    assert tables.format == "raven"
    assert tables.labels["insect"] == 6
    assert "insect (6)" in tables.summary()


def test_a_draft_loads_to_what_was_answered(demo):
    tables = look_at_tables(str(demo / "boxes"))
    answers = Answers(str(demo / "card"), "{site}/*", "Asia/Kolkata", tables, ("insect",), ("hoot",))
    study = drafted(answers, demo)
    assert study.collections["card"].root == str(demo / "card")
    assert study.collections["card"].site == "{site}/*"
    assert study.collections["card"].time_zone == "Asia/Kolkata"
    assert study.annotations[0].path == str(demo / "boxes")
    assert set(study.labels.animal) == {"whistle", "frog", "two-note song", "trill"}
    assert (study.labels.noise, study.labels.ignored) == (("insect",), ("hoot",))


def test_a_draft_without_answers_loads_and_keeps_every_choice_as_a_comment(tmp_path):
    study = drafted(Answers("s3://bucket/cards"), tmp_path)
    assert study.collections["cards"].root == "s3://bucket/cards"
    assert study.annotations == ()
    assert (study.preset, study.normalisation, study.model.adapter) == ("laptop", "band-median", "detail")
    text = (tmp_path / "study.yaml").read_text()
    assert "# site:" in text and "# time_zone:" in text and "# annotations:" in text


def test_a_draft_says_what_pitches_are_heard_and_how_to_hear_higher_ones(tmp_path):
    plain, out = drafted(Answers("card"), tmp_path), tmp_path / "study.yaml"
    assert (plain.spectrogram.low_hz, plain.spectrogram.high_hz) == (20, 8_000)
    assert "Sounds from 20 Hz to 8 kHz are heard." in out.read_text("utf-8")
    out.write_text(re.sub(r"(?m)^# (chunking|spectrogram):", r"\1:", out.read_text("utf-8")), "utf-8")
    higher = load_study(out)
    assert (higher.chunking.sample_rate_hz, higher.spectrogram.high_hz) == (32_000, 16_000)


@pytest.mark.parametrize("preset", ["laptop", "paper", "trial"])
def test_a_draft_begins_from_the_preset_that_was_asked_for(tmp_path, preset):
    wanted = load_study(None, [f"preset={preset}"])
    study = drafted(Answers("cards", preset=preset), tmp_path)
    assert (study.preset, study.train, study.selftrain) == (preset, wanted.train, wanted.selftrain)


@pytest.mark.parametrize("name", ["on", "7", "a: b", "# not a comment", "ñandú", "it's", "x\ty"])
def test_odd_folder_names_and_labels_survive(tmp_path, name):
    from collections import Counter

    from mast.study.draft import Tables

    tables = Tables(str(tmp_path / name), "csv", Counter({name: 2, "owl": 1}))
    study = drafted(Answers(str(tmp_path / name), tables=tables), tmp_path)
    assert study.collections[name].root == str(tmp_path / name)
    assert study.labels.animal == (name, "owl")
