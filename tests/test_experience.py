"""Experience: which turns become rows, and that groups, rewards and trajectories stay aligned."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.experience import Experience, Row
from harness.training.advantages import group_normalize
from harness.types import Completion, Trajectory, Turn
from tests.plays import completion, trajectory

GROUP = (1, 0)


def ones(trajectory: Trajectory, turns: Sequence[Turn]) -> list[float]:
    return [1.0] * len(turns)


def steps(trajectory: Trajectory, turns: Sequence[Turn]) -> list[float]:
    """The rollout before the point, the step behind it."""
    return [int(trajectory.key[-1]) + turn.steps[0] / 10 for turn in turns]


def of(*trajectories: Trajectory, rewards=steps, **rest) -> Experience:
    return Experience.of(trajectories, group=GROUP, rewards=rewards, **rest)


@pytest.mark.parametrize("left", [0, 1])
def test_a_group_of_fewer_than_two_is_dropped_and_counted(left):
    """A lone rollout would be compared with itself; infrastructure took the others."""
    gone = of(*[trajectory(k) for k in range(left)], metrics={"episodes": float(left)})
    assert (gone.rows, gone.trajectories, gone.dropped, gone.metrics) == ((), (), 1, {"episodes": left})
    assert Experience.join(gone, gone, of(trajectory(0), trajectory(1))).dropped == 2


def test_a_lone_trajectory_is_kept_where_nothing_is_compared():
    alone = of(trajectory(0, malformed=[False] * 2), least=1)
    assert (len(alone.rows), len(alone.trajectories), alone.dropped) == (2, 1, 0)
    assert of(least=1).dropped == 1
    assert of(trajectory(0), trajectory(1), least=3).dropped == 1


def test_rows_stand_in_the_order_of_their_trajectories_with_their_rewards():
    experience = of(trajectory(3, malformed=[False] * 2), trajectory(5, malformed=[True] * 3))
    assert experience.row_rewards.tolist() == [3.1, 3.2, 5.1, 5.2, 5.3]
    assert [row.ids for row in experience.rows] == [(301, 1), (302, 1), (501, 1), (502, 1), (503, 1)]
    assert [row.step for row in experience.rows] == [1, 2, 1, 2, 3]
    assert [row.anchor for row in experience.rows] == ["state 1", "state 2", "state 1", "state 2", "state 3"]
    assert experience.row_groups == (GROUP,) * 5
    assert experience.groups == (GROUP,) * 2
    assert np.allclose(experience.outcomes, [3.15, 5.2]), "the mean over a trajectory's rows"
    assert of(trajectory(0), trajectory(1), outcome=lambda t, values: 7.0).outcomes.tolist() == [7, 7]


def test_equal_rewards_have_equal_means_whatever_the_length():
    """Rounding would tell 0.1 three times from 0.1 twice, and an optimiser that rescales would see a difference."""
    assert np.mean([0.1] * 3) != np.mean([0.1] * 2)
    lengths = (trajectory(0, malformed=[False] * 3), trajectory(1, malformed=[False] * 2))
    outcomes = of(*lengths, rewards=lambda t, turns: [0.1] * len(turns)).outcomes
    assert outcomes.tolist() == [0.1, 0.1]
    assert group_normalize(outcomes, [0, 0]).tolist() == [0.0, 0.0]


def test_exactly_the_sampled_ids_are_trained_on():
    sampled = trajectory(2, malformed=[False] * 3, lengths=[4, 1, 9])
    rows = of(sampled, trajectory(1)).rows[:3]
    for row, turn in zip(rows, sampled.turns, strict=True):
        assert row.ids is turn.completion.token_ids
        assert row.prompt_ids is turn.completion.prompt_ids
        assert row.logprobs is turn.completion.logprobs


def test_only_trainable_action_turns_become_rows():
    others = [
        Turn("judge", "judgment", completion([9]), trainable=False, token_limit=9),
        Turn("policy", "strategy", completion([9]), trainable=False, token_limit=9),
        Turn("policy", "action", completion([9]), trainable=False, token_limit=9),
    ]
    experience = of(trajectory(0, extra=others), trajectory(1))
    assert [row.ids for row in experience.rows] == [(1, 1), (101, 1)]


def test_trainable_turns_of_another_kind_do_not_vanish():
    thought = Turn("policy", "thought", completion([9]), trainable=True, token_limit=9)
    both = [trajectory(0, extra=[thought]), trajectory(1)]
    for group in (both, both[:1]):
        with pytest.raises(ValueError, match=r"trainable turns of kind thought beside action: name them in kinds="):
            of(*group)
    experience = of(*both, rewards=ones, kinds=("thought", "action"))
    assert [(row.kind, row.ids) for row in experience.rows] == [
        ("thought", (9,)), ("action", (1, 1)), ("action", (101, 1)),
    ]  # fmt: skip


def test_a_trajectory_without_rows_does_not_enter_the_statistics():
    """Its outcome would shift the mean of those that are trained on."""
    bare, one, two = trajectory(0, trainable=False), trajectory(1), trajectory(2)
    experience = of(bare, one, two)
    assert experience.trajectories == (one.key, two.key)
    assert experience.outcomes.tolist() == pytest.approx([1.1, 2.1])
    assert experience.groups == (GROUP, GROUP)
    assert experience.played == (bare, one, two)
    lone = of(bare, one)
    assert (lone.rows, lone.dropped, lone.played) == ((), 1, (bare, one))


def test_what_was_played_is_kept_in_order():
    made = [trajectory(k) for k in range(4)]
    joined = Experience.join(of(made[2]), of(*made[:2]), Experience.seen(made[3:], metrics={"episodes": 1}))
    assert joined.played == (made[2], made[0], made[1], made[3])
    assert joined.dropped == 1
    assert len(joined.rows) == len(joined.trajectories) == 2


def test_what_was_seen_needs_no_second_one_and_no_log_probabilities():
    mute = Turn("policy", "action", Completion("x", (), (), "stop"), trainable=True, token_limit=9)
    seen = Experience.seen([trajectory(0, extra=[mute])], metrics={"episodes": 1.0})
    assert (seen.rows, seen.trajectories, seen.dropped, seen.metrics) == ((), (), 0, {"episodes": 1.0})
    assert seen.outcomes.tolist() == []
    assert [t.key for t in seen.played] == [trajectory(0).key]


def test_as_many_rewards_as_turns():
    with pytest.raises(ValueError, match="0 rewards for 1 turns of trajectory"):
        of(trajectory(0), trajectory(1), rewards=lambda t, turns: [])


@pytest.mark.parametrize("bad", [Completion("x", (), (), "stop"), Completion("x", (1, 2), (), "stop")])
def test_a_turn_that_cannot_be_trained_on_is_refused(bad):
    turn = Turn("policy", "action", bad, trainable=True, token_limit=9)
    with pytest.raises(ValueError, match=r"a action response of .* training needs one for each sampled id"):
        Row.of(turn, reward=0.0, group=GROUP, trajectory=(0,))


@given(st.lists(st.integers(1, 4), min_size=2, max_size=6))
def test_broadcast_repeats_a_value_for_each_row(lengths):
    experience = of(*[trajectory(k, malformed=[False] * n) for k, n in enumerate(lengths)])
    assert experience.broadcast(range(len(lengths))).tolist() == np.repeat(range(len(lengths)), lengths).tolist()
    with pytest.raises(ValueError):
        experience.broadcast([0.0])


def test_broadcast_refuses_two_trajectories_of_one_key():
    """The last one's value would stand on the rows of both."""
    one = of(trajectory(0), trajectory(1))
    again = Experience.of([trajectory(1), trajectory(2)], group=(1, 1), rewards=ones)
    with pytest.raises(ValueError, match=r"2 trajectories have the key \('train', 1, 0, 't', -1, 1\); groups that are"):
        Experience.join(one, again).broadcast([0.0, 1.0, 2.0, 3.0])


def test_join_keeps_order_and_adds_metrics():
    one = of(trajectory(0), trajectory(1), metrics={"episodes": 2, "a": 1})
    two = Experience.of([trajectory(2), trajectory(3)], group=(1, 1), rewards=ones, metrics={"episodes": 2, "b": 5})
    joined = Experience.join(one, Experience(), two)
    assert joined.rows == (*one.rows, *two.rows)
    assert joined.trajectories == (*one.trajectories, *two.trajectories)
    assert joined.groups == (GROUP, GROUP, (1, 1), (1, 1))
    assert joined.outcomes.tolist() == [*one.outcomes, *two.outcomes]
    assert joined.metrics == {"episodes": 4, "a": 1, "b": 5}
    empty = Experience.join()
    assert (empty.rows, empty.outcomes.tolist(), empty.row_rewards.tolist()) == ((), [], [])
