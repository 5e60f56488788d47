"""Advantages and returns: what a row or a token is worth beside its alternatives. NumPy only; torch is not imported.

A group is any hashable key and its members may stand anywhere in the input. Every function returns float64.
"""

import math
from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["discounted_returns", "gae", "group_index", "group_normalize", "leave_one_out", "masked_whiten"]

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
IndexArray = npt.NDArray[np.intp]


def group_normalize(
    rewards: npt.ArrayLike, groups: Iterable[Hashable], *, ddof: int = 1, eps: float = 1e-6, scale: str = "std"
) -> FloatArray:
    """Group-relative advantage (r - mean) / (std + eps) (GRPO, arXiv 2402.03300; StraTA Eq. 2).

    A group of one, and a group whose rewards are all equal, gets exactly 0: nothing was compared, so nothing is
    learned. (verl, verl-agent and rLLM return the raw reward of a lone rollout.)

    Args:
        rewards: shape [N], one reward per member, any unit.
        groups: N hashable keys; equal keys form a group. Their order is irrelevant.
        ddof: 1 divides the variance by n - 1 (torch.std, verl, TRL), 0 by n (numpy.std, rLLM).
        eps: added to the standard deviation, in units of the reward; it is no floor, so low variance is not flattened.
        scale: "std", or "none" to only centre (Dr. GRPO, arXiv 2503.20783).

    Returns:
        Shape [N], in the order of `rewards`.

    Raises:
        ValueError: lengths differ, a reward is not finite, or ddof, eps or scale is unknown.
    """
    if scale not in ("std", "none"):
        raise ValueError(f'unknown scale {scale!r}; choose "std" or "none"')
    if ddof not in (0, 1):
        raise ValueError(f"ddof is {ddof!r}; choose 1 (sample std) or 0 (population std)")
    if not eps >= 0:
        raise ValueError(f"eps is {eps!r}; it is added to a standard deviation and must be at least 0")
    values, index = _grouped(rewards, groups)
    centred, counts = _centred(values, index)
    if scale == "none":
        return centred
    squares = np.bincount(index, weights=centred**2)
    std = np.sqrt(squares / np.maximum(counts - ddof, 1))  # the maximum only spares groups of one a division by 0
    return np.divide(centred, (std + eps)[index], out=np.zeros_like(centred), where=centred != 0)


def leave_one_out(rewards: npt.ArrayLike, groups: Iterable[Hashable]) -> FloatArray:
    """Reward minus the mean reward of the other members (RLOO, arXiv 2402.14740).

    Equal to n / (n - 1) * (r - mean). Members must be trajectories: over the rows of trajectories, a row's own
    siblings would stand in its baseline and nothing would be left out.

    Args:
        rewards: shape [N], one reward per trajectory.
        groups: N hashable keys; a group of one gets 0, as in `group_normalize`.

    Returns:
        Shape [N], in the order and unit of `rewards`.

    Raises:
        ValueError: lengths differ or a reward is not finite.
    """
    values, index = _grouped(rewards, groups)
    centred, counts = _centred(values, index)
    return centred * (counts / np.maximum(counts - 1, 1))[index]


def discounted_returns(rewards: npt.ArrayLike, episodes: Iterable[Hashable], gamma: float) -> FloatArray:
    """Return of each step to the end of its episode: R_t = r_t + gamma * R_{t+1}.

    Args:
        rewards: shape [N], one reward per step; the steps of one episode stand in time order, though steps of
            other episodes may lie between them.
        episodes: N hashable keys, the episode of each step.
        gamma: discount per step, in [0, 1].

    Returns:
        Shape [N], in the order and unit of `rewards`.

    Raises:
        ValueError: lengths differ, a reward is not finite, or gamma lies outside [0, 1].
    """
    _check_fraction("gamma", gamma)
    values, index = _grouped(rewards, episodes)
    returns = np.empty_like(values)
    following = np.zeros(index.max(initial=-1) + 1)
    for step in range(len(values) - 1, -1, -1):
        following[index[step]] = returns[step] = values[step] + gamma * following[index[step]]
    return returns


def gae(
    rewards: npt.ArrayLike, values: npt.ArrayLike, mask: npt.ArrayLike, *, gamma: float, lam: float
) -> tuple[FloatArray, FloatArray]:
    """Generalised advantage estimation over the tokens that the policy chose (arXiv 1506.02438, Eq. 16).

    The mask acts inside the recursion: observation tokens and padding are bridged, so the successor of a token is the
    next token inside the mask. What `rewards` and `values` hold outside the mask is never read. The value after the
    last token is 0 (the episode is over).

    Args:
        rewards: shape [T] or [B, T], reward per token.
        values: same shape, the critic's value of the state before each token.
        mask: same shape, 1 (or True) on tokens of the policy, 0 elsewhere.
        gamma: discount per token, in [0, 1].
        lam: lambda, in [0, 1]; 1 gives Monte Carlo returns minus values, 0 one-step errors.

    Returns:
        (advantages, returns), same shape, not whitened; returns = advantages + values, the critic's targets. Both are
        0 outside the mask.

    Raises:
        ValueError: shapes differ or are not [T] or [B, T], the mask is not 0/1, a number inside the mask is not
            finite, or gamma or lam lies outside [0, 1].
    """
    _check_fraction("gamma", gamma)
    _check_fraction("lam", lam)
    chosen = _mask(mask)
    reward, value = _inside("rewards", rewards, chosen), _inside("values", values, chosen)
    if chosen.ndim not in (1, 2):
        raise ValueError(f"gae got arrays of shape {chosen.shape}; pass [T] or [B, T]")
    advantages = np.zeros_like(reward)
    next_value = np.zeros(chosen.shape[:-1])
    next_advantage = np.zeros(chosen.shape[:-1])
    for t in range(chosen.shape[-1] - 1, -1, -1):
        here = chosen[..., t]
        error = reward[..., t] + gamma * next_value - value[..., t]
        next_advantage = np.where(here, error + gamma * lam * next_advantage, next_advantage)
        next_value = np.where(here, value[..., t], next_value)
        advantages[..., t] = np.where(here, next_advantage, 0.0)
    return advantages, advantages + value


