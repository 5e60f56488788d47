"""How good a judge of its own steps the mini policy is (StraTA section 4.4), beside the scripted shopper.

    python -m benchmarks.judge --episodes 160 --seed 0
    python -m benchmarks.judge --weights runs/strata-webshop-.../checkpoints/seed-0/iteration-60

The policy follows a strategy of its own on training tasks and then lists the steps that neither followed it nor helped
(Eq. 16). The shopper that it was cloned from knows both: what the strategy would have done on that page, and whether
the step brought the goal nearer. A strategy that is no longer one of the shopper's plans is counted and left out.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from envs.webshop import expert
from envs.webshop.env import WebShop
from envs.webshop.progress import Progress
from harness import registry
from harness.arena import Arena, World
from harness.batching import Lane
from harness.config import resolve
from harness.executors.local import one_thread
from harness.model import Kit, ModelContext, TrainableModel
from harness.types import Task, Trajectory
from methods.strata.method import StraTA

LANE = 64


@dataclass(slots=True)
class Counts:
    """Steps by what is true of them and what the judge said; episodes that tell nothing."""

    wrong_flagged: int = 0
    wrong_passed: int = 0
    right_flagged: int = 0
    right_passed: int = 0
    unreadable: int = 0
    no_plan: int = 0

    def add(self, wrong: bool, flagged: bool) -> None:
        name = f"{'wrong' if wrong else 'right'}_{'flagged' if flagged else 'passed'}"
        setattr(self, name, getattr(self, name) + 1)

    @property
    def wrong(self) -> int:
        return self.wrong_flagged + self.wrong_passed

    @property
    def flagged(self) -> int:
        return self.wrong_flagged + self.right_flagged

    @property
    def steps(self) -> int:
        return self.wrong + self.right_flagged + self.right_passed

    def __str__(self) -> str:
        return "\n".join([
            f"steps      {self.steps}; wrong by the shopper {share(self.wrong, self.steps)}",
            f"flagged    {share(self.flagged, self.steps)} of the steps",
            f"precision  {share(self.wrong_flagged, self.flagged)} of the flagged steps are wrong",
            f"recall     {share(self.wrong_flagged, self.wrong)} of the wrong steps are flagged",
            f"left out   {self.unreadable} unreadable judgments, {self.no_plan} strategies that are no plan",
        ])  # fmt: skip


def share(part: int, whole: int) -> str:
    return f"{part / whole:.3f}" if whole else "none"


def count(judged: Sequence[tuple[Trajectory, frozenset[int] | None]]) -> Counts:
    """Compare judgments with the shopper's.

    Args:
        judged: trajectories in the compact view with the steps that were flagged, None where that cannot be read.
    """
    counts, env = Counts(), WebShop(view="compact")
    for trajectory, flagged in judged:
        if flagged is None:
            counts.unreadable += 1
            continue
        assert trajectory.strategy is not None, "StraTA follows a strategy"
        try:
            plan = expert.parse_plan(trajectory.strategy.text)
        except ValueError:
            counts.no_plan += 1
            continue
        env.reset(trajectory.task, seed=0)
        progress = Progress(env.world, env.goal)
        for step in trajectory.steps:
            if step.action is None:  # malformed: it touched nothing and is penalised as such
                continue
            before = env.page
            planned = expert.act(plan, before, env.goal, Random(0)).action
            env.step(step.action)
            counts.add(step.action != planned and not progress.forward(before, env.page), step.index in flagged)
    return counts


def play(model: TrainableModel, tasks: Sequence[Task], seed: int) -> list[tuple[Trajectory, frozenset[int] | None]]:
    """One training episode a task and its judgment, sampled as StraTA samples them."""
    config = resolve(method="strata", env="webshop", overrides=["diversity=false"])
    method = StraTA(config.method_config(), spec=WebShop.spec, view="compact", seed=seed)
    kit = Kit({"policy": model})
    method.setup(kit)
    world = World(WebShop.spec, lambda: WebShop(view="compact"), Lane(), kit, seed)
    found: list[tuple[Trajectory, frozenset[int] | None]] = []

    async def one(slot: int) -> None:
        arena = Arena(world, phase="train", iteration=1, slot=slot, sampling=method.sampling("train"))
        trajectory = await method.solve(arena.episodes(tasks[slot], 1, branch=(0,))[0])
        assert trajectory.strategy is not None, "StraTA follows a strategy"
        found.append((trajectory, (await method.judge(trajectory, trajectory.strategy, arena, 0))[1]))

    async def chunk(slots: Sequence[int]) -> None:
        await asyncio.gather(*(one(slot) for slot in slots))

    for start in range(0, len(tasks), LANE):
        world.lane.run(chunk(range(start, min(start + LANE, len(tasks)))))
    world.close()
    return found


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.judge", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--episodes", type=int, default=160)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--weights", type=Path, help="folder of a checkpoint; the shipped policy by default")
    options = parser.parse_args(argv)
    one_thread()
    model = registry.open_model("mini", ModelContext("webshop"))
    assert isinstance(model, TrainableModel), "the mini policy trains"
    if options.weights is not None:
        model.load(options.weights)
    judged = play(model, WebShop(view="compact").tasks("train")[: options.episodes], options.seed)
    print(f"episodes   {len(judged)}, solved {sum(trajectory.success for trajectory, _ in judged)}")
    print(count(judged))


if __name__ == "__main__":
    main()
