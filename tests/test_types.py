"""The vocabulary: what it refuses."""

import dataclasses

import pytest

from harness.types import Observation, Status, StopReason, Trajectory, Usage, Verdict
from tests.plays import trajectory


@pytest.mark.parametrize("status", list(Status))
def test_a_verdict_has_a_score_exactly_when_its_status_has_one(status):
    if status.has_verdict:
        assert Verdict(status, False, 0.0).score == 0
        wrong = [(None, None), (True, None), (None, 1.0)]
    else:
        assert Verdict(status, None, None).score is None
        wrong = [(False, 0.0)]
    for success, score in wrong:
        with pytest.raises(ValueError, match="a verdict needs success and score exactly when"):
            Verdict(status, success, score)


def test_a_failed_episode_must_not_be_scored():
    lost = dataclasses.replace(trajectory(0), verdict=Verdict(Status.ENV_ERROR, None, None))
    for read in (lambda: lost.score, lambda: lost.success):
        with pytest.raises(ValueError, match=r"task 'train-0-2' has no verdict \(env_error\); it must not be"):
            read()


def told(stop: StopReason, *, success: bool) -> Trajectory:
    """Two steps, the second one rewarded."""
    made = trajectory(0, success=success, malformed=[False, False])
    last = dataclasses.replace(made.steps[1], reward=1.0, observation=Observation("Your score: 1.0", anchor="done"))
    return dataclasses.replace(made, stop=stop, steps=(made.steps[0], last))


@pytest.mark.parametrize("view", [repr, lambda trajectory: trajectory])
def test_success_and_failure_look_the_same_without_labels(view):
    won, lost = (
        told(stop, success=success).unlabelled()
        for stop, success in ((StopReason.SUCCESS, True), (StopReason.FAILURE, False))
    )
    assert view(won) == view(lost)
    assert (won.stop, won.verdict, won.reward) == (StopReason.ENDED, Verdict(Status.WITHHELD, None, None), 0.0)
    assert won.steps[0] == told(StopReason.SUCCESS, success=True).steps[0]
    assert won.steps[1].action == "left"
    assert "score" not in repr(won.steps), "the page after the end may print it"
    with pytest.raises(ValueError, match="has no verdict"):
        _ = won.success


def test_what_the_method_has_lived_through_is_not_withheld():
    cut = told(StopReason.HORIZON, success=False)
    assert cut.unlabelled().stop is StopReason.HORIZON
    assert [step.observation for step in cut.unlabelled().steps] == [step.observation for step in cut.steps]
    limited = told(StopReason.LIMIT, success=False).unlabelled()
    assert (limited.stop, limited.steps[1].observation.text) == (StopReason.LIMIT, "")
    assert dataclasses.replace(cut, steps=()).unlabelled().steps == ()


def test_usage_adds_and_an_unknown_price_stays_unknown():
    assert Usage(1, 2, 3, 4) + Usage(1, 2, 3, 4) == Usage(2, 4, 6, 8)
    assert (Usage() + Usage(cost=0.5)).cost == 0.5
    assert (Usage(cost=0.25) + Usage(cost=0.5)).cost == 0.75
