"""One seed of a run: what is explored, learned, evaluated, kept and reported."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from harness.cell import make_method, open_kit
from harness.env import EnvError, InfraError
from harness.episode import EpisodeFailed
from harness.errors import Diverged, InputError, RunError
from harness.events import EpisodeDone, Finished, IterationDone, Started
from harness.model import Kit, Prompt, Sampling, UnsupportedOption
from harness.rows import model_name, row_key
from harness.types import Observation, Status, Task
from results.store import RunFolder, read_rows
from results.transcripts import read_transcripts
from tests.toy_runs import cell, curves, stored, toy_plan
from tests.toys import ToyEnv, ToyLearner, ToyModel, ToyWalker

pytestmark = pytest.mark.usefixtures("toys")


# -- the story --------------------------------------------------------------------------------------------------


def test_a_seed_explores_learns_and_evaluates_where_planned(tmp_path):
    plan, events = toy_plan(), []
    cell(plan, tmp_path, events=events).run()
    order = [type(event) for event in events if not isinstance(event, EpisodeDone)]
    assert order == [Started, IterationDone, IterationDone, IterationDone, Finished]
    assert events[0] == Started(0, 0, 3, 21)
    rows = read_rows(RunFolder(tmp_path / plan.name).rows)
    assert Counter(row.iteration for row in rows) == {0: 7, 2: 7, 3: 7}
    assert len({row.key for row in rows}) == 21
    assert [line["iteration"] for line in curves(plan, tmp_path)["seed-0"]] == [1, 2, 3]
    assert {row.key for row in rows} == {row_key(plan, 0, task, n) for n in (0, 2, 3) for task in plan.tasks}


def test_learning_is_what_the_curve_shows(tmp_path):
    plan = toy_plan()
    cell(plan, tmp_path).run()
    lines = curves(plan, tmp_path)["seed-0"]
    assert [(line["rollouts"], line["failed_rollouts"]) for line in lines] == [(8, 0)] * 3
    assert lines[-1]["wins"] >= lines[0]["wins"] > 0
    assert all(line["tokens_in"] > line["tokens_out"] > 0 for line in lines)


def test_lanes_cut_work_and_change_no_row_of_a_model_without_rounding(tmp_path):
    rows = []
    for lane in (1, 3, 64):
        plan = toy_plan(lane=lane)
        cell(plan, tmp_path).run()
        rows.append([{k: v for k, v in row.items() if k != "run"} for row in stored(plan, tmp_path)])
    assert rows[0] == rows[1] == rows[2]


def test_training_lanes_hold_whole_tasks(tmp_path, monkeypatch):
    """At most `lane` episodes in a lane, and never a part of a task's rollouts."""
    sizes = []
    plain = ToyModel.generate

    def generate(self: ToyModel, requests: Any) -> Any:
        sizes.append(len(requests))
        return plain(self, requests)

    monkeypatch.setattr(ToyModel, "generate", generate)
    one = cell(toy_plan("tasks_per_iteration=5", "rollouts=3", lane=7), tmp_path)
    one.iterate(1)
    assert max(sizes) == 6
    assert sizes.count(6) >= 2, "two lanes of two tasks, then one of one"


# -- train tasks ------------------------------------------------------------------------------------------------


def test_train_tasks_are_walked_without_replacement(tmp_path):
    one = cell(toy_plan("tasks_per_iteration=4"), tmp_path)
    drawn = [task.id for iteration in range(1, 16) for task in one.draw(iteration)]
    everything = sorted(task.id for task in ToyEnv().tasks("train"))
    for epoch in range(4):
        assert sorted(drawn[15 * epoch : 15 * (epoch + 1)]) == everything
    assert drawn[:15] != drawn[15:30], "each epoch has an order of its own"


def test_train_tasks_are_the_same_for_all_methods_and_differ_by_seed(tmp_path):
    def drawn(*overrides: str, seed: int = 0) -> list[str]:
        return [task.id for task in cell(toy_plan(*overrides), tmp_path, seed=seed).draw(1)]

    assert drawn("rollouts=2") == drawn("rollouts=8")
    assert drawn("tasks_per_iteration=15") != drawn("tasks_per_iteration=15", seed=1)


