"""PPO, proximal policy optimisation with a learned critic: arXiv 1707.06347; in StraTA, Table 1, beside GRPO.

    python -m harness run --method ppo --env webshop --seeds 5
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from baselines.rollouts import TaskRollouts
from harness.arena import Arena
from harness.env import EnvSpec
from harness.experience import Experience, Row
from harness.method import MethodConfig
from harness.model import Kit, OptimizerConfig, TrainingRow, UpdateStats
from harness.training.advantages import masked_whiten
from harness.training.config import Aggregation, PolicyGradientConfig
from harness.training.critic import Critic, sequence_gae
from harness.training.policy_gradient import FloatArray
from harness.types import Key, Trajectory, Turn, View


class PPO(TaskRollouts):
    """A critic says what a state is worth; a token's advantage is how much better it went from there (GAE).

    A token is a time step. The response tokens of an episode, row after row, are one sequence; prompts and
    observations between them are bridged. Rewards lie on the last token of a row: the outcome R(tau) on the episode's
    last row, and on every row its own penalty, divided by the number of the episode's rows. What an episode brings is
    then the mean of its row rewards, the very number that GRPO compares, and it stays in [-1, 1] however many replies
    are malformed. `sequence=row` is verl-agent's way: every row is a sequence of its own and its last token gets the
    row's whole reward, outcome included.

    The papers give neither gamma nor lambda; the defaults, like whitening and the critic's learning rate, are
    verl-agent's. With gamma = lambda = 1 a token's advantage is what the rest of its sequence brought, less its value.
    """

    name = "ppo"
    paper = "StraTA, Table 1 (PPO); arXiv 1707.06347"
    least_rollouts: ClassVar[int] = 1  # an episode is compared with what the critic expected of it

    class Config(PolicyGradientConfig):
        """Options of PPO."""

        rollouts: int = Field(32, ge=1, description="episodes per task; as many as GRPO's, so that budgets are equal")
        sequence: Literal["episode", "row"] = Field(
            "episode", description="what GAE runs along: an episode's responses, or each by itself (verl-agent)"
        )
        gamma: float = Field(1.0, ge=0, le=1, description="discount per response token")
        lam: float = Field(1.0, ge=0, le=1, description="lambda of GAE")
        whiten: bool = Field(True, description="advantages to mean 0 and std 1 over all tokens of a training step")
        critic_lr: float = Field(1e-5, gt=0, description="AdamW learning rate of the critic, constant")
        critic_weight_decay: float = Field(0.01, ge=0, description="AdamW weight decay of the critic")
        critic_max_grad_norm: float = Field(1.0, gt=0, description="the critic's gradients are clipped to this norm")
        critic_steps: int = Field(1, ge=1, description="the critic's optimiser steps on each mini-batch")
        critic_warmup: int = Field(0, ge=0, description="first iterations in which the critic alone is trained")
        value_clip: float | None = Field(None, gt=0, description="how far a value may move in a step (verl: 0.5); off")
        aggregation: Aggregation = Field("token-mean", description="every token, a time step of PPO, counts the same")
        dynamic_sampling: Literal[False] = Field(False, description="PPO compares with its critic, not with a group")

    config: Config
    critic: Critic

    def __init__(self, config: MethodConfig, *, spec: EnvSpec, view: View, seed: int) -> None:
        super().__init__(config, spec=spec, view=view, seed=seed)
        self._warming_up = False

    def setup(self, kit: Kit) -> None:
        super().setup(kit)
        c = self.config
        self.critic = Critic(
            self.policy.with_value_head(),
            OptimizerConfig(c.critic_lr, c.critic_weight_decay, max_grad_norm=c.critic_max_grad_norm),
            clip=c.value_clip,
            steps=c.critic_steps,
            micro_batch_tokens=c.micro_batch_tokens,
        )

    def experience(
        self,
        trajectories: Sequence[Trajectory],
        *,
        group: Key,
        rewards: Callable[[Trajectory, Sequence[Turn]], Sequence[float]] | None = None,
    ) -> Experience:
        """Rows as every method cuts them. A trajectory's outcome is R(tau) itself: penalties stay with their rows."""
        made = super().experience(trajectories, group=group, rewards=rewards)
        outcome = {t.key: self.config.reward_scale * self.outcome(t) for t in trajectories}
        return replace(made, outcomes=np.array([outcome[key] for key in made.trajectories], dtype=np.float64))

    # -- advantages ---------------------------------------------------------------------------------------------

    def token_rewards(self, experience: Experience) -> list[FloatArray]:
        """Reward of every response token: 0 but on the last one of each row.

        Along an episode their sum is the mean of its row rewards, which are outcome plus penalty.
        """
        outcomes = experience.broadcast(experience.outcomes)
        count = Counter(row.trajectory for row in experience.rows)
        last = {row.trajectory: index for index, row in enumerate(experience.rows)}
        rewards = []
        for index, row in enumerate(experience.rows):
            tokens = np.zeros(len(row.ids))
            if self.config.sequence == "row":
                tokens[-1] = row.reward
            else:
                tokens[-1] = (row.reward - outcomes[index]) / count[row.trajectory]
                if last[row.trajectory] == index:
                    tokens[-1] += outcomes[index]
            rewards.append(tokens)
        return rewards

    def token_advantages(self, experience: Experience) -> list[FloatArray]:
        """GAE under the critic as it stands, whitened; the critic keeps the returns to be fitted to them."""
        c, rows = self.config, experience.rows
        values = self.critic.estimate([TrainingRow(row.prompt_ids, row.ids) for row in rows])
        sequences = [row.trajectory for row in rows] if c.sequence == "episode" else range(len(rows))
        advantages, returns = sequence_gae(
            self.token_rewards(experience), values, sequences, gamma=c.gamma, lam=c.lam
        )
        self.critic.aim(returns)
        if not c.whiten:
            return advantages
        tokens = np.concatenate(advantages)
        ends = np.cumsum([len(row) for row in advantages])
        return np.split(masked_whiten(tokens, np.ones(len(tokens))), ends[:-1])

    # -- learning -----------------------------------------------------------------------------------------------

    async def learn(self, experiences: Sequence[Experience], arena: Arena, iteration: int) -> Mapping[str, float]:
        """One training step of policy and critic; of the critic alone while it warms up."""
        self._warming_up = iteration <= self.config.critic_warmup
        return await super().learn(experiences, arena, iteration)

    def _update(
        self,
        experience: Sequence[Row],
        rows: Sequence[TrainingRow],
        chosen: NDArray[np.int64],
        advantages: Sequence[FloatArray],
        reference: Sequence[NDArray[np.float32]] | None,
    ) -> UpdateStats | None:
        if self._warming_up:
            return None
        return super()._update(experience, rows, chosen, advantages, reference)

    def update_others(self, rows: Sequence[TrainingRow], chosen: NDArray[np.int64]) -> Mapping[str, float]:
        """The critic learns on the policy's mini-batches."""
        return self.critic.fit(rows, chosen)

    # -- state --------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "critic": self.critic.model.digest}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        if self.critic.model.digest != state["critic"]:
            raise ValueError("the checkpoint's critic is not the one that its state names; it is damaged, delete it")

    def save(self, folder: Path) -> None:
        (folder / "critic").mkdir()
        self.critic.model.save(folder / "critic")
        super().save(folder)

    def load(self, folder: Path) -> None:
        self.critic.model.load(folder / "critic")
        super().load(folder)
