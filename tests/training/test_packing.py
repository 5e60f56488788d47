"""Rows in rectangles: every row once, with its own numbers, and little padding."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.model import TrainingRow
from harness.training.packing import length_chunks, micro_batches, padding_waste

LENGTHS = st.lists(st.integers(1, 200), min_size=1, max_size=60).map(sorted)


@given(lengths=LENGTHS, tokens=st.integers(1, 3000), share=st.floats(0, 1), free=st.integers(0, 300))
def test_chunks_hold_every_item_once_within_their_bounds(
    lengths: list[int], tokens: int, share: float, free: int
) -> None:
    chunks = length_chunks(lengths, max_tokens=tokens, max_padding=share, free_padding=free)
    assert [index for chunk in reversed(chunks) for index in chunk] == list(range(len(lengths)))
    for chunk in chunks:
        area = len(chunk) * lengths[chunk[-1]]
        padding = area - sum(lengths[index] for index in chunk)
        assert len(chunk) == 1 or area <= tokens
        assert padding <= free or padding <= share * area


def test_no_padding_allowed_groups_equal_lengths() -> None:
    chunks = length_chunks([2, 3, 3, 5], max_tokens=100, max_padding=0.0, free_padding=0)
    assert chunks == [[3], [1, 2], [0]]


def test_counts_bound_the_rows_and_not_the_padding() -> None:
    """A prompt with many samples goes through the network once but takes that many rows of the cache."""
    assert length_chunks([5, 5, 5], max_tokens=40, max_padding=0.0, counts=[4, 4, 4]) == [[1, 2], [0]]
    assert length_chunks([4, 5], max_tokens=1000, max_padding=0.0, free_padding=1, counts=[9, 9]) == [[0, 1]]


def test_lengths_out_of_order_are_refused() -> None:
    with pytest.raises(ValueError, match="ascending order"):
        length_chunks([3, 2], max_tokens=10, max_padding=0.5)


@given(
    shapes=st.lists(st.tuples(st.integers(1, 40), st.integers(1, 12)), min_size=1, max_size=30),
    tokens=st.integers(1, 800),
)
def test_every_row_keeps_its_weight_and_arrays(shapes: list[tuple[int, int]], tokens: int) -> None:
    rows = [TrainingRow((i,) * prompt, (i,) * length) for i, (prompt, length) in enumerate(shapes)]
    weights = np.arange(1, len(rows) + 1) / 100
    arrays = {"advantages": [np.full(len(row.ids), 1 + i, dtype=np.float32) for i, row in enumerate(rows)]}
    batches = micro_batches(rows, weights, arrays, max_tokens=tokens)
    seen = []
    for batch in batches:
        assert batch.mask.shape == batch.arrays["advantages"].shape
        assert batch.mask.shape[1] == max(len(row.ids) for row in batch.rows)
        for row, mask, weight, values in zip(
            batch.rows, batch.mask, batch.weights, batch.arrays["advantages"], strict=True
        ):
            index, n = row.ids[0], len(row.ids)
            seen.append(index)
            assert mask.tolist() == [1.0] * n + [0.0] * (len(mask) - n)
            assert float(weight) == pytest.approx(weights[index])
            assert values.tolist() == [1.0 + index] * n + [0.0] * (len(mask) - n)
    assert sorted(seen) == list(range(len(rows)))


def test_waste_is_the_share_of_padding() -> None:
    rows = [TrainingRow((1,) * 6, (1,) * 2), TrainingRow((1,) * 3, (1,) * 1)]
    together = micro_batches(rows, [0.5, 0.5], max_tokens=100)
    assert padding_waste(together) == pytest.approx(4 / 16)
    assert padding_waste(micro_batches(rows, [0.5, 0.5], max_tokens=8)) == 0.0
    assert padding_waste([]) == 0.0


def test_a_bound_on_padding_makes_more_micro_batches() -> None:
    rows = [TrainingRow((1,) * n, (1,)) for n in (10, 100) for _ in range(40)]
    shares = np.full(80, 1 / 80)
    loose = micro_batches(rows, shares, max_tokens=10_000, max_padding=1.0)
    tight = micro_batches(rows, shares, max_tokens=10_000, max_padding=0.1)
    assert len(loose) == 1
    assert len(tight) == 2
    assert padding_waste(tight) < 0.11 < padding_waste(loose)


@pytest.mark.parametrize(
    ("rows", "weights", "arrays", "message"),
    [
        ([TrainingRow((1,), (1,))], [0.5, 0.5], {}, "1 rows but weights of shape"),
        ([TrainingRow((1,), ())], [1.0], {}, "row 0 has an empty response"),
        ([TrainingRow((), (1,))], [1.0], {}, "row 0 has an empty prompt"),
        ([TrainingRow((1,), (1,))], [1.0], {"old": []}, "array 'old' has 0 entries for 1 rows"),
        ([TrainingRow((1,), (1, 2))], [1.0], {"old": [np.zeros(1)]}, "array 'old' of row 0 has shape"),
    ],
)
def test_what_does_not_fit_is_named(rows: list, weights: list, arrays: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        micro_batches(rows, weights, arrays, max_tokens=100)