def test_an_environment_without_train_tasks_cannot_train(tmp_path, monkeypatch):
    plain = ToyEnv.tasks
    monkeypatch.setattr(ToyEnv, "tasks", lambda self, split: [] if split == "train" else plain(self, split))
    with pytest.raises(InputError, match='"toy" has no train tasks'):
        cell(toy_plan(), tmp_path).iterate(1)


def test_a_method_may_invent_its_tasks_or_none_at_all(tmp_path, monkeypatch):
    invented = ToyEnv().tasks("train")[:3]
    explored: list[str] = []
    plain = ToyLearner.explore

    async def explore(self: ToyLearner, task: Task, arena: Any) -> Any:
        explored.append(task.id)
        return await plain(self, task, arena)

    monkeypatch.setattr(ToyLearner, "explore", explore)
    one = cell(toy_plan(), tmp_path)

    async def propose(self: ToyLearner, arena: Any, iteration: int) -> Any:
        await arena.ask(Prompt.user("what next?"), role="policy")
        return invented if iteration == 1 else []

    monkeypatch.setattr(ToyLearner, "propose", propose)
    one.iterate(1)
    assert explored == [task.id for task in invented]
    second = one.iterate(2)
    assert second["rollouts"] == 0
    assert second["tokens_in"] == 2, "what was asked to invent them is counted"


# -- failures ---------------------------------------------------------------------------------------------------


def break_task(monkeypatch: pytest.MonkeyPatch, *ids: str, error: type[Exception] = EnvError) -> None:
    plain = ToyEnv.reset

    def reset(self: ToyEnv, task: Task, *, seed: int) -> Observation:
        if task.id in ids:
            raise error(f"no world for {task.id}")
        return plain(self, task, seed=seed)

    monkeypatch.setattr(ToyEnv, "reset", reset)


def test_failed_rollouts_leave_training_going(tmp_path, monkeypatch):
    one = cell(toy_plan(), tmp_path)
    break_task(monkeypatch, one.draw(1)[0].id)
    metrics = one.iterate(1)
    assert (metrics["failed_rollouts"], metrics["rollouts"]) == (4, 8)


@pytest.mark.parametrize("error", [EpisodeFailed(Status.ENV_ERROR, "no world"), InfraError("no server")])
def test_a_task_that_infrastructure_took_whole_is_dropped_and_counted(tmp_path, monkeypatch, error):
    """A method may look at the world, or ask a model, before it gathers its rollouts."""
    learned: list[Any] = []

    async def explore(self: ToyLearner, task: Task, arena: Any) -> Any:
        raise error

    plain = ToyLearner.learn

    async def learn(self: ToyLearner, experiences: Any, arena: Any, iteration: int) -> Any:
        learned.extend(experiences)
        return await plain(self, experiences, arena, iteration)

    monkeypatch.setattr(ToyLearner, "explore", explore)
    monkeypatch.setattr(ToyLearner, "learn", learn)
    assert cell(toy_plan(), tmp_path).iterate(1)["failed_rollouts"] == 2
    assert [experience.dropped for experience in learned] == [1, 1]


def test_an_episode_without_verdict_is_a_row_without_score(tmp_path, monkeypatch):
    plan = toy_plan(method="toy-walker")
    bad = plan.tasks[2].id
    break_task(monkeypatch, bad)
    cell(plan, tmp_path).evaluate(0, 0)
    rows = {row.task: row for row in read_rows(RunFolder(tmp_path / plan.name).rows)}
    lost = rows.pop(bad)
    assert (lost.status, lost.success, lost.score, lost.reward) == (Status.ENV_ERROR, None, None, None)
    assert all(row.status is Status.OK for row in rows.values())
    told = {entry["task"]: entry for entry in read_transcripts(RunFolder(tmp_path / plan.name).transcripts(0, 0))}
    assert told[bad]["error"] == f"no world for {bad}"


def test_a_model_server_that_fails_is_an_infrastructure_error(tmp_path, monkeypatch):
    plan = toy_plan(method="toy-walker")

    def generate(self: ToyModel, requests: Any) -> Any:
        raise InfraError("server gone")

    monkeypatch.setattr(ToyModel, "generate", generate)
    cell(plan, tmp_path).evaluate(0, 0)
    assert {row.status for row in read_rows(RunFolder(tmp_path / plan.name).rows)} == {Status.INFRA_ERROR}


