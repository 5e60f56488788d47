"""StraTA's three prompts (appendix B.2: slots and tags; the wording is ours) and the parsing of their answers."""

from __future__ import annotations

from collections.abc import Sequence

from harness.env import EnvSpec
from harness.episode import Episode
from harness.method import MethodConfig
from harness.model import Prompt
from harness.prompts import Prompts, Slots, parse_numbers, parse_tag
from harness.types import Step, Strategy, Trajectory, View

SLOTS: Slots = {
    "full": {
        "strategy": ("description", "context"),
        "action": ("description", "strategy", "context", "instruction"),
        "judgment": ("description", "strategy", "history"),
    },
    "compact": {
        "strategy": ("description", "context"),
        "action": ("strategy", "description", "context"),
        "judgment": ("strategy", "description", "history"),
    },
}


class StrategyPrompts(Prompts):
    """Prompts for a strategy, for an action under it, and for the judgment of a finished rollout."""

    def __init__(self, config: MethodConfig, spec: EnvSpec, view: View, *, judge_sees_end: bool = True) -> None:
        super().__init__("methods.strata", SLOTS, config, spec, view)
        self.judge_sees_end = judge_sees_end

    def strategy(self, episode: Episode) -> Prompt:
        """Eq. 5: z ~ pi(. | s_1), asked once, before the first action."""
        scene = self.scene
        return self.fit("strategy", scene.recent(episode), lambda steps: self.templates["strategy"].render(
            description=scene.description(episode.task.instruction),
            context=scene.context(episode, steps),
        ))  # fmt: skip

    def action(self, episode: Episode) -> Prompt:
        """Eq. 6: a_t ~ pi(. | z, s_t); the strategy stands before the state."""
        scene = self.scene
        return self.fit("action", scene.recent(episode), lambda steps: self.templates["action"].render(
            description=scene.description(episode.task.instruction),
            strategy=episode.strategy.text if episode.strategy else "",
            context=scene.context(episode, steps),
            instruction=scene.instruction,
        ))  # fmt: skip

    def judgment(self, trajectory: Trajectory, strategy: Strategy) -> Prompt:
        """Eq. 16: which steps neither follow the strategy nor bring the task forward."""
        scene = self.scene

        def render(steps: Sequence[Step]) -> str:
            return self.templates["judgment"].render(
                description=scene.description(trajectory.task.instruction),
                strategy=strategy.text,
                history=scene.history(trajectory, steps, final=self.judge_sees_end),
            )

        return self.fit("judgment", trajectory.steps, render, role="judge")


def parse_strategy(reply: str) -> str | None:
    """The text inside the last complete strategy tag, and only it; None when malformed."""
    return parse_tag(reply, "strategy")


def parse_judgment(reply: str, *, steps: int) -> frozenset[int] | None:
    """Flagged steps, numbers in 1..steps; None when the reply has no tag or no list."""
    return parse_numbers(reply, "judgment", highest=steps)
