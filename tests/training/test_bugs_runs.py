"""Known faults of runs: seeds, resuming, splits and scores, items 17 and 18 of the list in PAPERS.md."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from envs.webshop.env import WebShop
from envs.webshop.goals import official_splits
from envs.webshop.official import load_official
from envs.webshop.schema import Goal
from harness.arena import Arena
from harness.experience import Experience
from harness.model import Prompt, Request, Sampling
from harness.models.scripted import ScriptedModel
from harness.types import Completion, StopReason, Task
from tests.plays import arena, play, task, trajectory, world
from tests.toy_runs import cell, stored, toy_plan
from tests.toys import ToyEnv, ToyLearner, ToyModel

VECTORS: dict[str, Any] = json.loads((Path(__file__).parents[1] / "vectors" / "rl.json").read_text())


class Stopped(Exception):
    """What a killed run looks like from inside."""


class Told:
    """Train tasks in the order they were explored in, and the seed of every training request by its key."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.tasks: list[tuple[int, int, str]] = []
        self.seeds: dict[Any, int] = {}
        self.worlds: dict[Any, set[int]] = {}
        explore, generate = ToyLearner.explore, ToyModel.generate
        told = self

        async def watched(self: ToyLearner, task: Task, arena: Arena) -> Experience:
            told.tasks.append((arena.iteration, arena.slot, task.id))
            experience = await explore(self, task, arena)
            told.worlds[arena.iteration, arena.slot] = {played.seed for played in experience.played}
            return experience

        def answered(self: ToyModel, requests: Sequence[Request]) -> list[Completion]:
            for request in requests:
                if request.key[0] == "train":
                    assert request.key not in told.seeds, "a request is asked once"
                    told.seeds[request.key] = request.sampling.seed
            return generate(self, requests)

        monkeypatch.setattr(ToyLearner, "explore", watched)
        monkeypatch.setattr(ToyModel, "generate", answered)


def trained(out: Path, monkeypatch: pytest.MonkeyPatch, *, stop: int | None = None, seed: int = 0) -> Told:
    """What a run of four iterations tells, or goes on telling from where an earlier one in the folder stopped."""
    plan = toy_plan("iterations=4", "tasks_per_iteration=5", "eval_at=[]", seeds=(seed,))

    def listen(event: Any) -> None:
        if stop is not None and getattr(event, "iteration", None) == stop and hasattr(event, "metrics"):
            raise Stopped

    with monkeypatch.context() as patch:
        told = Told(patch)
        one = cell(plan, out, seed=seed, listen=listen)
        if stop is None:
            one.run()
        else:
            with pytest.raises(Stopped):
                one.run()
    return told


# -- 17: what a run sees after it was stopped, and what each request is seeded with -------------------------------


@pytest.mark.usefixtures("toys")
def test_item_17_two_and_two_iterations_see_the_tasks_and_seeds_of_four(tmp_path, monkeypatch):
    """verl#3457: a loader that starts anew shows the first tasks again, and the last ones never."""
    whole = trained(tmp_path / "whole", monkeypatch)
    first = trained(tmp_path / "halves", monkeypatch, stop=2)
    second = trained(tmp_path / "halves", monkeypatch)
    assert [place[:2] for place in whole.tasks] == [(i, slot) for i in range(1, 5) for slot in range(5)]
    assert first.tasks + second.tasks == whole.tasks
    assert first.seeds | second.seeds == whole.seeds
    assert not first.seeds.keys() & second.seeds.keys()
    assert first.worlds | second.worlds == whole.worlds

    def loader() -> Iterator[Task]:
        tasks = list(ToyEnv().tasks("train"))
        random.Random(0).shuffle(tasks)
        return iter(tasks)

    through, before, after = loader(), loader(), loader()
    straight = [next(through).id for _ in range(15)]
    resumed = [next(before).id for _ in range(10)] + [next(after).id for _ in range(5)]
    assert len(set(straight)) == 15
    assert len(set(resumed)) == 10, "a third of the tasks was never shown"
    assert len({name for _, _, name in whole.tasks[:15]}) == 15


