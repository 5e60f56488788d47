"""Vanilla: the model acts as it is, without reasoning, memory or training (the first row of StraTA Table 1)."""

from __future__ import annotations

from harness.env import EnvSpec
from harness.episode import Episode
from harness.method import Method, MethodConfig
from harness.model import Prompt
from harness.prompts import Prompts, Slots, parse_action
from harness.types import Trajectory, View

SLOTS: Slots = {
    "full": {"action": ("description", "context", "instruction")},
    "compact": {"action": ("description", "context")},
}


class ActionPrompt(Prompts):
    """The prompt for one action: environment and task, recent history, what may be answered."""

    def __init__(self, config: MethodConfig, spec: EnvSpec, view: View) -> None:
        super().__init__("baselines", SLOTS, config, spec, view)

    def act(self, episode: Episode) -> Prompt:
        """What to do next?"""
        scene = self.scene
        return self.fit("action", scene.recent(episode), lambda steps: self.templates["action"].render(
            description=scene.description(episode.task.instruction),
            context=scene.context(episode, steps),
            instruction=scene.instruction,
        ))  # fmt: skip


class Vanilla(Method):
    """One action a step, straight from the observation."""

    name = "vanilla"
    coupling = "independent"
    paper = "StraTA, Table 1 (Vanilla)"

    def __init__(self, config: MethodConfig, *, spec: EnvSpec, view: View, seed: int) -> None:
        super().__init__(config, spec=spec, view=view, seed=seed)
        self.prompts = ActionPrompt(config, spec, view)

    async def solve(self, episode: Episode) -> Trajectory:
        """Act step by step until the episode is over."""
        while not episode.over:
            reply = await episode.ask(self.prompts.act(episode))
            await episode.step(parse_action(reply))
        return await episode.close()
