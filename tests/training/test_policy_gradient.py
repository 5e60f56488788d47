"""The policy-gradient trainer: rewards, mini-batches, reference, checkpoints. A network of letters, seconds of work."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from baselines.grpo import GRPO
from harness.errors import Diverged
from harness.experience import Experience, Row
from harness.model import Kit, MicroBatch, UnsupportedOption, UpdateStats
from harness.models.mini import MiniModel
from harness.seeding import generator
from harness.training.policy_gradient import PolicyGradient
from harness.types import Turn
from tests.models.tiny import prompts, requests, tiny
from tests.plays import trajectory
from tests.toys import ToyEnv, ToyModel


def grpo(model: MiniModel | None = None, *, seed: int = 0, spec: Any = ToyEnv.spec, **options: Any) -> GRPO:
    """GRPO on a network; no KL, a learning rate that moves it."""
    config = GRPO.Config(**{"rollouts": 2, "lr": 3e-3, "kl_beta": 0.0, "max_tokens": 8, **options})
    method = GRPO(config, spec=spec, view="compact", seed=seed)
    if model is not None:
        method.setup(Kit({"policy": model}))
    return method


def sampled(model: MiniModel, rewards: Sequence[float], *, per_trajectory: int = 1, seed: int = 0) -> Experience:
    """Rows of responses that the model has just sampled, as one group; consecutive ones are a trajectory."""
    completions = model.generate(requests(prompts(len(rewards), seed=seed)))
    rows, keys = [], []
    for k, (completion, reward) in enumerate(zip(completions, rewards, strict=True)):
        key = ("train", 1, 0, "t", -1, k // per_trajectory)
        turn = Turn("policy", "action", completion, trainable=True, token_limit=8)
        rows.append(Row.of(turn, reward=reward, group=(1, 0), trajectory=key))
        keys.append(key)
    trajectories = tuple(dict.fromkeys(keys))
    outcomes = [np.mean([row.reward for row in rows if row.trajectory == key]) for key in trajectories]
    return Experience(tuple(rows), trajectories, np.array(outcomes), ((1, 0),) * len(trajectories))


def learn(method: PolicyGradient, experience: Experience, iteration: int = 1) -> dict[str, float]:
    return dict(asyncio.run(method.learn([experience], None, iteration)))  # type: ignore[arg-type]


def spied(method: GRPO, monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[MicroBatch], list[torch.Tensor]]]:
    """Every update's micro-batches, and its gradient before clipping was undone by the next one."""
    seen: list[tuple[list[MicroBatch], list[torch.Tensor]]] = []
    plain = method.policy.update

    def update(loss: Any, batches: Any, *, temperature: float) -> UpdateStats:
        stats = plain(loss, batches, temperature=temperature)
        parameters = method.policy.network.parameters()
        seen.append((list(batches), [p.grad.clone() for p in parameters if p.grad is not None]))
        return stats

    monkeypatch.setattr(method.policy, "update", update)
    return seen


# -- rewards ----------------------------------------------------------------------------------------------------


def rewards(method: GRPO, **given: Any) -> list[float]:
    made = trajectory(0, **given)
    return method.action_rewards(made, made.turns)


def test_a_success_is_worth_less_the_later_it_comes():
    """1 - 0.5 (t - 1) / (H - 1), the same for every step of the trajectory (Eq. 9)."""
    assert rewards(grpo(), success=True, malformed=[False] * 3, horizon=15) == [1 - 0.5 * 2 / 14] * 3
    assert rewards(grpo(decay=0.0), success=True, malformed=[False] * 3) == [1.0] * 3
    assert rewards(grpo(decay=1.0), success=True, malformed=[False] * 7) == [0.0] * 7
    assert rewards(grpo(), success=False, malformed=[False] * 3) == [0.0] * 3


def test_a_malformed_reply_costs_its_own_row_one():
    assert rewards(grpo(decay=0.0), success=True, malformed=[False, True]) == [1.0, 0.0]
    assert rewards(grpo(), success=False, malformed=[True, False]) == [-1.0, 0.0]


def test_long_responses_are_penalised_and_the_sum_is_clipped():
    """Eq. 11 with L = 40 and lambda = 0.5: free up to 20 tokens, -0.5 at 30, -1 at 40."""
    lengths = [20, 30, 40]
    assert rewards(grpo(), malformed=[False] * 3, lengths=lengths) == pytest.approx([0.0, -0.5, -1.0])
    assert rewards(grpo(), malformed=[True] * 3, lengths=lengths) == [-1.0] * 3
    assert rewards(grpo(length_threshold=0.75), malformed=[False], lengths=[30]) == [0.0]


