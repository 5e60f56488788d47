"""`doctor`: findings are printed, and a failed one is the exit code."""

from __future__ import annotations

import pytest

from harness import registry
from harness.cli import main


@pytest.fixture(autouse=True)
def _toys(toys):
    """Toys are registered."""


def test_an_environment_is_checked(capsys):
    assert main(["doctor", "--env", "toy"]) == 0
    told = capsys.readouterr().out
    assert "pass  the solution scores 1" in told
    assert "none failed" in told
    assert main(["doctor", "--env", "toy", "--view", "full"]) == 0


def test_a_fault_exits_1_and_is_named(monkeypatch, capsys):
    monkeypatch.setitem(registry.BUILT_IN["envs"], "half", "tests.conformance.faulty_envs:HalfScore")
    assert main(["doctor", "--env", "half"]) == 1
    told = capsys.readouterr().out
    assert "fail  the solution scores 1: the solution of" in told
    assert "2 of 18 checks failed" in told or "1 of 18 checks failed" in told


def test_a_method_is_checked_on_an_environment_with_a_model(capsys):
    assert main(["doctor", "--method", "toy-learner", "--env", "toy", "--model", "toy"]) == 0
    assert "pass  a whole iteration" in capsys.readouterr().out


def test_a_model_is_checked(capsys):
    assert main(["doctor", "--model", "toy:0.7", "--env", "toy"]) == 0
    assert "pass  log-probabilities are those of what was sampled" in capsys.readouterr().out


def test_a_method_that_the_model_cannot_serve_says_so(capsys):
    assert main(["doctor", "--method", "grpo", "--env", "toy", "--model", "toy"]) == 1
    assert "the back end 'toy' cannot" in capsys.readouterr().out


def test_the_installation_is_checked(monkeypatch, capsys):
    assert main(["doctor"]) == 0
    told = capsys.readouterr().out
    for word in ("python", "package torch", "method strata", "env toy", "model transformers", "mini policy of toy"):
        assert word in told
    monkeypatch.setitem(registry.BUILT_IN["methods"], "gone", "no.such:Thing")
    assert main(["doctor"]) == 1
    assert "fail  method gone" in capsys.readouterr().out


@pytest.mark.parametrize("option", [("--env-data", "nowhere"), ("--view", "wide")])
def test_bad_options_of_a_check_are_findings_or_errors_but_no_tracebacks(option, capsys):
    assert main(["doctor", "--env", "webshop", *option]) in (1, 2)
    assert "Traceback" not in capsys.readouterr().err
