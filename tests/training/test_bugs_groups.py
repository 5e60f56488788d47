"""Known faults in what a rollout is compared with, items 1 to 7, 16 and 19 of the list in PAPERS.md.

Each test writes the faulty variant out, shows its wrong number, and then asks the methods themselves.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Sequence
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from baselines.gigpo import GiGPO, gigpo_advantages
from baselines.grpo import GRPO
from baselines.rloo import RLOO
from harness.episode import EpisodeFailed
from harness.experience import Experience
from harness.models.scripted import ScriptedModel
from harness.training.advantages import group_normalize, leave_one_out
from harness.types import Status, Strategy, Trajectory
from methods.strata.diversity import farthest_point_selection
from methods.strata.method import StraTA
from methods.strata.rewards import strategy_reward
from tests.models.tiny import tiny
from tests.plays import arena, play, task, trajectory, world
from tests.training.rollouts import GROUP, Spy, experience, learn, method, renamed, rollouts, written

VECTORS: dict[str, Any] = json.loads((Path(__file__).parents[1] / "vectors" / "rl.json").read_text())


def close(actual: Any, expected: Any, atol: float = 2e-8) -> None:
    np.testing.assert_allclose(actual, expected, rtol=1e-7, atol=atol)


def raw_for_singletons(rewards: Sequence[float], keys: Sequence[Hashable]) -> np.ndarray:
    """The published group normalisation: a group of one has mean 0 and std 1, so its reward is its advantage."""
    values, result = np.array(rewards, dtype=float), []
    for value, key in zip(values, keys, strict=True):
        group = values[[other == key for other in keys]]
        mean, std = (group.mean(), group.std(ddof=1)) if len(group) > 1 else (0.0, 1.0)
        result.append((value - mean) / (std + 1e-6))
    return np.array(result)


# -- 1 to 3: mean and deviation -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "key"), [({"ddof": 0}, "pop"), ({"ddof": 1}, "sample"), ({"scale": "none"}, "drgrpo")]
)
def test_item_1_the_deviation_is_an_option_with_three_values(options, key):
    """A convention: numpy and rLLM divide by n, torch and verl by n - 1, Dr. GRPO not at all."""
    entry = VECTORS["grpo_basic"]
    close(method(GRPO, **options).advantages(experience(entry["rewards"])), entry[key])


def test_item_2_equal_rewards_teach_exactly_nothing():
    """Without eps the group is nan; with it, rounding in the mean leaves crumbs, and Adam makes full steps of them."""
    entry = VECTORS["grpo_zero_variance"]
    rewards = np.array(entry["rewards"])
    with np.errstate(invalid="ignore"):
        faulty = (rewards - rewards.mean()) / rewards.std(ddof=1)
    assert np.isnan(faulty).all()
    three = np.full(3, 0.1)
    crumbs = (three - three.mean()) / (three.std(ddof=1) + 1e-6)
    assert 0 < np.abs(crumbs).max() < 1e-9
    assert method(GRPO).advantages(experience(rewards.tolist())).tolist() == entry["adv"]
    assert method(GRPO).advantages(experience(three.tolist())).tolist() == [0.0] * 3
    model = tiny()
    before = model.digest
    learn(method(GRPO, model), written(model, [[3, 1], [4, 1], [5, 1]], [0.3] * 3))
    assert model.digest == before


def test_item_2_low_variance_is_not_floored():
    """verl PR 6348: max(std, 1e-3) in place of std + eps makes 0.005 of 0.62."""
    pair = np.array([1.0, 1.00001])
    faulty = (pair - pair.mean()) / max(pair.std(ddof=1), 1e-3)
    np.testing.assert_allclose(faulty, [-0.005, 0.005], atol=1e-9)
    np.testing.assert_allclose(method(GRPO).advantages(experience(pair.tolist())), [-0.6195, 0.6195], atol=5e-5)
    entry = VECTORS["grpo_low_variance"]
    close(method(GRPO).advantages(experience(entry["rewards"])), entry["sample"])


def test_item_3_a_lone_rollout_is_not_reinforced_for_existing():
    entry = VECTORS["grpo_singleton"]
    close(raw_for_singletons(entry["reward"], ["a"]), [entry["verl_and_rllm"]])
    assert group_normalize(entry["reward"], ["a"]).tolist() == [entry["correct"]]
    alone = experience(entry["reward"])
    assert (alone.rows, alone.dropped) == ((), 1), "it is dropped and counted before it is ever compared"


def test_item_3_the_two_published_leave_one_outs_disagree_on_a_lone_rollout():
    entry = VECTORS["rloo_singleton"]

    def looped(rewards: list[float]) -> list[float]:
        n, total = len(rewards), sum(rewards)
        return [r * n / (n - 1) - total / n * n / (n - 1) if n > 1 else r for r in rewards]

    def vectorised(rewards: list[float]) -> list[float]:
        n, total = len(rewards), sum(rewards)
        return [(n * r - total) / max(n - 1, 1) for r in rewards]

    assert looped(entry["reward"]) == [entry["verl_rloo"]]
    assert vectorised(entry["reward"]) == [entry["verl_rloo_vectorized"]]
    pair = VECTORS["rloo"]["rewards"]
    close(looped(pair), VECTORS["rloo"]["adv"])
    close(vectorised(pair), VECTORS["rloo"]["adv"])
    assert leave_one_out(entry["reward"], ["a"]).tolist() == [0.0]


# -- 4 to 6: who is compared with whom ----------------------------------------------------------------------------


def test_item_4_rollouts_of_one_draw_are_compared_whatever_their_keys_and_lengths():
    """rLLM#605: keys by trajectory compare nothing; keys by last step only episodes of equal length."""
    entry = VECTORS["group_key_bug"]
    rewards, lengths = entry["rewards"], entry["traj_lengths"]
    seen = experience(rewards, lengths)
    close(raw_for_singletons(rewards, seen.trajectories), entry["grouped_by_trajectory_uid"])
    last_step = [f"task_agent_step{n}" for n in lengths]
    close(raw_for_singletons(rewards, last_step), entry["grouped_by_last_step_id_task_role_stepk"])
    ours = method(GRPO).advantages(seen)
    close(ours, np.repeat(entry["correct_sample"], lengths))


