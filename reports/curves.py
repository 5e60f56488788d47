"""Learning curves as text: every metric that training stored, a line each, within the width of a terminal."""

from __future__ import annotations

import csv
import io
import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

GROUPS: dict[str, tuple[str, ...]] = {
    "outcome: means over the rollouts of an iteration": ("success", "score", "reward", "steps"),
    "responses: tokens of one, share that could not be parsed": (
        "response_tokens", "malformed_rate", "malformed_strategy_rate",
    ),
    "policy when it sampled: mean of -log-probability over all response tokens": ("entropy",),
    "groups: share whose rewards agree (flat), rows with an advantage, groups dropped": (
        "flat_groups", "flat_strategy_groups", "advantage_rows", "rows", "dropped_groups",
    ),
    "update, tokens trained on: ratio to the sampling policy, kl to the starting one": (
        "update_entropy", "kl", "approx_kl", "clip_fraction", "ratio", "ratio_max", "grad_norm", "updates",
    ),
    "critic: values are those before the update": (
        "value_loss", "value_mean", "explained_variance", "value_clip_fraction", "critic_grad_norm",
    ),
    "states met again: share of the rows that are compared in one, rows a state": (
        "step_group_share", "step_group_size",
    ),
    "strategies: mean pairwise cosine of the candidates, and of those selected": ("cosine_before", "cosine_after"),
    "judgments: share that could not be parsed, share of steps flagged": ("judgment_failure_rate", "flagged_rate"),
    "budget of an iteration": (
        "episodes", "rollouts", "failed_rollouts", "horizon", "tokens_in", "tokens_out", "tokens_cached",
        "explore_seconds", "learn_seconds", "seconds",
    ),
}  # fmt: skip
"""Heading -> metrics of the built-in methods, in the order they are printed; what a plug-in adds comes after them."""

OTHER = "other metrics of the method"

_BARS = "▁▂▃▄▅▆▇█"
MISSING = "·"
"""Bar of iterations that did not store the metric (nothing was trained on)."""
NOT_FINITE = "!"
"""Bar of iterations whose value is NaN or infinite."""

_NAME = 23
_NUMBER = 7
_INDENT = "  "


@dataclass(frozen=True, slots=True)
class Point:
    """One metric at one iteration over the seeds that stored it; all three are NaN where one of them is not finite."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Curves:
    """Learning curves of a run.

    Attributes:
        seeds: seed -> its lines, one an iteration: "iteration" and the metrics by name.
    """

    seeds: Mapping[int, Sequence[Mapping[str, Any]]]

    @property
    def iterations(self) -> list[int]:
        """Every iteration that a seed has finished, in order."""
        return sorted({int(line["iteration"]) for lines in self.seeds.values() for line in lines})

    @property
    def names(self) -> list[str]:
        """Metrics that are stored: those of GROUPS in their order, then the others by name."""
        stored = {name for lines in self.seeds.values() for line in lines for name in line if _is_number(line, name)}
        known = [name for names in GROUPS.values() for name in names]
        return [name for name in known if name in stored] + sorted(stored - set(known))

    def values(self, name: str, seed: int) -> list[float | None]:
        """A metric of one seed at every iteration; None where it is not stored."""
        found = {int(line["iteration"]): float(line[name]) for line in self.seeds[seed] if _is_number(line, name)}
        return [found.get(iteration) for iteration in self.iterations]

    def points(self, name: str) -> list[Point | None]:
        """Mean and range over seeds at every iteration; None where no seed stored the metric."""
        columns = zip(*(self.values(name, seed) for seed in self.seeds), strict=True)
        return [_point([value for value in column if value is not None]) for column in columns]


def render_curves(curves: Curves, names: Sequence[str], *, by_seed: bool = False, width: int = 80) -> str:
    """A line a metric: its curve, "first -> last" and, of several seeds, the range of the last over seeds.

    Args:
        curves: of at least one seed with at least one iteration.
        names: metrics to print, of `Curves.names`.
        by_seed: the curve of every seed below the mean.
        width: characters a line.
    """
    several = len(curves.seeds) > 1
    lines = [_heading(curves, width)]
    grouped = {name: heading for heading, known in GROUPS.items() for name in known}
    heading = None
    for name in names:
        if (found := grouped.get(name, OTHER)) != heading:
            heading = found
            lines += ["", heading]
        points = curves.points(name)
        means = [None if point is None else point.mean for point in points]
        last = next((point for point in reversed(points) if point is not None), None)
        spread = f"  [{number(last.low)}, {number(last.high)}]" if several and last else ""
        lines += _line(name, means, spread, name=name, several=several, width=width)
        if by_seed and several:
            for seed in curves.seeds:
                lines += _line(f"  seed {seed}", curves.values(name, seed), "", name=name, several=True, width=width)
    return "\n".join(lines) + "\n"


def curves_csv(curves: Curves, names: Sequence[str]) -> str:
    """One line a number, unrounded: seed, iteration, metric, value. What was not stored has no line."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("seed", "iteration", "metric", "value"))
    for seed in curves.seeds:
        by_name = {name: curves.values(name, seed) for name in names}
        for place, iteration in enumerate(curves.iterations):
            writer.writerows(
                (seed, iteration, name, value)
                for name, values in by_name.items()
                if (value := values[place]) is not None
            )
    return text.getvalue()


