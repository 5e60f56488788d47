"""Does an environment keep its contract (`harness.env`)?"""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Collection

from harness.batching import Lane
from harness.conformance import task_lists
from harness.conformance.findings import Finding, Skipped, require, run_checks
from harness.conformance.worlds import NONSENSE, EnvUnderTest, needs_determinism, play, played, steps_of
from harness.env import Env
from harness.episode import Episode
from harness.model import Kit, Sampling
from harness.types import Observation, Status, StepInfo, StepResult, StopReason, Trajectory, View


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
    return run_checks(CHECKS, EnvUnderTest(env_class, view, data, samples, seed), only)


# -- what it says of itself -----------------------------------------------------------------------------------------


def _spec(context: EnvUnderTest) -> None:
    spec = context.spec
    require(bool(spec.name), "spec.name is empty")
    require(spec.horizon >= 1, f"spec.horizon is {spec.horizon}")
    require(bool(spec.columns) and set(spec.columns) <= {"success", "score"}, f"spec.columns is {spec.columns}")
    require(bool(spec.views) and set(spec.views) <= {"full", "compact"}, f"spec.views is {spec.views}")
    require(bool(spec.actions), "spec.actions is empty: no prompt can say how an action is written")


def _pickling(context: EnvUnderTest) -> None:
    with context.open() as env:
        for task in context.played:
            copy = pickle.loads(pickle.dumps(task))  # our own bytes, written one line above
            require(copy == task, f"task {task.id!r} is another one after pickling")
            first = env.reset(task, seed=context.seed)
            require(
                env.reset(copy, seed=context.seed) == first, f"the pickled copy of task {task.id!r} starts elsewhere"
            )


# -- determinism ----------------------------------------------------------------------------------------------------


def _seeds(context: EnvUnderTest) -> None:
    needs_determinism(context)
    for task in context.played:
        with context.open() as one, context.open() as other:
            first = one.reset(task, seed=context.seed)
            require(
                other.reset(task, seed=context.seed) == first, f"task {task.id!r}: one seed, two first observations"
            )


def _steps(context: EnvUnderTest) -> None:
    needs_determinism(context)
    for task in context.played:
        actions = context.walk(task)
        with context.open() as one, context.open() as other:
            first, second = (play(env, task, actions, context.seed) for env in (one, other))
        require(first == second, f"task {task.id!r}: the same actions had different effects")


def _again(context: EnvUnderTest) -> None:
    needs_determinism(context)
    for task in context.played:
        actions = context.walk(task)
        with context.open() as env:
            first = play(env, task, actions, context.seed)
            require(
                play(env, task, actions, context.seed) == first,
                f"task {task.id!r}: the second episode of an instance differs from its first",
            )


def _isolation(context: EnvUnderTest) -> None:
    needs_determinism(context)
    if context.spec.state == "shared":
        raise Skipped("episodes share their site, the spec says")
    for task in context.played:
        actions = context.walk(task)
        with context.open() as alone:
            expected = play(alone, task, actions, context.seed)
        with context.open() as one, context.open() as other:
            start = one.reset(task, seed=context.seed)
            play(other, task, actions, context.seed)
            played = [start, *steps_of(one, actions), one.verdict()]
        require(played == expected, f"task {task.id!r}: another instance's episode changed this one")


# -- steps and verdicts ---------------------------------------------------------------------------------------------


def _types(context: EnvUnderTest) -> None:
    for task in context.played:
        with context.open() as env:
            observation = env.reset(task, seed=context.seed)
            require(
                isinstance(observation, Observation), f"reset gave {type(observation).__name__}, not an Observation"
            )
            for action in context.walk(task):
                result = env.step(action)
                require(isinstance(result, StepResult), f"step gave {type(result).__name__}, not a StepResult")
                for name in ("terminated", "truncated"):
                    value = getattr(result, name)
                    require(isinstance(value, bool), f"{name} is {value!r}, not a bool")
                require(not (result.terminated and result.truncated), "a step both terminated and truncated")
                require(
                    isinstance(result.reward, float) and math.isfinite(result.reward), f"reward is {result.reward!r}"
                )
                require(isinstance(result.observation, Observation), "a step gave no Observation")
                require(isinstance(result.info, StepInfo), f"info is {type(result.info).__name__}, not a StepInfo")


