"""Rollout speed: the harness's loop beside the usual lock-step loop over `transformers.generate`.

    python -m benchmarks.rollout --model mini --episodes 64 --tasks 8 --threads 1 --repeats 3 --seed 0

Both loops play the same tasks with the same weights, prompts, environments, sampling options and number of threads,
and take turns in one process. What the lock-step loop is and how it pads stands in `benchmarks.lock_step`.

Tokens are counted as they go through the network, padding and finished rows included (computed), and as they belong to
a trajectory (used). A prompt that several requests share is used by each and computed once, so that the harness's
prefill can compute less than is used.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any

import numpy as np
import torch

from benchmarks.lock_step import LockStep
from harness import registry
from harness.arena import Arena, World
from harness.batching import Lane
from harness.config import resolve
from harness.env import Env
from harness.episode import Episode
from harness.method import Method
from harness.model import Kit, Model, Request, Sampling, UnsupportedOption
from harness.models.decoding import Counters
from harness.models.embedders import get_embedder
from harness.models.transformers import TransformersModel
from harness.seeding import derive, generator
from harness.types import Completion, Task, Trajectory, Usage

ENV = "webshop"
WARM_UP = -1


@dataclass(frozen=True, slots=True)
class Setting:
    """What both loops play.

    Attributes:
        method: acts step by step and has `prompts.act(episode)`.
        env_factory: opens one world.
        tasks: T different tasks.
        rollouts: episodes of each task.
        seed: of the run.
    """

    model: TransformersModel
    method: Method
    env_factory: Callable[[], Env]
    tasks: Sequence[Task]
    rollouts: int
    seed: int

    @property
    def sampling(self) -> Sampling:
        return self.method.sampling("train")

    @contextmanager
    def world(self, lane: Lane) -> Iterator[World]:
        world = World(self.method.spec, self.env_factory, lane, Kit({"policy": self.model}), self.seed)
        try:
            yield world
        finally:
            world.close()

    def episodes(self, world: World, repeat: int) -> list[Episode]:
        """Fresh episodes of all tasks; equal repeats have equal environment and sampling seeds."""
        arenas = [
            Arena(world, phase="train", iteration=repeat, slot=slot, sampling=self.sampling)
            for slot in range(len(self.tasks))
        ]
        return [
            episode
            for arena, task in zip(arenas, self.tasks, strict=True)
            for episode in arena.episodes(task, self.rollouts)
        ]


@dataclass(frozen=True, slots=True)
class Played:
    """One loop's run over all episodes.

    Attributes:
        trajectories: in the order of `Setting.episodes`.
        tokens: computed and used.
        replies: responses that belong to a trajectory.
        response_tokens: sampled tokens of these, the end of sequence included.
        seconds: by the clock, worlds opened and closed.
        cpu_seconds: of this process; other programs on the machine move it less.
    """

    trajectories: Sequence[Trajectory]
    tokens: Counters
    replies: int
    response_tokens: int
    seconds: float
    cpu_seconds: float

    @property
    def steps(self) -> int:
        return sum(len(trajectory.steps) for trajectory in self.trajectories)


def play_harness(setting: Setting, repeat: int) -> Played:
    """The harness's loop: each episode is a coroutine, a lane batches what waits."""
    before = Counters(**_numbers(setting.model.counters))
    started, cpu = time.perf_counter(), time.process_time()
    with setting.world(lane := Lane()) as world:
        coroutines = [setting.method.solve(episode) for episode in setting.episodes(world, repeat)]
        trajectories = _raised(lane.run(lane.gather(coroutines)))
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu
    return Played(
        trajectories=trajectories,
        tokens=_difference(setting.model.counters, before),
        replies=sum(trajectory.usage.calls for trajectory in trajectories),
        response_tokens=sum(trajectory.usage.tokens_out for trajectory in trajectories),
        seconds=seconds,
        cpu_seconds=cpu_seconds,
    )


def play_lock_step(setting: Setting, repeat: int) -> Played:
    """The lock-step loop, with torch's generator seeded and put back afterwards."""
    device = setting.model.device
    peer = LockStep(setting.model, setting.method.prompts.act, setting.sampling)  # type: ignore[attr-defined]
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(derive(setting.seed, "lock-step", repeat))
        started, cpu = time.perf_counter(), time.process_time()
        with setting.world(lane := Lane()) as world:
            trajectories = lane.run(peer.play(setting.episodes(world, repeat)))
        seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu
    return Played(trajectories, peer.tokens, peer.replies, peer.response_tokens, seconds, cpu_seconds)


# -- StraTA's exploration ---------------------------------------------------------------------------------------


class CountingLane(Lane):
    """A lane that keeps the usage of each kind of request."""

    def __init__(self) -> None:
        super().__init__()
        self.usage: dict[str, Usage] = defaultdict(Usage)

    async def ask(self, model: Model, request: Request) -> Completion:
        completion = await super().ask(model, request)
        self.usage[request.prompt.kind] += completion.usage
        return completion


