"""The peer: a plain padded training loop over `transformers`, as lean as its design allows.

Rows go through the network in the order they are given, a fixed number at a time. Prompts are padded on the left and
responses on the right, to the longest of the pass, as TRL's GRPOTrainer and verl without `use_remove_padding` do; those
pad to the longest of the whole batch and to fixed lengths, `whole=True` here pads to the longest of the mini-batch.
Logits are made for the response's columns alone, the attention is SDPA, the optimiser is fused AdamW.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from harness.model import Loss, MicroBatch, OptimizerConfig, TrainingRow


@dataclass(frozen=True, slots=True)
class MiniBatch:
    """What one optimiser step is taken on.

    Attributes:
        rows: N rows in the order of the mini-batch.
        weights: of each row's loss, float32 [N].
        arrays: per name one array per row, one number per response token.
        loss: of a micro-batch.
        temperature: of sampling.
    """

    rows: Sequence[TrainingRow]
    weights: npt.NDArray[np.float32]
    arrays: Mapping[str, Sequence[npt.NDArray[np.float32]]]
    loss: Loss
    temperature: float


class PaddedLoop:
    """Trains a network with padded passes of a fixed number of rows.

    Args:
        network: a causal language model, trained in place.
        optimizer: its settings.
        rows: of a pass.
        whole: pad to the longest prompt and response of the mini-batch, not of the pass.

    Attributes:
        computed: tokens that went through the network, padding included.
        pairs: queries x keys of the attention, padding included.
    """

    def __init__(self, network: Any, optimizer: OptimizerConfig, *, rows: int, whole: bool = False) -> None:
        self.network, self.rows, self.whole = network, rows, whole
        self.computed = self.pairs = 0
        self._max_grad_norm = optimizer.max_grad_norm
        self._optimizer = torch.optim.AdamW(
            network.parameters(), lr=optimizer.lr, betas=optimizer.betas, eps=optimizer.eps,
            weight_decay=optimizer.weight_decay, fused=True,
        )  # fmt: skip

    def update(self, batch: MiniBatch) -> float:
        """One optimiser step; returns the loss."""
        self._optimizer.zero_grad(set_to_none=True)
        total = 0.0
        for start in range(0, len(batch.rows), self.rows):
            part = slice(start, start + self.rows)
            widest = batch.rows if self.whole else batch.rows[part]
            loss = self._loss(
                batch, part, max(len(row.prompt_ids) for row in widest), max(len(row.ids) for row in widest)
            )
            loss.backward()  # type: ignore[no-untyped-call]
            total += float(loss.detach())
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), self._max_grad_norm)
        self._optimizer.step()
        return total

    def _loss(self, batch: MiniBatch, part: slice, prompt: int, response: int) -> torch.Tensor:
        rows = batch.rows[part]
        ids = torch.zeros(len(rows), prompt + response, dtype=torch.int64)
        mask = torch.zeros_like(ids)
        for line, row in enumerate(rows):
            here = slice(prompt - len(row.prompt_ids), prompt + len(row.ids))
            ids[line, here] = torch.tensor(row.prompt_ids + row.ids)
            mask[line, here] = 1
        logits = self.network(
            input_ids=ids,
            attention_mask=mask,
            position_ids=(mask.cumsum(dim=1) - 1).clamp(min=0),
            use_cache=False,
            logits_to_keep=response + 1,
        ).logits[:, :-1]
        self.computed += ids.numel()
        self.pairs += ids.numel() * ids.shape[1]
        table = torch.log_softmax(logits / batch.temperature, dim=-1)
        inside = mask[:, prompt:].float()
        logp = table.gather(-1, ids[:, prompt:, None])[..., 0] * inside
        entropies = -(table.exp() * table).sum(dim=-1) * inside
        return batch.loss(
            logp,
            entropies,
            MicroBatch(
                rows=rows,
                mask=inside,
                weights=torch.from_numpy(batch.weights[part]),
                arrays={name: _padded(values[part], response) for name, values in batch.arrays.items()},
            ),
        ).loss


def _padded(values: Sequence[npt.NDArray[np.float32]], width: int) -> torch.Tensor:
    table = torch.zeros(len(values), width)
    for line, value in enumerate(values):
        table[line, : len(value)] = torch.from_numpy(value)
    return table
