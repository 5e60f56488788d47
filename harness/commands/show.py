"""`harness show`: one stored run, from its configuration to how its episodes ended and how it learned."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.commands import options as opt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.commands.find import StoredRun
    from reports.curves import Curves


def show(
    run: Annotated[str, typer.Argument(help="folder of a run, its name in the store, or a method")],
    env: Annotated[str | None, typer.Option("--env", help="environment, where a method has runs on several")] = None,
    metrics: Annotated[
        str | None,
        typer.Option("--metrics", metavar="NAME,NAME", help="only the learning curves of these, seed by seed"),
    ] = None,
    csv: Annotated[
        bool, typer.Option("--csv", help="only the learning curves, as CSV: seed, iteration, metric, value")
    ] = False,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE", help="draw the learning curves: .svg, .png or .pdf (needs matplotlib)"),
    ] = None,
    out: opt.Out = opt.DEFAULT_OUT,
) -> None:
    """Print what is stored of a run.

    Configuration, results, how the episodes ended, tokens, and the learning curve of every metric.
    """
    from harness.commands.find import find_run
    from harness.errors import InputError
    from reports.curves import curves_csv, render_curves

    if csv and plot is not None:
        raise InputError("--csv and --plot are two forms of the learning curves; give one")
    found = find_run(run, out, env=env)
    curves = read_curves(found.path)
    if metrics is None and not csv and plot is None:
        _print_run(found)
        if curves.seeds:
            print(f"\n{render_curves(curves, curves.names)}", end="")
        return
    if not curves.seeds:
        raise InputError(
            f"{found.path.name} has no learning curve: {found.method} does not learn, or has not finished an iteration"
        )
    names = chosen_metrics(metrics, curves.names, found.path.name)
    if csv:
        print(curves_csv(curves, names), end="")
    elif plot is not None:
        _plot(curves, names, plot, found.path.name)
    else:
        print(f"{found.path.name}\n{render_curves(curves, names, by_seed=True)}", end="")


def read_curves(folder: Path) -> Curves:
    """Stored learning curves of a run's seeds, in the order of the seeds; those without an iteration are left out.

    Raises:
        InputError: a line that is no JSON.
    """
    from harness.checkpoint import SeedFolder, read_curve
    from harness.errors import InputError
    from reports.curves import Curves
    from results.store import RunFolder

    seeds = {}
    for path in sorted(RunFolder(folder).checkpoints.glob("seed-*"), key=lambda path: int(path.name.split("-")[1])):
        curve = SeedFolder(path).curve
        try:
            lines = read_curve(curve) if curve.is_file() else []
        except ValueError as error:
            raise InputError(f"{curve} holds a line that is no JSON ({error}); repair or remove that line") from error
        if lines:
            seeds[int(path.name.split("-")[1])] = lines
    return Curves(seeds)


def chosen_metrics(wanted: str | None, stored: Sequence[str], run: str) -> list[str]:
    """The metrics that `--metrics` names, or all.

    Raises:
        InputError: a name that the run has not stored.
    """
    from harness.errors import InputError, unknown
    from reports.curves import GROUPS

    if wanted is None:
        return list(stored)
    names = list(dict.fromkeys(part.strip() for part in wanted.split(",")))
    for name in names:
        if name in stored:
            continue
        if any(name in known for known in GROUPS.values()):
            raise InputError(f'--metrics "{name}" is not stored for {run}; stored: {", ".join(stored)}')
        raise unknown("--metrics", name, stored)
    return names


def _plot(curves: Curves, names: Sequence[str], path: Path, run: str) -> None:
    from harness.errors import InputError
    from reports.plots import plot_curves

    try:
        plot_curves(curves, names, path, title=run)
    except ImportError as error:
        raise InputError(
            f"--plot needs matplotlib ({error}); pip install 'abstraction-bench[plots]', or take --csv"
        ) from error
    except (OSError, ValueError) as error:
        raise InputError(f'--plot "{path}" cannot be drawn: {error}') from error
    print(f"{len(names)} metrics of {len(curves.seeds)} seeds drawn in {path}")


def _print_run(found: StoredRun) -> None:
    """Configuration and evaluations."""
    from harness.commands.printing import console, duration
    from harness.commands.summary import seed_table, summarise

    screen = console()
    screen.print(found.path.name, style="bold", soft_wrap=True)
    _print_manifest(found)
    rows = found.rows()
    metrics = _columns(found.env)
    for iteration in sorted({row.iteration for row in rows}):
        summary = summarise(rows, iteration=iteration)
        screen.print(f"\nevaluation after iteration {iteration}")
        screen.print(seed_table(summary, metrics))
        stops = ", ".join(f"{stop} {count}" for stop, count in summary.stops.items())
        screen.print(f"ended    {stops}", soft_wrap=True)
        screen.print(f"tokens   {summary.tokens_in:,} in, {summary.tokens_out:,} out")
        screen.print(f"episodes {duration(summary.seconds)} together")
        if summary.drifted:
            screen.print(f"drift    {summary.drifted} rows were made by another version (--allow-drift)")
    if not rows:
        screen.print("\nno episode is stored yet; the command above resumes the run")


def _columns(env: str) -> tuple[str, ...]:
    """Metrics of the environment; all of them when its plug-in is not installed here."""
    from harness import registry
    from harness.commands.summary import METRICS
    from harness.errors import InputError

    try:
        return registry.env_spec(env).columns
    except InputError:
        return METRICS


def _print_manifest(found: StoredRun) -> None:
    import yaml

    manifest = found.manifest
    print(f"made with: harness {' '.join(manifest.argv[1:])}")
    print(f"created {manifest.created}, code {manifest.code}, python {manifest.python}, {manifest.platform}")
    print("packages " + ", ".join(f"{name} {version}" for name, version in manifest.packages.items()))
    print(f"data {manifest.data_digest}, task list {manifest.task_list}, environment version {manifest.env_version}\n")
    print(yaml.safe_dump(manifest.config, sort_keys=False, allow_unicode=True).rstrip())
