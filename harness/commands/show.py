"""`harness show`: one stored run, from its configuration to how its episodes ended."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.commands import options as opt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.commands.find import StoredRun

_BARS = "▁▂▃▄▅▆▇█"
_LINES = 12
"""Iterations of a learning curve that are printed; the sparkline shows all of them."""


def show(
    run: Annotated[str, typer.Argument(help="folder of a run, its name in the store, or a method")],
    env: Annotated[str | None, typer.Option("--env", help="environment, where a method has runs on several")] = None,
    out: opt.Out = opt.DEFAULT_OUT,
) -> None:
    """Print what is stored of a run.

    Configuration, results, how the episodes ended, tokens, learning curves.
    """
    from harness.commands.find import find_run
    from harness.commands.printing import console, duration
    from harness.commands.summary import seed_table, summarise

    found = find_run(run, out, env=env)
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
    _print_curves(found.path)


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


def _print_curves(folder: Path) -> None:
    from harness.checkpoint import SeedFolder, read_curve
    from harness.commands.printing import console
    from results.store import RunFolder

    screen = console()
    for path in sorted(RunFolder(folder).checkpoints.glob("seed-*"), key=lambda path: int(path.name.split("-")[1])):
        curve = SeedFolder(path).curve
        lines = read_curve(curve) if curve.is_file() else []
        if lines:
            screen.print(f"\nlearning curve of seed {path.name.split('-')[1]}, {len(lines)} iterations")
            shown = [name for name in ("success", "score", "reward") if name in lines[0]] or _numbers(lines[0])[:3]
            for name in shown:
                values = [float(line.get(name, 0.0)) for line in lines]
                screen.print(f"{name:<12} {sparkline(values)}  {values[0]:.3f} -> {values[-1]:.3f}", soft_wrap=True)
            screen.print(_curve_table(lines, shown))


def _curve_table(lines: Sequence[dict[str, Any]], names: Sequence[str]) -> Any:
    from rich.table import Table

    table = Table("iteration", *names, "tokens out", "seconds")
    step = max(1, -(-len(lines) // _LINES))
    chosen = [line for place, line in enumerate(lines) if place % step == 0 or place == len(lines) - 1]
    for line in chosen:
        tokens = f"{int(line['tokens_out']):,}" if "tokens_out" in line else "-"
        values = [f"{float(line[name]):.3f}" if name in line else "-" for name in names]
        table.add_row(str(line["iteration"]), *values, tokens, f"{line['seconds']:.1f}")
    return table


def _numbers(line: dict[str, Any]) -> list[str]:
    return [name for name, value in line.items() if isinstance(value, float) and name != "seconds"]


def sparkline(values: Sequence[float], *, width: int = 60) -> str:
    """A curve in one line of text, averaged into at most `width` bars between its lowest and highest value."""
    if not values:
        return ""
    bins = min(width, len(values))
    edges = [round(k * len(values) / bins) for k in range(bins + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]
    low, high = min(means), max(means)
    span = high - low
    return "".join(_BARS[round((value - low) / span * (len(_BARS) - 1)) if span else 0] for value in means)
