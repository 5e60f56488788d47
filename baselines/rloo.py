"""RLOO, REINFORCE with a leave-one-out baseline: arXiv 2402.14740; over whole trajectories of an agent.

    python -m harness run --method rloo --env webshop --seeds 5
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from baselines.grpo import GRPO
from harness.experience import Experience
from harness.training.advantages import leave_one_out
from harness.training.config import Aggregation, PolicyGradientConfig


class RLOO(GRPO):
    """GRPO's rollouts; a trajectory's baseline is the mean reward of the other trajectories of its group."""

    name = "rloo"
    paper = "StraTA, Table 1 (RLOO); arXiv 2402.14740"

    class Config(PolicyGradientConfig):
        """Options of RLOO: those of GRPO without the standard deviation, which it does not use."""

        rollouts: int = Field(32, ge=2, description="G, trajectories per task; as many as GRPO's: budgets are equal")
        statistics: Literal["trajectory", "row"] = Field(
            "trajectory",
            description="what is left out: the trajectory, or the row alone (verl-agent), whose siblings of the same "
            "trajectory then stand in its own baseline, so that it is no leave-one-out",
        )
        aggregation: Aggregation = Field("trajectory-mean", description="as GRPO: trajectories of means over steps")

    config: Config

    def advantages(self, experience: Experience) -> NDArray[np.float64]:
        """Reward minus the mean of the others', not scaled; one number per row."""
        if self.config.statistics == "row":
            return leave_one_out(experience.row_rewards, experience.row_groups)
        return experience.broadcast(leave_one_out(experience.outcomes, experience.groups))
