"""The comparison of two methods on the same tasks and seeds."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from results.statistics.bootstrap import cluster_tally, draw, draw_crossed, pigeonhole_se, pigeonhole_tally
from results.statistics.crossed import clustered_t, crossed_t, require_crossed
from results.statistics.differences import Differences, clustered_standard_error, paired_differences
from results.statistics.permutation import mcnemar, sign_flip

Design = Literal["tasks", "crossed", "pigeonhole"]
Test = Literal["shift2", "shift1", "inversion", "signflip", "t", "mcnemar"]

VALID_TESTS: dict[Design, tuple[Test, ...]] = {
    "tasks": ("shift2", "shift1", "inversion", "signflip", "t", "mcnemar"),
    "crossed": ("t",),
    "pigeonhole": ("shift2", "inversion"),
}

ESTIMANDS: dict[Design, str] = {
    "tasks": "mean difference over tasks like these, of the runs that were made",
    "crossed": "mean difference over tasks like these and over runs like these",
    "pigeonhole": "mean difference over tasks like these and over runs like these",
}


@dataclass(frozen=True)
class Comparison:
    """What one paired comparison says.

    Attributes:
        delta: mean of a - b over tasks and seeds, in the unit of the scores.
        se: standard error of delta under the design: clustered (`cluster_se`) for tasks, two-way random effects for
            crossed, the bootstrap's own for pigeonhole. (tasks with test t puts the small-sample factor
            sqrt(C / (C - 1)) into interval and p, not into se.)
        interval: 95% interval of delta: Student's t for test t, else the percentile bootstrap of the design.
        p: p-value of "no difference"; two-sided, except for shift1.
        p_holm: Holm's p within the family it is printed with; None outside of one.
        design: what counts as a sample: tasks, or tasks and runs (crossed, pigeonhole).
        test: how p was computed.
        n_tasks: number of tasks.
        n_seeds: number of seeds.
        n_discordant: number of (task, seed) pairs whose scores differ.
        resamples: bootstrap resamples behind interval and p; 0 for test t, which needs none.
        seed: of the resampling.
        n_clusters: groups of tasks that were resampled together; n_tasks where tasks share no group.
        df: degrees of freedom of test t, None for others.
        exact: p is not a Monte-Carlo estimate.
    """

    delta: float
    se: float
    interval: tuple[float, float]
    p: float
    p_holm: float | None
    design: Design
    test: Test
    n_tasks: int
    n_seeds: int
    n_discordant: int
    resamples: int
    seed: int
    n_clusters: int
    df: float | None
    exact: bool


def compare(
    a: ArrayLike,
    b: ArrayLike,
    *,
    design: Design,
    test: Test,
    resamples: int = 10_000,
    seed: int = 0,
    groups: Sequence[Hashable] | None = None,
) -> Comparison:
    """Compare two methods that ran on the same tasks with the same seeds.

    Args:
        a: scores of the first method, shape [tasks, seeds]; NumPy, torch or nested lists.
        b: scores of the second, same shape and order (`align` makes both from stored rows).
        design: "tasks" for methods whose seeds are repeated samples; "crossed" or "pigeonhole" where a seed is one
            run that moves all its tasks (training, memory that grows).
        test: "shift2" (bootstrap, two-sided shift), "shift1" (its one-sided form, for a > b), "inversion" (twice the
            smaller tail beyond zero), "signflip", "t", "mcnemar" (one seed, successes); with crossed only "t", with
            pigeonhole "shift2" or "inversion".
        resamples: bootstrap resamples or random sign patterns, B; p is (1 + count) / (B + 1).
        seed: of the resampling; equal seeds give equal results.
        groups: one key a task; tasks that share a key are resampled together. Only for design tasks, and not for
            mcnemar.

    Raises:
        ValueError: an unknown or impossible pair of design and test, scores that do not pair or are not finite, one
            seed or shared groups where the design cannot take them.
    """
    _check_names(design, test)
    if resamples < 1:
        raise ValueError(f"resamples must be at least 1, got {resamples}")
    differences = paired_differences(a, b, groups)
    if test == "t":
        estimate = _by_t(differences, design)
    elif design == "pigeonhole":
        estimate = _by_pigeonhole(differences, test, resamples, seed)
    else:
        estimate = _by_tasks(a, b, differences, test, resamples, seed)
    return Comparison(
        delta=differences.mean,
        se=estimate.se,
        interval=estimate.interval,
        p=estimate.p,
        p_holm=None,
        design=design,
        test=test,
        n_tasks=differences.n_tasks,
        n_seeds=differences.n_seeds,
        n_discordant=differences.n_discordant,
        resamples=0 if test == "t" else resamples,
        seed=seed,
        n_clusters=differences.n_clusters,
        df=estimate.df,
        exact=estimate.exact,
    )


class _Estimate(NamedTuple):
    se: float
    interval: tuple[float, float]
    p: float
    df: float | None = None
    exact: bool = False


def _by_t(differences: Differences, design: Design) -> _Estimate:
    found = crossed_t(differences) if design == "crossed" else clustered_t(differences)
    se = found.se if design == "crossed" else clustered_standard_error(differences)
    return _Estimate(se, found.interval, found.p, found.df, exact=True)


def _by_pigeonhole(differences: Differences, test: Test, resamples: int, seed: int) -> _Estimate:
    require_crossed(differences, "pigeonhole")
    rng = np.random.default_rng(seed)
    tally = pigeonhole_tally(differences, draw_crossed(rng, differences.n_tasks, differences.n_seeds, resamples))
    return _Estimate(pigeonhole_se(differences), tally.interval, tally.p_value(test))


def _by_tasks(a: ArrayLike, b: ArrayLike, differences: Differences, test: Test, resamples: int, seed: int) -> _Estimate:
    tally = cluster_tally(differences, draw(np.random.default_rng(seed), differences.n_clusters, resamples))
    se = clustered_standard_error(differences)
    if test == "signflip":
        p, exact = sign_flip(differences.cluster_sums, np.random.default_rng([seed, 1]), resamples)
        return _Estimate(se, tally.interval, p, exact=exact)
    if test == "mcnemar":
        if differences.n_clusters < differences.n_tasks:
            raise ValueError("test 'mcnemar' takes tasks as independent, but some share a group; use test 'signflip'")
        return _Estimate(se, tally.interval, mcnemar(a, b), exact=True)
    return _Estimate(se, tally.interval, tally.p_value(test))


def _check_names(design: Design, test: Test) -> None:
    """Refuse pairs of design and test that mean nothing.

    Raises:
        ValueError: an unknown design, or a test that the design does not have.
    """
    if design not in VALID_TESTS:
        raise ValueError(f"unknown design {design!r}; known: {', '.join(VALID_TESTS)}")
    valid = VALID_TESTS[design]
    if test not in valid:
        raise ValueError(f"design {design!r} has no test {test!r}; it has: {', '.join(valid)}")
