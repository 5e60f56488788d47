"""A comparison of two runs as text."""

from __future__ import annotations

import io
from collections.abc import Sequence

from reports import format as fmt
from reports.notes import designs, footnotes
from results.compare import MetricComparison

_WIDTH = 130


def render_comparison(label_a: str, label_b: str, found: Sequence[MetricComparison], *, width: int = _WIDTH) -> str:
    """One line a metric, then what the numbers mean and where they are weak.

    Args:
        label_a: name of the first run.
        label_b: name of the second.
        found: of `results.compare.compare_runs`.
        width: characters a line.
    """
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{label_a} against {label_b}", title_justify="left", box=SIMPLE_HEAD, title_style="bold")
    heads = (label_a, label_b, "difference", "95% interval", "p", "Holm p", "design", "test", "tasks", "seeds")
    table.add_column("metric", no_wrap=True)
    for head in (*heads, "discordant"):
        table.add_column(head, justify="right", overflow="fold")
    for one in found:
        table.add_row(*_line(one))
    text = io.StringIO()
    console = Console(file=text, width=width, color_system=None)
    console.print(table)
    for note in _remarks(label_a, label_b, found):
        console.print(note, markup=False, highlight=False)
    return text.getvalue()


def _line(one: MetricComparison) -> list[str]:
    scale, c = fmt.factor(one.metric), one.comparison
    return [
        one.metric,
        fmt.number(scale * one.mean_a),
        fmt.number(scale * one.mean_b),
        fmt.signed(scale * c.delta),
        fmt.interval((scale * c.interval[0], scale * c.interval[1])),
        fmt.p_value(c.p),
        fmt.p_value(c.p_holm),
        c.design,
        c.test,
        str(c.n_tasks),
        str(c.n_seeds),
        f"{c.n_discordant}/{c.n_tasks * c.n_seeds}",
    ]


def _remarks(label_a: str, label_b: str, found: Sequence[MetricComparison]) -> list[str]:
    family = ", ".join(one.metric for one in found)
    return [
        f"difference = {label_a} - {label_b}; success and score in percent.",
        f"By {designs(one.comparison for one in found)}.",
        f"Holm's family: the metrics printed ({family}).",
        *footnotes(found),
    ]
