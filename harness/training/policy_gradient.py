"""Policy-gradient methods: rewards of rows, updates in mini-batches of rows, metrics. One subclass per estimator.

A subclass says how to roll out (`explore`) and what a row's advantage is (`advantages`); everything else is here:
the clipped surrogate (StraTA Eq. 3), the KL term against the frozen starting policy, mini-batches with importance
ratios against the sampling policy, checkpoints.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from harness.arena import Arena
from harness.experience import Experience, Row
from harness.method import Coupling, Method, MethodConfig
from harness.model import Kit, OptimizerConfig, Sampling, TrainableModel, TrainingRow, UpdateStats, add_metrics
from harness.seeding import generator
from harness.training.rewards import format_penalty, length_penalty, step_decay, total_reward
from harness.types import Key, Mode, Trajectory, Turn

Aggregation = Literal["token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "constant", "trajectory-mean"]


class PolicyGradientConfig(MethodConfig):
    """Options of every policy-gradient method; defaults are StraTA's Table 7 and design choices where it is silent."""

    iterations: int = Field(150, ge=1, description="training steps")
    tasks_per_iteration: int = Field(16, ge=1, description="tasks drawn per step")
    train_temperature: float = Field(1.0, gt=0, description="of sampling in training; ratios are taken under it")
    lr: float = Field(1e-6, gt=0, description="AdamW learning rate, constant")
    weight_decay: float = Field(0.01, ge=0, description="AdamW weight decay")
    max_grad_norm: float = Field(1.0, gt=0, description="gradients are clipped to this norm")
    mini_batch: int = Field(1024, ge=1, description="rows per optimiser step")
    micro_batch_tokens: int = Field(16384, ge=1, description="padded tokens of a pass; changes memory, not results")
    epochs: int = Field(1, ge=1, description="passes over the rows of a step")
    clip_low: float = Field(0.2, gt=0, lt=1, description="eps_low")
    clip_high: float = Field(0.28, gt=0, description="eps_high (clip-higher)")
    dual_clip: float | None = Field(None, gt=1, description="bound on the ratio where the advantage is negative; off")
    kl_beta: float = Field(0.01, ge=0, description="weight of the KL term; 0 switches the reference policy off")
    kl_kind: Literal["k1", "k2", "k3"] = Field("k3", description="estimator of the KL term")
    entropy: float = Field(0.0, ge=0, description="weight of the entropy bonus")
    aggregation: Aggregation = Field("seq-mean-token-mean", description="how token losses are averaged over rows")
    constant: float | None = Field(None, gt=0, description="divisor of aggregation=constant, in tokens")
    ddof: Literal[0, 1] = Field(1, description="degrees of freedom taken off the group's standard deviation")
    eps: float = Field(1e-6, gt=0, description="added to the group's standard deviation")
    scale: Literal["std", "none"] = Field("std", description="none gives Dr. GRPO: centred, not scaled")
    decay: float = Field(0.5, ge=0, le=1, description="reward lost to a success at the last step; 0 = none")
    auxiliary: Literal["all", "none"] = Field("all", description="length and format penalties (Eq. 11, 12) or neither")
    length_threshold: float = Field(0.5, ge=0, lt=1, description="lambda of Eq. 11")

    @model_validator(mode="after")
    def _constant_has_its_divisor(self) -> Self:
        if (self.aggregation == "constant") != (self.constant is not None):
            raise ValueError(
                f"aggregation={self.aggregation} and constant={self.constant}: aggregation=constant divides by "
                "constant, and nothing else reads it; give both or neither"
            )
        return self


