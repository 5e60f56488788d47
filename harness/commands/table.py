"""`harness table`: measured beside published, for one table of a paper."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.commands import options as opt

if TYPE_CHECKING:
    from harness.commands.find import StoredRun
    from reports.spec import TableSpec
    from reports.tables import RunRows
    from results.records import EpisodeRow


def table(
    spec: Annotated[str, typer.Argument(metavar="SPEC", help="name of a table (harness list tables), or a YAML file")],
    latex: Annotated[bool, typer.Option("--latex", help="as LaTeX (booktabs)")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="as Markdown")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="as CSV, one line a number, unrounded")] = False,
    run: Annotated[
        list[str] | None,
        typer.Option("--a", metavar="NAME|FOLDER", help="run of a row; what is stored by default; repeatable"),
    ] = None,
    resamples: Annotated[int, typer.Option("--resamples", min=1, help="bootstrap resamples")] = 10_000,
    exclude_incomplete: Annotated[
        bool, typer.Option("--exclude-incomplete", help="drop tasks without a verdict for one method, and list them")
    ] = False,
    out: opt.Out = opt.DEFAULT_OUT,
) -> None:
    """Print a table of a paper.

    What was measured here, what was published, and what may be said of the difference.
    """
    from harness.errors import InputError
    from reports.render import render
    from reports.spec import load_spec
    from reports.tables import build_table
    from results.papers import published

    chosen = [name for name, given in (("latex", latex), ("markdown", markdown), ("csv", csv)) if given]
    if len(chosen) > 1:
        raise InputError(f"--{' and --'.join(chosen)} are two formats; give one")
    try:
        wanted = load_spec(spec)
    except ValueError as error:
        raise InputError(" ".join(str(error).split())) from error
    runs = [_as_rows(found, wanted) for found in _chosen_runs(wanted, run or [], out)]
    cells = published(wanted.paper) if wanted.paper else []
    try:
        built = build_table(wanted, runs, cells, resamples=resamples, exclude_incomplete=exclude_incomplete)
    except ValueError as error:
        raise InputError(str(error)) from error
    print(render(built, chosen[0] if chosen else "terminal"))  # type: ignore[arg-type]  # one of its formats


def _chosen_runs(spec: TableSpec, named: list[str], out: Path) -> list[StoredRun]:
    """The runs that were named, and of every other row's method the one that is stored.

    Raises:
        InputError: a name that means no run or several, or several stored runs of a row's method.
    """
    from harness.commands.find import find_run, stored_runs

    runs = {run.method: run for run in (find_run(name, out, env=spec.env) for name in named)}
    stored = {run.method for run in stored_runs(out) if run.env == spec.env} if out.is_dir() else set()
    for row in spec.rows:
        if row.method in stored and row.method not in runs:
            runs[row.method] = find_run(row.method, out, env=spec.env)
    return list(runs.values())


def _as_rows(run: StoredRun, spec: TableSpec) -> RunRows:
    """A run as a table takes it, with what keeps it from being held against the published numbers."""
    from harness.commands.compare import coupling_of
    from reports.tables import RunRows

    config = run.manifest.config
    rows = run.rows_at(run.last_iteration)
    model = str(config["models"]["policy"])
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
