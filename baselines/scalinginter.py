"""ScalingInter-RL: AgentGym-RL whose rounds grow in stages, from short episodes to long ones (arXiv 2509.08755).

    python -m harness run --method scalinginter --env webshop --seeds 5
"""

from __future__ import annotations

from itertools import pairwise
from typing import Self

from pydantic import Field, model_validator

from baselines.agentgym_rl import HorizonGRPO
from baselines.grpo import GRPO
from harness.env import EnvSpec
from harness.method import MethodConfig
from harness.types import View


class ScalingInter(HorizonGRPO):
    """First exploit what is near, then explore farther: training's horizon rises every `stage_steps` iterations."""

    name = "scalinginter"
    paper = "StraTA, Table 2 (ScalingInter); arXiv 2509.08755"

    class Config(GRPO.Config):
        """Options of ScalingInter-RL."""

        rounds: tuple[int, ...] | None = Field(
            None,
            min_length=1,
            description="horizon of each stage; one, two and three thirds of the environment's by default (5, 10, 15 "
            "on WebShop)",
        )
        stage_steps: int = Field(100, ge=1, description="iterations of a stage; the last one lasts to the end")

        @model_validator(mode="after")
        def _rounds_grow(self) -> Self:
            rounds = self.rounds or ()
            if any(steps < 1 for steps in rounds) or any(later <= earlier for earlier, later in pairwise(rounds)):
                raise ValueError(f"rounds={list(rounds)}: give the stages in ascending order, each of 1 step or more")
            return self

    config: Config

    def __init__(self, config: MethodConfig, *, spec: EnvSpec, view: View, seed: int) -> None:
        super().__init__(config, spec=spec, view=view, seed=seed)
        thirds = sorted({-(-spec.horizon * third // 3) for third in (1, 2, 3)})
        self._stages = [self.within("rounds", steps) for steps in self.config.rounds or thirds]

    def training_horizon(self, iteration: int) -> int:
        """Rounds of the iteration's stage: iterations 1 to stage_steps are the first."""
        stage = (iteration - 1) // self.config.stage_steps
        return self._stages[min(stage, len(self._stages) - 1)]