def masked_whiten(values: npt.ArrayLike, mask: npt.ArrayLike, *, ddof: int = 1, eps: float = 1e-8) -> FloatArray:
    """Shift and scale the numbers inside the mask to mean 0 and standard deviation 1, over the whole array.

    PPO whitens token advantages so (verl's masked_whiten). Numbers outside the mask are never read.

    Args:
        values: any shape.
        mask: same shape, 1 (or True) where `values` counts.
        ddof: 1 (sample std) or 0.
        eps: added to the standard deviation.

    Returns:
        Same shape, 0 outside the mask. A single number, or equal ones, whiten to 0.

    Raises:
        ValueError: shapes differ, the mask is not 0/1, a number inside the mask is not finite, or ddof is unknown.
    """
    chosen = _mask(mask)
    inside = _inside("values", values, chosen)
    whitened = np.zeros_like(inside)
    whitened[chosen] = group_normalize(inside[chosen], [0] * int(chosen.sum()), ddof=ddof, eps=eps)
    return whitened


def group_index(keys: Iterable[Hashable]) -> IndexArray:
    """Number the distinct keys in order of appearance: shape [N], counted from 0.

    Args:
        keys: N hashable keys; tuples, and 0-d arrays and tensors (taken by value), included.

    Raises:
        ValueError: a key is nan.
        TypeError: a key is not hashable.
    """
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(_plain_key(key), len(numbers)) for key in keys], dtype=np.intp)


def _centred(values: FloatArray, index: IndexArray) -> tuple[FloatArray, FloatArray]:
    """Values minus their group's mean, and each group's size; equal values give exactly 0.

    Rounding in the mean would leave about 1e-17 where all values are equal, and eps would not hide it from an
    optimiser that rescales gradients, so equality is tested rather than computed.
    """
    counts = np.bincount(index).astype(np.float64)
    means = np.bincount(index, weights=values) / counts
    first = np.empty_like(means)
    first[index] = values  # some member of each group: any one will do
    varied = np.bincount(index, weights=values != first[index]) > 0
    return np.where(varied[index], values - means[index], 0.0), counts


def _grouped(rewards: npt.ArrayLike, groups: Iterable[Hashable]) -> tuple[FloatArray, IndexArray]:
    """Checked rewards [N] and the number of each one's group."""
    values = _floats(rewards)
    if values.ndim != 1:
        raise ValueError(f"rewards have shape {values.shape}; pass one number per member, shape [N]")
    index = group_index(groups)
    if len(index) != len(values):
        raise ValueError(f"{len(values)} rewards but {len(index)} keys; pass one key per reward")
    if not np.isfinite(values).all():
        bad = int(np.flatnonzero(~np.isfinite(values))[0])
        raise ValueError(f"reward {bad} is {values[bad]}; leave out rollouts without a verdict before comparing")
    return values, index


def _plain_key(key: Any) -> Hashable:
    """The plain value of a key: a tensor hashes by identity, so equal 0-d tensors would never meet."""
    plain: Hashable = key.item() if hasattr(key, "item") else key
    if isinstance(plain, float) and math.isnan(plain):
        raise ValueError("a group key is nan, which equals nothing, itself included; use a number, a string or a tuple")
    return plain


def _floats(array: Any) -> FloatArray:
    """The array as float64. A torch tensor is known by its `detach`; NumPy cannot read one with a gradient."""
    plain = array.detach().cpu().double().numpy() if hasattr(array, "detach") else array
    return np.asarray(plain, dtype=np.float64)


def _mask(mask: npt.ArrayLike) -> BoolArray:
    numbers = _floats(mask)
    chosen: BoolArray = np.equal(numbers, 1)
    if not (chosen | (numbers == 0)).all():
        raise ValueError(f"the mask holds {numbers[~chosen & (numbers != 0)][0]}; it may hold only 0 and 1")
    return chosen


def _inside(name: str, array: npt.ArrayLike, chosen: BoolArray) -> FloatArray:
    """The numbers inside the mask, 0 elsewhere: padding may hold anything, nan included."""
    numbers = _floats(array)
    if numbers.shape != chosen.shape:
        raise ValueError(f"{name} have shape {numbers.shape} but the mask {chosen.shape}; they must be equal")
    inside = np.where(chosen, numbers, 0.0)
    if not np.isfinite(inside).all():
        raise ValueError(
            f"{name} hold {inside[~np.isfinite(inside)][0]} inside the mask; every number there must be finite"
        )
    return inside


def _check_fraction(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise ValueError(f"{name} is {value!r}; it must lie in [0, 1]")
