"""Streams: test tasks one by one, observed without their labels, the same after a kill, and forgotten afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.env import EnvError, InfraError
from harness.errors import InputError, RunError
from harness.runner import Unit, all_units
from harness.types import Observation, Status, StopReason, Task, Trajectory
from results.store import RunFolder, read_rows
from results.transcripts import read_transcripts
from tests.toy_runs import cell, curves, run_toy, stored, toy_plan
from tests.toys import ToyEnv, ToyLearner, ToyMemory, ToyModel, ToyWalker

pytestmark = pytest.mark.usefixtures("toys")
PLAN: dict[str, Any] = {"method": "toy-memory", "model": "toy:0.3"}


@pytest.fixture
def observed(monkeypatch: pytest.MonkeyPatch) -> list[Trajectory]:
    """What the method has been shown, in order."""
    shown: list[Trajectory] = []
    plain = ToyMemory.observe

    async def observe(self: ToyMemory, trajectory: Trajectory) -> None:
        shown.append(trajectory)
        await plain(self, trajectory)

    monkeypatch.setattr(ToyMemory, "observe", observe)
    return shown


def told(plan: Any, out: Path) -> list[dict[str, Any]]:
    """The transcripts of seed 0, by what they call the wins of their first prompt: the order they were played in."""
    entries = read_transcripts(RunFolder(out / plan.name).transcripts(0, 0))
    return sorted(entries, key=lambda entry: int(entry["turns"][0]["prompt"].split()[1]))


# -- one by one -------------------------------------------------------------------------------------------------


def test_a_stream_is_a_whole_seed():
    assert all_units(toy_plan(seeds=(1, 4), **PLAN)) == [Unit(1), Unit(4)]


def test_tasks_come_one_by_one_in_an_order_of_the_seed(tmp_path, observed):
    orders = []
    for seed in (0, 0, 1):
        observed.clear()
        plan = toy_plan(seeds=(seed,), **PLAN)
        run_toy(plan, tmp_path / f"{len(orders)}")
        orders.append([trajectory.task.id for trajectory in observed])
        assert sorted(orders[-1]) == sorted(task.id for task in plan.tasks)
    assert orders[0] == orders[1] != orders[2]
    assert orders[0] != [task.id for task in plan.tasks]


def test_what_was_observed_is_there_for_the_next_task(tmp_path, observed):
    """And model calls share no batch: the next episode begins when the last one was observed."""
    plan = toy_plan(**PLAN)
    run_toy(plan, tmp_path)
    entries = told(plan, tmp_path)
    assert [entry["task"] for entry in entries] == [trajectory.task.id for trajectory in observed]
    for place, entry in enumerate(entries):
        assert {turn["prompt"].splitlines()[0] for turn in entry["turns"]} == {f"wins {6 * place}"}


def test_rows_say_stream(tmp_path):
    plan = toy_plan(**PLAN)
    summary = run_toy(plan, tmp_path)
    assert {row.protocol for row in summary.rows} == {"stream"}
    assert (summary.episodes, summary.without_verdict) == (7, 0)


# -- labels -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reads", [False, True])
def test_labels_are_shown_to_those_that_declare_it(tmp_path, observed, monkeypatch, reads):
    monkeypatch.setattr(ToyMemory, "reads_labels", reads)
    rows = {row.task: row for row in run_toy(toy_plan(**PLAN), tmp_path).rows}
    assert any(row.success for row in rows.values())
    for trajectory in observed:
        row = rows[trajectory.task.id]
        if reads:
            assert (trajectory.success, trajectory.score, trajectory.reward) == (row.success, row.score, row.reward)
            assert trajectory.stop is row.stop
        else:
            assert (trajectory.verdict.status, trajectory.reward) == (Status.WITHHELD, 0.0)
            assert trajectory.stop in (StopReason.ENDED, StopReason.HORIZON)
        assert len(trajectory.steps) == row.steps


# -- afterwards -------------------------------------------------------------------------------------------------


def test_the_state_is_that_of_before(tmp_path, observed):
    one = cell(toy_plan(**PLAN), tmp_path)
    one.method.load_state_dict({"seen": ["before"]})
    one.evaluate(0, 0)
    assert len(observed) == 7
    assert one.method.state_dict() == {"seen": ["before"]}


def test_an_evaluation_does_not_leak_into_training(tmp_path, monkeypatch):
    run_toy(toy_plan(), tmp_path / "standard")

    async def observe(self: ToyLearner, trajectory: Trajectory) -> None:
        self.wins += 5

    monkeypatch.setattr(ToyLearner, "stream", True)
    monkeypatch.setattr(ToyLearner, "observe", observe)
    run_toy(toy_plan(), tmp_path / "stream")
    plan = toy_plan()
    assert curves(plan, tmp_path / "stream") == curves(plan, tmp_path / "standard")
    scores = [
        [row["score"] for row in stored(plan, tmp_path / name) if row["iteration"] == 0]
        for name in ("standard", "stream")
    ]
    assert scores[0] != scores[1], "while it lasts, it counts"


# -- resumed ----------------------------------------------------------------------------------------------------


def interrupt(monkeypatch: pytest.MonkeyPatch, task: str, error: BaseException) -> None:
    plain = ToyWalker.solve

    async def solve(self: ToyWalker, episode: Any) -> Trajectory:
        if episode.task.id == task:
            raise error
        return await plain(self, episode)

    monkeypatch.setattr(ToyMemory, "solve", solve)


@pytest.mark.parametrize("place", [0, 3, 6])
def test_an_interrupted_stream_is_rerun_whole_and_stored_rows_are_not_written_again(tmp_path, monkeypatch, place):
    plan = toy_plan(**PLAN)
    run_toy(plan, tmp_path / "quiet")
    order = [entry["task"] for entry in told(plan, tmp_path / "quiet")]
    with monkeypatch.context() as patch:
        interrupt(patch, order[place], KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            run_toy(plan, tmp_path)
    file = RunFolder(tmp_path / plan.name).rows
    before = file.read_bytes() if place else b""
    assert before.count(b"\n") == place
    run_toy(plan, tmp_path)
    assert file.read_bytes().startswith(before)
    assert stored(plan, tmp_path) == stored(plan, tmp_path / "quiet")
    assert told(plan, tmp_path) == told(plan, tmp_path / "quiet")


def test_lost_transcripts_are_made_again(tmp_path):
    plan = toy_plan(**PLAN)
    run_toy(plan, tmp_path)
    entries, rows = told(plan, tmp_path), stored(plan, tmp_path)
    RunFolder(tmp_path / plan.name).transcripts(0, 0).unlink()
    run_toy(plan, tmp_path)
    assert (told(plan, tmp_path), stored(plan, tmp_path)) == (entries, rows)


def break_world(monkeypatch: pytest.MonkeyPatch, *tasks: str) -> None:
    plain = ToyEnv.reset

    def reset(self: ToyEnv, task: Task, *, seed: int) -> Observation:
        if task.id in tasks:
            raise EnvError("no world")
        return plain(self, task, seed=seed)

    monkeypatch.setattr(ToyEnv, "reset", reset)


def test_rows_after_a_failed_episode_are_played_anew(tmp_path, monkeypatch, observed):
    """They were played without what would have been learned from it."""
    plan = toy_plan(**PLAN)
    quiet = run_toy(plan, tmp_path / "quiet").rows
    order = [trajectory.task.id for trajectory in observed]
    observed.clear()
    with monkeypatch.context() as patch:
        break_world(patch, order[2])
        assert run_toy(plan, tmp_path).without_verdict == 1
    assert [trajectory.task.id for trajectory in observed] == order[:2] + order[3:], "what failed is not observed"
    again = run_toy(plan, tmp_path)
    assert again.without_verdict == 0
    found, expected = ({row.task: (row.steps, row.score, row.stop) for row in rows} for rows in (again.rows, quiet))
    assert found == expected
    lines = [row["task"] for row in stored(plan, tmp_path)]
    assert [lines.count(task) for task in order] == [1, 1, 2, 2, 2, 2, 2]
    assert {row.task for row in again.rows if row.attempt > 1} == {order[2]}


def test_half_a_stream_of_a_model_that_is_not_deterministic_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(ToyModel, "deterministic", False)
    plan = toy_plan(**PLAN)
    with monkeypatch.context() as patch:
        interrupt(patch, plan.tasks[0].id, KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            run_toy(plan, tmp_path)
    rows = read_rows(RunFolder(tmp_path / plan.name).rows)
    assert 0 < len(rows) < 7
    refusal = rf"seed 0 has {len(rows)} of the 7 episodes of a stream, .* another folder with --out, or other --seeds"
    with pytest.raises(InputError, match=refusal):
        run_toy(plan, tmp_path)
    assert run_toy(toy_plan(seeds=(1,), **PLAN), tmp_path).without_verdict == 0
    assert run_toy(plan, tmp_path / "other").without_verdict == 0
    assert run_toy(plan, tmp_path / "other").episodes == 7, "a whole one is done"


def test_a_stream_of_which_nothing_has_a_verdict_starts_again(tmp_path, monkeypatch):
    monkeypatch.setattr(ToyModel, "deterministic", False)
    plan = toy_plan(**PLAN)
    with monkeypatch.context() as patch:
        break_world(patch, *(task.id for task in plan.tasks))
        assert run_toy(plan, tmp_path).without_verdict == 7
    assert run_toy(plan, tmp_path).without_verdict == 0


def test_a_memory_that_cannot_be_written_ends_the_stream(tmp_path, monkeypatch):
    """Later rows would be those of a method that has seen less than it should have."""
    plan = toy_plan(**PLAN)

    async def observe(self: ToyMemory, trajectory: Trajectory) -> None:
        raise InfraError("server gone")

    with monkeypatch.context() as patch:
        patch.setattr(ToyMemory, "observe", observe)
        with pytest.raises(RunError, match=r'"toy-memory" could not learn from task ".*" \(server gone\)'):
            run_toy(plan, tmp_path)
    assert len(stored(plan, tmp_path)) == 1
    assert run_toy(plan, tmp_path).without_verdict == 0


@pytest.mark.slow
def test_workers_change_no_row(tmp_path):
    plan = toy_plan(seeds=(0, 1, 2), **PLAN)
    run_toy(plan, tmp_path / "one")
    run_toy(plan, tmp_path / "two", workers=2)
    assert stored(plan, tmp_path / "one") == stored(plan, tmp_path / "two")
