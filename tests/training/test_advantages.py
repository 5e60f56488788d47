"""Properties of the group-relative advantages, returns and GAE that hold for any numbers."""

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.training.advantages import discounted_returns, gae, group_normalize, leave_one_out, masked_whiten

QUICK = settings(max_examples=50, deadline=None)
REWARDS = st.sampled_from([-1.0, -0.5, 0.0, 0.1, 0.3, 0.75, 1.0])
KEYS = st.sampled_from(["a", ("a", 0), ("a", 1), 7])
MEMBERS = st.lists(st.tuples(REWARDS, KEYS), min_size=1, max_size=24)
ESTIMATORS = pytest.mark.parametrize(
    "estimate",
    [
        lambda r, g: group_normalize(r, g),
        lambda r, g: group_normalize(r, g, ddof=0),
        lambda r, g: group_normalize(r, g, scale="none"),
        leave_one_out,
    ],
    ids=["ddof1", "ddof0", "none", "rloo"],
)


def split(members: list[tuple[float, Any]]) -> tuple[np.ndarray, list[Any]]:
    return np.array([reward for reward, _ in members]), [key for _, key in members]


@ESTIMATORS
@QUICK
@given(members=MEMBERS, random=st.randoms(use_true_random=False))
def test_order_is_irrelevant(estimate: Any, members: list[Any], random: Any) -> None:
    order = list(range(len(members)))
    random.shuffle(order)
    rewards, keys = split(members)
    shuffled = estimate(rewards[order], [keys[i] for i in order])
    np.testing.assert_allclose(shuffled, estimate(rewards, keys)[order], atol=1e-12)


@ESTIMATORS
@QUICK
@given(members=MEMBERS, shift=st.floats(-5, 5))
def test_a_constant_bonus_changes_nothing(estimate: Any, members: list[Any], shift: float) -> None:
    rewards, keys = split(members)
    np.testing.assert_allclose(estimate(rewards + shift, keys), estimate(rewards, keys), atol=1e-9)


@ESTIMATORS
@QUICK
@given(members=MEMBERS)
def test_groups_sum_to_zero_and_do_not_see_each_other(estimate: Any, members: list[Any]) -> None:
    rewards, keys = split(members)
    together = estimate(rewards, keys)
    for key in set(keys):
        inside = np.array([other == key for other in keys])
        assert abs(together[inside].sum()) < 1e-9
        np.testing.assert_allclose(together[inside], estimate(rewards[inside], ["only"] * inside.sum()), atol=1e-12)


@QUICK
@given(members=MEMBERS, factor=st.floats(0.5, 20))
def test_scale(members: list[Any], factor: float) -> None:
    """Dividing by the std makes the unit of the reward irrelevant, up to eps; centring keeps it."""
    rewards, keys = split(members)
    np.testing.assert_allclose(group_normalize(rewards * factor, keys), group_normalize(rewards, keys), atol=1e-3)
    exact = group_normalize(rewards, keys, eps=0.0)
    np.testing.assert_allclose(group_normalize(rewards * factor, keys, eps=0.0), exact, atol=1e-9)
    centred = group_normalize(rewards, keys, scale="none")
    np.testing.assert_allclose(group_normalize(rewards * factor, keys, scale="none"), factor * centred, atol=1e-9)


@QUICK
@given(members=st.lists(st.tuples(REWARDS, KEYS), min_size=1, max_size=12))
def test_duplicating_a_group_changes_only_ddof_1(members: list[Any]) -> None:
    """Each member twice: population statistics stay; a group of one becomes a constant group and stays 0."""
    rewards, keys = split(members)
    twice = group_normalize(np.tile(rewards, 2), keys * 2, ddof=0)
    np.testing.assert_allclose(twice, np.tile(group_normalize(rewards, keys, ddof=0), 2), atol=1e-9)


@ESTIMATORS
@pytest.mark.parametrize("size", [1, 2, 3, 7, 49])
@pytest.mark.parametrize("reward", [0.1, 0.3, 1e-9, -1.0, 12345.678])
def test_constant_groups_are_exactly_zero(estimate: Any, size: int, reward: float) -> None:
    """The mean of [0.1] * 3 is not 0.1 in floating point; nothing of that may reach an optimiser."""
    assert estimate([reward] * size, ["g"] * size).tolist() == [0.0] * size


@QUICK
@given(members=st.lists(st.tuples(REWARDS, KEYS), min_size=2, max_size=12))
def test_leave_one_out_is_reward_minus_mean_of_the_others(members: list[Any]) -> None:
    rewards, keys = split(members)
    for i, advantage in enumerate(leave_one_out(rewards, keys)):
        others = [r for j, r in enumerate(rewards) if keys[j] == keys[i] and j != i]
        assert advantage == pytest.approx(rewards[i] - np.mean(others) if others else 0.0, abs=1e-12)