@dataclass(frozen=True, slots=True)
class Explored:
    """One exploration of all tasks: usage by kind of request, tokens through the network, steps, and time."""

    usage: dict[str, Usage]
    tokens: Counters
    steps: int
    seconds: float


def explore(setting: Setting, repeat: int) -> Explored:
    """The harness's loop over a method's `explore`, all tasks in one lane."""
    before = Counters(**_numbers(setting.model.counters))
    started = time.perf_counter()
    with setting.world(lane := CountingLane()) as world:
        arenas = [
            Arena(world, phase="train", iteration=repeat, slot=slot, sampling=setting.sampling)
            for slot in range(len(setting.tasks))
        ]
        pairs = zip(setting.tasks, arenas, strict=True)
        _raised(lane.run(lane.gather([setting.method.explore(task, arena) for task, arena in pairs])))
        steps = sum(episode.steps for episode in world.opened)
    seconds = time.perf_counter() - started
    return Explored(dict(lane.usage), _difference(setting.model.counters, before), steps, seconds)


# -- measuring and printing -------------------------------------------------------------------------------------


def measure(setting: Setting, repeats: int) -> list[tuple[Played, Played]]:
    """(harness, lock-step) for each repeat, in turns, after one round of both that is not counted."""
    play_harness(setting, WARM_UP)
    play_lock_step(setting, WARM_UP)
    return [(play_harness(setting, repeat), play_lock_step(setting, repeat)) for repeat in range(repeats)]


def difference(
    pairs: Sequence[tuple[Played, Played]], value: Callable[[Trajectory], float]
) -> tuple[float, float]:
    """Difference of a trajectory's mean value (harness - lock-step) and its standard error, given the tasks.

    Both loops play the same tasks, so only sampling makes them differ: variances are added within each task.
    """
    values: tuple[dict[str, list[float]], ...] = (defaultdict(list), defaultdict(list))
    for pair in pairs:
        for played, by_task in zip(pair, values, strict=True):
            for trajectory in played.trajectories:
                by_task[trajectory.task.id].append(float(value(trajectory)))
    ours, peers = values
    differences = [np.mean(ours[task]) - np.mean(peers[task]) for task in ours]
    variances = [np.var(one[task]) / len(one[task]) for one in values for task in ours]
    return float(np.mean(differences)), float(np.sqrt(np.sum(variances)) / len(ours))


def table(pairs: Sequence[tuple[Played, Played]]) -> str:
    """Medians over the repeats; ratios are taken within a repeat, and their range is shown."""
    lines = [f"{'':30}{'harness':>18}{'lock-step':>18}{'harness / lock-step':>26}"]

    def row(name: str, value: Callable[[Played], float], shape: str = ",.0f") -> None:
        sides = [np.median([value(pair[side]) for pair in pairs]) for side in (0, 1)]
        ratios = [value(ours) / value(peer) for ours, peer in pairs if value(peer)]
        spread = f"{np.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})" if ratios else "-"
        lines.append(f"{name:30}{sides[0]:>18{shape}}{sides[1]:>18{shape}}{spread:>26}")

    def shares(name: str, computed: Callable[[Played], int], used: Callable[[Played], int]) -> None:
        row(f"{name} tokens computed", computed)
        row(f"{name} tokens used", used)
        row(f"{name} computed / used", lambda played: computed(played) / max(1, used(played)), ".2f")

    row("env steps/s", lambda played: played.steps / played.seconds)
    row("response tokens/s, used", lambda played: played.response_tokens / played.seconds)
    row("wall s", lambda played: played.seconds, ".2f")
    row("env steps/s of cpu time", lambda played: played.steps / played.cpu_seconds)
    shares("prefill", lambda played: played.tokens.prefill_computed, lambda played: played.tokens.prefill_used)
    shares("decode", lambda played: played.tokens.decode_computed, lambda played: played.tokens.decode_used)
    row("steps per episode", lambda played: played.steps / len(played.trajectories), ".2f")
    row("tokens per reply", lambda played: played.response_tokens / played.replies, ".2f")
    for name in ("success", "score"):
        value = attrgetter(name)
        means = [np.mean([value(t) for pair in pairs for t in pair[side].trajectories]) for side in (0, 1)]
        gap, error = difference(pairs, value)
        verdict = "the same within two standard errors" if abs(gap) <= 2 * error else "NOT the same"
        lines.append(
            f"{name}, mean of all repeats: harness {means[0]:.3f}, lock-step {means[1]:.3f}, "
            f"difference {gap:+.3f} with standard error {error:.3f}: {verdict}"
        )
    return "\n".join(lines)