def _no_op(context: EnvUnderTest) -> None:
    for task in context.played:
        with context.open() as env:
            before = env.reset(task, seed=context.seed)
            result = env.step(NONSENSE)
            require(not result.info.admissible, f"the action {NONSENSE!r} counts as admissible")
            require(result.observation.anchor == before.anchor, f"the action {NONSENSE!r} changed the state")
            require(not (result.terminated or result.truncated), f"the action {NONSENSE!r} ended the episode")


def _horizon(context: EnvUnderTest) -> None:
    for task in context.played:
        env = context.env_class(view=context.view, data=context.data)
        lane = Lane()
        episode = Episode(
            task, _given(env), lane=lane, kit=Kit({}), sampling=Sampling(), run_seed=context.seed,
            key=("eval", 0, 0, task.id, -1, 0), seed=context.seed, mode="eval", horizon=context.spec.horizon,
        )  # fmt: skip
        trajectory = lane.run(_refused(episode))
        require(
            len(trajectory.steps) == context.spec.horizon,
            f"{len(trajectory.steps)} refused actions ended the episode; the horizon is {context.spec.horizon}",
        )
        require(
            trajectory.stop is StopReason.HORIZON, f"the episode stopped with {trajectory.stop}, not at its horizon"
        )
        require(not trajectory.success, f"task {task.id!r} counts as solved by doing nothing")


def _given(env: Env) -> Callable[[], Env]:
    return lambda: env


async def _refused(episode: Episode) -> Trajectory:
    """Half of the replies malformed, the other half refused by the world."""
    while not episode.over:
        await episode.step(NONSENSE if episode.steps % 2 else None)
    return await episode.close()


def _gold(context: EnvUnderTest) -> None:
    solved = 0
    for task in context.played:
        with context.open() as env:
            actions = env.oracle(task)
            if actions is None:
                continue
            require(len(actions) <= context.spec.horizon, f"the solution of {task.id!r} takes {len(actions)} steps")
            steps, verdict = played(env, task, actions, context.seed)
            require(verdict.status is Status.OK, f"the solution of {task.id!r} ends with status {verdict.status}")
            require(verdict.success is True and verdict.score == 1.0, f"the solution of {task.id!r} is worth {verdict}")
            require(len(steps) == len(actions), f"the solution of {task.id!r} ends before its last action")
            solved += 1
    if not solved:
        raise Skipped("the environment knows no solutions: its grader is not tested on a right answer")


def _wrong(context: EnvUnderTest) -> None:
    failed = 0
    for task in context.played:
        with context.open() as env:
            actions = env.wrong(task)
            if actions is None:
                continue
            _, verdict = played(env, task, actions, context.seed)
            require(verdict.success is False, f"the wrong answer to {task.id!r} counts as a success")
            worth = verdict.score
            require(worth is not None and worth < 1, f"the wrong answer to {task.id!r} scores {worth}")
            failed += 1
    if not failed:
        raise Skipped("the environment knows no wrong answers: its grader is not tested on one")


def _score_range(context: EnvUnderTest) -> None:
    for task in context.played:
        for actions in ((), context.walk(task)):
            with context.open() as env:
                _, verdict = played(env, task, actions, context.seed)
            in_range = verdict.score is None or 0 <= verdict.score <= 1
            require(in_range, f"task {task.id!r} has score {verdict.score}, not in [0, 1]")
            require(bool(actions) or not verdict.success, f"task {task.id!r} is solved before its first step")


def _close(context: EnvUnderTest) -> None:
    never_played = context.env_class(view=context.view, data=context.data)
    never_played.close()
    never_played.close()
    env = context.env_class(view=context.view, data=context.data)
    env.reset(context.played[0], seed=context.seed)
    env.close()
    env.close()


CHECKS = {
    "spec": _spec,
    "task lists: unique ids, right split": task_lists.lists,
    "splits share no instruction": task_lists.splits,
    "counts as in the spec": task_lists.counts,
    "same tasks in a fresh instance": task_lists.fresh_lists,
    "same tasks in another process": task_lists.other_process,
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
