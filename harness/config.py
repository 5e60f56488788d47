"""What a run is: presets, then a YAML file, then `-o key=value`, resolved into one model, printed and digested."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from harness import registry
from harness.errors import InputError, unknown
from harness.method import MethodConfig
from harness.types import Split, View

Scale = Literal["mini", "paper"]
Dtype = Literal["auto", "float32", "bfloat16", "float16"]


class RunConfig(BaseModel):
    """Everything that a run needs to know. Fields marked [identity] go into its digest, with the method's options."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    method: str = Field(description="[identity] name of the method")
    env: str = Field(description="[identity] name of the environment")
    scale: Scale = Field("mini", description="[identity] mini or paper")
    models: dict[str, str] = Field(description="[identity] role -> model; policy is always there")
    embedder: str = Field("wordllama", description="[identity] sentence encoder, where the method needs one")
    view: View = Field("full", description="[identity] rendering of the environment")
    perturb: tuple[str, ...] = Field((), description="[identity] perturbations, in order")
    env_data: str | None = Field(None, description="official data; embedded by default (its digest is identity)")
    split: Split = Field("test", description="[identity] tasks that are evaluated")
    limit: int | None = Field(None, ge=1, description="[identity] only the first tasks of the split")
    tasks: tuple[str, ...] = Field((), description="[identity] only these task ids")
    lane: int = Field(64, ge=1, description="[identity] most episodes whose model calls share batches")
    eval_at: tuple[int, ...] = Field((), description="[identity] iterations evaluated besides the last")
    device: str = Field("auto", description="[identity] torch device")
    dtype: Dtype = Field("auto", description="[identity] weights' type")
    options: dict[str, Any] = Field(default_factory=dict, description="[identity] the method's options, complete")

    checkpoint_every: int = Field(5, ge=1, description="iterations between checkpoints")
    transcripts: bool = Field(True, description="keep compressed transcripts of evaluation episodes")

    def method_config(self) -> MethodConfig:
        """The method's options as its own Config."""
        return registry.load_method(self.method).Config(**self.options)


NOT_IDENTITY = {"env_data", "checkpoint_every", "transcripts"}
SECTIONS = ("run", "method", "methods", "envs")
ONLY = "only"
"""Key of a preset beside its sections: names of the methods that learn under it, where they are not all of them."""
NAMED = ("method", "env", "scale", "options")
"""Run fields that are arguments of `resolve`: a file that changed them would be half obeyed."""


def resolve(
    *,
    method: str,
    env: str,
    scale: Scale = "mini",
    overrides: Sequence[str] = (),
    presets: Sequence[str] = (),
    config_file: Path | None = None,
    models: Mapping[str, str] | None = None,
    **given: Any,
) -> RunConfig:
    """Resolve names and options: scale preset, further presets, YAML file, command-line flags, `-o key=value`.

    Args:
        method, env: registered names.
        scale: picks the preset of the same name.
        overrides: "key=value"; a key of the run or of the method ("method.KEY" says which).
        presets: names under harness/presets or paths of YAML files.
        config_file: YAML with the sections of a preset.
        models: role -> model specification.
        given: run fields from flags; None means not given.

    Raises:
        InputError: an unknown name or option, a value that is out of range, or a preset that is not for the method.
    """
    method_class = registry.load_method(method)
    registry.env_spec(env)
    known = method_class.Config.model_fields
    run: dict[str, Any] = {"method": method, "env": env, "scale": scale}
    options: dict[str, Any] = {}
    for name in [scale, *presets, *([str(config_file)] if config_file else [])]:
        strict = name == str(config_file)
        content = _read_preset(name)
        _check_only(content, name, method, learns="iterations" in known)
        _merge_preset(content, method, env, known, run, options, strict=strict)
    for key, value in given.items():
        if value is not None and value != ():
            run[key] = value
    if models:
        run["models"] = {**run.get("models", {}), **models}
    for text in overrides:
        _override(text, method, known, run, options)
    run.setdefault("models", {})
    if "policy" not in run["models"]:
        raise InputError('no model for the role "policy"; give one with --model, for example --model mini')
    offered = registry.env_spec(env).views
    if "view" in run and run["view"] not in offered:
        raise InputError(f'environment "{env}" has no view "{run["view"]}"; it offers {", ".join(offered)}')
    try:
        run["options"] = method_class.Config(**options).model_dump(mode="json")
        return RunConfig(**run)
    except ValidationError as error:
        raise InputError(_first_error(error)) from error


