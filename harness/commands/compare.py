"""`harness compare`: two stored runs under the design that their methods ask for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.commands import options as opt

if TYPE_CHECKING:
    from harness.commands.find import StoredRun
    from results.compare import Coupling
    from results.records import EpisodeRow


def compare(
    a: Annotated[str, typer.Option("--a", help="method, or folder of a run; NAME@N compares it after iteration N")],
    b: Annotated[str, typer.Option("--b", help="likewise; --a grpo --b grpo@0 is a method against its own start")],
    env: Annotated[str | None, typer.Option("--env", help="environment; those of the folders by default")] = None,
    metric: Annotated[list[str] | None, typer.Option("--metric", help="success by default; repeatable")] = None,
    design: Annotated[
        str | None, typer.Option("--design", metavar="tasks|crossed|pigeonhole", help="chosen by the methods")
    ] = None,
    test: Annotated[str | None, typer.Option("--test", help="shift2, shift1, inversion, signflip, t, mcnemar")] = None,
    resamples: Annotated[int, typer.Option("--resamples", min=1, help="bootstrap resamples")] = 10_000,
    exclude_incomplete: Annotated[
        bool, typer.Option("--exclude-incomplete", help="drop tasks without a verdict on either side, and list them")
    ] = False,
    out: opt.Out = opt.DEFAULT_OUT,
) -> None:
    """Compare two stored runs.

    Prints difference (a - b), interval, p, Holm's p, design, test, tasks, seeds and discordant pairs.
    """
    from harness.commands.summary import METRICS
    from harness.errors import InputError, unknown
    from reports.compare import render_comparison
    from results.compare import compare_runs
    from results.statistics.comparison import VALID_TESTS

    for name in metric or ():
        if name not in METRICS:
            raise unknown("--metric", name, METRICS)
    tests = sorted({test for tests in VALID_TESTS.values() for test in tests})
    for option, value, known in (("--design", design, list(VALID_TESTS)), ("--test", test, tests)):
        if value is not None and value not in known:
            raise unknown(option, value, known)
    (first, rows_a), (second, rows_b) = (_named(name, out, env) for name in (a, b))
    if first.path.resolve() == second.path.resolve() and rows_a[0].iteration == rows_b[0].iteration:
        raise InputError(
            f'--a "{a}" and --b "{b}" are the same rows: {_name(first.path)} after iteration {rows_a[0].iteration}; '
            "name another run, or another iteration of this one: NAME@N (NAME@0 is its start)"
        )
    try:
        found = compare_runs(
            rows_a,
            rows_b,
            coupling_a=coupling_of(first.method),
            coupling_b=coupling_of(second.method),
            metrics=tuple(metric or ("success",)),
            design=design,  # type: ignore[arg-type]  # checked above
            test=test,  # type: ignore[arg-type]
            resamples=resamples,
            exclude_incomplete=exclude_incomplete,
        )
    except ValueError as error:
        raise InputError(f"{_name(first.path)} and {_name(second.path)} cannot be compared: {error}") from error
    print(render_comparison(*_labels(a, b, first.path, second.path), found))


def _named(name: str, out: Path, env: str | None) -> tuple[StoredRun, list[EpisodeRow]]:
    """A run and its rows after the iteration that "NAME@N" names, or after the last that was planned."""
    from harness.commands.find import find_run

    plain, at, number = name.rpartition("@")
    if not at or not number.isdigit():
        run = find_run(name, out, env=env)
        return run, run.rows_at(run.last_iteration)
    run = find_run(plain, out, env=env)
    return run, run.rows_at(int(number))


def coupling_of(method: str) -> Coupling:
    """What one seed of a method is, as its class declares it."""
    from harness import registry

    return registry.load_method(method).coupling


def _name(path: Path) -> str:
    return path.name or str(path)


def _labels(a: str, b: str, first: Path, second: Path) -> tuple[str, str]:
    """What the user called them, unless that is a path."""
    return (a if "/" not in a else _name(first)), (b if "/" not in b else _name(second))
