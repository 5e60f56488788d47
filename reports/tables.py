"""Significance tables: what was measured, what was published, and what may be said of the difference.

table = build_table(load_spec("webshop"), runs, published("strata"))
print(render(table, "markdown"))        # reports.render
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from reports.format import factor
from reports.spec import ColumnSpec, RowSpec, TableSpec
from results.compare import Coupling, MetricComparison, at_iteration, check_sides, compare_metric, correct
from results.papers import Cell, select
from results.records import EpisodeRow
from results.statistics import align

LEVEL = 0.05
"""A row is marked when its Holm p is below this."""


@dataclass(frozen=True)
class RunRows:
    """One run as a table takes it.

    Attributes:
        label: what the user calls it, for errors and the list of runs: the run's folder.
        method: name of the method.
        coupling: what one seed of it is.
        rows: as `read_rows` returns them; the last iteration counts.
        comparable: model, scale, environment data and task list are those of the published row.
        reason: why not, in words: "mini policy, embedded data"; needed when it is not comparable.
        backbone: the model, by the paper's name, when comparable.
        starting_policy: name of the shipped policy that training started from; None when there is none.
    """

    label: str
    method: str
    coupling: Coupling
    rows: Sequence[EpisodeRow]
    comparable: bool = False
    reason: str = "mini policy, embedded data"
    backbone: str | None = None
    starting_policy: str | None = None


@dataclass(frozen=True)
class Measured:
    """Mean over seeds of the means over tasks, in printed units; sd over seeds with ddof 1, None for one seed."""

    mean: float
    sd: float | None
    n_tasks: int
    n_seeds: int


@dataclass(frozen=True)
class TableCell:
    """One method in one metric.

    Attributes:
        measured: None when the method was not run.
        published: the paper's value under each backbone heading, None where it prints none.
        gap: measured minus published, only for a comparable run, in printed units.
        found: comparison with the reference row (this row minus the reference); None for the reference itself.
    """

    measured: Measured | None
    published: dict[str, Cell | None]
    gap: float | None
    found: MetricComparison | None

    @property
    def significant(self) -> bool:
        p = self.found.comparison.p_holm if self.found else None
        return p is not None and p < LEVEL


@dataclass(frozen=True)
class TableRow:
    """One method; `run` is None when it was not run."""

    spec: RowSpec
    run: RunRows | None
    cells: tuple[TableCell, ...]


@dataclass(frozen=True)
class Table:
    """Everything a renderer needs; `reports.caption` words caption and notes.

    Attributes:
        spec: what was asked for.
        rows: one a method, in the order of the specification.
        excluded: tasks left out for all methods, where that was asked for.
    """

    spec: TableSpec
    rows: tuple[TableRow, ...]
    excluded: tuple[str, ...]

    @property
    def reference(self) -> TableRow:
        return next(row for row in self.rows if row.spec.method == self.spec.reference)

    @property
    def family(self) -> list[MetricComparison]:
        """All comparisons printed: the family of Holm's correction."""
        return [cell.found for row in self.rows for cell in row.cells if cell.found]

    @property
    def runs(self) -> list[RunRows]:
        return [row.run for row in self.rows if row.run]


def build_table(
    spec: TableSpec,
    runs: Iterable[RunRows],
    published: Sequence[Cell] = (),
    *,
    resamples: int = 10_000,
    seed: int = 0,
    exclude_incomplete: bool = False,
) -> Table:
    """Lay runs out as a specification says and compare each with the reference row.

    Args:
        spec: of the table.
        runs: at most one a method; methods without a run keep their published values.
        published: cells of the specification's paper (`results.papers.published`).
        resamples: bootstrap resamples, where the design uses any.
        seed: of the resampling.
        exclude_incomplete: leave out, for all methods, tasks that are incomplete for one.

    Raises:
        ValueError: several runs of a method, or a run of a method that the table has no row for.
        AlignmentError: runs of another environment, on different data, tasks or seeds, or with missing verdicts.
    """
    by_method = _by_method(spec, runs)
    rows_of, excluded = _common_tasks(spec, list(by_method.values()), exclude_incomplete)
    found = _compare_all(spec, by_method, rows_of, resamples, seed)
    rows = []
    for row in spec.rows:
        run = by_method.get(row.method)
        cells = tuple(
            _cell(spec, row, column, run, rows_of.get(row.method, []), published, found.get((row.method, column)))
            for column in spec.columns
        )
        rows.append(TableRow(row, run, cells))
    return Table(spec, tuple(rows), excluded)


