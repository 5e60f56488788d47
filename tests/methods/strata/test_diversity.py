"""Algorithm 1 against a brute-force greedy, and the cases the paper does not mention: ties, copies, zero vectors."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from methods.strata.diversity import farthest_point_selection, mean_pairwise_cosine

QUICK = settings(max_examples=40, deadline=None)


def greedy(embeddings: np.ndarray, n: int) -> list[int]:
    """Algorithm 1 spelled out, one pair at a time; rounded, since two candidates always tie for the first place."""
    unit = [vector / np.linalg.norm(vector) for vector in embeddings]
    centre = np.mean(unit, axis=0)
    chosen = [max(range(len(unit)), key=lambda i: round(unit[i] @ centre, 12))]
    while len(chosen) < n:
        rest = [i for i in range(len(unit)) if i not in chosen]
        chosen.append(min(rest, key=lambda i: max(round(unit[i] @ unit[j], 12) for j in chosen)))
    return chosen


@QUICK
@given(seed=st.integers(0, 2**32 - 1), candidates=st.integers(1, 12), d=st.integers(2, 9))
def test_equals_brute_force(seed: int, candidates: int, d: int) -> None:
    embeddings = np.random.default_rng(seed).normal(size=(candidates, d))
    for n in range(1, candidates + 1):
        assert farthest_point_selection(embeddings, n) == greedy(embeddings, n)


@QUICK
@given(seed=st.integers(0, 2**32 - 1), random=st.randoms(use_true_random=False))
def test_length_and_order_of_the_candidates_are_irrelevant(seed: int, random: Any) -> None:
    rng = np.random.default_rng(seed)
    embeddings = rng.normal(size=(8, 5))
    order = random.sample(range(8), 8)
    chosen = farthest_point_selection(embeddings, 4)
    assert farthest_point_selection(embeddings * rng.uniform(0.01, 100, size=(8, 1)), 4) == chosen
    assert [order[i] for i in farthest_point_selection(embeddings[order], 4)] == chosen


@QUICK
@given(seed=st.integers(0, 2**32 - 1), noise=st.sampled_from([0.0, 1e-7]))
def test_copies_are_chosen_only_when_nothing_else_is_left(seed: int, noise: float) -> None:
    """384 dimensions and an odd number of copies, exact or as an encoder's batching leaves them: three different
    strategies are found among 9 candidates, whatever the order."""
    rng = np.random.default_rng(seed)
    which = rng.permutation([0, 0, 0, 0, 0, 1, 1, 2, 2])
    embeddings = rng.normal(size=(3, 384))[which] + noise * rng.normal(size=(9, 384))
    chosen = farthest_point_selection(embeddings, 5)
    assert len(set(chosen)) == 5
    assert {int(which[i]) for i in chosen[:3]} == {0, 1, 2}


def test_ties_go_to_the_lowest_index() -> None:
    """Scaled copies differ in the last bit once normalised; that bit must not decide."""
    assert farthest_point_selection(np.ones((5, 3)), 5) == [0, 1, 2, 3, 4]
    vector = np.array([0.1, 0.7, -0.3])
    assert farthest_point_selection([vector * 3, vector, vector * 7, vector / 9], 4) == [0, 1, 2, 3]
    assert farthest_point_selection([[1, 0], [-1, 0], [0, 1], [0, -1]], 4) == [0, 1, 2, 3]


def test_zero_vectors_stay_zero() -> None:
    """An empty text embeds to nothing: cosine 0 with all, so it is neither typical nor a copy."""
    assert farthest_point_selection([[0, 0], [1, 0], [1, 0.1]], 3) == [1, 0, 2]
    assert farthest_point_selection(np.zeros((3, 2)), 2) == [0, 1]


def test_mean_pairwise_cosine() -> None:
    assert mean_pairwise_cosine([[2, 0], [0, 3]]) == pytest.approx(0)
    assert mean_pairwise_cosine([[1, 1], [2, 2], [5, 5]]) == pytest.approx(1)
    assert mean_pairwise_cosine([[1, 0], [-1, 0], [1, 0]]) == pytest.approx(-1 / 3)


def test_selection_is_more_diverse_than_the_candidates() -> None:
    embeddings = np.random.default_rng(0).normal(size=(32, 16)) + 1.0
    chosen = farthest_point_selection(embeddings, 4)
    assert mean_pairwise_cosine(embeddings[chosen]) < mean_pairwise_cosine(embeddings)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: farthest_point_selection(np.ones((2, 2)), 3), "cannot choose 3 of 2"),
        (lambda: farthest_point_selection(np.ones((2, 2)), 0), "cannot choose 0 of 2"),
        (lambda: farthest_point_selection([1.0, 2.0], 1), r"shape \(2,\)"),
        (lambda: farthest_point_selection([[1.0], [np.nan]], 1), "embedding 1 is not finite"),
        (lambda: mean_pairwise_cosine([[1.0, 2.0]]), "at least 2"),
    ],
)
def test_refusals_name_the_thing(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
