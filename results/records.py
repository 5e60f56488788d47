"""The row: what is kept of one episode, one JSON line each, and how rows of older versions are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, model_validator

from harness.types import Status, StopReason, View

SCHEMA_VERSION = 1

Raw = dict[str, Any]

MIGRATIONS: dict[int, Callable[[Raw], Raw]] = {}
"""Version -> function that turns a row of that version into one of the next. Version 1 is the first."""


class SchemaError(ValueError):
    """A row of a schema that this package cannot read; the message says which and what to do."""


class RowKey(NamedTuple):
    """What makes a row the measurement of one thing; a later row with an equal key replaces an earlier one."""

    method: str
    method_digest: str
    env: str
    perturbation: str | None
    model: str
    task: str
    seed: int
    iteration: int


class EpisodeRow(BaseModel):
    """One evaluation episode.

    `success` and `score` are both there when the status has a verdict and both null otherwise, so that an error can
    never be averaged as a zero.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, allow_inf_nan=False)

    run: str
    """Name of the run's folder."""
    method: str
    method_digest: str
    """Digest of the method's configuration."""
    env: str
    perturbation: str | None = None
    """Names of the perturbations, joined by commas in the order given; null for the plain environment."""
    model: str
    task: str
    subset: str | None = None
    """Reporting column of the benchmark."""
    group: str | None = None
    """Cluster key: tasks that share it are resampled together."""
    seed: int
    iteration: int
    """Training iteration after which the episode was run; 0 for methods that do not learn."""
    status: Status
    success: bool | None
    score: float | None = Field(ge=0, le=1)
    """In the unit of the environment, from 0 to 1."""
    reward: float | None
    """Sum of the environment's step rewards; null when the episode broke off in an error."""
    steps: int = Field(ge=0)
    stop: StopReason
    tokens_in: int = Field(0, ge=0)
    tokens_out: int = Field(0, ge=0)
    tokens_cached: int = Field(0, ge=0)
    cost: float | None = None
    """US dollars; null when the price is not known, never a guess."""
    wall_time: float = Field(ge=0)
    """Seconds."""
    backend: str
    deterministic: bool
    """Whether the same command gives the same row again (false for remote servers and vLLM)."""
    protocol: Literal["standard", "stream"] = "standard"
    """"stream": the method saw the test tasks one by one and learned between them."""
    view: View
    code_version: str
    env_version: str
    data_digest: str
    drift: bool = False
    """The run was resumed under another code or package version (--allow-drift)."""
    attempt: int = Field(1, ge=1)
    """1 for the first try, 2 for the retry after an infrastructure failure."""
    schema_version: Literal[1] = Field(1, alias="schema")

    @model_validator(mode="after")
    def _score_and_verdict_go_together(self) -> EpisodeRow:
        if self.status.has_verdict and (self.success is None or self.score is None):
            raise ValueError(f"status {self.status} has a verdict: success and score are both needed")
        if not self.status.has_verdict and (self.success is not None or self.score is not None):
            raise ValueError(f"status {self.status} has no verdict: success and score must be null, not zero")
        return self

    @property
    def key(self) -> RowKey:
        return RowKey(
            self.method,
            self.method_digest,
            self.env,
            self.perturbation,
            self.model,
            self.task,
            self.seed,
            self.iteration,
        )

    def line(self) -> str:
        """The row as it stands in a file: one line of JSON, newline included."""
        return self.model_dump_json(by_alias=True) + "\n"


def migrate(raw: Any) -> Raw:
    """Bring a row of an older schema to the present one, step by step.

    Args:
        raw: a parsed row; it is not changed.

    Raises:
        SchemaError: no schema, one that is newer than this package, or one that it no longer migrates.
    """
    if not isinstance(raw, dict):
        raise SchemaError(f"a row is a JSON object, not {type(raw).__name__}")
    version = raw.get("schema")
    if not isinstance(version, int):
        raise SchemaError(f"the row's schema is {version!r}, not a number: is this a row of abstraction-bench?")
    if version > SCHEMA_VERSION:
        raise SchemaError(
            f"row schema {version} is newer than this package reads ({SCHEMA_VERSION}); upgrade abstraction-bench"
        )
    while version < SCHEMA_VERSION:
        if version not in MIGRATIONS:
            raise SchemaError(f"row schema {version} is no longer migrated; use the version that wrote it")
        raw = MIGRATIONS[version](raw)
        version = raw["schema"]
    return dict(raw)
