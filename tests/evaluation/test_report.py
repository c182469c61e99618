"""The page about an evaluation: what it shows, and that text in it stays text."""

import io
import re
from base64 import b64decode
from dataclasses import replace

import numpy as np
import pytest
import soundfile

from mast.detection.evaluate import Evaluated
from mast.evaluation.report import Mistakes, report_page, sentence, title_of, write_report
from mast.evaluation.worst import Mistake, Tile, tile_of, worst_mistakes
from tests.evaluation.studies import SHIFTED, made_results, made_trial, made_truths, oracle, truths_of

HOSTILE = "<script>alert(1)</script>\" onerror='x' {{ 7 * 7 }}"


def two_sounds(**changed):
    """A loud and a faint sound of one recording, and a sound of another."""
    return made_truths(
        [(0, 0.0), (1, 0.0)],
        [(0, 1, 100, 2, 200), (0, 5, 100, 6, 200), (1, 1, 100, 2, 200)],
        labels=["faint", "loud", "unknown"],
        snr_db=[1.0, 9.0, np.nan],
        **changed,
    )


def test_without_boxes_there_is_no_mistake():
    assert worst_mistakes(made_trial(made_truths([], []), []), 0.5) == ([], [])


def test_misses_come_by_signal_to_noise_and_false_alarms_by_score():
    trial = made_trial(
        two_sounds(), [(0, 8, 100, 9, 200, 0.6), (1, 5, 100, 6, 200, 0.9), (1, 8, 1, 9, 2, 0.2)]
    )
    missed, alarms = worst_mistakes(trial, 0.5)
    assert [item.label for item in missed] == ["loud", "faint", "unknown"]
    assert [item.snr_db for item in missed[:2]] == [9.0, 1.0]
    assert [(item.recording_id, item.score) for item in alarms] == [("card/1.wav", 0.9), ("card/0.wav", 0.6)]
    assert [item.label for item in worst_mistakes(trial, 0.5, count=1)[0]] == ["loud"]


def test_a_mistake_comes_with_the_boxes_around_it_of_its_own_recording_only():
    trial = made_trial(two_sounds(), [(0, 6.5, 100, 7.5, 200, 0.8), (0, 9, 100, 9.5, 200, 0.7)])
    loud = worst_mistakes(trial, 0.5)[0][0]
    assert loud.bounds == (5, 100, 6, 200)
    assert loud.expert_boxes == ((5, 100, 6, 200),)
    assert loud.model_boxes == ((6.5, 100, 7.5, 200),)


def test_what_was_found_is_no_mistake():
    trial = made_trial(
        two_sounds(), [(0, 1, 100, 2, 200, 0.9), (0, 5, 100, 6, 200, 0.9), (1, 1, 100, 2, 200, 0.9)]
    )
    assert worst_mistakes(trial, 0.5) == ([], [])


def test_whole_recordings_are_looked_at_and_not_the_boxes_of_chunks():
    truths = made_truths(
        [(0, 0.0), (0, 5.0)], [(0, 9, 100, 10, 200), (1, 4, 100, 8, 200)],
        events=[(0, 9, 100, 13, 200)], box_event=[0, 0], labels=["frog"],
    )  # fmt: skip
    parts = [(0, 9, 100, 10, 200, 0.9), (1, 4, 100, 8, 200, 0.8)]
    assert worst_mistakes(made_trial(truths, parts, sounds=[(0, 9, 100, 13, 200, 0.8)]), 0.5) == ([], [])
    (missed,), (alarm,) = worst_mistakes(made_trial(truths, parts[:1]), 0.5)
    assert (missed.label, alarm.bounds, alarm.score) == ("frog", (9, 100, 10, 200), 0.9)


def test_a_perfect_detector_makes_no_mistake(shifted):
    study, _, truths = shifted
    assert worst_mistakes(oracle(truths, study), 0.5) == ([], [])


def test_sentences_say_what_the_numbers_say():
    found = made_trial(two_sounds(), [(0, 1, 100, 2, 200, 0.9)])
    (item,) = made_results([found]).sets
    assert sentence(item).startswith("Of 100 sounds that experts drew, the model finds 33. Of 100 boxes")
    (silent,) = made_results([made_trial(two_sounds(), [])]).sets
    assert sentence(silent) == "The model drew no box; experts drew 3."
    (empty,) = made_results([made_trial(made_truths([(0, 0.0)], []), [(0, 1, 1, 2, 2, 0.9)])]).sets
    assert sentence(empty) == "Experts drew no box here; the model drew 1, all of them false alarms."


def test_sets_under_shift_are_told_from_the_domain():
    assert [title_of(name) for name in ("test", "north")] == ["In-domain test", "Under shift: north"]