def test_item_4_two_draws_of_one_task_are_two_groups():
    """Keyed by task alone, rollouts that started in other states and other iterations would be averaged."""
    model = ScriptedModel(lambda prompt, seed: f"<action>{['left', 'stop'][seed % 2]}</action>")
    learner, here = method(GRPO, rollouts=3), world(model)
    draws = play(here, *(learner.explore(task(), arena(here, slot=slot)) for slot in (0, 1)))
    joined = Experience.join(*draws)
    assert set(joined.groups) == {(1, 0), (1, 1)}
    assert {key[3] for key in joined.trajectories} == {task().id}
    wins = Experience.join(experience([1.0, 1.0, 0.0], group=(1, 0)), experience([1.0, 0.0, 0.0], group=(1, 1)))
    ours = method(GRPO, scale="none").advantages(wins)
    by_task = wins.outcomes - wins.outcomes.mean()
    close(by_task, [0.5, 0.5, -0.5, 0.5, -0.5, -0.5])
    close(ours, [1 / 3, 1 / 3, -2 / 3, 2 / 3, -1 / 3, -1 / 3])


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"statistics": "row", "ddof": 0}, "flat_adv_pop"),
        ({"statistics": "row", "ddof": 1}, "flat_adv_sample"),
        ({"statistics": "trajectory", "ddof": 0}, "per_traj_adv_pop"),
    ],
)
def test_item_5_statistics_over_rows_or_trajectories_are_an_option(options, key):
    """A convention: verl-agent and StraTA's Eq. 8 flatten, Eq. 2 does not."""
    entry = VECTORS["flattened_step_group"]
    ours = method(GRPO, **options).advantages(experience(entry["traj_rewards"], entry["steps"]))
    close(ours, np.repeat(entry[key], entry["steps"]))


def test_item_6_leave_one_out_leaves_a_trajectory_out_and_not_a_row():
    """Over rows, the other rows of a trajectory carry its own reward into its baseline (verl-agent)."""
    entry = VECTORS["rloo_flattened"]
    seen = experience(VECTORS["flattened_step_group"]["traj_rewards"], VECTORS["flattened_step_group"]["steps"])
    rows = seen.row_rewards
    faulty = len(rows) / (len(rows) - 1) * (rows - rows.mean())
    close(faulty, np.repeat(entry["per_step_formula"], [2, 6]))
    close(method(RLOO).advantages(seen), np.repeat(entry["correct_traj_level"], [2, 6]))
    close(method(RLOO, statistics="row").advantages(seen), faulty)  # by that name, for comparisons with verl-agent


def test_rloo_is_the_reward_less_the_mean_of_the_others():
    entry = VECTORS["rloo"]
    close(method(RLOO).advantages(experience(entry["rewards"])), entry["adv"])
    close(method(RLOO).advantages(experience(entry["rewards"], [3, 1, 2, 5])), np.repeat(entry["adv"], [3, 1, 2, 5]))


# -- 7: GiGPO -----------------------------------------------------------------------------------------------------