def sparkline(
    values: Sequence[float | None], *, width: int = 60, of: Callable[[Sequence[float]], float] | None = None
) -> str:
    """A curve in one line of text, in at most `width` bars between its lowest and highest value.

    Args:
        values: one an iteration; None where there is none.
        width: most bars; a longer curve is cut into as many equal parts.
        of: what a bar shows of its part; the mean by default.
    """
    if not values:
        return ""
    bins = min(width, len(values))
    edges = [round(k * len(values) / bins) for k in range(bins + 1)]
    parts = [[value for value in values[a:b] if value is not None] for a, b in pairwise(edges)]
    shown = [(of or _mean)(part) if part else None for part in parts]
    finite = [value for value in shown if value is not None and math.isfinite(value)]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    return "".join(_bar(value, low, high) for value in shown)


def number(value: float) -> str:
    """At least two digits in at most seven characters (one more for a sign): 0.047, 5.440, 64, 27,882, 1.2e+07."""
    if not math.isfinite(value):
        return str(value)
    size = abs(value)
    if value == 0:
        return "0"
    if size < 99_999.5 and (value == round(value) or size >= 999.5):
        return f"{value:,.0f}"
    if size < 0.0001 or size >= 99_999.5:
        return f"{value:.1e}"
    decimals = next((n for n, least in enumerate((999.5, 99.95, 9.995, 0.01, 0.001)) if size >= least), 5)
    return f"{value:.{decimals}f}"


def _heading(curves: Curves, width: int) -> str:
    lengths = {seed: len(lines) for seed, lines in curves.seeds.items()}
    most = max(lengths.values())
    if len(lengths) == 1:
        return f"curves of seed {next(iter(lengths))}, {most} iterations: first -> last"
    text = f"curves of {most} iterations, mean of {len(lengths)} seeds: first -> last  [range of last]"
    if behind := [f"seed {seed} has {length}" for seed, length in lengths.items() if length < most]:
        told = f"{', '.join(behind)} so far: beyond that, means are over the other seeds"
        text += f"\n{textwrap.fill(told, width)}"
    return text


def _line(
    label: str, values: Sequence[float | None], after: str, *, name: str, several: bool, width: int
) -> list[str]:
    """One curve; a label that is too long for its column gets a line of its own."""
    there = [value for value in values if value is not None]
    ends = f"{number(there[0]):>{_NUMBER}} -> {number(there[-1]):<{_NUMBER}}"
    # as wide in every line, so that iterations stand below each other; narrower where large negative numbers need room
    usual = len(ends) if not several else 2 * _NUMBER + len(" -> ") + len("  [, ]") + 2 * _NUMBER
    taken = len(_INDENT) + _NAME + 2 + max(usual, len(ends) + len(after))
    # a mean would hide the peak that a maximum was stored for
    bars = sparkline(values, width=max(1, width - taken), of=max if name.endswith("_max") else None)
    text = f"{bars} {ends}{after}".rstrip()
    if len(label) > _NAME:
        return [f"{_INDENT}{label}", f"{_INDENT}{'':<{_NAME}} {text}"]
    return [f"{_INDENT}{label:<{_NAME}} {text}"]


def _bar(value: float | None, low: float, high: float) -> str:
    if value is None:
        return MISSING
    if not math.isfinite(value):
        return NOT_FINITE
    return _BARS[round((value - low) / (high - low) * (len(_BARS) - 1)) if high > low else 0]


def _point(values: Sequence[float]) -> Point | None:
    if not values:
        return None
    if not all(math.isfinite(value) for value in values):
        return Point(math.nan, math.nan, math.nan)
    return Point(_mean(values), min(values), max(values))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _is_number(line: Mapping[str, Any], name: str) -> bool:
    return name != "iteration" and isinstance(line.get(name), int | float) and not isinstance(line[name], bool)
