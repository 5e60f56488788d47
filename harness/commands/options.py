"""Options that verbs share, and how they become a configuration."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from harness.config import RunConfig

MethodName = Annotated[str, typer.Option("--method", help="method; see: harness list methods")]
EnvName = Annotated[str, typer.Option("--env", help="environment; see: harness list envs")]
Seeds = Annotated[str, typer.Option("--seeds", metavar="N|A,B,C", help="3 means seeds 0, 1 and 2")]
ScaleName = Annotated[str, typer.Option("--scale", metavar="mini|paper", help="preset of sizes")]
Models = Annotated[
    list[str] | None,
    typer.Option("--model", metavar="[ROLE=]SPEC", help="model of a role, of the policy by default; repeatable"),
]
Perturb = Annotated[list[str] | None, typer.Option("--perturb", metavar="NAME", help="perturbation; repeatable")]
EnvData = Annotated[Path | None, typer.Option("--env-data", help="official data; embedded by default")]
ViewName = Annotated[str | None, typer.Option("--view", metavar="full|compact", help="rendering of the environment")]
SplitName = Annotated[
    str | None, typer.Option("--split", metavar="train|validation|test", help="tasks that are evaluated")
]
Limit = Annotated[int | None, typer.Option("--limit", min=1, help="only the first tasks of the split")]
Tasks = Annotated[str | None, typer.Option("--tasks", metavar="ID,ID", help="only these tasks")]
Overrides = Annotated[
    list[str] | None, typer.Option("-o", metavar="KEY=VALUE", help="option of the run or of the method; repeatable")
]
Presets = Annotated[
    list[str] | None, typer.Option("--preset", metavar="NAME|FILE", help="on top of the scale's; repeatable")
]
ConfigFile = Annotated[Path | None, typer.Option("--config", help="YAML file with the sections of a preset")]
Out = Annotated[Path, typer.Option("--out", help="store: the folder that holds the runs' folders")]
DEFAULT_OUT = Path("runs")

_ROLE = re.compile(r"([a-z][a-z_-]*)=(.+)", re.DOTALL)


def resolve(
    *,
    method: str,
    env: str,
    scale: str,
    models: Sequence[str] | None,
    overrides: Sequence[str] | None,
    presets: Sequence[str] | None,
    config_file: Path | None,
    perturb: Sequence[str] | None,
    env_data: Path | None,
    view: str | None,
    split: str | None,
    limit: int | None,
    tasks: str | None,
) -> RunConfig:
    """The configuration that a command line asks for.

    Raises:
        InputError: a name, an option or a value that is wrong.
    """
    from harness.config import resolve as resolve_config
    from harness.errors import InputError, unknown
    from harness.types import SPLITS

    for option, value, known in (("scale", scale, ("mini", "paper")), ("split", split, SPLITS)):
        if value is not None and value not in known:
            raise unknown(f"--{option}", value, known)
    if config_file is not None and not config_file.is_file():
        raise InputError(f'--config "{config_file}" is not a file; give the path of a YAML file')
    if env_data is not None and not env_data.exists():
        raise InputError(f'--env-data "{env_data}" does not exist; give the folder of the official data')
    given: dict[str, Any] = {
        "perturb": tuple(perturb or ()),
        "env_data": None if env_data is None else str(env_data),
        "view": view,
        "split": split,
        "limit": limit,
        "tasks": tuple(part for part in (tasks or "").split(",") if part),
    }
    return resolve_config(
        method=method,
        env=env,
        scale=scale,  # type: ignore[arg-type]  # checked above
        overrides=overrides or (),
        presets=presets or (),
        config_file=config_file,
        models=models_by_role(models or ()),
        **given,
    )


def models_by_role(specs: Sequence[str]) -> Mapping[str, str]:
    """ "mini" names the policy's model, "judge=transformers:..." the judge's.

    Raises:
        InputError: two models for one role.
    """
    from harness.errors import InputError

    by_role: dict[str, str] = {}
    for spec in specs:
        named = _ROLE.fullmatch(spec)
        role, model = (named[1], named[2]) if named else ("policy", spec)
        if role in by_role:
            raise InputError(f'--model names two models for the role "{role}": {by_role[role]} and {model}; keep one')
        by_role[role] = model
    return by_role


ACCELERATORS = ("/dev/nvidiactl", "/dev/kfd")
"""What the drivers of NVIDIA and AMD cards make; looked for because importing torch takes seconds."""


def default_workers(*devices: str) -> int:
    """One worker where a model may lie on a card, which would have to hold a copy for each; else one a core."""
    on_card = any(device != "cpu" for device in devices) and any(os.path.exists(path) for path in ACCELERATORS)
    return 1 if on_card else cores()


def cores() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
