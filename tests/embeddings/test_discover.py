"""From vectors to groups, a page to look at and to listen to, and tables for an expert."""

import csv
import re
from base64 import b64encode
from hashlib import sha256
from pathlib import Path

import lance
import numpy as np
import pytest
from typer.testing import CliRunner

from mast.annotations import read_annotations
from mast.cli import app
from mast.detection.found import open_found
from mast.embeddings import discover as verb
from mast.embeddings import discover_page as discover_page_module
from mast.embeddings import discovery
from mast.embeddings.discover import discover, take
from mast.embeddings.discover_page import discover_page
from mast.embeddings.examples import open_known
from mast.errors import ConfigError, StorageError
from mast.storage import files_below
from tests.detection.runs import write_run
from tests.embeddings.runs import made_table, rows_of
from tests.embeddings.test_names import named_run  # noqa: F401


def numbers_of(run) -> dict[str, int]:
    found = open_found(run)
    return {name: number for part in found.numbers for name, number in found.clusters(part).items()}


def test_a_run_without_sounds_has_no_groups_and_a_page_that_says_so(tmp_path):
    run = write_run(tmp_path / "found", [])
    dataset = made_table(f"{run}/embeddings.lance", np.zeros((0, 8), np.float16))
    found = discover(run)
    assert (found.events, found.alone, len(found.clusters)) == (0, 0, 0)
    assert "No sounds are enough alike" in discover_page(found, dataset)
    assert found.enough is None and "--least" not in found.summary()


def test_before_anything_is_grouped_nothing_can_be_taken(run):
    if not Path(run, "clusters").exists():
        with pytest.raises(StorageError, match="without --take first"):
            take(run, [1], "raven")


@pytest.fixture(autouse=True)
def few_tiles(monkeypatch):
    monkeypatch.setattr(discover_page_module, "SHOWN", 3)
    monkeypatch.setattr(discover_page_module, "EXAMPLES", 4)


@pytest.fixture(scope="module")
def discovered(named_run):  # noqa: F811
    run, examples = named_run
    return run, examples, discover(run, open_known(run, examples), least=2)


def test_every_sound_is_in_a_group_or_in_none_and_the_table_tells_of_each_group(discovered):
    run, _, found = discovered
    every, numbers = rows_of(f"{run}/embeddings.lance"), numbers_of(run)
    assert found.events == len(every) == len(numbers) + found.alone and len(found.clusters) > 1
    with Path(run, "clusters", "clusters.csv").open(encoding="utf-8", newline="") as file:
        told = list(csv.DictReader(file))
    assert [int(row["cluster"]) for row in told] == [item.number for item in found.clusters]
    for row, item in zip(told, found.clusters, strict=True):
        own = {name for name, number in numbers.items() if number == item.number}
        assert int(row["sounds"]) == item.sums.events == len(own)
        assert set(row["exemplars"].split()) <= own and row["nearest_name"] in ("high", "low")
    worth = [(not item.sums.is_candidate, -item.sums.worth) for item in found.clusters]
    assert worth == sorted(worth)
    assert f"{len(found.clusters):,} groups" in found.summary()


def test_the_page_has_a_point_for_each_tile_and_runs_no_other_script(discovered):
    run, _, found = discovered
    page = discover_page(found, lance.dataset(f"{run}/embeddings.lance"))
    tiles = re.findall(r'<figure class="tile" id="([^"]+)"', page)
    points = re.findall(r'data-tile="([^"]+)"', page.partition("<script>")[0])
    assert sorted(tiles) == sorted(points) and any(name.startswith("x-") for name in tiles)
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    allowed = b64encode(sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{allowed}'" in page and "http://" not in page and "https://" not in page


def test_more_sounds_than_are_compared_one_by_one_take_the_way_over_cells(discovered, monkeypatch):
    run, _, _ = discovered
    monkeypatch.setattr(verb, "MOST_EVENTS", 20)
    monkeypatch.setattr(discovery, "CELLS", 8)
    found = discover(run)
    assert found.events == len(numbers_of(run)) + found.alone
    assert all(item.sums.mean(item.sums.novelty) == 1 for item in found.clusters)  # nothing is known


def test_who_asks_for_groups_too_large_is_told_a_number_that_makes_some(discovered):
    run, _, found = discovered
    too_many = discover(run, least=found.events)
    assert not too_many.clusters and f"With --least {too_many.enough} there are groups." in too_many.summary()
    assert discover(run, least=too_many.enough).clusters


def test_chosen_groups_go_to_an_expert_and_nothing_else(discovered, tmp_path):
    run, examples, _ = discovered
    again = discover(run, open_known(run, examples), least=2)
    numbers = numbers_of(run)
    wanted = [again.clusters[0].number, again.clusters[-1].number]
    exported = take(run, wanted, "raven", str(tmp_path / "raven"))
    back = read_annotations(tmp_path / "raven", "raven")
    assert {event.label for event in back.events} == {f"group {number}" for number in wanted}
    assert len(back.events) == exported.events == sum(number in wanted for number in numbers.values())
    with pytest.raises(ConfigError, match="no such group"):
        take(run, [999], "raven", str(tmp_path / "none"))


def test_groups_that_were_taken_before_and_those_of_another_grouping_are_not_mixed_in(discovered):
    run, examples, _ = discovered
    numbers = [item.number for item in discover(run, open_known(run, examples), least=2).clusters]
    folder = Path(run, "clusters", "raven")
    for number in (numbers[0], numbers[-1]):
        take(run, [number], "raven")
        assert {event.label for event in read_annotations(folder, "raven").events} == {f"group {number}"}
    with pytest.raises(ConfigError, match="no such group"):
        take(run, [999], "raven")
    assert read_annotations(folder, "raven").events
    take(run, numbers, "camtrap-dp")
    discover(run, open_known(run, examples), least=3)
    assert files_below(str(folder)) == files_below(str(folder.with_name("camtrap-dp"))) == []


def test_of_a_grouping_that_was_stopped_nothing_can_be_taken(discovered, monkeypatch, tmp_path):
    run, examples, _ = discovered
    write_part = verb._write_part

    def killed(*part):
        write_part(*part)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(verb, "_write_part", killed)
        discover(run, open_known(run, examples), least=3)
    with pytest.raises(StorageError, match="without --take first"):
        take(run, [1], "raven", str(tmp_path / "raven"))
    discover(run, open_known(run, examples), least=2)
    take(run, [1], "raven", str(tmp_path / "raven"))


def test_the_command_groups_and_takes(discovered):
    run, examples, _ = discovered
    done = CliRunner().invoke(app, ["discover", run, "--examples", examples, "--least", "2"])
    assert done.exit_code == 0, done.output
    assert "may be new" in done.stdout and Path(run, "clusters", "discover.html").exists()
    done = CliRunner().invoke(app, ["discover", run, "--take", "1", "--to", "csv"])
    assert done.exit_code == 0 and Path(run, "clusters", "csv", "events.csv").exists()
    done = CliRunner().invoke(app, ["discover", run, "--take", "one"])
    assert "such as 3,7" in str(done.exception)