def preset_values(name: str, method: str | None = None) -> dict[str, Any]:
    """What a preset sets in every environment: options of a method, or of the run where no method is named.

    Raises:
        InputError: no such preset or method.
    """
    content = _read_preset(name)
    if method is None:
        return _section(content, "run")
    known = registry.load_method(method).Config.model_fields
    shared = {key: value for key, value in _section(content, "method").items() if key in known}
    return {**shared, **_section(_section(content, "methods"), method)}


def digest(
    config: RunConfig, *, env_version: int, data_digest: str, task_list: str, model_identities: Mapping[str, str]
) -> str:
    """Identity of a run: equal digests produce equal rows; seeds, workers, executor and folders do not enter."""
    content = config.model_dump(mode="json", exclude=NOT_IDENTITY)
    content |= {
        "env_version": env_version,
        "data_digest": data_digest,
        "task_list": task_list,
        "models": dict(model_identities),
    }
    if (prompts := prompts_digest(config)) is not None:
        content["prompts"] = prompts
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def method_digest(config: RunConfig) -> str:
    """Identity of a method, its options and the user's templates that it reads."""
    prompts = prompts_digest(config)
    content = [config.method, config.options, *([] if prompts is None else [prompts])]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]


def prompts_digest(config: RunConfig) -> str | None:
    """Digest of the names and contents of the user's templates; None where the shipped ones are used.

    A folder that is not there has the digest of an empty one here; `harness.prompts` refuses it.
    """
    if not config.options.get("prompts"):
        return None
    folder = Path(config.options["prompts"])
    content = hashlib.sha256()
    for path in sorted(folder.rglob("*.txt")):
        content.update(f"{path.relative_to(folder).as_posix()}\0".encode())
        content.update(hashlib.sha256(path.read_bytes()).digest())
    return content.hexdigest()[:12]


def parse_seeds(text: str) -> tuple[int, ...]:
    """ "3" means 0, 1, 2; "0,4,7" means itself.

    Raises:
        InputError: no seeds, a repeated one, or something that is not a number.
    """
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError as error:
        raise InputError(f'--seeds takes a count or a list such as 0,1,2, got "{text}"') from error
    seeds = tuple(range(numbers[0])) if len(numbers) == 1 and "," not in text else tuple(numbers)
    if not seeds or numbers[0] < 0 or min(seeds) < 0:
        raise InputError(f"--seeds {text} names no seed; give a count of at least 1, or a list such as 0,1,2")
    if len(set(seeds)) < len(seeds):
        raise InputError(f"--seeds {text} names a seed twice; each seed is one run")
    return seeds


