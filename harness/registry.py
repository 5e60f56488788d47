"""Names to classes: a table of built-ins, and entry points for others' plug-ins. Nothing is imported before it is used.

A plug-in package declares, in its own pyproject.toml:

    [project.entry-points."abstraction_bench.methods"]
    mine = "my_package.my_method:MyMethod"

and likewise `abstraction_bench.envs` (an `Env` class) and `abstraction_bench.models` (a `ModelSource` function).
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import json
import sys
from functools import cache
from pathlib import Path
from typing import Any, Literal

from harness.env import Env, EnvSpec
from harness.errors import InputError, unknown
from harness.method import Method
from harness.model import Model, ModelContext, TrainableModel
from harness.policies import policy_folder

Kind = Literal["methods", "envs", "models"]

BUILT_IN: dict[Kind, dict[str, str]] = {
    "methods": {
        "vanilla": "baselines.vanilla:Vanilla",
        "react": "baselines.react:ReAct",
        "ppo": "baselines.ppo:PPO",
        "grpo": "baselines.grpo:GRPO",
        "rloo": "baselines.rloo:RLOO",
        "gigpo": "baselines.gigpo:GiGPO",
        "agentgym-rl": "baselines.agentgym_rl:AgentGymRL",
        "scalinginter": "baselines.scalinginter:ScalingInter",
        "strata": "methods.strata.method:StraTA",
    },
    "envs": {
        "webshop": "envs.webshop.env:WebShop",
    },
    "models": {
        "mini": "harness.models.mini:open_mini",
        "transformers": "harness.models.transformers:open_transformers",
        "scripted": "harness.models.scripted:open_scripted",
    },
}

_DESCRIPTIONS = {".json", ".txt", ".model", ".jinja", ".py"}
"""Suffixes of configurations, tokenizers, chat templates and a model's own code."""

_WEIGHTS = {".safetensors", ".bin", ".pt", ".pth", ".gguf", ".h5", ".msgpack"}


def names(kind: Kind) -> dict[str, str]:
    """All registered names and where they point, built-ins first; a plug-in cannot shadow a built-in.

    Raises:
        InputError: a plug-in takes the name of a built-in.
    """
    table = dict(BUILT_IN[kind])
    for name, value in _plug_ins(kind, tuple(sys.path)):
        if name in BUILT_IN[kind]:
            raise InputError(f'the plug-in {value} takes the built-in name "{name}"; give it another name')
        table[name] = value
    return table


@cache
def _plug_ins(kind: Kind, path: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """(name, value) of the entry points on a path. Reading them takes a tenth of a second, and every lane asks."""
    points = importlib.metadata.entry_points(group=f"abstraction_bench.{kind}")
    return tuple((point.name, point.value) for point in points)


def load(kind: Kind, name: str) -> Any:
    """The object behind a name.

    Raises:
        InputError: the name is not known, or its plug-in cannot be imported.
    """
    table = names(kind)
    if name not in table:
        raise unknown(kind.rstrip("s"), name, table, hint=f"harness list {kind}")
    module, _, attribute = table[name].partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise InputError(f'{kind.rstrip("s")} "{name}" ({table[name]}) cannot be imported: {error}') from error


def load_method(name: str) -> type[Method]:
    """The class of a method."""
    found = load("methods", name)
    if not (isinstance(found, type) and issubclass(found, Method)):
        raise InputError(f'method "{name}" is {found!r}, not a subclass of harness.method.Method')
    return found


def load_env(name: str) -> type[Env]:
    """The class of an environment that can be played.

    Raises:
        InputError: unknown, or known by its specification only.
    """
    from envs.specs import SPECS

    if name not in names("envs") and name in SPECS:
        raise InputError(
            f'environment "{name}" ships as a specification only (harness plan shows it); '
            f"it cannot be played yet; playable: {', '.join(sorted(names('envs')))}"
        )
    found = load("envs", name)
    if not (isinstance(found, type) and issubclass(found, Env)):
        raise InputError(f'environment "{name}" is {found!r}, not a subclass of harness.env.Env')
    return found


def env_names() -> list[str]:
    """Names of all environments, playable or known by their specification only."""
    from envs.specs import SPECS

    return sorted({*names("envs"), *SPECS})


def env_spec(name: str) -> EnvSpec:
    """The specification of any environment, playable or not, without its package or data."""
    from envs.specs import SPECS

    if name in names("envs"):
        return load_env(name).spec
    if name in SPECS:
        return SPECS[name]
    raise unknown("environment", name, env_names(), hint="harness list envs")


def open_model(spec: str, context: ModelContext) -> Model:
    """Open the model that a specification names: "mini", "mini:FOLDER", "transformers:ID_OR_PATH", "scripted:...".

    Raises:
        InputError: an unknown back end, or weights that are not there.
    """
    backend, _, target = spec.partition(":")
    model: Model = load("models", backend)(target, context)
    return model


def only_answers(spec: str) -> bool:
    """Whether the model that a specification names is known not to train, without opening it.

    Its opener says so by the class that it returns. One that promises a `Model` and no more may give either.
    """
    opener = load("models", spec.partition(":")[0])
    made = getattr(opener, "__annotations__", {}).get("return")
    if isinstance(made, str):  # annotations are text where a module postpones them
        made = vars(sys.modules[opener.__module__]).get(made)
    return isinstance(made, type) and made is not Model and not issubclass(made, TrainableModel)


def model_identity(spec: str, env: str) -> str:
    """What of a model goes into a run's digest, without loading its weights.

    A mini policy is known by the digest in its manifest, a folder of `transformers` by its path and `_folder_state`,
    everything else by its specification.
    """
    backend, _, target = spec.partition(":")
    if backend not in names("models"):
        raise unknown("model", backend, names("models"), hint="harness list models")
    if backend == "transformers" and target and Path(target).is_dir():
        return f"{spec}@{_folder_state(Path(target))}"
    if backend != "mini":
        return spec
    folder = Path(target) if target else policy_folder(env)
    if folder is None:
        raise InputError(f'there is no shipped mini policy for "{env}"; make one with: harness prepare policy {env}')
    manifest = folder / "manifest.json"
    if not manifest.is_file():
        raise InputError(
            f"no mini policy in {folder} (manifest.json is missing); make one with: harness prepare policy {env}"
        )
    return f"mini@{json.loads(manifest.read_text())['sha256'][:16]}"


def _folder_state(folder: Path) -> str:
    """Digest of a model's folder: contents of what describes it, and names, sizes and times of its weights.

    Weights of gigabytes are not read for a plan; overwriting them changes their time. Files that no loader reads
    (a README, logs) do not count.
    """
    content = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.suffix in _DESCRIPTIONS:
            content.update(f"{path.name}\0".encode())
            content.update(hashlib.sha256(path.read_bytes()).digest())
        elif path.suffix in _WEIGHTS:
            stat = path.stat()
            content.update(f"{path.name}\0{stat.st_size}\0{stat.st_mtime_ns}\0".encode())
    return content.hexdigest()[:16]
