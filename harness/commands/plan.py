"""`harness plan`: what a run would do, and what of it is stored already."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from harness.commands import options as opt

if TYPE_CHECKING:
    from harness.config import RunConfig
    from harness.env import EnvSpec
    from harness.plan import Plan


def plan(
    env: opt.EnvName,
    method: opt.MethodName = "vanilla",
    seeds: opt.Seeds = "1",
    scale: opt.ScaleName = "mini",
    model: opt.Models = None,
    perturb: opt.Perturb = None,
    env_data: opt.EnvData = None,
    view: opt.ViewName = None,
    split: opt.SplitName = None,
    limit: opt.Limit = None,
    tasks: opt.Tasks = None,
    out: opt.Out = opt.DEFAULT_OUT,
    override: opt.Overrides = None,
    preset: opt.Presets = None,
    config: opt.ConfigFile = None,
) -> None:
    """Print what a run would do.

    For an environment that is known by its specification only, print that.
    """
    from harness import registry
    from harness.config import parse_seeds
    from harness.plan import make_plan

    wanted = parse_seeds(seeds)
    spec = registry.env_spec(env)
    if env not in registry.names("envs"):
        registry.load_method(method)
        print_spec(spec)
        return
    resolved = opt.resolve(
        method=method, env=env, scale=scale, models=model, overrides=override, presets=preset, config_file=config,
        perturb=perturb, env_data=env_data, view=view, split=split, limit=limit, tasks=tasks,
    )  # fmt: skip
    print_plan(make_plan(resolved, wanted), out)


def print_config(config: RunConfig) -> None:
    """The resolved configuration in full, as YAML; keys and tokens are masked."""
    import yaml

    from harness.redact import redact

    print("# configuration")
    print(redact(yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True)))


def print_plan(plan: Plan, out: Path) -> None:
    """Tasks, lanes, seeds, what is stored, digest."""
    from collections import Counter

    from harness.commands.printing import console
    from results.store import RunFolder, read_rows

    folder = RunFolder(out / plan.name)
    wanted = {task.id for task in plan.tasks}
    rows = read_rows(folder.rows) if folder.rows.is_file() else []
    stored = Counter(
        row.seed for row in rows if row.task in wanted and row.iteration in plan.evaluations and row.status.has_verdict
    )
    per_seed = len(plan.tasks) * len(plan.evaluations)
    screen = console()
    screen.print("# plan")
    screen.print(f"run          {plan.name}")
    screen.print(f"digest       {plan.digest}")
    screen.print(f"environment  {plan.config.env} version {plan.env_version}, data {plan.data_digest}")
    for role, identity in plan.identities.items():
        screen.print(f"model        {role}: {identity}", soft_wrap=True)
    screen.print(f"tasks        {len(plan.tasks)} {plan.config.split} tasks, list {plan.task_list}")
    lanes, lane = len(plan.lanes), plan.config.lane
    screen.print(f"lanes        {lanes} of at most {lane} episodes whose model calls share batches")
    screen.print(f"evaluations  after iteration {', '.join(map(str, plan.evaluations))}")
    for seed in plan.seeds:
        screen.print(f"seed {seed:<7} {stored[seed]} of {per_seed} episodes stored, {per_seed - stored[seed]} to play")
    screen.print(f"folder       {folder.path}", soft_wrap=True)


def print_spec(spec: EnvSpec) -> None:
    """What is known of an environment before its package or data are there; unknown counts are said to be."""
    from harness.commands.printing import console

    screen = console()
    screen.print(f"environment  {spec.name} version {spec.version} (specification only: it cannot be played yet)")
    screen.print(f"horizon      {spec.horizon} steps")
    screen.print(f"columns      {', '.join(spec.columns)}")
    for split, count in spec.counts.items():
        screen.print(f"{split:<12} {_count(count)} tasks")
    for subset, count in spec.subsets.items():
        screen.print(f"subset       {subset}: {_count(count)} test tasks")
    if spec.extra:
        screen.print(f"needs        pip install 'abstraction-bench[{spec.extra}]'")
    if spec.data:
        screen.print(f"data         {spec.data}", soft_wrap=True)


def _count(count: int | None) -> str:
    return "unknown number of" if count is None else str(count)
