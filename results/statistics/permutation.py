"""Tests that hold without resampling the tasks: sign flips of whole clusters, and McNemar's test."""

from __future__ import annotations

from math import comb
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from results.statistics.differences import Array

EXACT_CLUSTERS = 20
"""Sign patterns of up to this many clusters with a difference are enumerated: 2^20."""

_RELATIVE_TOLERANCE = 1e-12
_BLOCK_CELLS = 2**21


class SignFlip(NamedTuple):
    """A p-value, and whether every sign pattern was enumerated for it."""

    p: float
    exact: bool


def sign_flip(sums: Array, rng: np.random.Generator, resamples: int) -> SignFlip:
    """Two-sided sign-flip test (Fisher 1935, section 21): under the null a cluster's difference is as likely reversed.

    Exact for up to 20 clusters that differ (clusters with a sum of zero change nothing and are left out); otherwise
    (1 + count) / (resamples + 1) over random sign patterns.

    Args:
        sums: sum of differences of each cluster, shape [clusters]; integers are compared exactly.
        rng: for the random patterns.
        resamples: number of random patterns.
    """
    moving = sums[sums != 0]
    observed = abs(moving.sum())
    slack = 0 if moving.dtype == np.int64 else _RELATIVE_TOLERANCE * float(np.abs(moving).sum())
    if len(moving) <= EXACT_CLUSTERS:
        flipped = np.zeros(1, dtype=sums.dtype)
        for value in moving:
            flipped = np.concatenate([flipped + value, flipped - value])
        count = int(np.count_nonzero(np.abs(flipped) >= observed - slack))
        return SignFlip(count / len(flipped), exact=True)
    count = sum(
        int(np.count_nonzero(np.abs(signs @ moving) >= observed - slack))
        for signs in _random_signs(rng, len(moving), resamples)
    )
    return SignFlip((1 + count) / (resamples + 1), exact=False)


def mcnemar(a: ArrayLike, b: ArrayLike) -> float:
    """Exact two-sided McNemar test: a binomial test of the discordant pairs against one half.

    Args:
        a: successes of the first method, shape [tasks, 1], each 0 or 1.
        b: successes of the second on the same tasks.

    Raises:
        ValueError: more than one seed (its pairs would not be independent), or scores other than 0 and 1.
    """
    first, second = np.asarray(a), np.asarray(b)
    if first.shape[1] != 1:
        raise ValueError(f"test 'mcnemar' takes one seed and got {first.shape[1]}: seeds of a task are not independent")
    for name, scores in (("a", first), ("b", second)):
        other = scores[(scores != 0) & (scores != 1)]
        if other.size:
            raise ValueError(f"test 'mcnemar' compares successes, 0 or 1; {name} holds {other.flat[0]}")
    wins = int(np.count_nonzero(first > second))
    losses = int(np.count_nonzero(first < second))
    pairs = wins + losses
    tail = sum(comb(pairs, k) for k in range(min(wins, losses) + 1))
    return min(1.0, float(2 * tail / 2**pairs))


def _random_signs(rng: np.random.Generator, n: int, resamples: int) -> list[NDArray[np.int64]]:
    block = max(1, _BLOCK_CELLS // n)
    sizes = [min(block, resamples - start) for start in range(0, resamples, block)]
    return [2 * rng.integers(0, 2, (size, n)) - 1 for size in sizes]