def test_bare_outcomes_where_the_auxiliary_terms_are_off():
    method = grpo(auxiliary="none", decay=0.0)
    assert rewards(method, success=True, malformed=[True, False], lengths=[40, 2]) == [1.0, 1.0]


def test_where_the_environment_says_so_the_score_is_rewarded():
    method = grpo(spec=dataclasses.replace(ToyEnv.spec, outcome="score"))
    made = trajectory(0, malformed=[False] * 3)
    partial = dataclasses.replace(made, verdict=dataclasses.replace(made.verdict, score=0.6))
    assert method.outcome(partial) == pytest.approx(0.6 * (1 - 0.5 * 2 / 6))
    assert grpo().outcome(partial) == 0.0, "elsewhere a partial score is not rewarded"


def test_metrics_of_an_iteration_are_means():
    method = grpo()
    won = trajectory(0, success=True, malformed=[False, True])
    lost = trajectory(1, malformed=[False] * 3, lengths=[3, 4, 5])
    one = method.experience([won, lost], group=(1, 0))
    summary = method.summary(Experience.join(one, one, Experience(dropped=1)))
    assert summary == {
        "episodes": 4, "success": 0.5, "score": 0.5, "reward": pytest.approx((1 - 0.5 / 6) / 2), "steps": 2.5,
        "malformed_rate": 0.2, "response_tokens": 16 / 5, "rows": 10, "dropped_groups": 1, "entropy": 0.5,
        "flat_groups": 0,
    }  # fmt: skip


# -- updates ----------------------------------------------------------------------------------------------------


def test_probabilities_move_with_the_advantages():
    model = tiny()
    method, experience = grpo(model), sampled(model, [1.0, 0.0, 1.0, 0.0])
    rows = [row for row in experience.rows]
    metrics = learn(method, experience)
    after = model.logprobs(rows, temperature=1.0)
    change = [float(new.sum() - sum(row.logprobs)) for row, new in zip(rows, after, strict=True)]
    assert change[0] > 0 > change[1]
    assert change[2] > 0 > change[3]
    assert metrics["updates"] == 1
    assert metrics["ratio"] == pytest.approx(1, abs=1e-4), "the first update is on-policy"
    assert metrics["grad_norm"] > 0
    assert model.version == 1


def test_the_engine_is_told_of_the_new_weights_after_the_last_update(monkeypatch):
    """Trainer and engine may be two: without it the next iteration would be sampled from the old weights."""
    model = tiny()
    method, experience = grpo(model, mini_batch=2), sampled(model, [1.0, 0.0, 1.0, 0.0])
    synced: list[tuple[int, int]] = []
    monkeypatch.setattr(type(model), "sync", lambda self, version: synced.append((version, self.version)))
    learn(method, experience)
    assert synced == [(2, 2)]


def test_rows_without_advantage_change_nothing(monkeypatch):
    """They are left out of the pass, but were counted when the weights were made."""
    values = [1.0, 0.0, 0.5, 0.5, 0.5]  # the mean is 0.5
    gradients, sizes = [], []
    for skips in (True, False):
        model = tiny()
        method, experience = grpo(model, aggregation="token-mean"), sampled(model, values)
        with monkeypatch.context() as patch:
            if not skips:  # an advantage that is not exactly 0 is kept
                patch.setattr(
                    GRPO, "advantages", lambda self, e, plain=GRPO.advantages: np.where(
                        plain(self, e) == 0, 1e-30, plain(self, e)
                    )
                )  # fmt: skip
            seen = spied(method, patch)
            learn(method, experience)
        batches, gradient = seen[0]
        sizes.append(sum(len(batch.rows) for batch in batches))
        gradients.append(gradient)
    assert sizes == [2, 5]
    for skipped, kept in zip(*gradients, strict=True):
        assert torch.allclose(skipped, kept, atol=1e-7)


def test_rows_without_advantage_stay_where_something_else_pulls(monkeypatch):
    for options in ({"kl_beta": 0.1}, {"entropy": 0.1}):
        model = tiny()
        method, experience = grpo(model, **options), sampled(model, [0.5] * 4)
        seen = spied(method, monkeypatch)
        learn(method, experience)
        assert sum(len(batch.rows) for batch in seen[0][0]) == 4
        monkeypatch.undo()


def test_a_group_that_agrees_takes_no_step():
    model = tiny()
    method, experience = grpo(model), sampled(model, [0.5] * 4)
    before = model.digest
    metrics = learn(method, experience)
    assert (model.digest, model.version, metrics["updates"], metrics["flat_groups"]) == (before, 0, 0, 1)
    assert metrics["advantage_rows"] == 0


