"""Methods with one fault each. Every check of `harness.conformance.method` has one here that it must find."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from harness.arena import Arena
from harness.episode import Episode
from harness.experience import Experience
from harness.method import Method, MethodConfig
from harness.types import Task, Trajectory
from tests.toys import ToyEnv, ToyLearner, ToyMemory, ToyWalker


class OddCoupling(ToyWalker):
    coupling = "sometimes"  # type: ignore[assignment]


class Unexplained(ToyWalker):
    class Config(MethodConfig):
        secret: int = 3


class SecretlyTrained(ToyLearner):
    coupling = "independent"


class OnlyClaims(ToyWalker):
    """Says that it iterates, and has nothing to iterate with."""

    coupling = "trained"
    iterations = 2


class ObservesUnasked(ToyWalker):
    async def observe(self, trajectory: Trajectory) -> None:
        return None


class ReturnsNothing(ToyWalker):
    async def solve(self, episode: Episode) -> Trajectory:
        await super().solve(episode)
        return None  # type: ignore[return-value]


class CountsItsTests(ToyLearner):
    async def solve(self, episode: Episode) -> Trajectory:
        self.wins += episode.mode == "eval"
        return await super().solve(episode)


class Restless(ToyWalker):
    """Draws from a state that all instances share."""

    _draws: ClassVar = itertools.count()

    async def solve(self, episode: Episode) -> Trajectory:
        while not episode.over:
            await episode.ask(self.prompt(episode))
            await episode.step(("left", "right")[next(self._draws) % 3 % 2])
        return await episode.close()


class WordyMetrics(ToyLearner):
    async def learn(self, experiences: Sequence[Experience], arena: Arena, iteration: int) -> Mapping[str, float]:
        return {**await super().learn(experiences, arena, iteration), "mood": "good"}  # type: ignore[dict-item]


class OneGroup(ToyLearner):
    """All draws share a group, so that tasks are compared with each other."""

    async def explore(self, task: Task, arena: Arena) -> Experience:
        trajectories = await arena.gather(self.solve(e) for e in arena.episodes(task, 2))
        return Experience.of(trajectories, group=("all",), rewards=lambda trajectory, turns: [0.0] * len(turns))


class PeeksAtTests(ToyLearner):
    async def explore(self, task: Task, arena: Arena) -> Experience:
        return await super().explore(ToyEnv().tasks("test")[0], arena)


class TupleState(ToyLearner):
    def state_dict(self) -> dict[str, Any]:
        return {"wins": (self.wins,)}


class Forgets(ToyLearner):
    def load(self, folder: Path) -> None:
        self.wins = 0


class KeepsItsStream(ToyMemory):
    """What it observed at one evaluation would leak into training and into the next one."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.seen += state["seen"]


class ReadsLabelsUnasked(ToyMemory):
    async def observe(self, trajectory: Trajectory) -> None:
        if trajectory.success:
            await super().observe(trajectory)


FAULTS: list[tuple[str, type[Method]]] = [
    ("declarations", OddCoupling),
    ("declarations", Unexplained),
    ("coupling as declared", SecretlyTrained),
    ("explore and learn exactly where there are iterations", OnlyClaims),
    ("explore and learn exactly where there are iterations", ObservesUnasked),
    ("solve gives a trajectory with a verdict", ReturnsNothing),
    ("solve leaves the state alone", CountsItsTests),
    ("same seeds, same actions", Restless),
    ("a whole iteration", WordyMetrics),
    ("a whole iteration", OneGroup),
    ("learning leaves test tasks alone", PeeksAtTests),
    ("a stream ends where it began", KeepsItsStream),
    ("a stream ends where it began", ReadsLabelsUnasked),
    ("state is plain JSON", TupleState),
    ("save and load", Forgets),
]
