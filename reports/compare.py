"""A comparison of two runs as text."""

from __future__ import annotations

from collections.abc import Sequence

from reports import format as fmt
from reports.notes import designs, footnotes
from reports.text import WIDTH, paragraph, said_once, text_table
from results.compare import MetricComparison

_ONE_DESIGN = ("design", "test", "tasks", "seeds")


def render_comparison(label_a: str, label_b: str, found: Sequence[MetricComparison], *, width: int = WIDTH) -> str:
    """One line a metric, then what the numbers mean and where they are weak.

    Args:
        label_a: name of the first run.
        label_b: name of the second.
        found: of `results.compare.compare_runs`.
        width: characters a line.
    """
    heads = (
        *("metric", label_a, label_b, "difference", "95% interval", "p", "Holm p"), *_ONE_DESIGN, "discordant",
    )  # fmt: skip
    header, rows, told = said_once(heads, [_line(one) for one in found], _ONE_DESIGN, width=width)
    remarks = [*([told] if told else []), *_remarks(label_a, label_b, found)]
    title = paragraph(f"{label_a} against {label_b}", width=width)
    notes = "".join(f"{paragraph(remark, width=width)}\n" for remark in remarks)
    return f"{title}\n\n{text_table(header, rows, width=width)}\n{notes}"


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
