"""What rows say of a run: means over episodes with a verdict, seed by seed, and their spread over seeds."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

    from results.records import EpisodeRow

METRICS = ("success", "score", "reward", "steps")
_PERCENT = ("success", "score")


@dataclass(frozen=True, slots=True)
class SeedSummary:
    """One seed at one iteration.

    Attributes:
        seed: of the run.
        episodes: rows, with or without a verdict.
        judged: rows with a verdict; the means are over these.
        means: metric -> mean; NaN where nothing was judged.
    """

    seed: int
    episodes: int
    judged: int
    means: dict[str, float]


@dataclass(frozen=True, slots=True)
class Summary:
    """All seeds of a run at one iteration."""

    iteration: int
    seeds: tuple[SeedSummary, ...]
    stops: dict[str, int]
    tokens_in: int
    tokens_out: int
    seconds: float
    drifted: int

    @property
    def episodes(self) -> int:
        return sum(seed.episodes for seed in self.seeds)

    @property
    def without_verdict(self) -> int:
        return sum(seed.episodes - seed.judged for seed in self.seeds)


def summarise(rows: Iterable[EpisodeRow], *, iteration: int | None = None) -> Summary:
    """Summary of a run's rows at one iteration, the last by default; no rows give an empty one."""
    rows = list(rows)
    at = max((row.iteration for row in rows), default=0) if iteration is None else iteration
    chosen = [row for row in rows if row.iteration == at]
    seeds = []
    for seed in sorted({row.seed for row in chosen}):
        of_seed = [row for row in chosen if row.seed == seed]
        judged = [row for row in of_seed if row.status.has_verdict]
        means = {metric: _mean([float(getattr(row, metric)) for row in judged]) for metric in METRICS}
        seeds.append(SeedSummary(seed, len(of_seed), len(judged), means))
    return Summary(
        iteration=at,
        seeds=tuple(seeds),
        stops=dict(sorted(Counter(str(row.stop) for row in chosen).items())),
        tokens_in=sum(row.tokens_in for row in chosen),
        tokens_out=sum(row.tokens_out for row in chosen),
        seconds=sum(row.wall_time for row in chosen),
        drifted=sum(row.drift for row in chosen),
    )


def mean_and_sd(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean and standard deviation (ddof 1) over seeds; no deviation of fewer than two."""
    mean = _mean(values)
    if len(values) < 2:
        return mean, None
    return mean, math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))


def in_words(metric: str, values: Sequence[float]) -> str:
    """ "31.2 ± 2.4" in percent for success and score; "-" where a seed has no verdict at all.

    Without the deviation of fewer than two seeds.
    """
    factor = 100 if metric in _PERCENT else 1
    mean, sd = mean_and_sd([factor * value for value in values])
    if math.isnan(mean):
        return "-"
    return f"{mean:.1f}" if sd is None else f"{mean:.1f} ± {sd:.1f}"


def heading(metric: str) -> str:
    """Name of a metric with its unit."""
    return f"{metric} %" if metric in _PERCENT else metric


def seed_table(summary: Summary, metrics: Sequence[str]) -> Table:
    """A row a seed and one for all: metrics, episodes, and how many of them have no verdict."""
    from rich.table import Table

    table = Table("seed", *(heading(metric) for metric in metrics), "episodes", "without verdict")
    for seed in summary.seeds:
        values = [in_words(metric, [seed.means[metric]]) for metric in metrics]
        table.add_row(str(seed.seed), *values, str(seed.episodes), str(seed.episodes - seed.judged))
    if len(summary.seeds) > 1:
        table.add_section()
        values = [in_words(metric, [seed.means[metric] for seed in summary.seeds]) for metric in metrics]
        table.add_row("mean ± sd", *values, str(summary.episodes), str(summary.without_verdict))
    return table


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan
