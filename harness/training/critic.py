"""A critic and what it is for: advantages of tokens by GAE over an episode's rows (PPO), and the loss that fits it.

GAE is arXiv 1506.02438, Eq. 16; the clipped value loss is that of PPO2 in OpenAI's baselines, which verl computes too
(`compute_value_loss`).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from harness.errors import Diverged
from harness.model import LossOutput, MicroBatch, OptimizerConfig, TrainingRow, ValueModel, add_metrics
from harness.training.advantages import gae, group_index
from harness.training.divergence import told_rows

if TYPE_CHECKING:
    import torch

FloatArray = NDArray[np.float64]


def sequence_gae(
    rewards: Sequence[FloatArray],
    values: Sequence[FloatArray],
    sequences: Sequence[Hashable],
    *,
    gamma: float,
    lam: float,
) -> tuple[list[FloatArray], list[FloatArray]]:
    """Advantages and returns of tokens in sequences that several rows make up.

    The response tokens of a sequence follow each other, row after row: prompts and observations between them are no
    actions of the policy, and neither discount nor value is spent on them. After the last token the value is 0.

    Args:
        rewards: per row, one reward for each response token.
        values: per row, the value of the state before each response token.
        sequences: one key per row; rows of one key are one sequence, in the order they are given in.
        gamma: discount per token, in [0, 1].
        lam: lambda of GAE, in [0, 1].

    Returns:
        (advantages, returns), each one float64 array per row; a return is the token's advantage plus its value.

    Raises:
        ValueError: numbers of rows or tokens differ, or see `harness.training.advantages.gae`.
    """
    lengths = np.array([len(row) for row in rewards], dtype=np.intp)
    if not len(rewards) == len(values) == len(sequences):
        raise ValueError(f"{len(rewards)} rows of rewards, {len(values)} of values and {len(sequences)} sequence keys")
    if wrong := [i for i, row in enumerate(values) if len(row) != lengths[i]]:
        i = wrong[0]
        raise ValueError(f"row {i} has {lengths[i]} rewards and {len(values[i])} values; pass one per response token")
    if not len(rewards):
        return [], []
    owner = group_index(sequences)
    longest = int(np.bincount(owner, weights=lengths).max())
    reward, value, mask = (np.zeros((owner.max() + 1, longest)) for _ in range(3))
    used = np.zeros(owner.max() + 1, dtype=np.intp)
    places: list[tuple[int, slice]] = []
    for i, line in enumerate(owner):
        place = slice(int(used[line]), int(used[line] + lengths[i]))
        reward[line, place], value[line, place], mask[line, place] = rewards[i], values[i], 1
        used[line] = place.stop
        places.append((int(line), place))
    advantages, returns = gae(reward, value, mask, gamma=gamma, lam=lam)
    return [advantages[place] for place in places], [returns[place] for place in places]


def explained_variance(returns: FloatArray, values: FloatArray) -> float:
    """1 - Var(returns - values) / Var(returns): 1 for a perfect critic, 0 for a constant one, negative for a worse one.

    Where the returns do not vary there is nothing to explain, and 0 is returned.
    """
    spread = float(np.var(returns))
    return 1.0 - float(np.var(returns - values)) / spread if spread > 0 else 0.0


@dataclass(frozen=True, slots=True)
class SquaredValueLoss:
    """Half the squared error of a token's value against its return, the mean over the tokens of the mini-batch.

    With `clip`, a value may gain by moving at most that far from the old one: of the errors of the value and of the
    value clipped to old +- clip the larger one counts, and has the gradient.

    The micro-batch brings `returns` and `old_values`, each [R, T]; its weights are those of a mean over tokens.
    """

    clip: float | None = None

    def __call__(self, values: torch.Tensor, batch: MicroBatch) -> LossOutput:
        from harness.training.losses import row_means

        returns, old, mask = batch.arrays["returns"], batch.arrays["old_values"], batch.mask
        error = (values - returns).square()
        clipped = 0.0
        if self.clip is not None:
            bounded = (old + (values - old).clamp(-self.clip, self.clip) - returns).square()
            clipped = float(((bounded > error).to(mask.dtype) * mask).sum())
            error = error.maximum(bounded)
        loss = (row_means(0.5 * error, mask) * batch.weights).sum()
        return LossOutput(loss, {"tokens": float(mask.sum()), "clipped": clipped})


class Critic:
    """A value model and what it is fitted to in this training step.

    In every training step `estimate` comes first, then `aim`, then `fit` for each mini-batch. What the first two keep
    lasts until the next step replaces it and is no part of a checkpoint.

    Args:
        model: gives the values.
        optimizer: its settings.
        clip: see `SquaredValueLoss`.
        steps: optimiser steps on each mini-batch.
        micro_batch_tokens: padded tokens of a pass; changes memory, not results.
    """

    def __init__(
        self, model: ValueModel, optimizer: OptimizerConfig, *, clip: float | None, steps: int, micro_batch_tokens: int
    ) -> None:
        self.model = model
        self.clip, self.steps, self.micro_batch_tokens = clip, steps, micro_batch_tokens
        self._old: list[FloatArray] = []
        self._returns: list[FloatArray] = []
        self._report: dict[str, float] = {}
        model.configure(optimizer)

    def estimate(self, rows: Sequence[TrainingRow]) -> list[FloatArray]:
        """Value of the state before each response token as the critic stands now; the old values of this step.

        Raises:
            Diverged: a value is not finite.
        """
        found = self.model.values(rows, batch_tokens=self.micro_batch_tokens)
        self._old = [np.asarray(values, dtype=np.float64) for values in found]
        if wrong := [i for i, values in enumerate(self._old) if not np.isfinite(values).all()]:
            raise Diverged(
                f"the critic gives values that are not finite on {len(wrong)} of {len(rows)} rows; "
                "lower its learning rate (critic_lr)",
                told_rows([rows[i] for i in wrong], {"old_values": [self._old[i] for i in wrong]}),
            )
        return self._old

    def aim(self, returns: Sequence[FloatArray]) -> None:
        """Take what the values of the estimated rows should have been, one array per row."""
        self._returns = list(returns)
        values, wanted = np.concatenate(self._old), np.concatenate(self._returns)
        self._report = {
            "value_mean": float(values.mean()),
            "explained_variance": explained_variance(wanted, values),
        }

    def fit(self, rows: Sequence[TrainingRow], chosen: NDArray[np.int64]) -> dict[str, float]:
        """Optimiser steps on one mini-batch.

        Args:
            rows: those that were estimated, all of them.
            chosen: indices of those in the mini-batch.

        Returns:
            `value_loss`, `value_clip_fraction` and `critic_grad_norm` (before clipping) as means over the steps;
            `value_mean` and `explained_variance` over all tokens of the training step, of the old values.

        Raises:
            Diverged: a loss or a gradient is not finite; no step was taken with it.
        """
        from harness.training.losses import row_weights
        from harness.training.packing import micro_batches

        mine = [rows[i] for i in chosen]
        arrays = {
            "returns": [self._returns[i] for i in chosen],
            "old_values": [self._old[i] for i in chosen],
        }
        weights = row_weights("token-mean", np.array([len(row.ids) for row in mine]))
        batches = micro_batches(mine, weights, arrays, max_tokens=self.micro_batch_tokens)
        loss, norm = 0.0, 0.0
        totals: dict[str, float] = {}
        for _ in range(self.steps):
            try:
                stats = self.model.update(SquaredValueLoss(self.clip), batches)
            except FloatingPointError as error:
                raise Diverged(f"the critic: {error}", told_rows(mine, arrays)) from error
            loss, norm = loss + stats.loss, norm + stats.grad_norm
            add_metrics(totals, stats.metrics)
        return self._report | {
            "value_loss": loss / self.steps,
            "value_clip_fraction": totals["clipped"] / totals["tokens"],
            "critic_grad_norm": norm / self.steps,
        }
