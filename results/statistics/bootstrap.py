"""Bootstrap over whole clusters of tasks, and over tasks and seeds crossed (pigeonhole).

The functions that count take blocks of resample indices and do not care where these come from: `draw` makes them at
random, a test can feed all n^n of them and gets the exact distribution from the same code.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from results.statistics.differences import Array, Differences

_BLOCK_CELLS = 2**21
"""Indices drawn at a time: 16 MiB, whatever the number of tasks."""

_RELATIVE_TOLERANCE = 1e-12
"""Float sums closer than this, relative to the largest sum possible, are ties."""


@dataclass(frozen=True)
class Tally:
    """What the resampled means theta* say about the observed mean theta.

    Attributes:
        means: theta*, shape [resamples].
        beyond_shift: resamples with |theta* - theta| >= |theta|.
        beyond_double: resamples with theta* >= 2 theta (the shift test of Berg-Kirkpatrick et al. 2012, one-sided).
        at_most_zero: resamples with theta* <= 0.
        at_least_zero: resamples with theta* >= 0.
    """

    means: NDArray[np.float64]
    beyond_shift: int
    beyond_double: int
    at_most_zero: int
    at_least_zero: int

    def p_value(self, test: str) -> float:
        """Monte-Carlo p-value, (1 + count) / (B + 1): the observed sample counts as one of the resamples."""
        total = len(self.means) + 1
        if test == "shift2":
            return (1 + self.beyond_shift) / total
        if test == "shift1":
            return (1 + self.beyond_double) / total
        return min(1.0, 2 * (1 + min(self.at_most_zero, self.at_least_zero)) / total)

    @property
    def interval(self) -> tuple[float, float]:
        """95% percentile interval."""
        low, high = np.quantile(self.means, [0.025, 0.975])
        return float(low), float(high)


def draw(rng: np.random.Generator, n: int, resamples: int) -> Iterator[NDArray[np.int64]]:
    """Yield blocks of shape [block, n] of indices below n, `resamples` rows in all."""
    block = max(1, _BLOCK_CELLS // n)
    for start in range(0, resamples, block):
        yield rng.integers(0, n, (min(block, resamples - start), n))


def draw_crossed(
    rng: np.random.Generator, n_tasks: int, n_seeds: int, resamples: int
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Yield blocks of task indices [block, tasks] with seed indices [block, seeds]."""
    for tasks in draw(rng, n_tasks, resamples):
        yield tasks, rng.integers(0, n_seeds, (len(tasks), n_seeds))


def cluster_tally(differences: Differences, indices: Iterable[NDArray[np.int64]]) -> Tally:
    """Resample whole clusters, all seeds of their tasks carried along.

    Args:
        differences: of the two methods.
        indices: blocks of shape [block, clusters] of cluster indices.
    """
    sums, sizes = differences.cluster_sums, differences.cluster_sizes
    resampled = [(sums[rows].sum(axis=1), sizes[rows].sum(axis=1)) for rows in indices]
    totals, counts = (np.concatenate(parts) for parts in zip(*resampled, strict=True))
    return _tally(differences.values, totals, counts)


def pigeonhole_tally(differences: Differences, indices: Iterable[tuple[NDArray[np.int64], NDArray[np.int64]]]) -> Tally:
    """Resample tasks and seeds independently and cross them (Owen 2007, arXiv 0712.1111).

    Args:
        differences: of the two methods.
        indices: blocks of task indices [block, tasks] with seed indices [block, seeds].
    """
    by_seed = differences.values.T
    totals = np.concatenate(
        [np.take_along_axis(by_seed[seeds].sum(axis=1), tasks, axis=1).sum(axis=1) for tasks, seeds in indices]
    )
    return _tally(differences.values, totals, np.full(len(totals), differences.values.size))


def pigeonhole_se(differences: Differences) -> float:
    """Standard deviation of the pigeonhole bootstrap's mean, in closed form.

    Tasks and seeds are drawn by independent multinomials with E[w w'] = I + (1 - 1/n) J, which leaves four sums of
    products of the values.
    """
    values = differences.values.astype(np.float64)
    values = values - values.mean()  # the variance does not depend on the mean; this keeps it free of cancellation
    n, s = values.shape
    moments = (
        np.square(values).sum()
        + (1 - 1 / s) * np.square(values.sum(axis=1)).sum()
        + (1 - 1 / n) * np.square(values.sum(axis=0)).sum()
    )
    return float(np.sqrt(moments) / values.size)


def _tally(values: Array, totals: Array, counts: Array) -> Tally:
    """Compare resampled sums with the observed one, as products of integers where the scores are integers.

    theta* = totals / counts against theta = total / count is decided without a division, since float ties break: on
    the 6 x 3 vector of the tests `>=` and `>` differ by a factor of three in p.

    Args:
        values: differences, shape [tasks, seeds].
        totals: resampled sums, shape [resamples].
        counts: number of pairs in each sum, shape [resamples].
    """
    total, count = values.sum(), values.size
    exact = values.dtype == np.int64
    slack = 0 if exact else _RELATIVE_TOLERANCE * count * max(float(np.abs(values).sum()), 1e-300)
    shifted = totals * count - total * counts
    return Tally(
        means=totals / counts,
        beyond_shift=int(np.count_nonzero(np.abs(shifted) >= abs(total) * counts - slack)),
        beyond_double=int(np.count_nonzero(shifted >= total * counts - slack)),
        at_most_zero=int(np.count_nonzero(totals * count <= slack)),
        at_least_zero=int(np.count_nonzero(totals * count >= -slack)),
    )
