"""RLOO: the baseline is what the others earned."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from baselines.rloo import RLOO
from tests.plays import trajectory
from tests.toys import ToyEnv

VECTORS: dict[str, Any] = json.loads((Path(__file__).parents[1] / "vectors" / "rl.json").read_text())


def rloo(**options: Any) -> RLOO:
    config = RLOO.Config(**{"rollouts": 4, "decay": 0.0, **options})
    return RLOO(config, spec=ToyEnv.spec, view="compact", seed=0)


def test_a_trajectory_is_compared_with_the_mean_of_the_others():
    """Rewards are the trajectories' means: 1 and 0 rows of the first, nothing for the others."""
    method = rloo()
    made = [trajectory(0, success=True, malformed=[False, True]), trajectory(1), trajectory(2, malformed=[False] * 2)]
    experience = method.experience(made, group=(1, 0))
    assert experience.outcomes.tolist() == [0.5, 0.0, 0.0]
    assert method.advantages(experience) == pytest.approx([0.5, 0.5, -0.25, -0.25, -0.25])


def test_vectors_rloo_flattened():
    """Over rows, seven siblings of a row's own stand in its baseline: .857 where leaving one out gives 1."""
    entry = VECTORS["rloo_flattened"]
    made = [trajectory(0, success=True, malformed=[False] * 2), trajectory(1, malformed=[False] * 6)]
    ours, theirs = rloo(), rloo(statistics="row")
    advantages = ours.advantages(ours.experience(made, group=(1, 0)))
    np.testing.assert_allclose(advantages[[0, -1]], entry["correct_traj_level"], atol=2e-8)
    advantages = theirs.advantages(theirs.experience(made, group=(1, 0)))
    np.testing.assert_allclose(advantages[[0, -1]], entry["per_step_formula"], atol=2e-8)


def test_nothing_is_scaled():
    """The options of a standard deviation are GRPO's: here they would be accepted and do nothing."""
    for name in ("scale", "ddof", "eps"):
        with pytest.raises(ValidationError):
            rloo(**{name: 1})
