"""Every command in the docs runs and prints what the page shows; so do the Python and R programs."""

import ast
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest
import typer
from typer.testing import CliRunner

from mast.cli import app
from mast.embeddings.clustering import report
from mast.example_data import write_example
from mast.review.event_table import run_events
from mast.review.queues.basic import QueueItem, random_sample
from mast.runs.results import open_results
from tests.review.builders import answered, span, store
from tests.small_models import shrink

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("tutorial/*.md")),
    *sorted((ROOT / "docs").glob("howto/*.md")),
]


def run_python(program: str, names: dict[str, object]) -> None:
    """Run a page's Python with the names of its earlier blocks; fetch the results of DuckDB queries."""
    if "query_event" in program:
        event = run_events(open_results("found"))["event_id"][0].as_py()
        program = re.sub(r'query_event="\w+"', f'query_event="{event}"', program)
    for line in ast.parse(program).body:
        if isinstance(line, ast.Expr):
            value = eval(compile(ast.Expression(line.value), "page", "eval"), names)
            if isinstance(value, duckdb.DuckDBPyRelation):
                value.fetchall()
        else:
            exec(compile(ast.Module([line], []), "page", "exec"), names)


def run_r(program: str) -> None:
    """Run a page's R if R and the packages are installed."""
    required = " && ".join(f"requireNamespace('{name}')" for name in re.findall(r"library\((\w+)\)", program))
    check = f"quit(status = if ({required}) 0 else 1)"
    if shutil.which("Rscript") and not subprocess.run(["Rscript", "-e", check], check=False).returncode:
        subprocess.run(["Rscript", "-e", program], check=True)


PROGRAMS = ("python", "r")


def console_steps(text: str) -> list[tuple[str, list[str]]]:
    """Return (command, lines shown below it) of console blocks, of files to save, and of programs."""
    steps: list[tuple[str, list[str]]] = []
    for kind, title, body in re.findall(r"```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)```", text, re.DOTALL):
        if title:
            steps.append((f"save {title}", body.splitlines()))
        elif kind in PROGRAMS:
            steps.append((kind, body.splitlines()))
        elif kind == "console":
            for line in body.splitlines():
                if line.startswith("$ "):
                    steps.append((line[2:], []))
                elif line.strip() and steps:
                    steps[-1][1].append(line)
    return steps


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """A folder with the files of the pages: cards, an annotation table, Raven tables, a study."""
    write_example(tmp_path / "made")
    shutil.copytree(tmp_path / "made" / "card", tmp_path / "cards")
    shutil.copy(
        tmp_path / "cards" / "A1" / "20240511_073000.WAV", tmp_path / "cards" / "A1" / "20230510_073000.WAV"
    )
    shutil.copytree(tmp_path / "made" / "boxes", tmp_path / "raven_tables")
    table = (tmp_path / "raven_tables" / "A1" / "20240511_073000.WAV.Table.1.selections.txt").read_text(
        "utf-8"
    )
    (tmp_path / "expert.txt").write_text(table.replace("20240511_073000", "20230510_073000"), "utf-8")
    (tmp_path / "study.yaml").write_text("collections: {cards: {root: cards}}\n", "utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Shrink models: the pages test commands, not what a model learns."""
    shrink(monkeypatch)
    monkeypatch.setattr(report, "MAX_CARDS", 2)
    monkeypatch.setattr(report, "EXAMPLES", 2)


def squeezed(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


def run(command: str, environment: dict[str, str]) -> str:
    """Run a documented command without a shell; `export` lines only change the environment."""
    words = shlex.split(command, comments=True)
    if words[0] == "export":
        environment.update(
            word.split("=", 1) for word in words[1:] if "…" not in word and "example.org" not in word
        )
        return ""
    assert words[0] == "mast", f"only mast commands are allowed in the docs, not {words[0]}"
    done = CliRunner().invoke(app, words[1:], env=environment)
    assert done.exit_code == 0, f"$ {command}\n{done.output}{done.exception}"
    return done.stdout


NOT_OURS = ("pip install",)


SLOW = {"label-and-cluster", "self-train", "train-synthetic"}
"""Pages that train several models, one after the other."""


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=[pytest.mark.slow] if page.stem in SLOW else []) for page in PAGES],
    ids=lambda page: page.stem,
)
def test_every_command_of_a_page_runs_and_prints_what_the_page_says(page, desk, request):
    steps = console_steps(page.read_text("utf-8"))
    if "s3://my-archive" in str(steps):
        put_cards_into_bucket(request, desk)
    if "mast init" in str(steps):
        (desk / "study.yaml").unlink()
    environment, names = {"COLUMNS": "100"}, {}
    for command, lines in steps:
        if command.startswith("save "):
            Path(command.removeprefix("save ")).write_text("\n".join(lines) + "\n", "utf-8")
        elif command == "python":
            run_python("\n".join(lines), names)
        elif command == "r":
            run_r("\n".join(lines))
        elif not command.startswith(NOT_OURS):
            if command.startswith("mast estimate-precision"):
                review(desk / "work" / "events")
            printed = squeezed(run(command, environment))
            for line in lines:
                assert squeezed(line) in printed, f"$ {command}\nshould print: {line}\nprinted: {printed}"


