"""`harness table`: measured beside published, for one table of a paper."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from harness.commands import options as opt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.commands.find import StoredRun
    from reports.spec import TableSpec
    from reports.tables import RunRows
    from results.records import EpisodeRow

SCALES = ("mini", "paper")


def table(
    spec: Annotated[str, typer.Argument(metavar="SPEC", help="name of a table (harness list tables), or a YAML file")],
    latex: Annotated[bool, typer.Option("--latex", help="as LaTeX (booktabs)")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="as Markdown")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="as CSV, one line a number, unrounded")] = False,
    run: Annotated[
        list[str] | None,
        typer.Option("--a", metavar="NAME|FOLDER", help="run of a row; what is stored by default; repeatable"),
    ] = None,
    scale: Annotated[
        str | None, typer.Option("--scale", metavar="mini|paper", help="of the runs, where both are stored")
    ] = None,
    override: Annotated[
        list[str] | None,
        typer.Option("-o", metavar="KEY=VALUE", help="option that the rows' runs were made with; repeatable"),
    ] = None,
    preset: Annotated[
        list[str] | None,
        typer.Option("--preset", metavar="NAME|FILE", help="that the rows' runs were made with; repeatable"),
    ] = None,
    resamples: Annotated[int, typer.Option("--resamples", min=1, help="bootstrap resamples")] = 10_000,
    exclude_incomplete: Annotated[
        bool, typer.Option("--exclude-incomplete", help="drop tasks without a verdict for one method, and list them")
    ] = False,
    out: opt.Out = opt.DEFAULT_OUT,
) -> None:
    """Print a table of a paper.

    What was measured here, what was published, and what may be said of the difference.
    A row shows the run that was made with its options, and no other.
    """
    from harness.commands.find import find_run, stored_runs
    from harness.commands.pick import pick
    from harness.errors import InputError, unknown

    chosen = [name for name, given in (("latex", latex), ("markdown", markdown), ("csv", csv)) if given]
    if len(chosen) > 1:
        raise InputError(f"--{' and --'.join(chosen)} are two formats; give one")
    if scale is not None and scale not in SCALES:
        raise unknown("--scale", scale, SCALES)
    wanted = read_spec(spec)
    env = wanted.env if len(wanted.envs) == 1 else None
    named = [find_run(name, out, env=env) for name in run or []]
    stored = [one for one in stored_runs(out) if one.has_rows] if out.is_dir() else []
    picked = pick(
        wanted, spec, named=named, stored=stored, scale=scale, overrides=override or (), presets=preset or ()
    )
    runs = [
        as_rows(one, wanted, row, one.rows_at(one.last_iteration)) for (row, _), one in picked.placed.items()
    ]
    print_table(
        wanted, runs, picked.remarks, chosen[0] if chosen else "terminal",
        resamples=resamples, exclude_incomplete=exclude_incomplete,
    )  # fmt: skip


def read_spec(name: str) -> TableSpec:
    """A table's specification.

    Raises:
        InputError: there is none of that name, or it does not fit.
    """
    from harness.errors import InputError
    from reports.spec import load_spec

    try:
        return load_spec(name)
    except ValueError as error:
        raise InputError(" ".join(str(error).split())) from error


def print_table(
    spec: TableSpec, runs: list[RunRows], remarks: Sequence[str], form: str,
    *, resamples: int = 10_000, exclude_incomplete: bool = False,
) -> None:  # fmt: skip
    """Print some runs as a table.

    Raises:
        InputError: they cannot be laid side by side.
    """
    from harness.errors import InputError
    from reports.render import render
    from reports.tables import build_table
    from results.papers import published

    cells = published(spec.paper) if spec.paper else []
    try:
        built = build_table(
            spec, runs, cells, resamples=resamples, exclude_incomplete=exclude_incomplete, remarks=remarks
        )
    except ValueError as error:
        raise InputError(str(error)) from error
    print(render(built, form))  # type: ignore[arg-type]  # one of its formats


def as_rows(run: StoredRun, spec: TableSpec, row: str, rows: list[EpisodeRow]) -> RunRows:
    """A run as a table takes it, with what keeps it from being held against the published numbers.

    Args:
        run: stored.
        spec: of the table.
        row: name of the table's row.
        rows: of the run's last evaluation.
    """
    from harness.commands.compare import coupling_of
    from reports.tables import RunRows

    model = str(run.manifest.config["models"]["policy"])
    reasons = why_not_comparable(run, rows)
    backbone = next((name for name in spec.backbones if model.rpartition("/")[2] == name), None)
    if backbone is None:
        reasons = [_model_in_words(model), *reasons]
    return RunRows(
        label=str(run.path),
        method=run.method,
        coupling=coupling_of(run.method),
        rows=rows,
        comparable=not reasons,
        reason=", ".join(reasons),
        backbone=None if reasons else backbone,
        starting_policy=run.manifest.model_identities["policy"] if model.startswith("mini") else None,
        row=row,
    )


def why_not_comparable(run: StoredRun, rows: list[EpisodeRow]) -> list[str]:
    """What of scale, data and task list differs from the published protocol; nothing means comparable (model aside)."""
    from harness import registry

    config, reasons = run.manifest.config, []
    if config["scale"] != "paper":
        reasons.append(f"{config['scale']} scale")
    if config["env_data"] is None:
        reasons.append("embedded data")
    published = registry.env_spec(run.env).counts.get("test")
    tasks = len({row.task for row in rows})
    if config["split"] != "test":
        reasons.append(f"{config['split']} tasks")
    elif published != tasks:
        reasons.append(f"{tasks} of {'an unknown number of' if published is None else published} test tasks")
    if config["view"] != "full":
        reasons.append(f"{config['view']} view")
    if config["perturb"]:
        reasons.append("perturbed")
    return reasons


def _model_in_words(spec: str) -> str:
    return "mini policy" if spec == "mini" or spec.startswith("mini:") else spec