def gigpo_example() -> dict[str, Any]:
    """Two trajectories of a task, 3 and 4 rows; the first one earns 10 with its last step."""
    entry = VECTORS["gigpo"]
    return {
        "episode_rewards": entry["episode_reward"], "step_rewards": [0.0, 0.0, 10.0, 0.0, 0.0, 0.0, 0.0],
        "observations": entry["obs"], "episodes": "AAABBBB", "groups": ["task"] * 7, "gamma": entry["gamma"],
    }  # fmt: skip


def test_item_7_a_state_seen_once_teaches_nothing_and_tasks_do_not_meet():
    """With mean 0 and std 1 for a lone state its whole return leaks; with states alone as keys, two tasks mix."""
    entry, example = VECTORS["gigpo"], gigpo_example()
    leaked = raw_for_singletons(entry["step_returns"], entry["obs"])
    assert leaked[2] == pytest.approx(10.0, abs=1e-4), "the row in state c, instead of 0"
    assert entry["A_S_mean_std"][2] == 0.0
    apart = {**example, "groups": ["one"] * 3 + ["two"] * 4}
    mixed = group_normalize(entry["step_returns"], entry["obs"], scale="none")
    close(mixed, entry["A_S_mean_norm"])
    ours = gigpo_advantages(**apart, omega=1.0, scale="none")
    close(ours, [0.0] * 7)  # one outcome a task, and no state twice with different returns


@pytest.mark.parametrize("similarity", [None, 0.95, 0.97])
def test_item_7_similar_states_are_one_where_the_option_says_so(similarity):
    """A convention with a price: at verl-agent's 0.95 two different mugs are one state."""
    entry = VECTORS["gigpo_similarity"]
    assert SequenceMatcher(None, entry["a"], entry["b"]).ratio() == entry["ratio"]
    step = gigpo_advantages(
        [0.0, 0.0], [1.0, 0.0], [entry["a"], entry["b"]], "AB", ["task"] * 2, gamma=0.95, omega=1.0, scale="none",
        similarity=similarity,
    )  # fmt: skip
    merged = similarity == 0.95 and entry["same_group_at_0_95"]
    assert merged == (similarity is not None and entry["ratio"] >= similarity)
    close(step, [0.5, -0.5] if merged else [0.0, 0.0])
    made = [renamed(t, [state]) for t, state in zip(rollouts([1, 1], [True, False]), (entry["a"], entry["b"]),
            strict=True)]  # fmt: skip
    learner = method(GiGPO, similarity=similarity, scale="none")
    close(learner.advantages(learner.experience(made, group=GROUP)), [1.0, -1.0] if merged else [0.5, -0.5])


# -- 16: what does not belong into a group ------------------------------------------------------------------------


def test_item_16_a_batch_is_never_padded_with_copies(monkeypatch):
    """verl-agent copies random rows until the batch divides, before the advantage: baseline and weights change."""
    entry = VECTORS["batch_copy_padding"]
    copied = np.array([*entry["before"], entry["before"][0]])
    assert copied.tolist() == entry["after_random_copy"]
    close([copied.mean(), np.mean(entry["before"])], [entry["mean_after"], entry["mean"]])
    faulty = group_normalize(copied, "aaaa", scale="none")[:3]
    close(faulty, [0.5, -0.5, -0.5])
    model = tiny()
    learner, spy = method(GRPO, model, scale="none", mini_batch=2), Spy().watch(model, monkeypatch)
    seen = written(model, [[3, 1], [4, 1], [5, 1]], entry["before"])
    close(learner.advantages(seen), [2 / 3, -1 / 3, -1 / 3])
    learn(learner, seen)
    trained = [row.ids for update in spy.updates for row in update.rows]
    assert len(spy.updates) == 2, "three rows do not divide into mini-batches of two"
    assert sorted(trained) == [(3, 1), (4, 1), (5, 1)], "each row once"


def test_item_16_rollouts_without_a_verdict_leave_the_baseline():
    """verl PR 6452: masking a rejected row out of the loss is too late, the mean has seen it."""
    entry = VECTORS["rejected_row_baseline"]
    rewards, valid = np.array(entry["rewards"]), np.array(entry["valid"], dtype=bool)
    faulty = (rewards - rewards.mean())[valid]
    close(faulty, entry["leaky"])
    made = rollouts([1] * 4, rewards.astype(bool).tolist())

    async def rollout(k: int) -> Trajectory:
        if not valid[k]:
            raise EpisodeFailed(Status.INFRA_ERROR, "the server is gone")
        return made[k]

    here, learner = world(), method(GRPO, scale="none")
    (kept,) = play(here, arena(here).gather(rollout(k) for k in range(4)))
    seen = learner.experience(kept, group=GROUP)
    assert [row.trajectory for row in seen.rows] == [made[k].key for k in np.flatnonzero(valid)]
    close(learner.advantages(seen), entry["correct"])
    assert here.tally.failed[str(Status.INFRA_ERROR)] == 1