def test_labels_file_names_and_set_names_stay_text():
    truths = two_sounds(
        name=HOSTILE, recordings=(HOSTILE, "b.wav"), sites=(HOSTILE, "B"), left_out={HOSTILE: 2}
    )
    trial = made_trial(replace(truths, event_labels=(HOSTILE,) * 3), [])
    mistake = Mistake("miss", HOSTILE, (0, 0, 1, 1), 1.0, label=HOSTILE, snr_db=3.0)
    alarm = Mistake("false alarm", HOSTILE, (0, 0, 1, 1), 1.0, score=0.7)
    tiles = [Tile(item, "data:image/png;base64,", "data:audio/flac;base64,") for item in (mistake, alarm)]
    results = made_results([trial])
    results.model["location"] = results.model["source"] = results.model["licence"] = HOSTILE
    page = report_page(results, [Mistakes(tiles[:1], tiles[1:])])
    assert "<script" not in page and "onerror='" not in page and "49" not in re.sub(r"data:[^\"]*", "", page)
    assert page.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 8


def test_a_page_loads_nothing_from_elsewhere_and_runs_nothing():
    page = report_page(made_results([made_trial(two_sounds(), [])]), [Mistakes([], [])])
    sources = re.findall(r"(?:src|href)=\"([^\"]{0,30})", page)
    assert sources and all(source.startswith("data:") for source in sources)
    assert "<script" not in page and "@import" not in page and "default-src 'none'" in page


def test_a_number_that_cannot_be_told_is_a_dash():
    page = report_page(made_results([made_trial(two_sounds(), [])]), [Mistakes([], [])])
    assert "nan" not in re.sub(r"data:[^\"]*", "", page).lower()
    assert "None: every box was right." in page


def test_of_one_recording_a_page_and_a_summary_tell_figures_without_bounds():
    trial = made_trial(made_truths([(0, 0.0)], [(0, 1, 100, 3, 200)]), [(0, 1, 100, 3, 200, 0.9)])
    results = made_results([trial])
    page = report_page(results, [Mistakes([], [])])
    assert "<b>1.000</b></td>" in page and "– – –" not in page
    assert "nan" not in re.sub(r"data:[^\"]*", "", page).lower()
    told = Evaluated(results, "evaluation").summary()
    assert "test: F1 1.000, precision 1.000, recall 1.000; 1 recordings" in told


@pytest.fixture(scope="module")
def shifted(shifted_study):
    return truths_of(shifted_study, SHIFTED)


def test_a_report_shows_missed_sounds_of_the_study_to_look_at_and_listen_to(shifted, tmp_path):
    study, store, truths = shifted
    nothing = oracle(truths, study, score=0.1)
    write_report(str(tmp_path), made_results([nothing]), [nothing], store)
    page = (tmp_path / "report.html").read_text()
    shown = page.count('<figure class="tile">')
    assert (
        shown == len(truths.events) == page.count("<audio controls") == page.count("data:audio/flac;base64,")
    )
    assert page.count("<b>insect</b>") == shown
    assert "Under shift: &lt;b&gt;new&lt;/b&gt; $place$" in page


def test_a_tile_cuts_a_second_around_a_sound_as_far_as_the_recording_goes(shifted):
    _, store, truths = shifted
    name = truths.recordings[0]
    lengths = []
    for start_s, end_s in ((10.0, 11.0), (0.0, 1.0), (29.5, 30.0), (1.0, 29.0)):
        bounds = (start_s, 100.0, end_s, 200.0)
        tile = tile_of(Mistake("miss", name, bounds, 1.0, expert_boxes=(bounds,)), store)
        lengths.append(len(decoded(tile.sound)) / store.layout.sample_rate_hz)
    assert lengths == pytest.approx([3.0, 2.0, 1.5, 12.0])


def test_a_tile_of_slowed_down_sound_is_cut_where_it_is_heard(shifted):
    _, store, truths = shifted
    mistake = Mistake("false alarm", truths.recordings[0], (1.0, 100.0, 1.1, 200.0), 10.0, score=0.5)
    tile = tile_of(mistake, store)
    place = store.recordings["recording_id"].to_pylist().index(mistake.recording_id)
    start = 9 * store.layout.sample_rate_hz
    first_row = store.recordings["first_row"][place].as_py()
    heard = store.read([[first_row, start]], 3 * store.layout.sample_rate_hz)[0]
    played = decoded(tile.sound)
    assert len(played) == len(heard)
    assert np.corrcoef(played, heard)[0, 1] > 0.999


def decoded(uri):
    return soundfile.read(io.BytesIO(b64decode(uri.partition(",")[2])))[0]
