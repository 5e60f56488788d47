"""Rows of a table as configurations: what `harness sweep` runs for a row, and which stored run is a row's."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from harness import registry
from harness.config import RunConfig
from harness.errors import InputError, unknown
from reports.spec import RowSpec, TableSpec

Resolve = Callable[..., RunConfig]
"""`harness.config.resolve` with all but method, env and overrides given."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One row of a table in one environment.

    Attributes:
        row: of the table.
        env: name of the environment.
        config: resolved: presets, the row's options, and further ones.
        overrides: the options of the row and the further ones that its method or the run has, each "key=value".
    """

    row: RowSpec
    env: str
    config: RunConfig
    overrides: tuple[str, ...]

    @property
    def place(self) -> tuple[str, str]:
        return self.row.key, self.env

    def differences(self, stored: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
        """In which options a stored configuration is not this row's: option -> (stored, the row's).

        All options of the method count, and those of the run that are named in `overrides`. An option that the stored
        configuration does not name, since it was made before there was one, has its default.
        """
        pairs = {name: (value, self.config.options.get(name)) for name, value in _complete(stored).items()}
        for name in (text.partition("=")[0] for text in self.overrides):
            if name in RunConfig.model_fields and name not in self.config.options:
                pairs[name] = (stored.get(name), self.config.model_dump(mode="json")[name])
        return {name: (value, wanted) for name, (value, wanted) in pairs.items() if value != wanted}


def variants(spec: TableSpec, resolve: Resolve, overrides: Sequence[str] = ()) -> list[Variant]:
    """Every row whose method is here, in every environment of the table.

    Args:
        spec: of the table.
        resolve: makes a configuration of `method`, `env` and `overrides`.
        overrides: "key=value" for all rows; a method that has no such option goes without.

    Raises:
        InputError: an option that no row takes, or that a row sets itself; what `resolve` raises.
    """
    rows = [row for row in spec.rows if row.method in registry.names("methods")]
    fields = {row.method: set(registry.load_method(row.method).Config.model_fields) for row in rows}
    for text in overrides:
        key = _key(text)
        if setting := [row.key for row in spec.rows if key in row.options]:
            raise InputError(f"-o {text}: {key} tells the rows of {spec.name} apart ({', '.join(setting)} set it)")
        if key not in RunConfig.model_fields and not any(key in names for names in fields.values()):
            raise unknown("option", key, set(RunConfig.model_fields).union(*fields.values()))
    found = []
    for env in spec.envs:
        for row in rows:
            own = [f"{key}={json.dumps(value)}" for key, value in row.options.items()]
            shared = [t for t in overrides if _key(t) in fields[row.method] or _key(t) in RunConfig.model_fields]
            config = resolve(method=row.method, env=env, overrides=[*own, *shared])
            found.append(Variant(row, env, config, (*own, *shared)))
    return found


def _key(text: str) -> str:
    return text.partition("=")[0].removeprefix("method.")


def _complete(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Stored options with today's defaults for those that are missing; as they are when they are no longer valid."""
    options: dict[str, Any] = stored["options"]
    try:
        return registry.load_method(stored["method"]).Config(**options).model_dump(mode="json")
    except ValidationError:
        return options