def test_item_16_a_reward_that_is_no_number_cannot_be_averaged():
    """An error is not a zero: read as one, a lost rollout would be the worst of its group."""
    faulty = np.nan_to_num([1.0, 0.0, 0.0, np.nan])
    assert faulty.mean() == 0.25
    with pytest.raises(ValueError, match="reward 3 is nan; leave out rollouts without a verdict"):
        group_normalize([1.0, 0.0, 0.0, np.nan], "aaaa")


# -- 19: StraTA ---------------------------------------------------------------------------------------------------


def strata(**options: Any) -> StraTA:
    given = {"diversity": False, "auxiliary": "all", "length_threshold": 0.5, "rollouts": 8, **options}
    return method(StraTA, **given)


def test_item_19_rows_of_a_strategy_are_pooled_with_their_own_rewards():
    """rLLM's broadcast gives every step the reward of the last: flags and format errors would vanish."""
    entry, learner = VECTORS["strata_action_group"], strata()
    strategy = Strategy("walk right")
    won = trajectory(0, success=True, malformed=[False] * 3, strategy=strategy)
    lost = trajectory(1, malformed=[False, False, True, False], strategy=strategy)
    flagged = {won.key: frozenset({2}), lost.key: frozenset()}
    seen = learner.experience(
        [won, lost], group=(*GROUP, 0), rewards=lambda t, turns: learner.judged_rewards(t, turns, flagged[t.key])
    )
    close(seen.row_rewards, entry["step_rewards"])
    close(learner.advantages(seen), entry["adv_sample"])
    close(strata(ddof=0).advantages(seen), entry["adv_pop"])
    last = np.repeat([1.0, 0.0], [3, 4])
    faulty = group_normalize(last, ["z"] * 7)
    assert len(set(faulty.round(9))) == 2
    assert np.abs(faulty - entry["adv_sample"]).max() > 0.9, "-0.80 for the malformed reply that deserves -1.72"


def test_item_19_a_strategy_is_worth_the_best_of_its_rollouts_and_at_least_one():
    """Rounding delta M down counts none at the paper's own delta 0.1 and M 8: the mean of nothing."""
    entry = VECTORS["strata_topdelta"]
    best = sorted(entry["R"], reverse=True)
    assert len(best[: int(0.1 * 8)]) == 0
    close(strategy_reward(entry["R"], 0.1), entry["delta_0_1_ceil"])
    close(strategy_reward(entry["R"], entry["delta"]), np.mean(best[: entry["k"]]))
    close(strategy_reward(entry["R"], entry["delta"]), entry["R_z"])
    close(np.mean(entry["R"]), entry["delta_1_0"])  # the plain mean is half as much


def test_item_19_strategies_are_compared_with_strategies_alone():
    """One pool for both kinds of row would measure a strategy against single steps."""
    entry, actions = VECTORS["strata_strategy_group"], VECTORS["strata_action_group"]
    steps = experience(actions["step_rewards"], group=(*GROUP, 0))
    plans = experience(entry["R_z"], group=(*GROUP, "strategies"))
    ours = strata().advantages(Experience.join(plans, steps))
    close(ours, [*entry["adv_sample"], *actions["adv_sample"]])
    pooled = group_normalize([*entry["R_z"], *actions["step_rewards"]], ["task"] * 11)
    assert np.abs(pooled[:4] - entry["adv_sample"]).max() > 0.5


def test_item_19_selection_starts_at_the_centre():
    """Started at the first candidate, as farthest-point code often is, it picks others."""
    entry = VECTORS["strata_fps"]
    unit = np.array(entry["embeddings_raw"], dtype=float)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    faulty = [0]
    while len(faulty) < 3:
        faulty.append(int((unit @ unit[faulty].T).max(axis=1).argmin()))
    assert faulty != entry["selected"]
    assert farthest_point_selection(entry["embeddings_raw"], 3) == entry["selected"]


@pytest.mark.parametrize("case", VECTORS["strata_total"]["cases"])
def test_item_19_the_sum_of_all_terms_is_clipped(case):
    """Clipped before the judge has spoken, a malformed and flagged step of a failure would get -1.1."""
    entry = VECTORS["strata_length"]
    learner = strata(length_threshold=entry["lam"])
    (turn,) = trajectory(0, lengths=[int(case["len"])], limit=entry["L"]).turns
    judge = -case["kappa"] * case["judge"]
    ours = learner.row_reward(case["R"], turn, parsed=not case["fmt"], judge=judge)
    close(ours, case["val"])
    length = entry["values"].get(str(case["len"]), 0.0)
    early = min(1.0, max(-1.0, case["R"] + length + case["fmt"])) + judge
    assert early == pytest.approx(-1.1 if (case["R"], case["judge"]) == (0, 1) else case["val"])
