"""Several models on the same test sets."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from mast.cli import app
from mast.errors import ConfigError, StorageError
from mast.evaluation.compare import compare, verdict, write_comparison
from mast.evaluation.intervals import Interval
from mast.evaluation.results import write_results
from tests.evaluation.studies import made_results, made_trial, made_truths

RECORDINGS = 8


def truths(**changed):
    """A sound in each recording but the last, in which nobody finds anything."""
    chunks = [(number, 0.0) for number in range(RECORDINGS)]
    return made_truths(chunks, [(number, 1, 100, 3, 200) for number in range(RECORDINGS - 1)], **changed)


def evaluation(folder, found, threshold=0.5, **changed):
    """An evaluation of a model that finds the sounds of the first so many recordings."""
    trial = made_trial(truths(**changed), [(number, 1, 100, 3, 200, 0.9) for number in range(found)])
    write_results(str(folder), made_results([trial], threshold), [trial])
    return str(folder)


def test_one_evaluation_cannot_be_compared(tmp_path):
    with pytest.raises(ConfigError, match="two folders or more"):
        compare([evaluation(tmp_path / "one", 3)])


def test_a_model_does_not_differ_from_itself(tmp_path):
    comparison = compare([evaluation(tmp_path / name, 3) for name in ("one", "two")], resamples=50)
    assert comparison.sets == {"test": RECORDINGS}
    for (difference,) in comparison.differences["test"].values():
        assert (difference.value, difference.low, difference.high) == (0, 0, 0)
        assert verdict(difference) == "could be chance"


def test_differences_are_to_the_first_model_and_recordings_are_drawn_for_both(tmp_path):
    folders = [
        evaluation(tmp_path / "few", 0),
        evaluation(tmp_path / "some", 3),
        evaluation(tmp_path / "all", 7),
    ]
    comparison = compare(folders, resamples=200)
    assert [item.value for item in comparison.numbers["test"]["recall"]] == [0, 3 / 7, 1]
    some, every = comparison.differences["test"]["recall"]
    assert (some.value, every.value) == (3 / 7, 1)
    assert some.low <= some.value <= some.high
    assert (every.low, every.high) == (1, 1)  # whatever is drawn, one finds all and the other nothing
    assert verdict(every) == "better"


def test_each_model_is_held_to_its_own_threshold_and_ap_to_none(tmp_path):
    folders = [evaluation(tmp_path / "one", 7), evaluation(tmp_path / "strict", 7, threshold=np.inf)]
    comparison = compare(folders, resamples=20)
    assert [item.value for item in comparison.numbers["test"]["f1"]] == [1, 0]
    assert [item.value for item in comparison.numbers["test"]["ap_101_points"]] == [1, 1]
    assert verdict(comparison.differences["test"]["f1"][0]) == "worse"
    assert verdict(comparison.differences["test"]["precision"][0]) == "cannot be told"


def test_models_are_called_by_the_last_part_of_their_folder_where_that_tells_them_apart(tmp_path):
    one, two, same = (evaluation(tmp_path / name, 1) for name in ("a/one", "a/two", "b/one"))
    assert [model.name for model in compare([one, two], resamples=5).models] == ["one", "two"]
    assert [model.name for model in compare([one, same], resamples=5).models] == [one, same]


def test_one_recording_decides_nothing(tmp_path):
    folders = []
    for name, found in (("none", []), ("all", [(0, 1, 100, 3, 200, 0.9)])):
        trial = made_trial(made_truths([(0, 0.0)], [(0, 1, 100, 3, 200)]), found)
        write_results(str(tmp_path / name), made_results([trial]), [trial])
        folders.append(str(tmp_path / name))
    comparison = compare(folders, resamples=20)
    assert {verdict(item) for (item,) in comparison.differences["test"].values()} == {"cannot be told"}
    assert "test: F1 of all +1.000 against none: cannot be told" in comparison.summary()
    write_comparison(comparison, str(tmp_path / "compare.html"))
    page = (tmp_path / "compare.html").read_text("utf-8")
    assert "nan" not in page.lower() and 'class="range"' not in page and "+1.000" in page


def test_verdicts():
    assert verdict(Interval(0.1, 0.01, 0.2, 0.95)) == "better"
    assert verdict(Interval(-0.1, -0.2, -0.01, 0.95)) == "worse"
    assert verdict(Interval(0.1, -0.01, 0.2, 0.95)) == "could be chance"


def test_evaluations_of_other_truths_are_refused(tmp_path):
    one = evaluation(tmp_path / "one", 3)
    other_start = evaluation(tmp_path / "start", 3, chunk_start_s=np.arange(RECORDINGS, dtype=float))
    other_name = evaluation(tmp_path / "name", 3, name="val")
    for other in (other_start, other_name):
        with pytest.raises(ConfigError, match="were not asked for the same boxes"):
            compare([one, one, other])


def test_how_a_sound_is_labelled_does_not_make_it_another(tmp_path):
    labels = tuple("frog" for _ in range(RECORDINGS - 1))
    folders = [evaluation(tmp_path / "one", 3), evaluation(tmp_path / "two", 3, event_labels=labels)]
    assert compare(folders, resamples=5).sets


def test_a_folder_that_is_no_evaluation_is_told(tmp_path):
    one = evaluation(tmp_path / "one", 3)
    with pytest.raises(StorageError, match="no results.json in here. Make it with mast evaluate"):
        compare([one, str(tmp_path)])
    for content in ("{", "{}", "[]"):
        broken = tmp_path / "broken"
        broken.mkdir(exist_ok=True)
        (broken / "results.json").write_text(content)
        with pytest.raises(StorageError, match="not what this MAST's evaluate writes"):
            compare([one, str(broken)])
    (broken / "results.json").write_text((tmp_path / "one" / "results.json").read_text())
    with pytest.raises(StorageError, match="there is no such table"):
        compare([one, str(broken)])


def test_the_verb_writes_a_page_in_which_names_stay_text(tmp_path):
    few, every = evaluation(tmp_path / "<b>few", 0), evaluation(tmp_path / "all", 7)
    results = json.loads((tmp_path / "all" / "results.json").read_text())
    results["model"]["location"] = "<script>alert(1)</script>"
    (tmp_path / "all" / "results.json").write_text(json.dumps(results))
    done = CliRunner().invoke(app, ["compare", few, every, "--out", str(tmp_path / "page.html")])
    assert done.exit_code == 0, done.output
    assert "test: F1 of all +1.000 (+1.000 to +1.000) against <b>few: better" in done.output
    page = (tmp_path / "page.html").read_text()
    assert "&lt;b&gt;few" in page and "<b>few" not in page and "<script" not in page
    assert 'class="small better"' in page and "In-domain test" in page
