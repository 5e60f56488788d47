"""A table in the four formats: terminal, Markdown, CSV and LaTeX."""

from __future__ import annotations

import csv
import io
from typing import Literal

from reports.caption import caption, notes
from reports.format import factor
from reports.layout import Grid, comparisons_grid, values_grids
from reports.tables import Table, TableCell
from reports.text import WIDTH, paragraph, said_once, side_by_side, text_table
from results.papers import Cell

Format = Literal["terminal", "markdown", "csv", "latex"]

ONE_DESIGN = ("design", "test", "tasks", "seeds")
"""Columns of comparisons that are mostly the same in every row."""


def render(table: Table, fmt: Format, *, width: int = WIDTH) -> str:
    """The table as text.

    Args:
        table: of `reports.tables.build_table`.
        fmt: "terminal", "markdown", "csv" (one line a number, unrounded) or "latex" (booktabs).
        width: characters a line, for the terminal.

    Raises:
        ValueError: another format.
    """
    if fmt == "terminal":
        return _terminal(table, width)
    if fmt == "markdown":
        return _markdown(table)
    if fmt == "csv":
        return _csv(table)
    if fmt == "latex":
        from reports.latex import render_latex

        return render_latex(table)
    raise ValueError(f"unknown format {fmt!r}; known: terminal, markdown, csv, latex")


def _grids(table: Table) -> list[Grid]:
    compared = comparisons_grid(table)
    return [*values_grids(table), *([compared] if compared else [])]


def _terminal(table: Table, width: int) -> str:
    parts = []
    for grid in values_grids(table):
        groups = [size for _, size in grid.groups[1:]]
        pieces = side_by_side(grid.heads("\n"), grid.rows, groups, width=width)
        parts += [text_table(header, rows, width=width) for header, rows in pieces]
    remarks = [caption(table), *notes(table)]
    if compared := comparisons_grid(table):
        header, rows, told = said_once(compared.header, compared.rows, ONE_DESIGN, width=width)
        parts.append(text_table(header, rows, width=width))
        remarks = [told, *remarks] if told else remarks
    parts.append("".join(f"{paragraph(remark, width=width)}\n" for remark in remarks))
    return "\n".join(parts)


def _markdown(table: Table) -> str:
    parts = [_plain(caption(table)), *(_markdown_grid(grid) for grid in _grids(table))]
    if remarks := notes(table):
        parts.append("\n".join(f"- {_plain(note)}" for note in remarks))
    return "\n\n".join(parts) + "\n"


def _markdown_grid(grid: Grid) -> str:
    rule = [":--", *["--:"] * (len(grid.header) - 1)]
    lines = [grid.heads(" "), rule, *([_plain(text) for text in row] for row in grid.rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _plain(text: str) -> str:
    """Text whose asterisks and bars mean themselves."""
    return text.replace("|", r"\|").replace("*", r"\*").replace("<", "&lt;")


_CSV_COLUMNS = (
    "row",
    "method",
    "env",
    "metric",
    "subset",
    "tasks",
    "seeds",
    "measured_mean",
    "measured_sd",
    "published_model",
    "published_mean",
    "published_sd",
    "published_source",
    "published_certainty",
    "gap",
    "not_comparable",
    "reference",
    "difference",
    "low",
    "high",
    "p",
    "p_holm",
    "design",
    "test",
    "discordant",
)


def _csv(table: Table) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, _CSV_COLUMNS, lineterminator="\n")
    writer.writeheader()
    for row in table.rows:
        for column, cell in zip(table.spec.columns, row.cells, strict=True):
            place = {
                "row": row.spec.key,
                "method": row.spec.method,
                "env": table.spec.env_of(column),
                "metric": column.metric,
                "subset": column.subset,
            }
            values: list[Cell | None] = [value for value in cell.published.values() if value]
            for value in values or [None]:
                writer.writerow(
                    place | _csv_measured(cell) | _csv_published(cell, value) | _csv_p(table, cell)
                )
    return text.getvalue()


def _csv_measured(cell: TableCell) -> dict[str, object]:
    if cell.measured is None:
        return {}
    m = cell.measured
    reason = "" if cell.run is None or cell.run.comparable else cell.run.reason
    return {
        "tasks": m.n_tasks,
        "seeds": m.n_seeds,
        "measured_mean": m.mean,
        "measured_sd": m.sd,
        "not_comparable": reason,
    }


def _csv_published(cell: TableCell, value: Cell | None) -> dict[str, object]:
    if value is None:
        return {}
    beside = cell.run is not None and cell.run.backbone == value.backbone
    return {
        "published_model": value.backbone,
        "published_mean": value.mean,
        "published_sd": value.std,
        "published_source": f"{value.table}, {value.source}",
        "published_certainty": value.certainty,
        "gap": cell.gap if beside else None,
    }


def _csv_p(table: Table, cell: TableCell) -> dict[str, object]:
    """The comparison, in percent as the values beside it, not rounded."""
    if cell.found is None:
        return {}
    c, scale = cell.found.comparison, factor(cell.found.metric)
    return {
        "reference": table.spec.reference,
        "difference": scale * c.delta,
        "low": scale * c.interval[0],
        "high": scale * c.interval[1],
        "p": c.p,
        "p_holm": c.p_holm,
        "design": c.design,
        "test": c.test,
        "discordant": c.n_discordant,
    }
