"""Vanilla: the model acts as it is, without reasoning, memory or training (the first row of StraTA Table 1)."""

from __future__ import annotations

from harness.env import EnvSpec
from harness.episode import Episode
from harness.method import Method, MethodConfig
from harness.model import Prompt
from harness.prompts import Scene, load_template, parse_action
from harness.types import Trajectory, View

ACTION_SLOTS = {"full": ("description", "context", "instruction"), "compact": ("description", "context")}


class ActionPrompt:
    """The prompt for one action: environment and task, recent history, what may be answered."""

    def __init__(self, config: MethodConfig, spec: EnvSpec, view: View) -> None:
        self.scene = Scene(spec, view, config.history)
        self.template = load_template("baselines", view, "action", ACTION_SLOTS[view], config.prompts)

    def act(self, episode: Episode) -> Prompt:
        scene = self.scene
        text = self.template.render(
            description=scene.description(episode.task.instruction),
            context=scene.context(episode),
            instruction=scene.instruction,
        )
        return Prompt.user(text, kind="action")


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
