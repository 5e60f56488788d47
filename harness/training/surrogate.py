"""The loss of an update: clipped surrogate, KL against a reference, entropy bonus; and what of it is reported."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from harness.model import LossOutput, MicroBatch
from harness.training.losses import clipped_surrogate, kl, row_means


@dataclass(frozen=True, slots=True)
class SurrogateLoss:
    """StraTA Eq. 3 and 14, negated: per row the mean over its tokens, rows added with their weights.

    The micro-batch brings `old_logp`, `advantages` and, where kl_beta > 0, `ref_logp`, each [R, T].

    Raises:
        FloatingPointError: a token's importance ratio exceeds `ratio_limit`.
    """

    clip_low: float
    clip_high: float
    dual_clip: float | None = None
    ratio_limit: float | None = None
    kl_beta: float = 0.0
    kl_kind: Literal["k1", "k2", "k3"] = "k3"
    kl_clamp: float | None = None
    entropy: float = 0.0

    @property
    def entropy_gradient(self) -> bool:
        """Whether the entropies that it is given need a gradient; without, the pass takes less memory."""
        return self.entropy > 0

    def __call__(self, logp: torch.Tensor, entropies: torch.Tensor, batch: MicroBatch) -> LossOutput:
        old, advantages, mask = batch.arrays["old_logp"], batch.arrays["advantages"], batch.mask
        per_token = clipped_surrogate(
            logp, old, advantages, clip_low=self.clip_low, clip_high=self.clip_high, dual_clip=self.dual_clip
        )
        kl_sum = 0.0
        if self.kl_beta > 0:
            divergence = kl(logp, batch.arrays["ref_logp"], self.kl_kind)
            if self.kl_clamp is not None:  # beyond the bound the gradient vanishes
                divergence = divergence.clamp(-self.kl_clamp, self.kl_clamp)
            per_token = per_token + self.kl_beta * divergence
            kl_sum = float((divergence.detach() * mask).sum())
        if self.entropy > 0:
            per_token = per_token - self.entropy * entropies
        loss = (row_means(per_token, mask) * batch.weights.to(per_token.dtype)).sum()
        return LossOutput(loss, self._report(logp.detach(), entropies.detach(), batch, kl_sum))

    def _report(
        self, logp: torch.Tensor, entropies: torch.Tensor, batch: MicroBatch, kl_sum: float
    ) -> dict[str, float]:
        """Sums over the tokens of the micro-batch, and the largest ratio.

        A token is clipped where clip_low or clip_high takes its gradient: without an advantage it has none to lose,
        however far its ratio has moved under a KL term.
        """
        mask = batch.mask
        difference = (logp - batch.arrays["old_logp"]) * mask
        ratio = difference.exp()
        advantages = batch.arrays["advantages"]
        clipped = ((advantages > 0) & (ratio > 1 + self.clip_high)) | ((advantages < 0) & (ratio < 1 - self.clip_low))
        largest = float((ratio * mask).max())
        if self.ratio_limit is not None and largest > self.ratio_limit:
            raise FloatingPointError(
                f"an importance ratio of {largest:.4g} exceeds ratio_limit={self.ratio_limit:g}; no step was taken; "
                "lower the learning rate, or use fewer mini-batches or epochs per training step"
            )
        report = {
            "tokens": float(mask.sum()),
            "update_entropy": float((entropies * mask).sum()),
            "ratio": float((ratio * mask).sum()),
            "ratio_max": largest,
            "approx_kl": float(((ratio - 1 - difference) * mask).sum()),
            "clip_fraction": float((clipped * mask).sum()),
        }
        return report | ({"kl": kl_sum} if self.kl_beta > 0 else {})
