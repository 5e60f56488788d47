"""Rows of two runs laid out as the two score arrays of a paired comparison."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

_NAMED = 5
"""How many tasks or pairs an error names before it counts the rest."""


class Row(Protocol):
    """What `align` reads of a stored row (`results.records.EpisodeRow` has it)."""

    @property
    def task(self) -> str: ...
    @property
    def group(self) -> str | None: ...
    @property
    def seed(self) -> int: ...
    @property
    def iteration(self) -> int: ...
    @property
    def status(self) -> str: ...


class AlignmentError(ValueError):
    """Two sets of rows that cannot be paired; the message names what is missing and on which side."""


@dataclass(frozen=True)
class Aligned:
    """Two sides of a comparison, in the order of sorted task ids and seeds.

    Attributes:
        a: values of the first side, shape [tasks, seeds].
        b: values of the second side, same shape.
        tasks: task ids, one a row.
        seeds: seeds, one a column.
        groups: cluster key of each task; None where no task has one.
        excluded: tasks left out on both sides because a pair was incomplete; empty unless that was asked for.
    """

    a: NDArray[np.float64]
    b: NDArray[np.float64]
    tasks: tuple[str, ...]
    seeds: tuple[int, ...]
    groups: tuple[str | None, ...] | None
    excluded: tuple[str, ...] = ()


def align(
    rows_a: Iterable[Row], rows_b: Iterable[Row], metric: str = "success", *, exclude_incomplete: bool = False
) -> Aligned:
    """Pair the rows of two runs by task and seed.

    Args:
        rows_a: one row for each task and seed of the first run, at one iteration.
        rows_b: the same of the second run.
        metric: attribute of a row that is compared: "success", "score", "reward", "steps".
        exclude_incomplete: drop a task on both sides when any of its pairs is missing or has no verdict, instead of
            refusing; what was dropped is listed in `Aligned.excluded`.

    Raises:
        AlignmentError: different tasks, seeds or groups, missing rows, rows without a verdict, rows of several
            iterations, or two rows for one task and seed; the first few are named.
    """
    sides = {"a": _Side.of("a", rows_a, metric), "b": _Side.of("b", rows_b, metric)}
    seeds = _same_seeds(sides["a"], sides["b"])
    tasks = sorted(sides["a"].groups.keys() | sides["b"].groups.keys())
    gaps = [gap for side in sides.values() for gap in side.gaps(tasks, seeds)]
    if gaps and not exclude_incomplete:
        raise AlignmentError(
            f"{_listed([gap.text for gap in gaps])}; finish the run (the same command resumes) or compare with "
            "--exclude-incomplete, which drops these tasks on both sides"
        )
    excluded = sorted({gap.task for gap in gaps})
    kept = [task for task in tasks if task not in set(excluded)]
    if not kept:
        raise AlignmentError(f"no task is complete on both sides; excluded: {_listed(excluded)}")
    return Aligned(
        a=sides["a"].matrix(kept, seeds),
        b=sides["b"].matrix(kept, seeds),
        tasks=tuple(kept),
        seeds=seeds,
        groups=_same_groups(sides["a"], sides["b"], kept),
        excluded=tuple(excluded),
    )


@dataclass(frozen=True)
class _Gap:
    task: str
    text: str


@dataclass(frozen=True)
class _Side:
    name: str
    values: Mapping[tuple[str, int], float | None]
    statuses: Mapping[tuple[str, int], str]
    groups: Mapping[str, str | None]

    @classmethod
    def of(cls, name: str, rows: Iterable[Row], metric: str) -> _Side:
        values: dict[tuple[str, int], float | None] = {}
        statuses: dict[tuple[str, int], str] = {}
        groups: dict[str, str | None] = {}
        iterations = set()
        for row in rows:
            pair = (row.task, row.seed)
            iterations.add(row.iteration)
            if pair in values and len(iterations) == 1:
                raise AlignmentError(f"side {name}: two rows for task {row.task!r}, seed {row.seed}")
            value = getattr(row, metric)
            values[pair] = None if value is None else float(value)
            statuses[pair] = str(row.status)
            groups[row.task] = row.group
        if not values:
            raise AlignmentError(f"side {name} has no rows")
        if len(iterations) > 1:
            raise AlignmentError(f"side {name} has rows of iterations {sorted(iterations)}; pick one (--iteration)")
        return cls(name, values, statuses, groups)

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(sorted({seed for _, seed in self.values}))

    def gaps(self, tasks: Sequence[str], seeds: Sequence[int]) -> list[_Gap]:
        """Pairs without a value, absent tasks first, each worded once."""
        absent = [_Gap(task, f"side {self.name}: task {task!r} missing") for task in tasks if task not in self.groups]
        incomplete = [
            _Gap(task, f"side {self.name}: task {task!r}, seed {seed} {self._fault((task, seed))}")
            for task in tasks
            if task in self.groups
            for seed in seeds
            if self.values.get((task, seed)) is None
        ]
        return absent + incomplete

    def _fault(self, pair: tuple[str, int]) -> str:
        return f"has no verdict ({self.statuses[pair]})" if pair in self.values else "missing"

    def matrix(self, tasks: Sequence[str], seeds: Sequence[int]) -> NDArray[np.float64]:
        return np.array([[self.values[task, seed] for seed in seeds] for task in tasks], dtype=np.float64)


def _same_seeds(a: _Side, b: _Side) -> tuple[int, ...]:
    if a.seeds != b.seeds:
        raise AlignmentError(
            f"side a has seeds {list(a.seeds)}, side b {list(b.seeds)}; run the missing ones (--seeds extends a run)"
        )
    return a.seeds


def _same_groups(a: _Side, b: _Side, tasks: Sequence[str]) -> tuple[str | None, ...] | None:
    differing = [task for task in tasks if a.groups[task] != b.groups[task]]
    if differing:
        raise AlignmentError(f"the sides put these tasks in different groups: {_listed(differing)}")
    groups = tuple(a.groups[task] for task in tasks)
    return None if all(group is None for group in groups) else groups


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return "; ".join(names[:_NAMED]) + more