def review(events: Path) -> None:
    """Play the person whom a page leaves to work for a while: an audit, and ten seconds from end to end."""
    table = run_events(open_results(str(events)))
    rows = table.to_pylist()
    middle = sorted(row["score"] for row in rows)[len(rows) // 2]
    truth = {row["event_id"]: row["score"] >= middle for row in rows}
    held = answered(table, random_sample(table, {}, 40), truth, "random-sample")
    name = rows[0]["recording_id"]
    early = [QueueItem(name, 0, 10, (row["event_id"],), "") for row in rows if row["recording_id"] == name]
    held = answered(table, early, truth, "stratified-minutes", held)
    store(events / "review.sqlite", [*held.values(), span(name, 0.0, 10.0)])


def put_cards_into_bucket(request, desk):
    import boto3

    request.getfixturevalue("bucket")
    client = boto3.client("s3")
    client.create_bucket(Bucket="my-archive")
    for path in sorted((desk / "cards").rglob("*.WAV")):
        client.upload_file(str(path), "my-archive", f"2023/{path.relative_to(desk / 'cards').as_posix()}")


def commands_in(text: str) -> list[str]:
    """Return every line of a page that begins with mast, in any block; a line that ends with \\ continues."""
    joined = re.sub(r"\\\n\s*", " ", text)
    return re.findall(r"^[ \t]*(?:\$ )?(mast [a-z].*)$", joined, re.MULTILINE)


@pytest.mark.parametrize(
    "page", [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md"], ids=lambda page: page.stem
)
def test_every_command_of_every_page_exists_with_its_options(page, monkeypatch):
    """Check also the commands that no test can run: on a cluster, with a public model, for a team."""
    for check in (
        "mast.models.location.require_model",
        "mast.runs.layout.require_run",
        "mast.config.load_study",
    ):
        monkeypatch.setattr(
            check, lambda location: None
        )  # the pages' models, runs and studies do not exist here
    commands = typer.main.get_command(app)
    for command in commands_in(page.read_text("utf-8")):
        for one in command.split(" && "):
            _, name, *words = shlex.split(one.replace("…", "x"), comments=True)
            with commands.make_context("mast", [name, *words]) as context:
                chosen = commands.get_command(context, name)
                assert chosen is not None, one
                chosen.make_context(name, words, context)  # raises if an option or argument is wrong


def test_pages_have_commands_at_all():
    assert sum(len(console_steps(page.read_text("utf-8"))) for page in PAGES) > 15


@pytest.mark.parametrize("tool", ["reference", "doc_tables"])
def test_generated_pages_follow_from_the_code_and_the_results(tool):
    check = subprocess.run(
        [sys.executable, "-m", f"tools.{tool}", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert check.returncode == 0, check.stderr


def test_the_paper_map_leads_to_things_that_exist():
    page = (ROOT / "docs" / "paper_map.md").read_text("utf-8")
    tests = "\n".join(path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    for name in re.findall(r"`(test_\w+)`", page):
        assert f"def {name}(" in tests, name
    for name in re.findall(r"`(tests/[\w/]+\.py)`", page):
        assert (ROOT / name).is_file(), name
    sources = "\n".join(path.read_text("utf-8") for path in (ROOT / "src").rglob("*.py"))
    for name in re.findall(r"`(?:\w+\.)+(\w+)`", re.sub(r"`tests/[^`]+`", "", page)):
        found = re.search(rf"(class|def) {name}\b", sources) or list((ROOT / "src").rglob(f"{name}.py"))
        assert found, name