def test_nothing_to_learn_from():
    method = grpo(tiny())
    metrics = learn(method, Experience(dropped=2))
    assert (metrics["rows"], metrics["dropped_groups"], metrics["success"]) == (0, 2, 0)


def test_mini_batches_are_several_updates_with_importance_ratios(monkeypatch):
    model = tiny()
    method = grpo(model, mini_batch=4, epochs=2, lr=3e-2)
    experience = sampled(model, [float(k % 3) for k in range(10)])
    seen = spied(method, monkeypatch)
    metrics = learn(method, experience)
    assert metrics["updates"] == len(seen) == 6, "4 + 3 + 3 rows, twice"
    assert {sum(len(batch.rows) for batch in batches) for batches, _ in seen} <= {3, 4}, "no small remainder"
    old = {row.ids: row.logprobs for row in experience.rows}
    for batches, _ in seen:
        for batch in batches:
            for row, line in zip(batch.rows, batch.arrays["old_logp"], strict=True):
                assert np.allclose(line[: len(row.ids)], old[row.ids]), "the old policy is the one that sampled"
    order = [[row.ids for batch in batches for row in batch.rows] for batches, _ in seen]
    assert sorted(order[0] + order[1] + order[2]) == sorted(order[3] + order[4] + order[5])
    assert set(order[0]) != set(order[3]), "each epoch has an order of its own"
    assert metrics["ratio_max"] > 1.05


def test_the_order_of_rows_is_seeded_by_run_and_iteration(monkeypatch):
    def first(seed: int, iteration: int) -> set[Any]:
        model = tiny()
        method = grpo(model, mini_batch=4, seed=seed)
        experience = sampled(model, [float(k) for k in range(12)])
        seen = spied(method, monkeypatch)
        learn(method, experience, iteration)
        monkeypatch.undo()
        return {row.ids for batch in seen[0][0] for row in batch.rows}

    assert first(0, 1) == first(0, 1)
    assert len({frozenset(first(*place)) for place in ((0, 1), (0, 2), (1, 1))}) == 3


@pytest.mark.parametrize("tokens", [1, 40, 10_000])
def test_the_split_into_micro_batches_changes_memory_not_results(tokens):
    states = []
    for limit in (16384, tokens):
        model = tiny()
        method = grpo(model, micro_batch_tokens=limit, kl_beta=0.01)
        learn(method, sampled(model, [float(k % 3) for k in range(8)]))
        states.append(model.network.state_dict())
    for name, tensor in states[0].items():
        assert torch.allclose(tensor, states[1][name], atol=2e-5), name


def test_every_trajectory_weighs_the_same_in_grpo(monkeypatch):
    """Eq. 4: 1/G times the mean over a trajectory's steps."""
    model = tiny()
    method = grpo(model)
    three = sampled(model, [1.0, 1.0, 1.0, 0.0, 0.0, 0.0], per_trajectory=3)
    rows = (*three.rows[:3], dataclasses.replace(three.rows[3]))  # 3 rows and 1 row
    seen = spied(method, monkeypatch)
    learn(method, dataclasses.replace(three, rows=rows))
    weights = {row.ids: float(w) for batch in seen[0][0] for row, w in zip(batch.rows, batch.weights, strict=True)}
    assert [weights[row.ids] for row in rows] == pytest.approx([1 / 6, 1 / 6, 1 / 6, 1 / 2])


def test_a_long_trajectory_gains_no_weight_by_being_cut_into_mini_batches(monkeypatch):
    """Counted inside each mini-batch, a step of a long trajectory would weigh about as much as one of a short one."""
    model = tiny()
    method = grpo(model, mini_batch=5)
    long = sampled(model, [1.0] * 6 + [0.0] * 6, per_trajectory=6)
    experience = dataclasses.replace(long, rows=(*long.rows[:6], *long.rows[6:8]))  # 6 rows and 2 rows
    seen = spied(method, monkeypatch)
    learn(method, experience)
    of = {row.ids: row.trajectory for row in experience.rows}
    for batches, _ in seen:
        pairs = [pair for batch in batches for pair in zip(batch.rows, batch.weights, strict=True)]
        weights = [(of[row.ids], float(weight)) for row, weight in pairs]
        assert sum(weight for _, weight in weights) == pytest.approx(1.0)
        short = [weight for key, weight in weights if key == experience.trajectories[1]]
        others = [weight for key, weight in weights if key == experience.trajectories[0]]
        assert all(weight == pytest.approx(others[0]) for weight in others)
        assert all(weight / others[0] == pytest.approx(3.0) for weight in short)


