"""Correction of p-values for the number of comparisons that are printed together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from results.statistics.comparison import Comparison


def holm(p_values: ArrayLike) -> NDArray[np.float64]:
    """Adjusted p-values of Holm's step-down procedure (Holm 1979), in the order given.

    The i-th smallest of m is multiplied by m - i + 1, made monotone and capped at 1. The chance of any false
    rejection in the family stays at the nominal level, whatever the dependence between its tests.

    Args:
        p_values: shape [family], each in [0, 1].

    Raises:
        ValueError: a value outside [0, 1] or NaN.
    """
    p = np.asarray(p_values, dtype=np.float64)
    if p.ndim != 1:
        raise ValueError(f"p-values must have shape [family], not {p.shape}")
    bad = p[~((p >= 0) & (p <= 1))]
    if len(bad):
        raise ValueError(f"{bad[0]} is not a p-value: each must lie in [0, 1]")
    order = np.argsort(p, kind="stable")
    steps = np.maximum.accumulate((len(p) - np.arange(len(p))) * p[order])
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(1.0, steps)
    return adjusted


def with_holm(family: Sequence[Comparison]) -> list[Comparison]:
    """The comparisons of one family with `p_holm` filled in: a table's rows, or the metrics that are printed."""
    adjusted = holm([comparison.p for comparison in family])
    return [replace(comparison, p_holm=float(p)) for comparison, p in zip(family, adjusted, strict=True)]
