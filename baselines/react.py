"""ReAct: a thought before every action, in one reply (arXiv 2210.03629; the second row of StraTA Table 1).

    python -m harness run --method react --env webshop --seeds 5
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from harness.env import EnvSpec
from harness.episode import Episode
from harness.method import Method, MethodConfig
from harness.model import Kit, Prompt, UnsupportedOption
from harness.prompts import Prompts, Slots, parse_action, parse_tag
from harness.types import Trajectory, View

SLOTS: Slots = {
    "full": {"react": ("description", "context", "instruction")},
    "compact": {"react": ("description", "context")},
}


class ReActPrompt(Prompts):
    """The prompt for a thought and an action."""

    def __init__(self, config: MethodConfig, spec: EnvSpec, view: View) -> None:
        super().__init__("baselines", SLOTS, config, spec, view)

    def act(self, episode: Episode, thoughts: Mapping[int, str]) -> Prompt:
        """Why and what next? `thoughts` are those of earlier steps, by step, that the prompt shows again."""
        scene = self.scene
        return self.fit("react", scene.recent(episode), lambda steps: self.templates["react"].render(
            description=scene.description(episode.task.instruction),
            context=scene.context(episode, steps, thoughts),
            instruction=scene.instruction,
        ))  # fmt: skip


class ReAct(Method):
    """Reason, then act. The thought is the policy's own and is not parsed for anything."""

    name = "react"
    coupling = "independent"
    paper = "StraTA, Table 1 (ReAct); arXiv 2210.03629"

    class Config(MethodConfig):
        """Options of ReAct."""

        reasoning: Literal[False] = Field(False, description="its own prompt asks for the thought")
        keep_thoughts: bool = Field(
            False, description="show earlier thoughts in later prompts, as ReAct's own paper does; full view only"
        )

    config: Config

    def __init__(self, config: MethodConfig, *, spec: EnvSpec, view: View, seed: int) -> None:
        super().__init__(config, spec=spec, view=view, seed=seed)
        self.prompts = ReActPrompt(config, spec, view)

    def setup(self, kit: Kit) -> None:
        if self.config.keep_thoughts and self.view == "compact":
            raise UnsupportedOption(
                "keep_thoughts=true has no place in the prompts of the compact view, which hold actions alone; "
                "use --view full, or leave it out"
            )
        super().setup(kit)

    async def solve(self, episode: Episode) -> Trajectory:
        """Think and act step by step until the episode is over. A reply without a thought may still act."""
        thoughts: dict[int, str] = {}
        while not episode.over:
            reply = await episode.ask(self.prompts.act(episode, thoughts))
            if self.config.keep_thoughts and (thought := parse_tag(reply, "think")):
                thoughts[episode.steps + 1] = thought
            await episode.step(parse_action(reply))
        return await episode.close()