def test_the_temperature_of_training_is_that_of_sampling():
    model = tiny()
    method = grpo(model, train_temperature=0.5)
    sampling = method.sampling("train")
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.max_tokens) == (0.5, 1.0, 0, 8)
    assert method.sampling("eval").temperature == 0.7
    completions = model.generate(requests(prompts(4), temperature=0.5))
    rows = [
        Row.of(Turn("policy", "action", c, True, 8), reward=float(k % 2), group=(0,), trajectory=(k,))
        for k, c in enumerate(completions)
    ]
    outcomes = np.array([row.reward for row in rows])
    experience = Experience(tuple(rows), tuple(row.trajectory for row in rows), outcomes, ((0,),) * 4)
    assert learn(method, experience)["ratio_max"] == pytest.approx(1, abs=1e-3)


# -- the reference policy ---------------------------------------------------------------------------------------


def test_the_reference_is_the_policy_as_it_started(monkeypatch):
    model = tiny()
    method = grpo(model, kl_beta=0.1, lr=1e-2)
    rows = sampled(model, [1.0, 0.0, 1.0, 0.0])
    start = model.logprobs(rows.rows, temperature=1.0)
    first = learn(method, rows)
    assert first["kl"] == pytest.approx(0, abs=1e-6)
    seen = spied(method, monkeypatch)
    second = learn(method, rows, 2)
    assert second["kl"] > 1e-4
    batches = seen[0][0]
    given = {
        row.ids: line for batch in batches for row, line in zip(batch.rows, batch.arrays["ref_logp"], strict=True)
    }
    for row, expected in zip(rows.rows, start, strict=True):
        assert np.allclose(given[row.ids][: len(row.ids)], expected, atol=1e-6)
    with pytest.raises(RuntimeError, match="frozen"):
        method.reference.update(None, [], temperature=1.0)


def test_a_kl_term_holds_the_policy_back():
    distances = []
    for beta in (0.0, 3.0):
        model = tiny()
        start = model.frozen_copy()
        method = grpo(model, kl_beta=beta, lr=1e-2)
        rows = sampled(model, [1.0, 0.0, 1.0, 0.0])
        for iteration in range(4):
            learn(method, rows, iteration)
        pairs = zip(
            model.logprobs(rows.rows, temperature=1.0), start.logprobs(rows.rows, temperature=1.0), strict=True
        )
        distances.append(sum(float(np.abs(a - b).sum()) for a, b in pairs))
    assert distances[1] < distances[0]


def test_the_reference_is_asked_in_passes_of_the_size_that_the_option_says(monkeypatch):
    model = tiny()
    method, asked = grpo(model, kl_beta=0.1, micro_batch_tokens=77), []
    plain = method.reference.logprobs

    def logprobs(rows: Any, *, temperature: float, batch_tokens: int) -> Any:
        asked.append(batch_tokens)
        return plain(rows, temperature=temperature, batch_tokens=batch_tokens)

    monkeypatch.setattr(method.reference, "logprobs", logprobs)
    learn(method, sampled(model, [1.0, 0.0]))
    assert asked == [77]


def test_without_a_kl_term_there_is_no_reference():
    assert grpo(tiny(), kl_beta=0.0).reference is None


# -- state ------------------------------------------------------------------------------------------------------


def train(model: MiniModel, method: GRPO, iterations: range) -> None:
    for iteration in iterations:
        values = generator("rewards", iteration).random(12).round(1).tolist()
        learn(method, sampled(model, values, per_trajectory=2, seed=iteration), iteration)


@pytest.mark.parametrize("beta", [0.0, 0.05])
def test_two_and_two_iterations_are_four_bit_for_bit(tmp_path: Path, beta: float):
    options = {"kl_beta": beta, "mini_batch": 5}
    through, before, after = tiny(), tiny(), tiny()
    whole = grpo(through, **options)
    train(through, whole, range(1, 5))
    half = grpo(before, **options)
    train(before, half, range(1, 3))
    half.save(tmp_path)
    resumed = grpo(after, **options)
    resumed.load(tmp_path)
    assert resumed.state_dict() == half.state_dict()
    train(after, resumed, range(3, 5))
    assert after.digest == through.digest != before.digest
    assert resumed.state_dict() == whole.state_dict()


def test_weights_that_are_not_those_of_the_state_are_refused(tmp_path):
    method = grpo(tiny())
    method.save(tmp_path)
    tiny(seed=1).save(tmp_path)
    with pytest.raises(ValueError, match="not those that its state names"):
        grpo(tiny()).load(tmp_path)


