"""A network of a few thousand weights with a vocabulary of letters, and prompts for it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from harness.model import LossOutput, MicroBatch, Prompt, Request, Sampling, TrainingRow
from harness.models.mini import MiniConfig, MiniModel, WordTokenizer
from harness.seeding import generator
from harness.training.losses import row_means

torch.set_num_threads(1)  # as the harness's workers compute; two threads on a busy machine wait for each other

LETTERS = [chr(code) for code in range(ord("a"), ord("z") + 1)]
SHAPE = MiniConfig(hidden=16, layers=2, heads=2, kv_heads=1, ff=16, max_positions=64)


def tiny(seed: int = 0) -> MiniModel:
    """A tiny untrained model; weights are enlarged so that its distributions are far from uniform."""
    model = MiniModel.fresh(WordTokenizer(("<pad>", "<eos>", "<unk>", *LETTERS)), SHAPE, seed=seed)
    with torch.no_grad():
        for parameter in model.network.parameters():
            if parameter.ndim == 2:
                parameter.mul_(8)
    return model


def prompts(n: int, *, low: int = 3, high: int = 20, seed: int = 0) -> list[Prompt]:
    """Prompts of different lengths; all different for lengths above 3 or so."""
    random = generator("prompts", seed)
    return [Prompt.user(" ".join(random.choice(LETTERS, random.integers(low, high)))) for _ in range(n)]


def requests(texts: Sequence[Prompt], **sampling: float) -> list[Request]:
    """One request each, with seeds 0, 1, ... and at most 8 tokens."""
    options = {"max_tokens": 8, **sampling}
    return [
        Request((i,), prompt, Sampling(seed=i, **options))  # type: ignore[arg-type]
        for i, prompt in enumerate(texts)
    ]


def sampled_rows(model: MiniModel, n: int = 12, seed: int = 0) -> list[TrainingRow]:
    """Rows of what the model answers at temperature 1."""
    completions = model.generate(requests(prompts(n, seed=seed)))
    return [TrainingRow(completion.prompt_ids, completion.token_ids) for completion in completions]


def reinforce(logp: torch.Tensor, entropies: torch.Tensor, batch: MicroBatch) -> LossOutput:
    """-advantage x log-probability minus a bonus for entropy, and the number of tokens as a metric."""
    per_token = -batch.arrays["advantages"] * logp - 0.1 * entropies
    return LossOutput((row_means(per_token, batch.mask) * batch.weights).sum(), {"tokens": float(batch.mask.sum())})


def advantages(rows: Sequence[TrainingRow]) -> list[np.ndarray]:
    """Numbers of either sign, one per token."""
    random = generator("advantages", len(rows))
    return [random.normal(size=len(row.ids)).astype(np.float32) for row in rows]
