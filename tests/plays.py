"""Episodes, arenas and trajectories on the toy corridor, for tests of what stands between methods and models."""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Executor
from typing import Any, TypeVar

from harness.arena import Arena, Phase, World
from harness.batching import Lane
from harness.env import Env
from harness.episode import Episode
from harness.model import Kit, Model, Prompt, Sampling
from harness.prompts import parse_action
from harness.types import (
    Completion,
    Key,
    Observation,
    Status,
    Step,
    StopReason,
    Strategy,
    Task,
    Trajectory,
    Turn,
    Usage,
    Verdict,
)
from tests.toys import ToyEnv, ToyModel

T = TypeVar("T")
SAMPLING = Sampling(max_tokens=40)


def task(start: int = 0, goal: int = 2) -> Task:
    """Walk from one cell to another."""
    return Task("toy", f"train-{start}-{goal}", "train", f"Walk from cell {start} to cell {goal} and stop.",
                payload=(start, goal))  # fmt: skip


def world(
    model: Model | None = None,
    *,
    env: Callable[[], Env] = ToyEnv,
    seed: int = 0,
    executor: Executor | None = None,
    kit: Kit | None = None,
) -> World:
    """A world of the toy corridor, whose every role is one model."""
    return World(ToyEnv.spec, env, Lane(), kit or Kit({"policy": model or ToyModel()}), seed, executor)


def arena(world: World, *, phase: Phase = "train", iteration: int = 1, slot: int = 0) -> Arena:
    return Arena(world, phase=phase, iteration=iteration, slot=slot, sampling=SAMPLING)


def episode(
    world: World, *, phase: Phase = "train", horizon: int | None = None, start: int = 0, goal: int = 2
) -> Episode:
    """One episode of an arena of its own."""
    return arena(world, phase=phase).episodes(task(start, goal), 1, horizon=horizon)[0]


def play(world: World, *coroutines: Coroutine[Any, Any, T]) -> list[T]:
    """Run coroutines in the world's lane, side by side; the first error is raised."""

    async def main() -> list[T]:
        results = await world.lane.gather(coroutines)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return [result for result in results if not isinstance(result, BaseException)]

    try:
        return world.lane.run(main())
    finally:
        world.close()


async def walk(episode: Episode) -> Trajectory:
    """Ask and step until the episode is over."""
    while not episode.over:
        reply = await episode.ask(Prompt.user(episode.observation.text))
        await episode.step(parse_action(reply) or (reply if reply in ("left", "right", "stop") else None))
    return await episode.close()


def best(prompt: str) -> str:
    """The right word for the last position that a prompt names."""
    cell, goal = map(int, re.findall(r"at cell (\d+)\. The goal is cell (\d+)", prompt)[-1])
    return "stop" if cell == goal else "right" if goal > cell else "left"


def completion(ids: Sequence[int] = (5, 1), text: str = "reply", logprob: float = -0.5) -> Completion:
    return Completion(text, tuple(ids), (logprob,) * len(ids), "stop", prompt_ids=(7, 8), usage=Usage(1, 2, len(ids)))


def trajectory(
    rollout: int,
    *,
    success: bool = False,
    malformed: Sequence[bool] = (False,),
    lengths: Sequence[int] | None = None,
    limit: int = 40,
    horizon: int = 7,
    strategy: Strategy | None = None,
    extra: Sequence[Turn] = (),
    trainable: bool = True,
) -> Trajectory:
    """A made-up trajectory: one action turn a step, with responses of the given lengths in tokens.

    Args:
        rollout: its number, which stands in its key and in its token ids.
        success: of the verdict.
        malformed: one entry a step.
        lengths: tokens of each response; 2 by default.
        limit: token limit of the responses.
        horizon: of the episode.
        strategy: that it followed.
        extra: further turns, put in front.
        trainable: of the action turns.
    """
    key: Key = ("train", 1, 0, "t", strategy.index if strategy else -1, rollout)
    seen = Observation("seen", anchor="bare")
    steps = [
        Step(i, None if bad else "left", seen, "corridor", f"state {i}", 0.0, not bad)
        for i, bad in enumerate(malformed, 1)
    ]
    turns = [
        Turn("policy", "action", completion([100 * rollout + i] * (length - 1) + [1]), trainable, limit, (i,))
        for i, length in enumerate(lengths or [2] * len(steps), 1)
    ]
    stop = StopReason.SUCCESS if success else StopReason.HORIZON
    verdict = Verdict(Status.OK, success, float(success))
    return Trajectory(
        task(), key, 0, horizon, seen, steps, [*extra, *turns], stop, verdict, Usage(len(turns)), strategy
    )
