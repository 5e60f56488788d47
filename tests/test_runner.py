"""The run: resumed, extended, killed, spread over workers, it leaves the rows that one quiet run leaves."""

from __future__ import annotations

import errno
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from harness.env import EnvError
from harness.errors import InputError
from harness.events import EpisodeDone, Notice
from harness.plan import Plan
from harness.runner import Unit, all_units, is_done, unit_keys
from harness.seeding import python_random
from harness.types import Observation, Status, StepResult, Task
from results.store import RunFolder, StoreError
from results.transcripts import read_transcripts
from tests.toy_runs import curves, in_a_child, kill_me, run_toy, stored, toy_plan
from tests.toys import ToyEnv

pytestmark = pytest.mark.usefixtures("toys")


def rows_file(plan: Plan, out: Path) -> Path:
    return RunFolder(out / plan.name).rows


# -- the same rows ----------------------------------------------------------------------------------------------


def test_the_same_command_in_two_folders_gives_the_same_rows(tmp_path):
    plan = toy_plan(seeds=(0, 3))
    first = run_toy(plan, tmp_path / "a")
    run_toy(plan, tmp_path / "b")
    assert stored(plan, tmp_path / "a") == stored(plan, tmp_path / "b")
    assert curves(plan, tmp_path / "a") == curves(plan, tmp_path / "b")
    assert (first.episodes, first.without_verdict, first.missing) == (42, 0, 0)
    assert first.run_dir == tmp_path / "a" / plan.name
    by_seed = [[row["score"] for row in stored(plan, tmp_path / "a") if row["seed"] == seed] for seed in (0, 3)]
    assert by_seed[0] != by_seed[1]


@pytest.mark.slow
@pytest.mark.parametrize(("method", "seeds"), [("toy-learner", (0, 1, 2)), ("toy-walker", (0, 1))])
def test_workers_change_no_row(tmp_path, method, seeds):
    plan = toy_plan(method=method, seeds=seeds)
    events: list[Any] = []
    run_toy(plan, tmp_path / "one")
    run_toy(plan, tmp_path / "two", workers=2, listen=events.append)
    assert stored(plan, tmp_path / "one") == stored(plan, tmp_path / "two")
    assert curves(plan, tmp_path / "one") == curves(plan, tmp_path / "two")
    told = [event for event in events if isinstance(event, EpisodeDone)]
    assert len(told) == plan.episodes, "what workers tell arrives"


def test_added_seeds_extend_the_folder(tmp_path):
    one, two, both = (toy_plan(seeds=seeds) for seeds in ((0,), (1,), (0, 1)))
    run_toy(one, tmp_path / "grown")
    before = rows_file(one, tmp_path / "grown").read_bytes()
    summary = run_toy(both, tmp_path / "grown")
    assert rows_file(both, tmp_path / "grown").read_bytes().startswith(before)
    assert summary.episodes == 42
    run_toy(two, tmp_path / "fresh")
    assert stored(both, tmp_path / "grown") == stored(one, tmp_path / "grown")[:21] + stored(two, tmp_path / "fresh")
    assert run_toy(two, tmp_path / "grown").episodes == 21, "a summary is of the seeds that were asked for"


def test_a_finished_run_is_not_run_again(tmp_path):
    plan = toy_plan()
    run_toy(plan, tmp_path)
    before = rows_file(plan, tmp_path).read_bytes()
    events: list[Any] = []
    assert run_toy(plan, tmp_path, listen=events.append).episodes == 21
    assert events == []
    assert rows_file(plan, tmp_path).read_bytes() == before


# -- units ------------------------------------------------------------------------------------------------------


def test_a_method_that_learns_is_cut_into_seeds_and_another_into_lanes(tmp_path):
    assert all_units(toy_plan(seeds=(4, 2))) == [Unit(4), Unit(2)]
    walker = toy_plan(method="toy-walker", seeds=(4, 2))
    assert all_units(walker) == [Unit(4, 0), Unit(4, 1), Unit(2, 0), Unit(2, 1)]
    assert len(unit_keys(walker, Unit(4, 0))) == 4
    assert len(unit_keys(toy_plan(), Unit(0))) == 21
    keys, folder = unit_keys(walker, Unit(2, 1)), RunFolder(tmp_path)
    told = folder.transcripts(2, 1)
    assert not is_done(walker, Unit(2, 1), frozenset(keys), folder), "its transcripts are missing"
    told.parent.mkdir(parents=True)
    told.write_text("")
    assert is_done(walker, Unit(2, 1), frozenset(keys), folder)
    assert not is_done(walker, Unit(2, 1), frozenset(keys[1:]), folder)
    silent = toy_plan("transcripts=false", method="toy-walker", seeds=(4, 2))
    assert is_done(silent, Unit(4, 0), frozenset(unit_keys(silent, Unit(4, 0))), folder)


