"""AgentGym-RL and ScalingInter-RL: how long training episodes are, when, and what that leaves alone."""

from __future__ import annotations

import asyncio
import dataclasses
import re
from typing import Any

import pytest
from pydantic import ValidationError

from baselines.agentgym_rl import AgentGymRL
from baselines.grpo import GRPO
from baselines.scalinginter import ScalingInter
from envs.specs import SPECS
from harness.errors import InputError
from harness.experience import Experience
from harness.method import Method
from harness.model import Kit
from harness.models.scripted import ScriptedModel
from harness.types import StopReason
from tests.models.tiny import tiny
from tests.plays import arena, episode, play, task, trajectory, world
from tests.toys import ToyEnv


def make(method: type[GRPO], *, spec: Any = ToyEnv.spec, view: Any = "compact", **options: Any) -> Any:
    config = method.Config(**{"rollouts": 2, "max_tokens": 40, **options})
    return method(config, spec=spec, view=view, seed=0)


def lengths(method: GRPO, iteration: int) -> set[int]:
    """Steps of training episodes that never come to an end."""
    model = ScriptedModel(lambda prompt, seed: "no action")
    there = world(model)
    Method.setup(method, Kit({"policy": model}))
    explored = play(there, method.explore(task(), arena(there, iteration=iteration)))[0]
    assert {played.stop for played in explored.played} == {StopReason.HORIZON}
    return {len(played.steps) for played in explored.played}


def test_training_episodes_end_at_the_fixed_horizon():
    for iteration in (1, 9):
        assert lengths(make(AgentGymRL, horizon=3), iteration) == {3}
        assert lengths(make(AgentGymRL), iteration) == {ToyEnv.spec.horizon}


def test_the_horizon_grows_by_stages():
    method = make(ScalingInter, rounds=[2, 4, 7], stage_steps=2)
    assert [lengths(method, iteration) for iteration in range(1, 9)] == [{2}, {2}, {4}, {4}, {7}, {7}, {7}, {7}]


def test_the_published_schedule():
    """A stage begins after every 100 training steps; the last one lasts."""
    method = make(ScalingInter, rounds=[2, 4, 7], stage_steps=100)
    assert [method.training_horizon(i) for i in (1, 100, 101, 200, 201, 1000)] == [2, 2, 4, 4, 7, 7]


@pytest.mark.parametrize(
    ("iterations", "stages"),
    [(150, [3] * 50 + [5] * 50 + [7] * 50), (4, [3, 5, 7, 7]), (2, [5, 7]), (1, [7])],
)
def test_stages_share_the_iterations_equally_by_default(iterations, stages):
    """A run of any length ends with the environment's own episodes; what is too much for it is the short ones."""
    method = make(ScalingInter, iterations=iterations)
    assert [method.training_horizon(i) for i in range(1, iterations + 1)] == stages


@pytest.mark.parametrize(("horizon", "stages"), [(15, [5, 10, 15]), (30, [10, 20, 30]), (7, [3, 5, 7]), (1, [1])])
def test_stages_are_thirds_of_the_environments_horizon(horizon, stages):
    """5, 10, 15 on WebShop; 10, 20, 30 with the 30 rounds that AgentGym-RL evaluates SciWorld with."""
    method = make(ScalingInter, spec=dataclasses.replace(ToyEnv.spec, horizon=horizon), stage_steps=1)
    assert sorted({method.training_horizon(i) for i in range(1, 5)}) == stages


@pytest.mark.parametrize("method", [AgentGymRL, ScalingInter])
def test_evaluation_keeps_the_environments_horizon(method):
    options = {"horizon": 2} if method is AgentGymRL else {"rounds": [2]}
    model = ScriptedModel(lambda prompt, seed: "no action")
    there = world(model)
    done = play(there, make(method, **options).solve(episode(there, phase="eval")))[0]
    assert len(done.steps) == ToyEnv.spec.horizon


