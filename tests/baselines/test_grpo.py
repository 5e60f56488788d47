"""GRPO: one group a task, one advantage a trajectory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from baselines.grpo import GRPO
from harness.method import Method
from harness.model import Kit
from harness.models.scripted import ScriptedModel
from harness.types import StopReason
from tests.plays import arena, best, episode, play, task, trajectory, world
from tests.toys import ToyEnv


def grpo(**options: Any) -> GRPO:
    return GRPO(GRPO.Config(**{"rollouts": 4, "max_tokens": 40, **options}), spec=ToyEnv.spec, view="compact", seed=0)


def explored(method: GRPO, model: ScriptedModel) -> Any:
    there = world(model)
    Method.setup(method, Kit({"policy": model}))
    return play(there, method.explore(task(0, 1), arena(there, iteration=3, slot=5)))[0]


def test_rollouts_of_one_task_are_one_group():
    model = ScriptedModel(lambda prompt, seed: f"<action>{best(prompt)}</action>" if seed % 2 else "no idea")
    method = grpo()
    experience = explored(method, model)
    assert len(experience.trajectories) == len(set(experience.trajectories)) == method.rollouts_per_task == 4
    assert set(experience.groups) == {(3, 5)} == set(experience.row_groups)
    assert experience.metrics["episodes"] == 4
    assert all(row.kind == "action" for row in experience.rows)


def test_prompts_show_the_task_and_the_last_steps():
    model = ScriptedModel(lambda prompt, seed: f"<action>{best(prompt)}</action>")
    explored(grpo(history=1), model)
    first, second = model.prompts[0], model.prompts[4]
    assert first.startswith("act Walk from cell 0 to cell 1 and stop. ; You are at cell 0.")
    assert " did " not in first
    assert second.endswith("did right ;")


def test_malformed_replies_cost_steps_until_the_horizon():
    model = ScriptedModel(lambda prompt, seed: "left")
    there = world(model)
    done = play(there, grpo().solve(episode(there)))[0]
    assert done.stop is StopReason.HORIZON
    assert all(step.malformed for step in done.steps)


def test_an_advantage_belongs_to_a_trajectory():
    """Eq. 2 over the means of the rows' rewards, the same for every row."""
    method = grpo(decay=0.0)
    made = [trajectory(0, success=True, malformed=[False, True]), trajectory(1, malformed=[False] * 3)]
    experience = method.experience(made, group=(1, 0))
    assert experience.outcomes.tolist() == [0.5, 0.0]  # rows 1 and 1 - 1; rows 0, 0, 0
    expected = (np.array([0.5, 0.0]) - 0.25) / (np.std([0.5, 0.0], ddof=1) + 1e-6)
    assert method.advantages(experience) == pytest.approx(np.repeat(expected, [2, 3]))
    centred = grpo(decay=0.0, scale="none").advantages(experience)
    assert centred == pytest.approx([0.25, 0.25, -0.25, -0.25, -0.25])
    population = grpo(decay=0.0, ddof=0).advantages(experience)
    assert population == pytest.approx([1, 1, -1, -1, -1], rel=1e-4)


def test_statistics_over_rows_as_verl_agent_computes_them():
    method = grpo(decay=0.0, statistics="row", eps=1e-8)
    made = [trajectory(0, success=True, malformed=[False, True]), trajectory(1, malformed=[False] * 3)]
    rewards = np.array([1.0, 0.0, 0.0, 0.0, 0.0])
    expected = (rewards - rewards.mean()) / rewards.std(ddof=1)
    assert method.advantages(method.experience(made, group=(1, 0))) == pytest.approx(expected)


@given(st.lists(st.tuples(st.booleans(), st.lists(st.booleans(), min_size=1, max_size=4)), min_size=2, max_size=6))
def test_bare_outcomes_make_both_statistics_of_a_trajectory(rollouts):
    """auxiliary=none: every row of a trajectory has the trajectory's reward, so the broadcast is that of outcomes."""
    method = grpo(auxiliary="none", decay=0.0)
    made = [trajectory(k, success=success, malformed=bad) for k, (success, bad) in enumerate(rollouts)]
    experience = method.experience(made, group=(1, 0))
    assert experience.outcomes.tolist() == [float(success) for success, _ in rollouts]
    assert experience.broadcast(experience.outcomes).tolist() == experience.row_rewards.tolist()
