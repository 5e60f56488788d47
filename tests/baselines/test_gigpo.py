"""GiGPO: the published numbers, what a step group is, and what a row earns on each level."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from baselines.gigpo import GiGPO, gigpo_advantages, step_groups
from harness.experience import Experience
from harness.method import Method
from harness.model import Kit
from harness.models.scripted import ScriptedModel
from harness.types import Trajectory
from tests.plays import arena, best, play, task, trajectory, world
from tests.toys import ToyEnv

VECTORS: dict[str, Any] = json.loads((Path(__file__).parents[1] / "vectors" / "rl.json").read_text())
PUBLISHED = {"auxiliary": "invalid", "reward_scale": 10.0, "decay": 0.0}
"""verl-agent's rewards: 10 for a success, 0.1 off for an invalid action."""


def gigpo(**options: Any) -> GiGPO:
    config = GiGPO.Config(**{"rollouts": 4, "max_tokens": 40, **options})
    return GiGPO(config, spec=ToyEnv.spec, view="compact", seed=0)


def through(rollout: int, states: Sequence[str], **rest: Any) -> Trajectory:
    """A made-up trajectory that was in these states."""
    made = trajectory(rollout, **{"malformed": [False] * len(states), **rest})
    steps = [dataclasses.replace(step, anchor=state) for step, state in zip(made.steps, states, strict=True)]
    return dataclasses.replace(made, steps=steps)


def worked_example(method: GiGPO) -> Experience:
    """The two rollouts of the file: a, b, c and success; a, b, b, d and failure."""
    return method.experience([through(0, "abc", success=True), through(1, "abbd")], group=(1, 0))


# -- the maths --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scale", "omega", "key"),
    [
        ("std", 0.0, "A_E_mean_std_cross_steps"),
        ("none", 0.0, "A_E_mean_norm"),
        ("std", 1.0, "A_total_mean_std"),
        ("none", 1.0, "A_total_mean_norm"),
    ],
)
def test_vectors_of_gigpo(scale, omega, key):
    entry = VECTORS["gigpo"]
    advantages = gigpo_advantages(
        entry["episode_reward"], [0, 0, 10, 0, 0, 0, 0], entry["obs"], "xxxyyyy", ["task"] * 7, gamma=entry["gamma"],
        omega=omega, scale=scale,
    )  # fmt: skip
    np.testing.assert_allclose(advantages, entry[key], atol=2e-8)
    method = gigpo(scale=scale, omega=omega, **PUBLISHED)
    np.testing.assert_allclose(method.advantages(worked_example(method)), entry[key], atol=2e-8)


def test_vectors_of_gigpo_step_level():
    entry = VECTORS["gigpo"]
    method = gigpo(**PUBLISHED)
    np.testing.assert_allclose(method.step_returns(worked_example(method)), entry["step_returns"], atol=2e-8)
    for scale, key in (("std", "A_S_mean_std"), ("none", "A_S_mean_norm")):
        both, none = (gigpo(scale=scale, omega=omega, **PUBLISHED) for omega in (1.0, 0.0))
        step = both.advantages(worked_example(both)) - none.advantages(worked_example(none))
        np.testing.assert_allclose(step, entry[key], atol=2e-8)


def test_vectors_of_gigpo_similarity():
    """Different object ids merge at 0.95; the ratio is difflib's."""
    entry = VECTORS["gigpo_similarity"]
    texts = [entry["a"], entry["b"]]
    assert SequenceMatcher(None, *texts).ratio() == entry["ratio"]
    assert step_groups(texts, ["t"] * 2, 0.95).tolist() == [0, 0]
    assert step_groups(texts, ["t"] * 2, 0.97).tolist() == [0, 1]
    assert step_groups(texts, ["t"] * 2).tolist() == [0, 1]
    assert step_groups(texts, ["t", "u"], 0.95).tolist() == [0, 1], "another task's states are never met"


def test_the_published_statistics_of_trajectories():
    entry = VECTORS["gigpo"]
    method = gigpo(statistics="trajectory", omega=0.0, **PUBLISHED)
    np.testing.assert_allclose(method.advantages(worked_example(method)), entry["A_E_std_traj_level"], atol=2e-8)