def test_keys_count_by_value() -> None:
    """Tensors hash by identity: keys read from a tensor would put every rollout into a group of its own."""
    expected = [0.5, -0.5, 0.0]
    for keys in (torch.tensor([0, 0, 1]), np.array([0, 0, 1]), list(torch.tensor([0, 0, 1])), [0, 0.0, True]):
        assert group_normalize([1.0, 0.0, 1.0], keys, scale="none").tolist() == expected
    rewards = torch.tensor([1.0, 0.0, 1.0], dtype=torch.bfloat16, requires_grad=True)
    assert group_normalize(rewards, "aab", scale="none").tolist() == expected
    assert group_normalize([], []).tolist() == []


@QUICK
@given(
    members=st.lists(st.tuples(REWARDS, KEYS), min_size=1, max_size=15),
    gamma=st.sampled_from([0.0, 0.5, 0.95, 1.0]),
)
def test_discounted_returns_of_interleaved_episodes(members: list[Any], gamma: float) -> None:
    rewards, episodes = split(members)
    returns = discounted_returns(rewards, episodes, gamma)
    for i, episode in enumerate(episodes):
        rest = [r for r, other in zip(rewards[i:], episodes[i:], strict=True) if other == episode]
        assert returns[i] == pytest.approx(sum(gamma**k * r for k, r in enumerate(rest)), abs=1e-12)


@QUICK
@given(
    tokens=st.lists(st.tuples(REWARDS, REWARDS, st.booleans()), min_size=1, max_size=12),
    gamma=st.sampled_from([0.9, 1.0]),
    lam=st.sampled_from([0.0, 0.95, 1.0]),
)
def test_gae_equals_gae_of_the_tokens_inside_the_mask(tokens: list[Any], gamma: float, lam: float) -> None:
    """Whatever stands outside the mask, nan included, might as well not exist; and rows do not see each other."""
    rewards, values, mask = (np.array(column) for column in zip(*tokens, strict=True))
    noise = np.where(mask, 0.0, np.nan)
    batch = np.stack([rewards + noise, rewards[::-1]]), np.stack([values + noise, values[::-1]])
    advantages, returns = gae(*batch, np.stack([mask, mask[::-1]]), gamma=gamma, lam=lam)
    kept = np.ones(mask.sum())
    expected_advantages, expected_returns = gae(rewards[mask], values[mask], kept, gamma=gamma, lam=lam)
    np.testing.assert_allclose(advantages[0][mask], expected_advantages, atol=1e-12)
    np.testing.assert_allclose(returns[0][mask], expected_returns, atol=1e-12)
    assert not advantages[0][~mask].any()
    assert not returns[0][~mask].any()
    if lam == 1.0:
        np.testing.assert_allclose(expected_returns, discounted_returns(rewards[mask], kept, gamma), atol=1e-12)


def test_masked_whiten_has_mean_zero_and_std_one() -> None:
    rng = np.random.default_rng(0)
    x, mask = rng.normal(3, 5, (4, 6)), rng.random((4, 6)) < 0.6
    whitened = masked_whiten(np.where(mask, x, np.nan), mask)
    assert whitened[mask].mean() == pytest.approx(0, abs=1e-9)
    assert whitened[mask].std(ddof=1) == pytest.approx(1)
    assert not whitened[~mask].any()
    assert masked_whiten([5.0, 5.0, 9.0], [1, 1, 0]).tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: group_normalize([1.0, 0.0], ["a"]), "2 rewards but 1 keys"),
        (lambda: leave_one_out([1.0], ["a", "b"]), "1 rewards but 2 keys"),
        (lambda: group_normalize([1.0, float("nan")], "aa"), "reward 1 is nan"),
        (lambda: leave_one_out([float("inf"), 1.0], "aa"), "reward 0 is inf"),
        (lambda: group_normalize([1.0], "a", scale="var"), "unknown scale 'var'"),
        (lambda: group_normalize([1.0], "a", ddof=2), "ddof is 2"),
        (lambda: group_normalize([1.0], "a", eps=-1.0), "eps is -1.0"),
        (lambda: group_normalize([[1.0]], "a"), r"shape \(1, 1\)"),
        (lambda: group_normalize([1.0], [float("nan")]), "group key is nan"),
        (lambda: discounted_returns([1.0], "a", 1.5), "gamma is 1.5"),
        (lambda: gae([1.0], [1.0, 2.0], [1, 1], gamma=1, lam=1), "rewards have shape"),
        (lambda: gae([1.0], [1.0], [0.5], gamma=1, lam=1), "mask holds 0.5"),
        (lambda: gae([1.0], [float("nan")], [1], gamma=1, lam=1), "values hold nan"),
        (lambda: gae([1.0], [1.0], [1], gamma=1, lam=-0.1), "lam is -0.1"),
        (lambda: gae([[[1.0]]], [[[1.0]]], [[[1]]], gamma=1, lam=1), r"pass \[T\] or \[B, T\]"),
        (lambda: masked_whiten([1.0, 2.0], [1, 1, 0]), "values have shape"),
    ],
)
def test_refusals_name_the_thing(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_unhashable_group_keys_are_refused() -> None:
    with pytest.raises(TypeError, match="unhashable"):
        group_normalize([1.0], [["a"]])


def test_importing_advantages_leaves_torch_alone() -> None:
    code = "import sys, harness.training.advantages; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
