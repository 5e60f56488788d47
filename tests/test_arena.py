"""The arena: keys and seeds of everything that training asks, and what failed rollouts leave behind."""

from __future__ import annotations

from typing import Any

import pytest

from harness.arena import Arena
from harness.env import EnvError, InfraError
from harness.episode import Episode, EpisodeFailed
from harness.model import Prompt, Request
from harness.models.scripted import ScriptedModel
from harness.types import Observation, Status, Task
from tests.plays import SAMPLING, arena, best, play, task, walk, world
from tests.toys import ToyEnv


class Listening(ScriptedModel):
    """A script that remembers its requests."""

    def __init__(self) -> None:
        super().__init__(lambda prompt, seed: best(prompt) if "goal" in prompt else "fine")
        self.requests: list[Request] = []

    def generate(self, requests: Any) -> Any:
        self.requests += requests
        return super().generate(requests)


def test_every_request_of_a_run_has_a_key_and_a_seed_of_its_own():
    """Two phases, iterations, slots, tasks, branches, rollouts, steps, roles and ordinals, side by side."""
    model = Listening()
    there = world(model)

    async def explore(one: Arena) -> None:
        for chosen in (task(0, 1), task(1, 3)):
            for branch in ((), (0,), (1,)):
                await one.gather(walk(e) for e in one.episodes(chosen, 2, branch=branch))
        for branch in ((), (0,), (0, 1), (1, 0)):
            await one.sample(Prompt.user("plan"), n=2, branch=branch)
            await one.ask(Prompt.user("judge"), role="judge", branch=branch)

    places = [("train", 1, 0), ("train", 1, 1), ("train", 2, 0), ("validation", 1, 0), ("eval", 1, 0)]
    play(there, *(explore(arena(there, phase=p, iteration=i, slot=s)) for p, i, s in places))
    keys = [request.key for request in model.requests]
    seeds = [request.sampling.seed for request in model.requests]
    assert len(keys) > 200
    assert len(set(keys)) == len(keys)
    assert len(set(seeds)) == len(seeds)
    assert sorted(keys), "keys of all kinds can be ordered: a batch is sorted by them"


def test_seeds_follow_the_run_seed():
    def seeds(run_seed: int) -> list[int]:
        model = Listening()
        there = world(model, seed=run_seed)
        one = arena(there)
        play(there, walk(one.episodes(task(), 1)[0]), one.sample(Prompt.user("plan")))
        return [request.sampling.seed for request in model.requests]

    assert seeds(0) == seeds(0)
    assert not set(seeds(0)) & set(seeds(1))


def test_rollouts_that_are_compared_start_in_one_state():
    there = world()
    one, other = arena(there, slot=0), arena(there, slot=1)
    group = [*one.episodes(task(), 3), *one.episodes(task(), 2, branch=(1,))]
    assert len({episode.seed for episode in group}) == 1
    assert len({episode.key for episode in group}) == 5
    assert other.episodes(task(), 1)[0].seed != group[0].seed, "another draw of the task is another start"


def test_two_draws_of_one_task_never_merge():
    there = world()
    draws = [arena(there, iteration=i, slot=s) for i, s in ((1, 0), (1, 1), (2, 0))]
    assert len({draw.group for draw in draws}) == 3
    assert len({e.key for draw in draws for e in draw.episodes(task(), 2)}) == 6


def test_asking_for_more_episodes_gives_other_rollouts():
    """Not the same ones again: their equal samples would be counted as independent."""
    there = world()
    one = arena(there)
    keys = [e.key for _ in range(2) for e in one.episodes(task(), 2)] + [one.episodes(task(1, 3), 1)[0].key]
    assert [key[-1] for key in keys] == [0, 1, 2, 3, 0]
    assert len(set(keys)) == 5


def test_horizon_and_mode():
    there = world()
    assert arena(there).episodes(task(), 1)[0].horizon == ToyEnv.spec.horizon
    short = arena(there, phase="validation").episodes(task(), 1, horizon=2)[0]
    assert (short.horizon, short.mode) == (2, "eval")
    assert arena(there).episodes(task(), 1)[0].mode == "train"


def test_sampled_responses_are_turns_outside_of_episodes():
    there = world(Listening())
    one = arena(there)
    turns = play(there, one.sample(Prompt.user("plan", kind="strategy"), n=3))[0]
    assert [(t.kind, t.role, t.trainable, t.token_limit, t.steps) for t in turns] == [
        ("strategy", "policy", True, SAMPLING.max_tokens, ())
    ] * 3
    judged = play(there, one.ask(Prompt.user("judge"), role="judge"))[0]
    assert not judged.trainable
    validated = play(there, arena(there, phase="validation").ask(Prompt.user("plan"), role="policy"))[0]
    assert not validated.trainable


def test_usage_counts_every_turn_once():
    model = Listening()
    there = world(model)
    one = arena(there)
    play(there, walk(one.episodes(task(), 1)[0]), one.sample(Prompt.user("a b"), n=2))
    assert there.tally.usage.calls == len(model.requests)
    assert there.tally.usage.tokens_in == sum(len(r.prompt.text.split()) for r in model.requests)


def test_failed_rollouts_are_left_out_and_counted():
    there = world()

    async def rollout(k: int) -> int:
        if k == 1:
            raise EpisodeFailed(Status.ENV_ERROR, "crash")
        if k == 2:
            raise InfraError("server")
        return k

    assert play(there, arena(there).gather(rollout(k) for k in range(4)))[0] == [0, 3]
    assert there.tally.failed == {"env_error": 1, "infra_error": 1}


def test_a_world_that_fails_takes_its_rollout_and_no_other():
    class Fragile(ToyEnv):
        def reset(self, task: Task, *, seed: int) -> Observation:
            if Fragile.resets in (1, 2):  # the second rollout, and its retry
                Fragile.resets += 1
                raise EnvError("no display")
            Fragile.resets += 1
            return super().reset(task, seed=seed)

    Fragile.resets = 0
    there = world(ScriptedModel(lambda prompt, seed: best(prompt)), env=Fragile)
    one = arena(there)
    done = play(there, one.gather(walk(e) for e in one.episodes(task(), 3)))[0]
    assert [t.key[-1] for t in done] == [0, 2]
    assert there.tally.failed == {"env_error": 1}


def test_a_fault_of_the_program_is_raised():
    there = world()

    async def wrong() -> None:
        raise TypeError("typo")

    with pytest.raises(TypeError, match="typo"):
        play(there, arena(there).gather([wrong()]))


def test_every_world_is_closed_whatever_happens():
    closed: list[bool] = []

    class Closing(ToyEnv):
        def close(self) -> None:
            closed.append(True)

    there = world(env=Closing)
    episodes: list[Episode] = arena(there).episodes(task(), 3)
    assert [e.observation.text for e in episodes]
    there.close()
    there.close()
    assert len(closed) == 3


def test_validation_is_there_for_learning_only():
    there = world()

    async def solved(tasks: Any) -> list[Any]:
        return [tasks]

    with pytest.raises(RuntimeError, match="given to learn"):
        play(there, arena(there).validation())
    learning = Arena(there, phase="train", iteration=1, slot=-1, sampling=SAMPLING, validate=solved)
    assert play(there, learning.validation([task()]))[0] == [[task()]]
