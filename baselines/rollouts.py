"""How GRPO and its relatives, PPO among them, play: several rollouts of each task, an action a step."""

from __future__ import annotations

from typing import Any

from baselines.vanilla import ActionPrompt
from harness.arena import Arena
from harness.env import EnvSpec
from harness.episode import Episode
from harness.experience import Experience
from harness.method import MethodConfig
from harness.prompts import parse_action
from harness.training.policy_gradient import PolicyGradient
from harness.types import Task, Trajectory, View


class TaskRollouts(PolicyGradient):
    """Policy-gradient methods that roll out one task `config.rollouts` times, from one state."""

    config: Any  # of the method: it has the option `rollouts`

    def __init__(self, config: MethodConfig, *, spec: EnvSpec, view: View, seed: int) -> None:
        super().__init__(config, spec=spec, view=view, seed=seed)
        self.prompts = ActionPrompt(config, spec, view)

    @property
    def rollouts_per_task(self) -> int:
        return int(self.config.rollouts)

    def training_horizon(self, iteration: int) -> int | None:
        """Steps of a training episode in an iteration, counted from 1; None is the environment's own number."""
        return None

    async def solve(self, episode: Episode) -> Trajectory:
        """Act step by step until the episode is over."""
        while not episode.over:
            reply = await episode.ask(self.prompts.act(episode))
            await episode.step(parse_action(reply))  # None when malformed: it costs a step, the world stays
        return await episode.close()

    async def explore(self, task: Task, arena: Arena) -> Experience:
        """Rollouts of one task, one group."""
        episodes = arena.episodes(task, self.rollouts_per_task, horizon=self.training_horizon(arena.iteration))
        trajectories = await arena.gather(self.solve(episode) for episode in episodes)
        return self.experience(trajectories, group=arena.group)
