"""Significance tables: what was measured, what was published, and what may be said of the difference.

table = build_table(load_spec("webshop"), runs, published("strata"))
print(render(table, "markdown"))        # reports.render
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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

Place = tuple[str, str]
"""Name of a row and an environment: where a run stands."""


@dataclass(frozen=True)
class RunRows:
    """One run as a table takes it.

    Attributes:
        label: what the user calls it, for errors and the list of runs: the run's folder.
        method: name of the method.
        coupling: what one seed of it is.
        rows: as `read_rows` returns them, of one environment; the last iteration counts.
        comparable: model, scale, environment data and task list are those of the published row.
        reason: why not, in words: "mini policy, embedded data"; needed when it is not comparable.
        backbone: the model, by the paper's name, when comparable.
        starting_policy: name of the shipped policy that training started from; None when there is none.
        row: name of its row in the table; None is the method's only row.
    """

    label: str
    method: str
    coupling: Coupling
    rows: Sequence[EpisodeRow]
    comparable: bool = False
    reason: str = "mini policy, embedded data"
    backbone: str | None = None
    starting_policy: str | None = None
    row: str | None = None

    @property
    def env(self) -> str | None:
        """Environment of the rows; None of a run without rows."""
        return self.rows[0].env if self.rows else None


@dataclass(frozen=True)
class Measured:
    """Mean over seeds of the means over tasks, in printed units; sd over seeds with ddof 1, None for one seed."""

    mean: float
    sd: float | None
    n_tasks: int
    n_seeds: int


@dataclass(frozen=True)
class TableCell:
    """One row in one column.

    Attributes:
        run: what was measured in the column's environment; None when it was not run there.
        measured: None when it was not run.
        published: the paper's value under each backbone heading, None where it prints none.
        gap: measured minus published, only for a comparable run, in printed units.
        found: comparison with the reference row (this row minus the reference); None for the reference itself.
    """

    run: RunRows | None
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
    """One method or variant, with a cell a column; `runs` are by environment, and leave out where it was not run."""

    spec: RowSpec
    runs: Mapping[str, RunRows]
    cells: tuple[TableCell, ...]


@dataclass(frozen=True)
class Table:
    """Everything a renderer needs; `reports.caption` words caption and notes.

    Attributes:
        spec: what was asked for.
        rows: one a method or variant, in the order of the specification.
        excluded: tasks left out for all rows, where that was asked for.
        remarks: sentences of the caller that go below the table: what is stored and not shown, how to make the rest.
    """

    spec: TableSpec
    rows: tuple[TableRow, ...]
    excluded: tuple[str, ...]
    remarks: tuple[str, ...] = ()

    @property
    def reference(self) -> TableRow:
        return next(row for row in self.rows if row.spec.key == self.spec.reference)

    @property
    def family(self) -> list[MetricComparison]:
        """All comparisons printed: the family of Holm's correction."""
        return [cell.found for row in self.rows for cell in row.cells if cell.found]

    @property
    def runs(self) -> list[RunRows]:
        """Every run shown, once: one run may stand in several rows."""
        return list({run.label: run for row in self.rows for run in row.runs.values()}.values())


def build_table(
    spec: TableSpec,
    runs: Iterable[RunRows],
    published: Sequence[Cell] = (),
    *,
    resamples: int = 10_000,
    seed: int = 0,
    exclude_incomplete: bool = False,
    remarks: Sequence[str] = (),
) -> Table:
    """Lay runs out as a specification says and compare each with the reference row.

    Args:
        spec: of the table.
        runs: at most one a row and environment; rows without a run keep their published values.
        published: cells of the specification's paper (`results.papers.published`).
        resamples: bootstrap resamples, where the design uses any.
        seed: of the resampling.
        exclude_incomplete: leave out, for all rows, tasks that are incomplete for one.
        remarks: sentences to print below the table.

    Raises:
        ValueError: several runs of a row, a run that the table has no row for, or of another environment.
        AlignmentError: runs on different data, tasks or seeds, or with missing verdicts.
    """
    at = _placed(spec, runs)
    rows_of, excluded = _common_tasks(spec, at, exclude_incomplete)
    found = _compare_all(spec, at, rows_of, resamples, seed)
    rows = []
    for row in spec.rows:
        cells = []
        for column in spec.columns:
            place = (row.key, spec.env_of(column))
            compared = found.get((row.key, column))
            cells.append(_cell(spec, row, column, at.get(place), rows_of.get(place, []), published, compared))
        rows.append(TableRow(row, {env: at[row.key, env] for env in spec.envs if (row.key, env) in at}, tuple(cells)))
    return Table(spec, tuple(rows), excluded, tuple(remarks))