@pytest.mark.usefixtures("toys")
def test_item_17_no_two_requests_of_a_run_or_of_two_runs_share_a_seed(tmp_path, monkeypatch):
    """An engine that counts its calls begins at its first seed again after a restart (NeMo-RL#226)."""
    one, two = (trained(tmp_path, monkeypatch, seed=seed) for seed in (0, 1))
    assert len(set(one.seeds.values())) == len(one.seeds) > 100
    assert not set(one.seeds.values()) & set(two.seeds.values())
    counted = [seed for calls in (60, 60) for seed in range(calls)]
    assert len(set(counted)) == len(counted) / 2


def test_item_17_rollouts_of_every_strategy_and_task_have_seeds_of_their_own():
    """verl PR 5179: with one seed in all replicas the rollouts of a prompt are one rollout, and nothing is compared."""
    prompt = [Request((i,), Prompt.user("You are at cell 1. The goal is cell 4."), Sampling(seed=0)) for i in range(32)]
    assert len({c.text for c in ToyModel(0.4).generate(prompt)}) == 1, "the faulty engine"
    seeds: Counter[int] = Counter()
    same_state: dict[int, set[int]] = {}

    def reply(prompt: str, seed: int) -> str:
        seeds[seed] += 1
        return "stop"

    here = world(ScriptedModel(reply))
    asked = []
    for slot in (0, 1):
        place = arena(here, slot=slot)
        for strategy in range(3):
            episodes = place.episodes(task(), 4, branch=(strategy,))
            same_state.setdefault(slot, set()).update(episode.seed for episode in episodes)
            asked += [episode.ask(Prompt.user("what now?")) for episode in episodes]
        asked.append(place.sample(Prompt.user("a strategy?"), n=8))
    play(here, *asked)
    assert len(seeds) == sum(seeds.values()) == 2 * (3 * 4 + 8)
    assert [len(worlds) for worlds in same_state.values()] == [1, 1], "what is compared starts in one state"
    assert same_state[0] != same_state[1]


# -- 18: what is tested, and what counts --------------------------------------------------------------------------


def official_goals(n: int, texts: int | None = None) -> list[Goal]:
    """Goals with so many different texts, all different by default."""
    one = WebShop().tasks("test")[0].payload
    return [replace(one, asin=f"A{i}", instruction=f"goal {i % (texts or n)}") for i in range(n)]


def test_item_18_no_worker_trains_on_a_test_goal():
    """ARL-Arena#7: each worker shuffles the goals with its own seed and cuts by place; all are trained on somewhere."""
    entry = VECTORS["webshop_split_leak"]
    numbers = range(entry["n_goals"])

    def halves(seed: int) -> tuple[set[int], set[int]]:
        order = list(numbers)
        random.Random(seed).shuffle(order)
        return set(order[:500]), set(order[500:])

    def leaked(train_seeds: Sequence[int], test_seed: int) -> float:
        train = set().union(*(halves(seed)[1] for seed in train_seeds))
        test = halves(test_seed)[0]
        return len(test & train) / len(test)

    workers = entry["train_workers"]
    assert leaked(range(workers), entry["val_seed_base"]) == entry["share_of_val_goals_in_some_train_pool"]
    assert leaked([233] * workers, 233) == entry["with_one_fixed_shuffle_seed"]
    goals, splits = official_goals(entry["n_goals"]), []
    state = random.getstate()
    for worker in range(workers):
        random.seed(worker)
        splits.append(official_splits(goals))
    random.setstate(state)
    train = {goal.instruction for one in splits for goal in one.train}
    test = {goal.instruction for one in splits for goal in one.test}
    assert (len(train), len(test)) == (500, 500)
    assert not train & test


def test_item_18_a_text_of_two_goals_is_not_in_two_splits():
    """One shuffle for all is not enough: texts repeat, and cut by place over a quarter of the tests leaks."""
    goals = official_goals(3000, texts=2500)
    order = list(goals)
    random.Random(233).shuffle(order)
    by_place = [{goal.instruction for goal in part} for part in (order[:500], order[500:])]
    assert len(by_place[0] & by_place[1]) > 125
    splits = official_splits(goals)
    texts = [{goal.instruction for goal in part} for part in (splits.test, splits.validation, splits.train)]
    assert not texts[0] & texts[1]
    assert not (texts[0] | texts[1]) & texts[2]
    assert texts[0] == by_place[0], "the tests are the official ones"