def test_a_horizon_beyond_the_environments_is_refused():
    with pytest.raises(InputError, match="horizon asks for training episodes of 8 steps, but toy ends them after 7"):
        make(AgentGymRL, horizon=8)
    with pytest.raises(InputError, match=r"rounds asks .* 30 steps, but sciworld ends them after 20; choose"):
        make(ScalingInter, rounds=[10, 20, 30], spec=SPECS["sciworld"])


@pytest.mark.parametrize("rounds", [[], [0, 5], [5, 5], [10, 5]])
def test_rounds_that_do_not_grow_are_refused(rounds):
    with pytest.raises(ValidationError):
        make(ScalingInter, rounds=rounds)


def test_a_second_stage_that_never_begins_is_refused():
    """All of training would have the shortest episodes. A third may lie beyond the end, as the published one does."""
    for rounds, said in ((None, "the second stage is"), ([2, 7], r"the second stage of rounds=\[2, 7\] is")):
        with pytest.raises(ValidationError, match=rf"stage_steps=100 with iterations=15: {said} never reached; lower"):
            make(ScalingInter, rounds=rounds, stage_steps=100, iterations=15)
    assert make(ScalingInter, rounds=[2, 4, 7], stage_steps=100, iterations=150).training_horizon(150) == 4
    assert make(ScalingInter, rounds=[3], stage_steps=100, iterations=15).training_horizon(15) == 3


@pytest.mark.parametrize("options", [{"rounds": [2, 4], "stage_steps": 1}, {"horizon": 2}], ids=str)
def test_prompts_do_not_tell_how_long_training_lets_an_episode_be(options):
    """They would change with every stage, and evaluation would show a number that was never seen."""
    prompts = []
    for phase, iteration in (("train", 1), ("train", 2), ("eval", 0)):
        model = ScriptedModel(lambda prompt, seed: "no action")
        method = make(ScalingInter if "rounds" in options else AgentGymRL, view="full", **options)
        there = world(model, env=lambda: ToyEnv(view="full"))
        Method.setup(method, Kit({"policy": model}))
        if phase == "train":
            play(there, method.explore(task(), arena(there, iteration=iteration)))
        else:
            play(there, method.solve(episode(there, phase="eval")))
        shown = {re.sub(r"walls are \w+", "", prompt) for prompt in model.prompts}  # another seed paints them anew
        prompts.append([sorted(text for text in shown if f"step {k} of at most 7)" in text) for k in (1, 2)])
    assert prompts[0] == prompts[1] == prompts[2]
    assert [len(texts) for texts in prompts[0]] == [1, 1]


def test_a_success_is_worth_the_same_in_every_stage():
    """The decay runs over the environment's horizon: over the stage's, the same walk would be paid better later."""
    method = make(ScalingInter)
    values = [
        method.outcome(trajectory(0, success=True, malformed=[False] * 3, horizon=horizon)) for horizon in (3, 5, 7)
    ]
    assert values == [pytest.approx(1 - 0.5 * 2 / 6)] * 3
    ours, theirs = make(AgentGymRL, horizon=3), make(GRPO)
    short = trajectory(0, success=True, malformed=[False] * 3, horizon=3)
    assert ours.outcome(short) == pytest.approx(5 / 6)
    assert theirs.outcome(short) == 0.5, "what GRPO would make of it"


def test_advantages_are_grpos():
    ours, theirs = make(ScalingInter), make(GRPO)
    made = [trajectory(0, success=True, malformed=[False, True]), trajectory(1, malformed=[False] * 3)]
    mine, other = (method.experience(made, group=(1, 0)) for method in (ours, theirs))
    assert ours.advantages(mine).tolist() == theirs.advantages(other).tolist()


def test_the_horizon_is_among_the_metrics():
    method = make(ScalingInter, rounds=[2, 4], stage_steps=3, kl_beta=0.0)
    method.setup(Kit({"policy": tiny()}))
    curve = [asyncio.run(method.learn([Experience()], None, iteration))["horizon"] for iteration in (1, 3, 4)]
    assert curve == [2, 2, 4]
