"""What a training step reports: numbers that say what their names say, whatever method they are of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from baselines.gigpo import GiGPO
from baselines.grpo import GRPO
from baselines.ppo import PPO
from baselines.rloo import RLOO
from harness.experience import Experience, Row
from harness.models.mini import MiniModel
from harness.training.policy_gradient import alive_groups, flat_share
from harness.types import Key, Turn
from tests.models.tiny import prompts, requests, tiny
from tests.training.rollouts import learn, method, written

# Two rows a trajectory. Won by both; two malformed replies in another order; one of two won.
AGREE, ORDER, DIFFER = [1.0, 1.0, 1.0, 1.0], [0.0, 1.0, 1.0, 0.0], [1.0, 1.0, 0.0, 0.0]


def draws(model: MiniModel, *groups: Sequence[float]) -> Experience:
    """Groups of two trajectories with two rows each, in slots of their own."""
    parts = []
    for slot, values in enumerate(groups):
        made = written(model, [[3, 1], [4, 1], [5, 6, 1], [7, 1]], values)
        keys: list[Key] = [("train", 1, slot, "t", -1, k) for k in range(2)]
        rows = [replace(row, group=(1, slot), trajectory=keys[k // 2]) for k, row in enumerate(made.rows)]
        means = np.array(values, dtype=float).reshape(2, 2).mean(axis=1)
        parts.append(Experience(tuple(rows), tuple(keys), means, ((1, slot),) * 2))
    return Experience.join(*parts)


@pytest.mark.parametrize(
    ("kind", "options", "flat"),
    [
        (GRPO, {}, 2 / 3),
        (GRPO, {"statistics": "row"}, 1 / 3),
        (RLOO, {}, 2 / 3),
        (GiGPO, {}, 1 / 3),
        (PPO, {}, 2 / 3),
        (PPO, {"whiten": False}, 2 / 3),
    ],
)
def test_a_group_is_flat_where_its_rewards_agree_whatever_became_of_them(kind, options, flat):
    """By advantages, the whitened ones of PPO are never 0 and no group would be flat."""
    model = tiny()
    learner = method(kind, model, **options)
    seen = draws(model, AGREE, ORDER, DIFFER)
    assert learner.summary(seen)["flat_groups"] == pytest.approx(flat)
    if kind is not GiGPO:  # its steps need the trajectories as they were played
        alive = alive_groups(seen, learner.token_advantages(seen))
        assert (np.mean([not value for value in alive.values()]) == pytest.approx(flat)) == (kind is not PPO)


def test_rounding_does_not_hide_that_rewards_agree():
    three, two = float(np.mean([0.1] * 3)), float(np.mean([0.1] * 2))
    assert three != two
    assert flat_share([((1, 0), three), ((1, 0), two)]) == 1.0
    assert flat_share([((1, 0), 1.0), ((1, 0), 1.0 - 1e-6), ((1, 1), 0.0)]) == 0.5, "a lone one agrees with itself"


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_entropy_is_that_of_the_policy_that_sampled_over_all_that_it_sampled(temperature):
    """Over the tokens trained on it would differ between methods that sample alike and skip other rows."""
    model = tiny()
    completions = model.generate(requests(prompts(200), temperature=temperature))
    rows = [
        Row.of(Turn("policy", "action", c, True, 8), reward=float(k % 50 == 0), group=(k // 50,), trajectory=(k,))
        for k, c in enumerate(completions)
    ]
    rows[150:] = [replace(row, reward=1.0) for row in rows[150:]]
    keys = tuple(row.trajectory for row in rows)
    outcomes = np.array([row.reward for row in rows])
    seen = Experience(tuple(rows), keys, outcomes, tuple(row.group for row in rows))
    tokens = [p for row in rows for p in row.logprobs]
    found = {
        beta: learn(method(GRPO, tiny(), train_temperature=temperature, kl_beta=beta, lr=1e-9), seen)
        for beta in (0.0, 0.01)
    }
    assert found[0.0]["entropy"] == found[0.01]["entropy"] == pytest.approx(-np.mean(tokens))
    assert found[0.0]["advantage_rows"] == 150
    assert found[0.0]["update_entropy"] != pytest.approx(found[0.01]["update_entropy"], abs=1e-4)
    # all rows are in this pass, on-policy: the exact entropy of what the other is an estimate of
    assert found[0.01]["update_entropy"] == pytest.approx(found[0.01]["entropy"], rel=0.05)
