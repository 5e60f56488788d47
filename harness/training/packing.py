"""Rows of different lengths in rectangles: chunks of similar lengths, and micro-batches for the trainer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import torch

from harness.model import MicroBatch, TrainingRow

FREE_PADDING = 512
"""Padded tokens that cost less than another pass through the network does (measured at mini scale, one thread)."""


def length_chunks(
    lengths: Sequence[int],
    *,
    max_tokens: int,
    max_padding: float,
    free_padding: int = FREE_PADDING,
    counts: Sequence[int] | None = None,
) -> list[list[int]]:
    """Cut items that are sorted by length into runs that go through the network together.

    Greedy from the longest, whose length is the width of its chunk. A chunk is closed before the item that would make
    its padding exceed both `free_padding` tokens and `max_padding` of the rectangle, or the rectangle `max_tokens`.

    Args:
        lengths: positive, in ascending order.
        max_tokens: bound on rows x width; an item beyond that goes alone.
        max_padding: padding over rectangle, in [0, 1]; 0 together with `free_padding=0` groups equal lengths only.
        free_padding: tokens of padding that are always allowed.
        counts: rows that each item becomes, for `max_tokens` alone (a prompt with several samples); 1 each by default.

    Returns:
        Chunks of consecutive indices, the longest items first; a function of its arguments alone.

    Raises:
        ValueError: lengths that are not sorted.
    """
    if any(later < earlier for earlier, later in pairwise(lengths)):
        raise ValueError("length_chunks needs lengths in ascending order; sort the rows first")
    chunks: list[list[int]] = []
    width = padding = rows = 0
    for index in range(len(lengths) - 1, -1, -1):
        length, count = lengths[index], counts[index] if counts else 1
        wasted = padding + width - length
        fits = (rows + count) * width <= max_tokens
        if chunks and fits and (wasted <= free_padding or wasted <= max_padding * (len(chunks[-1]) + 1) * width):
            chunks[-1].append(index)
            padding, rows = wasted, rows + count
        else:
            chunks.append([index])
            width, padding, rows = length, 0, count
    return [chunk[::-1] for chunk in chunks]


def micro_batches(
    rows: Sequence[TrainingRow],
    weights: npt.ArrayLike,
    arrays: Mapping[str, Sequence[npt.NDArray[np.floating]]] | None = None,
    *,
    max_tokens: int,
    max_padding: float = 0.25,
) -> list[MicroBatch]:
    """Cut a mini-batch into micro-batches of rows of similar lengths.

    The loss of a mini-batch does not depend on the cut: the weights are fixed here and travel with their rows.

    Args:
        rows: N rows, each with at least one response token.
        weights: weight of each row's loss, shape [N]; they sum to 1 where the loss is a mean.
        arrays: per name one array per row, one number per response token.
        max_tokens: bound on padded tokens (prompt and response) of one micro-batch; a longer row goes alone.
        max_padding: share of padding in a micro-batch beyond which another one is begun.

    Returns:
        Micro-batches, the longest rows first; responses are padded on the right with zeros.

    Raises:
        ValueError: lengths that do not match, or a row without a prompt or response.
    """
    given = dict(arrays or {})
    weight = np.asarray(weights, dtype=np.float32)
    _check(rows, weight, given)
    order = sorted(range(len(rows)), key=lambda i: (_length(rows[i]), len(rows[i].ids), i))
    cuts = length_chunks([_length(rows[i]) for i in order], max_tokens=max_tokens, max_padding=max_padding)
    batches = []
    for cut in cuts:
        chosen = [order[position] for position in cut]
        width = max(len(rows[i].ids) for i in chosen)
        batches.append(
            MicroBatch(
                rows=[rows[i] for i in chosen],
                mask=_padded([np.ones(len(rows[i].ids), dtype=np.float32) for i in chosen], width),
                weights=torch.from_numpy(weight[chosen]),
                arrays={name: _padded([values[i] for i in chosen], width) for name, values in given.items()},
            )
        )
    return batches


def padding_waste(batches: Sequence[MicroBatch]) -> float:
    """Share of the tokens that go through the network which are padding, over all micro-batches; 0 for none."""
    computed = used = 0
    for batch in batches:
        lengths = [_length(row) for row in batch.rows]
        computed += max(lengths) * len(lengths)
        used += sum(lengths)
    return 1.0 - used / computed if computed else 0.0


def _length(row: TrainingRow) -> int:
    return len(row.prompt_ids) + len(row.ids)


def _padded(values: Sequence[npt.NDArray[np.floating]], width: int) -> torch.Tensor:
    table = np.zeros((len(values), width), dtype=np.float32)
    for line, value in zip(table, values, strict=True):
        line[: len(value)] = value
    return torch.from_numpy(table)


def _check(
    rows: Sequence[TrainingRow],
    weights: npt.NDArray[np.float32],
    arrays: Mapping[str, Sequence[npt.NDArray[np.floating]]],
) -> None:
    if weights.shape != (len(rows),):
        raise ValueError(f"{len(rows)} rows but weights of shape {list(weights.shape)}; pass one weight per row")
    for index, row in enumerate(rows):
        if not row.ids or not row.prompt_ids:
            raise ValueError(f"row {index} has an empty {'prompt' if row.ids else 'response'}; leave it out")
    for name, values in arrays.items():
        if len(values) != len(rows):
            raise ValueError(f"array {name!r} has {len(values)} entries for {len(rows)} rows; pass one per row")
        for index, (row, value) in enumerate(zip(rows, values, strict=True)):
            if np.shape(value) != (len(row.ids),):
                raise ValueError(
                    f"array {name!r} of row {index} has shape {list(np.shape(value))}, its response "
                    f"{len(row.ids)} tokens; pass one number per token"
                )
