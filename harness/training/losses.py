"""Losses of policy-gradient methods, per token and to be minimised, and how tokens add up to one number.

Tensors may be torch or NumPy; gradients flow through the first argument of each function only. Sums over rows go
through `row_weights` and `row_means`, so a mini-batch may be cut into micro-batches anywhere: fix the weights for
the mini-batch, add weight x row mean in each micro-batch, divide nothing afterwards.
"""

from collections.abc import Hashable, Iterable

import numpy as np
import numpy.typing as npt
import torch

from harness.training.advantages import group_index

__all__ = [
    "MODES", "aggregate", "clipped_surrogate", "kl", "row_means", "row_weights", "token_logprobs",
    "truncated_importance_weights",
]  # fmt: skip

TensorLike = torch.Tensor | npt.ArrayLike

MODES = ("token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "constant", "trajectory-mean")


def clipped_surrogate(
    logp: TensorLike,
    old_logp: TensorLike,
    advantages: TensorLike,
    *,
    clip_low: float,
    clip_high: float,
    dual_clip: float | None = None,
) -> torch.Tensor:
    """Clipped policy loss per token, -min(rho A, clip(rho, 1 - low, 1 + high) A) (PPO; StraTA Eq. 3, Table 7).

    Args:
        logp: log-probabilities of the sampled tokens under the policy, shape [..., T]; carries the gradient.
        old_logp: the same under the policy that sampled them; same shape, a constant.
        advantages: a constant of the same shape, or without the last axis (or with length 1 there): one advantage
            for all tokens of a row.
        clip_low: eps_low in [0, 1), 0.2 in the paper.
        clip_high: eps_high >= 0, 0.28 in the paper (clip-higher, DAPO, arXiv 2503.14476).
        dual_clip: c > 1 bounds the loss of a negative advantage by c |A| (arXiv 1912.09729); None switches it off.

    Returns:
        Loss per token, shape of `logp`, to be minimised; float32, or float64 where `logp` is.

    Raises:
        ValueError: shapes do not match, or a clip lies outside its range.
    """
    if not 0 <= clip_low < 1:
        raise ValueError(f"clip_low is {clip_low!r}; it must lie in [0, 1)")
    if not clip_high >= 0:
        raise ValueError(f"clip_high is {clip_high!r}; it must be at least 0")
    if dual_clip is not None and not dual_clip > 1:
        raise ValueError(f"dual_clip is {dual_clip!r}; it must exceed 1, or be None to switch it off")
    current = _floating(logp)
    old = _constant_like("old_logp", old_logp, current)
    advantage = _per_token_advantage(advantages, current)
    ratio = torch.exp(current - old)
    loss = -torch.minimum(ratio * advantage, ratio.clamp(1 - clip_low, 1 + clip_high) * advantage)
    if dual_clip is None:
        return loss
    return torch.where(advantage < 0, torch.minimum(loss, -dual_clip * advantage), loss)


def kl(logp: TensorLike, ref_logp: TensorLike, kind: str) -> torch.Tensor:
    """Estimate of KL(policy || reference) per sampled token (Schulman, "Approximating KL divergence", 2020).

    With d = logp - ref_logp: k1 = d, k2 = d^2 / 2, k3 = exp(-d) - 1 + d. As values k1 and k3 are unbiased. As losses
    on tokens of the current policy they pull differently: k1 has expected gradient 0, k2 that of the reverse KL,
    k3 that of the forward KL. Nothing is clamped (verl clamps k3 to [-10, 10], where its gradient vanishes).

    Args:
        logp: log-probabilities of the sampled tokens under the policy, any shape; carries the gradient.
        ref_logp: the same under the reference policy; same shape, a constant.
        kind: "k1", "k2" or "k3" (the default of the methods).

    Returns:
        Nats per token, shape of `logp`.

    Raises:
        ValueError: shapes differ or `kind` is unknown.
    """
    current = _floating(logp)
    difference = current - _constant_like("ref_logp", ref_logp, current)
    if kind == "k1":
        return difference
    if kind == "k2":
        return difference.square() / 2
    if kind == "k3":
        return torch.expm1(-difference) + difference  # expm1: for close policies exp(-d) - 1 would lose all digits
    raise ValueError(f'unknown KL kind {kind!r}; choose "k1", "k2" or "k3"')


def aggregate(
    per_token: TensorLike,
    mask: TensorLike,
    mode: str,
    *,
    constant: float | None = None,
    trajectories: Iterable[Hashable] | None = None,
) -> torch.Tensor:
    """Reduce a loss per token to the loss of the whole mini-batch: the sum over rows of `row_weights` x `row_means`.

    Args:
        per_token: shape [rows, T]. What stands outside the mask is never read.
        mask: shape [rows, T], 1 (or True) on response tokens. Rows without any do not count as rows.
        mode: see `row_weights`.
        constant: tokens per row to divide by; read by the mode "constant" only.
        trajectories: one hashable key per row; read by the mode "trajectory-mean" only.

    Returns:
        A scalar in the unit of `per_token`.

    Raises:
        ValueError: shapes differ, the mask is not 0/1 or empty, the mode is unknown or lacks what it reads.
    """
    losses, chosen = _masked_pair(per_token, mask)
    weights = row_weights(mode, chosen.sum(dim=1), constant=constant, trajectories=trajectories)
    return (row_means(losses, chosen) * torch.as_tensor(weights, dtype=losses.dtype, device=losses.device)).sum()


def row_weights(
    mode: str,
    mask_lengths: TensorLike,
    *,
    constant: float | None = None,
    trajectories: Iterable[Hashable] | None = None,
) -> npt.NDArray[np.float64]:
    """Weight of each row's token mean in the loss of its mini-batch.

    With n tokens in a row, R rows that have tokens, and K trajectories that have such rows:

    - token-mean: n / (all tokens); every token counts the same (DAPO).
    - seq-mean-token-mean: 1 / R; every response counts the same (StraTA Eq. 3 and 14).
    - trajectory-mean: 1 / (K x rows of the trajectory); every trajectory counts the same (GRPO, StraTA Eq. 4).
    - seq-mean-token-sum: n / R; a row counts by its length.
    - constant: n / (R x constant); the same, in units of a fixed length (Dr. GRPO, arXiv 2503.20783).

    The first three sum to 1, the last two to the mean length (over the constant). Rows without tokens get 0 and are
    not counted, so padding a batch with empty rows changes nothing.

    Args:
        mode: one of the above.
        mask_lengths: shape [rows], tokens inside each row's mask.
        constant: tokens per row, positive; needed by "constant" and read by no other mode.
        trajectories: one hashable key per row; needed by "trajectory-mean" and read by no other mode.

    Returns:
        float64, shape [rows].

    Raises:
        ValueError: the mode is unknown or lacks what it reads, a length is negative, or no row has tokens.
    """
    lengths = _row_lengths(mask_lengths)
    full = (lengths > 0).astype(np.float64)
    rows = float(full.sum())
    if mode == "token-mean":
        return lengths / float(lengths.sum())
    if mode == "seq-mean-token-mean":
        return full / rows
    if mode == "seq-mean-token-sum":
        return lengths / rows
    if mode == "constant":
        if constant is None or not constant > 0:
            raise ValueError(
                f'constant is {constant!r}; the mode "constant" divides by it: pass a positive number of tokens'
            )
        return lengths / (rows * constant)
    if mode == "trajectory-mean":
        if trajectories is None:
            raise ValueError('the mode "trajectory-mean" needs trajectories=, one key per row')
        return _trajectory_weights(full, trajectories)
    raise ValueError(f"unknown mode {mode!r}; choose one of {', '.join(MODES)}")


def row_means(per_token: TensorLike, mask: TensorLike) -> torch.Tensor:
    """Mean over the tokens inside each row's mask, [rows, T] -> [rows]; 0 for a row without any.

    A micro-batch contributes (row_weights of its rows in the mini-batch x row_means).sum() to the loss.

    Raises:
        ValueError: shapes differ or are not [rows, T], or the mask is not 0/1.
    """
    losses, chosen = _masked_pair(per_token, mask)
    kept = torch.where(chosen, losses, torch.zeros((), dtype=losses.dtype, device=losses.device))
    return kept.sum(dim=1) / chosen.sum(dim=1).clamp(min=1)


def token_logprobs(logits: TensorLike, ids: TensorLike, temperature: float = 1.0) -> torch.Tensor:
    """Log-probability of each id under softmax(logits / temperature).

    The temperature must be the one the ids were sampled at; otherwise importance ratios start away from 1
    (trl PR 3029). Computed in float32 at least, whatever the logits are stored in.

    Args:
        logits: shape [..., V]; the row that predicts the id at the same place.
        ids: integers, shape [...], in 0..V-1.
        temperature: positive, 1.0 in training.

    Returns:
        Nats, shape of `ids`.

    Raises:
        ValueError: the temperature is not positive, or shapes do not match.
    """
    if not temperature > 0:
        raise ValueError(
            f"temperature is {temperature!r}; greedy decoding has no log-probabilities: pass a positive one"
        )
    scores = _floating(logits)
    tokens = torch.as_tensor(ids, dtype=torch.int64, device=scores.device)
    if scores.shape[:-1] != tokens.shape:
        raise ValueError(
            f"logits have shape {list(scores.shape)} but ids {list(tokens.shape)}; pass [..., V] and [...]"
        )
    logprobs = torch.log_softmax(scores / temperature, dim=-1)
    return logprobs.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)


