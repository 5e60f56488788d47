"""Supervised fine-tuning: maximum likelihood on given responses (behaviour cloning, distillation)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
import torch

from harness.model import LossOutput, MicroBatch, OptimizerConfig, TrainableModel, TrainingRow, UnsupportedOption
from harness.seeding import generator
from harness.training.losses import row_means, row_weights
from harness.training.packing import micro_batches

Schedule = Callable[[float], float]
"""Progress through training in [0, 1) -> factor of the learning rate."""


@runtime_checkable
class Scheduled(Protocol):
    """A model whose learning rate can change while its optimiser keeps its moments."""

    def set_lr(self, lr: float) -> None: ...


def warmup_cosine(warmup: float = 0.05, final: float = 0.0) -> Schedule:
    """Linear rise from 0 over the first `warmup` of training, then half a cosine down to `final`.

    Args:
        warmup: share of the updates, in [0, 1).
        final: factor that the end approaches, in [0, 1].

    Raises:
        ValueError: an argument outside its range.
    """
    if not 0 <= warmup < 1 or not 0 <= final <= 1:
        raise ValueError(f"warmup must lie in [0, 1) and final in [0, 1], got {warmup} and {final}")

    def factor(progress: float) -> float:
        if progress < warmup:
            return progress / warmup
        descent = (progress - warmup) / (1 - warmup)
        return final + (1 - final) * (1 + math.cos(math.pi * descent)) / 2

    return factor


def fine_tune(
    model: TrainableModel,
    rows: Sequence[TrainingRow],
    *,
    epochs: int,
    optimizer: OptimizerConfig,
    batch_size: int,
    seed: int,
    schedule: Schedule | None = None,
    weights: Sequence[float] | None = None,
    max_tokens: int = 8192,
) -> list[float]:
    """Fit the responses of all rows; the model's optimiser is made anew.

    The loss of a batch is the mean cross entropy of its response tokens, each token times its row's weight.

    Args:
        model: trained in place.
        rows: prompts and the responses to imitate, the end-of-sequence token included.
        epochs: passes over all rows, each in an order of its own that `seed` decides.
        optimizer: its `lr` is the highest learning rate.
        batch_size: rows per update; the last batch of an epoch may be smaller.
        seed: of the shuffling.
        schedule: factor of the learning rate by progress; constant by default.
        weights: one factor per row (an auxiliary task at 0.2); 1 each by default.
        max_tokens: bound on the padded tokens of one micro-batch; changes speed and memory, nothing else.

    Returns:
        Loss of each epoch in nats per token, as training met it (before each update).

    Raises:
        ValueError: no rows, or epochs or batch size below 1.
        UnsupportedOption: a schedule for a model whose learning rate is constant.
        FloatingPointError: see `TrainableModel.update`.
    """
    if schedule is not None and not isinstance(model, Scheduled):
        raise UnsupportedOption(f"{model.backend} keeps its learning rate constant; leave the schedule out")
    if not rows or epochs < 1 or batch_size < 1:
        raise ValueError(
            f"fine-tuning needs rows, epochs and a batch size of at least 1, got {len(rows)} rows, "
            f"epochs={epochs}, batch_size={batch_size}"
        )
    factors = np.ones(len(rows)) if weights is None else np.asarray(weights, dtype=np.float64)
    if factors.shape != (len(rows),):
        raise ValueError(f"{len(rows)} rows but {factors.shape[0]} weights; pass one per row")
    model.configure(optimizer)
    lengths = np.array([len(row.ids) for row in rows])
    per_epoch = math.ceil(len(rows) / batch_size)
    losses = []
    for epoch in range(epochs):
        order = generator("sft", seed, epoch).permutation(len(rows))
        total = 0.0
        for index in range(per_epoch):
            chosen = order[index * batch_size : (index + 1) * batch_size]
            if schedule is not None and isinstance(model, Scheduled):
                model.set_lr(optimizer.lr * schedule((epoch * per_epoch + index) / (epochs * per_epoch)))
            shares = row_weights("token-mean", lengths[chosen]) * factors[chosen]
            batches = micro_batches([rows[i] for i in chosen], shares, max_tokens=max_tokens)
            stats = model.update(cross_entropy, batches, temperature=1.0)
            total += stats.loss * float(lengths[chosen].sum())
        losses.append(total / float(lengths.sum()))
    return losses


def cross_entropy(logp: torch.Tensor, entropy: torch.Tensor, batch: MicroBatch) -> LossOutput:
    """Weighted sum over rows of the mean negative log-likelihood of their tokens, in nats."""
    return LossOutput((row_means(-logp, batch.mask) * batch.weights).sum())
