"""Does an environment keep its contract (`harness.env`)?"""

from __future__ import annotations

import json
import math
import os
import pickle
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

from harness.batching import Lane
from harness.conformance.findings import Broken, Finding, Skipped, require, run_checks
from harness.env import Env, EnvSpec
from harness.episode import Episode
from harness.model import Kit, Sampling
from harness.seeding import python_random
from harness.types import SPLITS, Observation, Split, Status, StepInfo, StepResult, StopReason, Task, Trajectory, Verdict, View

_NONSENSE = "no such action, 0?!"
_LONGEST = 30
"""Steps of a random walk."""


@dataclass(frozen=True)
class EnvContext:
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
        return tuple(
            task for tasks in self.tasks.values() for task in rng.sample(tasks, min(self.samples, len(tasks)))
        )

    def walk(self, task: Task) -> Sequence[str]:
        """Actions that lead somewhere: the solution, else a wrong one, else admissible actions drawn at random."""
        with self.open() as env:
            known = env.oracle(task) or env.wrong(task)
            if known:
                return list(known)
            rng, actions = random.Random(self.seed), []
            observation = env.reset(task, seed=self.seed)
            for _ in range(min(_LONGEST, self.spec.horizon)):
                action = rng.choice(observation.admissible_actions or (_NONSENSE,))
                actions.append(action)
                observation, _, terminated, truncated, _ = env.step(action)
                if terminated or truncated:
                    break
            return actions


def check_env(
    env_class: type[Env],
    *,
    view: View | None = None,
    data: str | None = None,
    samples: int = 3,
    seed: int = 0,
    only: Collection[str] | None = None,
) -> list[Finding]:
    """Check an environment against its contract.

    Args:
        env_class: the class of the environment.
        view: rendering; its first by default.
        data: path of official data; embedded by default.
        samples: tasks of each split that are played.
        seed: of the choice of tasks.
        only: names of checks; all by default.
    """
    return run_checks(CHECKS, EnvContext(env_class, view, data, samples, seed), only)


# -- what it says of itself -----------------------------------------------------------------------------------------


def _spec(context: EnvContext) -> None:
    spec = context.spec
    require(bool(spec.name), "spec.name is empty")
    require(spec.horizon >= 1, f"spec.horizon is {spec.horizon}")
    require(bool(spec.columns) and set(spec.columns) <= {"success", "score"}, f"spec.columns is {spec.columns}")
    require(bool(spec.views) and set(spec.views) <= {"full", "compact"}, f"spec.views is {spec.views}")
    require(bool(spec.actions), "spec.actions is empty: no prompt can say how an action is written")


def _task_lists(context: EnvContext) -> None:
    ids: Counter[str] = Counter()
    for split, tasks in context.tasks.items():
        for task in tasks:
            require(task.env == context.spec.name, f"task {task.id!r} says env {task.env!r}, not {context.spec.name!r}")
            require(task.split == split, f"task {task.id!r} of {split} says split {task.split!r}")
            require(bool(task.instruction.strip()), f"task {task.id!r} has no instruction")
            ids[task.id] += 1
    require(bool(context.tasks["test"]), "there are no test tasks")
    twice = [name for name, count in ids.items() if count > 1]
    require(not twice, f"task ids that occur twice: {', '.join(twice[:3])}")


def _splits(context: EnvContext) -> None:
    seen: dict[str, Task] = {}
    for tasks in context.tasks.values():
        for task in tasks:
            other = seen.setdefault(" ".join(task.instruction.lower().split()), task)
            if other.split != task.split:
                raise Broken(f"{other.split} task {other.id!r} and {task.split} task {task.id!r} have one instruction")


def _counts(context: EnvContext) -> None:
    known = {split: count for split, count in context.spec.counts.items() if count is not None}
    tests = context.tasks["test"]
    for split in SPLITS:
        if split in known:
            have = len(context.tasks[split])
            require(have == known[split], f"spec.counts says {known[split]} {split} tasks, tasks() gives {have}")
    for subset, count in context.spec.subsets.items():
        have = sum(task.subset == subset for task in tests)
        require(count in (None, have), f"spec.subsets says {count} test tasks of {subset!r}, tasks() gives {have}")
    strangers = {str(task.subset) for task in tests} - set(context.spec.subsets) if context.spec.subsets else set()
    require(not strangers, f"subsets that spec.subsets does not name: {', '.join(sorted(strangers))}")
    if not known and not context.spec.subsets:
        raise Skipped("the spec gives no counts")


def _fresh_lists(context: EnvContext) -> None:
    with context.open() as env:
        for split, tasks in context.tasks.items():
            require(tuple(env.tasks(split)) == tasks, f"a fresh instance has another list of {split} tasks")


