"""The command line answers at once: help imports nothing heavy, and offers exactly the verbs that there are."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

from harness.cli import main

HEAVY = ("torch", "transformers", "pandas", "scipy", "matplotlib", "duckdb", "numpy", "rich")
VERBS = ("run", "plan", "list", "show", "compare", "table", "sweep", "prepare", "doctor")


@pytest.mark.parametrize("command", [(), *((verb,) for verb in VERBS), ("prepare", "policy")])
def test_help_imports_nothing_heavy(command):
    code = (
        "import sys; from harness.cli import main; "
        f"main({[*command, '--help']!r}); print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_help_takes_less_than_three_tenths_of_a_second():
    """Processor time, which the neighbours on a busy machine do not lengthen; the best of three."""
    taken = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "harness", "--help"], capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        taken.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(taken) < 0.3


def test_there_are_no_verbs_without_code(capsys):
    assert main(["--help"]) == 0
    listed = capsys.readouterr().out.partition("Commands:")[2].split("\n")
    assert sorted(line.split()[0] for line in listed if line.strip()) == sorted(VERBS)


def test_without_a_verb_it_prints_help(capsys):
    assert main([]) == 0
    assert "Commands:" in capsys.readouterr().out


def test_version(capsys):
    from harness import __version__

    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == __version__


def test_a_reader_that_goes_away_is_no_error_of_ours():
    command = [sys.executable, "-m", "harness", "--help"]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert running.stdout is not None
    assert running.stderr is not None
    running.stdout.close()
    told = running.stderr.read()
    assert running.wait() == 1
    assert told == ""
