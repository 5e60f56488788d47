"""Two stored runs compared: which rows pair, which design their coupling asks for, and Holm over what is printed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from results.records import EpisodeRow
from results.statistics import AlignmentError, Comparison, align, compare, with_holm
from results.statistics.comparison import Design, Test

Coupling = Literal["independent", "online", "trained"]
"""What one seed of a method is (`harness.method`): a fresh sample, or one run that moves all its tasks."""

_DEFAULT_TEST: dict[Design, Test] = {"tasks": "shift2", "crossed": "t", "pigeonhole": "shift2"}

_ONE_VALUE = ("method", "method_digest", "env", "perturbation", "model", "view")
"""Fields that one side of a comparison must have one value of."""

_SAME_VALUE = ("env", "env_version", "data_digest")
"""Fields in which the two sides must agree for their tasks to be the same tasks."""


@dataclass(frozen=True)
class MetricComparison:
    """One metric of two runs.

    Attributes:
        metric: what was compared.
        mean_a: mean of the first run over tasks and seeds.
        mean_b: mean of the second run.
        comparison: difference a - b and what the design says of it.
        coupled: a seed of either side is one run that moves all its tasks.
        drift: either side holds rows made after a code or package change (--allow-drift).
        stream: either side's method learned between test tasks.
        excluded: tasks left out on both sides, where that was asked for.
    """

    metric: str
    mean_a: float
    mean_b: float
    comparison: Comparison
    coupled: bool
    drift: bool
    stream: bool
    excluded: tuple[str, ...]


def compare_runs(
    rows_a: Iterable[EpisodeRow],
    rows_b: Iterable[EpisodeRow],
    *,
    coupling_a: Coupling,
    coupling_b: Coupling,
    metrics: Sequence[str] = ("success",),
    design: Design | None = None,
    test: Test | None = None,
    resamples: int = 10_000,
    seed: int = 0,
    iteration: int | None = None,
    exclude_incomplete: bool = False,
) -> list[MetricComparison]:
    """Compare two runs in every metric that will be printed; Holm's family is these metrics.

    Args:
        rows_a: rows of the first run, as `read_rows` returns them.
        rows_b: rows of the second run.
        coupling_a: coupling of the first run's method.
        coupling_b: coupling of the second run's method.
        metrics: fields of a row: "success", "score", "reward", "steps".
        design: None picks crossed where either method is online or trained and there are at least two seeds, else
            tasks.
        test: None picks t for crossed, shift2 otherwise.
        resamples: bootstrap resamples.
        seed: of the resampling.
        iteration: compare both runs after this iteration; None compares each after its last. (A method that does not
            learn has iteration 0 only, so the last ones may differ.)
        exclude_incomplete: leave out tasks that are incomplete on either side instead of refusing.

    Raises:
        AlignmentError: rows that do not pair: other environment, data, tasks, seeds; missing rows or verdicts; rows of
            several methods, models or perturbations on one side.
        ValueError: a test that the design does not have, or a design that these rows cannot take.
    """
    list_a, list_b = list(rows_a), list(rows_b)
    found = [
        compare_metric(
            at_iteration(list_a, iteration),
            at_iteration(list_b, iteration),
            metric,
            coupled=coupling_a != "independent" or coupling_b != "independent",
            design=design,
            test=test,
            resamples=resamples,
            seed=seed,
            exclude_incomplete=exclude_incomplete,
        )
        for metric in metrics
    ]
    return correct(found)


def compare_metric(
    rows_a: Sequence[EpisodeRow],
    rows_b: Sequence[EpisodeRow],
    metric: str,
    *,
    coupled: bool,
    design: Design | None = None,
    test: Test | None = None,
    resamples: int = 10_000,
    seed: int = 0,
    exclude_incomplete: bool = False,
) -> MetricComparison:
    """Compare one metric of rows that stand at one iteration; `p_holm` stays None (see `correct`).

    Arguments and errors as in `compare_runs`.
    """
    check_sides(rows_a, rows_b)
    aligned = align(rows_a, rows_b, metric, exclude_incomplete=exclude_incomplete)
    if design is None:
        design = "crossed" if coupled and len(aligned.seeds) >= 2 else "tasks"
    comparison = compare(
        aligned.a,
        aligned.b,
        design=design,
        test=test or _DEFAULT_TEST[design],
        resamples=resamples,
        seed=seed,
        groups=aligned.groups,
    )
    both = [*rows_a, *rows_b]
    return MetricComparison(
        metric=metric,
        mean_a=float(aligned.a.mean()),
        mean_b=float(aligned.b.mean()),
        comparison=comparison,
        coupled=coupled,
        drift=any(row.drift for row in both),
        stream=any(row.protocol == "stream" for row in both),
        excluded=aligned.excluded,
    )


def correct(family: Sequence[MetricComparison]) -> list[MetricComparison]:
    """Fill in Holm's p over comparisons that are printed together."""
    corrected = with_holm([found.comparison for found in family])
    return [replace(found, comparison=comparison) for found, comparison in zip(family, corrected, strict=True)]


def at_iteration(rows: Sequence[EpisodeRow], iteration: int | None) -> list[EpisodeRow]:
    """Rows evaluated after one iteration; None is the last that any row has.

    Raises:
        AlignmentError: no row of that iteration.
    """
    stored = sorted({row.iteration for row in rows})
    wanted = iteration if iteration is not None else max(stored, default=0)
    if rows and wanted not in stored:
        raise AlignmentError(f"no rows of iteration {wanted} in run {rows[0].run}; it has {stored}")
    return [row for row in rows if row.iteration == wanted]


def check_sides(rows_a: Sequence[EpisodeRow], rows_b: Sequence[EpisodeRow]) -> None:
    """Refuse sides that mix several things, or that did not face the same world.

    Raises:
        AlignmentError: naming the field and its values.
    """
    for name, rows in (("a", rows_a), ("b", rows_b)):
        for field in _ONE_VALUE:
            values = _values(rows, field)
            if len(values) > 1:
                raise AlignmentError(f"side {name} mixes rows of several {field}s: {', '.join(values)}; choose one")
    for field in _SAME_VALUE:
        first, second = _values(rows_a, field), _values(rows_b, field)
        if rows_a and rows_b and first != second:
            raise AlignmentError(
                f"side a has {field} {', '.join(first)}, side b {', '.join(second)}: their tasks are not the same"
            )


def _values(rows: Sequence[EpisodeRow], field: str) -> list[str]:
    return sorted({str(getattr(row, field)) for row in rows})
