"""`list`, `show`, `compare` and `table` on runs that are there already."""

from __future__ import annotations

import pytest

from harness.cli import main
from harness.commands.summary import in_words, mean_and_sd, summarise
from harness.config import resolve
from tests.commands.stored import TASKS, store_run

VANILLA = resolve(method="vanilla", env="webshop").options
"""As the mini scale has them: what a table's row without options asks for."""


@pytest.fixture(autouse=True)
def _toys(toys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def _good(number, seed):
    return (number + seed) % 4 != 0


def _poor(number, seed):
    return (number + 2 * seed) % 3 == 0


def _run(capsys, *command):
    code = main(command)
    told = capsys.readouterr()
    return code, told.out, told.err


def test_compare_prints_what_a_reader_needs(tmp_path, capsys):
    out = tmp_path / "runs"
    store_run(out, "toy-learner", _good)
    store_run(out, "toy-walker", _poor)
    code, told, _ = _run(capsys, "compare", "--a", "toy-learner", "--b", "toy-walker", "--env", "toy")
    assert code == 0
    for word in ("difference", "95% interval", "Holm p", "crossed", "discordant", "tasks", "seeds"):
        assert word in told
    assert "+41.7" in told


def test_methods_that_do_not_learn_are_compared_over_tasks(tmp_path, capsys):
    first = store_run(tmp_path / "runs", "toy-walker", _good, options={"history": 1})
    second = store_run(tmp_path / "runs", "toy-walker", _poor, options={"history": 2})
    command = ("compare", "--a", str(first), "--b", second.name)
    code, told, _ = _run(capsys, *command)
    assert code == 0
    assert "shift2" in told
    code, told, _ = _run(capsys, *command, "--test", "signflip")
    assert code == 0
    assert "signflip" in told
    code, told, _ = _run(capsys, *command, "--metric", "success", "--metric", "score", "--resamples", "100")
    assert code == 0
    assert "success, score" in told
    code, _, told = _run(capsys, *command, "--design", "crossed", "--test", "signflip")
    assert (code, told.count("\n")) == (2, 1)
    code, _, told = _run(capsys, "compare", "--a", f"{first}@4", "--b", second.name)
    assert code == 2
    assert "no rows of iteration 4" in told


def test_several_runs_of_a_method_are_listed_with_what_tells_them_apart(tmp_path, capsys):
    first = store_run(tmp_path / "runs", "toy-walker", _good, options={"history": 1})
    second = store_run(tmp_path / "runs", "toy-walker", _poor, options={"history": 2})
    code, _, told = _run(capsys, "show", "toy-walker")
    assert code == 2
    for folder, setting in ((first, "history=1"), (second, "history=2")):
        (line,) = [line for line in told.splitlines() if folder.name in line]
        assert setting in line
    assert "max_tokens" not in told


def test_a_run_that_never_began_does_not_stand_in_the_way(tmp_path, capsys):
    idle = store_run(tmp_path / "runs", "toy-walker", _good, options={"history": 1})
    (idle / "rows.jsonl").unlink()
    code, told, _ = _run(capsys, "show", "toy-walker")
    assert code == 0
    assert "no episode is stored yet" in told
    begun = store_run(tmp_path / "runs", "toy-walker", _poor, options={"history": 2})
    code, told, _ = _run(capsys, "show", "toy-walker")
    assert code == 0
    assert begun.name in told


def test_a_run_of_another_environment_is_not_taken(tmp_path, capsys):
    folder = store_run(tmp_path / "runs", "toy-walker", _good)
    code, _, told = _run(capsys, "compare", "--a", str(folder), "--b", str(folder), "--env", "webshop")
    assert code == 2
    assert "--env toy" in told


def test_a_run_is_not_compared_with_itself(tmp_path, capsys):
    """Difference 0, p 1: a table of that looks like a result."""
    folder = store_run(tmp_path / "runs", "toy-learner", _good, options={"iterations": 3}, iteration=3)
    for b in ("toy-learner", str(folder), f"{folder.name}@3"):
        code, _, told = _run(capsys, "compare", "--a", "toy-learner", "--b", b)
        assert code == 2
        assert "the same rows" in told
        assert "NAME@0" in told


def test_missing_verdicts_refuse_a_comparison_until_they_are_excluded(tmp_path, capsys):
    out = tmp_path / "runs"
    store_run(out, "toy-learner", _good)
    store_run(out, "toy-walker", lambda number, seed: None if (number, seed) == (4, 1) else _poor(number, seed))
    command = ("compare", "--a", "toy-learner", "--b", "toy-walker", "--env", "toy")
    code, _, told = _run(capsys, *command)
    assert code == 2
    assert TASKS[4] in told
    assert "--exclude-incomplete" in told
    code, told, _ = _run(capsys, *command, "--exclude-incomplete")
    assert code == 0
    assert TASKS[4] in told


def test_show_tells_the_whole_story_of_a_run(tmp_path, capsys):
    lost = (0, 0)
    folder = store_run(
        tmp_path / "runs", "toy-walker", lambda number, seed: None if (number, seed) == lost else _good(number, seed)
    )
    code, told, _ = _run(capsys, "show", str(folder))
    assert code == 0
    for word in ("made with: harness run", "created", "packages", "method: toy-walker", "infra_error 1", "3,600 in"):
        assert word in told
    assert "mean ± sd" in told


def test_options_are_listed_with_what_the_mini_scale_makes_of_them(capsys):
    code, told, _ = _run(capsys, "list", "options", "--method", "grpo")
    assert code == 0
    lines = {line.split()[0]: line for line in told.splitlines() if line.strip()}
    assert lines["option"].split()[2:5] == ["default", "--scale", "mini"]
    assert lines["iterations"].split()[1:4] == ["int", "150", "60"]
    assert lines["kl_beta"].split()[1:4] == ["float", "0.01", "0.0"]
    assert lines["clip_low"].split()[1:4] == ["float", "0.2", "eps_low"], "only where it differs"
    code, told, _ = _run(capsys, "list", "options")
    assert code == 0
    (line,) = [line for line in told.splitlines() if line.startswith("view ")]
    assert line.split()[-3:] != []
    assert "compact" in line


def test_lists(tmp_path, capsys):
    store_run(tmp_path / "runs", "toy-walker", _good)
    for kind, word in {
        "methods": "strata",
        "envs": "specification only",
        "models": "transformers",
        "presets": "mini",
        "options": "checkpoint_every",
        "runs": "0, 1, 2",
        "tables": "webshop",
    }.items():
        code, told, _ = _run(capsys, "list", kind)
        assert code == 0
        assert word in told
    code, told, _ = _run(capsys, "list", "options", "--method", "toy-learner")
    assert code == 0
    assert "rounds of explore and learn" in told


def test_a_plug_in_that_cannot_be_imported_does_not_hide_the_others(monkeypatch, capsys):
    from harness import registry

    monkeypatch.setitem(registry.BUILT_IN["methods"], "gone", "no.such:Thing")
    code, told, _ = _run(capsys, "list", "methods")
    assert code == 0
    assert "strata" in told
    assert "cannot be imported" in told


def test_a_table_shows_measured_beside_published_without_a_gap_it_may_not_print(tmp_path, capsys):
    folder = store_run(tmp_path / "runs", "vanilla", _good, env="webshop", options=VANILLA)
    code, told, _ = _run(capsys, "table", "webshop")
    assert code == 0
    assert "75.0" in told
    assert "91.1" in told
    assert "embedded data" in told
    for form, word in (("--latex", r"\toprule"), ("--markdown", "| Method"), ("--csv", "measured_mean")):
        code, told, _ = _run(capsys, "table", "webshop", form, "--a", str(folder))
        assert code == 0
        assert word in told


def test_a_table_refuses_two_runs_of_a_row_until_one_is_named(tmp_path, capsys):
    folder = store_run(tmp_path / "runs", "vanilla", _good, env="webshop", options=VANILLA)
    store_run(tmp_path / "runs", "vanilla", _poor, env="webshop", options=VANILLA, limit=12)
    code, _, told = _run(capsys, "table", "webshop")
    assert code == 2
    assert folder.name in told
    assert "limit=12" in told
    for choice in (("--a", folder.name), ("-o", "limit=12")):
        code, told, _ = _run(capsys, "table", "webshop", *choice)
        assert code == 0
        assert ("75.0" in told) == (choice[0] == "--a")


def test_means_are_over_verdicts_and_errors_are_no_zeros(tmp_path):
    from results.store import read_rows

    folder = store_run(tmp_path, "toy-walker", lambda number, seed: None if number < 6 else True, seeds=(0,))
    summary = summarise(read_rows(folder / "rows.jsonl"))
    assert summary.seeds[0].means["success"] == 1.0
    assert (summary.episodes, summary.without_verdict) == (12, 6)


def test_spread_is_over_seeds_with_one_degree_of_freedom_taken_off():
    assert mean_and_sd([0.0, 1.0]) == (0.5, pytest.approx(0.5**0.5))
    assert mean_and_sd([0.4]) == (0.4, None)
    assert in_words("success", [0.5, 0.5]) == "50.0 ± 0.0"
    assert in_words("steps", [4.0]) == "4.0"
