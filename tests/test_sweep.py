"""A sweep: its runs are those that would have been made alone, failures stay with their run, what is done stays."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.env import EnvError
from harness.errors import InputError, RunError
from harness.events import EpisodeDone, Finished, Started
from harness.lock import run_lock
from harness.plan import Plan
from harness.sweep import Failed, Job, Told, pending, sweep
from results.store import RunFolder
from tests.toy_runs import curves, run_toy, stored, toy_plan
from tests.toys import ToyLearner, ToyWalker

pytestmark = pytest.mark.usefixtures("toys")


def job(plan: Plan) -> Job:
    return Job(plan, ("harness", "run", "--method", plan.config.method, "--env", "toy"))


def two(seeds: tuple[int, ...] = (0, 1)) -> tuple[Plan, Plan]:
    return toy_plan(seeds=seeds), toy_plan(method="toy-walker", seeds=seeds)


def do(plans: Any, out: Path, **rest: Any) -> tuple[list[Any], list[Any]]:
    events: list[Any] = []
    results = sweep([job(plan) for plan in plans], out=out, listen=events.append, **{"workers": 1, **rest})
    return results, events


def manifest(plan: Plan, out: Path) -> dict[str, Any]:
    read = json.loads((out / plan.name / "manifest.json").read_text())
    return {name: value for name, value in read.items() if name not in ("argv", "created")}


def same_as_alone(plans: Any, out: Path, alone: Path) -> None:
    for plan in plans:
        run_toy(plan, alone)
        assert stored(plan, out) == stored(plan, alone)
        assert curves(plan, out) == curves(plan, alone)
        assert manifest(plan, out) == manifest(plan, alone)
        files = [sorted(str(p.relative_to(root)) for p in (root / plan.name).rglob("*")) for root in (out, alone)]
        assert files[0] == files[1]


def test_runs_of_a_sweep_are_those_made_alone(tmp_path):
    plans = two()
    results, events = do(plans, tmp_path / "sweep")
    same_as_alone(plans, tmp_path / "sweep", tmp_path / "alone")
    assert [(r.plan, r.without_verdict, r.failures, len(r.rows)) for r in results] == [
        (plans[0], 0, (), 42), (plans[1], 0, (), 14)
    ]  # fmt: skip
    assert json.loads((results[0].folder / "manifest.json").read_text())["argv"] == list(job(plans[0]).argv)
    for plan in plans:
        told = [event.event for event in events if event.run == plan.name]
        assert sum(isinstance(event, EpisodeDone) for event in told) == plan.episodes
        assert [event.seed for event in told if isinstance(event, Finished)] == [0, 1]
        assert {event.seed for event in told if isinstance(event, Started)} == {0, 1}


@pytest.mark.slow
def test_workers_take_the_units_of_all_runs(tmp_path):
    plans = two()
    do(plans, tmp_path / "sweep", workers=2)
    same_as_alone(plans, tmp_path / "sweep", tmp_path / "alone")


def test_first_seeds_come_first(tmp_path):
    plans = (toy_plan(seeds=(3, 1)), toy_plan("rollouts=3", seeds=(3, 1)))
    _, events = do(plans, tmp_path)
    begun = [(event.run, event.event.seed) for event in events if isinstance(event.event, Started)]
    assert begun == [(plans[0].name, 3), (plans[1].name, 3), (plans[0].name, 1), (plans[1].name, 1)]


def test_what_is_done_is_not_opened(tmp_path, monkeypatch):
    plans = two()
    run_toy(plans[0], tmp_path)
    monkeypatch.setattr(ToyLearner, "setup", lambda self, kit: pytest.fail("opened"))
    _, events = do(plans, tmp_path)
    assert {event.run for event in events} == {plans[1].name}
    assert pending(plans[1], tmp_path) == []
    with run_lock(tmp_path / plans[0].name):  # not even the lock of a finished run is asked for
        assert do(plans, tmp_path)[1] == []
    assert not (tmp_path / "nowhere").exists()


def test_added_seeds_extend_the_runs(tmp_path):
    do(two((0,)), tmp_path / "grown")
    plans = two()
    _, events = do(plans, tmp_path / "grown")
    assert {event.event.seed for event in events} == {1}
    same_as_alone(plans, tmp_path / "grown", tmp_path / "alone")


def test_a_failing_seed_loses_neither_the_other_seeds_nor_the_other_runs(tmp_path, monkeypatch):
    plans = two()
    plain = ToyLearner.learn

    async def learn(self, experiences, arena, iteration):
        if arena.iteration == 2 and self.seed == 0:
            raise RunError("the loss is not a number")
        return await plain(self, experiences, arena, iteration)

    with monkeypatch.context() as patch:
        patch.setattr(ToyLearner, "learn", learn)
        results, events = do(plans, tmp_path / "sweep")
    failed = Failed(plans[0].name, 0, "the loss is not a number")
    assert results[0].failures == (failed,)
    assert failed in events
    assert (results[0].missing, results[1].missing, results[1].failures) == (14, 0, ()), "evaluated at 0, and seed 1"
    results, events = do(plans, tmp_path / "sweep")
    assert {(event.run, event.event.seed) for event in events} == {(plans[0].name, 0)}
    same_as_alone(plans, tmp_path / "sweep", tmp_path / "alone")


def test_a_run_that_cannot_begin_does_not_keep_the_others_from_it(tmp_path):
    plans = two((0,))
    run_toy(plans[0], tmp_path)
    rows = RunFolder(tmp_path / plans[0].name).rows
    rows.write_text("{broken\n" + rows.read_text())
    results, events = do(plans, tmp_path)
    (failure,) = results[0].failures
    assert (failure.seed, "rows.jsonl:1" in failure.message) == (None, True)
    assert (results[0].rows, results[0].missing, results[1].missing) == ((), 21, 0)
    assert failure in events


def test_a_folder_in_use_is_told(tmp_path):
    plans = two((0,))
    with run_lock(tmp_path / plans[1].name):
        results, _ = do(plans, tmp_path)
    assert "another run holds" in results[1].failures[0].message
    assert results[0].without_verdict == 0


def test_a_fault_of_the_program_is_not_swallowed(tmp_path, monkeypatch):
    monkeypatch.setattr(ToyWalker, "prompt", lambda self, episode: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        do(two(), tmp_path)


def test_ctrl_c_frees_every_folder_and_the_same_sweep_goes_on(tmp_path, monkeypatch):
    plans, plain = two(), ToyLearner.learn

    async def learn(self, experiences, arena, iteration):
        if self.seed == 1:
            raise KeyboardInterrupt
        return await plain(self, experiences, arena, iteration)

    with monkeypatch.context() as patch:
        patch.setattr(ToyLearner, "learn", learn)
        with pytest.raises(KeyboardInterrupt):
            do(plans, tmp_path / "sweep")
    for plan in plans:
        with run_lock(tmp_path / "sweep" / plan.name):
            pass
    do(plans, tmp_path / "sweep")
    same_as_alone(plans, tmp_path / "sweep", tmp_path / "alone")


def test_episodes_without_a_verdict_are_counted(tmp_path, monkeypatch):
    plans = two((0,))

    def reset(self, task, *, seed):
        raise EnvError("no browser")

    with monkeypatch.context() as patch:
        patch.setattr("tests.toys.ToyEnv.reset", reset)
        results, _ = do(plans[1:], tmp_path)
    assert (results[0].missing, results[0].without_verdict, results[0].failures) == (0, 7, ())


def test_other_code_is_refused_and_marked_where_it_is_allowed(tmp_path, monkeypatch):
    do(two((0,)), tmp_path)
    monkeypatch.setattr("harness.manifest.code_version", lambda: "9.9")
    results, _ = do(two(), tmp_path)
    assert all("--allow-drift" in result.failures[0].message for result in results)
    results, _ = do(two(), tmp_path, allow_drift=True)
    assert [result.failures for result in results] == [(), ()]
    assert {row.drift for row in results[1].rows if row.seed == 1} == {True}


def test_no_workers(tmp_path):
    with pytest.raises(InputError, match="--workers is 0"):
        do(two(), tmp_path, workers=0)


def test_models_of_one_run_at_a_time():
    from harness.runner import Unit
    from harness.sweep import SweepUnit, SweepWork

    class Work:
        opened = 0

        def __call__(self, unit, listen):
            self.opened += 1
            listen(Finished(unit.seed))

        def close(self):
            self.opened = 0

    works: dict[str, Any] = {"a": Work(), "b": Work()}
    told: list[Any] = []
    work = SweepWork(works)
    for run, seed in (("a", 0), ("a", 1), ("b", 0)):
        work(SweepUnit(run, Unit(seed)), told.append)
    assert (works["a"].opened, works["b"].opened) == (0, 1)
    assert told[-1] == Told("b", Finished(0))
