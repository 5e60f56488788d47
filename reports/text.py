"""Tables of plain text that fit a terminal: nothing is cut off, what does not fit is folded or said once."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Collection, Sequence

WIDTH = 80
"""Characters a line: what every terminal shows and every mail keeps."""

_GAP = 2
_NARROWEST = 8
"""Characters that the first column is folded down to, if need be."""


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]], *, width: int = WIDTH) -> str:
    """Columns under a rule, the first one flush left, the others flush right.

    Headings are folded to the width of their cells, and the first column to what is left; the other cells never are, so
    a table of many columns is wider than `width`.

    Args:
        header: one heading a column; a line break in it stays.
        rows: cells, as many as the header has.
        width: characters a line.
    """
    widths = _widths(header, rows)
    for place, head in enumerate(header):  # a heading is folded only where that makes room
        unfolded = max(widths[place], *map(len, head.split("\n")))
        if _total(widths) - widths[place] + unfolded <= width:
            widths[place] = unfolded
    widths[0] = max(min(widths[0], width - _total(widths[1:]) - _GAP), min(widths[0], _NARROWEST))
    heads = [_fold(head, size) for head, size in zip(header, widths, strict=True)]
    tallest = max(map(len, heads))
    heads = [[""] * (tallest - len(lines)) + lines for lines in heads]
    body = [line for row in rows for line in _lines([_fold(row[0], widths[0]), *([cell] for cell in row[1:])], widths)]
    return "\n".join([*_lines(heads, widths), "─" * _total(widths), *body]) + "\n"


def said_once(
    header: Sequence[str], rows: Sequence[Sequence[str]], names: Collection[str], *, width: int = WIDTH
) -> tuple[list[str], list[list[str]], str]:
    """A table that is too wide without those of its named columns that are the same in every row, and a sentence.

    Args:
        header: one heading a column.
        rows: cells.
        names: headings of columns that may be taken out.
        width: characters a line; a table that fits stays as it is.

    Returns:
        Header, rows, and what the columns taken out say; "" for none.
    """
    same = [k for k, head in enumerate(header) if head in names and len({row[k] for row in rows}) == 1]
    if _total(_widths(header, rows)) <= width or not same:
        return list(header), [list(row) for row in rows], ""
    told = ", ".join(f"{header[k]} {rows[0][k]}" for k in same)
    kept = [k for k in range(len(header)) if k not in same]
    sentence = f"In every row: {told}." if len(rows) > 1 else f"{told[0].upper()}{told[1:]}."
    return *_columns(header, rows, kept), sentence


def side_by_side(
    header: Sequence[str], rows: Sequence[Sequence[str]], groups: Sequence[int], *, width: int = WIDTH
) -> list[tuple[list[str], list[list[str]]]]:
    """A table in as few as fit the width, each with the first column and whole groups of the others.

    Args:
        header: one heading a column.
        rows: cells.
        groups: number of columns of each group, in order; they and the first column are all columns.
        width: characters a line.
    """
    pieces: list[list[int]] = []
    start = 1
    for size in groups:
        group = list(range(start, start + size))
        start += size
        if pieces and _total(_widths(*_columns(header, rows, [*pieces[-1], *group]))) <= width:
            pieces[-1] += group
        else:
            pieces.append([0, *group])
    return [_columns(header, rows, piece) for piece in pieces]


def paragraph(text: str, *, width: int = WIDTH) -> str:
    """A sentence or more, folded between words; a path is never broken."""
    return textwrap.fill(text, width, break_long_words=False, break_on_hyphens=False)


def _columns(
    header: Sequence[str], rows: Sequence[Sequence[str]], chosen: Sequence[int]
) -> tuple[list[str], list[list[str]]]:
    return [header[k] for k in chosen], [[row[k] for k in chosen] for row in rows]


def _widths(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    """Of each column: its widest cell, or the longest part of its heading."""
    return [
        max(max((len(part) for part in re.split(r"\s|(?<=-)", head)), default=0), *(len(row[k]) for row in rows), 1)
        for k, head in enumerate(header)
    ]


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + _GAP * (len(widths) - 1)


def _fold(text: str, width: int) -> list[str]:
    return [line for part in text.split("\n") for line in textwrap.wrap(part, width) or [""]]


def _lines(cells: Sequence[Sequence[str]], widths: Sequence[int]) -> list[str]:
    """The lines of one row whose cells hold several."""
    made = []
    for place in range(max(map(len, cells))):
        parts = [lines[place] if place < len(lines) else "" for lines in cells]
        numbers = [part.rjust(size) for part, size in zip(parts[1:], widths[1:], strict=True)]
        made.append((" " * _GAP).join([parts[0].ljust(widths[0]), *numbers]).rstrip())
    return made
