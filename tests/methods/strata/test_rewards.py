"""StraTA's reward terms: ranges, monotony, and where floating point could change a count."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.training.rewards import format_penalty, step_decay
from methods.strata.rewards import length_penalty, strategy_reward, total_reward

QUICK = settings(max_examples=50, deadline=None)
OUTCOMES = st.lists(st.floats(-1, 1), min_size=1, max_size=16)


@QUICK
@given(rewards=OUTCOMES, low=st.floats(0.01, 1), high=st.floats(0.01, 1), random=st.randoms(use_true_random=False))
def test_strategy_reward_lies_between_mean_and_best(rewards: list[float], low: float, high: float, random: Any) -> None:
    low, high = sorted([low, high])
    assert strategy_reward(rewards, high) <= strategy_reward(rewards, low) + 1e-12
    assert strategy_reward(rewards, 1.0) == pytest.approx(np.mean(rewards))
    assert strategy_reward(rewards, 1e-6) == max(rewards)
    shuffled = random.sample(rewards, len(rewards))
    assert strategy_reward(shuffled, low) == strategy_reward(rewards, low)


@pytest.mark.parametrize("m", range(1, 101))
def test_delta_given_as_a_decimal_counts_the_rollouts_it_means(m: int) -> None:
    """0.7 * 10 is 7.000000000000001: a bare ceil would average 8 of 10."""
    for hundredths in (1, 7, 10, 30, 50, 55, 70, 90, 100):
        k = max(1, -(-hundredths * m // 100))
        rewards = [1.0] * k + [0.0] * (m - k)
        assert strategy_reward(rewards, hundredths / 100) == 1.0
        if k > 1:
            assert strategy_reward([*rewards[1:], 0.0], hundredths / 100) == pytest.approx((k - 1) / k)


@QUICK
@given(limit=st.integers(1, 2000), threshold=st.floats(0, 0.99))
def test_length_penalty_is_monotone_and_continuous(limit: int, threshold: float) -> None:
    penalties = np.array([length_penalty(n, limit, threshold) for n in range(limit + 3)])
    falls = -np.diff(penalties)
    assert (falls >= 0).all()
    assert falls.max() <= 1 / (limit * (1 - threshold)) + 1e-12 or limit * (1 - threshold) < 1
    assert penalties[0] == 0.0
    assert penalties[limit:].tolist() == [-1.0, -1.0, -1.0]


def test_threshold_one_punishes_only_what_exceeds_the_limit() -> None:
    assert [length_penalty(n, 8, 1.0) for n in (7, 8, 9)] == [0.0, 0.0, -1.0]


@QUICK
@given(st.floats(-1, 1), st.floats(-1, 0), st.sampled_from([-1.0, 0.0]), st.floats(-1, 0))
def test_total_is_clipped_and_monotone(outcome: float, length: float, form: float, judge: float) -> None:
    total = total_reward(outcome, length, form, judge)
    assert -1 <= total <= 1
    assert total <= total_reward(outcome, length, form) <= total_reward(1.0, length, form)
    assert total == pytest.approx(max(-1.0, outcome + length + form + judge))


def test_step_decay_check_values() -> None:
    """StraTA's horizons: success at the last step keeps half, at the first all; 0 switches it off."""
    assert step_decay(10, 50) == pytest.approx(0.9081633, abs=1e-7)
    assert step_decay(5, 15) == pytest.approx(0.8571429, abs=1e-7)
    assert [step_decay(1, 50), step_decay(50, 50), step_decay(1, 1), step_decay(50, 50, decay=0)] == [1, 0.5, 1, 1]
    factors = [step_decay(t, 20) for t in range(1, 21)]
    assert factors == sorted(factors, reverse=True)
    assert len(set(factors)) == 20


def test_format_penalty() -> None:
    assert [format_penalty(True), format_penalty(False)] == [0.0, -1.0]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: strategy_reward([], 0.5), "at least one rollout"),
        (lambda: strategy_reward([1.0], 0.0), "delta is 0.0"),
        (lambda: strategy_reward([1.0], 1.1), "delta is 1.1"),
        (lambda: strategy_reward([1.0, float("nan")], 0.5), "without a verdict"),
        (lambda: length_penalty(-1, 8, 0.5), "n_tokens is -1"),
        (lambda: length_penalty(1, 0, 0.5), "limit is 0"),
        (lambda: length_penalty(1, 8, 1.5), "threshold is 1.5"),
        (lambda: total_reward(float("nan"), 0.0, 0.0), "outcome=nan"),
        (lambda: step_decay(0, 5), "step is 0 with horizon 5"),
        (lambda: step_decay(6, 5), "step is 6 with horizon 5"),
        (lambda: step_decay(1, 5, decay=2.0), "decay is 2.0"),
    ],
)
def test_refusals_name_the_thing(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
