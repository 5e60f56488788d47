"""A table as cells of text, which every format prints."""

from __future__ import annotations

from dataclasses import dataclass

from reports import format as fmt
from reports.tables import Table, TableCell, TableRow
from results.papers import Cell

NONE = "-"


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


def values_grid(table: Table) -> Grid:
    """Methods down; for each metric the measured value, the published ones and the gap."""
    headings = [f"published {heading}" for heading in table.spec.backbones.values()]
    part = ("measured", *headings, "gap") if headings else ("measured",)
    return Grid(
        groups=(("", 1), *((column.label, len(part)) for column in table.spec.columns)),
        header=("Method", *(part * len(table.spec.columns))),
        rows=tuple(
            (row.spec.label, *(text for cell in row.cells for text in _value_texts(row, cell))) for row in table.rows
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


def _value_texts(row: TableRow, cell: TableCell) -> list[str]:
    texts = [_measured_text(cell)]
    if cell.published:
        texts += [published_text(value) for value in cell.published.values()]
        texts.append(_gap_text(row, cell))
    return texts


def _measured_text(cell: TableCell) -> str:
    if cell.measured is None:
        return "not run"
    return fmt.mean_sd(cell.measured.mean, cell.measured.sd) + ("*" if cell.significant else "")


def _gap_text(row: TableRow, cell: TableCell) -> str:
    if cell.gap is not None:
        return fmt.signed(cell.gap)
    return "not comparable" if row.run and not row.run.comparable else NONE


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