@pytest.mark.parametrize("place", ["solve", "explore"])
def test_a_fault_of_the_program_comes_out_as_itself(tmp_path, monkeypatch, place):
    """Not as a group of errors, which no message would be found for."""

    async def wrong(*_: Any) -> Any:
        raise KeyError("typo")

    monkeypatch.setattr(ToyLearner, place, wrong)
    with pytest.raises(KeyError, match="typo"):
        cell(toy_plan(), tmp_path).run()


def test_training_that_diverges_keeps_its_batch_and_its_last_checkpoint(tmp_path, monkeypatch):
    plan = toy_plan()
    plain = ToyLearner.learn

    async def learn(self, experiences, arena, iteration):
        if iteration == 2:
            raise Diverged("the loss is nan", [{"ids": [1, 2], "reward": float("nan")}, {"ids": [3]}])
        return await plain(self, experiences, arena, iteration)

    monkeypatch.setattr(ToyLearner, "learn", learn)
    with pytest.raises(RunError, match=r"seed 0, iteration 2: the loss is nan; its rows lie in .*iteration-2.jsonl"):
        cell(plan, tmp_path).run()
    folder = RunFolder(tmp_path / plan.name).checkpoints / "seed-0"
    lines = (folder / "diverged-iteration-2.jsonl").read_text().splitlines()
    assert [json.loads(line)["ids"] for line in lines] == [[1, 2], [3]]
    assert [line["iteration"] for line in curves(plan, tmp_path)["seed-0"]] == [1]
    monkeypatch.setattr(ToyLearner, "learn", plain)
    cell(plan, tmp_path).run()
    assert [line["iteration"] for line in curves(plan, tmp_path)["seed-0"]] == [1, 2, 3], "it goes on from there"


def test_environments_are_closed_whatever_happens(tmp_path, monkeypatch):
    opened: list[ToyEnv] = []
    closed: set[int] = set()
    plain = ToyEnv.__init__

    def init(self: ToyEnv, **rest: Any) -> None:
        plain(self, **rest)
        opened.append(self)

    monkeypatch.setattr(ToyEnv, "__init__", init)
    monkeypatch.setattr(ToyEnv, "close", lambda self: closed.add(id(self)))

    def generate(self: ToyModel, requests: Any) -> Any:
        raise KeyboardInterrupt

    cell(toy_plan(), tmp_path).run()
    second = cell(toy_plan(), tmp_path / "second")
    monkeypatch.setattr(ToyModel, "generate", generate)
    with pytest.raises(KeyboardInterrupt):
        second.run()
    assert {id(env) for env in opened} == closed


# -- evaluation -------------------------------------------------------------------------------------------------


def test_a_lane_with_a_missing_row_is_rerun_whole_and_writes_only_that_row(tmp_path, monkeypatch):
    plan = toy_plan("transcripts=false", method="toy-walker")
    missing = plan.lanes[0][1]
    finished = {row_key(plan, 0, task, 0) for task in plan.tasks if task is not missing}
    played: list[str] = []
    plain = ToyWalker.solve

    async def solve(self: ToyWalker, episode: Any) -> Any:
        played.append(episode.task.id)
        return await plain(self, episode)

    monkeypatch.setattr(ToyWalker, "solve", solve)
    one = cell(plan, tmp_path, finished=finished)
    assert one.evaluate(0, 0)
    assert one.evaluate(0, 1)
    assert played == [task.id for task in plan.lanes[0]]
    assert [row["task"] for row in stored(plan, tmp_path)] == [missing.id]


def test_of_a_model_that_is_not_deterministic_only_what_is_missing_is_played(tmp_path, monkeypatch):
    plan = toy_plan(method="toy-walker")
    cell(plan, tmp_path).evaluate(0, 0)
    monkeypatch.setattr(ToyModel, "deterministic", False)
    finished = {row_key(plan, 0, task, 0) for task in plan.tasks[1:]}
    cell(plan, tmp_path, finished=finished).evaluate(0, 0)
    last = json.loads(RunFolder(tmp_path / plan.name).rows.read_text().splitlines()[-1])
    assert (last["task"], last["deterministic"]) == (plan.tasks[0].id, False)
    told = list(read_transcripts(RunFolder(tmp_path / plan.name).transcripts(0, 0)))
    assert len(told) == len(plan.lanes[0]), "transcripts of the other episodes stay"