@pytest.mark.parametrize("file", ["weights.safetensors", "optimizer.pt", "state.json"])
def test_a_damaged_file_is_told_as_a_damaged_checkpoint(tmp_path, file):
    from harness.checkpoint import SeedFolder
    from harness.errors import InputError

    folder = SeedFolder(tmp_path / "seed-0")
    model = tiny()
    method = grpo(model)
    train(model, method, range(1, 2))
    folder.save(method, 1)
    path = folder.path / "iteration-1" / file
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(InputError, match="cannot be read"):
        folder.restore(grpo(tiny()))


def test_a_model_that_cannot_train_is_refused():
    with pytest.raises(UnsupportedOption, match="back end 'toy' cannot; use --model mini"):
        grpo().setup(Kit({"policy": ToyModel()}))


# -- options of others, and the end of a run that diverges ------------------------------------------------------


def test_the_penalty_of_verl_agent_is_subtracted_from_a_scaled_reward_and_nothing_is_clipped():
    method = grpo(auxiliary="invalid", reward_scale=10.0, decay=0.0)
    assert rewards(method, success=True, malformed=[False, True, False], lengths=[40, 2, 2]) == [10.0, 9.9, 10.0]
    assert rewards(method, success=False, malformed=[True, False]) == [-0.1, 0.0]
    assert rewards(grpo(auxiliary="invalid", invalid_penalty=3.0), malformed=[True]) == [-3.0]


@pytest.mark.parametrize("auxiliary", ["all", "none"])
def test_a_scale_beyond_the_clip_is_refused(auxiliary):
    with pytest.raises(ValueError, match=r"reward_scale=10 with auxiliary=.* use auxiliary=invalid"):
        grpo(auxiliary=auxiliary, reward_scale=10.0)


def test_dynamic_sampling_leaves_groups_without_variance_out_of_the_update(monkeypatch):
    """By default their rows count in the mean and only lack a gradient."""
    weights = []
    for dynamic in (False, True):
        model = tiny()
        method = grpo(model, dynamic_sampling=dynamic, kl_beta=0.1)
        lively, flat = sampled(model, [1.0, 0.0]), sampled(model, [1.0] * 3, seed=1)
        other = ((1, 1),) * 3
        moved = tuple(dataclasses.replace(row, group=(1, 1), trajectory=(*row.trajectory, "b")) for row in flat.rows)
        flat = dataclasses.replace(flat, rows=moved, groups=other, trajectories=tuple(r.trajectory for r in moved))
        seen = spied(method, monkeypatch)
        metrics = learn(method, Experience.join(lively, flat))
        weights.append(sorted(float(w) for batch in seen[0][0] for w in batch.weights))
        assert (metrics["rows"], metrics["flat_groups"]) == (5, 0.5)
        monkeypatch.undo()
    assert weights == [pytest.approx([0.2] * 5), pytest.approx([0.5] * 2)]


def test_dynamic_sampling_without_a_lively_group_takes_no_step():
    model = tiny()
    method = grpo(model, dynamic_sampling=True, kl_beta=0.1, entropy=0.1)
    before = model.digest
    assert learn(method, sampled(model, [0.5] * 4))["updates"] == 0
    assert model.digest == before


def test_numbers_beyond_use_stop_the_step_with_its_rows():
    model = tiny()
    method, experience = grpo(model), sampled(model, [1.0, 0.0])
    with torch.no_grad():
        next(model.network.parameters())[:] = float("nan")
    with pytest.raises(Diverged, match=r"loss of micro-batch 0 .* is nan .* no step was taken") as stopped:
        learn(method, experience)
    assert model.version == 0
    assert [row["ids"] for row in stopped.value.batch] != []
    assert {row["ids"] for row in stopped.value.batch} == {row.ids for row in experience.rows}
    for row in stopped.value.batch:
        assert {"prompt_ids", "reward", "group", "trajectory", "weight", "old_logp", "advantages"} <= set(row)
        assert len(row["old_logp"]) == len(row["advantages"]) == len(row["ids"])


def test_an_exploding_ratio_stops_the_step_before_it_is_taken():
    model = tiny()
    method, experience = grpo(model, ratio_limit=5.0), sampled(model, [1.0, 0.0])
    off = tuple(dataclasses.replace(row, logprobs=tuple(p - 3.0 for p in row.logprobs)) for row in experience.rows)
    before = model.digest
    with pytest.raises(Diverged, match=r"importance ratio of 20\.\d+ exceeds ratio_limit=5; no step was taken"):
        learn(method, dataclasses.replace(experience, rows=off))
    assert model.digest == before
    assert learn(grpo(tiny(), ratio_limit=None), dataclasses.replace(experience, rows=off))["ratio_max"] > 20
