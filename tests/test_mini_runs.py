"""Methods train a real network on the corridor: the same rows everywhere, with any workers, when killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harness.plan import Plan
from reports.curves import GROUPS
from tests.toy_policy import toy_policy
from tests.toy_runs import curves, run_toy, stored, toy_plan

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("toys")]
ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("policy")


def plan(method: str, policy: Path, *seeds: int) -> Plan:
    """Four short iterations, a checkpoint after each second one."""
    if not (policy / "manifest.json").exists():
        toy_policy(policy)
    options = ["iterations=4", "tasks_per_iteration=3", "rollouts=4", "max_tokens=12", "mini_batch=32", "lr=3e-3"]
    options += ["checkpoint_every=2", "eval_at=[0]"]
    if method == "strata":
        options += ["strategies=2", "rollouts=2", "oversampling=2"]
    if method == "ppo":
        options += ["critic_lr=3e-3"]
    if method == "scalinginter":
        options += ["stage_steps=2"]
    return toy_plan(*options, method=method, seeds=seeds or (0,), model=f"mini:{policy}", lane=8, view="compact")


@pytest.mark.parametrize("method", ["grpo", "rloo", "ppo", "gigpo", "scalinginter", "strata"])
def test_training_gives_the_same_rows_with_one_worker_and_with_two(tmp_path, policy, method):
    both = plan(method, policy, 0, 1)
    run_toy(both, tmp_path / "one")
    run_toy(both, tmp_path / "two", workers=2)
    assert stored(both, tmp_path / "one") == stored(both, tmp_path / "two")
    assert curves(both, tmp_path / "one") == curves(both, tmp_path / "two")
    lines = curves(both, tmp_path / "one")["seed-0"]
    assert len(lines) == 4
    assert any(line["grad_norm"] > 0 for line in lines)
    known = {"iteration", *(name for names in GROUPS.values() for name in names)}
    assert not set(lines[0]) - known, "harness show puts every metric of a built-in method under its heading"
    assert all(line["malformed_rate"] < 0.5 for line in lines), "the cloned policy can write"


PROGRAM = """
import os, sys
from pathlib import Path
from tests.test_mini_runs import plan
from tests.toy_runs import kill_me, run_toy
out, policy, method, last = sys.argv[1:]
plain, calls = os.fsync, 0
def fsync(descriptor):
    global calls
    calls += 1
    if calls == int(last):
        kill_me()
    plain(descriptor)
os.fsync = fsync
run_toy(plan(method, Path(policy)), Path(out))
"""


@pytest.mark.parametrize("method", ["ppo", "strata"])
def test_killed_during_training_and_evaluation_the_rows_are_those_of_an_uninterrupted_run(tmp_path, policy, method):
    """At fsync 5 the first evaluation is under way, at 13 a checkpoint, at 20 or so the last evaluation."""
    one = plan(method, policy)
    run_toy(one, tmp_path / "quiet")
    expected = (stored(one, tmp_path / "quiet"), curves(one, tmp_path / "quiet"))
    for last in ("5", "13", "20", "25"):
        arguments = [sys.executable, "-c", PROGRAM, str(tmp_path / "killed"), str(policy), method, last]
        done = subprocess.run(arguments, cwd=ROOT, check=False, capture_output=True, text=True)
        assert done.returncode in (0, -signal.SIGKILL), done.stderr[-2000:]
    run_toy(one, tmp_path / "killed")
    assert (stored(one, tmp_path / "killed"), curves(one, tmp_path / "killed")) == expected
