"""AgentGym-RL: GRPO whose training episodes have a fixed number of rounds (arXiv 2509.08755; 20 on SciWorld).

    python -m harness run --method agentgym-rl --env webshop --seeds 5 -o horizon=10
"""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Mapping, Sequence

from pydantic import Field

from baselines.grpo import GRPO
from harness.arena import Arena
from harness.env import EnvSpec
from harness.errors import InputError
from harness.experience import Experience
from harness.method import MethodConfig
from harness.types import Trajectory, View


class HorizonGRPO(GRPO):
    """GRPO with a step budget of its own in training; evaluation keeps the environment's."""

    @abstractmethod
    def training_horizon(self, iteration: int) -> int:
        """Steps of a training episode in an iteration, counted from 1."""

    def outcome(self, trajectory: Trajectory) -> float:
        """R(tau), whose step decay runs over the environment's horizon, however short the episode was meant to be.

        A success at step 5 is then worth the same in every stage of training, and the metrics of the stages can be
        compared. Over the training horizon, the same behaviour would be paid better the longer the stage.
        """
        return super().outcome(dataclasses.replace(trajectory, horizon=self.spec.horizon))

    async def learn(self, experiences: Sequence[Experience], arena: Arena, iteration: int) -> Mapping[str, float]:
        """Adds the iteration's horizon to its metrics."""
        metrics = await super().learn(experiences, arena, iteration)
        return {**metrics, "horizon": float(self.training_horizon(iteration))}

    def within(self, option: str, steps: int) -> int:
        """The number of steps, if the environment has so many.

        Raises:
            InputError: it exceeds the environment's horizon.
        """
        if steps > self.spec.horizon:
            raise InputError(
                f"{option} asks for training episodes of {steps} steps, but {self.spec.name} ends them after "
                f"{self.spec.horizon}; choose at most {self.spec.horizon}"
            )
        return steps


class AgentGymRL(HorizonGRPO):
    """The same number of rounds from the first iteration to the last."""

    name = "agentgym-rl"
    paper = "StraTA, Table 2 (AgentGym-RL); arXiv 2509.08755"

    class Config(GRPO.Config):
        """Options of AgentGym-RL."""

        horizon: int | None = Field(
            None, ge=1, description="steps of a training episode; the environment's own by default, which leaves GRPO"
        )

    config: Config

    def __init__(self, config: MethodConfig, *, spec: EnvSpec, view: View, seed: int) -> None:
        super().__init__(config, spec=spec, view=view, seed=seed)
        self._horizon = self.within("horizon", self.config.horizon or spec.horizon)

    def training_horizon(self, iteration: int) -> int:
        return self._horizon
