"""The training forward pass: log-probabilities and entropies of responses, without logits for prompts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from harness.model import MicroBatch, TrainingRow
from harness.models.decoding import left_padded
from harness.models.prefixes import PrefixTree, shared, tree_for
from harness.training.losses import token_logprobs
from harness.training.packing import length_chunks


@dataclass(frozen=True, slots=True)
class Reading:
    """How some rows go through a network, and where their responses come out.

    Attributes:
        arguments: of the network; B lines.
        columns: in which the network's states stand before the tokens to predict, the same for each line, int64 [C].
        ids: what the states of all lines, flattened, predict, int64 [B x C].
        where: for each place of the right-padded layout of a `MicroBatch` its entry in these, [R, T].
        tokens: that go through the network.
        used: tokens of the rows that have to be known to predict the last one of each.
        shared: whether the lines are a tree of prefixes.
    """

    arguments: dict[str, Any]
    columns: torch.Tensor
    ids: torch.Tensor
    where: torch.Tensor
    tokens: int
    used: int
    shared: bool

    @classmethod
    def of(cls, network: Any, rows: Sequence[TrainingRow], device: torch.device) -> Reading:
        """As a tree of prefixes where the network allows that, else padded.

        Raises:
            ValueError: a row without a prompt or response.
        """
        for row in rows:
            if not row.prompt_ids or not row.ids:
                raise ValueError(
                    f"a row needs a prompt and a response, got {len(row.prompt_ids)} and {len(row.ids)} ids"
                )
        tree = tree_for(network, [row.prompt_ids + row.ids[:-1] for row in rows], device)
        return _padded(rows, device) if tree is None else _branching(tree, rows, device)

    def run(self, network: Any, **more: Any) -> Any:
        """Call the network, or a part of it that shares its configuration."""
        with shared(network) if self.shared else nullcontext():
            return network(**self.arguments, use_cache=False, **more)


def _branching(tree: PrefixTree, rows: Sequence[TrainingRow], device: torch.device) -> Reading:
    """One line of distinct tokens."""
    columns = [path[len(row.prompt_ids) - 1 :] for path, row in zip(tree.paths, rows, strict=True)]
    lengths = np.array([len(row.ids) for row in rows], dtype=np.int64)
    starts = np.cumsum(lengths) - lengths
    within = np.minimum(np.arange(lengths.max()), lengths[:, None] - 1)
    return Reading(
        arguments=tree.arguments,
        columns=torch.from_numpy(np.concatenate(columns)).to(device),
        ids=torch.tensor([token for row in rows for token in row.ids], device=device),
        where=torch.from_numpy(starts[:, None] + within).to(device),
        tokens=len(tree.ids),
        used=sum(len(path) for path in tree.paths),
        shared=True,
    )


def _padded(rows: Sequence[TrainingRow], device: torch.device) -> Reading:
    """One line a row, all ending in the same column, so that padding is one rectangle."""
    ids, mask, positions = left_padded([row.prompt_ids + row.ids for row in rows], device)
    lengths = torch.tensor([[len(row.ids)] for row in rows], device=device)
    longest = int(lengths.max())
    columns = torch.arange(longest, device=device)
    lines = torch.arange(len(rows), device=device)[:, None] * longest
    return Reading(
        arguments={
            "input_ids": ids[:, :-1], "attention_mask": mask[:, :-1], "position_ids": positions[:, :-1],
        },
        columns=columns + ids.shape[1] - 1 - longest,
        ids=ids[:, -longest:].flatten(),
        where=lines + (columns + longest - lengths).clamp(max=longest - 1),
        tokens=ids[:, :-1].numel(),
        used=int(mask[:, :-1].sum()),
        shared=False,
    )  # fmt: skip


def response_logits(
    network: Any, rows: Sequence[TrainingRow], device: torch.device
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Logits that predict the responses of some rows; none are made for prompts.

    Returns:
        logits [N, V], the ids that they predict [N], and for each place of the right-padded layout of a `MicroBatch`
        its entry in these two, [R, T].

    Raises:
        ValueError: a row without a prompt or response.
    """
    reading = Reading.of(network, rows, device)
    logits = reading.run(network, logits_to_keep=reading.columns).logits
    return logits.flatten(0, 1), reading.ids, reading.where


def by_chunks(
    compute: Callable[[Sequence[TrainingRow]], torch.Tensor],
    rows: Sequence[TrainingRow],
    *,
    batch_tokens: int,
    max_padding: float,
) -> list[np.ndarray]:
    """One number per response token, computed in passes of rows of similar lengths, without gradients.

    Args:
        compute: numbers of some rows in the right-padded layout of a `MicroBatch`, [R, T].
        rows: whose responses are scored.
        batch_tokens: bound on the padded tokens of a pass.
        max_padding: share of padding in a pass beyond which another one is made.

    Returns:
        float32 arrays of the responses' lengths, in input order.
    """
    lengths = [len(row.prompt_ids) + len(row.ids) for row in rows]
    order = sorted(range(len(rows)), key=lambda i: (lengths[i], len(rows[i].ids), i))
    values: list[np.ndarray] = [np.empty(0, dtype=np.float32)] * len(rows)
    for chunk in length_chunks([lengths[i] for i in order], max_tokens=batch_tokens, max_padding=max_padding):
        chosen = [order[position] for position in chunk]
        with torch.inference_mode():
            table = compute([rows[i] for i in chosen]).cpu().numpy()
        for i, line in zip(chosen, table, strict=True):
            values[i] = line[: len(rows[i].ids)].copy()
    return values


def scores(
    network: Any, batch: MicroBatch, temperature: float, device: torch.device, *, entropy_gradient: bool = True
) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probabilities and entropies, each [R, T] and float32, of a micro-batch's responses; 0 outside its mask.

    Without `entropy_gradient` the entropies are constants, which saves the memory of several tables of logits.
    """
    logits, ids, where = response_logits(network, batch.rows, device)
    outside = batch.mask == 0
    logp = token_logprobs(logits, ids, temperature)[where].masked_fill(outside, 0.0)
    with nullcontext() if entropy_gradient else torch.no_grad():
        entropies = entropy(logits, temperature)[where].masked_fill(outside, 0.0)
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
