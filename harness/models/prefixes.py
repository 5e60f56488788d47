"""Token sequences that begin alike, computed once: a tree of prefixes in one line, and attention along its paths.

A causal network's state after a token depends on that token and those before it alone. So the steps of one episode,
the rollouts of one task and the samples of one prompt share the states of the tokens that they begin with. The
distinct tokens stand in one line without padding; everything but attention works on that line, and attention lets
each token see its own path (tree attention, as in PrefixGrouper, arXiv 2506.05433, for a tree of any depth).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.nn.functional import embedding, scaled_dot_product_attention
from transformers import AttentionInterface

from harness.training.packing import length_chunks

ATTENTION = "prefix_tree"
"""Name under which `transformers` finds `attend`."""

MOST_MASK = 1 << 26
"""Entries of the masks of one pass, a byte each and four where the kernel wants numbers. Beyond, sequences are so long
that attention without a mask is the better choice."""

PLAIN_ATTENTION = frozenset({"llama", "qwen2", "qwen3"})
"""Architectures whose attention is softmax(QK / scale) V and no more, and whose positions are rotary."""

Places = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Block:
    """Paths whose last tokens go through attention together, ending in the same column.

    Attributes:
        queries: places of each path's own tokens in the line, int64 [r, q].
        keys: places of its whole path, [r, k].
        mask: which keys a query sees, bool [r, 1, q, k].
    """

    queries: torch.Tensor
    keys: torch.Tensor
    mask: torch.Tensor


@dataclass(frozen=True, slots=True)
class PrefixTree:
    """Sequences as paths through a line of n distinct tokens.

    Attributes:
        ids: of the distinct tokens, int64 [n]; two places hold equal prefixes never.
        positions: of each in its sequence, int64 [n].
        paths: for each sequence the places of its tokens, in order.
        blocks: what attention works on; every place is a query of exactly one path.
        where: for each place its entry among the flattened queries of all blocks, int64 [n].
    """

    ids: torch.Tensor
    positions: torch.Tensor
    paths: Sequence[Places]
    blocks: Sequence[Block]
    where: torch.Tensor

    @classmethod
    def of(cls, sequences: Sequence[Sequence[int]], device: torch.device) -> PrefixTree | None:
        """The tree of some sequences, each of at least one token; None where its masks would exceed `MOST_MASK`."""
        paths, own, tokens, positions = _numbered([np.asarray(sequence, dtype=np.int64) for sequence in sequences])
        blocks, where = _blocks(paths, own, len(tokens))
        if sum(queries.size * keys.shape[1] for queries, keys, _ in blocks) > MOST_MASK:
            return None
        return cls(
            ids=torch.from_numpy(tokens).to(device),
            positions=torch.from_numpy(positions).to(device),
            paths=paths,
            blocks=[
                Block(
                    torch.from_numpy(queries).to(device),
                    torch.from_numpy(keys).to(device),
                    _mask(queries.shape[1], keys.shape[1], torch.from_numpy(starts).to(device)),
                )
                for queries, keys, starts in blocks
            ],
            where=torch.from_numpy(where).to(device),
        )

    @property
    def arguments(self) -> dict[str, Any]:
        """What the network reads; its attention has to be `shared`."""
        return {
            "input_ids": self.ids[None],
            "position_ids": self.positions[None],
            # four dimensions: taken as it is, and never read; without it, a mask of [n, n] would be made
            "attention_mask": torch.ones(1, 1, 1, 1, dtype=torch.bool, device=self.ids.device),
            "tree": self,
        }


def shares_prefixes(network: Any) -> bool:
    """Whether a network computes the same along the paths of a tree as on sequences one by one.

    Not where positions depend on the longest sequence of a pass, and not where the backward pass computes layers once
    more (gradient checkpointing), which it would do with the plain attention.
    """
    config = network.config
    layers = getattr(config, "layer_types", None) or ()
    rope = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    return (
        config.model_type in PLAIN_ATTENTION
        and config._attn_implementation == "sdpa"
        and all(layer == "full_attention" for layer in layers)
        and rope.get("rope_type", "default") not in ("dynamic", "longrope")
        and not getattr(network, "is_gradient_checkpointing", False)
    )


def tree_for(network: Any, sequences: Sequence[Sequence[int]], device: torch.device) -> PrefixTree | None:
    """The tree to compute some sequences along; None where the network or their length asks for lines of their own."""
    return PrefixTree.of(sequences, device) if shares_prefixes(network) else None


@contextmanager
def shared(network: Any) -> Iterator[None]:
    """Inside, the network's attention follows the tree that it is called with."""
    config = network.config
    before = config._attn_implementation
    config._attn_implementation = ATTENTION
    try:
        yield
    finally:
        config._attn_implementation = before