def truncated_importance_weights(
    logp_trainer: TensorLike,
    logp_sampler: TensorLike,
    mask: TensorLike,
    *,
    cap: float,
    level: str = "token",
    mode: str = "truncate",
) -> torch.Tensor:
    """Weights that correct for an engine whose probabilities differ from the trainer's, with a bound on them.

    The ratio is exp(logp_trainer - logp_sampler), where both are of the same weights: kernels and precision differ.
    Truncated (TIS, trl PR 3867) it is min(ratio, cap); masked (MIS, trl PR 4530) it is 0 beyond the cap, and the token,
    or the whole row, teaches nothing. In process sampler and trainer are one network and every weight is 1; both
    arguments must then be of one distribution, temperature and all, since a truncated one (top-p) is off by the kept
    mass in every token and no cap sees it (trl#6789).

    Args:
        logp_trainer: log-probabilities of the sampled tokens as the trainer computes them, shape [rows, T].
        logp_sampler: as the engine recorded them; same shape.
        mask: 1 (or True) on response tokens; same shape. What stands outside is never read.
        cap: C, at least 1; 2 is usual.
        level: what has one ratio: "token", each by itself; "sequence", all tokens of a row the product of theirs;
            "geometric", all tokens of a row the geometric mean of theirs.
        mode: "truncate" or "mask".

    Returns:
        Constants, shape [rows, T], to multiply a loss per token with; 0 outside the mask.

    Raises:
        ValueError: shapes differ, the mask is not 0/1, the cap is below 1, or level or mode is unknown.
    """
    if not cap >= 1:
        raise ValueError(f"cap is {cap!r}; below 1 it would cut the weights of tokens on which both agree")
    if mode not in ("truncate", "mask"):
        raise ValueError(f'unknown mode {mode!r}; choose "truncate" (TIS) or "mask" (MIS)')
    trainer, chosen = _masked_pair(logp_trainer, mask)
    trainer = trainer.detach()
    difference = trainer - _constant_like("logp_sampler", logp_sampler, trainer)
    difference = torch.where(chosen, difference, torch.zeros_like(difference))
    if level in ("sequence", "geometric"):
        total = difference.sum(dim=1, keepdim=True)
        count = chosen.sum(dim=1, keepdim=True).clamp(min=1) if level == "geometric" else 1
        difference = (total / count).expand_as(difference)
    elif level != "token":
        raise ValueError(f'unknown level {level!r}; choose "token", "sequence" or "geometric"')
    ratio = difference.exp()
    bounded = ratio.clamp(max=cap) if mode == "truncate" else ratio.masked_fill(ratio > cap, 0.0)
    return bounded.masked_fill(~chosen, 0.0)


