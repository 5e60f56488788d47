"""What a table shows: a YAML file in reports/specs, one a paper table."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, model_validator


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class RowSpec(_Frozen):
    """One method."""

    method: str
    label: str
    published: str | None = None
    """The method's name in the paper, where it is another one than ours."""

    @property
    def published_name(self) -> str:
        return self.published or self.method


class ColumnSpec(_Frozen):
    """One metric, over all tasks or one subset of them."""

    metric: Literal["success", "score"]
    label: str
    subset: str = "All"
    """Name of a subset as the environment and the paper have it; All for every task."""


class TableSpec(_Frozen):
    """One table: methods down, metrics across, published values beside the measured ones."""

    name: str
    title: str
    env: str
    rows: tuple[RowSpec, ...] = Field(min_length=1)
    columns: tuple[ColumnSpec, ...] = Field(min_length=1)
    reference: str
    """Method that every other row is compared with."""
    paper: str | None = None
    """Whose numbers stand beside ours (`results.papers`); null for none."""
    table: str | None = None
    """The paper's table: "Table 1"."""
    backbones: dict[str, str] = Field(default_factory=dict)
    """Model of a published value -> heading of its column."""

    @model_validator(mode="after")
    def _names_fit(self) -> TableSpec:
        methods = [row.method for row in self.rows]
        if len(set(methods)) < len(methods):
            raise ValueError(f"a method occurs twice in the rows: {', '.join(methods)}")
        if self.reference not in methods:
            raise ValueError(f"reference {self.reference!r} is no row; rows: {', '.join(methods)}")
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
