"""Sampling is a function of a request's own logits, seed and options."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harness.model import Sampling
from harness.models.sampling import Samplers, draw, kept, uniforms

CPU = torch.device("cpu")
MASK = 2**64 - 1


def splitmix(bits: int) -> int:
    """The finaliser in plain integers."""
    bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EB & MASK
    return bits ^ (bits >> 31)


def test_splitmix_known_value() -> None:
    """First output of splitmix64 with seed 1234567, as published with the generator's ports."""
    assert splitmix((1234567 + 0x9E3779B97F4A7C15) & MASK) == 6457827717110365317


@given(seed=st.integers(0, 2**64 - 1), step=st.integers(0, 10_000))
def test_uniforms_equal_integer_arithmetic(seed: int, step: int) -> None:
    golden = 0x9E3779B97F4A7C15
    bits = splitmix((splitmix((seed + golden) & MASK) + (step + 1) * golden) & MASK)
    assert uniforms(np.array([seed], dtype=np.uint64), step)[0] == (bits >> 11) * 2.0**-53


def test_uniforms_are_uniform_over_seeds_and_steps() -> None:
    """Neighbouring seeds and steps, as counters produce them, must not be correlated."""
    table = np.stack([uniforms(np.arange(2000, dtype=np.uint64), step) for step in range(20)])
    assert abs(table.mean() - 0.5) < 0.005
    assert abs(table.var() - 1 / 12) < 0.002
    for shifted in (table[1:] * table[:-1], table[:, 1:] * table[:, :-1]):
        assert abs(shifted.mean() - 0.25) < 0.005


def test_draw_has_the_frequencies_of_the_distribution() -> None:
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0, 0.5])
    n = 20_000
    samplers = Samplers.of([Sampling(temperature=0.7, seed=seed) for seed in range(n)], CPU)
    ids, logprobs = draw(logits.expand(n, -1), samplers, 0)
    expected = torch.softmax(logits / 0.7, dim=0).double()
    found = torch.bincount(ids, minlength=5).double()
    assert float(((found - n * expected) ** 2 / (n * expected)).sum()) < 18.5  # chi-square, 4 degrees, p = 0.001
    assert torch.allclose(logprobs.exp().double(), expected[ids], atol=1e-6)


def test_greedy_rows_take_the_mode_with_certainty() -> None:
    """A point mass: the log-probability of what was sampled is 0. The lowest id wins a tie, beside sampled rows too."""
    logits = torch.tensor([[0.0, 3.0, 3.0], [0.0, 0.0, 9.0]])
    ids, logprobs = draw(logits, Samplers.of([Sampling(temperature=0), Sampling(top_k=1)], CPU), 0)
    assert ids.tolist() == [1, 2]
    assert logprobs.tolist() == [0.0, 0.0]


def test_a_token_without_mass_is_never_drawn() -> None:
    logits = torch.full((500, 6), -torch.inf)
    logits[:, 2] = 0.0
    logits[:, 4] = -1.0
    ids, _ = draw(logits, Samplers.of([Sampling(seed=seed) for seed in range(500)], CPU), 3)
    assert set(ids.tolist()) == {2, 4}


@given(
    scores=st.lists(st.integers(-4, 4), min_size=1, max_size=12),
    top_p=st.sampled_from([0.05, 0.3, 0.8, 0.99, 1.0]),
    top_k=st.integers(0, 14),
)
def test_kept_is_top_k_then_top_p(scores: list[int], top_p: float, top_k: int) -> None:
    """Against a plain reading of the definition; integer scores make ties, which go to the lowest ids."""
    order = sorted(range(len(scores)), key=lambda i: (-scores[i], i))[: top_k or len(scores)]
    mass = np.exp([float(scores[i]) for i in order])
    mass /= mass.sum()
    before = np.concatenate([[0.0], np.cumsum(mass)[:-1]])
    if top_p < 1 and np.isclose(before, top_p, atol=1e-6).any():
        return  # the boundary is a matter of rounding
    expected = {i for i, b in zip(order, before, strict=True) if top_p == 1 or b < top_p or i == order[0]}
    found = kept(torch.tensor([scores], dtype=torch.float32), torch.tensor([top_p]), torch.tensor([top_k]))
    assert set(found[0].nonzero()[:, 0].tolist()) == expected


def test_log_probabilities_are_those_of_the_truncated_distribution() -> None:
    """Top-p 0.8 over (.5, .3, .2) leaves (.625, .375); the untruncated log-probability would be another number."""
    logits = torch.tensor([0.5, 0.3, 0.2]).log().expand(200, -1)
    samplers = Samplers.of([Sampling(top_p=0.75, seed=seed) for seed in range(200)], CPU)
    ids, logprobs = draw(logits, samplers, 0)
    assert set(ids.tolist()) == {0, 1}
    assert torch.allclose(logprobs.exp(), torch.tensor([0.625, 0.375])[ids], atol=1e-6)


@pytest.mark.parametrize("options", [{}, {"temperature": 0.5}, {"top_p": 0.6}, {"top_k": 2}, {"temperature": 0.0}])
def test_rows_with_other_options_do_not_matter(options: dict[str, float]) -> None:
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(6, 9, generator=generator)
    mine = Sampling(seed=11, **options)  # type: ignore[arg-type]
    others = [
        Sampling(temperature=0.0),
        Sampling(top_p=0.3, seed=1),
        Sampling(top_k=3, temperature=2.0),
        Sampling(),
        mine,
    ]
    alone = draw(logits[:1], Samplers.of([mine], CPU), 2)
    among = draw(logits[[1, 2, 3, 4, 0]], Samplers.of(others, CPU), 2)
    assert int(alone[0][0]) == int(among[0][-1])
    assert float(alone[1][0]) == pytest.approx(float(among[1][-1]), abs=1e-6)


def test_selected_rows_keep_their_options() -> None:
    samplings = [Sampling(seed=i, temperature=0.5 + i, top_p=0.5 + i / 10, top_k=i) for i in range(4)]
    rows = torch.tensor([3, 1])
    found, expected = Samplers.of(samplings, CPU).select(rows), Samplers.of([samplings[3], samplings[1]], CPU)
    assert found.seeds.tolist() == expected.seeds.tolist()
    for name in ("temperature", "greedy", "top_p", "top_k"):
        assert torch.equal(getattr(found, name), getattr(expected, name))
