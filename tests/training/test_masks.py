"""Which sampled tokens are trained on."""

from typing import Any

import numpy as np
import pytest
import torch

from harness.training.masks import response_mask


def test_a_row_without_eos_is_all_response() -> None:
    mask = response_mask(torch.tensor([[5, 6, 7], [5, 2, 2]]), 2)
    assert mask.dtype == np.bool_
    assert mask.tolist() == [[True, True, True], [True, True, False]]


def test_several_ids_may_end_a_response() -> None:
    """Qwen2.5 ends a turn with one id and pads with another; both are ends."""
    assert response_mask([5, 3, 2, 2], {2, 3}).tolist() == [True, True, False, False]


@pytest.mark.parametrize(
    ("ids", "eos", "message"), [([1.5], 2, "pass integers"), ([[[1]]], 2, "pass integers"), ([1], [], "eos is empty")]
)
def test_refusals_name_the_thing(ids: Any, eos: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        response_mask(ids, eos)
