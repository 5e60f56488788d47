"""The training forward pass: log-probabilities and entropies of responses, without logits for prompts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from harness.model import MicroBatch, TrainingRow
from harness.models.decoding import left_padded
from harness.training.losses import token_logprobs


def response_logits(
    network: Any, rows: Sequence[TrainingRow], device: torch.device
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Logits that predict the last T tokens of every row, T the longest response's length.

    Rows end in the same column, so that padding is one rectangle and no logits are made for prompts (beyond those
    that short responses leave of the T columns).

    Returns:
        logits [R, T, V], the ids they predict [R, T], and for each place of the right-padded layout of a
        `MicroBatch` its column in these two, [R, T].

    Raises:
        ValueError: a row without a prompt or response.
    """
    for row in rows:
        if not row.prompt_ids or not row.ids:
            raise ValueError(f"a row needs a prompt and a response, got {len(row.prompt_ids)} and {len(row.ids)} ids")
    ids, mask, positions = left_padded([row.prompt_ids + row.ids for row in rows], device)
    lengths = torch.tensor([[len(row.ids)] for row in rows], device=device)
    longest = int(lengths.max())
    logits = network(
        input_ids=ids[:, :-1],
        attention_mask=mask[:, :-1],
        position_ids=positions[:, :-1],
        use_cache=False,
        logits_to_keep=longest,
    ).logits
    columns = torch.arange(longest, device=device)
    return logits, ids[:, -longest:], (columns + longest - lengths).clamp(max=longest - 1)


def scores(
    network: Any, batch: MicroBatch, temperature: float, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probabilities and entropies, each [R, T] and float32, of a micro-batch's responses; 0 outside its mask."""
    logits, ids, where = response_logits(network, batch.rows, device)
    outside = batch.mask == 0
    logp = token_logprobs(logits, ids, temperature).gather(1, where).masked_fill(outside, 0.0)
    entropies = entropy(logits, temperature).gather(1, where).masked_fill(outside, 0.0)
    return logp, entropies


def entropy(logits: torch.Tensor, temperature: float) -> torch.Tensor:
    """Entropy of softmax(logits / temperature) in nats, [..., V] -> [...], float32."""
    logprobs = torch.log_softmax(logits.float() / temperature, dim=-1)
    return -(logprobs.exp() * logprobs).sum(dim=-1)


def moved(batch: MicroBatch, device: torch.device) -> MicroBatch:
    """A micro-batch with its tensors on a device."""
    return MicroBatch(
        rows=batch.rows,
        mask=batch.mask.to(device),
        weights=batch.weights.to(device),
        arrays={name: array.to(device) for name, array in batch.arrays.items()},
    )
