"""Which stored run stands in which row of a table: the one that was made with the row's options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from harness import registry
from harness.commands.find import StoredRun, apart
from harness.config import resolve
from harness.errors import InputError
from harness.variants import Variant, variants

if TYPE_CHECKING:
    from harness.config import Scale
    from reports.spec import TableSpec

Place = tuple[str, str]
"""Name of a row, and an environment."""

SCALES: tuple[Scale, ...] = ("mini", "paper")
_SHOWN = 4
"""Options that a remark names before it counts the rest."""


@dataclass
class Picked:
    """Runs by their place in a table, and what to say of places and runs that do not fit."""

    placed: dict[Place, StoredRun] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)


def pick(
    spec: TableSpec,
    source: str,
    *,
    named: Sequence[StoredRun],
    stored: Sequence[StoredRun],
    scale: str | None,
    overrides: Sequence[str],
    presets: Sequence[str],
) -> Picked:
    """Runs for the rows of a table.

    Args:
        spec: of the table.
        source: what the user called it.
        named: runs that the user chose; of a method with one row they need not have its options.
        stored: runs to look among for all other rows.
        scale: of the stored runs; None is the one that there is.
        overrides, presets: on top of the scale's, under the rows' options.

    Raises:
        InputError: a named run that no row or several could show, several stored runs of a row, or runs of both scales.
    """
    by_scale = {s: variants(spec, partial(resolve, scale=s, presets=presets), overrides) for s in SCALES}
    picked = Picked()
    for run in named:
        for place in _rows_of(run, by_scale):
            if place in picked.placed:
                raise InputError(f"{picked.placed[place].path} and {run.path} are both row {place[0]}; name one")
            picked.placed[place] = run
    found = {
        s: {v.place: _fitting(v, stored) for v in by_scale[s] if v.place not in picked.placed}
        for s in SCALES
        if scale in (None, s)
    }
    there = [s for s, places in found.items() if any(places.values())]
    if len(there) > 1:
        heading = f"{source} has runs of both scales; choose with --scale {' or '.join(there)}:"
        folders = dict.fromkeys(run.path for s in there for runs in found[s].values() for run in runs)
        raise InputError("\n".join([heading, *(f"  {path}" for path in folders)]))
    at: Scale = there[0] if there else next(iter(found))
    for (row, env), runs in found[at].items():
        if len(runs) > 1:
            heading = f'row "{row}" of {source} on {env} has {len(runs)} runs; name the folder of one with --a:'
            raise InputError("\n".join((heading, *apart(runs))))
        if runs:
            picked.placed[row, env] = runs[0]
    shared = [*([] if at == "mini" else ["--scale", at]), *(f"--preset {name}" for name in presets)]
    picked.remarks += missing_remarks(
        spec, source, set(picked.placed), " ".join([*shared, *(f"-o {text}" for text in overrides)])
    )
    others = [run for run in stored if run.path not in {one.path for one in picked.placed.values()}]
    picked.remarks += _near(by_scale[at], picked.placed, [run for run in others if run.manifest.config["scale"] == at])
    return picked


def missing_remarks(spec: TableSpec, source: str, placed: set[Place], options: str) -> list[str]:
    """How to make the runs of empty places, and which cannot be made here yet."""
    remarks = []
    methods, playable = registry.names("methods"), registry.names("envs")
    if unwritten := [row.label for row in spec.rows if row.method not in methods]:
        remarks.append(f"Methods that are not here yet: {', '.join(unwritten)}.")
    for env in spec.envs:
        missing = [row.key for row in spec.rows if row.method in methods and (row.key, env) not in placed]
        if env not in playable:
            remarks.append(f"{env} cannot be played here yet: its columns hold published numbers only.")
        elif missing:
            where = f" --env {env}" if len(spec.envs) > 1 else ""
            command = f"harness sweep {source}{where} --rows {','.join(missing)} {options}".rstrip()
            remarks.append(f"To run what is missing on {env}: {command}")
    return remarks


def _rows_of(run: StoredRun, by_scale: Mapping[Scale, Sequence[Variant]]) -> list[Place]:
    """Places of a run that the user named: by what tells the rows of its method apart."""
    scale: Scale = run.manifest.config["scale"]
    rows = [v for v in by_scale[scale] if v.row.method == run.method and v.env == run.env]
    if not rows:
        raise InputError(f"{run.path} is a run of {run.method} on {run.env}; the table has no such row")
    telling = {key for variant in rows for key in variant.row.options}
    fitting = [v.place for v in rows if not telling & set(v.differences(run.manifest.config))]
    if not fitting:
        there = ", ".join(f"{key}={run.manifest.config['options'].get(key)}" for key in sorted(telling))
        raise InputError(f"{run.path} is none of the rows {', '.join(v.row.key for v in rows)}: it has {there}")
    return fitting


def _fitting(variant: Variant, stored: Sequence[StoredRun]) -> list[StoredRun]:
    """Runs of a row's method, environment, scale and options."""
    return [
        run
        for run in stored
        if (run.method, run.env) == (variant.config.method, variant.env)
        and run.manifest.config["scale"] == variant.config.scale
        and not variant.differences(run.manifest.config)
    ]


def _near(rows: Sequence[Variant], placed: Mapping[Place, StoredRun], others: Sequence[StoredRun]) -> list[str]:
    """Runs that an empty row might have meant, and what keeps them out."""
    remarks = []
    for run in others:
        open_rows = [v for v in rows if (v.config.method, v.env) == (run.method, run.env) and v.place not in placed]
        if not open_rows:
            continue
        found = {v.row.key: v.differences(run.manifest.config) for v in open_rows}
        nearest = min(found, key=lambda key: len(found[key]))
        remarks.append(
            f"{run.path} is not shown: its {_in_words(found[nearest])} in row {nearest}"
            " (-o names an option that all runs share, --a names a run)."
        )
    return remarks


def _in_words(found: Mapping[str, tuple[Any, Any]]) -> str:
    told = [f"{name} is {stored} and {wanted}" for name, (stored, wanted) in sorted(found.items())]
    more = [f"{len(told) - _SHOWN} more"] if len(told) > _SHOWN else []
    return ", ".join([*told[:_SHOWN], *more])
