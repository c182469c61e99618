"""Proposed commands can be pasted into a shell."""

import shlex
from pathlib import Path

from mast.runs.outcome import Outcome
from mast.study.commands import mast_command


def test_plain_names_are_unchanged():
    assert (
        mast_command("scan", Path("work/study.yaml"), "--run-name", 3)
        == "mast scan work/study.yaml --run-name 3"
    )


def test_names_with_special_characters_are_quoted():
    arguments = ("review", "my card/it's $5; really", "")
    assert shlex.split(mast_command(*arguments)) == ["mast", *arguments]


def test_a_run_quotes_its_folder_in_its_next_commands():
    hint = Outcome("my events", "finished").next_step()
    assert "mast report 'my events' summarises" in hint and "mast review 'my events' opens" in hint
