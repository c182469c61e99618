"""The report page of an evaluation: its content, and escaping of text in it."""

import io
import re
from base64 import b64decode
from dataclasses import replace

import numpy as np
import pytest
import soundfile

from mast.evaluation.error_examples import ErrorExample, ErrorTile, tile_of, worst_errors
from mast.evaluation.evaluate import EvaluationResult
from mast.evaluation.report import ErrorExamples, headline_sentence, report_page, title_of, write_report
from tests.evaluation.studies import (
    SHIFTED,
    load_ground_truth,
    make_evaluation_set,
    make_ground_truth,
    make_results,
    oracle,
)

HOSTILE = "<script>alert(1)</script>\" onerror='x' {{ 7 * 7 }}"


def two_sounds(**changed):
    """Build a loud and a faint event of one recording, and an event of another."""
    return make_ground_truth(
        [(0, 0.0), (1, 0.0)],
        [(0, 1, 100, 2, 200), (0, 5, 100, 6, 200), (1, 1, 100, 2, 200)],
        labels=["faint", "loud", "unknown"],
        snr_db=[1.0, 9.0, np.nan],
        **changed,
    )


def test_without_boxes_there_is_no_error():
    assert worst_errors(make_evaluation_set(make_ground_truth([], []), []), 0.5) == ([], [])


def test_misses_are_sorted_by_signal_to_noise_and_false_positives_by_score():
    evaluation_set = make_evaluation_set(
        two_sounds(), [(0, 8, 100, 9, 200, 0.6), (1, 5, 100, 6, 200, 0.9), (1, 8, 1, 9, 2, 0.2)]
    )
    misses, false_positives = worst_errors(evaluation_set, 0.5)
    assert [item.label for item in misses] == ["loud", "faint", "unknown"]
    assert [item.snr_db for item in misses[:2]] == [9.0, 1.0]
    assert [(item.recording_id, item.score) for item in false_positives] == [
        ("card/1.wav", 0.9),
        ("card/0.wav", 0.6),
    ]
    assert [item.label for item in worst_errors(evaluation_set, 0.5, count=1)[0]] == ["loud"]


def test_an_error_has_the_boxes_around_it_of_its_own_recording_only():
    evaluation_set = make_evaluation_set(
        two_sounds(), [(0, 6.5, 100, 7.5, 200, 0.8), (0, 9, 100, 9.5, 200, 0.7)]
    )
    loud = worst_errors(evaluation_set, 0.5)[0][0]
    assert loud.bounds == (5, 100, 6, 200)
    assert loud.annotated_boxes == ((5, 100, 6, 200),)
    assert loud.model_boxes == ((6.5, 100, 7.5, 200),)


def test_a_match_is_not_an_error():
    evaluation_set = make_evaluation_set(
        two_sounds(), [(0, 1, 100, 2, 200, 0.9), (0, 5, 100, 6, 200, 0.9), (1, 1, 100, 2, 200, 0.9)]
    )
    assert worst_errors(evaluation_set, 0.5) == ([], [])


def test_errors_are_those_of_whole_recordings_and_not_of_chunks():
    ground_truth = make_ground_truth(
        [(0, 0.0), (0, 5.0)], [(0, 9, 100, 10, 200), (1, 4, 100, 8, 200)],
        events=[(0, 9, 100, 13, 200)], box_event=[0, 0], labels=["frog"],
    )  # fmt: skip
    parts = [(0, 9, 100, 10, 200, 0.9), (1, 4, 100, 8, 200, 0.8)]
    assert worst_errors(
        make_evaluation_set(ground_truth, parts, stitched=[(0, 9, 100, 13, 200, 0.8)]), 0.5
    ) == ([], [])
    (misses,), (false_positive,) = worst_errors(make_evaluation_set(ground_truth, parts[:1]), 0.5)
    assert (misses.label, false_positive.bounds, false_positive.score) == ("frog", (9, 100, 10, 200), 0.9)


def test_a_perfect_detector_has_no_errors(shifted):
    study, _, ground_truth = shifted
    assert worst_errors(oracle(ground_truth, study), 0.5) == ([], [])


def test_headline_sentences_agree_with_the_metrics():
    partial = make_evaluation_set(two_sounds(), [(0, 1, 100, 2, 200, 0.9)])
    (item,) = make_results([partial]).sets
    assert headline_sentence(item).startswith(
        "The model detected 33 of every 100 annotated boxes. Of every 100 boxes"
    )
    (nothing,) = make_results([make_evaluation_set(two_sounds(), [])]).sets
    assert headline_sentence(nothing) == "The model detected nothing. Annotated boxes: 3."
    (empty,) = make_results(
        [make_evaluation_set(make_ground_truth([(0, 0.0)], []), [(0, 1, 1, 2, 2, 0.9)])]
    ).sets
    assert headline_sentence(empty) == "This set has no annotations. False positives: 1."


