"""From demonstrations to training rows: methods play with an expert in the model's place, and what was asked and
answered becomes rows. So a cloned policy has seen exactly the prompts that the methods will send."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from harness import registry
from harness.arena import Arena, World
from harness.batching import Lane
from harness.config import RunConfig
from harness.demonstration import Demonstration
from harness.env import Env
from harness.model import Kit, Model, Prompt, Request, Sampling
from harness.prompts import prompts_of
from harness.types import Completion, Trajectory

LANE = 256


@dataclass(frozen=True, slots=True)
class Lesson:
    """A prompt and the reply to learn."""

    kind: str
    prompt: str
    reply: str


class Teacher(Model):
    """Answers as the expert of each demonstration did; the slot of a request says which demonstration it belongs to."""

    backend = "teacher"

    def __init__(self, demonstrations: Sequence[Demonstration]) -> None:
        self.demonstrations = demonstrations

    def count(self, prompt: Prompt) -> int:
        """Words of a prompt: they will be the tokens of the policy that is cloned."""
        return len(prompt.text.split())

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        return [Completion(self._reply(request), (), (), "stop") for request in requests]

    def _reply(self, request: Request) -> str:
        slot, step = int(request.key[2]), int(request.key[6])
        demonstration = self.demonstrations[slot]
        if request.prompt.kind == "strategy":
            return f"<strategy> {demonstration.strategy} </strategy>"
        shown = demonstration.steps[step]
        action = f"<action> {shown.action} </action>"
        return f"<think> {shown.thought} </think> {action}" if request.prompt.kind == "react" else action


def lessons(
    config: RunConfig, demonstrations: Sequence[Demonstration], env_factory: Callable[[], Env]
) -> list[Lesson]:
    """What a policy has to answer when a method plays as the demonstrations did.

    Args:
        config: of a run of the method, at the mini scale.
        demonstrations: what the expert did.
        env_factory: opens the environment they were made in.
    """
    found: list[Lesson] = []
    for start in range(0, len(demonstrations), LANE):
        found += _chunk(config, demonstrations[start : start + LANE], env_factory)
    return found


def _chunk(config: RunConfig, chosen: Sequence[Demonstration], env_factory: Callable[[], Env]) -> list[Lesson]:
    spec = registry.env_spec(config.env)
    kit = Kit({"policy": Teacher(chosen)})
    method_class = registry.load_method(config.method)
    method = method_class(config.method_config(), spec=spec, view=config.view, seed=0)
    for prompts in prompts_of(method):  # method.setup would refuse a teacher where the method trains its policy
        prompts.setup(kit)
    world = World(spec, env_factory, Lane(), kit, run_seed=0)
    sampling = Sampling(max_tokens=config.method_config().max_tokens)
    trajectories: list[Trajectory] = []

    async def play() -> None:
        for slot, demonstration in enumerate(chosen):
            arena = Arena(world, phase="eval", iteration=0, slot=slot, sampling=sampling)
            horizon = len(demonstration.steps)
            trajectories.append(await method.solve(arena.episodes(demonstration.task, 1, horizon=horizon)[0]))

    world.lane.run(play())
    world.close()
    found = [Lesson(turn.kind, turn.prompt, turn.completion.text) for t in trajectories for turn in t.turns]
    judgment = getattr(getattr(method, "prompts", None), "judgment", None)
    if judgment is not None:
        for demonstration, trajectory in zip(chosen, trajectories, strict=True):
            assert trajectory.strategy is not None, "a method that judges follows a strategy"
            wrong = [i for i, s in enumerate(demonstration.steps, 1) if not s.follows_strategy and not s.forward]
            reply = f"<judgment> [ {' '.join(map(str, wrong))} ] </judgment>".replace("[  ]", "[ ]")
            found.append(Lesson("judgment", judgment(trajectory, trajectory.strategy).text, reply))
    return found
