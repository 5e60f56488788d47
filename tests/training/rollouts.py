"""Made-up rollouts with chosen rewards, and a look at what a method hands to its model when it learns from them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import pytest

from harness.experience import Experience, Row
from harness.model import Kit, MicroBatch, TrainingRow, UpdateStats
from harness.models.mini import MiniModel
from harness.training.policy_gradient import PolicyGradient
from harness.types import Completion, Key, Trajectory, Turn
from tests.plays import trajectory
from tests.toys import ToyEnv

M = TypeVar("M", bound=PolicyGradient)
GROUP: Key = (1, 0)


def method(kind: type[M], model: MiniModel | None = None, **options: Any) -> M:
    """A method on the toy corridor: bare outcomes, no KL term, and a learning rate that moves a tiny network."""
    plain = {"lr": 3e-3, "kl_beta": 0.0, "max_tokens": 8, "auxiliary": "none", "decay": 0.0, "rollouts": 2}
    made = kind(kind.Config(**{**plain, **options}), spec=ToyEnv.spec, view="compact", seed=0)
    if model is not None:
        made.setup(Kit({"policy": model}))
    return made


def rollouts(steps: Sequence[int], won: Sequence[bool] | None = None) -> list[Trajectory]:
    """Trajectories of so many steps, one row each."""
    return [
        trajectory(k, success=bool(won and won[k]), malformed=[False] * n, horizon=max(steps))
        for k, n in enumerate(steps)
    ]


def experience(rewards: Sequence[float], steps: Sequence[int] | None = None, group: Key = GROUP) -> Experience:
    """One group of trajectories, each of whose rows has the reward of its trajectory."""
    made = [replace(t, key=("train", *group, "t", -1, t.key[-1])) for t in rollouts(steps or [1] * len(rewards))]
    return Experience.of(made, group=group, rewards=lambda t, turns: [rewards[int(t.key[-1])]] * len(turns))


def written(model: MiniModel, responses: Sequence[Sequence[int]], rewards: Sequence[float]) -> Experience:
    """Rows of responses that the model is taken to have sampled: old log-probabilities are its own, ratios are 1."""
    rows = [TrainingRow((5 + k, 6), tuple(ids)) for k, ids in enumerate(responses)]
    logprobs = model.logprobs(rows, temperature=1.0)
    keys: list[Key] = [("train", 1, 0, "t", -1, k) for k in range(len(rows))]
    made = []
    for row, logp, reward, key in zip(rows, logprobs, rewards, keys, strict=True):
        reply = Completion("", row.ids, tuple(map(float, logp)), "stop", prompt_ids=row.prompt_ids)
        turn = Turn("policy", "action", reply, trainable=True, token_limit=8)
        made.append(Row.of(turn, reward=reward, group=GROUP, trajectory=key))
    outcomes = experience(rewards).outcomes
    return Experience(tuple(made), tuple(keys), outcomes, (GROUP,) * len(keys))


def learn(learner: PolicyGradient, *parts: Experience, iteration: int = 1) -> dict[str, float]:
    """One training step; no method looks at its arena there."""
    return dict(asyncio.run(learner.learn(parts, None, iteration)))  # type: ignore[arg-type]


@dataclass
class Seen:
    """One update: the loss that was asked for, its micro-batches, the temperature, and what came of it."""

    loss: Any
    batches: list[MicroBatch]
    temperature: float
    stats: UpdateStats

    @property
    def rows(self) -> list[TrainingRow]:
        return [row for batch in self.batches for row in batch.rows]


@dataclass
class Spy:
    """What a model was asked to update with."""

    updates: list[Seen] = field(default_factory=list)

    def watch(self, model: MiniModel, monkeypatch: pytest.MonkeyPatch) -> Spy:
        plain = model.update

        def update(loss: Any, batches: Any, *, temperature: float) -> UpdateStats:
            stats = plain(loss, batches, temperature=temperature)
            self.updates.append(Seen(loss, list(batches), temperature, stats))
            return stats

        monkeypatch.setattr(model, "update", update)
        return self


def renamed(made: Trajectory, anchors: Sequence[str]) -> Trajectory:
    """A trajectory whose actions were taken in these states."""
    return replace(made, steps=[replace(s, anchor=a) for s, a in zip(made.steps, anchors, strict=True)])
