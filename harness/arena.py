"""The arena: what a learning method is given to explore one task, and all that it may reach.

Train and validation tasks are reached only through it; test tasks never are.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from harness.batching import Lane
from harness.env import Env, EnvSpec, InfraError
from harness.episode import Episode, EpisodeFailed
from harness.model import Kit, Prompt, Request, Sampling
from harness.seeding import derive
from harness.types import Key, Mode, Task, Trajectory, Turn, Usage

T = TypeVar("T")
Phase = Literal["train", "validation", "eval"]


@dataclass(slots=True)
class Tally:
    """What an iteration cost and lost: shared by its arenas."""

    usage: Usage = Usage()
    failed: Counter[str] = field(default_factory=Counter)
    episodes: int = 0


@dataclass(slots=True)
class World:
    """What every arena of a run shares."""

    spec: EnvSpec
    env_factory: Callable[[], Env]
    lane: Lane
    kit: Kit
    run_seed: int
    executor: Executor | None = None
    tally: Tally = field(default_factory=Tally)
    opened: list[Episode] = field(default_factory=list)

    def close(self) -> None:
        """Close every environment that is still open, whoever left it so, and count what the episodes used."""
        for episode in reversed(self.opened):  # those that still wait to be opened need not be
            episode.release()
            self.tally.usage += episode.usage
        self.opened.clear()


class Arena:
    """One task's place in an iteration.

    Attributes:
        phase: "train", "validation" or "eval".
        iteration: counted from 1 in training; the number of finished iterations in evaluation.
        slot: place of the task in the iteration; two draws of one task have two slots.
        kit: models by role.
    """

    def __init__(
        self,
        world: World,
        *,
        phase: Phase,
        iteration: int,
        slot: int,
        sampling: Sampling,
        validate: Callable[[Sequence[Task] | None], Awaitable[list[Trajectory]]] | None = None,
    ) -> None:
        self.phase, self.iteration, self.slot, self.kit = phase, iteration, slot, world.kit
        self.sampling = sampling
        self._world, self._validate = world, validate
        self._asked: Counter[Key] = Counter()
        self._opened: Counter[Key] = Counter()

    @property
    def group(self) -> Key:
        """Key of this draw of the task: (iteration, slot)."""
        return (self.iteration, self.slot)

    def episodes(
        self, task: Task, n: int, *, horizon: int | None = None, branch: tuple[int, ...] = ()
    ) -> list[Episode]:
        """Open n episodes of a task: one environment seed, so that they start in one state; own sampling seeds.

        Further episodes of the same task and branch go on counting: they are other rollouts, not the same ones again.

        Args:
            task: a train or validation task, or one that the method proposed.
            n: how many.
            horizon: another step budget than the environment's.
            branch: (strategy index,) for rollouts under a strategy.
        """
        strategy = branch[0] if branch else -1
        first = self._opened[task.id, strategy]
        self._opened[task.id, strategy] += n
        return [self._episode(task, strategy, rollout, horizon) for rollout in range(first, first + n)]

    async def gather(self, coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
        """Run coroutines side by side; results in input order.

        A rollout that infrastructure or the environment failed (after its retry) is left out and counted; any other
        error is a fault of the program and is raised.
        """
        results: list[T] = []
        for result in await self._world.lane.gather(coroutines):
            if isinstance(result, EpisodeFailed):
                self._world.tally.failed[str(result.status)] += 1
            elif isinstance(result, InfraError):
                self._world.tally.failed["infra_error"] += 1
            elif isinstance(result, BaseException):
                raise result
            else:
                results.append(result)
        return results

    async def sample(
        self,
        prompt: Prompt,
        n: int = 1,
        *,
        role: str = "policy",
        sampling: Sampling | None = None,
        branch: tuple[int, ...] = (),
    ) -> list[Turn]:
        """n responses to one prompt, outside of any episode; `branch` tells calls apart that run side by side."""
        strategy, rollout = (*branch, -1, -1)[:2]
        head: Key = (self.phase, self.iteration, self.slot, "", strategy, rollout, -1, role)
        start = self._asked[head]
        self._asked[head] += n
        sampling = sampling or self.sampling
        asked = await self._world.lane.gather(
            self._request((*head, start + k), prompt, role, sampling) for k in range(n)
        )
        turns: list[Turn] = []
        for turn in asked:
            if isinstance(turn, BaseException):
                raise turn
            turns.append(turn)
        return turns

    async def ask(
        self, prompt: Prompt, *, role: str, sampling: Sampling | None = None, branch: tuple[int, ...] = ()
    ) -> Turn:
        """One response to one prompt, outside of any episode."""
        return (await self.sample(prompt, role=role, sampling=sampling, branch=branch))[0]

    async def validation(self, tasks: Sequence[Task] | None = None) -> list[Trajectory]:
        """Solve validation tasks (all by default) as at evaluation; what failed is left out."""
        if self._validate is None:
            raise RuntimeError("this arena has no validation tasks; it is given to learn() only")
        return await self._validate(tasks)

    async def _request(self, key: Key, prompt: Prompt, role: str, sampling: Sampling) -> Turn:
        world = self._world
        sampling = dataclasses.replace(sampling, seed=derive(world.run_seed, "request", key))
        completion = await world.lane.ask(world.kit.model(role), Request(key, prompt, sampling))
        world.tally.usage += completion.usage
        trainable = role == "policy" and self.phase == "train"
        return Turn(role, prompt.kind, completion, trainable, sampling.max_tokens, prompt=prompt.text)

    def _episode(self, task: Task, strategy: int, rollout: int, horizon: int | None) -> Episode:
        world = self._world
        mode: Mode = "train" if self.phase == "train" else "eval"
        world.tally.episodes += 1
        episode = Episode(
            task,
            world.env_factory,
            lane=world.lane,
            kit=world.kit,
            sampling=self.sampling,
            run_seed=world.run_seed,
            key=(self.phase, self.iteration, self.slot, task.id, strategy, rollout),
            seed=derive(world.run_seed, "environment", self.phase, self.iteration, self.slot, task.id),
            mode=mode,
            horizon=horizon or world.spec.horizon,
            executor=world.executor,
        )
        world.opened.append(episode)
        return episode
