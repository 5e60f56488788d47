"""Scores of two methods turned into paired differences, checked once, and their clustered standard error."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[Any]

_LARGEST_INTEGER_SCORE = 2**20
"""Integer scores up to here are compared exactly: products of their sums stay below 2**63 for any table we print."""


@dataclass(frozen=True)
class Differences:
    """Paired differences a - b and the clusters that their tasks fall in.

    Attributes:
        values: shape [tasks, seeds]; int64 when all scores are integers (0/1 successes), so that ties between
            resampled sums are exact; float64 otherwise.
        cluster_of: shape [tasks], index of the cluster of each task: 0, 1, ..., n_clusters - 1.
        n_discordant: number of (task, seed) pairs whose two scores differ.
    """

    values: Array
    cluster_of: NDArray[np.int64]
    n_discordant: int

    @property
    def n_tasks(self) -> int:
        return int(self.values.shape[0])

    @property
    def n_seeds(self) -> int:
        return int(self.values.shape[1])

    @property
    def n_clusters(self) -> int:
        return int(self.cluster_of.max()) + 1

    @property
    def mean(self) -> float:
        return float(self.values.sum() / self.values.size)

    @property
    def cluster_sums(self) -> Array:
        """Sum of the differences of each cluster over its tasks and seeds, shape [clusters]."""
        sums = np.zeros(self.n_clusters, dtype=self.values.dtype)
        np.add.at(sums, self.cluster_of, self.values.sum(axis=1))
        return sums

    @property
    def cluster_sizes(self) -> NDArray[np.int64]:
        """Number of (task, seed) pairs of each cluster, shape [clusters]."""
        return np.bincount(self.cluster_of, minlength=self.n_clusters).astype(np.int64) * self.n_seeds


def paired_differences(a: ArrayLike, b: ArrayLike, groups: Sequence[Hashable] | None = None) -> Differences:
    """Subtract the scores of two methods, pair by pair.

    Args:
        a: scores of the first method, shape [tasks, seeds].
        b: scores of the second, same shape, same tasks and seeds in the same order.
        groups: one key a task; tasks with equal keys are resampled together. None, or a key of None, leaves a task
            a cluster of its own.

    Raises:
        ValueError: shapes that differ or are not [tasks, seeds], fewer than two clusters, values that are not finite
            (each named with its position), or another number of groups than tasks.
    """
    first, second = _matrix(a, "a"), _matrix(b, "b")
    if first.shape != second.shape:
        raise ValueError(f"a has shape {first.shape} and b has shape {second.shape}; align them by task and seed first")
    cluster_of = clusters(groups, first.shape[0])
    if cluster_of.max() == 0:
        raise ValueError(f"{first.shape[0]} task(s) in 1 cluster: two are the least that can be compared")
    return Differences(first - second, cluster_of, int(np.count_nonzero(first != second)))


def clusters(groups: Sequence[Hashable] | None, n_tasks: int) -> NDArray[np.int64]:
    """Number the clusters in order of first appearance; a task without a group is a cluster of its own.

    Raises:
        ValueError: another number of groups than tasks.
    """
    if groups is None:
        return np.arange(n_tasks, dtype=np.int64)
    if len(groups) != n_tasks:
        raise ValueError(f"{len(groups)} groups for {n_tasks} tasks: one group a task is needed")
    keys = [("task", i) if group is None else ("group", group) for i, group in enumerate(groups)]
    number = {key: i for i, key in enumerate(dict.fromkeys(keys))}
    return np.array([number[key] for key in keys], dtype=np.int64)


def cluster_se(differences: ArrayLike, groups: Sequence[Hashable] | None = None) -> float:
    """Clustered standard error of the mean difference, without the factor C / (C - 1).

    All seeds of a task (of a group of tasks) form one cluster: Miller, arXiv 2411.00640; statsmodels' cluster
    covariance with use_correction=False. It is what a whole-cluster bootstrap converges to.

    Args:
        differences: shape [tasks, seeds].
        groups: as in `paired_differences`.

    Returns:
        The standard error, in the unit of the differences.

    Raises:
        ValueError: as in `paired_differences`.
    """
    values = _matrix(differences, "differences")
    return clustered_standard_error(Differences(values, clusters(groups, values.shape[0]), 0))


def clustered_standard_error(differences: Differences) -> float:
    """sqrt(sum over clusters of (sum of the cluster's residuals)^2) / number of pairs."""
    residuals = differences.cluster_sums - differences.mean * differences.cluster_sizes
    return float(np.sqrt(np.square(residuals).sum()) / differences.values.size)


def _matrix(scores: ArrayLike, name: str) -> Array:
    """Scores as int64 where all are integers, else float64.

    Raises:
        ValueError: not [tasks, seeds], empty, or not finite.
    """
    values = np.asarray(scores)
    if values.ndim != 2 or values.size == 0:
        raise ValueError(f"{name} must have shape [tasks, seeds], not {values.shape}; one seed is scores[:, None]")
    values = values.astype(np.float64)
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        named = ", ".join(f"{name}[task {task}, seed {seed}] = {values[task, seed]}" for task, seed in bad[:5])
        raise ValueError(f"{len(bad)} score(s) are not finite: {named}; leave these tasks out for both methods")
    integral = np.array_equal(values, np.rint(values)) and np.abs(values).max() <= _LARGEST_INTEGER_SCORE
    return values.astype(np.int64) if integral else values
