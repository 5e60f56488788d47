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
    """First exploit what is near, then explore farther: training's horizon rises in stages.

    A stage lasts `stage_steps` iterations, the last one to the end; 100 are published. By default the stages
    share the iterations equally, so that a run of any length ends with the longest episodes.
    """

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
        stage_steps: int | None = Field(
            None,
            ge=1,
            description="iterations of a stage (published: 100), the last one to the end; equal parts by default",
        )

        @model_validator(mode="after")
        def _rounds_grow(self) -> Self:
            rounds = self.rounds or ()
            if any(steps < 1 for steps in rounds) or any(later <= earlier for earlier, later in pairwise(rounds)):
                raise ValueError(f"rounds={list(rounds)}: give the stages in ascending order, each of 1 step or more")
            return self

        @model_validator(mode="after")
        def _a_second_stage_begins(self) -> Self:
            # without one, all episodes are short; the third of the published schedule may lie beyond StraTA's 150
            one = self.rounds is not None and len(self.rounds) == 1
            if self.stage_steps is not None and not one and self.stage_steps >= self.iterations:
                rounds = "" if self.rounds is None else f" of rounds={list(self.rounds)}"
                raise ValueError(
                    f"stage_steps={self.stage_steps} with iterations={self.iterations}: the second stage{rounds} is "
                    "never reached; lower stage_steps, raise iterations, or leave stage_steps out for equal parts"
                )
            return self

    config: Config

    def __init__(self, config: MethodConfig, *, spec: EnvSpec, view: View, seed: int) -> None:
        super().__init__(config, spec=spec, view=view, seed=seed)
        thirds = sorted({-(-spec.horizon * third // 3) for third in (1, 2, 3)})
        self._stages = [self.within("rounds", steps) for steps in self.config.rounds or thirds]

    def training_horizon(self, iteration: int) -> int:
        """Rounds of the iteration's stage: iterations 1 to stage_steps are the first.

        Equal parts are counted from the end: where there are fewer iterations than stages, the short ones are left out.
        """
        c, last = self.config, len(self._stages) - 1
        if c.stage_steps is None:
            left = max(0, c.iterations - iteration)
            return self._stages[last - left * len(self._stages) // c.iterations]
        return self._stages[min((iteration - 1) // c.stage_steps, last)]