def test_clusters_depend_on_their_first_member():
    """ "ab" and "bc" are both like "abc" but not like each other: a greedy pass joins what came first."""
    alike = SequenceMatcher(None, "ab", "abc").ratio()
    assert alike == SequenceMatcher(None, "bc", "abc").ratio() == 0.8
    assert SequenceMatcher(None, "ab", "bc").ratio() == 0.5
    assert step_groups(["abc", "ab", "bc"], "ttt", 0.8).tolist() == [0, 0, 0]
    assert step_groups(["ab", "abc", "bc"], "ttt", 0.8).tolist() == [0, 0, 1]


@given(st.lists(st.tuples(st.text("abc ", max_size=4), st.integers(0, 2)), max_size=12))
def test_equal_states_of_one_task_are_one_group(rows):
    texts, groups = [text for text, _ in rows], [group for _, group in rows]
    numbers = step_groups(texts, groups)
    for i, row in enumerate(rows):
        for j, other in enumerate(rows):
            assert (numbers[i] == numbers[j]) == (row == other)
    assert step_groups(texts, groups, 1.0).tolist() == numbers.tolist(), "a ratio of 1 is equality"


def test_what_is_alone_is_not_compared():
    """verl and verl-agent leave the raw reward to a group of one on the episode level."""
    lonely = gigpo_advantages([10.0], [10.0], ["a"], ["x"], ["t"], gamma=0.95, omega=1.0, scale="std")
    assert lonely.tolist() == [0.0]


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"gamma": 1.5}, ValueError, "gamma is 1.5"),
        ({"scale": "rank"}, ValueError, "unknown scale 'rank'"),
        ({"similarity": 0.0}, ValueError, "similarity is 0.0; it must lie in"),
        ({"similarity": 0.9, "observations": [1, 2]}, TypeError, "compares texts, got an observation of int: 1"),
        ({"observations": ["a"]}, ValueError, "1 observations but 2 group keys"),
        ({"episode_rewards": [1.0]}, ValueError, "1 rewards but 2 keys"),
        ({"step_rewards": [1.0]}, ValueError, "1 rewards but 2 keys"),
    ],
)
def test_wrong_input_is_named(change, error, message):
    arguments = {
        "episode_rewards": [1.0, 0.0], "step_rewards": [1.0, 0.0], "observations": ["a", "a"], "episodes": "xy",
        "groups": "tt", "gamma": 0.95, "omega": 1.0, "scale": "std",
    }  # fmt: skip
    with pytest.raises(error, match=message):
        gigpo_advantages(**{**arguments, **change})


# -- what a row earns -------------------------------------------------------------------------------------------


def test_vectors_invalid_action_penalty():
    """verl-agent: the score of the invalid row alone loses 0.1, on a scale of 10, before any normalisation."""
    entry = VECTORS["invalid_action_penalty"]
    method = gigpo(invalid_penalty=entry["coef"], **PUBLISHED)
    won = trajectory(0, success=True, malformed=[not valid for valid in entry["step_valid"]])
    experience = method.experience([won, trajectory(1)], group=(1, 0))
    np.testing.assert_allclose(experience.row_rewards[:3], entry["token_level_score"], rtol=1e-12)
    np.testing.assert_allclose(
        method.step_returns(experience)[:3], [10 * 0.95**2, 10 * 0.95 - 0.1, 10.0], rtol=1e-12,
        err_msg="the penalty comes after the discounting: the row before does not inherit it",
    )  # fmt: skip


