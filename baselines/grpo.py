"""GRPO, group-relative policy optimisation: arXiv 2402.03300; as used and described by StraTA, Eq. 2-4.

    python -m harness run --method grpo --env webshop --seeds 5
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from baselines.rollouts import TaskRollouts
from harness.experience import Experience
from harness.training.advantages import group_normalize
from harness.training.config import Aggregation, GroupConfig
from harness.training.policy_gradient import RowAdvantages
from harness.types import Key


class GRPO(TaskRollouts, RowAdvantages):
    """G rollouts a task from one state; a trajectory's advantage is its reward against its group (Eq. 2)."""

    name = "grpo"
    paper = "StraTA, Table 1 (GRPO); arXiv 2402.03300"

    class Config(GroupConfig):
        """Options of GRPO."""

        rollouts: int = Field(32, ge=2, description="G, trajectories per task; StraTA's N x M: budgets are equal")
        statistics: Literal["trajectory", "row"] = Field(
            "trajectory",
            description="what mean and std run over: the group's trajectories (Eq. 2), or its rows (verl-agent)",
        )
        aggregation: Aggregation = Field("trajectory-mean", description="Eq. 4: trajectories of means over steps")

    config: Config

    def advantages(self, experience: Experience) -> NDArray[np.float64]:
        """Eq. 2: one advantage per trajectory, shared by its rows; or per row, as verl-agent computes it."""
        c = self.config
        if c.statistics == "row":
            return group_normalize(
                experience.row_rewards, experience.row_groups, ddof=c.ddof, eps=c.eps, scale=c.scale
            )
        per_trajectory = group_normalize(
            experience.outcomes, experience.groups, ddof=c.ddof, eps=c.eps, scale=c.scale
        )
        return experience.broadcast(per_trajectory)

    def compared(self, experience: Experience) -> list[tuple[Key, float]]:
        """What mean and std run over: trajectories or rows."""
        if self.config.statistics == "row":
            return [(row.group, row.reward) for row in experience.rows]
        return list(zip(experience.groups, experience.outcomes.tolist(), strict=True))