def _by_method(spec: TableSpec, runs: Iterable[RunRows]) -> dict[str, RunRows]:
    known = {row.method for row in spec.rows}
    by_method: dict[str, RunRows] = {}
    for run in runs:
        if run.method not in known:
            raise ValueError(f"table {spec.name!r} has no row for method {run.method!r} of run {run.label}")
        if run.method in by_method:
            both = f"{by_method[run.method].label} and {run.label}"
            raise ValueError(f"two runs of method {run.method!r}: {both}; name the one to print")
        by_method[run.method] = run
    return by_method


def _common_tasks(
    spec: TableSpec, runs: Sequence[RunRows], exclude_incomplete: bool
) -> tuple[dict[str, list[EpisodeRow]], tuple[str, ...]]:
    """Rows of each method after its last iteration, over the same tasks and seeds; and the tasks left out."""
    rows_of = {run.method: at_iteration(run.rows, None) for run in runs}
    excluded: set[str] = set()
    for run in runs:
        if wrong := {row.env for row in run.rows} - {spec.env}:
            raise ValueError(f"run {run.label} is of {', '.join(wrong)}; table {spec.name!r} shows {spec.env}")
        first, rows = rows_of[runs[0].method], rows_of[run.method]
        try:
            check_sides(first, rows)
            excluded.update(align(first, rows, exclude_incomplete=exclude_incomplete).excluded)
        except ValueError as error:
            raise type(error)(f"{runs[0].label} (side a) and {run.label} (side b): {error}") from error
    kept = {method: [row for row in rows if row.task not in excluded] for method, rows in rows_of.items()}
    return kept, tuple(sorted(excluded))


def _compare_all(
    spec: TableSpec,
    by_method: dict[str, RunRows],
    rows_of: dict[str, list[EpisodeRow]],
    resamples: int,
    seed: int,
) -> dict[tuple[str, ColumnSpec], MetricComparison]:
    """Every method in every column against the reference, corrected together; none without the reference's run."""
    reference = by_method.get(spec.reference)
    if reference is None:
        return {}
    places = [
        (row.method, column)
        for row in spec.rows
        if row.method in by_method and row.method != spec.reference
        for column in spec.columns
    ]
    found = [
        compare_metric(
            _subset(rows_of[method], column),
            _subset(rows_of[spec.reference], column),
            column.metric,
            coupled={by_method[method].coupling, reference.coupling} != {"independent"},
            resamples=resamples,
            seed=seed,
        )
        for method, column in places
    ]
    return dict(zip(places, correct(found), strict=True))


def _cell(
    spec: TableSpec,
    row: RowSpec,
    column: ColumnSpec,
    run: RunRows | None,
    rows: Sequence[EpisodeRow],
    published: Sequence[Cell],
    found: MetricComparison | None,
) -> TableCell:
    values = {backbone: _published(spec, row, column, backbone, published) for backbone in spec.backbones}
    measured = _measure(_subset(rows, column), column.metric) if run else None
    beside = values.get(run.backbone) if run and run.comparable and run.backbone else None
    gap = measured.mean - beside.mean if measured and beside else None
    return TableCell(measured, values, gap, found)


def _published(
    spec: TableSpec, row: RowSpec, column: ColumnSpec, backbone: str, published: Sequence[Cell]
) -> Cell | None:
    """The one main-row cell of the paper at this place.

    Raises:
        ValueError: the paper prints several (an ablation), which a table of methods cannot show.
    """
    fitting = [
        cell
        for cell in select(
            published,
            env=spec.env,
            method=row.published_name,
            metric=column.metric,
            table=spec.table,
            backbone=backbone,
        )
        if cell.subset.lower() == column.subset.lower()
    ]
    if len(fitting) > 1:
        raise ValueError(
            f"{spec.table} prints {len(fitting)} values of {row.published_name} ({column.label}, {backbone}): "
            f"variants {', '.join(str(cell.variant) for cell in fitting)}; a table of methods shows one"
        )
    return fitting[0] if fitting else None


def _subset(rows: Sequence[EpisodeRow], column: ColumnSpec) -> list[EpisodeRow]:
    """Rows of the column's tasks.

    Raises:
        ValueError: no row is of that subset.
    """
    if column.subset == "All":
        return list(rows)
    found = [row for row in rows if row.subset == column.subset]
    if rows and not found:
        raise ValueError(f"no task of subset {column.subset!r}; the rows have {sorted({str(r.subset) for r in rows})}")
    return found


def _measure(rows: Sequence[EpisodeRow], metric: str) -> Measured:
    values = align(rows, rows, metric).a * factor(metric)
    by_seed = values.mean(axis=0)
    n_tasks, n_seeds = values.shape
    sd = float(np.std(by_seed, ddof=1)) if n_seeds > 1 else None
    return Measured(float(by_seed.mean()), sd, n_tasks, n_seeds)