def test_penalties_of_strata_stand_on_both_levels():
    """auxiliary=all: Eq. 13 on the level of episodes; the same penalty, not discounted, on that of steps."""
    method = gigpo(decay=0.0, gamma=0.5)
    won = trajectory(0, success=True, malformed=[False, True, False], lengths=[30, 2, 2])  # 30 of 40 tokens: -0.5
    lost = trajectory(1, malformed=[True, False], lengths=[40, 2])  # -1 and -1, clipped to -1
    experience = method.experience([won, lost], group=(1, 0))
    assert experience.row_rewards == pytest.approx([0.5, 0.0, 1.0, -1.0, 0.0])
    assert method.step_returns(experience) == pytest.approx([0.25 - 0.5, 0.5 - 1.0, 1.0, -1.0, 0.0])
    bare = gigpo(decay=0.0, gamma=0.5, auxiliary="none")
    assert bare.step_returns(bare.experience([won, lost], group=(1, 0))).tolist() == [0.25, 0.5, 1.0, 0.0, 0.0]


def test_the_step_level_discounts_what_the_trajectory_was_worth():
    """With step decay (H = 7): a success at step 3 is worth 5/6 to its last row."""
    method = gigpo(gamma=0.9)
    experience = method.experience([trajectory(0, success=True, malformed=[False] * 3), trajectory(1)], group=(1, 0))
    assert method.step_returns(experience) == pytest.approx([0.81 * 5 / 6, 0.9 * 5 / 6, 5 / 6, 0.0])


def test_each_option_of_the_step_level_matters():
    """a, b, c: state b twice in the second rollout, near-equal states "mug 1" and "mug 2" at the end."""
    made = [through(0, ["a", "b", "mug number 1"], success=True), through(1, ["a", "b", "b", "mug number 2"])]

    def advantages(**options: Any) -> list[float]:
        method = gigpo(**options)
        return [round(float(value), 6) for value in method.advantages(method.experience(made, group=(1, 0)))]

    base = advantages()
    others = [
        {"omega": 0.5}, {"gamma": 0.5}, {"similarity": 0.9}, {"scale": "none"}, {"ddof": 0}, {"eps": 0.1},
        {"statistics": "trajectory"},
    ]  # fmt: skip
    for options in others:
        assert advantages(**options) != base, options
    changed = np.flatnonzero(np.array(advantages(similarity=0.9)) != np.array(base))
    assert changed.tolist() == [2, 6], "only the two that became one state"


def test_two_tasks_are_never_compared():
    method = gigpo()
    one = method.experience([through(0, "ab", success=True), through(1, "ab")], group=(1, 0))
    other = [
        dataclasses.replace(through(k, "ab", success=True), key=("train", 1, 1, "u", -1, k)) for k in range(2)
    ]
    joined = Experience.join(one, method.experience(other, group=(1, 1)))
    assert method.advantages(joined).tolist() == [*method.advantages(one), 0.0, 0.0, 0.0, 0.0]


def test_rows_of_unknown_trajectories_are_refused():
    experience = dataclasses.replace(worked_example(gigpo()), played=())
    with pytest.raises(ValueError, match="no outcome is known of trajectory"):
        gigpo().advantages(experience)


def test_metrics_tell_how_much_was_compared():
    method = gigpo()
    metrics = method.summary(worked_example(method))
    assert metrics["step_group_share"] == 5 / 7  # a twice, b three times; c and d alone
    assert metrics["step_group_size"] == 7 / 4
    nothing = method.summary(Experience())
    assert (nothing["step_group_share"], nothing["step_group_size"]) == (0.0, 0.0)


@pytest.mark.parametrize("options", [{"omega": -0.1}, {"gamma": 1.1}, {"similarity": 1.5}, {"similarity": 0}])
def test_options_out_of_range_are_refused(options):
    with pytest.raises(ValidationError):
        gigpo(**options)


def test_states_come_from_the_environment():
    """Every rollout starts in one state, so the first rows are compared, and what is shown besides does not matter."""
    model = ScriptedModel(lambda prompt, seed: f"<action>{best(prompt)}</action>" if seed % 3 else "no idea")
    method, there = gigpo(), world(model)
    Method.setup(method, Kit({"policy": model}))
    experience = play(there, method.explore(task(0, 1), arena(there)))[0]
    firsts = {row.anchor for row in experience.rows if row.step == 1}
    assert firsts == {"You are at cell 0. The goal is cell 1."}
    assert method.summary(experience)["step_group_share"] > 0.5