def _placed(spec: TableSpec, runs: Iterable[RunRows]) -> dict[Place, RunRows]:
    """Runs by row and environment."""
    at: dict[Place, RunRows] = {}
    for run in runs:
        fitting = [row.key for row in spec.rows if row.method == run.method and run.row in (None, row.key)]
        if not fitting:
            raise ValueError(f"table {spec.name!r} has no row for method {run.method!r} of run {run.label}")
        if len(fitting) > 1:
            raise ValueError(f"run {run.label} may be any of the rows {', '.join(fitting)}; say which")
        if run.env is not None and run.env not in spec.envs:
            raise ValueError(f"run {run.label} is of {run.env}; table {spec.name!r} shows {', '.join(spec.envs)}")
        place = (fitting[0], run.env or spec.env)
        if place in at:
            both = f"{at[place].label} and {run.label}"
            raise ValueError(f"two runs of row {fitting[0]!r}: {both}; name the one to print")
        at[place] = run
    return at


def _common_tasks(
    spec: TableSpec, at: Mapping[Place, RunRows], exclude_incomplete: bool
) -> tuple[dict[Place, list[EpisodeRow]], tuple[str, ...]]:
    """Rows of each run after its last iteration, in one environment over the same tasks and seeds; and the tasks left
    out."""
    kept: dict[Place, list[EpisodeRow]] = {}
    left_out: set[str] = set()
    for env in spec.envs:
        rows_of = {place: at_iteration(run.rows, None) for place, run in at.items() if place[1] == env}
        excluded: set[str] = set()
        for place, rows in rows_of.items():
            first = next(iter(rows_of))
            try:
                check_sides(rows_of[first], rows)
                excluded.update(align(rows_of[first], rows, exclude_incomplete=exclude_incomplete).excluded)
            except ValueError as error:
                sides = f"{at[first].label} (side a) and {at[place].label} (side b)"
                raise type(error)(f"{sides}: {error}") from error
        kept |= {place: [row for row in rows if row.task not in excluded] for place, rows in rows_of.items()}
        left_out |= excluded
    return kept, tuple(sorted(left_out))


def _compare_all(
    spec: TableSpec,
    at: Mapping[Place, RunRows],
    rows_of: Mapping[Place, Sequence[EpisodeRow]],
    resamples: int,
    seed: int,
) -> dict[tuple[str, ColumnSpec], MetricComparison]:
    """Every row in every column against the reference, corrected together; none where the reference was not run."""
    places = [
        (row.key, column)
        for row in spec.rows
        for column in spec.columns
        if row.key != spec.reference and all((key, spec.env_of(column)) in at for key in (row.key, spec.reference))
    ]
    found = []
    for key, column in places:
        one, reference = (key, spec.env_of(column)), (spec.reference, spec.env_of(column))
        found.append(
            compare_metric(
                _subset(rows_of[one], column),
                _subset(rows_of[reference], column),
                column.metric,
                coupled={at[one].coupling, at[reference].coupling} != {"independent"},
                resamples=resamples,
                seed=seed,
            )
        )
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
    return TableCell(run, measured, values, gap, found)


def _published(
    spec: TableSpec, row: RowSpec, column: ColumnSpec, backbone: str, published: Sequence[Cell]
) -> Cell | None:
    """The one cell of the paper at this place.

    Raises:
        ValueError: the paper prints several (an ablation), and the row does not say which variant it is.
    """
    fitting = [
        cell
        for cell in select(
            published,
            env=spec.env_of(column),
            method=row.published_name,
            metric=column.metric,
            table=spec.table,
            backbone=backbone,
        )
        if cell.subset.lower() == column.subset.lower() and row.variant in (None, cell.variant)
    ]
    if len(fitting) > 1:
        raise ValueError(
            f"{spec.table} prints {len(fitting)} values of {row.published_name} ({column.label}, {backbone}): "
            f"variants {', '.join(str(cell.variant) for cell in fitting)}; the row's `variant` says which"
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
