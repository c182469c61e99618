"""Commands that are proposed can be pasted into a shell."""

import shlex
from pathlib import Path

from mast.detection.running import Outcome
from mast.study.commands import mast_command


def test_plain_names_are_left_as_they_are():
    assert mast_command("scan", Path("work/study.yaml"), "--name", 3) == "mast scan work/study.yaml --name 3"


def test_names_that_a_shell_would_take_apart_come_back_whole():
    words = ("review", "my card/it's $5; really", "")
    assert shlex.split(mast_command(*words)) == ["mast", *words]


def test_a_run_proposes_its_folder_as_one_word():
    told = Outcome("my events", "finished").next_step()
    assert "mast report 'my events' tells" in told and "mast review 'my events' lets" in told
