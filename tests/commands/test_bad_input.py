"""Bad input is one line on stderr with a way out, exit code 2, no traceback, and nothing written."""

from __future__ import annotations

import pytest

from harness.cli import main

TOY = ("--env", "toy", "--model", "toy")
WALK = ("run", "--method", "toy-walker", *TOY)

CASES = {
    "no such verb": (("rnu",), "run"),
    "no such option": (("run", "--metod", "x"), "--method"),
    "a required option is missing": (("run", "--env", "toy"), "--method"),
    "unknown method": (("run", "--method", "strta", "--env", "webshop"), 'did you mean "strata"'),
    "unknown environment": (("run", "--method", "vanilla", "--env", "webshp"), 'did you mean "webshop"'),
    "an environment without code": (("run", "--method", "vanilla", "--env", "alfworld"), "specification only"),
    "unknown model": (("run", "--method", "toy-walker", "--env", "toy", "--model", "toi"), 'did you mean "toy"'),
    "two models for a role": ((*WALK, "--model", "toy:0.9"), "keep one"),
    "unknown option of the method": ((*WALK, "-o", "temperatur=1"), 'did you mean "temperature"'),
    "an option without a value": ((*WALK, "-o", "temperature"), "key=value"),
    "an option out of range": ((*WALK, "-o", "temperature=-1"), "temperature=-1"),
    "an option that the back end cannot honour": (("run", "--method", "grpo", *TOY, "--workers", "1"), "--model"),
    "a policy that only answers": (("run", "--method", "grpo", "--env", "toy", "--model", "scripted:left"), "cannot"),
    "no seeds": ((*WALK, "--seeds", "0"), "at least 1"),
    "a seed twice": ((*WALK, "--seeds", "1,1"), "twice"),
    "seeds in words": ((*WALK, "--seeds", "three"), "count"),
    "no workers": ((*WALK, "--workers", "0"), "1"),
    "unknown scale": ((*WALK, "--scale", "midi"), 'did you mean "mini"'),
    "unknown view": ((*WALK, "--view", "wide"), "full, compact"),
    "unknown split": ((*WALK, "--split", "tset"), 'did you mean "test"'),
    "unknown task": ((*WALK, "--tasks", "test-9-9"), "test-"),
    "no tasks left": ((*WALK, "--limit", "0"), "--limit"),
    "unknown perturbation": ((*WALK, "--perturb", "typos"), "typos"),
    "an executor that is not there yet": ((*WALK, "--executor", "ray"), "--executor local"),
    "unknown executor": ((*WALK, "--executor", "cloud"), "local"),
    "unknown metric": ((*WALK, "--metric", "succes"), 'did you mean "success"'),
    "unknown preset": ((*WALK, "--preset", "papr"), 'did you mean "paper"'),
    "a config file that is not there": ((*WALK, "--config", "nowhere.yaml"), "nowhere.yaml"),
    "data that are not there": ((*WALK, "--env-data", "nowhere"), "nowhere"),
    "an output folder that cannot be written": ((*WALK, "--out", "/proc/x"), "--out"),
    "no store": (("list", "runs", "--out", "nowhere"), "nowhere"),
    "unknown kind of list": (("list", "method"), 'did you mean "methods"'),
    "no run of that name": (("show", "toy-walker"), "runs"),
    "no run to compare": (("compare", "--a", "strata", "--b", "grpo", "--env", "webshop"), "runs"),
    "unknown design": (("compare", "--a", "x", "--b", "y", "--design", "crosed"), 'did you mean "crossed"'),
    "unknown test": (("compare", "--a", "x", "--b", "y", "--test", "shift3"), 'did you mean "shift'),
    "unknown table": (("table", "webshp"), "webshop"),
    "two formats": (("table", "webshop", "--latex", "--csv"), "give one"),
    "nothing to check": (("doctor", "--env", "toyy"), 'did you mean "toy"'),
}


@pytest.fixture(autouse=True)
def _toys(toys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(("command", "way_out"), CASES.values(), ids=CASES.keys())
def test_bad_input_is_one_line_with_a_way_out(command, way_out, tmp_path, capsys):
    assert main(command) == 2
    told = capsys.readouterr()
    assert told.err.startswith("error: ")
    assert told.err.count("\n") == 1
    assert way_out in told.err
    assert "Traceback" not in told.err + told.out
    assert not list(tmp_path.iterdir()), "nothing is written"


@pytest.mark.parametrize(("missing", "content"), [(True, ""), (False, '{"asin": "B1"}'), (False, "[{")])
def test_missing_or_corrupt_official_data_name_the_file(missing, content, tmp_path, capsys):
    folder = tmp_path / "data"
    folder.mkdir()
    if not missing:
        (folder / "items_shuffle_1000.json").write_text(content)
    code = main(["run", "--method", "vanilla", "--env", "webshop", "--model", "toy", "--env-data", str(folder)])
    told = capsys.readouterr().err
    assert code == 2
    assert told.startswith("error: ")
    assert told.count("\n") == 1


def test_debug_shows_the_traceback(capsys):
    from harness.errors import InputError

    with pytest.raises(InputError, match="did you mean"):
        main([*WALK, "--split", "tset", "--debug"])


def test_a_fault_of_the_program_is_not_disguised_as_bad_input(monkeypatch):
    def broken(*arguments, **options):
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("harness.commands.options.resolve", broken)
    with pytest.raises(ZeroDivisionError):
        main([*WALK])
