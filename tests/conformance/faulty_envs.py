"""Environments with one fault each. Every check of `harness.conformance.env` has one here that it must find."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import ClassVar

from harness.env import Env
from harness.types import Observation, Split, StepInfo, StepResult, Task, Verdict
from tests.toys import ToyEnv


class NoHorizon(ToyEnv):
    spec = dataclasses.replace(ToyEnv.spec, horizon=0)


class OneId(ToyEnv):
    def tasks(self, split: Split) -> Sequence[Task]:
        return [dataclasses.replace(task, id="task") for task in super().tasks(split)]


class WrongSplit(ToyEnv):
    def tasks(self, split: Split) -> Sequence[Task]:
        return [dataclasses.replace(task, split="train") for task in super().tasks(split)]


class LeakedInstruction(ToyEnv):
    def tasks(self, split: Split) -> Sequence[Task]:
        first, *rest = super().tasks(split)
        return [dataclasses.replace(first, instruction="Walk home."), *rest]


class WrongCount(ToyEnv):
    spec = dataclasses.replace(ToyEnv.spec, counts={"test": 8})


class WrongSubset(ToyEnv):
    spec = dataclasses.replace(ToyEnv.spec, subsets={"near": 5, "far": 2})


class MoodyList(ToyEnv):
    _instances: ClassVar = itertools.count()

    def __init__(self, **options: object) -> None:
        super().__init__(**options)
        self._shift = next(self._instances) % 2

    def tasks(self, split: Split) -> Sequence[Task]:
        tasks = list(super().tasks(split))
        return tasks[self._shift :] + tasks[: self._shift]


class HashOrder(ToyEnv):
    def tasks(self, split: Split) -> Sequence[Task]:
        return sorted(super().tasks(split), key=lambda task: hash(task.id))


class Unpicklable(ToyEnv):
    def tasks(self, split: Split) -> Sequence[Task]:
        return [dataclasses.replace(task, payload=lambda task=task: task.payload) for task in super().tasks(split)]

    def reset(self, task: Task, *, seed: int) -> Observation:
        return super().reset(dataclasses.replace(task, payload=task.payload()), seed=seed)


class RandomWalls(ToyEnv):
    _resets: ClassVar = itertools.count()

    def reset(self, task: Task, *, seed: int) -> Observation:
        return super().reset(task, seed=seed + next(self._resets))


class Slippery(ToyEnv):
    _moves: ClassVar = itertools.count()

    def step(self, action: str) -> StepResult:
        return super().step("left" if next(self._moves) % 3 == 0 and action == "right" else action)


class Worn(ToyEnv):
    """The second episode of an instance starts where the first one ended."""

    def reset(self, task: Task, *, seed: int) -> Observation:
        before = getattr(self, "_cell", None)
        super().reset(task, seed=seed)
        self._cell = self._cell if before is None else before
        return self._look()


class OneCorridor(ToyEnv):
    """All instances walk with the same feet."""

    _cell = property(lambda self: OneCorridor.where, lambda self, cell: setattr(OneCorridor, "where", cell))
    where: ClassVar[int] = 0


class IntegerFlags(ToyEnv):
    def step(self, action: str) -> StepResult:
        result = super().step(action)
        return result._replace(terminated=int(result.terminated))


class IntegerReward(ToyEnv):
    def step(self, action: str) -> StepResult:
        result = super().step(action)
        return result._replace(reward=int(result.reward))


class EagerOnNonsense(ToyEnv):
    def step(self, action: str) -> StepResult:
        result = super().step(action)
        return result if result.info.admissible else result._replace(info=StepInfo(admissible=True))


class MovedByNonsense(ToyEnv):
    def step(self, action: str) -> StepResult:
        if action in ("left", "right", "stop"):
            return super().step(action)
        self._cell = (self._cell + 1) % 6
        return StepResult(self._look(), 0.0, False, False, StepInfo(admissible=False))


class Impatient(ToyEnv):
    """Ends the episode by itself long before the horizon."""

    def reset(self, task: Task, *, seed: int) -> Observation:
        self._refused = 0
        return super().reset(task, seed=seed)

    def step(self, action: str) -> StepResult:
        result = super().step(action)
        self._refused += not result.info.admissible
        return result._replace(truncated=self._refused >= 2)


class HalfScore(ToyEnv):
    def verdict(self) -> Verdict:
        found = super().verdict()
        return dataclasses.replace(found, score=(found.score or 0) / 2)


class Generous(ToyEnv):
    def verdict(self) -> Verdict:
        return dataclasses.replace(super().verdict(), success=self._stopped, score=float(self._stopped))


class SolvedAtStart(ToyEnv):
    def verdict(self) -> Verdict:
        return dataclasses.replace(super().verdict(), success=True, score=1.0)


class PercentScore(ToyEnv):
    def verdict(self) -> Verdict:
        found = super().verdict()
        return dataclasses.replace(found, score=100 * (found.score or 0))


class ClosesOnce(ToyEnv):
    _open = True

    def close(self) -> None:
        if not self._open:
            raise RuntimeError("closed already")
        self._open = False


FAULTS: list[tuple[str, type[Env]]] = [
    ("spec", NoHorizon),
    ("task lists: unique ids, right split", OneId),
    ("task lists: unique ids, right split", WrongSplit),
    ("splits share no instruction", LeakedInstruction),
    ("counts as in the spec", WrongCount),
    ("counts as in the spec", WrongSubset),
    ("same tasks in a fresh instance", MoodyList),
    ("same tasks in another process", HashOrder),
    ("tasks survive pickling", Unpicklable),
    ("same seed, same start", RandomWalls),
    ("same actions, same steps", Slippery),
    ("an instance can be played again", Worn),
    ("instances do not touch each other", OneCorridor),
    ("types of a step", IntegerFlags),
    ("types of a step", IntegerReward),
    ("an unknown action is a no-op", EagerOnNonsense),
    ("an unknown action is a no-op", MovedByNonsense),
    ("horizon", Impatient),
    ("the solution scores 1", HalfScore),
    ("a wrong answer does not", Generous),
    ("scores lie in [0, 1], nothing is solved at the start", SolvedAtStart),
    ("scores lie in [0, 1], nothing is solved at the start", PercentScore),
    ("close, twice", ClosesOnce),
]