def _read_preset(name: str) -> dict[str, Any]:
    folder = files("harness") / "presets"
    path: Any = folder / f"{name}.yaml"
    if not path.is_file():
        path = Path(name)
        if not path.is_file():
            shipped = [entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml")]
            raise unknown("preset", name, shipped, hint="or the path of a YAML file")
    try:
        content = yaml.safe_load(path.read_text()) or {}
    except yaml.YAMLError as error:
        raise InputError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from error
    _check_sections(content, str(path), SECTIONS, beside=(ONLY,))
    for section, names in (("methods", registry.names("methods")), ("envs", registry.env_names())):
        _check_sections(content.get(section) or {}, f"{path}, {section}", tuple(names), kind=section.rstrip("s"))
        for name, inner in (content.get(section) or {}).items():
            if section == "envs":
                _check_sections(inner or {}, f"{path}, {section}.{name}", ("run", "method", "methods"))
    return content


def _check_only(content: Mapping[str, Any], name: str, method: str, *, learns: bool) -> None:
    """A preset of other code fits the methods that it names; one that does not learn takes how it is sampled.

    Another method would learn under half of that code's conventions, and on another budget than those that are named.
    """
    only = content.get(ONLY)
    if only is None:
        return
    if not isinstance(only, list) or not only:
        raise InputError(f"{name}: {ONLY} must hold a list of methods ([grpo, rloo]); got {only!r}")
    for entry in only:
        if str(entry) not in registry.names("methods"):
            raise unknown(f"method in {name}, {ONLY}:", str(entry), registry.names("methods"))
    if learns and method not in only:
        raise InputError(
            f'preset "{name}" is for {", ".join(only)}, and for methods that do not learn; "{method}" is none of them: '
            "leave the preset out, or give single values with -o key=value"
        )


def _check_sections(
    content: Any, where: str, known: Sequence[str], *, kind: str = "section", beside: Sequence[str] = ()
) -> None:
    """A mapping whose keys are known and whose values, but those of the keys beside, are mappings or empty."""
    if not isinstance(content, dict):
        raise InputError(f"{where} must hold a mapping with {', '.join(known)}; got {content!r}")
    for key, value in content.items():
        if key in beside:
            continue
        if key not in known:
            raise unknown(f"{kind} in {where}:", str(key), known)
        if not isinstance(value, dict | None):
            raise InputError(f"{where}: {key} must hold a mapping of names to values; got {value!r}")


def _merge_preset(
    content: Mapping[str, Any], method: str, env: str, known: Mapping[str, Any], run: dict[str, Any],
    options: dict[str, Any], *, strict: bool,
) -> None:  # fmt: skip
    """Sections from general to special: run, method (any method that has the option), envs.<env>, methods.<method>."""
    of_env = _section(_section(content, "envs"), env)
    for section in (_section(content, "run"), _section(of_env, "run")):
        for key, value in section.items():
            if key in NAMED or key not in RunConfig.model_fields:
                raise unknown("run option", str(key), set(RunConfig.model_fields) - set(NAMED))
            if key == "models" and not isinstance(value, dict):
                raise InputError(f"models must hold a mapping of roles to models ({{policy: mini}}); got {value!r}")
            if key == "view" and not strict and value not in registry.env_spec(env).views:
                continue  # a preset prefers a view; an environment that has no such view keeps its own
            run[key] = {**run.get("models", {}), **value} if key == "models" else value
    shared = {**_section(content, "method"), **_section(of_env, "method")}
    for key, value in shared.items():
        if key in known:
            options[key] = value
        elif strict:
            raise unknown(f'option of method "{method}":', key, known)
    of_method = {**_section(_section(content, "methods"), method), **_section(_section(of_env, "methods"), method)}
    for key, value in of_method.items():
        if key not in known:
            raise unknown(f'option of method "{method}":', key, known)
        options[key] = value


def _section(content: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A section of a preset; one that is not there, or holds nothing, is empty."""
    section: dict[str, Any] = content.get(name) or {}
    return section


def _override(text: str, method: str, known: Mapping[str, Any], run: dict[str, Any], options: dict[str, Any]) -> None:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise InputError(f'-o takes key=value, got "{text}"')
    name = key.removeprefix("method.")
    try:
        parsed = yaml.safe_load(value) if value else None
    except yaml.YAMLError as error:
        raise InputError(f'-o {key} has a value that is not valid YAML: "{value}"; quote it if it is a text') from error
    fields = set(RunConfig.model_fields) - {*NAMED, "models"}
    if name in known:
        options[name] = parsed
    elif key in fields:
        run[key] = parsed
    else:
        raise unknown("option", key, [*known, *fields], hint=f"harness list options --method {method}")


def _first_error(error: ValidationError) -> str:
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    if not where:
        return str(first["msg"]).removeprefix("Value error, ")
    return f"option {where}={first.get('input')!r}: {first['msg']}"