def attend(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    tree: PrefixTree,
    scaling: float | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Attention of every token of the line to its path; called by the network's layers.

    Args:
        query: [1, H, n, d].
        key: [1, K, n, d], K a divisor of H.
        value: as `key`.

    Returns:
        [1, n, H, d], and no weights.
    """
    heads, places, width = query.shape[1:]
    groups = key.shape[1]
    queries = query[0].transpose(0, 1).reshape(places, heads * width)
    both = torch.cat([key[0], value[0]]).transpose(0, 1).reshape(places, 2 * groups * width)
    parts = []
    for block in tree.blocks:
        rows, columns = block.queries.shape
        # embedding() gathers whole lines, and its gradient adds them up fast and in a fixed order
        q = embedding(block.queries, queries).view(rows, columns, heads, width).transpose(1, 2)
        kv = embedding(block.keys, both).view(rows, -1, 2, groups, width).permute(2, 0, 3, 1, 4)
        k, v = kv.repeat_interleave(heads // groups, dim=2).unbind(0)
        seen = scaled_dot_product_attention(q, k, v, attn_mask=block.mask, scale=scaling)
        parts.append(seen.transpose(1, 2).reshape(rows * columns, heads * width))
    return embedding(tree.where, torch.cat(parts)).view(1, places, heads, width), None


AttentionInterface.register(ATTENTION, attend)


def _numbered(sequences: Sequence[Places]) -> tuple[list[Places], list[int], Places, Places]:
    """Paths, the number of tokens that each is the first to need, and ids and positions of the line.

    In the order of their ids, a sequence shares the longest prefix of all earlier ones with its predecessor.
    """
    paths: list[Places] = [np.empty(0, dtype=np.int64)] * len(sequences)
    own = [0] * len(sequences)
    tokens: list[Places] = []
    positions: list[Places] = []
    count = 0
    before = path = np.empty(0, dtype=np.int64)
    for index in sorted(range(len(sequences)), key=lambda i: sequences[i].tolist()):
        sequence = sequences[index]
        common = _common(before, sequence)
        own[index] = len(sequence) - common
        path = np.concatenate([path[:common], np.arange(count, count + own[index], dtype=np.int64)])
        paths[index] = path
        tokens.append(sequence[common:])
        positions.append(np.arange(common, len(sequence), dtype=np.int64))
        count += own[index]
        before = sequence
    return paths, own, np.concatenate(tokens), np.concatenate(positions)


def _common(first: Places, second: Places) -> int:
    """Length of the longest common prefix."""
    shorter = min(len(first), len(second))
    different = np.flatnonzero(first[:shorter] != second[:shorter])
    return int(different[0]) if len(different) else shorter


def _blocks(
    paths: Sequence[Places], own: Sequence[int], count: int
) -> tuple[list[tuple[Places, Places, Places]], Places]:
    """Queries and keys of each block and the columns in which its keys begin; each place's query among all of them."""
    order = sorted((i for i in range(len(paths)) if own[i]), key=lambda i: (own[i], len(paths[i]), i))
    blocks = []
    where = np.empty(count, dtype=np.int64)
    start = 0
    for chunk in length_chunks([own[i] for i in order], max_tokens=count, max_padding=0.25):
        chosen = [order[position] for position in chunk]
        q, k = max(own[i] for i in chosen), max(len(paths[i]) for i in chosen)
        queries = np.zeros((len(chosen), q), dtype=np.int64)
        keys = np.zeros((len(chosen), k), dtype=np.int64)
        for line, i in enumerate(chosen):
            queries[line, q - own[i] :] = paths[i][len(paths[i]) - own[i] :]
            keys[line, k - len(paths[i]) :] = paths[i]
            where[queries[line, q - own[i] :]] = start + line * q + np.arange(q - own[i], q)
        blocks.append((queries, keys, np.array([k - len(paths[i]) for i in chosen], dtype=np.int64)))
        start += queries.size
    return blocks, where


def _mask(queries: int, keys: int, starts: torch.Tensor) -> torch.Tensor:
    """Which keys a query sees, bool [r, 1, queries, keys]: those from its path's start to its own column."""
    first = starts[:, None, None, None]
    columns = torch.arange(keys, device=starts.device)
    own = torch.arange(queries, device=starts.device)[:, None] + keys - queries
    # a query before the path's own tokens is padding: it sees its own column's path, so that no line is empty
    return (columns >= first) & (columns <= torch.maximum(own, first))
