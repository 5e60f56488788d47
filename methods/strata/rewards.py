"""Rewards of StraTA: the strategy's own (Eq. 10), and the terms it shares with every RL method (Eq. 11-13, 18)."""

import math

import numpy as np
import numpy.typing as npt

from harness.training.rewards import length_penalty, total_reward

__all__ = ["length_penalty", "strategy_reward", "total_reward"]

_ROUNDING = 1e-9
"""Slack before rounding up: 0.7 * 10 is 7.000000000000001 in floating point and means 7 rollouts, not 8."""


def strategy_reward(rewards: npt.ArrayLike, delta: float) -> float:
    """Mean of the best delta fraction of the outcome rewards under one strategy (StraTA Eq. 10).

    Args:
        rewards: bare outcome rewards of the M rollouts, shape [M], each in [-1, 1]; no length, format or judgment term.
        delta: fraction in (0, 1]; at least one rollout counts: k = max(1, ceil(delta * M)). The paper leaves
            delta * M < 1 open (Table 5, delta = 0.1, M = 8).

    Raises:
        ValueError: no rewards, a reward that is not finite, or delta outside (0, 1].
    """
    outcomes = np.asarray(rewards, dtype=np.float64)
    if outcomes.ndim != 1 or not outcomes.size:
        raise ValueError(f"rewards have shape {outcomes.shape}; pass the outcomes of at least one rollout, shape [M]")
    if not np.isfinite(outcomes).all():
        raise ValueError(f"rewards are {outcomes.tolist()}; leave out rollouts without a verdict")
    if not 0 < delta <= 1:
        raise ValueError(f"delta is {delta!r}; the fraction of rollouts that count must lie in (0, 1]")
    k = max(1, math.ceil(delta * outcomes.size - _ROUNDING))
    return float(np.sort(outcomes)[-k:].mean())
