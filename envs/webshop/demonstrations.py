"""Demonstrations: episodes of the scripted shopper on training goals, for behaviour cloning.

They hold plans of every quality, followed with slips, and know of each step whether it followed the plan and whether it
brought the task forward. How they become prompts and responses is for whoever trains on them.
"""

from __future__ import annotations

from collections.abc import Sequence

from envs.webshop import expert
from envs.webshop.env import WebShop
from envs.webshop.progress import Progress
from harness.demonstration import Demonstration, DemonstrationStep
from harness.seeding import python_random
from harness.types import Task


def demonstrations(
    n: int, seed: int, noise: float, *, plans: Sequence[expert.Plan] = expert.PLANS
) -> list[Demonstration]:
    """Play episodes on the embedded training goals.

    Args:
        n: number of episodes; goals are walked without replacement in a seeded order, again when all are used.
        seed: of goals, plans and slips.
        noise: probability of a slip at each step, from 0 to 1.
        plans: to draw from, uniformly; name one several times to see it more often.

    Raises:
        ValueError: noise outside [0, 1], or no plans.
    """
    if not 0 <= noise <= 1:
        raise ValueError(f"noise is a probability from 0 to 1, got {noise}")
    if not plans:
        raise ValueError("demonstrations need at least one plan, got none; leave plans out for all of them")
    env = WebShop(view="compact")
    goals = env.tasks("train")
    order = python_random("webshop-demonstrations", seed).sample(range(len(goals)), len(goals))
    return [_play(env, goals[order[i % len(order)]], plans, (seed, i), noise) for i in range(n)]


def _play(env: WebShop, task: Task, plans: Sequence[expert.Plan], seed: tuple[int, int], noise: float) -> Demonstration:
    rng = python_random("webshop-demonstration", *seed)
    plan = rng.choice(plans)
    observation = env.reset(task, seed=0)
    progress = Progress(env.world, env.goal)
    steps: list[DemonstrationStep] = []
    while len(steps) < env.spec.horizon and env.page.kind != "done":
        before = env.page
        move = expert.act(plan, before, env.goal, rng, noise)
        result = env.step(move.action)
        forward = progress.forward(before, env.page)
        steps.append(DemonstrationStep(observation, move.action, move.thought, move.follows_plan, forward))
        observation = result.observation
    return Demonstration(task, expert.plan_text(plan), tuple(steps), env.verdict())