def test_sets_under_shift_have_other_titles_than_the_in_domain_test():
    assert [title_of(name) for name in ("test", "north")] == ["In-domain test", "Under shift: north"]


def test_labels_file_names_and_set_names_are_escaped():
    ground_truth = two_sounds(
        name=HOSTILE, recordings=(HOSTILE, "b.wav"), sites=(HOSTILE, "B"), excluded={HOSTILE: 2}
    )
    evaluation_set = make_evaluation_set(replace(ground_truth, event_labels=(HOSTILE,) * 3), [])
    miss = ErrorExample("miss", HOSTILE, (0, 0, 1, 1), 1.0, label=HOSTILE, snr_db=3.0)
    false_positive = ErrorExample("false positive", HOSTILE, (0, 0, 1, 1), 1.0, score=0.7)
    tiles = [
        ErrorTile(item, "data:image/png;base64,", "data:audio/flac;base64,")
        for item in (miss, false_positive)
    ]
    results = make_results([evaluation_set])
    results.model["location"] = results.model["source"] = results.model["licence"] = HOSTILE
    page = report_page(results, [ErrorExamples(tiles[:1], tiles[1:])])
    assert "<script" not in page and "onerror='" not in page and "49" not in re.sub(r"data:[^\"]*", "", page)
    assert page.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 8


def test_a_page_loads_no_external_resource_and_runs_no_script():
    page = report_page(make_results([make_evaluation_set(two_sounds(), [])]), [ErrorExamples([], [])])
    sources = re.findall(r"(?:src|href)=\"([^\"]{0,30})", page)
    assert sources and all(source.startswith("data:") for source in sources)
    assert "<script" not in page and "@import" not in page and "default-src 'none'" in page


def test_an_undefined_metric_is_a_dash():
    page = report_page(make_results([make_evaluation_set(two_sounds(), [])]), [ErrorExamples([], [])])
    assert "nan" not in re.sub(r"data:[^\"]*", "", page).lower()
    assert "None: every prediction was correct." in page


def test_page_and_summary_of_one_recording_have_metrics_without_bounds():
    evaluation_set = make_evaluation_set(
        make_ground_truth([(0, 0.0)], [(0, 1, 100, 3, 200)]), [(0, 1, 100, 3, 200, 0.9)]
    )
    results = make_results([evaluation_set])
    page = report_page(results, [ErrorExamples([], [])])
    assert "<b>1.000</b></td>" in page and "– – –" not in page
    assert "nan" not in re.sub(r"data:[^\"]*", "", page).lower()
    summary = EvaluationResult(results, "evaluation").summary()
    assert "test: F1 1.000, precision 1.000, recall 1.000; 1 recording, 1 box" in summary


@pytest.fixture(scope="module")
def shifted(shifted_study):
    return load_ground_truth(shifted_study, SHIFTED)


def test_a_report_has_spectrogram_and_audio_of_missed_events(shifted, tmp_path):
    study, store, ground_truth = shifted
    nothing = oracle(ground_truth, study, score=0.1)
    write_report(str(tmp_path), make_results([nothing]), [nothing], store)
    page = (tmp_path / "report.html").read_text()
    shown = page.count('<figure class="tile">')
    assert (
        shown
        == len(ground_truth.events)
        == page.count("<audio controls")
        == page.count("data:audio/flac;base64,")
    )
    assert page.count("<b>insect</b>") == shown
    assert "Under shift: &lt;b&gt;new&lt;/b&gt; $place$" in page


def test_a_clip_has_a_second_of_context_within_the_recording(shifted):
    _, store, ground_truth = shifted
    name = ground_truth.recordings[0]
    lengths = []
    for start_s, end_s in ((10.0, 11.0), (0.0, 1.0), (29.5, 30.0), (1.0, 29.0)):
        bounds = (start_s, 100.0, end_s, 200.0)
        tile = tile_of(ErrorExample("miss", name, bounds, 1.0, annotated_boxes=(bounds,)), store)
        lengths.append(len(decoded(tile.audio)) / store.layout.sample_rate_hz)
    assert lengths == pytest.approx([3.0, 2.0, 1.5, 12.0])


def test_a_clip_with_time_expansion_is_cut_at_the_processed_time(shifted):
    _, store, ground_truth = shifted
    miss = ErrorExample(
        "false positive", ground_truth.recordings[0], (1.0, 100.0, 1.1, 200.0), 10.0, score=0.5
    )
    tile = tile_of(miss, store)
    place = store.recordings["recording_id"].to_pylist().index(miss.recording_id)
    start = 9 * store.layout.sample_rate_hz
    first_row = store.recordings["first_row"][place].as_py()
    expected = store.read([[first_row, start]], 3 * store.layout.sample_rate_hz)[0]
    played = decoded(tile.audio)
    assert len(played) == len(expected)
    assert np.corrcoef(played, expected)[0, 1] > 0.999


def decoded(uri):
    return soundfile.read(io.BytesIO(b64decode(uri.partition(",")[2])))[0]
