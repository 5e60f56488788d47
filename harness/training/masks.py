"""Which sampled tokens are the response."""

from collections.abc import Collection

import numpy as np
import numpy.typing as npt

__all__ = ["response_mask"]


def response_mask(token_ids: npt.ArrayLike, eos: int | Collection[int]) -> npt.NDArray[np.bool_]:
    """Mark the tokens up to and including the first end of sequence.

    The first EOS is an action of the policy and is trained on, also where the same id serves as padding; masking all
    padding ids would drop it and the policy would unlearn to stop (RAGEN#59). A row without EOS was cut at the token
    limit and is a response from end to end, so pad such a row with an EOS id or not at all.

    Args:
        token_ids: shape [T] or [B, T], the sampled ids without the prompt, padded on the right.
        eos: the id, or ids, that end a response.

    Returns:
        Same shape, True on the response.

    Raises:
        ValueError: `token_ids` is not an integer array of shape [T] or [B, T], or `eos` is empty.
    """
    ids = np.asarray(token_ids)
    if ids.ndim not in (1, 2) or not np.issubdtype(ids.dtype, np.integer):
        raise ValueError(f"token_ids have shape {ids.shape} and type {ids.dtype}; pass integers, [T] or [B, T]")
    ends = [eos] if isinstance(eos, int | np.integer) else sorted(eos)
    if not ends:
        raise ValueError("eos is empty; name at least one id that ends a response")
    is_end = np.isin(ids, ends)
    ends_before: npt.NDArray[np.int_] = np.cumsum(is_end, axis=-1) - is_end
    return np.equal(ends_before, 0)
