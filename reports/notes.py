"""What a reader must know to read a p-value rightly, as sentences under a table or a comparison."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from results.compare import MetricComparison
from results.statistics.comparison import ESTIMANDS, Comparison

FEW_TASKS = 20
"""Fewer tasks than this: percentile intervals are too short (Bowyer et al., arXiv 2503.01747)."""

ENOUGH_SEEDS = 5
"""A method that trains needs this many seeds before its comparison has power."""

_LISTED = 10


def footnotes(found: Sequence[MetricComparison]) -> list[str]:
    """Sentences for every weakness of these comparisons, each once."""
    notes = [note for one in found for note in _notes(one)]
    return list(dict.fromkeys(notes))


def designs(comparisons: Iterable[Comparison]) -> str:
    """The designs and tests used, each with what it estimates."""
    used = sorted({(c.design, c.test) for c in comparisons})
    return "; ".join(f"design {design}, test {test}, estimand: {ESTIMANDS[design]}" for design, test in used)


def excluded_note(tasks: Sequence[str]) -> str:
    """Which tasks were left out for every method."""
    more = f" and {len(tasks) - _LISTED} more" if len(tasks) > _LISTED else ""
    return f"Left out for all, because incomplete for one: {', '.join(tasks[:_LISTED])}{more} ({len(tasks)} task(s))."


def _notes(found: MetricComparison) -> list[str]:
    comparison = found.comparison
    notes = []
    if found.coupled and comparison.n_seeds == 1:
        notes.append(
            "One seed: these methods differ from run to run, and that variation is not in p or in the interval."
        )
    if found.coupled and 1 < comparison.n_seeds < ENOUGH_SEEDS:
        notes.append(_few_seeds(comparison.n_seeds))
    if found.coupled and comparison.n_seeds > 1 and comparison.design == "tasks":
        notes.append(
            "Design tasks leaves the variation between training runs out; it rejects a true null up to 39% of the "
            "time at a nominal 5% (500 tasks, 3 seeds, runs that differ by 4.8 points)."
        )
    if comparison.n_clusters < FEW_TASKS and comparison.test in ("shift2", "shift1", "inversion"):
        notes.append(
            f"{comparison.n_clusters} independent tasks or groups: bootstrap intervals are too short for so few; "
            "prefer test signflip or t."
        )
    if comparison.n_clusters < comparison.n_tasks:
        notes.append(f"Tasks that share a group were resampled together: {comparison.n_clusters} groups.")
    if found.drift:
        notes.append("Some rows were made after a code or package change (drift).")
    if found.stream:
        notes.append("protocol=stream: a method saw the test tasks one by one and learned between them.")
    if found.excluded:
        notes.append(excluded_note(found.excluded))
    return notes


def _few_seeds(seeds: int) -> str:
    freedom = f"{seeds - 1} degree{'s' if seeds > 2 else ''} of freedom"
    return (
        f"{seeds} seeds: how much training runs differ is estimated from {seeds} runs (about {freedom}), so intervals "
        "are wide and only a very large difference is significant. One that is not significant may well be real: "
        f"compare methods that train with at least {ENOUGH_SEEDS} seeds."
    )
