"""What `harness doctor` looks at: the installation, or whether a plug-in keeps its contract."""

from __future__ import annotations

import importlib.metadata
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, get_args

from harness import registry
from harness.config import resolve
from harness.conformance import Finding, check_env, check_method, check_model
from harness.errors import InputError
from harness.manifest import PACKAGES, code_version
from harness.model import Model, ModelContext, Prompt
from harness.policies import policy_folder
from harness.registry import Kind

KINDS: tuple[Kind, ...] = get_args(Kind)

_TINY = {"iterations": 1, "tasks_per_iteration": 2, "rollouts": 2, "strategies": 2, "oversampling": 2}
"""Options that make one iteration quick, for the methods that have them."""


def installation() -> list[Finding]:
    """Python, packages, shipped policies, and whether everything that is registered can be imported."""
    version = ".".join(map(str, sys.version_info[:3]))
    findings = [Finding(f"python {version}", "pass" if sys.version_info >= (3, 11) else "fail", _python_reason())]
    findings.append(Finding(f"code {code_version()}, {os.cpu_count()} cores", "pass"))
    for package in PACKAGES:
        findings.append(_try(f"package {package}", partial(importlib.metadata.version, package)))
    for kind in KINDS:
        for name in registry.names(kind):
            findings.append(_try(f"{kind.removesuffix('s')} {name}", partial(_importable, kind, name)))
    for name in registry.names("envs"):
        there = policy_folder(name) is not None
        reason = "" if there else f"none is shipped; make one with: harness prepare policy {name}"
        findings.append(Finding(f"mini policy of {name}", "pass" if there else "skip", reason))
    return findings


def env_findings(name: str, *, view: str | None = None, data: str | None = None) -> list[Finding]:
    """The contract of a registered environment.

    Raises:
        InputError: unknown, or a specification only.
    """
    return check_env(registry.load_env(name), view=view, data=data)  # type: ignore[arg-type]  # Env checks the view


def method_findings(name: str, *, env: str, model: str | None = None) -> list[Finding]:
    """The contract of a registered method, playing an environment at mini scale.

    Raises:
        InputError: an unknown name, or no model.
    """
    method_class = registry.load_method(name)
    small = [f"{key}={value}" for key, value in _TINY.items() if key in method_class.Config.model_fields]
    config = resolve(method=name, env=env, overrides=small, models={"policy": model} if model else None)
    embedder: Callable[[Sequence[str]], Any] | None = None
    if method_class.needs_embedder(config.method_config()):
        from harness.models.embedders import get_embedder

        embedder = get_embedder(config.embedder)
    context = ModelContext(env, config.device, config.dtype)

    def open_model() -> Model:
        return registry.open_model(config.models["policy"], context)

    return check_method(
        method_class,
        registry.load_env(env),
        open_model,
        config=config.method_config(),
        view=config.view,
        embedder=embedder,
    )


def model_findings(spec: str, *, env: str) -> list[Finding]:
    """The contract of a model, asked about the first observations of an environment.

    Raises:
        InputError: an unknown back end, or no weights.
    """
    context = ModelContext(env)
    registry.open_model(spec, context).close()  # what is missing is said before the checks, not by each of them
    env_class = registry.load_env(env)
    world = env_class(view="compact" if "compact" in env_class.spec.views else None)
    try:
        tasks = world.tasks("test")[:6]
        texts = [world.reset(task, seed=0).text for task in tasks]
    finally:
        world.close()
    prompts = [Prompt.user(" ".join(text.split()[: 8 + 8 * place])) for place, text in enumerate(texts)]
    return check_model(lambda: registry.open_model(spec, context), prompts)


def _importable(kind: Kind, name: str) -> str:
    registry.load(kind, name)
    return ""


def _python_reason() -> str:
    return "" if sys.version_info >= (3, 11) else "3.11 or newer is needed"


def _try(what: str, look: Callable[[], str]) -> Finding:
    try:
        found = look()
    except (InputError, importlib.metadata.PackageNotFoundError) as error:
        return Finding(what, "fail", str(error))
    return Finding(f"{what} {found}".strip(), "pass")