# -- killed -----------------------------------------------------------------------------------------------------


def killed_at(call: int, plan: Plan, out: Path, monkeypatch: pytest.MonkeyPatch, *, before: bool) -> bool:
    """Run in a child that kills itself at its n-th fsync (rows, checkpoints, transcripts, manifest all have one)."""
    plain, calls = os.fsync, 0

    def fsync(descriptor: int) -> None:
        nonlocal calls
        calls += 1
        if before and calls == call:
            kill_me()
        plain(descriptor)
        if calls == call:
            kill_me()

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        return in_a_child(lambda: run_toy(plan, out)) == -signal.SIGKILL


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where an uninterrupted run of `toy_plan()` has its folder."""
    return tmp_path_factory.mktemp("quiet")


def left_behind(plan: Plan, out: Path) -> tuple[Any, Any, Any]:
    """Rows, curves and transcripts of a run."""
    files = sorted((out / plan.name / "transcripts").rglob("*.zst"))
    return stored(plan, out), curves(plan, out), {file.name: list(read_transcripts(file)) for file in files}


def uninterrupted(plan: Plan, quiet: Path) -> tuple[Any, Any, Any]:
    run_toy(plan, quiet)
    return left_behind(plan, quiet)


@pytest.mark.parametrize("start", range(4))
def test_killed_at_any_moment_the_same_command_gives_the_rows_of_an_uninterrupted_run(
    tmp_path, monkeypatch, quiet, start
):
    plan = toy_plan()
    expected = uninterrupted(plan, quiet)
    killed = 0
    for call in range(1 + start, 45, 8):
        out = tmp_path / f"{call}"
        killed += killed_at(call, plan, out, monkeypatch, before=call % 2 == 0)
        assert run_toy(plan, out).without_verdict == 0
        assert left_behind(plan, out) == expected, f"killed at fsync {call}"
    assert killed >= 4


def test_killed_again_and_again_it_still_ends_there(tmp_path, monkeypatch, quiet):
    """At random times this time, by another process, without regard for what is being written."""
    plan = toy_plan()
    expected = uninterrupted(plan, quiet)
    random = python_random("kills")
    plain = ToyEnv.step

    def slow(self: ToyEnv, action: str) -> StepResult:
        time.sleep(0.001)
        return plain(self, action)

    killed = 0
    with monkeypatch.context() as patch:
        patch.setattr(ToyEnv, "step", slow)
        for _ in range(12):
            child = os.fork()
            if child == 0:
                try:
                    run_toy(plan, tmp_path)
                finally:
                    os._exit(0)
            time.sleep(0.02 + 0.3 * random.random())
            os.kill(child, signal.SIGKILL)
            killed += os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert killed
    run_toy(plan, tmp_path)
    assert left_behind(plan, tmp_path) == expected


@pytest.mark.parametrize("row", [1, 9, 21])
def test_a_row_that_was_half_written_is_cut_with_a_notice_and_played_again(tmp_path, monkeypatch, quiet, row):
    plan = toy_plan()
    expected = uninterrupted(plan, quiet)
    plain, writes = os.write, 0

    def write(descriptor: int, content: bytes) -> int:
        nonlocal writes
        if not content.startswith(b'{"run"'):
            return plain(descriptor, content)
        writes += 1
        if writes == row:
            plain(descriptor, content[: len(content) // 2])
            kill_me()
        return plain(descriptor, content)

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", write)
        assert in_a_child(lambda: run_toy(plan, tmp_path)) == -signal.SIGKILL
    assert not rows_file(plan, tmp_path).read_bytes().endswith(b"\n")
    events: list[Any] = []
    run_toy(plan, tmp_path, listen=events.append)
    notices = [event.text for event in events if isinstance(event, Notice)]
    assert len(notices) == 1
    assert "cut a last line of" in notices[0]
    assert left_behind(plan, tmp_path) == expected


# -- what goes wrong --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fitting", [0.0, 0.5])
def test_a_full_disk_keeps_finished_rows_and_the_same_command_goes_on(tmp_path, monkeypatch, quiet, fitting):
    plan = toy_plan()
    expected = uninterrupted(plan, quiet)
    plain, writes = os.write, 0

    def write(descriptor: int, content: bytes) -> int:
        nonlocal writes
        if content.startswith(b'{"run"'):
            writes += 1
            if writes > 11:
                if not fitting:
                    raise OSError(errno.ENOSPC, "No space left on device")
                return plain(descriptor, content[: int(len(content) * fitting)])
        return plain(descriptor, content)

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", write)
        with pytest.raises(StoreError, match="disk is full"):
            run_toy(plan, tmp_path)
    assert len(rows_file(plan, tmp_path).read_text().splitlines()) == 11
    run_toy(plan, tmp_path)
    assert left_behind(plan, tmp_path) == expected


@pytest.mark.parametrize("method", ["toy-walker", "toy-learner"])
def test_episodes_without_verdict_are_played_again_by_the_next_call(tmp_path, monkeypatch, quiet, method):
    """Also at iterations that training has long passed: their checkpoint is kept until then."""
    plan = toy_plan(method=method)
    expected, _, _ = uninterrupted(plan, quiet)
    plain = ToyEnv.reset

    def reset(self: ToyEnv, task: Task, *, seed: int) -> Observation:
        if task.id in (plan.tasks[1].id, plan.tasks[5].id):
            raise EnvError("no browser")
        return plain(self, task, seed=seed)

    with monkeypatch.context() as patch:
        patch.setattr(ToyEnv, "reset", reset)
        summary = run_toy(plan, tmp_path)
    evaluations = len(plan.evaluations)
    assert summary.without_verdict == 2 * evaluations
    assert summary.missing == 0
    assert {row["status"] for row in stored(plan, tmp_path)} == {"ok", "env_error"}
    again = run_toy(plan, tmp_path)
    assert again.without_verdict == 0
    judged = [row for row in stored(plan, tmp_path) if row["status"] == "ok"]
    assert [row | {"attempt": 1} for row in judged] == expected
    assert {row["task"] for row in judged if row["attempt"] == 2} == {plan.tasks[1].id, plan.tasks[5].id}
    assert all(row.status is Status.OK for row in again.rows), "the later row stands"
    assert len(again.rows) == len(expected)


def test_settled_evaluations_leave_no_checkpoint_behind(tmp_path):
    plan = toy_plan()
    run_toy(plan, tmp_path)
    kept = sorted(path.name for path in (tmp_path / plan.name / "checkpoints" / "seed-0").iterdir())
    assert kept == ["curve.jsonl", "iteration-3", "latest"]


def test_a_corrupt_row_is_named_and_nothing_is_deleted(tmp_path):
    plan = toy_plan(method="toy-walker")
    run_toy(plan, tmp_path)
    file = rows_file(plan, tmp_path)
    lines = file.read_text().splitlines(keepends=True)
    lines[2] = lines[2].replace('"task"', '"tsak"')
    file.write_text("".join(lines))
    with pytest.raises(InputError, match=r"rows\.jsonl:3: .*nothing was deleted"):
        run_toy(plan, tmp_path)
    assert file.read_text() == "".join(lines)


def test_other_code_is_refused_and_marked_where_it_is_allowed(tmp_path, monkeypatch):
    run_toy(toy_plan(), tmp_path)
    plan = toy_plan(seeds=(0, 1))
    monkeypatch.setattr("harness.manifest.code_version", lambda: "9.9")
    with pytest.raises(InputError, match=r"was made with other versions: code: .* -> 9\.9; .*--allow-drift"):
        run_toy(plan, tmp_path)
    assert run_toy(plan, tmp_path, allow_drift=True).episodes == 42
    assert [row["drift"] for row in stored(plan, tmp_path)] == [False] * 21 + [True] * 21


def test_wrong_numbers_of_workers_and_folders_are_refused(tmp_path):
    plan = toy_plan()
    with pytest.raises(InputError, match="--workers is 0; it must be at least 1"):
        run_toy(plan, tmp_path, workers=0)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot write to"):
        run_toy(plan, tmp_path / "file")


def test_ctrl_c_keeps_finished_rows(tmp_path, monkeypatch, quiet):
    plan = toy_plan()
    expected = uninterrupted(plan, quiet)
    plain, steps = ToyEnv.step, 0

    def step(self: ToyEnv, action: str) -> StepResult:
        nonlocal steps
        steps += 1
        if steps == 60:
            raise KeyboardInterrupt
        return plain(self, action)

    with monkeypatch.context() as patch:
        patch.setattr(ToyEnv, "step", step)
        with pytest.raises(KeyboardInterrupt):
            run_toy(plan, tmp_path)
    assert 0 < len(rows_file(plan, tmp_path).read_text().splitlines()) < 21
    run_toy(plan, tmp_path)
    assert left_behind(plan, tmp_path) == expected


def test_another_configuration_is_another_folder(tmp_path):
    for skill in (0.2, 0.9):
        run_toy(toy_plan(method="toy-walker", model=f"toy:{skill}", limit=2), tmp_path)
    assert len(list(tmp_path.iterdir())) == 2
