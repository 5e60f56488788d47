"""Reward terms that every RL method of the suite adds to the outcome (StraTA Eq. 11-13, 18). Plain floats."""

import math

__all__ = ["format_penalty", "length_penalty", "step_decay", "total_reward"]


def step_decay(step: int, horizon: int, decay: float = 0.5) -> float:
    """Factor on the outcome reward that prefers fewer steps: 1 - decay * (t - 1) / max(1, H - 1).

    StraTA section 5.1 and appendix B.1 call the reward step-decayed without a formula; this one is ours: 1 at the
    first step, 1 - decay at the last, so that success stays above failure (0) for every decay below 1.

    Args:
        step: t, the step at which the episode ended, counted from 1; malformed replies count.
        horizon: H, the largest number of steps.
        decay: what a success at the horizon loses, in [0, 1]; 0 switches the decay off.

    Raises:
        ValueError: `step` lies outside 1..horizon or `decay` outside [0, 1].
    """
    if not 1 <= step <= horizon:
        raise ValueError(f"step is {step} with horizon {horizon}; steps are counted from 1 to the horizon")
    if not 0 <= decay <= 1:
        raise ValueError(f"decay is {decay!r}; it must lie in [0, 1]")
    return 1.0 - decay * (step - 1) / max(1, horizon - 1)


def length_penalty(n_tokens: int, limit: int, threshold: float) -> float:
    """R_length: 0 up to threshold * limit tokens, then linear to -1 at the limit, -1 beyond (StraTA Eq. 11).

    Args:
        n_tokens: |x|, sampled tokens of the response, end of sequence included.
        limit: L, largest number of response tokens.
        threshold: lambda in [0, 1], the fraction of the limit that is free; 1 leaves only the -1 beyond the limit.

    Returns:
        A number in [-1, 0].

    Raises:
        ValueError: `n_tokens` is negative, `limit` is not positive, or `threshold` lies outside [0, 1].
    """
    if n_tokens < 0:
        raise ValueError(f"n_tokens is {n_tokens}; a response has at least 0 tokens")
    if limit <= 0:
        raise ValueError(f"limit is {limit}; the token limit of a response must be positive")
    if not 0 <= threshold <= 1:
        raise ValueError(f"threshold is {threshold!r}; it must lie in [0, 1]")
    used = n_tokens / limit
    if used <= threshold:
        return 0.0
    if used <= 1:
        return -(used - threshold) / (1 - threshold)
    return -1.0


def format_penalty(parsed: bool) -> float:
    """R_format: 0 if the response could be parsed, else -1 (StraTA Eq. 12)."""
    return 0.0 if parsed else -1.0


def total_reward(outcome: float, length: float, format: float, judge: float = 0.0) -> float:
    """Reward of one row: clip(R + R_length + R_format + R_judge, -1, 1) (StraTA Eq. 13; Eq. 18 with R_judge).

    Args:
        outcome: R, the outcome reward of the trajectory (Eq. 9) or of the strategy (Eq. 10).
        length: R_length, as `length_penalty` gives it (a penalty, not a number of tokens).
        format: R_format, as `format_penalty` gives it.
        judge: R_judge = -kappa on a flagged step, 0 otherwise (Eq. 17); actions only.

    Returns:
        A number in [-1, 1].

    Raises:
        ValueError: a term is not finite.
    """
    total = outcome + length + format + judge
    if not math.isfinite(total):
        raise ValueError(
            f"reward terms outcome={outcome}, length={length}, format={format}, judge={judge} must be finite; "
            "leave out rollouts without a verdict"
        )
    return float(min(1.0, max(-1.0, total)))