_IDS = """
import importlib, json, sys
module, name, view, data = json.loads(sys.argv[1])
env_class = importlib.import_module(module)
for part in name.split("."):
    env_class = getattr(env_class, part)
env = env_class(view=view, data=data)
print(json.dumps([[task.id, task.instruction] for split in ("train", "validation", "test") for task in env.tasks(split)]))
"""


def _other_process(context: EnvContext) -> None:
    where = [context.env_class.__module__, context.env_class.__qualname__, context.view, context.data]
    if "<locals>" in context.env_class.__qualname__:
        raise Skipped("the class is local to a function: another process cannot import it")
    path = os.pathsep.join(entry for entry in sys.path if entry)
    environ = {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "4711"}
    done = subprocess.run(
        [sys.executable, "-c", _IDS, json.dumps(where)], env=environ, capture_output=True, text=True, check=False
    )
    require(done.returncode == 0, f"another process could not list the tasks: {done.stderr.strip()[-300:]}")
    theirs = json.loads(done.stdout.splitlines()[-1])
    ours = [[task.id, task.instruction] for tasks in context.tasks.values() for task in tasks]
    require(theirs == ours, "another process has another list of tasks (does an order depend on hash() or on a set?)")


def _pickling(context: EnvContext) -> None:
    with context.open() as env:
        for task in context.played:
            copy = pickle.loads(pickle.dumps(task))  # our own bytes, written one line above
            require(copy == task, f"task {task.id!r} is another one after pickling")
            first = env.reset(task, seed=context.seed)
            require(env.reset(copy, seed=context.seed) == first, f"the pickled copy of task {task.id!r} starts elsewhere")


# -- determinism ----------------------------------------------------------------------------------------------------


def _seeds(context: EnvContext) -> None:
    _needs_determinism(context)
    for task in context.played:
        with context.open() as one, context.open() as other:
            first = one.reset(task, seed=context.seed)
            require(other.reset(task, seed=context.seed) == first, f"task {task.id!r}: one seed, two first observations")


def _steps(context: EnvContext) -> None:
    _needs_determinism(context)
    for task in context.played:
        actions = context.walk(task)
        with context.open() as one, context.open() as other:
            first, second = (_play(env, task, actions, context.seed) for env in (one, other))
        require(first == second, f"task {task.id!r}: the same actions had different effects")


def _again(context: EnvContext) -> None:
    _needs_determinism(context)
    for task in context.played:
        actions = context.walk(task)
        with context.open() as env:
            first = _play(env, task, actions, context.seed)
            require(
                _play(env, task, actions, context.seed) == first,
                f"task {task.id!r}: the second episode of an instance differs from its first",
            )


def _isolation(context: EnvContext) -> None:
    _needs_determinism(context)
    if context.spec.state == "shared":
        raise Skipped("episodes share their site, the spec says")
    for task in context.played:
        actions = context.walk(task)
        with context.open() as alone:
            expected = _play(alone, task, actions, context.seed)
        with context.open() as one, context.open() as other:
            start = one.reset(task, seed=context.seed)
            _play(other, task, actions, context.seed)
            played = [start, *_steps_of(one, actions), one.verdict()]
        require(played == expected, f"task {task.id!r}: another instance's episode changed this one")


# -- steps and verdicts ---------------------------------------------------------------------------------------------


def _types(context: EnvContext) -> None:
    for task in context.played:
        with context.open() as env:
            observation = env.reset(task, seed=context.seed)
            require(isinstance(observation, Observation), f"reset gave {type(observation).__name__}, not an Observation")
            for action in context.walk(task):
                result = env.step(action)
                require(isinstance(result, StepResult), f"step gave {type(result).__name__}, not a StepResult")
                for name in ("terminated", "truncated"):
                    value = getattr(result, name)
                    require(isinstance(value, bool), f"{name} is {value!r}, not a bool")
                require(not (result.terminated and result.truncated), "a step both terminated and truncated")
                require(isinstance(result.reward, float) and math.isfinite(result.reward), f"reward is {result.reward!r}")
                require(isinstance(result.observation, Observation), "a step gave no Observation")
                require(isinstance(result.info, StepInfo), f"info is {type(result.info).__name__}, not a StepInfo")


def _no_op(context: EnvContext) -> None:
    for task in context.played:
        with context.open() as env:
            before = env.reset(task, seed=context.seed)
            result = env.step(_NONSENSE)
            require(not result.info.admissible, f"the action {_NONSENSE!r} counts as admissible")
            require(result.observation.anchor == before.anchor, f"the action {_NONSENSE!r} changed the state")
            require(not (result.terminated or result.truncated), f"the action {_NONSENSE!r} ended the episode")