def test_item_18_official_files_are_split_once_and_the_same_in_every_worker(tmp_path):
    """Through the loader: prices and limits are drawn too, so that an unseeded one changes the texts (princeton)."""
    products = [
        {"name": f"Thing {i}", "brand": "Brand: N", "full_description": "A thing.", "product_category": "Mugs",
         "pricing": f"${i % 40}.50", "small_description": [], "customization_options": "", "asin": f"A{i:05}",
         "query": "mug"}
        for i in range(1700)
    ]  # fmt: skip
    wishes = {
        p["asin"]: {"attributes": ["slim"], "instruction": f"Find mug {i % 200}", "instruction_attributes": ["slim"]}
        for i, p in enumerate(products)
    }
    (tmp_path / "items_shuffle_1000.json").write_text(json.dumps(products))
    (tmp_path / "items_ins_v2_1000.json").write_text(json.dumps(wishes))
    state = random.getstate()
    workers = []
    for worker in range(2):
        random.seed(worker)
        workers.append(load_official(tmp_path)[1])
    random.setstate(state)
    assert workers[0] == workers[1]
    splits = workers[0]
    assert splits.removed > 0
    texts = [{goal.instruction for goal in part} for part in (splits.test, splits.validation, splits.train)]
    assert [a & b for a, b in ((texts[0], texts[1]), (texts[0], texts[2]), (texts[1], texts[2]))] == [set()] * 3
    assert len(splits.test) == 500


def test_item_18_embedded_splits_are_disjoint_and_the_same_in_every_environment():
    texts = [{one.payload.instruction for one in WebShop().tasks(split)} for split in ("train", "validation", "test")]
    assert [len(part) for part in texts] == [4000, 500, 500]
    assert len(set().union(*texts)) == 5000
    one, other = WebShop(view="full"), WebShop(view="full")
    first = one.tasks("train")[0]
    one.reset(first, seed=99)
    assert [t.id for t in one.tasks("test")] == [t.id for t in other.tasks("test")]
    assert one.reset(first, seed=1) == other.reset(first, seed=2), "a worker's seed changes no page"


@pytest.mark.usefixtures("toys")
def test_item_18_each_test_task_is_played_once_whoever_plays_it_and_in_whatever_order(tmp_path):
    """Agent-G2#1: workers that each walk a stream of their own repeat some tasks and leave out others."""
    tasks = [one.id for one in ToyEnv().tasks("test")]
    streams = []
    for worker in range(4):
        mine = list(tasks)
        random.Random(worker).shuffle(mine)
        streams.append(mine[:2])
    faulty = Counter(name for stream in streams for name in stream)
    assert set(faulty) != set(tasks)
    assert max(faulty.values()) > 1
    rows = []
    for name, lane, order in (("forward", 2, (0, 1, 2, 3)), ("backward", 2, (3, 2, 1, 0)), ("one", 64, (0,))):
        plan = toy_plan(method="toy-walker", lane=lane)
        for index in order:  # as four workers would, each with a cell of its own
            assert cell(plan, tmp_path / name).evaluate(0, index)
        rows.append([{k: v for k, v in row.items() if k != "run"} for row in stored(plan, tmp_path / name)])
    assert Counter(row["task"] for row in rows[0]) == Counter(tasks)
    assert rows[0] == rows[1] == rows[2]


def test_item_18_success_is_won_and_not_done():
    """alfworld#51: counted by `done`, a shopper who buys anything has succeeded."""
    shop = WebShop(view="full")
    some = shop.tasks("test")[0]
    results = {}
    for name, actions in (("wrong", shop.wrong(some)), ("right", shop.oracle(some))):
        shop.reset(some, seed=0)
        last = [shop.step(action) for action in actions or ()][-1]
        results[name] = (last.terminated, shop.verdict().success, shop.verdict().score == 1.0)
    assert results == {"wrong": (True, False, False), "right": (True, True, True)}
    here = world(ScriptedModel(["<action>stop</action>"]))

    async def stop_at_once() -> Any:
        (episode,) = arena(here).episodes(task(0, 2), 1)
        result = await episode.step("stop")
        return result.terminated, await episode.close()

    ((done, made),) = play(here, stop_at_once())
    assert done
    assert (made.stop, made.success) == (StopReason.FAILURE, False)
    assert trajectory(0, success=True).stop is StopReason.SUCCESS