def test_validation_is_played_as_an_evaluation_is_and_counted(tmp_path, monkeypatch):
    seen: list[Any] = []
    plain = ToyLearner.learn

    async def learn(self: ToyLearner, experiences: Any, arena: Any, iteration: int) -> Any:
        seen.append((await arena.validation(), await arena.validation(ToyEnv().tasks("validation")[:2])))
        return await plain(self, experiences, arena, iteration)

    before = cell(toy_plan(), tmp_path).iterate(1)
    monkeypatch.setattr(ToyLearner, "learn", learn)
    after = cell(toy_plan(), tmp_path).iterate(1)
    everything, two = seen[0]
    assert [t.task.split for t in everything] == ["validation"] * 8
    assert [(t.task.id, t.steps) for t in two] == [(t.task.id, t.steps) for t in everything[:2]], "paired seeds"
    assert not any(turn.trainable for t in everything for turn in t.turns)
    assert after["tokens_in"] > before["tokens_in"], "what learning asks is counted"
    assert after["rollouts"] == before["rollouts"], "and is no training episode"


# -- models -----------------------------------------------------------------------------------------------------


def test_roles_with_one_specification_share_one_model():
    plan = toy_plan()
    config = plan.config.model_copy(update={"models": {"policy": "toy:0.5", "judge": "toy:0.5", "critic": "toy:0.9"}})
    shared: Kit = open_kit(_with(plan, config), ToyLearner)
    assert shared.models["policy"] is shared.models["judge"]
    assert shared.models["critic"] is not shared.models["policy"]
    assert shared.embedder is None
    assert model_name(config) == "toy:0.5+critic=toy:0.9+judge=toy:0.5"


def test_an_option_that_the_model_cannot_honour_is_refused_before_the_run(monkeypatch):
    """By any model of any role, at evaluation or in training."""
    refused: dict[str, Any] = {}

    def check(self: ToyModel, sampling: Sampling) -> None:
        if (self.skill, sampling.temperature) == (refused["skill"], refused["temperature"]):
            raise UnsupportedOption(f"no temperature={sampling.temperature} for {self.name}")

    monkeypatch.setattr(ToyModel, "check", check)
    for method, temperatures in (("toy-learner", (0.7, 1.0)), ("toy-walker", (0.7,))):
        plan = toy_plan(method=method)
        models = {"policy": "toy:0.5", "judge": "toy:0.9"}
        plan = _with(plan, plan.config.model_copy(update={"models": models}))
        for skill in (0.5, 0.9):
            for temperature in temperatures:
                refused.update(skill=skill, temperature=temperature)
                with pytest.raises(UnsupportedOption, match=f"no temperature={temperature} for toy:{skill}"):
                    make_method(plan, 0, open_kit(plan, ToyLearner))
        refused.update(skill=0.5, temperature=0.3)
        assert make_method(plan, 0, open_kit(plan, ToyLearner)).name == method


def _with(plan: Any, config: Any) -> Any:
    import dataclasses

    return dataclasses.replace(plan, config=config)


def test_environments_that_take_long_leave_the_models_thread(tmp_path, monkeypatch):
    import dataclasses
    import threading

    threads: dict[str, set[int]] = {"own": set(), "offload": set()}
    rows: list[Sequence[Any]] = []
    plain = ToyEnv.step
    for name, spec in (("own", {"thread": "own"}), ("offload", {"offload": True}), ("here", {})):

        def step(self: ToyEnv, action: str, name: str = name) -> Any:
            threads.setdefault(name, set()).add(threading.get_ident())
            return plain(self, action)

        with monkeypatch.context() as patch:
            patch.setattr(ToyEnv, "spec", dataclasses.replace(ToyEnv.spec, **spec))
            patch.setattr(ToyEnv, "step", step)
            plan = toy_plan()
            cell(plan, tmp_path / name).run()
            rows.append(stored(plan, tmp_path / name))
    assert rows[0] == rows[1] == rows[2], "threads change no row"
    here = threading.get_ident()
    assert threads["here"] == {here}
    assert here not in threads["own"] | threads["offload"]