def _horizon(context: EnvContext) -> None:
    for task in context.played:
        env = context.env_class(view=context.view, data=context.data)
        lane = Lane()
        episode = Episode(
            task, lambda env=env: env, lane=lane, kit=Kit({}), sampling=Sampling(), run_seed=context.seed,
            key=("eval", 0, 0, task.id, -1, 0), seed=context.seed, mode="eval", horizon=context.spec.horizon,
        )  # fmt: skip
        trajectory = lane.run(_refused(episode))
        require(
            len(trajectory.steps) == context.spec.horizon,
            f"{len(trajectory.steps)} refused actions ended the episode; the horizon is {context.spec.horizon}",
        )
        require(trajectory.stop is StopReason.HORIZON, f"the episode stopped with {trajectory.stop}, not at its horizon")
        require(not trajectory.success, f"task {task.id!r} counts as solved by doing nothing")


async def _refused(episode: Episode) -> Trajectory:
    """Half of the replies malformed, the other half refused by the world."""
    while not episode.over:
        await episode.step(_NONSENSE if episode.steps % 2 else None)
    return await episode.close()


def _gold(context: EnvContext) -> None:
    solved = 0
    for task in context.played:
        with context.open() as env:
            actions = env.oracle(task)
            if actions is None:
                continue
            require(len(actions) <= context.spec.horizon, f"the solution of {task.id!r} takes {len(actions)} steps")
            steps, verdict = _played(env, task, actions, context.seed)
            require(verdict.status is Status.OK, f"the solution of {task.id!r} ends with status {verdict.status}")
            require(verdict.success is True and verdict.score == 1.0, f"the solution of {task.id!r} is worth {verdict}")
            require(len(steps) == len(actions), f"the solution of {task.id!r} ends before its last action")
            solved += 1
    if not solved:
        raise Skipped("the environment knows no solutions: its grader is not tested on a right answer")


def _wrong(context: EnvContext) -> None:
    failed = 0
    for task in context.played:
        with context.open() as env:
            actions = env.wrong(task)
            if actions is None:
                continue
            _, verdict = _played(env, task, actions, context.seed)
            require(verdict.success is False, f"the wrong answer to {task.id!r} counts as a success")
            require(verdict.score is not None and verdict.score < 1, f"the wrong answer to {task.id!r} scores {verdict.score}")
            failed += 1
    if not failed:
        raise Skipped("the environment knows no wrong answers: its grader is not tested on one")


def _score_range(context: EnvContext) -> None:
    for task in context.played:
        for actions in ((), context.walk(task)):
            with context.open() as env:
                _, verdict = _played(env, task, actions, context.seed)
            in_range = verdict.score is None or 0 <= verdict.score <= 1
            require(in_range, f"task {task.id!r} has score {verdict.score}, not in [0, 1]")
            require(bool(actions) or not verdict.success, f"task {task.id!r} is solved before its first step")


def _close(context: EnvContext) -> None:
    never_played = context.env_class(view=context.view, data=context.data)
    never_played.close()
    never_played.close()
    env = context.env_class(view=context.view, data=context.data)
    env.reset(context.played[0], seed=context.seed)
    env.close()
    env.close()


def _needs_determinism(context: EnvContext) -> None:
    if not context.spec.deterministic:
        raise Skipped("the spec says that it is not deterministic")


def _played(env: Env, task: Task, actions: Sequence[str], seed: int) -> tuple[list[StepResult], Verdict]:
    env.reset(task, seed=seed)
    return list(_steps_of(env, actions)), env.verdict()


def _play(env: Env, task: Task, actions: Sequence[str], seed: int) -> list[object]:
    """First observation, step results, verdict."""
    return [env.reset(task, seed=seed), *_steps_of(env, actions), env.verdict()]


def _steps_of(env: Env, actions: Sequence[str]) -> Iterator[StepResult]:
    for action in actions:
        result = env.step(action)
        yield result
        if result.terminated or result.truncated:
            return


CHECKS = {
    "spec": _spec,
    "task lists: unique ids, right split": _task_lists,
    "splits share no instruction": _splits,
    "counts as in the spec": _counts,
    "same tasks in a fresh instance": _fresh_lists,
    "same tasks in another process": _other_process,
    "tasks survive pickling": _pickling,
    "same seed, same start": _seeds,
    "same actions, same steps": _steps,
    "an instance can be played again": _again,
    "instances do not touch each other": _isolation,
    "types of a step": _types,
    "an unknown action is a no-op": _no_op,
    "horizon": _horizon,
    "the solution scores 1": _gold,
    "a wrong answer does not": _wrong,
    "scores lie in [0, 1], nothing is solved at the start": _score_range,
    "close, twice": _close,
}
