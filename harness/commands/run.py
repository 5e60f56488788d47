"""`harness run`: make rows, or finish those that are missing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.commands import options as opt

if TYPE_CHECKING:
    from harness.plan import Plan
    from harness.runner import RunSummary


def run(
    method: opt.MethodName,
    env: opt.EnvName,
    seeds: opt.Seeds = "1",
    scale: opt.ScaleName = "mini",
    model: opt.Models = None,
    perturb: opt.Perturb = None,
    executor: Annotated[str, typer.Option("--executor", metavar="local", help="where the workers run")] = "local",
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, help="processes; one a core by default, one where there is a GPU")
    ] = None,
    env_data: opt.EnvData = None,
    view: opt.ViewName = None,
    metric: Annotated[
        list[str] | None, typer.Option("--metric", help="in the summary; the environment's by default; repeatable")
    ] = None,
    split: opt.SplitName = None,
    limit: opt.Limit = None,
    tasks: opt.Tasks = None,
    allow_drift: Annotated[
        bool, typer.Option("--allow-drift", help="resume although code or packages differ; the rows are marked")
    ] = False,
    out: opt.Out = opt.DEFAULT_OUT,
    override: opt.Overrides = None,
    preset: opt.Presets = None,
    config: opt.ConfigFile = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="print configuration and plan, and stop")] = False,
) -> None:
    """Train and evaluate a method.

    The same command resumes an interrupted run; added seeds extend it.
    """
    from harness import registry
    from harness.commands.plan import print_config, print_plan
    from harness.config import parse_seeds
    from harness.plan import make_plan

    _check_executor(executor)
    wanted = parse_seeds(seeds)
    registry.load_env(env)  # that it cannot be played yet is said before what else does not fit it
    resolved = opt.resolve(
        method=method, env=env, scale=scale, models=model, overrides=override, presets=preset, config_file=config,
        perturb=perturb, env_data=env_data, view=view, split=split, limit=limit, tasks=tasks,
    )  # fmt: skip
    metrics = _metrics(metric, env)
    plan = make_plan(resolved, wanted)
    if dry_run:
        print_config(resolved)
        print_plan(plan, out)
        return
    without_verdict = _execute(plan, out, workers or opt.default_workers(resolved.device), allow_drift, metrics)
    if without_verdict:
        raise typer.Exit(1)


def _execute(plan: Plan, out: Path, workers: int, allow_drift: bool, metrics: tuple[str, ...]) -> int:
    """Run a plan under a progress display, print the summary, and return how many episodes have no verdict."""
    import sys

    from harness.progress import Progress
    from harness.runner import run as run_plan

    with Progress(sys.stdout) as progress:
        done = run_plan(plan, out=out, workers=workers, allow_drift=allow_drift, listen=progress.listen)
    _print_summary(plan, done, metrics)
    return done.without_verdict


def _print_summary(plan: Plan, done: RunSummary, metrics: tuple[str, ...]) -> None:
    from harness.commands.printing import console, duration
    from harness.commands.summary import seed_table, summarise

    summary = summarise(done.rows, iteration=plan.evaluations[-1])
    screen = console()
    screen.print(f"\n{plan.config.method} on {plan.config.env}, {plan.config.scale} scale, {len(plan.tasks)} tasks")
    screen.print(seed_table(summary, metrics))
    screen.print(f"tokens   {summary.tokens_in:,} in, {summary.tokens_out:,} out (evaluation)")
    screen.print(f"time     {duration(done.seconds)}")
    screen.print(f"folder   {done.run_dir}", soft_wrap=True)
    if done.without_verdict:
        screen.print(
            f"{done.without_verdict} episodes have no verdict and are in no mean; the same command tries them again",
            soft_wrap=True,
        )
    if summary.drifted:
        screen.print(f"{summary.drifted} rows were made by another version than the manifest's (--allow-drift)")


def _check_executor(name: str) -> None:
    from harness.errors import InputError, unknown

    if name in ("ray", "slurm"):
        raise InputError(f"--executor {name} does not exist yet; workers run on this machine: --executor local")
    if name != "local":
        raise unknown("--executor", name, ("local",))


def _metrics(given: list[str] | None, env: str) -> tuple[str, ...]:
    from harness import registry
    from harness.commands.summary import METRICS
    from harness.errors import unknown

    for name in given or ():
        if name not in METRICS:
            raise unknown("--metric", name, METRICS)
    return tuple(given or registry.env_spec(env).columns)
