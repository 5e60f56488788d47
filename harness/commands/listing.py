"""`harness list`: what there is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.commands import options as opt

if TYPE_CHECKING:
    from rich.table import Table

KINDS = ("methods", "envs", "models", "presets", "options", "runs", "tables")


def list_names(
    kind: Annotated[str, typer.Argument(metavar="|".join(KINDS), help="what to list")],
    method: Annotated[str | None, typer.Option("--method", help="whose options to list; the run's by default")] = None,
    out: opt.Out = opt.DEFAULT_OUT,
) -> None:
    """List what there is.

    Methods, environments, models, presets, options of a run or a method, stored runs, tables.
    """
    from harness.commands.printing import console
    from harness.errors import unknown

    makers = {
        "methods": _methods,
        "envs": _envs,
        "models": _models,
        "presets": _presets,
        "options": lambda: _options(method),
        "runs": lambda: _runs(out),
        "tables": _tables,
    }
    if kind not in makers:
        raise unknown("kind", kind, KINDS, hint="harness list --help")
    console().print(makers[kind]())


def _methods() -> Table:
    from harness import registry

    table = _table("method", "coupling", "paper", "where")
    for name, place in registry.names("methods").items():
        try:
            found = registry.load_method(name)
        except ValueError as error:  # a plug-in that does not import must not hide the others
            table.add_row(name, "-", "-", str(error))
        else:
            table.add_row(name, found.coupling, found.paper or "-", place)
    return table


def _envs() -> Table:
    from envs.specs import SPECS
    from harness import registry

    table = _table("environment", "version", "horizon", "columns", "test tasks", "views", "playable")
    for name in sorted({*registry.names("envs"), *SPECS}):
        try:
            spec = registry.env_spec(name)
        except ValueError as error:
            table.add_row(name, *["-"] * 5, str(error))
            continue
        playable = "yes" if name in registry.names("envs") else "specification only"
        count = spec.counts.get("test")
        table.add_row(
            name,
            str(spec.version),
            str(spec.horizon),
            ", ".join(spec.columns),
            "unknown" if count is None else str(count),
            ", ".join(spec.views),
            playable,
        )
    return table


def _models() -> Table:
    from harness import registry

    table = _table("model", "where")
    for name, place in registry.names("models").items():
        table.add_row(name, place)
    return table


def _presets() -> Table:
    from importlib.resources import files

    table = _table("preset", "what it is")
    for entry in sorted(files("harness").joinpath("presets").iterdir(), key=lambda entry: entry.name):
        if entry.name.endswith(".yaml"):
            first = entry.read_text(encoding="utf-8").splitlines()[0]
            table.add_row(entry.name.removesuffix(".yaml"), first.removeprefix("# "))
    return table


def _options(method: str | None) -> Table:
    """Defaults, which are the papers', and what the preset of the scale that a run has by default makes of them."""
    from harness import registry
    from harness.config import RunConfig, preset_values

    model = registry.load_method(method).Config if method else RunConfig
    mini = preset_values("mini", method)
    table = _table("option", "type", "default", "--scale mini", "meaning")
    for name, field in model.model_fields.items():
        default = None if field.is_required() else field.get_default(call_default_factory=True)
        value = mini.get(name, default)
        at_mini = "" if _plain(value) == _plain(default) else str(value)
        shown = "required" if field.is_required() else str(default)
        table.add_row(name, _type(field.annotation), shown, at_mini, field.description or "")
    return table


def _plain(value: Any) -> Any:
    """A value as YAML has it, which knows no tuples."""
    return list(value) if isinstance(value, tuple) else value


def _runs(out: Path) -> Table:
    from harness.commands.find import stored_runs

    table = _table("run", "scale", "models", "seeds", "episodes", "without verdict", "created")
    for run in stored_runs(out):
        rows = run.rows()
        seeds = ", ".join(str(seed) for seed in sorted({row.seed for row in rows}))
        config = run.manifest.config
        models = ", ".join(f"{role}={spec}" for role, spec in config["models"].items())
        lost = sum(not row.status.has_verdict for row in rows)
        table.add_row(
            run.path.name, config["scale"], models, seeds or "-", str(len(rows)), str(lost), run.manifest.created
        )
    return table


def _tables() -> Table:
    from reports.spec import load_spec, specs

    table = _table("table", "environment", "paper")
    for name in specs():
        spec = load_spec(name)
        table.add_row(name, ", ".join(spec.envs), f"{spec.paper}, {spec.table}" if spec.paper else "-")
    return table


def _table(*columns: str) -> Table:
    from rich.table import Table

    table = Table(*columns, box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.columns[0].no_wrap = True
    return table


def _type(annotation: Any) -> str:
    if isinstance(annotation, type):
        return annotation.__name__
    return str(annotation).replace("typing.", "")
