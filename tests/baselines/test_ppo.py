"""PPO: rewards on tokens, advantages under a critic, and a critic that is trained and kept with its policy."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from baselines.grpo import GRPO
from baselines.ppo import PPO
from harness.errors import Diverged
from harness.experience import Experience
from harness.method import Method
from harness.model import Kit
from harness.models.mini import MiniModel
from harness.models.scripted import ScriptedModel
from harness.seeding import generator
from harness.types import StopReason, Trajectory
from tests.models.tiny import tiny
from tests.plays import arena, best, episode, play, task, trajectory, world
from tests.training.rollouts import learn, method, written

VECTORS: dict[str, Any] = json.loads((Path(__file__).parents[1] / "vectors" / "rl.json").read_text())


def ppo(model: MiniModel | None = None, **options: Any) -> PPO:
    return method(PPO, model, **options)


def told(learner: PPO, *made: Trajectory) -> Experience:
    return learner.experience(made, group=(1, 0))


class Zeros:
    """A critic that gives 0 to every state and keeps what it is to be fitted to."""

    def estimate(self, rows: Sequence[Any]) -> list[np.ndarray]:
        return [np.zeros(len(row.ids)) for row in rows]

    def aim(self, returns: Sequence[np.ndarray]) -> None:
        self.returns = returns


class Oracle(Zeros):
    """A critic that gives known values."""

    def __init__(self, *values: Sequence[float]) -> None:
        self.given = [np.array(row, dtype=np.float64) for row in values]

    def estimate(self, rows: Sequence[Any]) -> list[np.ndarray]:
        return self.given


# -- episodes ---------------------------------------------------------------------------------------------------


def test_rollouts_of_one_task_are_one_group():
    model = ScriptedModel(lambda prompt, seed: f"<action>{best(prompt)}</action>" if seed % 2 else "no idea")
    learner = ppo(None, rollouts=4)
    there = world(model)
    Method.setup(learner, Kit({"policy": model}))
    experience = play(there, learner.explore(task(0, 1), arena(there, iteration=3, slot=5)))[0]
    assert len(experience.trajectories) == learner.rollouts_per_task == 4
    assert set(experience.groups) == {(3, 5)}
    assert experience.metrics["episodes"] == 4


def test_a_lone_rollout_is_trained_on():
    """A critic is what it is compared with: GRPO drops what infrastructure left alone, PPO does not."""
    lone = trajectory(0, success=True)
    assert (len(told(ppo(rollouts=1), lone).rows), told(ppo(rollouts=1), lone).dropped) == (1, 0)
    left = method(GRPO).experience([lone], group=(1, 0))
    assert (len(left.rows), left.dropped) == (0, 1)
    model = ScriptedModel(lambda prompt, seed: f"<action>{best(prompt)}</action>")
    learner, there = ppo(None, rollouts=1), world(model)
    Method.setup(learner, Kit({"policy": model}))
    explored = play(there, learner.explore(task(0, 1), arena(there)))[0]
    assert (len(explored.trajectories), explored.dropped) == (learner.rollouts_per_task, 0) == (1, 0)


def test_malformed_replies_cost_steps_until_the_horizon():
    there = world(ScriptedModel(lambda prompt, seed: "left"))
    done = play(there, ppo(None).solve(episode(there)))[0]
    assert done.stop is StopReason.HORIZON
    assert all(step.malformed for step in done.steps)


# -- rewards ----------------------------------------------------------------------------------------------------


def rewards(learner: PPO, *made: Trajectory) -> list[list[float]]:
    return [row.tolist() for row in learner.token_rewards(told(learner, *made))]


WON = trajectory(0, success=True, malformed=[False, True, False], lengths=[2, 3, 1])
LOST = trajectory(1, malformed=[True], lengths=[2])


def test_an_episode_is_paid_at_its_end_and_penalties_stay_with_their_rows():
    assert rewards(ppo(auxiliary="all"), WON, LOST) == [[0, 0], [0, 0, -1 / 3], [1], [0, -1]]
    assert rewards(ppo(auxiliary="none"), WON, LOST) == [[0, 0], [0, 0, 0], [1], [0, 0]]
    scaled = ppo(auxiliary="invalid", reward_scale=10.0)
    assert rewards(scaled, WON, LOST)[0::2] == [[0, 0], [10]]
    assert rewards(scaled, WON, LOST)[1] == pytest.approx([0, 0, -0.1 / 3])
    assert rewards(ppo(decay=0.5), WON, LOST)[2] == [1 - 0.5 * 2 / 6]


def test_a_success_is_worth_what_grpo_makes_of_it_however_many_replies_are_malformed():
    """Undivided penalties would make it -5."""
    won = trajectory(0, success=True, malformed=[True] * 6 + [False])
    returned = np.concatenate(ppo(auxiliary="all").token_rewards(told(ppo(auxiliary="all"), won))).sum()
    compared = method(GRPO, auxiliary="all").experience([won, LOST], group=(1, 0)).outcomes[0]
    assert returned == pytest.approx(compared)
    assert returned == pytest.approx(1 / 7)


def test_verl_agent_pays_the_whole_reward_at_the_end_of_every_row():
    assert rewards(ppo(auxiliary="all", sequence="row"), WON, LOST) == [[0, 1], [0, 0, 0], [1], [0, -1]]


# -- advantages -------------------------------------------------------------------------------------------------

EPISODES = st.lists(
    st.lists(st.tuples(st.integers(1, 4), st.booleans()), min_size=1, max_size=4), min_size=2, max_size=4
)


def judged(critic: Zeros, **options: Any) -> PPO:
    """A method with a made-up critic in the place of its own."""
    learner = ppo(**options)
    learner.critic = critic  # type: ignore[assignment]
    return learner


@given(EPISODES, st.lists(st.booleans(), min_size=4, max_size=4), st.floats(0, 1))
def test_without_discount_and_critic_an_advantage_is_the_reward_itself(shape, won, decay):
    """gamma = lambda = 1, whitening off and a critic of zeros; exactly, not nearly."""
    made = [
        trajectory(k, success=won[k], malformed=[bad for _, bad in steps], lengths=[n for n, _ in steps])
        for k, steps in enumerate(shape)
    ]
    options = {"whiten": False, "decay": decay}
    bare = judged(Zeros(), auxiliary="none", **options)
    experience = told(bare, *made)
    outcomes = experience.broadcast([bare.outcome(t) for t in made])
    for row, outcome, found in zip(experience.rows, outcomes, bare.token_advantages(experience), strict=True):
        assert found.tolist() == [outcome] * len(row.ids)
    rowwise = judged(Zeros(), auxiliary="all", sequence="row", **options)
    experience = told(rowwise, *made)
    for row, found in zip(experience.rows, rowwise.token_advantages(experience), strict=True):
        assert found.tolist() == [row.reward] * len(row.ids)


@given(EPISODES, st.lists(st.booleans(), min_size=4, max_size=4), st.floats(0, 1), st.data())
def test_an_episode_returns_the_mean_of_its_row_rewards(shape, won, decay, data):
    """What GRPO compares: gamma = lambda = 1 and a critic of zeros, at the first token, for any penalties."""
    made = [
        trajectory(k, success=won[k], malformed=[bad for _, bad in steps], lengths=[n for n, _ in steps], limit=5)
        for k, steps in enumerate(shape)
    ]
    options: dict[str, Any] = data.draw(st.sampled_from([
        {"auxiliary": "all"}, {"auxiliary": "none"},
        {"auxiliary": "invalid", "reward_scale": 10.0, "invalid_penalty": 0.3},
    ]))  # fmt: skip
    learner = judged(Zeros(), whiten=False, decay=decay, **options)
    experience = told(learner, *made)
    compared = method(GRPO, decay=decay, **options).experience(made, group=(1, 0)).outcomes
    first = {row.trajectory: index for index, row in reversed([*enumerate(experience.rows)])}
    found = learner.token_advantages(experience)
    returned = [found[first[key]][0] for key in experience.trajectories]
    assert returned == pytest.approx(compared.tolist())
    bound = options.get("reward_scale", 1.0)
    assert all(-1 - 1e-9 <= value <= bound + 1e-9 for value in returned)


def test_a_fresh_critic_is_one_of_zeros():
    model = tiny()
    learner = ppo(model, whiten=False)
    experience = rows(model)
    for row, found in zip(experience.rows, learner.token_advantages(experience), strict=True):
        assert found.tolist() == [row.reward] * len(row.ids)


def test_a_token_pays_for_what_follows_it_not_for_what_was_before():
    learner = judged(Zeros(), auxiliary="all", whiten=False)
    found = learner.token_advantages(told(learner, WON, LOST))
    assert np.concatenate(found) == pytest.approx([2 / 3] * 5 + [1] + [-1] * 2)


def test_vectors_an_episode_is_bridged_over_its_observations():
    """gae_observation_tokens: two rows of two tokens; the observation between them is in no row."""
    entry = VECTORS["gae_observation_tokens"]
    critic = Oracle([0.2, 0.3], [0.4, 0.5], [0.0])
    learner = judged(critic, lam=entry["lam"], gamma=entry["gamma"], whiten=False)
    won = trajectory(0, success=True, malformed=[False] * 2, lengths=[2, 2])
    found = learner.token_advantages(told(learner, won, trajectory(1, lengths=[1])))
    assert np.concatenate(found[:2]) == pytest.approx(entry["masked"])
    assert np.concatenate(critic.returns[:2]) == pytest.approx([0.9139375, 0.94625, 0.975, 1.0])


def test_vectors_a_longer_episode_does_not_leak_into_a_shorter_one():
    """gae_padding: beside an episode of five tokens that the critic gives 0.9."""
    entry = VECTORS["gae_padding"]
    learner = judged(Oracle(entry["values"][:3], [0.9] * 5), lam=0.95, whiten=False)
    short = trajectory(0, success=True, lengths=[3])
    found = learner.token_advantages(told(learner, short, trajectory(1, lengths=[5])))
    assert found[0] == pytest.approx(entry["lam95_masked"][:3])


def test_vectors_whitening_runs_over_all_response_tokens():
    """masked_whiten: tokens of rows of different lengths with advantages 1, 2 and 3."""
    entry = VECTORS["masked_whiten"]
    critic = Oracle([-1.0, -2.0], [-3.0])  # an outcome of 0 less these values
    learner = judged(critic)
    found = learner.token_advantages(told(learner, trajectory(0, lengths=[2]), trajectory(1, lengths=[1])))
    assert [len(row) for row in found] == [2, 1]
    assert np.concatenate(found) == pytest.approx(entry["right"])
    assert np.concatenate(critic.returns) == pytest.approx([0, 0, 0]), "the critic's aim is not whitened"


@pytest.mark.parametrize("options", [{"gamma": 0.5}, {"lam": 0.5}, {"whiten": True}, {"sequence": "row"}])
def test_each_option_of_the_estimator_has_an_effect(options):
    critic = Oracle([0.1, 0.2], [0.3, 0.1, 0.4], [0.2], [0.5, 0.6])
    found = []
    for chosen in ({}, options):
        learner = judged(critic, **{"whiten": False, "auxiliary": "all", **chosen})
        found.append(np.concatenate(learner.token_advantages(told(learner, WON, LOST))))
    assert not np.allclose(*found)


def test_a_group_is_not_compared():
    with pytest.raises(ValueError, match="dynamic_sampling"):
        PPO.Config(dynamic_sampling=True)


# -- learning ---------------------------------------------------------------------------------------------------


def rows(model: MiniModel, iteration: int = 0, n: int = 6) -> Experience:
    """Rows of random letters with random rewards, each an episode of its own."""
    random = generator("ppo", iteration)
    responses = [[*map(int, random.integers(3, 20, random.integers(1, 6))), 1] for _ in range(n)]
    return written(model, responses, random.random(n).round(1).tolist())


def test_probabilities_move_with_the_advantages_and_values_with_the_returns():
    model = tiny()
    learner = ppo(model, critic_lr=3e-3)
    experience = written(model, [[5, 6, 1], [7, 8, 9, 1]], [1.0, 0.0])
    metrics = learn(learner, experience)
    after = model.logprobs(experience.rows, temperature=1.0)
    change = [float(new.sum() - sum(row.logprobs)) for row, new in zip(experience.rows, after, strict=True)]
    assert change[0] > 0 > change[1]
    assert metrics["updates"] == 1
    assert metrics["value_loss"] == pytest.approx(0.5 * 3 / 7), "three tokens of seven have return 1, values are 0"
    assert (metrics["value_mean"], metrics["explained_variance"], metrics["value_clip_fraction"]) == (0, 0, 0)
    assert metrics["critic_grad_norm"] > 0
    assert learner.critic.model.version == 1
    assert learn(learner, experience, iteration=2)["value_mean"] > 0


def test_the_critic_learns_on_the_mini_batches_of_the_policy():
    model = tiny()
    learner = ppo(model, mini_batch=2, epochs=2, critic_steps=3)
    assert learn(learner, rows(model))["updates"] == 6
    assert (model.version, learner.critic.model.version) == (6, 18)


def test_a_critic_that_has_learnt_leaves_no_advantage():
    """Every episode is worth 1, and a group that agrees teaches until the critic knows it."""
    model = tiny()
    learner = ppo(model, whiten=False, critic_lr=1e-2, lr=1e-6)
    experience = written(model, [[5, 6, 1], [7, 8, 9, 1]], [1.0, 1.0])
    sizes = []
    for iteration in range(1, 41):
        learn(learner, experience, iteration=iteration)
        sizes.append(float(np.abs(np.concatenate(learner.token_advantages(experience))).max()))
    assert sizes[-1] < 0.2 < sizes[0]


def test_the_critic_warms_up_alone():
    model = tiny()
    learner = ppo(model, critic_warmup=2, kl_beta=0.1, entropy=0.1)
    before = model.digest
    for iteration in (1, 2):
        metrics = learn(learner, rows(model), iteration=iteration)
        assert (metrics["updates"], model.digest) == (0, before)
        assert learner.critic.model.version == iteration
    assert learn(learner, rows(model), iteration=3)["updates"] == 1
    assert model.digest != before


@pytest.mark.parametrize(
    "options",
    [
        {"critic_lr": 1e-3},
        {"critic_weight_decay": 0.5},
        {"critic_max_grad_norm": 1e-9},
        {"critic_steps": 2},
        {"value_clip": 1e-4},
    ],
    ids=str,
)
def test_each_option_of_the_critic_has_an_effect_on_the_critic_alone(options):
    plain = {"critic_lr": 1e-2, "critic_steps": 2 if "value_clip" in options else 1}
    critics, policies = [], []
    for chosen in ({}, options):
        model = tiny()
        learner = ppo(model, **{**plain, **chosen})
        learn(learner, rows(model))
        critics.append(learner.critic.model.digest)
        policies.append(model.digest)
    assert critics[0] != critics[1]
    assert policies[0] == policies[1]


@pytest.mark.parametrize("tokens", [1, 30])
def test_the_split_into_micro_batches_changes_memory_not_results(tokens):
    found = []
    for limit in (16384, tokens):
        model = tiny()
        learner = ppo(model, micro_batch_tokens=limit, max_grad_norm=1e9, critic_max_grad_norm=1e9)
        with torch.no_grad():
            learner.critic.model.network.weight.fill_(0.05)
        metrics = learn(learner, rows(model))
        networks = (model.network, learner.critic.model.network)
        found.append([p.grad.clone() for network in networks for p in network.parameters()])
        assert metrics["updates"] == 1
    for mine, whole in zip(*found, strict=True):
        assert torch.allclose(mine, whole, atol=5e-6)


def test_numbers_beyond_use_stop_the_step_with_its_rows():
    model = tiny()
    learner = ppo(model)
    with torch.no_grad():
        learner.critic.model.network.bias.fill_(float("nan"))
    with pytest.raises(Diverged, match="values that are not finite on 6 of 6 rows") as stopped:
        learn(learner, rows(model))
    assert len(stopped.value.batch) == 6
    assert model.version == 0


# -- state ------------------------------------------------------------------------------------------------------

OPTIONS: dict[str, Any] = {"mini_batch": 3, "critic_lr": 3e-3, "value_clip": 0.5, "critic_warmup": 1}


def train(learner: PPO, model: MiniModel, iterations: range) -> None:
    for iteration in iterations:
        learn(learner, rows(model, iteration), iteration=iteration)


def test_two_and_two_iterations_are_four_bit_for_bit(tmp_path):
    through, before, after = tiny(), tiny(), tiny()
    whole, half, resumed = (ppo(model, **OPTIONS) for model in (through, before, after))
    train(whole, through, range(1, 5))
    train(half, before, range(1, 3))
    half.save(tmp_path)
    resumed.load(tmp_path)
    assert resumed.state_dict() == half.state_dict()
    assert set(resumed.state_dict()) == {"weights", "version", "critic"}
    train(resumed, after, range(3, 5))
    assert resumed.state_dict() == whole.state_dict() != half.state_dict()
    assert after.digest == through.digest


def test_a_critic_that_is_not_the_one_of_the_state_is_refused(tmp_path):
    model = tiny()
    learner = ppo(model)
    learner.save(tmp_path)
    tiny(seed=1).with_value_head().save(tmp_path / "critic")
    with pytest.raises(ValueError, match="critic is not the one that its state names"):
        ppo(tiny()).load(tmp_path)


@pytest.mark.parametrize("file", ["weights.safetensors", "optimizer.pt", "state.json"])
def test_a_damaged_file_of_the_critic_is_told_as_a_damaged_checkpoint(tmp_path, file):
    from harness.checkpoint import SeedFolder
    from harness.errors import InputError

    folder = SeedFolder(tmp_path / "seed-0")
    model = tiny()
    learner = ppo(model)
    train(learner, model, range(1, 2))
    folder.save(learner, 1)
    path = folder.path / "iteration-1" / "critic" / file
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(InputError, match="cannot be read"):
        folder.restore(ppo(tiny()))