class PolicyGradient(Method):
    """Explore, compute advantages, update."""

    coupling: ClassVar[Coupling] = "trained"

    class Config(PolicyGradientConfig):
        """Options of the method."""

    config: PolicyGradientConfig
    reference: TrainableModel | None = None

    # -- set-up -------------------------------------------------------------------------------------------------

    def setup(self, kit: Kit) -> None:
        super().setup(kit)
        c = self.config
        self.policy: TrainableModel = kit.trainable
        self.policy.configure(OptimizerConfig(c.lr, c.weight_decay, max_grad_norm=c.max_grad_norm))
        if c.kl_beta > 0:
            self.reference = self.policy.frozen_copy()

    @property
    def iterations(self) -> int:
        return self.config.iterations

    @property
    def tasks_per_iteration(self) -> int:
        return self.config.tasks_per_iteration

    def sampling(self, mode: Mode) -> Sampling:
        if mode == "eval":
            return super().sampling(mode)
        return Sampling(temperature=self.config.train_temperature, max_tokens=self.config.max_tokens)

    # -- rewards ------------------------------------------------------------------------------------------------

    def outcome(self, trajectory: Trajectory) -> float:
        """R(tau): success (or score, where the environment's spec says so) times the step decay."""
        value = trajectory.score if self.spec.outcome == "score" else float(trajectory.success)
        last = max(1, len(trajectory.steps))
        return max(0.0, value) * step_decay(last, trajectory.horizon, self.config.decay) if value > 0 else 0.0

    def row_reward(self, outcome: float, turn: Turn, *, parsed: bool, judge: float = 0.0) -> float:
        """R^(x) of Eq. 13 and 18: outcome, length, format and judgment terms, clipped to [-1, 1]."""
        if self.config.auxiliary == "none":
            return total_reward(outcome, 0.0, 0.0, judge)
        length = length_penalty(len(turn.completion.token_ids), turn.token_limit, self.config.length_threshold)
        return total_reward(outcome, length, format_penalty(parsed), judge)

    def action_rewards(self, trajectory: Trajectory, turns: Sequence[Turn]) -> list[float]:
        """Reward of each action turn: the trajectory's outcome (Eq. 9) with the turn's own penalties."""
        outcome = self.outcome(trajectory)
        return [self.row_reward(outcome, turn, parsed=not malformed(trajectory, turn)) for turn in turns]

    def experience(
        self,
        trajectories: Sequence[Trajectory],
        *,
        group: Key,
        rewards: Callable[[Trajectory, Sequence[Turn]], Sequence[float]] | None = None,
    ) -> Experience:
        """Rows and statistics of one group of trajectories."""
        turns = [turn for t in trajectories for turn in t.turns if turn.kind == "action"]
        metrics = {
            "episodes": float(len(trajectories)),
            "successes": float(sum(t.success for t in trajectories)),
            "score": sum(t.score for t in trajectories),
            "outcome": sum(self.outcome(t) for t in trajectories),
            "steps": float(sum(len(t.steps) for t in trajectories)),
            "malformed": float(sum(step.malformed for t in trajectories for step in t.steps)),
            "responses": float(len(turns)),
            "response_tokens": float(sum(len(turn.completion.token_ids) for turn in turns)),
        }
        return Experience.of(trajectories, group=group, rewards=rewards or self.action_rewards, metrics=metrics)

    @abstractmethod
    def advantages(self, experience: Experience) -> NDArray[np.float64]:
        """Advantage of every row, float64 [rows]."""

    # -- learning -----------------------------------------------------------------------------------------------

    async def learn(self, experiences: Sequence[Experience], arena: Arena, iteration: int) -> Mapping[str, float]:
        """One training step: advantages, then optimiser steps over mini-batches of rows in a seeded order.

        The old log-probabilities are those recorded at sampling, so later mini-batches of a step are off-policy and
        carry importance ratios.
        """
        experience = Experience.join(*experiences)
        metrics = self.summary(experience)
        if not experience.rows:
            return metrics
        advantages = self.advantages(experience)
        metrics |= spread(experience, advantages)
        rows = [TrainingRow(row.prompt_ids, row.ids) for row in experience.rows]
        reference = self._reference_logprobs(rows)
        totals: dict[str, float] = {}
        norms: list[float] = []
        for epoch in range(self.config.epochs):
            order = generator(self.seed, "rows", iteration, epoch).permutation(len(rows))
            # equal parts: a remainder of a few rows would move the weights as far as a full mini-batch does
            for chosen in np.array_split(order, math.ceil(len(rows) / self.config.mini_batch)):
                stats = self._update(experience.rows, rows, chosen, advantages, reference)
                if stats is None:
                    continue
                norms.append(stats.grad_norm)
                add_metrics(totals, stats.metrics)
        self.policy.sync(self.policy.version)  # the engine samples the next iteration, with the new weights
        return metrics | update_metrics(totals, norms)

    def summary(self, experience: Experience) -> dict[str, float]:
        """What happened in an iteration, as means over episodes, steps or responses."""
        m = experience.metrics
        episodes, steps = max(1.0, m.get("episodes", 0.0)), max(1.0, m.get("steps", 0.0))
        return {
            "episodes": m.get("episodes", 0.0),
            "success": m.get("successes", 0.0) / episodes,
            "score": m.get("score", 0.0) / episodes,
            "reward": m.get("outcome", 0.0) / episodes,
            "steps": m.get("steps", 0.0) / episodes,
            "malformed_rate": m.get("malformed", 0.0) / steps,
            "response_tokens": m.get("response_tokens", 0.0) / max(1.0, m.get("responses", 0.0)),
            "rows": float(len(experience.rows)),
            "dropped_groups": float(experience.dropped),
        }

    def _update(
        self,
        experience: Sequence[Row],
        rows: Sequence[TrainingRow],
        chosen: NDArray[np.int64],
        advantages: NDArray[np.float64],
        reference: Sequence[NDArray[np.float32]] | None,
    ) -> UpdateStats | None:
        """One optimiser step on one mini-batch; None when no row of it has a gradient."""
        from harness.training.packing import micro_batches

        c = self.config
        weights = self._weights(experience, chosen)
        # A row without advantage has no gradient when nothing else pulls; leaving it out of the pass changes nothing,
        # since the weights above were fixed with it.
        pulls = c.kl_beta > 0 or c.entropy > 0
        kept = [k for k, i in enumerate(chosen) if pulls or advantages[i] != 0.0]
        if not kept:
            return None
        taken = [int(chosen[k]) for k in kept]
        arrays: dict[str, list[NDArray[np.float32]]] = {
            "old_logp": [np.asarray(experience[i].logprobs, dtype=np.float32) for i in taken],
            "advantages": [np.full(len(rows[i].ids), advantages[i], dtype=np.float32) for i in taken],
        }
        if reference is not None:
            arrays["ref_logp"] = [reference[i] for i in taken]
        batches = micro_batches(
            [rows[i] for i in taken], weights[kept], arrays, max_tokens=c.micro_batch_tokens
        )
        return self.policy.update(self._loss(), batches, temperature=c.train_temperature)

    def _weights(self, experience: Sequence[Row], chosen: NDArray[np.int64]) -> NDArray[np.float64]:
        """Weight of each chosen row's token mean in the loss of its mini-batch.

        The steps of a trajectory (|tau| of Eq. 4) are counted over all rows of the training step: a mini-batch holds
        only some of them, and a long trajectory must not gain weight by that.
        """
        from harness.training.losses import row_weights

        c = self.config
        if c.aggregation == "trajectory-mean":
            steps = Counter(row.trajectory for row in experience)
            shares: NDArray[np.float64] = np.array([1.0 / steps[experience[i].trajectory] for i in chosen])
            shares /= shares.sum()
            return shares
        return row_weights(c.aggregation, np.array([len(experience[i].ids) for i in chosen]), constant=c.constant)

    def _loss(self) -> Any:
        from harness.training.surrogate import SurrogateLoss

        c = self.config
        return SurrogateLoss(
            clip_low=c.clip_low, clip_high=c.clip_high, dual_clip=c.dual_clip, kl_beta=c.kl_beta, kl_kind=c.kl_kind,
            entropy=c.entropy,
        )

    def _reference_logprobs(self, rows: Sequence[TrainingRow]) -> list[NDArray[np.float32]] | None:
        if self.reference is None:
            return None
        return self.reference.logprobs(rows, temperature=self.config.train_temperature)

    # -- state --------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        return {"weights": self.policy.digest, "version": self.policy.version}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if self.policy.digest != state["weights"]:
            raise ValueError("the checkpoint's weights are not those that its state names; it is damaged, delete it")

    def save(self, folder: Path) -> None:
        self.policy.save(folder)
        super().save(folder)

    def load(self, folder: Path) -> None:
        self.policy.load(folder)
        super().load(folder)


def malformed(trajectory: Trajectory, turn: Turn) -> bool:
    """Whether a turn's reply could not be parsed into an action."""
    return any(trajectory.steps[index - 1].malformed for index in turn.steps)


def spread(experience: Experience, advantages: NDArray[np.float64]) -> dict[str, float]:
    """Share of groups that teach nothing because all their rows have advantage 0."""
    alive: dict[Key, bool] = {}
    for row, advantage in zip(experience.rows, advantages, strict=True):
        alive[row.group] = alive.get(row.group, False) or advantage != 0.0
    flat = sum(not value for value in alive.values()) / len(alive)
    return {"flat_groups": flat, "advantage_rows": float(np.count_nonzero(advantages))}


def update_metrics(totals: Mapping[str, float], norms: Sequence[float]) -> dict[str, float]:
    """Means over the tokens of an iteration's updates."""
    tokens = max(1.0, totals.get("tokens", 0.0))
    means = {name: totals[name] / tokens for name in ("entropy", "kl", "clip_fraction", "ratio") if name in totals}
    extra = {"ratio_max": totals["ratio_max"]} if "ratio_max" in totals else {}
    return means | extra | {"grad_norm": float(np.mean(norms)) if norms else 0.0, "updates": float(len(norms))}
