"""The decode loop: a chunk of prompts through a causal language model with a key-value cache.

The caches of prompts are padded on the left, so that every row's next token stands in the same column. What prompts
begin with goes through the network once (a prompt that several requests share, or the head that those of one task
have in common) and its cache is copied; a row that has ended leaves the batch and the cache, so that no step is
computed for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from transformers import DynamicCache

from harness.models.prefixes import PrefixTree, shared, tree_for
from harness.models.sampling import Samplers, draw
from harness.types import FinishReason


@dataclass(slots=True)
class Counters:
    """Tokens that went through the network and tokens that were asked for, since the model was made.

    Attributes:
        prefill_computed: prompt tokens, padding included; what prompts of a pass begin with, once.
        prefill_used: prompt tokens of all requests.
        decode_computed: response tokens fed back into the network, for rows that had ended too (there are none).
        decode_used: response tokens that had to be fed back: all but each response's last.
    """

    prefill_computed: int = 0
    prefill_used: int = 0
    decode_computed: int = 0
    decode_used: int = 0


@dataclass(frozen=True, slots=True)
class Sampled:
    """One response: its ids (the stop token included), their log-probabilities, and why it ended."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: FinishReason


@dataclass(frozen=True, slots=True)
class Chunk:
    """What one pass works on.

    Attributes:
        prompts: U different prompts.
        owners: for each of n responses the index of its prompt.
        samplers: options of the n responses.
        limits: token limit of each of the n responses.
    """

    prompts: Sequence[Sequence[int]]
    owners: Sequence[int]
    samplers: Samplers
    limits: Sequence[int]


@torch.inference_mode()
def decode(network: Any, chunk: Chunk, stops: torch.Tensor, counters: Counters) -> list[Sampled]:
    """Sample one response for each owner of a chunk, in their order.

    Args:
        network: a `transformers` causal language model.
        chunk: prompts and who samples from them.
        stops: ids that end a response, shape [s], on the network's device.
        counters: added to.
    """
    device = stops.device
    width, rows, longest = max(map(len, chunk.prompts)), len(chunk.owners), max(chunk.limits)
    counters.prefill_used += sum(len(chunk.prompts[owner]) for owner in chunk.owners)
    tree = tree_for(network, chunk.prompts, device)
    if tree is None:
        cache, logits, computed = padded_prefill(network, chunk, device)
    else:
        cache, logits, computed = branching_prefill(network, chunk, tree, device)
    counters.prefill_computed += computed

    starts = torch.tensor([[width - len(chunk.prompts[owner])] for owner in chunk.owners], device=device)
    mask = (torch.arange(width + longest, device=device) >= starts).long()
    position = width - starts - 1
    limits = torch.tensor(chunk.limits, device=device)
    samplers = chunk.samplers
    live = torch.arange(rows, device=device)
    tokens = torch.zeros(rows, longest, dtype=torch.int64, device=device)
    logprobs = torch.zeros(rows, longest, device=device)
    lengths = torch.zeros(rows, dtype=torch.int64, device=device)
    for step in range(longest):
        drawn, chosen = draw(logits, samplers, step)
        tokens[live, step], logprobs[live, step] = drawn, chosen
        lengths[live] += 1
        going = (~(torch.isin(drawn, stops) | (limits <= step + 1))).nonzero()[:, 0]
        if len(going) == 0:
            break
        if len(going) < len(live):
            cache.batch_select_indices(going)
            live, drawn, position, mask = live[going], drawn[going], position[going], mask[going]
            limits, samplers = limits[going], samplers.select(going)
        position = position + 1
        logits = network(
            input_ids=drawn[:, None],
            attention_mask=mask[:, : width + step + 1],
            position_ids=position,
            past_key_values=cache,
            use_cache=True,
        ).logits[:, -1]
        counters.decode_computed += len(live)
    counters.decode_used += int(lengths.sum()) - rows
    last = tokens.gather(1, lengths[:, None] - 1)[:, 0]
    return _cut(tokens, logprobs, lengths, torch.isin(last, stops))


def padded_prefill(network: Any, chunk: Chunk, device: torch.device) -> tuple[DynamicCache, torch.Tensor, int]:
    """Prompts as lines of a rectangle.

    Returns:
        the cache of each of the n responses, its prompt on the right; logits of their first tokens, [n, V]; tokens
        that went through the network.
    """
    ids, mask, positions = left_padded(chunk.prompts, device)
    cache = DynamicCache(config=network.config)
    out = network(
        input_ids=ids,
        attention_mask=mask,
        position_ids=positions,
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=1,
    )
    logits = out.logits[:, -1]
    if len(chunk.owners) != len(chunk.prompts):
        owners = torch.tensor(chunk.owners, device=device)
        cache.batch_select_indices(owners)
        logits = logits[owners]
    return cache, logits, ids.numel()


def branching_prefill(
    network: Any, chunk: Chunk, tree: PrefixTree, device: torch.device
) -> tuple[DynamicCache, torch.Tensor, int]:
    """Prompts as paths of a tree: what several begin with is computed once. Returns what `padded_prefill` does."""
    cache: Any = DynamicCache(config=network.config)
    last = torch.tensor([int(path[-1]) for path in tree.paths], device=device)
    with shared(network):
        out = network(**tree.arguments, past_key_values=cache, use_cache=True, logits_to_keep=last)
    places, _, _ = left_padded([tree.paths[owner] for owner in chunk.owners], device)
    for layer in cache.layers:
        layer.keys = layer.keys[0, :, places].transpose(0, 1)
        layer.values = layer.values[0, :, places].transpose(0, 1)
    return cache, out.logits[0, torch.tensor(chunk.owners, device=device)], len(tree.ids)


def _cut(tokens: torch.Tensor, logprobs: torch.Tensor, lengths: torch.Tensor, stopped: torch.Tensor) -> list[Sampled]:
    table = zip(tokens.tolist(), logprobs.tolist(), lengths.tolist(), stopped.tolist(), strict=True)
    return [
        Sampled(tuple(ids[:length]), tuple(values[:length]), "stop" if stop else "length")
        for ids, values, length, stop in table
    ]


def left_padded(
    sequences: Sequence[Sequence[int] | npt.NDArray[np.int64]], device: torch.device
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Ids, mask and positions of sequences that end in the same column, each int64 of shape [n, longest].

    The padding id is 0 whatever the tokenizer's is: the mask hides it, and nothing is ever read off from an id.
    """
    width = max(len(sequence) for sequence in sequences)
    ids = np.zeros((len(sequences), width), dtype=np.int64)
    for line, sequence in zip(ids, sequences, strict=True):
        line[width - len(sequence) :] = sequence
    columns: npt.NDArray[np.int64] = np.arange(width, dtype=np.int64)
    starts = np.array([[width - len(sequence)] for sequence in sequences], dtype=np.int64)
    mask = (columns >= starts).astype(np.int64)
    positions = np.maximum(columns - starts, 0)
    return (
        torch.from_numpy(ids).to(device),
        torch.from_numpy(mask).to(device),
        torch.from_numpy(positions).to(device),
    )
