"""StraTA's three prompts (appendix B.2: slots and tags; the wording is ours) and the parsing of their answers."""

from __future__ import annotations

from harness.env import EnvSpec
from harness.episode import Episode
from harness.method import MethodConfig
from harness.model import Prompt
from harness.prompts import Scene, load_template, parse_numbers, parse_tag
from harness.types import Strategy, Trajectory, View

SLOTS = {
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


class StrategyPrompts:
    """Prompts for a strategy, for an action under it, and for the judgment of a finished rollout."""

    def __init__(self, config: MethodConfig, spec: EnvSpec, view: View, *, judge_sees_end: bool = True) -> None:
        self.scene = Scene(spec, view, config.history)
        self.judge_sees_end = judge_sees_end
        self._template = {
            name: load_template("methods.strata", view, name, slots, config.prompts)
            for name, slots in SLOTS[view].items()
        }

    def strategy(self, episode: Episode) -> Prompt:
        """Eq. 5: z ~ pi(. | s_1), asked once, before the first action."""
        text = self._template["strategy"].render(
            description=self.scene.description(episode.task.instruction),
            context=self.scene.context(episode),
        )
        return Prompt.user(text, kind="strategy")

    def action(self, episode: Episode) -> Prompt:
        """Eq. 6: a_t ~ pi(. | z, s_t); the strategy stands before the state."""
        text = self._template["action"].render(
            description=self.scene.description(episode.task.instruction),
            strategy=episode.strategy.text if episode.strategy else "",
            context=self.scene.context(episode),
            instruction=self.scene.instruction,
        )
        return Prompt.user(text, kind="action")

    def judgment(self, trajectory: Trajectory, strategy: Strategy) -> Prompt:
        """Eq. 16: which steps neither follow the strategy nor bring the task forward."""
        text = self._template["judgment"].render(
            description=self.scene.description(trajectory.task.instruction),
            strategy=strategy.text,
            history=self.scene.history(trajectory, final=self.judge_sees_end),
        )
        return Prompt.user(text, kind="judgment")


def parse_strategy(reply: str) -> str | None:
    """The text inside the last complete strategy tag, and only it; None when malformed."""
    return parse_tag(reply, "strategy")


def parse_judgment(reply: str, *, steps: int) -> frozenset[int] | None:
    """Flagged steps, numbers in 1..steps; None when the reply has no tag or no list."""
    return parse_numbers(reply, "judgment", highest=steps)