def explored_table(explored: Explored) -> str:
    """Share of prompt tokens that were not computed again, by kind of request."""
    lines = [f"{'':30}{'requests':>10}{'prompt tokens':>16}{'cached':>10}{'share':>8}{'response tokens':>18}"]
    total = sum(explored.usage.values(), Usage())
    for kind, usage in [*sorted(explored.usage.items()), ("all", total)]:
        share = usage.tokens_cached / max(1, usage.tokens_in)
        lines.append(
            f"{kind:30}{usage.calls:>10,}{usage.tokens_in:>16,}{usage.tokens_cached:>10,}{share:>8.1%}{usage.tokens_out:>18,}"
        )
    tokens = explored.tokens
    lines.append(
        f"prefill computed / used: {tokens.prefill_computed / max(1, tokens.prefill_used):.2f}; "
        f"decode: {tokens.decode_computed / max(1, tokens.decode_used):.2f}; "
        f"env steps/s: {explored.steps / explored.seconds:,.0f}; wall s: {explored.seconds:.2f}"
    )
    return "\n".join(lines)


def _raised(results: Sequence[Any]) -> list[Any]:
    """Results of a gather; a failed episode would make the loops incomparable, so any error is raised."""
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return list(results)


def _numbers(counters: Counters) -> dict[str, int]:
    return {field.name: getattr(counters, field.name) for field in fields(counters)}


def _difference(after: Counters, before: Counters) -> Counters:
    start = _numbers(before)
    return Counters(**{name: value - start[name] for name, value in _numbers(after).items()})


# -- command line -----------------------------------------------------------------------------------------------


def open_setting(method: str, model: TransformersModel, name: str, *, tasks: int, rollouts: int, seed: int) -> Setting:
    """A method with the mini preset's options on seeded train tasks.

    Args:
        method: registered name.
        model: opened.
        name: its specification, "mini" or "mini:FOLDER".
        tasks: number of tasks.
        rollouts: episodes of each.
        seed: of tasks and sampling.

    Raises:
        ValueError: fewer train tasks than asked for.
    """
    config = resolve(method=method, env=ENV, models={"policy": name})
    env_class = registry.load_env(ENV)
    known = env_class(view=config.view).tasks("train")
    if tasks > len(known):
        raise ValueError(f"--tasks {tasks}: {ENV} has {len(known)} train tasks")
    drawn = generator(seed, "benchmark tasks").permutation(len(known))[:tasks]
    options = config.method_config()
    made = registry.load_method(method)(options, spec=env_class.spec, view=config.view, seed=seed)
    made.setup(Kit({"policy": model}, get_embedder(config.embedder) if made.needs_embedder(options) else None))
    return Setting(model, made, lambda: env_class(view=config.view), [known[int(i)] for i in drawn], rollouts, seed)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print both sections."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rollout", description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="mini", help="mini (the shipped policy), mini:FOLDER or transformers:ID")
    parser.add_argument("--episodes", type=int, default=64, help="episodes at once, a multiple of --tasks (64)")
    parser.add_argument("--tasks", type=int, default=8, help="different tasks among them (8)")
    parser.add_argument("--threads", type=int, default=1, help="torch threads of both loops (1)")
    parser.add_argument("--repeats", type=int, default=3, help="rounds of both loops (3)")
    parser.add_argument("--seed", type=int, default=0, help="of tasks, environments and sampling (0)")
    args = parser.parse_args(arguments)
    for name in ("episodes", "tasks", "threads", "repeats"):
        if getattr(args, name) < 1:
            parser.error(f"--{name} must be at least 1, got {getattr(args, name)}")
    if args.episodes % args.tasks:
        parser.error(f"--episodes {args.episodes} is no multiple of --tasks {args.tasks}: each task gets as many")
    torch.set_num_threads(args.threads)
    model = registry.open_model(args.model, registry.ModelContext(ENV))
    if not isinstance(model, TransformersModel):
        raise UnsupportedOption(
            f"--model {args.model} is of back end {model.backend!r}; both loops need the network in this process: "
            "mini, mini:FOLDER or transformers:ID"
        )
    setting = open_setting(
        "grpo", model, args.model, tasks=args.tasks, rollouts=args.episodes // args.tasks, seed=args.seed
    )
    sampling = setting.sampling
    print(
        f"{args.model} ({sum(p.numel() for p in model.network.parameters()):,} parameters) on {ENV}, "
        f"view {setting.method.view}: {args.episodes} episodes of {args.tasks} tasks, "
        f"horizon {setting.method.spec.horizon}, temperature {sampling.temperature:g}, "
        f"at most {sampling.max_tokens} tokens a reply, {args.threads} thread(s), "
        f"seed {args.seed}, {args.repeats} repeats (medians)\n"
        "lock-step: left padding to the longest prompt of the batch; finished episodes keep generating\n"
    )
    print(table(measure(setting, args.repeats)))
    strata = open_setting("strata", model, args.model, tasks=args.tasks, rollouts=1, seed=args.seed)
    explore(strata, WARM_UP)
    print(f"\nStraTA's exploration of the {args.tasks} tasks, harness only (mini preset)\n")
    print(explored_table(explore(strata, 0)))


if __name__ == "__main__":
    main()
