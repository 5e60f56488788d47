"""A critic: a copy of a causal language model whose head gives one number, the value of the state before a token."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from harness.model import MicroBatch, TrainingRow, UpdateStats, ValueLoss, ValueModel
from harness.models.scoring import Reading, by_chunks
from harness.models.trained import TrainedNetwork


class ValueNetwork(torch.nn.Module):
    """A transformer without its language-model head, and a linear head on its last hidden states.

    The head starts at 0: every value is 0 at first, and no seed is needed.

    Args:
        body: gives `last_hidden_state` [B, L, H]; it is taken as it is.
    """

    def __init__(self, body: Any) -> None:
        super().__init__()
        self.body = body
        width = body.get_input_embeddings().weight.shape[1]
        device = next(body.parameters()).device
        self.weight = torch.nn.Parameter(torch.zeros(width, device=device))
        self.bias = torch.nn.Parameter(torch.zeros(1, device=device))

    def forward(self, reading: Reading) -> torch.Tensor:
        """Values of the states that a reading asks for, [N]."""
        hidden = reading.run(self.body).last_hidden_state[:, reading.columns].flatten(0, 1)
        values: torch.Tensor = hidden @ self.weight + self.bias
        return values


class TransformersValue(TrainedNetwork, ValueModel):
    """A critic on a copy of a network of `transformers`, in float32 whatever the network was stored in.

    Args:
        network: a causal language model; all of the copy's weights are trained.
        name: for messages.
        max_padding: share of padding in a pass beyond which a second one is made.
    """

    def __init__(self, network: Any, *, name: str, max_padding: float = 0.25) -> None:
        self.name = name
        body = copy.deepcopy(network.base_model).to(torch.float32).requires_grad_(True)
        self.network = ValueNetwork(body).eval()
        self.device = next(body.parameters()).device
        self.max_padding = max_padding

    def values(self, rows: Sequence[TrainingRow], *, batch_tokens: int = 16384) -> list[np.ndarray]:
        """Value of the state before every response token, float32 arrays of the responses' lengths, in input order."""
        return by_chunks(self._table, rows, batch_tokens=batch_tokens, max_padding=self.max_padding)

    def update(self, loss: ValueLoss, micro_batches: Sequence[MicroBatch]) -> UpdateStats:
        """One optimiser step on the sum of the micro-batches' losses; see the contract and `TrainedNetwork.step`.

        Outside a micro-batch's mask, values are 0.
        """
        return self.step(
            lambda batch: loss(self._table(batch.rows).masked_fill(batch.mask == 0, 0.0), batch), micro_batches
        )

    def _table(self, rows: Sequence[TrainingRow]) -> torch.Tensor:
        """Values in the right-padded layout of a `MicroBatch`, [R, T]; the padding holds values of other columns."""
        reading = Reading.of(self.network.body, rows, self.device)
        values: torch.Tensor = self.network(reading)
        return values[reading.where]