def _trajectory_weights(full: npt.NDArray[np.float64], trajectories: Iterable[Hashable]) -> npt.NDArray[np.float64]:
    """1 / (trajectories x rows of this row's trajectory), over the rows that have tokens (full is 1 there, else 0)."""
    index = group_index(trajectories)
    if len(index) != len(full):
        raise ValueError(f"{len(full)} rows but {len(index)} trajectory keys; pass one key per row")
    rows = np.bincount(index, weights=full)
    return full / (np.count_nonzero(rows) * np.maximum(rows, 1.0)[index])


def _row_lengths(mask_lengths: TensorLike) -> npt.NDArray[np.float64]:
    plain = mask_lengths.cpu().numpy() if isinstance(mask_lengths, torch.Tensor) else mask_lengths
    lengths = np.asarray(plain, dtype=np.float64)
    if lengths.ndim != 1 or not (lengths >= 0).all():
        raise ValueError(f"mask_lengths are {lengths.tolist()}; pass the number of tokens of each row, shape [rows]")
    if not (lengths > 0).any():
        raise ValueError(f"none of the {len(lengths)} rows has a token inside its mask; a loss needs at least one")
    return lengths


def _masked_pair(per_token: TensorLike, mask: TensorLike) -> tuple[torch.Tensor, torch.Tensor]:
    losses = _floating(per_token)
    chosen = torch.as_tensor(mask, device=losses.device)
    if losses.ndim != 2 or losses.shape != chosen.shape:
        raise ValueError(f"per_token has shape {list(losses.shape)}, mask {list(chosen.shape)}; both must be [rows, T]")
    if chosen.dtype != torch.bool:
        if not ((chosen == 0) | (chosen == 1)).all():
            raise ValueError(
                "the mask holds other numbers than 0 and 1; weights belong into row_weights or the advantages"
            )
        chosen = chosen == 1
    return losses, chosen


def _per_token_advantage(advantages: TensorLike, logp: torch.Tensor) -> torch.Tensor:
    """The advantage of every token. Plain broadcasting would spread [rows] along T wherever rows equals T."""
    values = torch.as_tensor(advantages).detach().to(dtype=logp.dtype, device=logp.device)
    if values.shape == logp.shape:
        return values
    if logp.ndim and values.shape == logp.shape[:-1]:
        return values.unsqueeze(-1).expand_as(logp)
    if logp.ndim and values.shape == (*logp.shape[:-1], 1):
        return values.expand_as(logp)
    raise ValueError(
        f"advantages have shape {list(values.shape)} but logp {list(logp.shape)}; pass one per token, or one per row"
    )


def _floating(array: TensorLike) -> torch.Tensor:
    """A tensor of float32 or float64: half precision is too coarse for ratios and sums."""
    tensor = torch.as_tensor(array)
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def _constant_like(name: str, array: TensorLike, like: torch.Tensor) -> torch.Tensor:
    constant = torch.as_tensor(array).detach().to(dtype=like.dtype, device=like.device)
    if constant.shape != like.shape:
        raise ValueError(f"{name} has shape {list(constant.shape)} but logp {list(like.shape)}; they must be equal")
    return constant
