"""`harness sweep` and the tables of variants that it ends in."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.cli import main
from harness.config import resolve
from harness.errors import RunError
from reports.spec import load_spec, specs
from tests.commands.stored import store_run
from tests.toys import ToyLearner

SPEC = """
name: toy
title: Toy
env: toy
reference: long
seeds: 2
rows:
  - {method: toy-walker, label: Walker}
  - {name: long, method: toy-learner, label: Long, options: {iterations: 2}}
  - {name: short, method: toy-learner, label: Short, options: {iterations: 1}}
  - {name: same, method: toy-learner, label: Same, options: {iterations: 2, rollouts: 4}}
columns:
  - {metric: success, label: Succ.}
"""
SWEEP = ("sweep", "toy.yaml", "--model", "toy", "--workers", "1", "-o", "rollouts=4")


@pytest.fixture(autouse=True)
def _toys(toys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("toy.yaml").write_text(SPEC.replace(", rollouts: 4", ""))


def run(capsys, *command):
    code = main([str(word) for word in command])
    told = capsys.readouterr()
    return code, told.out, told.err


def folders():
    return sorted(path.name for path in Path("runs").iterdir())


def made_with(name):
    return json.loads((Path("runs") / name / "manifest.json").read_text())["argv"]


def line(told, label):
    """The first line of a row in a table."""
    return next(text for text in told.splitlines() if text.strip().startswith(label))


def test_a_sweep_runs_every_configuration_once_and_prints_the_table(capsys):
    code, told, _ = run(capsys, *SWEEP)
    assert code == 0
    assert len(folders()) == 3, "two rows have one configuration"
    assert "long/same on toy, seed 0" in told
    for label in ("Walker", "Short", "Same"):
        assert line(told.partition("Against Long")[2], label)
    assert "over 2 seeds" in told, "the table's own number"
    assert "3 comparisons" in told
    before = {path: path.read_bytes() for path in Path("runs").rglob("rows.jsonl")}
    code, again, _ = run(capsys, *SWEEP)
    assert code == 0
    assert told.endswith(again), "the table, and no progress before it"
    assert {path: path.read_bytes() for path in Path("runs").rglob("rows.jsonl")} == before


def test_a_run_of_a_sweep_is_the_one_that_its_command_makes(capsys):
    assert run(capsys, *SWEEP, "--seeds", "0,3")[0] == 0
    swept = folders()
    for name in swept:
        argv = made_with(name)
        assert argv[:2] == ["harness", "run"]
        code, told, _ = run(capsys, *argv[1:], "--dry-run")
        assert code == 0
        assert f"run          {name}" in told
        assert told.count("0 to play") == 2, "both seeds are stored"
    assert any("iterations=1" in made_with(name) for name in swept)


def test_a_dry_run_lists_runs_and_what_is_missing_and_writes_nothing(tmp_path, capsys):
    code, told, _ = run(capsys, *SWEEP, "--dry-run", "--seeds", "3")
    assert code == 0
    assert not Path("runs").exists()
    assert "3 runs, 105 evaluation episodes to play" in told, "7 tasks, 3 seeds, 1 + 2 + 2 evaluations"
    (command,) = [text for text in told.splitlines() if "iterations=1" in text]
    assert "--seeds 3" in command
    assert run(capsys, *shlex.split(command)[1:], "--workers", "1")[0] == 0
    _, told, _ = run(capsys, *SWEEP, "--dry-run", "--seeds", "4")
    assert [line(told, "short on toy").split()[-2:]] == [["3", "14"]]
    assert line(told, "long/same on toy").split()[-5:] == ["0,", "1,", "2,", "3", "56"]


def test_rows_are_chosen_by_name_and_the_table_keeps_what_is_there(capsys):
    assert run(capsys, *SWEEP, "--rows", "short")[0] == 0
    assert len(folders()) == 1
    code, told, _ = run(capsys, *SWEEP, "--rows", "long,toy-walker")
    assert code == 0
    assert len(folders()) == 3
    assert "not run" not in told
    code, told, _ = run(capsys, *SWEEP, "--rows", "toy-walker", "--seeds", "3")
    assert (code, line(told, "Short").split()[-2:]) == (0, ["not", "run"])
    assert "14 episodes of these seeds are missing" in " ".join(told.split()), "two evaluations of the third seed"
    code, _, err = run(capsys, *SWEEP, "--rows", "shrt")
    assert (code, 'did you mean "short"' in err) == (2, True)


def test_a_failing_run_is_reported_and_the_rest_is_done(monkeypatch, capsys):
    plain = ToyLearner.learn

    async def learn(self, experiences, arena, iteration):
        if self.iterations == 1 and self.seed == 1:
            raise RunError("the loss is not a number")
        return await plain(self, experiences, arena, iteration)

    with monkeypatch.context() as patch:
        patch.setattr(ToyLearner, "learn", learn)
        code, told, _ = run(capsys, *SWEEP)
    assert code == 1
    assert "short on toy, seed 1 failed: the loss is not a number" in told
    assert told.splitlines()[-2] == "failed: short on toy, seed 1: the loss is not a number"
    assert line(told, "Short").split()[-2:] == ["not", "run"]
    assert "2 comparisons" in told, "the others are compared"
    assert run(capsys, *SWEEP)[0] == 0


def test_other_tables_and_options(capsys):
    code, _, err = run(capsys, "sweep", "strata_table2", "--seeds", "1", "--dry-run")
    assert (code, "nothing to run" in err, '"sciworld" cannot be played' in err) == (2, True, True)
    code, told, _ = run(capsys, "sweep", "strata_table3", "--env", "webshop", "--dry-run")
    assert (code, "4 runs, 20000 evaluation episodes" in told, "left out" in told) == (0, True, False)
    code, told, _ = run(capsys, "sweep", "strata_table3", "--dry-run")
    assert (code, 'environment "alfworld" cannot be played here' in told) == (0, True)
    code, _, err = run(capsys, "sweep", "strata_table3", "--env", "alfwrld")
    assert (code, 'did you mean "alfworld"' in err) == (2, True)
    code, _, err = run(capsys, "sweep", "strata_table33")
    assert (code, "unknown table" in err) == (2, True)
    code, told, _ = run(capsys, *SWEEP, "--dry-run", "--preset", "paper", "--scale", "paper")
    assert (code, "--scale paper --model toy --preset paper" in told) == (0, True)


def test_the_paper_scale_is_another_run(capsys):
    names = [
        set(re.findall(r"toy-\w+-toy-\w{12}", run(capsys, *SWEEP, "--dry-run", "--scale", scale)[1]))
        for scale in ("mini", "paper")
    ]
    assert [len(found) for found in names] == [3, 3]
    assert not names[0] & names[1]


@pytest.mark.parametrize("workers", ["1", pytest.param("2", marks=pytest.mark.slow)])
def test_ctrl_c_exits_130_and_the_same_sweep_goes_on(workers, tmp_path):
    Path("toy.yaml").write_text(SPEC.replace("iterations: 2}", "iterations: 3000}"))
    running = subprocess.Popen(
        [sys.executable, "-m", "harness", "sweep", "toy.yaml", "--model", "toy", "--workers", workers],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        assert running.stdout is not None
        while "long on toy, seed 0" not in running.stdout.readline():
            time.sleep(0.01)
        os.killpg(running.pid, signal.SIGINT)
        _, told = running.communicate(timeout=60)
    finally:
        running.kill()
    assert running.returncode == 130
    assert told.strip() == "interrupted; what was finished is kept, and the same command resumes"
    assert not list(Path("runs").glob("*/run.lock.json"))


# -- the table ----------------------------------------------------------------------------------------------------


def good(number, seed):
    return (number + seed) % 4 != 0


def poor(number, seed):
    return (number + 2 * seed) % 3 == 0


def strata(out, success, scale="mini", **options):
    overrides = [f"{name}={json.dumps(value)}" for name, value in options.items()]
    complete = resolve(method="strata", env="webshop", scale=scale, overrides=overrides).options
    return store_run(
        out, "strata", success, env="webshop", options=complete, scale=scale, iteration=complete["iterations"]
    )


def test_a_table_tells_variants_of_one_method_apart(tmp_path, capsys):
    out = tmp_path / "runs"
    runs = [strata(out, good), strata(out, poor, diversity=False), strata(out, good, judgment=False)]
    other = strata(out, poor, oversampling=3)
    code, told, _ = run(capsys, "table", "strata_table3", "--csv")
    assert code == 0
    shown = {text.split(",")[0]: text.split(",")[7] for text in told.splitlines() if ",webshop,success," in text}
    assert shown["strata"] == shown["diverse"] == "75.0"
    assert shown["judgment"].startswith("33.3")
    assert shown["vanilla"] == ""
    code, told, _ = run(capsys, "table", "strata_table3")
    told = " ".join(told.split())
    assert "Not run on webshop: Vanilla." in told
    assert "harness sweep strata_table3 --env webshop --rows vanilla" in told
    assert "alfworld cannot be played here yet" in told
    assert all(folder.name in told.replace(" ", "") for folder in runs)
    assert other.name not in told.partition("Runs:")[2]
    assert "mini policy" not in told, "the stored policy is called toy"
    assert "Not comparable" in told
    code, told, _ = run(capsys, "table", "strata_table4", "--csv")
    shown = {text.split(",")[0]: text.split(",")[7] for text in told.splitlines() if ",webshop,success," in text}
    assert shown["sigma1"].startswith("33.3"), "one run in two tables"


def test_runs_of_other_options_are_named_and_not_mixed_in(tmp_path, capsys):
    folder = strata(tmp_path / "runs", good, lr=0.5)
    code, told, _ = run(capsys, "table", "webshop")
    told = " ".join(told.split())
    assert (code, "nothing was run" in told) == (0, True)
    assert "lr is 0.5 and 0.0003 in row strata" in told
    code, told, _ = run(capsys, "table", "webshop", "-o", "lr=0.5")
    assert (code, "75.0" in told, "-o lr=0.5" in " ".join(told.split())) == (0, True, True)
    code, told, _ = run(capsys, "table", "webshop", "--a", folder.name)
    assert (code, "75.0" in told) == (0, True)
    preset = tmp_path / "mine.yaml"
    preset.write_text("method: {lr: 0.5}")
    code, told, _ = run(capsys, "table", "webshop", "--preset", str(preset))
    assert (code, "75.0" in told) == (0, True)


def test_a_named_run_stands_in_the_row_that_it_is(tmp_path, capsys):
    out = tmp_path / "runs"
    folder = strata(out, good, diversity=False, lr=0.5)
    code, told, _ = run(capsys, "table", "strata_table3", "--a", folder.name, "--csv")
    shown = {text.split(",")[0]: text.split(",")[7] for text in told.splitlines() if ",webshop,success," in text}
    assert (code, shown["judgment"], shown["strata"]) == (0, "75.0", "")
    code, _, err = run(capsys, "table", "strata_table6", "--a", strata(out, good, judgment_weight=0.3).name)
    assert (code, "none of the rows" in err, "judgment_weight=0.3" in err) == (2, True, True)
    again = strata(out, poor, diversity=False, lr=0.6)
    code, _, err = run(capsys, "table", "strata_table3", "--a", folder.name, "--a", again.name)
    assert (code, "are both row judgment" in err) == (2, True)
    walker = store_run(out, "toy-walker", good)
    code, _, err = run(capsys, "table", "strata_table3", "--a", walker.name)
    assert (code, "no such row" in err) == (2, True)


def test_the_scale_is_the_one_that_is_stored_or_chosen(tmp_path, capsys):
    out = tmp_path / "runs"
    strata(out, poor, scale="paper")
    code, told, _ = run(capsys, "table", "webshop")
    assert (code, "33.3" in told) == (0, True)
    strata(out, good)
    code, _, err = run(capsys, "table", "webshop")
    assert (code, "--scale mini or paper" in err) == (2, True)
    for scale, value in (("mini", "75.0"), ("paper", "33.3")):
        code, told, _ = run(capsys, "table", "webshop", "--scale", scale)
        assert (code, value in told) == (0, True)
    code, _, err = run(capsys, "table", "webshop", "--scale", "papr")
    assert (code, 'did you mean "paper"' in err) == (2, True)


@pytest.mark.parametrize("name", specs())
def test_a_table_without_runs_says_how_to_make_them(name, capsys):
    code, told, _ = run(capsys, "table", name, "--out", "nowhere")
    told = " ".join(told.split())
    assert code == 0
    spec = load_spec(name)
    assert (f"harness sweep {name}" in told) == ("webshop" in spec.envs)
    assert "nothing was run" in told
