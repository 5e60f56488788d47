"""`harness sweep`: the runs of a table's rows, side by side, and then the table."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.commands import options as opt

if TYPE_CHECKING:
    from harness.sweep import Job, Result, SweepEvent
    from harness.variants import Variant
    from reports.spec import TableSpec


@dataclass(frozen=True, slots=True)
class Cell:
    """One run of a sweep and the rows that it serves: rows with one configuration share it."""

    job: Job
    variants: tuple[Variant, ...]

    @property
    def label(self) -> str:
        """What progress and messages call it."""
        return f"{'/'.join(variant.row.key for variant in self.variants)} on {self.variants[0].env}"


def sweep(
    spec: Annotated[str, typer.Argument(metavar="SPEC", help="name of a table (harness list tables), or a YAML file")],
    seeds: Annotated[
        str | None, typer.Option("--seeds", metavar="N|A,B,C", help="of every row; the table's number by default")
    ] = None,
    scale: opt.ScaleName = "mini",
    rows: Annotated[str | None, typer.Option("--rows", metavar="NAME,NAME", help="only these rows")] = None,
    env: Annotated[
        list[str] | None, typer.Option("--env", help="only this environment of the table; repeatable")
    ] = None,
    model: opt.Models = None,
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, help="processes; one a core by default, one where there is a GPU")
    ] = None,
    allow_drift: Annotated[
        bool, typer.Option("--allow-drift", help="resume although code or packages differ; the rows are marked")
    ] = False,
    out: opt.Out = opt.DEFAULT_OUT,
    override: opt.Overrides = None,
    preset: opt.Presets = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="list the runs and what is missing, and stop")] = False,
) -> None:
    """Run the rows of a table.

    One run a configuration, all with the same seeds, in parallel; then the table is printed.
    The same command resumes. Each run is the one that `harness run` makes with the row's options.
    """
    from harness.commands.table import read_spec
    from harness.config import parse_seeds

    wanted = read_spec(spec)
    numbers = parse_seeds(str(wanted.seeds) if seeds is None else seeds)
    chosen_rows = _chosen("--rows", rows.split(",") if rows else [], [row.key for row in wanted.rows])
    chosen_envs = _chosen("--env", env or [], wanted.envs)
    cells = _cells(wanted, numbers, scale, model or [], preset or [], override or [], out)
    selected = [
        cell
        for cell in cells
        if any(variant.row.key in chosen_rows and variant.env in chosen_envs for variant in cell.variants)
    ]
    _tell_what_cannot_run(wanted, chosen_rows, chosen_envs, some=bool(selected))
    if dry_run:
        _print_plan(selected, out)
        return
    devices = [cell.job.plan.config.device for cell in selected]
    results = _execute(selected, out, workers or opt.default_workers(*devices), allow_drift)
    flags = _flags(scale, model or [], preset or [], override or [])
    _print_table(wanted, spec, cells, numbers, out, flags)
    if _print_failures(selected, results):
        raise typer.Exit(1)


def _chosen(option: str, given: Sequence[str], known: Sequence[str]) -> list[str]:
    from harness.errors import unknown

    for name in given:
        if name not in known:
            raise unknown(option, name, known)
    return list(given or known)


def _cells(
    spec: TableSpec, seeds: tuple[int, ...], scale: str, models: Sequence[str], presets: Sequence[str],
    overrides: Sequence[str], out: Path,
) -> list[Cell]:  # fmt: skip
    """The runs of all rows in all environments that can be played, rows with one digest together."""
    from functools import partial

    from harness import registry
    from harness.plan import Plan, make_plan
    from harness.sweep import Job
    from harness.variants import variants

    resolve = partial(
        opt.resolve, scale=scale, models=models, presets=presets, config_file=None, perturb=None, env_data=None,
        view=None, split=None, limit=None, tasks=None,
    )  # fmt: skip
    plans: dict[str, Plan] = {}
    served: dict[str, list[Variant]] = {}
    for variant in variants(spec, resolve, overrides):
        if variant.env not in registry.names("envs"):
            continue
        plan = make_plan(variant.config, seeds)
        plans.setdefault(plan.name, plan)
        served.setdefault(plan.name, []).append(variant)
    counted = ",".join(map(str, seeds))
    if seeds == tuple(range(len(seeds))):
        counted = str(len(seeds))
    cells = []
    for name, plan in plans.items():
        flags = _flags(scale, models, presets, served[name][0].overrides)
        place = [] if out == opt.DEFAULT_OUT else ["--out", str(out)]
        names = ["--method", plan.config.method, "--env", plan.config.env, "--seeds", counted]
        cells.append(Cell(Job(plan, ("harness", "run", *names, *flags, *place)), tuple(served[name])))
    return cells


def _flags(scale: str, models: Sequence[str], presets: Sequence[str], overrides: Sequence[str]) -> list[str]:
    """What `run` and `sweep` are told besides names and seeds."""
    flags = [] if scale == "mini" else ["--scale", scale]
    for option, values in (("--model", models), ("--preset", presets), ("-o", overrides)):
        for value in values:
            flags += [option, value]
    return flags


def _tell_what_cannot_run(spec: TableSpec, rows: Sequence[str], envs: Sequence[str], *, some: bool) -> None:
    """Rows and environments that the table names and that are not here.

    Raises:
        InputError: nothing is left to run.
    """
    from harness import registry
    from harness.errors import InputError

    methods = [row.method for row in spec.rows if row.key in rows and row.method not in registry.names("methods")]
    worlds = [env for env in envs if env not in registry.names("envs")]
    told = [
        *(f'method "{name}" is not here (harness list methods)' for name in dict.fromkeys(methods)),
        *(f'environment "{name}" cannot be played here (harness list envs)' for name in worlds),
    ]
    if not some:
        raise InputError(f"{spec.name} has nothing to run: {'; '.join(told)}")
    for text in told:
        print(f"left out: {text}")


def _print_plan(cells: Sequence[Cell], out: Path) -> None:
    from rich.table import Table

    from harness.commands.printing import console
    from harness.runner import unit_keys
    from harness.sweep import pending

    table = Table("rows", "run", "digest", "seeds missing", "episodes", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.columns[1].overflow = "fold"
    total = 0
    for cell in cells:
        plan = cell.job.plan
        units = pending(plan, out)
        seeds = list(dict.fromkeys(unit.seed for unit in units))
        episodes = sum(len(unit_keys(plan, unit)) for unit in units)
        total += episodes
        missing = ", ".join(map(str, seeds)) or "none"
        table.add_row(cell.label, plan.name, plan.digest, missing, str(episodes))
    screen = console()
    screen.print(table)
    screen.print(f"{len(cells)} runs, {total} evaluation episodes to play; alone, each is:")
    for cell in cells:
        screen.print(f"  {shlex.join(cell.job.argv)}", soft_wrap=True)


def _execute(cells: Sequence[Cell], out: Path, workers: int, allow_drift: bool) -> list[Result]:
    import sys

    from harness.progress import Progress
    from harness.sweep import Told
    from harness.sweep import sweep as sweep_runs

    labels = {cell.job.plan.name: cell.label for cell in cells}
    with Progress(sys.stdout) as progress:

        def listen(event: SweepEvent) -> None:
            label = labels[event.run]
            if isinstance(event, Told):
                progress.listen(event.event, label)
            elif event.seed is None:
                progress.say(f"{label} cannot begin: {event.message}")
            else:
                progress.drop(label, event.seed, event.message)

        return sweep_runs(
            [cell.job for cell in cells], out=out, workers=workers, allow_drift=allow_drift, listen=listen
        )


def _print_table(
    spec: TableSpec, source: str, cells: Sequence[Cell], seeds: tuple[int, ...], out: Path, flags: Sequence[str]
) -> None:
    """The table of all rows whose runs hold these seeds, those of earlier sweeps included."""
    from harness.commands.find import StoredRun
    from harness.commands.pick import Place, missing_remarks
    from harness.commands.table import as_rows, print_table
    from harness.errors import InputError
    from harness.manifest import Manifest
    from harness.runner import settled
    from results.store import RunFolder

    runs, placed, remarks = [], set[Place](), []
    for cell in cells:
        folder = RunFolder(out / cell.job.plan.name)
        if not folder.manifest.is_file():
            continue
        try:
            rows, missing = settled(cell.job.plan, folder)
        except InputError as error:
            remarks.append(f"{folder.path} is not shown: {error}.")
            continue
        if missing:
            remarks.append(f"{folder.path} is not shown: {missing} episodes of these seeds are missing.")
            continue
        stored = StoredRun(folder.path, Manifest.read(folder.manifest))
        last = [row for row in rows if row.iteration == cell.job.plan.evaluations[-1]]
        runs += [as_rows(stored, spec, variant.row.key, last) for variant in cell.variants]
        placed |= {variant.place for variant in cell.variants}
    remarks = [*missing_remarks(spec, source, placed, shlex.join(flags)), *remarks]
    try:
        print_table(spec, runs, remarks, "terminal")
    except InputError as error:
        print(f"the table cannot be printed: {error}")


def _print_failures(cells: Sequence[Cell], results: Sequence[Result]) -> bool:
    """What went wrong in which run; whether anything did."""
    from harness.commands.printing import console

    screen, wrong = console(), False
    for cell, result in zip(cells, results, strict=True):
        for failure in result.failures:
            seed = "" if failure.seed is None else f", seed {failure.seed}"
            screen.print(f"failed: {cell.label}{seed}: {failure.message}", soft_wrap=True)
        if result.without_verdict and not result.failures:
            screen.print(f"{cell.label}: {result.without_verdict} episodes have no verdict", soft_wrap=True)
        wrong |= bool(result.failures) or result.without_verdict > 0
    if wrong:
        screen.print("what was finished is kept, and the same command goes on")
    return wrong
