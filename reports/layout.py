"""A table as cells of text, which every format prints."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from reports import format as fmt
from reports.spec import ColumnSpec
from reports.tables import Table, TableCell, TableRow
from results.papers import Cell

NONE = "-"

WIDEST = 9
"""Columns of numbers that stand side by side on a page."""


@dataclass(frozen=True)
class Grid:
    """Headings and cells.

    Attributes:
        groups: heading and number of columns of each group, for the line above `header`; "" for none.
        header: one heading a column.
        rows: cells, as wide as the header.
    """

    groups: tuple[tuple[str, int], ...]
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def heads(self, separator: str) -> list[str]:
        """Headings with their group in front, for formats without a line for the groups."""
        names = [name for name, width in self.groups for _ in range(width)]
        return [f"{group}{separator}{head}".strip() for group, head in zip(names, self.header, strict=True)]


def values_grids(table: Table) -> list[Grid]:
    """The table in as few grids as keep at most WIDEST columns of numbers, each of one environment."""
    parts = len(_parts(table))
    grids = []
    for env in table.spec.envs:
        columns = [column for column in table.spec.columns if table.spec.env_of(column) == env]
        pieces = -(-len(columns) * parts // WIDEST)
        ends = [len(columns) * piece // pieces for piece in range(pieces + 1)]
        grids += [values_grid(table, columns[start:end]) for start, end in itertools.pairwise(ends)]
    return grids


def values_grid(table: Table, columns: Sequence[ColumnSpec] | None = None) -> Grid:
    """Methods down; for each metric the measured value, the published ones and the gap.

    Args:
        table: of `reports.tables.build_table`.
        columns: those to show; all by default.
    """
    part, shown = _parts(table), table.spec.columns if columns is None else columns
    places = [place for place, column in enumerate(table.spec.columns) if column in shown]
    return Grid(
        groups=(("", 1), *((column.label, len(part)) for column in shown)),
        header=("Method", *(part * len(shown))),
        rows=tuple(
            (row.spec.label, *(text for place in places for text in _value_texts(row.cells[place])))
            for row in table.rows
        ),
    )


def comparisons_grid(table: Table) -> Grid | None:
    """One line a comparison with the reference; None when there is nothing to compare."""
    rows = tuple(
        _comparison_texts(row, column.label, cell)
        for row in table.rows
        for column, cell in zip(table.spec.columns, row.cells, strict=True)
        if cell.found
    )
    header = (
        f"Against {table.reference.spec.label}",
        "metric",
        "difference",
        "95% interval",
        "p",
        "Holm p",
        "design",
        "test",
        "tasks",
        "seeds",
        "discordant",
    )
    return Grid((("", len(header)),), header, rows) if rows else None


def published_text(cell: Cell | None) -> str:
    """The printed value; a dagger only where the paper quotes it, a question mark where the reading is uncertain."""
    if cell is None:
        return NONE
    doubt = "?" if cell.certainty == "uncertain" else ""
    return fmt.mean_sd(cell.mean, cell.std) + ("†" if cell.quoted else "") + doubt


def _parts(table: Table) -> tuple[str, ...]:
    headings = [f"published {heading}" for heading in table.spec.backbones.values()]
    return ("measured", *headings, "gap") if headings else ("measured",)


def _value_texts(cell: TableCell) -> list[str]:
    texts = [_measured_text(cell)]
    if cell.published:
        texts += [published_text(value) for value in cell.published.values()]
        texts.append(_gap_text(cell))
    return texts


def _measured_text(cell: TableCell) -> str:
    if cell.measured is None:
        return "not run"
    return fmt.mean_sd(cell.measured.mean, cell.measured.sd) + ("*" if cell.significant else "")


def _gap_text(cell: TableCell) -> str:
    if cell.gap is not None:
        return fmt.signed(cell.gap)
    return "not comparable" if cell.run and not cell.run.comparable else NONE


def _comparison_texts(row: TableRow, label: str, cell: TableCell) -> tuple[str, ...]:
    if cell.found is None:
        raise ValueError(f"{row.spec.label} was not compared in {label}")
    scale, c = fmt.factor(cell.found.metric), cell.found.comparison
    return (
        row.spec.label,
        label,
        fmt.signed(scale * c.delta),
        fmt.interval((scale * c.interval[0], scale * c.interval[1])),
        fmt.p_value(c.p),
        fmt.p_value(c.p_holm) + ("*" if cell.significant else ""),
        c.design,
        c.test,
        str(c.n_tasks),
        str(c.n_seeds),
        f"{c.n_discordant}/{c.n_tasks * c.n_seeds}",
    )
