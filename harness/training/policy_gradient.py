"""Policy-gradient methods: rewards of rows, updates in mini-batches of rows, metrics. One subclass per estimator.

A subclass says how to roll out (`explore`) and what each token (`PolicyGradient.token_advantages`) or each row
(`RowAdvantages.advantages`) is worth; everything else is here: the clipped surrogate (StraTA Eq. 3), the KL term
against the frozen starting policy, mini-batches with importance ratios against the sampling policy, checkpoints.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from harness.arena import Arena
from harness.errors import Diverged
from harness.experience import Experience, Row
from harness.method import Coupling, Method, MethodConfig
from harness.model import Kit, OptimizerConfig, Sampling, TrainableModel, TrainingRow, UpdateStats, add_metrics
from harness.seeding import generator
from harness.training.config import PolicyGradientConfig
from harness.training.divergence import told_rows
from harness.training.rewards import format_penalty, length_penalty, step_decay, total_reward
from harness.types import Key, Mode, Trajectory, Turn

FloatArray = NDArray[np.float64]

ROUNDING = 1e-9
"""Rewards closer than this are equal: the means of three and of two rewards of 0.1 differ in their last bit."""


class PolicyGradient(Method):
    """Explore, compute advantages, update."""

    coupling: ClassVar[Coupling] = "trained"
    least_rollouts: ClassVar[int] = 2
    """Trajectories that a group needs to be trained on; 1 for a method that does not compare them."""

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

    @classmethod
    def trains_policy(cls, config: MethodConfig) -> bool:
        return True

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
        """R^(x) of Eq. 13 and 18: outcome, length, format and judgment terms, clipped to [-1, 1].

        Or, with auxiliary=invalid, the scaled outcome and the judgment term less the penalty of a malformed reply,
        unclipped (verl-agent's `apply_invalid_action_penalty`).
        """
        c = self.config
        if c.auxiliary == "none":
            return total_reward(outcome, 0.0, 0.0, judge)
        if c.auxiliary == "invalid":
            return c.reward_scale * outcome + judge - (0.0 if parsed else c.invalid_penalty)
        length = length_penalty(len(turn.completion.token_ids), turn.token_limit, c.length_threshold)
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
        return Experience.of(
            trajectories, group=group, rewards=rewards or self.action_rewards, metrics=metrics,
            least=self.least_rollouts,
        )  # fmt: skip

    # -- learning -----------------------------------------------------------------------------------------------

    @abstractmethod
    def token_advantages(self, experience: Experience) -> list[FloatArray]:
        """Advantage of every response token: one float64 array per row, of its response's length.

        Called once per training step, before its mini-batches.
        """

    async def learn(self, experiences: Sequence[Experience], arena: Arena, iteration: int) -> Mapping[str, float]:
        """One training step: advantages, then optimiser steps over mini-batches of rows in a seeded order.

        The old log-probabilities are those recorded at sampling, so later mini-batches of a step are off-policy and
        carry importance ratios.

        Raises:
            Diverged: a loss, a gradient or an importance ratio is beyond use; no step was taken with it.
        """
        experience = Experience.join(*experiences)
        metrics = self.summary(experience)
        if not experience.rows:
            return metrics
        advantages = self.token_advantages(experience)
        metrics["advantage_rows"] = float(sum(bool(values.any()) for values in advantages))
        rows = [TrainingRow(row.prompt_ids, row.ids) for row in experience.rows]
        trained = np.flatnonzero(self._is_trained(experience, advantages))
        reference = self._reference_logprobs(rows) if len(trained) else None
        totals: dict[str, float] = {}
        norms: list[float] = []
        others: list[Mapping[str, float]] = []
        for epoch in range(self.config.epochs if len(trained) else 0):
            order = trained[generator(self.seed, "updates", iteration, epoch).permutation(len(trained))]
            # equal parts: a remainder of a few rows would move the weights as far as a full mini-batch does
            for chosen in np.array_split(order, math.ceil(len(trained) / self.config.mini_batch)):
                stats = self._update(experience.rows, rows, chosen, advantages, reference)
                others.append(self.update_others(rows, chosen))
                if stats is not None:
                    norms.append(stats.grad_norm)
                    add_metrics(totals, stats.metrics)
        self.policy.sync(self.policy.version)  # the engine samples the next iteration, with the new weights
        return metrics | update_metrics(totals, norms) | means(others)

    def update_others(self, rows: Sequence[TrainingRow], chosen: NDArray[np.int64]) -> Mapping[str, float]:
        """Train what else the method has (a critic) on the mini-batch that the policy was just trained on.

        Args:
            rows: all rows of the training step.
            chosen: indices of those in the mini-batch.

        Returns:
            Metrics, whose means over the mini-batches are reported.
        """
        return {}

    def summary(self, experience: Experience) -> dict[str, float]:
        """What happened in an iteration, as means over episodes, steps, responses, tokens or groups.

        `entropy` is that of the policy that sampled, in nats a token, estimated by the mean of -log-probability over
        the response tokens of all rows: every method's curve is over what it sampled, whatever it then trained on.
        `flat_groups` is the share of groups whose rewards (`compared`) agree.
        """
        m = experience.metrics
        episodes, steps = max(1.0, m.get("episodes", 0.0)), max(1.0, m.get("steps", 0.0))
        metrics = {
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
        if experience.rows:
            metrics["entropy"] = -float(np.mean(np.concatenate([row.logprobs for row in experience.rows])))
        if members := self.compared(experience):
            metrics["flat_groups"] = flat_share(members)
        return metrics

    def compared(self, experience: Experience) -> list[tuple[Key, float]]:
        """Group and reward of all that are compared with each other, for `flat_groups`.

        By default trajectories with the mean reward of their rows, as GRPO compares them. A method whose advantages
        come from elsewhere (a critic) is told by it how many tasks were always won or always lost.
        """
        rewards: dict[tuple[Key, Key], list[float]] = {}
        for row in experience.rows:
            rewards.setdefault((row.group, row.trajectory), []).append(row.reward)
        return [(group, float(np.mean(values))) for (group, _), values in rewards.items()]

    def _is_trained(self, experience: Experience, advantages: Sequence[FloatArray]) -> NDArray[np.bool_]:
        """Which rows take part in the update: all, or with dynamic sampling those of groups that teach something."""
        if not self.config.dynamic_sampling:
            return np.ones(len(experience.rows), dtype=bool)
        alive = alive_groups(experience, advantages)
        return np.array([alive[row.group] for row in experience.rows])

    def _update(
        self,
        experience: Sequence[Row],
        rows: Sequence[TrainingRow],
        chosen: NDArray[np.int64],
        advantages: Sequence[FloatArray],
        reference: Sequence[NDArray[np.float32]] | None,
    ) -> UpdateStats | None:
        """One optimiser step on one mini-batch; None when no row of it has a gradient."""
        from harness.training.packing import micro_batches

        c = self.config
        weights = self._weights(experience, chosen)
        # A row without advantage has no gradient when nothing else pulls; leaving it out of the pass changes nothing,
        # since the weights above were fixed with it.
        pulls = c.kl_beta > 0 or c.entropy > 0
        kept = [k for k, i in enumerate(chosen) if pulls or advantages[i].any()]
        if not kept:
            return None
        taken = [int(chosen[k]) for k in kept]
        arrays: dict[str, list[NDArray[np.float32]]] = {
            "old_logp": [np.asarray(experience[i].logprobs, dtype=np.float32) for i in taken],
            "advantages": [advantages[i].astype(np.float32) for i in taken],
        }
        if reference is not None:
            arrays["ref_logp"] = [reference[i] for i in taken]
        batches = micro_batches(
            [rows[i] for i in taken], weights[kept], arrays, max_tokens=c.micro_batch_tokens
        )
        try:
            return self.policy.update(self._loss(), batches, temperature=c.train_temperature)
        except FloatingPointError as error:
            columns: dict[str, Any] = {"weight": weights[kept], **arrays}
            raise Diverged(str(error), told_rows([experience[i] for i in taken], columns)) from error

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
            clip_low=c.clip_low, clip_high=c.clip_high, dual_clip=c.dual_clip, ratio_limit=c.ratio_limit,
            kl_beta=c.kl_beta, kl_kind=c.kl_kind, kl_clamp=c.kl_clamp, entropy=c.entropy,
        )

    def _reference_logprobs(self, rows: Sequence[TrainingRow]) -> list[NDArray[np.float32]] | None:
        if self.reference is None:
            return None
        c = self.config
        return self.reference.logprobs(rows, temperature=c.train_temperature, batch_tokens=c.micro_batch_tokens)

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


class RowAdvantages(PolicyGradient):
    """Methods that compare rows or trajectories: all tokens of a row share its advantage."""

    @abstractmethod
    def advantages(self, experience: Experience) -> FloatArray:
        """Advantage of every row, float64 [rows]."""

    def token_advantages(self, experience: Experience) -> list[FloatArray]:
        values = self.advantages(experience)
        return [np.full(len(row.ids), value) for row, value in zip(experience.rows, values, strict=True)]


def malformed(trajectory: Trajectory, turn: Turn) -> bool:
    """Whether a turn's reply could not be parsed into an action."""
    return any(trajectory.steps[index - 1].malformed for index in turn.steps)


def alive_groups(experience: Experience, advantages: Sequence[FloatArray]) -> dict[Key, bool]:
    """Of each group, whether any of its rows has an advantage."""
    alive: dict[Key, bool] = {}
    for row, values in zip(experience.rows, advantages, strict=True):
        alive[row.group] = alive.get(row.group, False) or bool(values.any())
    return alive


def flat_share(members: Iterable[tuple[Key, float]]) -> float:
    """Share of groups whose rewards are all equal, but for rounding; GRPO learns nothing from them.

    Args:
        members: group and reward of each member, at least one; who is alone in a group agrees with itself.
    """
    rewards: dict[Key, list[float]] = {}
    for group, reward in members:
        rewards.setdefault(group, []).append(reward)
    return sum(max(values) - min(values) < ROUNDING for values in rewards.values()) / len(rewards)


def means(parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Mean of each name over the parts that have it."""
    names = dict.fromkeys(name for part in parts for name in part)
    return {name: float(np.mean([part[name] for part in parts if name in part])) for name in names}


def update_metrics(totals: Mapping[str, float], norms: Sequence[float]) -> dict[str, float]:
    """Means over the tokens that the updates trained on, not over all that were sampled.

    They are those of rows with an advantage, or of all rows that take part in the update where a KL term or an entropy
    bonus pulls as well; so methods that leave different rows out are not compared by them. `update_entropy` is the
    exact one of the policy as it was trained; `kl` is the distance to the reference policy, where there is one;
    `approx_kl` that to the policy that sampled (k3).
    """
    tokens = max(1.0, totals.get("tokens", 0.0))
    summed = ("update_entropy", "kl", "approx_kl", "clip_fraction", "ratio")
    means = {name: totals[name] / tokens for name in summed if name in totals}
    extra = {"ratio_max": totals["ratio_max"]} if "ratio_max" in totals else {}
    return means | extra | {"grad_norm": float(np.mean(norms)) if norms else 0.0, "updates": float(len(norms))}
