"""What a table shows: a YAML file in reports/specs, one a paper table."""

from __future__ import annotations

from collections import Counter
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, model_validator


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class RowSpec(_Frozen):
    """One method, or one variant of it."""

    method: str
    label: str
    name: str = ""
    """What tells rows of one method apart (`harness sweep SPEC --rows NAME`); the method by default."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Options of the run or of the method on top of the scale's preset, as `-o` takes them."""
    published: str | None = None
    """The method's name in the paper, where it is another one than ours."""
    variant: str | None = None
    """The paper's name of the variant, where its table has several values of one method."""

    @property
    def key(self) -> str:
        return self.name or self.method

    @property
    def published_name(self) -> str:
        return self.published or self.method


class ColumnSpec(_Frozen):
    """One metric, over all tasks of an environment or one subset of them."""

    metric: Literal["success", "score"]
    label: str
    subset: str = "All"
    """Name of a subset as the environment and the paper have it; All for every task."""
    env: str | None = None
    """The environment, where it is not the table's."""


class TableSpec(_Frozen):
    """One table: methods down, metrics across, published values beside the measured ones."""

    name: str
    title: str
    env: str
    """Environment of the columns that name none."""
    rows: tuple[RowSpec, ...] = Field(min_length=1)
    columns: tuple[ColumnSpec, ...] = Field(min_length=1)
    reference: str
    """Name of the row that every other one is compared with."""
    seeds: int = Field(5, ge=1)
    """How many `harness sweep` runs where it is not told."""
    paper: str | None = None
    """Whose numbers stand beside ours (`results.papers`); null for none."""
    table: str | None = None
    """The paper's table: "Table 1"."""
    backbones: dict[str, str] = Field(default_factory=dict)
    """Model of a published value -> heading of its column."""
    notes: tuple[str, ...] = ()
    """What a reader of this table must know; printed below it."""

    @property
    def envs(self) -> tuple[str, ...]:
        """Environments of the columns, in their order."""
        return tuple(dict.fromkeys(self.env_of(column) for column in self.columns))

    def env_of(self, column: ColumnSpec) -> str:
        """Environment of a column."""
        return column.env or self.env

    @model_validator(mode="after")
    def _names_fit(self) -> TableSpec:
        names = Counter(row.key for row in self.rows)
        if twice := [name for name, count in names.items() if count > 1]:
            raise ValueError(f"a row occurs twice: {', '.join(twice)}; give rows of one method a name each")
        if self.reference not in names:
            raise ValueError(f"reference {self.reference!r} is no row; rows: {', '.join(names)}")
        if (self.paper is None) != (not self.backbones) or (self.paper is None) != (self.table is None):
            raise ValueError("paper, table and backbones belong together: give all three or none")
        return self


def load_spec(name: str) -> TableSpec:
    """Read a table's specification by its name, or from a YAML file.

    Raises:
        ValueError: neither a known name nor a file; a specification that does not fit (pydantic names the field).
    """
    path = Path(name)
    if path.suffix in (".yaml", ".yml") and path.is_file():
        return TableSpec.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    if name not in specs():
        raise ValueError(f"unknown table {name!r}; known: {', '.join(specs())}, or the path of a YAML file")
    text = files("reports").joinpath("specs", f"{name}.yaml").read_text(encoding="utf-8")
    return TableSpec.model_validate(yaml.safe_load(text))


def specs() -> list[str]:
    """Names of the tables that come with the package."""
    found = files("reports").joinpath("specs").iterdir()
    return sorted(file.name.removesuffix(".yaml") for file in found if file.name.endswith(".yaml"))
