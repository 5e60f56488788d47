"""Numbers that papers print, one JSON file a paper, each cell with its table, source and how sure we are of it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

_METRICS = {
    "success": {"success_rate", "success_rate (reported as score)"},
    "score": {"task_score"},
}
"""Our names of metrics -> the papers'. StraTA Table 2 prints a success rate of AgentGym-RL in its score column."""


class Cell(BaseModel):
    """One printed number."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    table: str
    """Where it stands: "Table 1", "Figure 3"."""
    backbone: str
    method: str
    variant: str | None
    """The paper's name of an ablation or a kind of prompting; null for the main rows."""
    benchmark: str
    subset: str
    """Column of the benchmark; "All" for the whole of it."""
    metric: str
    mean: float
    std: float | None
    """As printed after the plus-minus sign; null when there is none."""
    std_ddof_inferred: Literal[0, 1] | None
    """0: population, 1: sample standard deviation, inferred from what counts of successes are possible."""
    source: str
    """"this_paper", or "dagger:" and the paper that the number is quoted from."""
    certainty: Literal["confirmed", "uncertain"]
    reason: str
    """How the value was checked."""
    unit: Literal["percent", "seconds"]

    @property
    def quoted(self) -> bool:
        """Whether the paper quotes this number from another one (and marks it with a dagger)."""
        return self.source.startswith("dagger:")


class Paper(BaseModel):
    """What stands above the cells of one paper."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    paper: str
    arxiv: str
    url: str
    seeds: int = Field(ge=1)
    method: str
    notes: tuple[str, ...]


def papers() -> list[str]:
    """Names of the papers whose numbers are stored."""
    return sorted(
        file.name.removesuffix(".json") for file in files(__package__).iterdir() if file.name.endswith(".json")
    )


def about(paper: str) -> Paper:
    """Title, arXiv number, seeds and notes of one paper.

    Raises:
        ValueError: no such paper is stored.
    """
    return _load(paper)[0]


def published(
    paper: str,
    *,
    env: str | None = None,
    method: str | None = None,
    metric: str | None = None,
    table: str | None = None,
    backbone: str | None = None,
) -> list[Cell]:
    """The printed numbers of a paper; see `select` for the filters.

    Raises:
        ValueError: no such paper is stored.
    """
    return select(_load(paper)[1], env=env, method=method, metric=metric, table=table, backbone=backbone)


def select(
    cells: Iterable[Cell],
    *,
    env: str | None = None,
    method: str | None = None,
    metric: str | None = None,
    table: str | None = None,
    backbone: str | None = None,
) -> list[Cell]:
    """Cells that fit every filter given; upper and lower case are one, so that "webshop" finds "WebShop".

    Args:
        cells: to choose from.
        env: name of the benchmark.
        method: name of the method in the paper.
        metric: "success" or "score", or the paper's own name.
        table: "Table 1".
        backbone: the model that was trained or prompted.
    """
    wanted = {"benchmark": env, "method": method, "table": table, "backbone": backbone}
    filters = {name: value.lower() for name, value in wanted.items() if value is not None}
    metrics = None if metric is None else _METRICS.get(metric, {metric})
    return [
        cell
        for cell in cells
        if all(getattr(cell, name).lower() == value for name, value in filters.items())
        and (metrics is None or cell.metric in metrics)
    ]


@cache
def _load(paper: str) -> tuple[Paper, tuple[Cell, ...]]:
    if paper not in papers():
        raise ValueError(f"no published numbers of {paper!r} are stored; stored: {', '.join(papers())}")
    raw = json.loads(files(__package__).joinpath(f"{paper}.json").read_text(encoding="utf-8"))
    return Paper(**raw["meta"]), tuple(Cell(**cell) for cell in raw["cells"])
