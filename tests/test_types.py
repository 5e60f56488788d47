"""The vocabulary: what it refuses."""

import dataclasses

import pytest

from harness.types import Status, Usage, Verdict
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
    assert not lost.success
    with pytest.raises(ValueError, match="task 'train-0-2' has no verdict"):
        _ = lost.score


def test_usage_adds_and_an_unknown_price_stays_unknown():
    assert Usage(1, 2, 3, 4) + Usage(1, 2, 3, 4) == Usage(2, 4, 6, 8)
    assert (Usage() + Usage(cost=0.5)).cost == 0.5
    assert (Usage(cost=0.25) + Usage(cost=0.5)).cost == 0.75
