"""The environment under test, and how checks play it."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

from harness.conformance.findings import Skipped
from harness.env import Env, EnvSpec
from harness.seeding import python_random
from harness.types import SPLITS, Split, StepResult, Task, Verdict, View

NONSENSE = "no such action, 0?!"
"""An action that no world knows."""

_LONGEST = 30
"""Steps of a random walk."""


@dataclass(frozen=True)
class EnvUnderTest:
    """An environment under test.

    Attributes:
        env_class: the class.
        view: rendering.
        data: path of official data; embedded by default.
        samples: tasks that are played.
        seed: of the choice of tasks and of the walks.
    """

    env_class: type[Env]
    view: View | None
    data: str | None
    samples: int
    seed: int

    @property
    def spec(self) -> EnvSpec:
        return self.env_class.spec

    @contextmanager
    def open(self) -> Iterator[Env]:
        """A fresh instance, closed at the end."""
        env = self.env_class(view=self.view, data=self.data)
        try:
            yield env
        finally:
            env.close()

    @cached_property
    def tasks(self) -> dict[Split, tuple[Task, ...]]:
        with self.open() as env:
            return {split: tuple(env.tasks(split)) for split in SPLITS}

    @cached_property
    def played(self) -> tuple[Task, ...]:
        """A few tasks of every split that has some."""
        rng = python_random(self.seed, "conformance tasks")
        return tuple(task for tasks in self.tasks.values() for task in rng.sample(tasks, min(self.samples, len(tasks))))

    def walk(self, task: Task) -> Sequence[str]:
        """Actions that lead somewhere: the solution, else a wrong one, else admissible actions drawn at random."""
        with self.open() as env:
            known = env.oracle(task) or env.wrong(task)
            if known:
                return list(known)
            rng, actions = random.Random(self.seed), []
            observation = env.reset(task, seed=self.seed)
            for _ in range(min(_LONGEST, self.spec.horizon)):
                action = rng.choice(observation.admissible_actions or (NONSENSE,))
                actions.append(action)
                observation, _, terminated, truncated, _ = env.step(action)
                if terminated or truncated:
                    break
            return actions


def needs_determinism(context: EnvUnderTest) -> None:
    if not context.spec.deterministic:
        raise Skipped("the spec says that it is not deterministic")


def played(env: Env, task: Task, actions: Sequence[str], seed: int) -> tuple[list[StepResult], Verdict]:
    env.reset(task, seed=seed)
    return list(steps_of(env, actions)), env.verdict()


def play(env: Env, task: Task, actions: Sequence[str], seed: int) -> list[object]:
    """First observation, step results, verdict."""
    return [env.reset(task, seed=seed), *steps_of(env, actions), env.verdict()]


def steps_of(env: Env, actions: Sequence[str]) -> Iterator[StepResult]:
    for action in actions:
        result = env.step(action)
        yield result
        if result.terminated or result.truncated:
            return
