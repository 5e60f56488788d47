"""Statements that hold exactly: where two methods, or two ways to compute one, must give the same numbers."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from baselines.gigpo import GiGPO, gigpo_advantages
from baselines.grpo import GRPO
from baselines.rloo import RLOO
from harness import registry
from harness.experience import Experience
from harness.method import Method
from harness.model import Kit
from harness.models.mini import MiniModel
from harness.seeding import generator
from harness.training.advantages import group_normalize
from harness.training.policy_gradient import PolicyGradient
from harness.types import Trajectory
from methods.strata.method import StraTA
from tests.methods.strata.playbook import BAD, LEFT, RIGHT, STOP, Playbook, explore, strata, strategies
from tests.models.tiny import prompts, requests, tiny
from tests.plays import arena, play, task, trajectory, world
from tests.toys import ToyEnv

M = type[PolicyGradient]
PLAYED = st.lists(
    st.tuples(st.booleans(), st.lists(st.tuples(st.booleans(), st.integers(1, 40)), min_size=1, max_size=5)),
    min_size=2,
    max_size=6,
)
"""Rollouts of one group: success, and of each step whether it was malformed and how many tokens it took."""


def make(kind: M, model: MiniModel | None = None, **options: Any) -> Any:
    made = kind(kind.Config(**options), spec=ToyEnv.spec, view="compact", seed=0)
    if model is not None:
        made.setup(Kit({"policy": model}))
    return made


def rollouts(played: Any) -> list[Trajectory]:
    return [
        trajectory(k, success=won, malformed=[bad for bad, _ in steps], lengths=[tokens for _, tokens in steps])
        for k, (won, steps) in enumerate(played)
    ]


def advantages(method: PolicyGradient, trajectories: Sequence[Trajectory]) -> Any:
    return method.advantages(method.experience(trajectories, group=(1, 0)))  # type: ignore[attr-defined]


# -- advantages -------------------------------------------------------------------------------------------------


@given(PLAYED, st.sampled_from(["all", "none", "invalid"]))
def test_rloo_is_unscaled_grpo_times_g_over_g_minus_one(played, auxiliary):
    """Over trajectories: r - mean of the others = G / (G - 1) (r - mean of all)."""
    made = rollouts(played)
    ours = advantages(make(RLOO, auxiliary=auxiliary), made)
    centred = advantages(make(GRPO, auxiliary=auxiliary, scale="none"), made)
    np.testing.assert_allclose(ours, centred * len(made) / (len(made) - 1), rtol=1e-12, atol=1e-15)


@given(PLAYED, st.sampled_from(["std", "none"]), st.sampled_from([0, 1]), st.sampled_from(["all", "none", "invalid"]))
def test_gigpo_with_omega_0_is_grpo_over_rows(played, scale, ddof, auxiliary):
    made, options = rollouts(played), {"scale": scale, "ddof": ddof, "auxiliary": auxiliary}
    ours = advantages(make(GiGPO, omega=0.0, **options), made)
    assert ours.tolist() == advantages(make(GRPO, statistics="row", **options), made).tolist()


@given(st.lists(st.tuples(st.floats(-1, 1), st.integers(0, 2), st.text("ab", max_size=1)), max_size=12))
def test_the_public_function_with_omega_0_normalises_episode_rewards(rows):
    rewards, groups, states = ([row[i] for row in rows] for i in range(3))
    ours = gigpo_advantages(
        rewards, rewards, states, range(len(rows)), groups, gamma=0.95, omega=0.0, scale="std"
    )
    assert ours.tolist() == group_normalize(rewards, groups).tolist()


MOVES = st.lists(st.sampled_from([RIGHT, LEFT, STOP, BAD, "well well well " * 8 + RIGHT]), min_size=1, max_size=5)


@settings(max_examples=40, deadline=None)
@given(st.lists(MOVES, min_size=2, max_size=4), st.sampled_from(["", None]), st.sampled_from([0.0, 0.5]))
def test_strata_with_one_empty_strategy_is_grpo_over_rows(moves, strategy, decay):
    """N = 1, no judgments, no selection: the strategy has nothing to be compared with, its actions have each other."""
    book = Playbook(strategies(strategy), {(0, k): replies for k, replies in enumerate(moves)})
    ours = strata(book, strategies=1, rollouts=len(moves), judgment=False, diversity=False, decay=decay)
    theirs = make(GRPO, rollouts=len(moves), statistics="row", decay=decay, max_tokens=40)
    Method.setup(theirs, Kit({"policy": book}))
    mine, _ = explore(ours)
    there = world(book)
    other = play(there, theirs.explore(task(0, 1), arena(there, iteration=2, slot=3)))[0]
    kinds = [row.kind for row in mine.rows]
    assert kinds == ["strategy"] + ["action"] * len(other.rows)
    assert mine.row_rewards[1:].tolist() == other.row_rewards.tolist()
    assert ours.advantages(mine).tolist() == [0.0, *theirs.advantages(other).tolist()]


# -- gradients --------------------------------------------------------------------------------------------------


LOSSES = {
    "grpo": {"kl_beta": 0.05},
    "rloo": {"aggregation": "seq-mean-token-mean"},
    "gigpo": {"aggregation": "token-mean", "dual_clip": 3.0},
    "agentgym-rl": {"aggregation": "seq-mean-token-sum"},
    "scalinginter": {"aggregation": "constant", "constant": 8.0, "entropy": 0.01},
    "strata": {"kl_beta": 0.05, "entropy": 0.01, "diversity": False},
    "ppo": {"kl_beta": 0.05},
}
"""Every RL method, and between them every way to add tokens up."""


def sampled(method: PolicyGradient, model: MiniModel) -> Experience:
    """Three rollouts of 1 to 3 steps whose responses the model has sampled, under weights a little off its own."""
    steps = [3, 1, 2]
    replies = iter(model.generate(requests(prompts(sum(steps)))))
    noise = generator("noise", 0)
    made = []
    for k, n in enumerate(steps):
        plain = trajectory(k, success=k == 0, malformed=[False] * n, limit=8)
        turns = []
        for turn in plain.turns:
            reply = next(replies)
            off = tuple(float(logp + noise.normal(scale=0.3)) for logp in reply.logprobs)
            turns.append(dataclasses.replace(turn, completion=dataclasses.replace(reply, logprobs=off)))
        made.append(dataclasses.replace(plain, turns=tuple(turns)))
    return method.experience(made, group=(1, 0))


def gradient(name: str, micro_batch_tokens: int, monkeypatch: pytest.MonkeyPatch) -> tuple[int, list[torch.Tensor]]:
    """How many micro-batches the one update of a training step had, and its gradient."""
    model = tiny()
    options = {"kl_beta": 0.0, "max_tokens": 8, "decay": 0.0, **LOSSES[name]}
    method = make(registry.load_method(name), model, micro_batch_tokens=micro_batch_tokens, **options)
    seen: list[tuple[int, list[torch.Tensor]]] = []
    plain = model.update

    def update(loss: Any, batches: Any, *, temperature: float) -> Any:
        given = list(batches)
        stats = plain(loss, given, temperature=temperature)
        seen.append((len(given), [p.grad.clone() for p in model.network.parameters() if p.grad is not None]))
        return stats

    monkeypatch.setattr(model, "update", update)
    asyncio.run(method.learn([sampled(method, model)], None, 1))
    monkeypatch.undo()
    assert len(seen) == 1
    return seen[0]


@pytest.mark.parametrize("name", LOSSES)
def test_a_gradient_does_not_depend_on_the_micro_batches(name, monkeypatch):
    whole, expected = gradient(name, 10_000, monkeypatch)
    for tokens in (1, 40):
        parts, got = gradient(name, tokens, monkeypatch)
        assert parts > whole
        for ours, theirs in zip(got, expected, strict=True):
            assert torch.allclose(ours, theirs, rtol=1e-4, atol=1e-7)
    assert max(float(part.abs().max()) for part in expected) > 1e-3, "there is something to compare"


def test_every_rl_method_is_among_them():
    trained = {name for name in registry.BUILT_IN["methods"] if issubclass(registry.load_method(name), PolicyGradient)}
    assert trained == set(LOSSES)
    assert StraTA.name in trained
