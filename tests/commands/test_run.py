"""`run` and `plan` on the toy world: what is printed, stored and resumed, and how a run may end."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time

import pytest
import yaml

from harness import registry
from harness.cli import main
from harness.lock import run_lock
from results import store
from results.store import read_rows
from tests.commands.flaky import FlakyEnv

WALK = ("run", "--method", "toy-walker", "--env", "toy", "--model", "toy", "--workers", "1")
LEARN = ("run", "--method", "toy-learner", "--env", "toy", "--model", "toy", "--workers", "1", "-o", "iterations=2")


@pytest.fixture(autouse=True)
def _toys(toys, tmp_path, monkeypatch):
    """Toys are registered, and the default store is a fresh folder."""
    monkeypatch.chdir(tmp_path)


def _folder(tmp_path):
    (folder,) = (tmp_path / "runs").iterdir()
    return folder


def test_a_run_ends_in_a_summary(tmp_path, capsys):
    assert main([*WALK, "--seeds", "2"]) == 0
    told = capsys.readouterr().out
    assert "toy-walker on toy, mini scale, 7 tasks" in told
    assert "mean ± sd" in told
    assert "score %" in told
    assert "tokens" in told
    assert str(_folder(tmp_path).name) in told
    assert len(read_rows(_folder(tmp_path) / "rows.jsonl")) == 14


def test_the_same_command_plays_nothing_again_and_added_seeds_extend(tmp_path, capsys):
    assert main([*WALK, "--seeds", "1"]) == 0
    first = (_folder(tmp_path) / "rows.jsonl").read_bytes()
    assert main([*WALK, "--seeds", "1"]) == 0
    assert (_folder(tmp_path) / "rows.jsonl").read_bytes() == first
    assert main([*WALK, "--seeds", "0,3"]) == 0
    grown = (_folder(tmp_path) / "rows.jsonl").read_bytes()
    assert grown.startswith(first)
    assert {row.seed for row in read_rows(_folder(tmp_path) / "rows.jsonl")} == {0, 3}


def test_a_method_that_learns_shows_its_curve(tmp_path, capsys):
    assert main([*LEARN]) == 0
    assert "iteration 2/2" in capsys.readouterr().out
    assert main(["show", "toy-learner"]) == 0
    told = capsys.readouterr().out
    assert "curves of seed 0, 2 iterations" in told
    assert "evaluation after iteration 2" in told
    assert "iterations: 2" in told


def test_dry_run_prints_configuration_and_plan_and_writes_nothing(tmp_path, capsys):
    assert main([*LEARN, "--seeds", "2", "--dry-run", "-o", "rollouts=3", "--limit", "5"]) == 0
    told = capsys.readouterr().out
    config = yaml.safe_load(told[: told.index("# plan")])
    assert config["options"]["rollouts"] == 3
    assert config["limit"] == 5
    assert config["models"] == {"policy": "toy"}
    assert "5 test tasks" in told
    assert "0 of 10 episodes stored, 10 to play" in told, "five tasks, before training and after it"
    assert "digest" in told
    assert not (tmp_path / "runs").exists()


def test_a_plan_knows_what_is_stored(capsys):
    assert main([*WALK]) == 0
    capsys.readouterr()
    assert main(["plan", "--method", "toy-walker", "--env", "toy", "--model", "toy", "--seeds", "2"]) == 0
    told = capsys.readouterr().out
    assert "seed 0       7 of 7 episodes stored, 0 to play" in told
    assert "seed 1       0 of 7 episodes stored, 7 to play" in told


def test_a_plan_needs_neither_package_nor_data_of_an_environment(capsys):
    assert main(["plan", "--env", "alfworld"]) == 0
    told = capsys.readouterr().out
    assert "140 tasks" in told
    assert "unknown number of tasks" in told
    assert "abstraction-bench[alfworld]" in told


@pytest.mark.parametrize(
    ("extra", "changed"),
    [
        (("-o", "temperature=0.1"), {"temperature": 0.1}),
        (("--view", "full"), {"view": "full"}),
        (("--split", "validation"), {"split": "validation"}),
        (("--tasks", "test-3-5,test-0-4"), {"tasks": ["test-3-5", "test-0-4"]}),
        (("--limit", "2"), {"limit": 2}),
        (("--scale", "paper"), {"scale": "paper", "view": "full"}),
        (("--preset", "paper"), {"max_tokens": 1024}),
        (("--model", "judge=toy:0.9"), {"models": {"policy": "toy", "judge": "toy:0.9"}}),
    ],
)
def test_options_reach_the_configuration_and_its_digest(extra, changed, capsys):
    assert main([*WALK, "--dry-run"]) == 0
    plain = capsys.readouterr().out
    assert main([*WALK, "--dry-run", *extra]) == 0
    told = capsys.readouterr().out
    config = yaml.safe_load(told[: told.index("# plan")])
    assert {**config, **config["options"]}.items() >= changed.items()
    assert _digest(told) != _digest(plain)


@pytest.mark.parametrize(
    "extra", [("--seeds", "5"), ("--workers", "2"), ("--out", "elsewhere"), ("--executor", "local")]
)
def test_seeds_workers_and_folders_do_not_reach_the_digest(extra, capsys):
    assert main([*WALK, "--dry-run"]) == 0
    plain = capsys.readouterr().out
    assert main([*WALK, "--dry-run", *extra]) == 0
    assert _digest(capsys.readouterr().out) == _digest(plain)


def test_a_config_file_is_laid_over_the_presets_and_under_the_options(tmp_path, capsys):
    path = tmp_path / "mine.yaml"
    path.write_text("method: {temperature: 0.25, top_k: 7}\nrun: {lane: 3}\n")
    assert main([*WALK, "--dry-run", "--config", str(path), "-o", "top_k=9"]) == 0
    told = capsys.readouterr().out
    config = yaml.safe_load(told[: told.index("# plan")])
    assert (config["options"]["temperature"], config["options"]["top_k"], config["lane"]) == (0.25, 9, 3)


def test_the_summary_shows_the_metrics_that_were_asked_for(capsys):
    assert main([*WALK, "--metric", "steps"]) == 0
    told = capsys.readouterr().out
    assert "steps" in told
    assert "success %" not in told


def test_an_episode_without_a_verdict_is_no_zero_and_exits_1_until_it_is_there(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(registry.BUILT_IN["envs"], "flaky", "tests.commands.flaky:FlakyEnv")
    command = [*WALK[:4], "toy", *WALK[5:]]
    command[command.index("--env") + 1] = "flaky"
    assert main(command) == 1
    told = capsys.readouterr().out
    assert "1 episodes have no verdict" in told
    assert "has no verdict: the browser is gone" in told
    lost = [row for row in read_rows(_folder(tmp_path) / "rows.jsonl") if not row.status.has_verdict]
    assert [(row.success, row.score) for row in lost] == [(None, None)]
    monkeypatch.setattr(FlakyEnv, "repaired", True)
    assert main(command) == 0
    assert all(row.status.has_verdict for row in read_rows(_folder(tmp_path) / "rows.jsonl"))


def test_a_seed_without_any_verdict_has_no_mean(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(registry.BUILT_IN["envs"], "flaky", "tests.commands.flaky:FlakyEnv")
    command = [*WALK, "--tasks", FlakyEnv().tasks("test")[2].id]
    command[command.index("--env") + 1] = "flaky"
    assert main(command) == 1
    told = capsys.readouterr().out
    assert "nan" not in told
    assert " - " in told


def test_a_full_disk_is_one_line_and_keeps_the_finished_rows(monkeypatch, tmp_path, capsys):
    written = []
    write = os.write

    def full_after_three(file, data):
        if data.startswith(b'{"run"'):
            if len(written) == 3:
                raise OSError(errno.ENOSPC, "No space left on device")
            written.append(data)
        return write(file, data)

    with monkeypatch.context() as patch:
        patch.setattr(store.os, "write", full_after_three)
        assert main([*WALK]) == 1
    told = capsys.readouterr().err
    assert told.startswith("error: disk is full")
    assert told.count("\n") == 1
    assert len(read_rows(_folder(tmp_path) / "rows.jsonl")) == 3
    assert main([*WALK]) == 0
    assert len(read_rows(_folder(tmp_path) / "rows.jsonl")) == 7


def test_a_second_run_is_refused_while_the_first_holds_the_lock(tmp_path, capsys):
    assert main([*WALK]) == 0
    folder = _folder(tmp_path)
    capsys.readouterr()
    with run_lock(folder):
        assert main([*WALK]) == 2
    told = capsys.readouterr().err
    assert f"process {os.getpid()}" in told
    assert str(folder.name) in told


def test_another_code_version_is_refused_with_the_difference_or_marked(monkeypatch, tmp_path, capsys):
    assert main([*WALK]) == 0
    monkeypatch.setattr("harness.manifest.code_version", lambda: "9.9.9+feedbeef")
    assert main([*WALK, "--seeds", "2"]) == 2
    told = capsys.readouterr().err
    assert "-> 9.9.9+feedbeef" in told
    assert "--allow-drift" in told
    assert main([*WALK, "--seeds", "2", "--allow-drift"]) == 0
    assert {row.seed: row.drift for row in read_rows(_folder(tmp_path) / "rows.jsonl")} == {0: False, 1: True}
    assert "7 rows were made by another version" in capsys.readouterr().out


def test_a_cut_last_line_is_repaired_with_a_notice(tmp_path, capsys):
    assert main([*WALK]) == 0
    rows = _folder(tmp_path) / "rows.jsonl"
    whole = rows.read_bytes()
    rows.write_bytes(whole[:-20])
    assert main([*WALK]) == 0
    assert "notice: " in capsys.readouterr().out
    assert len(read_rows(rows)) == 7


def test_a_corrupt_line_is_named_and_nothing_is_deleted(tmp_path, capsys):
    assert main([*WALK]) == 0
    rows = _folder(tmp_path) / "rows.jsonl"
    lines = rows.read_text().splitlines(keepends=True)
    rows.write_text("".join([lines[0], "{broken\n", *lines[1:]]))
    before = rows.read_bytes()
    for command in ([*WALK], ["show", "toy-walker"], ["compare", "--a", "toy-walker", "--b", "toy-walker"]):
        capsys.readouterr()
        assert main(command) == 2
        told = capsys.readouterr().err
        assert told.startswith("error: ")
        assert f"{rows.name}:2" in told
        assert rows.read_bytes() == before


@pytest.mark.parametrize("workers", ["1", pytest.param("2", marks=pytest.mark.slow)])
def test_ctrl_c_exits_130_and_the_same_command_resumes(workers, tmp_path):
    """A terminal sends it to the whole group: workers must not print tracebacks either."""
    options = ["--seeds", "2", "--workers", workers, "-o", "iterations=3000"]
    running = subprocess.Popen(
        [sys.executable, "-m", "harness", *LEARN, *options],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        assert running.stdout is not None
        assert "seed" in running.stdout.readline()
        time.sleep(0.2)
        os.killpg(running.pid, signal.SIGINT)
        _, told = running.communicate(timeout=60)
    finally:
        running.kill()
    assert running.returncode == 130
    assert told.strip() == "interrupted; what was finished is kept, and the same command resumes"


def _digest(told):
    return next(line.split()[1] for line in told.splitlines() if line.startswith("digest"))
