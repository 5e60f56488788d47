"""Choosing strategies that differ: farthest-point sampling in embedding space (StraTA section 4.3, Algorithm 1)."""

import numpy as np
import numpy.typing as npt

__all__ = ["farthest_point_selection", "mean_pairwise_cosine"]

_TIE = 1e-12
"""Cosines this close are equal: rounding must not decide between candidates that are mathematically tied."""


def farthest_point_selection(embeddings: npt.ArrayLike, n: int) -> list[int]:
    """Choose n candidates, the most typical first, then ever the least similar to those chosen (Algorithm 1, Eq. 15).

    The first has the largest cosine to the mean of the normalised embeddings; each next one minimises its largest
    cosine to the chosen. Ties go to the lowest index. A copy of a chosen candidate has cosine 1, so it comes last.

    Args:
        embeddings: shape [candidates, d], of any length: rows are normalised here. A zero vector stays zero: it is
            at cosine 0 from everything.
        n: how many to choose, 1..candidates.

    Returns:
        n distinct indices, in the order of choice.

    Raises:
        ValueError: n outside 1..candidates, or embeddings that are not finite or not of shape [candidates, d].
    """
    unit = _normalised(embeddings)
    if not 1 <= n <= len(unit):
        raise ValueError(f"cannot choose {n} of {len(unit)} candidates; n must lie in 1..{len(unit)}")
    chosen = [_first_smallest(-_cosines(unit, unit.mean(axis=0)))]
    nearest = np.full(len(unit), -np.inf)
    while len(chosen) < n:
        nearest = np.maximum(nearest, _cosines(unit, unit[chosen[-1]]))
        nearest[chosen] = np.inf
        chosen.append(_first_smallest(nearest))
    return chosen


def mean_pairwise_cosine(embeddings: npt.ArrayLike) -> float:
    """Mean cosine over all pairs of different rows: 1 where all agree, lower the more they differ.

    Args:
        embeddings: shape [candidates, d], at least two rows; rows are normalised here.

    Raises:
        ValueError: fewer than two rows, or embeddings that are not finite or not of shape [candidates, d].
    """
    unit = _normalised(embeddings)
    if len(unit) < 2:
        raise ValueError(f"a mean over pairs needs at least 2 embeddings; got {len(unit)}")
    cosines = unit @ unit.T
    return float(cosines[np.triu_indices(len(unit), k=1)].mean())


def _normalised(embeddings: npt.ArrayLike) -> npt.NDArray[np.float64]:
    vectors = np.asarray(embeddings, dtype=np.float64)
    if vectors.ndim != 2:
        raise ValueError(f"embeddings have shape {vectors.shape}; pass one vector per candidate, [candidates, d]")
    if not np.isfinite(vectors).all():
        bad = int(np.flatnonzero(~np.isfinite(vectors).all(axis=1))[0])
        raise ValueError(f"embedding {bad} is not finite; check the encoder's output for that candidate")
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: npt.NDArray[np.float64] = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
    return unit


def _cosines(unit: npt.NDArray[np.float64], vector: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Row by row rather than by BLAS, whose blocking lets equal rows differ in the last bit."""
    return np.asarray((unit * vector).sum(axis=1))


def _first_smallest(values: npt.NDArray[np.float64]) -> int:
    return int(np.flatnonzero(values <= values.min() + _TIE)[0])
