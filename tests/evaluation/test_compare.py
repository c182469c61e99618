"""Compare several models on the same test sets."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from mast.cli import app
from mast.errors import ConfigError, StorageError
from mast.evaluation.bootstrap import Interval
from mast.evaluation.compare import compare, verdict, write_comparison
from mast.evaluation.results import write_results
from tests.evaluation.studies import make_evaluation_set, make_ground_truth, make_results

RECORDINGS = 8


def ground_truth(**changed):
    """Build an event in each recording but the last, where nothing is annotated or predicted."""
    chunks = [(number, 0.0) for number in range(RECORDINGS)]
    return make_ground_truth(
        chunks, [(number, 1, 100, 3, 200) for number in range(RECORDINGS - 1)], **changed
    )


def evaluation(folder, recalled, threshold=0.5, **changed):
    """Write an evaluation of a model that detects the events of the first `recalled` recordings."""
    evaluation_set = make_evaluation_set(
        ground_truth(**changed), [(number, 1, 100, 3, 200, 0.9) for number in range(recalled)]
    )
    write_results(str(folder), make_results([evaluation_set], threshold), [evaluation_set])
    return str(folder)


def test_one_evaluation_cannot_be_compared(tmp_path):
    with pytest.raises(ConfigError, match="two or more folders"):
        compare([evaluation(tmp_path / "one", 3)])


def test_a_model_does_not_differ_from_itself(tmp_path):
    comparison = compare([evaluation(tmp_path / name, 3) for name in ("one", "two")], resamples=50)
    assert comparison.sets == {"test": RECORDINGS}
    for (difference,) in comparison.differences["test"].values():
        assert (difference.value, difference.low, difference.high) == (0, 0, 0)
        assert verdict(difference) == "not significant"


def test_differences_are_to_the_first_model_and_each_resample_serves_both(tmp_path):
    folders = [
        evaluation(tmp_path / "few", 0),
        evaluation(tmp_path / "some", 3),
        evaluation(tmp_path / "all", 7),
    ]
    comparison = compare(folders, resamples=200)
    assert [item.value for item in comparison.metrics["test"]["recall"]] == [0, 3 / 7, 1]
    partial, complete = comparison.differences["test"]["recall"]
    assert (partial.value, complete.value) == (3 / 7, 1)
    assert partial.low <= partial.value <= partial.high
    assert (complete.low, complete.high) == (
        1,
        1,
    )  # in every resample, one detects all events and the other none
    assert verdict(complete) == "better"


def test_each_model_uses_its_own_threshold_and_ap_none(tmp_path):
    folders = [evaluation(tmp_path / "one", 7), evaluation(tmp_path / "strict", 7, threshold=np.inf)]
    comparison = compare(folders, resamples=20)
    assert [item.value for item in comparison.metrics["test"]["f1"]] == [1, 0]
    assert [item.value for item in comparison.metrics["test"]["average_precision_coco"]] == [1, 1]
    assert verdict(comparison.differences["test"]["f1"][0]) == "worse"
    assert verdict(comparison.differences["test"]["precision"][0]) == "not testable"


def test_models_are_named_by_the_last_part_of_their_folder_if_it_is_unique(tmp_path):
    one, two, same = (evaluation(tmp_path / name, 1) for name in ("a/one", "a/two", "b/one"))
    assert [model.name for model in compare([one, two], resamples=5).models] == ["one", "two"]
    assert [model.name for model in compare([one, same], resamples=5).models] == [one, same]


def test_a_difference_on_one_recording_is_not_testable(tmp_path):
    folders = []
    for name, predictions in (("none", []), ("all", [(0, 1, 100, 3, 200, 0.9)])):
        evaluation_set = make_evaluation_set(
            make_ground_truth([(0, 0.0)], [(0, 1, 100, 3, 200)]), predictions
        )
        write_results(str(tmp_path / name), make_results([evaluation_set]), [evaluation_set])
        folders.append(str(tmp_path / name))
    comparison = compare(folders, resamples=20)
    assert {verdict(item) for (item,) in comparison.differences["test"].values()} == {"not testable"}
    assert "test: F1 of all +1.000 against none: not testable" in comparison.summary()
    write_comparison(comparison, str(tmp_path / "compare.html"))
    page = (tmp_path / "compare.html").read_text("utf-8")
    assert "nan" not in page.lower() and 'class="range"' not in page and "+1.000" in page


def test_verdicts():
    assert verdict(Interval(0.1, 0.01, 0.2, 0.95)) == "better"
    assert verdict(Interval(-0.1, -0.2, -0.01, 0.95)) == "worse"
    assert verdict(Interval(0.1, -0.01, 0.2, 0.95)) == "not significant"


def test_evaluations_with_other_ground_truth_are_refused(tmp_path):
    one = evaluation(tmp_path / "one", 3)
    other_start = evaluation(tmp_path / "start", 3, chunk_start_s=np.arange(RECORDINGS, dtype=float))
    other_name = evaluation(tmp_path / "name", 3, name="val")
    for other in (other_start, other_name):
        with pytest.raises(ConfigError, match="have different ground truth"):
            compare([one, one, other])


def test_labels_of_events_do_not_matter_for_a_comparison(tmp_path):
    labels = tuple("frog" for _ in range(RECORDINGS - 1))
    folders = [evaluation(tmp_path / "one", 3), evaluation(tmp_path / "two", 3, event_labels=labels)]
    assert compare(folders, resamples=5).sets


def test_a_folder_without_an_evaluation_is_refused(tmp_path):
    one = evaluation(tmp_path / "one", 3)
    with pytest.raises(StorageError, match="has no results.json. Create it with mast evaluate"):
        compare([one, str(tmp_path)])
    for content in ("{", "{}", "[]"):
        broken = tmp_path / "broken"
        broken.mkdir(exist_ok=True)
        (broken / "results.json").write_text(content)
        with pytest.raises(StorageError, match="was not written by this version of mast evaluate"):
            compare([one, str(broken)])
    (broken / "results.json").write_text((tmp_path / "one" / "results.json").read_text())
    with pytest.raises(StorageError, match="does not exist"):
        compare([one, str(broken)])


def test_the_command_writes_a_page_in_which_names_stay_text(tmp_path):
    none, complete = evaluation(tmp_path / "<b>few", 0), evaluation(tmp_path / "all", 7)
    results = json.loads((tmp_path / "all" / "results.json").read_text())
    results["model"]["location"] = "<script>alert(1)</script>"
    (tmp_path / "all" / "results.json").write_text(json.dumps(results))
    done = CliRunner().invoke(app, ["compare", none, complete, "--out", str(tmp_path / "page.html")])
    assert done.exit_code == 0, done.output
    assert "test: F1 of all +1.000 (+1.000 to +1.000) against <b>few: better" in done.output
    page = (tmp_path / "page.html").read_text()
    assert "&lt;b&gt;few" in page and "<b>few" not in page and "<script" not in page
    assert 'class="small better"' in page and "In-domain test" in page
