"""Known faults and conventions in what a row earns and how it is printed: items 1 and 20 of the list in PAPERS.md."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from baselines.gigpo import GiGPO
from baselines.grpo import GRPO
from harness.training.rewards import step_decay
from reports.caption import caption
from reports.render import render
from reports.spec import load_spec
from reports.tables import Measured, RunRows, build_table
from results.papers import published
from tests.plays import trajectory
from tests.results.rows import make_row
from tests.training.rollouts import GROUP, method

VECTORS: dict[str, Any] = json.loads((Path(__file__).parents[1] / "vectors" / "rl.json").read_text())
VERL_AGENT = {"auxiliary": "invalid", "reward_scale": 10.0}


def played(entry: dict[str, Any]) -> list[Any]:
    """A success with a malformed reply in its middle, and a failure."""
    won = trajectory(0, success=True, malformed=[not valid for valid in entry["step_valid"]])
    return [won, trajectory(1, malformed=[False] * 3)]


# -- 20: the penalty of a malformed action ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [GRPO, GiGPO])
def test_item_20_the_penalty_is_an_option_and_stands_on_its_row_alone(kind):
    """A convention: verl-agent takes 0.1 of 10 and clips nothing, StraTA takes 1 of 1, bare outcomes take nothing."""
    entry = VECTORS["invalid_action_penalty"]
    scores = {}
    for name, options in {
        "verl-agent": VERL_AGENT | {"invalid_penalty": entry["coef"]}, "strata": {"auxiliary": "all"},
        "bare": {"auxiliary": "none"},
    }.items():  # fmt: skip
        seen = method(kind, max_tokens=40, **options).experience(played(entry), group=GROUP)
        scores[name] = seen.row_rewards[:3]
        assert seen.row_rewards[3:].tolist() == [0.0] * 3
    np.testing.assert_allclose(scores["verl-agent"], entry["token_level_score"], rtol=1e-12)
    assert scores["strata"].tolist() == [1.0, 0.0, 1.0]
    assert scores["bare"].tolist() == [1.0] * 3
    whole = entry["episode_reward"] - entry["coef"] * (3 - sum(entry["step_valid"]))
    assert whole not in scores["verl-agent"][[0, 2]], "an episode's penalty spread over its rows is another convention"


def test_item_20_both_levels_of_gigpo_see_it_and_the_rows_before_do_not():
    """Subtracted from the step reward before discounting, the first row would pay 0.095 for the second."""
    entry = VECTORS["invalid_action_penalty"]
    learner = method(GiGPO, invalid_penalty=entry["coef"], gamma=0.95, max_tokens=40, **VERL_AGENT)
    seen = learner.experience(played(entry), group=GROUP)
    faulty, following = np.zeros(3), 0.0
    for t in (2, 1, 0):
        raw = (entry["episode_reward"] if t == 2 else 0.0) - entry["coef"] * (1 - entry["step_valid"][t])
        faulty[t] = following = raw + 0.95 * following
    np.testing.assert_allclose(faulty, [9.025 - 0.095, 9.4, 10.0], rtol=1e-12)
    np.testing.assert_allclose(learner.step_returns(seen)[:3], [9.025, 9.4, 10.0], rtol=1e-12)
    episode = method(GiGPO, omega=0.0, scale="none", max_tokens=40, **VERL_AGENT).advantages(seen)
    np.testing.assert_allclose(episode[:3], np.array(entry["token_level_score"]) - 29.9 / 6, rtol=1e-12)


def test_the_decay_is_ours_among_the_candidates():
    """StraTA prints no formula. All candidates rank steps alike; they differ in what the slowest success is worth."""
    entry = VECTORS["strata_step_decay_candidates"]
    t, horizon = entry["t"], entry["H"]
    candidates = {
        "R=1-t/H": 1 - t / horizon,
        "R=1-0.5*t/H": 1 - 0.5 * t / horizon,
        "R=gamma^(t-1),gamma=.99": math.pow(0.99, t - 1),
        "R=1-0.9*t/H": 1 - 0.9 * t / horizon,
    }
    for name, value in candidates.items():
        assert value == pytest.approx(entry[name], abs=1e-8)
    assert step_decay(t, horizon) == pytest.approx(entry["default"]["value"], abs=5e-8)
    assert 1 - horizon / horizon == 0.0, "the first one makes a success at the horizon a failure"
    assert step_decay(horizon, horizon) == 0.5
    assert step_decay(1, horizon) == 1.0


# -- 1: the deviation that a table prints -------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["table_std_35", "table_std_16"])
def test_item_1_a_table_prints_the_sample_deviation_and_says_so(key):
    """Of whole successes of n tasks in three seeds, one decimal tells which deviation was printed: 1.3 or 1.6."""
    entry = VECTORS[key]
    rates = 100 * np.array(entry["successes"]) / entry["n"]
    np.testing.assert_allclose([rates.mean(), rates.std(), rates.std(ddof=1)],
                               [entry["mean"], entry["pop"], entry["sample"]], atol=5e-9)  # fmt: skip
    rows = [
        make_row(method="strata", task=f"goal-{task:02}", seed=seed, success=task < won)
        for seed, won in enumerate(entry["successes"])
        for task in range(entry["n"])
    ]
    run = RunRows("strata-webshop-0011aabb", "strata", "trained", rows)
    table = build_table(load_spec("webshop"), [run], published("strata"))
    measured = next(cell.measured for row in table.rows for cell in row.cells if cell.measured)
    assert measured == Measured(pytest.approx(entry["mean"]), pytest.approx(entry["sample"]), entry["n"], 3)
    text = render(table, "markdown")
    right, wrong = (f"{entry['mean']:.1f} ± {entry[name]:.1f}" for name in ("sample", "pop"))
    assert right in text
    assert wrong != right
    assert wrong not in text
    assert "ddof 1" in caption(table)
