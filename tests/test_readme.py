"""What the documents tell a stranger to type must exist and, where it is quick, work."""

import re
import shlex
from pathlib import Path

import pytest
import typer

from envs.specs import SPECS
from harness import registry
from harness.cli import app, main
from tests.documents import ROOT, commands

DOCUMENTS = ("README.md", "CONTRIBUTING.md")
HARNESS = [
    (document, command)
    for document in DOCUMENTS
    for command in commands(document)
    if re.match(r"(python -m )?harness ", command)
]
TOLD = [command for document, command in HARNESS if document == "README.md"]


def arguments(command: str) -> list[str]:
    words = shlex.split(command)
    return words[words.index("harness") + 1 :]


@pytest.mark.parametrize(("document", "command"), HARNESS)
def test_verbs_and_options_exist(document, command):
    """Parsed by the real command line, types and required options included; nothing is run."""
    group = typer.main.get_command(app)
    verb, *rest = arguments(command)
    assert verb in group.commands, f"{document}: there is no verb {verb!r}"
    group.commands[verb].make_context(verb, rest, parent=group.make_context("harness", [], resilient_parsing=True))


def quick(command: str) -> bool:
    words = arguments(command)
    return words[0] == "plan" or (words[0] == "list" and words[1] != "runs") or "--dry-run" in words


@pytest.mark.parametrize("command", list(filter(quick, TOLD)))
def test_quick_commands_work(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(arguments(command)) == 0
    assert capsys.readouterr().out
    assert not list(tmp_path.iterdir())  # looking leaves nothing behind


def test_what_is_installed_is_there():
    others = [command for command in commands("README.md") if command not in TOLD]
    assert others == [
        "python3.11 -m venv .venv",
        ". .venv/bin/activate",
        "pip install -c constraints.txt -e .",
        "pip install -c constraints.txt tox",
        "tox",
    ]
    for name in ("constraints.txt", "tox.ini", "pyproject.toml"):
        assert (ROOT / name).is_file()


def test_ci_runs_the_second_line():
    script = (ROOT / ".ci" / "run").read_text()
    assert "-c constraints.txt tox" in script
    assert "/bin/tox" in script


def rows(heading: str) -> list[list[str]]:
    """Cells of the first table after a heading of the README."""
    text = (ROOT / "README.md").read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_methods_of_the_readme_are_the_registered_ones():
    seeds = {"independent": "a repeated sample", "online": "a pass over the tasks", "trained": "a training run"}
    built_in = registry.BUILT_IN["methods"]
    said = {cells[0].strip("`"): cells[2] for cells in rows("Methods")}
    assert said == {name: seeds[registry.load_method(name).coupling] for name in built_in}


def test_environments_of_the_readme_are_the_known_ones():
    said = {}
    for name, state, tests, steps in rows("Environments"):
        said[name.strip("`")] = (state.startswith("**runs**"), tests, steps)
    known = {}
    for name in {*registry.BUILT_IN["envs"], *SPECS}:
        spec = registry.env_spec(name)
        count = spec.counts["test"]
        known[name] = (name in registry.BUILT_IN["envs"], "unknown" if count is None else str(count), str(spec.horizon))
    assert said == known


@pytest.mark.parametrize("document", [*DOCUMENTS, "PAPERS.md", "docs/architecture.md", "docs/statistics.md"])
def test_links_lead_somewhere(document):
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", (ROOT / document).read_text()):
        assert ((ROOT / document).parent / target).exists(), f"{document} links to {target}"


@pytest.mark.slow
def test_the_readme_story(tmp_path: Path, monkeypatch, capsys):
    """run, compare, table as the README tells it, cut to seconds: two seeds, two iterations, twelve goals."""
    monkeypatch.chdir(tmp_path)
    for method in ("vanilla", "grpo", "strata"):
        short = ["--seeds", "2", "--limit", "12", *(["-o", "iterations=2"] if method != "vanilla" else [])]
        assert main(["run", "--method", method, "--env", "webshop", *short]) == 0
    for words in map(arguments, TOLD):
        if words[0] in ("compare", "table") or words[:2] == ["list", "runs"]:
            assert main(words) == 0, words
            assert capsys.readouterr().out
