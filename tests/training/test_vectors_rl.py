"""The estimators against numbers computed independently (tests/vectors/rl.json).

Where an entry records a fault of another code base, the fault is written out here too and must give the recorded wrong
number: otherwise the entry would not prove that ours differs.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from harness.training.advantages import gae, group_normalize, leave_one_out, masked_whiten
from harness.training.losses import aggregate, clipped_surrogate, kl, row_means, row_weights, token_logprobs
from harness.training.masks import response_mask
from harness.training.rewards import length_penalty, step_decay, total_reward
from methods.strata.diversity import farthest_point_selection
from methods.strata.rewards import strategy_reward

VECTORS: dict[str, Any] = json.loads((Path(__file__).parents[1] / "vectors" / "rl.json").read_text())


def close(actual: Any, expected: Any, atol: float = 2e-8) -> None:
    """The file prints eight decimals or six significant figures."""
    values = actual.detach().numpy() if isinstance(actual, torch.Tensor) else actual
    np.testing.assert_allclose(values, expected, rtol=1e-7, atol=atol)


def test_every_entry_names_its_source_and_is_used() -> None:
    """Also where methods are tested; `pytest -k "vectors or bugs"` runs them all."""
    tests = [path.read_text(encoding="utf-8") for path in Path(__file__).parents[1].rglob("test_*.py")]
    readers = "".join(text for text in tests if '"rl.json"' in text)
    for name, entry in VECTORS.items():
        if name != "source":
            assert f'"{name}"' in readers, f"no test reads {name}"
            assert entry.get("source") or entry.get("note"), f"{name} says nowhere where it comes from"


# Group-relative advantages


def raw_reward_for_singletons(rewards: list[float], keys: list[Any]) -> list[float]:
    """verl, verl-agent and rLLM: mean 0 and std 1 for a group of one."""
    values, result = np.array(rewards), []
    for reward, key in zip(rewards, keys, strict=True):
        group = values[[other == key for other in keys]]
        mean, std = (group.mean(), group.std(ddof=1)) if len(group) > 1 else (0.0, 1.0)
        result.append(float((reward - mean) / (std + 1e-6)))
    return result


def test_grpo_basic_in_three_conventions() -> None:
    entry = VECTORS["grpo_basic"]
    close(group_normalize(entry["rewards"], "aaaa", ddof=0), entry["pop"])
    close(group_normalize(entry["rewards"], "aaaa"), entry["sample"])
    close(group_normalize(entry["rewards"], "aaaa", scale="none"), entry["drgrpo"])


def test_grpo_zero_variance_is_exactly_zero() -> None:
    entry = VECTORS["grpo_zero_variance"]
    assert group_normalize(entry["rewards"], "aaaa").tolist() == entry["adv"]


def test_grpo_singleton_teaches_nothing() -> None:
    entry = VECTORS["grpo_singleton"]
    assert group_normalize(entry["reward"], ["a"]).tolist() == [entry["correct"]]
    close(raw_reward_for_singletons(entry["reward"], ["a"]), [entry["verl_and_rllm"]])


def test_grpo_low_variance_is_not_floored() -> None:
    """A floor under the std (verl PR 6348, here 0.01) would flatten the group to a hundredth of its advantage."""
    entry = VECTORS["grpo_low_variance"]
    rewards = np.array(entry["rewards"])
    close(group_normalize(rewards, "aaaa"), entry["sample"])
    floored = (rewards - rewards.mean()) / max(rewards.std(ddof=1), 1e-2)
    assert np.abs(floored).max() < 0.01 * np.abs(entry["sample"]).max()


def test_group_key_bug() -> None:
    """rLLM#605: keys by trajectory compare nothing; keys by last step compare only episodes of equal length."""
    entry = VECTORS["group_key_bug"]
    rewards, lengths = entry["rewards"], entry["traj_lengths"]
    close(group_normalize(rewards, ["task"] * 4), entry["correct_sample"])
    close(raw_reward_for_singletons(rewards, list(range(4))), entry["grouped_by_trajectory_uid"])
    close(raw_reward_for_singletons(rewards, lengths), entry["grouped_by_last_step_id_task_role_stepk"])


def test_flattened_step_group_statistics_over_rows_or_trajectories() -> None:
    entry = VECTORS["flattened_step_group"]
    steps = entry["steps"]
    rows = np.repeat(entry["traj_rewards"], steps)
    close([np.mean(entry["traj_rewards"]), rows.mean()], [entry["per_traj_mean"], entry["flat_mean"]])
    close([rows.std(), rows.std(ddof=1)], [entry["flat_std_pop"], entry["flat_std_sample"]])
    per_trajectory = group_normalize(entry["traj_rewards"], "aa", ddof=0)
    close(per_trajectory, entry["per_traj_adv_pop"])
    centred = group_normalize(entry["traj_rewards"], "aa", scale="none")
    close(np.repeat(centred, steps).sum(), entry["sum_trajstat_adv_over_steps"])
    for ddof, key in ((0, "flat_adv_pop"), (1, "flat_adv_sample")):
        flat = group_normalize(rows, ["a"] * len(rows), ddof=ddof)
        close(flat, np.repeat(entry[key], steps))
        close(flat.sum(), entry["sum_flat_adv"])


def test_rloo_and_its_identity() -> None:
    entry = VECTORS["rloo"]
    rewards = np.array(entry["rewards"])
    close(leave_one_out(rewards, "aaaa"), entry["adv"])
    close(len(rewards) / (len(rewards) - 1) * (rewards - rewards.mean()), entry["identity"])


def test_rloo_singleton_is_zero() -> None:
    """verl's two RLOO variants disagree here (PR 7581): the scalar one leaves the raw reward."""
    entry = VECTORS["rloo_singleton"]
    assert leave_one_out(entry["reward"], ["a"]).tolist() == [entry["verl_rloo_vectorized"]]
    assert entry["reward"][0] == entry["verl_rloo"]


def test_rloo_flattened_over_steps_is_not_leave_one_out() -> None:
    entry, steps = VECTORS["rloo_flattened"], VECTORS["flattened_step_group"]["steps"]
    close(leave_one_out([1.0, 0.0], "aa"), entry["correct_traj_level"])
    over_rows = leave_one_out(np.repeat([1.0, 0.0], steps), ["a"] * sum(steps))
    close(over_rows[[0, -1]], entry["per_step_formula"])


def test_batch_copy_padding_changes_statistics() -> None:
    """verl-agent pads a batch with copies before the advantage; ours pads with empty rows after it."""
    entry = VECTORS["batch_copy_padding"]
    before, after = np.array(entry["before"]), np.array(entry["after_random_copy"])
    close([before.mean(), after.mean()], [entry["mean"], entry["mean_after"]])
    advantages = group_normalize(before, "aaa", scale="none")
    close(advantages, before - entry["mean"])
    assert not np.allclose(group_normalize(after, "aaaa", scale="none")[:3], advantages)
    per_token = np.repeat(-advantages[:, None], 4, axis=1)
    mask = np.array([[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 0, 0]])
    padded = np.vstack([per_token, per_token[:1]]), np.vstack([mask, np.zeros((1, 4), int)])
    for mode in ("token-mean", "seq-mean-token-mean", "seq-mean-token-sum"):
        close(aggregate(*padded, mode), aggregate(per_token, mask, mode).item())


def test_rejected_row_baseline() -> None:
    entry = VECTORS["rejected_row_baseline"]
    rewards, valid = np.array(entry["rewards"]), np.array(entry["valid"], dtype=bool)
    close(group_normalize(rewards[valid], "aaa", scale="none"), entry["correct"])
    close(group_normalize(rewards, "aaaa", scale="none")[valid], entry["leaky"])


# Token-level advantages


def gae_without_mask(rewards: list[float], values: list[float], gamma: float, lam: float) -> np.ndarray:
    """verl-agent@796ed31: the recursion runs through padding and observation tokens."""
    advantages, following, running = np.zeros(len(values)), 0.0, 0.0
    for t in reversed(range(len(values))):
        running = rewards[t] + gamma * following - values[t] + gamma * lam * running
        following, advantages[t] = values[t], running
    return advantages


def test_gae_padding_does_not_leak() -> None:
    entry = VECTORS["gae_padding"]
    rewards, values, mask = entry["rewards"], entry["values"], entry["mask"]
    for lam, right, wrong in ((entry["lam"], "masked", "no_mask"), (0.95, "lam95_masked", "lam95_no_mask")):
        advantages, returns = gae(rewards, values, mask, gamma=entry["gamma"], lam=lam)
        close(advantages, entry[right])
        close(returns, np.where(mask, advantages + np.array(values), 0.0))
        close(gae_without_mask(rewards, values, entry["gamma"], lam), entry[wrong])


def test_gae_observation_tokens_are_bridged() -> None:
    entry = VECTORS["gae_observation_tokens"]
    mask = np.array(entry["mask"], dtype=bool)
    advantages, _ = gae(entry["rewards"], entry["values"], mask, gamma=entry["gamma"], lam=entry["lam"])
    close(advantages[mask], entry["masked"])
    assert not advantages[~mask].any()
    leaked = gae_without_mask(entry["rewards"], entry["values"], entry["gamma"], entry["lam"])
    close(leaked[mask], entry["no_mask"])


def test_masked_whiten_ignores_padding() -> None:
    entry = VECTORS["masked_whiten"]
    x = np.array(entry["x"])
    close(masked_whiten(x, entry["mask"]), [*entry["right"], 0.0])
    close(((x - x.mean()) / x.std(ddof=1))[:3], entry["wrong_with_padding"])


# StraTA


def test_strata_topdelta() -> None:
    entry = VECTORS["strata_topdelta"]
    close(strategy_reward(entry["R"], entry["delta"]), entry["R_z"])
    close(strategy_reward(entry["R"], 1.0), entry["delta_1_0"])
    close(strategy_reward(entry["R"], 0.1), entry["delta_0_1_ceil"])


def test_strata_length() -> None:
    entry = VECTORS["strata_length"]
    for n_tokens, penalty in entry["values"].items():
        close(length_penalty(int(n_tokens), entry["L"], entry["lam"]), penalty)


@pytest.mark.parametrize("case", VECTORS["strata_total"]["cases"])
def test_strata_total(case: dict[str, float]) -> None:
    setting = VECTORS["strata_length"]
    length = length_penalty(int(case["len"]), setting["L"], setting["lam"])
    close(total_reward(case["R"], length, case["fmt"], -case["kappa"] * case["judge"]), case["val"])


def test_strata_action_group_pools_rows_with_their_own_rewards() -> None:
    entry = VECTORS["strata_action_group"]
    rewards, groups = entry["step_rewards"], [(("iteration", 0), 1)] * 7
    close([np.mean(rewards), np.std(rewards)], [entry["mean"], entry["std_pop"]])
    close(np.std(rewards, ddof=1), entry["std_sample"])
    close(group_normalize(rewards, groups, ddof=0), entry["adv_pop"])
    close(group_normalize(rewards, groups), entry["adv_sample"])


def test_strata_strategy_group() -> None:
    entry = VECTORS["strata_strategy_group"]
    close(group_normalize(entry["R_z"], "aaaa", ddof=0), entry["adv_pop"])
    close(group_normalize(entry["R_z"], "aaaa"), entry["adv_sample"])


def test_strata_fps() -> None:
    entry = VECTORS["strata_fps"]
    unit = np.array(entry["embeddings_raw"], dtype=float)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    close(unit.mean(axis=0), entry["centroid"])
    close(unit @ unit.mean(axis=0), entry["cos_to_centroid"])
    assert farthest_point_selection(entry["embeddings_raw"], 3) == entry["selected"]


def test_strata_step_decay_default() -> None:
    entry = VECTORS["strata_step_decay_candidates"]["default"]
    close(step_decay(entry["t"], entry["H"]), entry["value"], atol=5e-8)


# Losses


def loss_at_ratio_one(advantages: list[float], lengths: list[int]) -> tuple[np.ndarray, np.ndarray]:
    mask = np.arange(max(lengths)) < np.array(lengths)[:, None]
    return np.repeat(-np.array(advantages)[:, None], max(lengths), axis=1), mask


def test_loss_agg_modes() -> None:
    entry = VECTORS["loss_agg"]
    per_token, mask = loss_at_ratio_one(entry["adv"], entry["lens"])
    close(aggregate(per_token, mask, "token-mean"), entry["token_mean"])
    close(aggregate(per_token, mask, "seq-mean-token-mean"), entry["seq_mean_token_mean"])
    close(aggregate(per_token, mask, "seq-mean-token-sum"), entry["seq_mean_token_sum"])
    close(aggregate(per_token, mask, "constant", constant=8), entry["dr_grpo_const"])


def test_loss_agg_microbatch_split() -> None:
    entry = VECTORS["loss_agg_microbatch"]
    per_token, mask = loss_at_ratio_one(VECTORS["loss_agg"]["adv"], VECTORS["loss_agg"]["lens"])
    weights = torch.as_tensor(row_weights("token-mean", mask.sum(axis=1)))
    ours = sum(float(weights[rows] @ row_means(per_token[rows], mask[rows])) for rows in entry["microbatches"])
    close(ours, entry["correct_global_token_mean"])
    own_means = [float(aggregate(per_token[rows], mask[rows], "token-mean")) for rows in entry["microbatches"]]
    close(np.mean(own_means), entry["naive_mean_of_token_means"])


def test_grad_accum_double_division() -> None:
    """ms-swift#10117: a loss that is normalised by the whole batch must not be divided by the micro-batches again."""
    entry = VECTORS["grad_accum_double_division"]
    per_token, mask = loss_at_ratio_one([-entry["loss"]] * entry["G"], [1, 2, 3, 4])
    weights = row_weights("token-mean", mask.sum(axis=1))
    parts = [weights[row] * float(row_means(per_token[[row]], mask[[row]])) for row in range(entry["G"])]
    close(sum(parts), entry["correct"])
    close(sum(part / entry["G"] for part in parts), entry["wrong_effective"])


@pytest.mark.parametrize("name", ["clip_pos_hi", "clip_neg_hi", "clip_pos_lo", "clip_neg_lo", "clip_neg_huge"])
def test_clip_cases(name: str) -> None:
    entry = VECTORS[name]
    logp = np.log([[entry["ratio"]]])
    clips = {"clip_low": entry["eps_low"], "clip_high": entry["eps_high"]}
    close(clipped_surrogate(logp, np.zeros((1, 1)), [[entry["A"]]], **clips), [[entry["loss"]]])
    dual = clipped_surrogate(logp, np.zeros((1, 1)), [[entry["A"]]], **clips, dual_clip=3.0)
    close(dual, [[entry["loss_dual_clip_c3"]]])


@pytest.mark.parametrize("kind", ["k1", "k2", "k3"])
def test_kl_values_and_gradients(kind: str) -> None:
    """As losses: k1 teaches nothing, k2 is the reverse KL, k3 the forward KL (verl PR 2953)."""
    entry = VECTORS["kl"]
    p, q = torch.tensor(entry["p"], dtype=torch.float64), torch.tensor(entry["q"], dtype=torch.float64)
    logits = p.log().requires_grad_()
    per_token = kl(torch.log_softmax(logits, dim=0), q.log(), kind)
    loss = (p * per_token).sum()  # the expectation over tokens of the current policy; sampling carries no gradient
    loss.backward()
    close(loss, entry[f"E_{kind}"])
    close(logits.grad, entry[f"grad_E_{kind}_as_loss"])


def test_kl_true_gradients_and_k3_per_token() -> None:
    entry = VECTORS["kl"]
    q = torch.tensor(entry["q"], dtype=torch.float64)
    logits = torch.tensor(entry["p"], dtype=torch.float64).log().requires_grad_()
    logp = torch.log_softmax(logits, dim=0)
    reverse, forward = (logp.exp() * (logp - q.log())).sum(), (q * (q.log() - logp)).sum()
    close(reverse, entry["exact_reverse_KL"])
    for divergence, key in ((reverse, "grad_true_reverse_KL"), (forward, "grad_forward_KL")):
        (gradient,) = torch.autograd.grad(divergence, logits, retain_graph=True)
        close(gradient, entry[key])
    close(kl(np.log(entry["p"]), np.log(entry["q"]), "k3"), entry["k3_per_token"])


def test_k3_clamp_is_not_ours() -> None:
    entry = VECTORS["k3_clamp"]
    close(kl(np.array([entry["logp"]]), np.array([entry["ref"]]), "k3"), [entry["value"]])
    logp = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    far = kl(logp, np.array([entry["rev_case_ref_minus_logp"]]), "k3")
    close(far, [np.exp(5.0) - 6.0])
    (gradient,) = torch.autograd.grad(far.sum(), logp, retain_graph=True)
    close(gradient, [1.0 - np.exp(5.0)])
    clamped = far.clamp(-10, 10)
    close(clamped, [entry["value2"]])
    (lost,) = torch.autograd.grad(clamped.sum(), logp)
    assert lost.item() == 0.0


def test_temperature_of_the_rollout_is_the_trainers() -> None:
    entry = VECTORS["temperature"]
    logits = np.repeat([entry["logits"]], 3, axis=0)
    at_t, at_1 = token_logprobs(logits, [0, 1, 2], entry["T"]), token_logprobs(logits, [0, 1, 2])
    close(at_t, entry["logp_T"])
    close(at_1, entry["logp_1"])
    close(torch.exp(at_1 - at_t), entry["wrong_ratio"])


# Masks


@pytest.mark.parametrize("shape", [lambda ids: ids, lambda ids: [ids, ids]])
def test_eos_mask_keeps_the_first_end(shape: Callable[[list[int]], Any]) -> None:
    entry = VECTORS["eos_mask"]
    tokens = np.array(entry["tokens"])
    assert response_mask(shape(entry["tokens"]), entry["eos"]).astype(int).tolist() == shape(entry["right_mask"])
    assert (tokens != entry["pad"]).astype(int).tolist() == entry["wrong_neq_pad"]
    assert np.ones_like(tokens).tolist() == entry["wrong_all"]


def test_stepwise_broadcast_mask() -> None:
    """SkyRL#1492: the advantage goes to every step under that step's own mask, not the last step's masked row."""
    entry = VECTORS["stepwise_broadcast_mask"]
    last, earlier = np.array(entry["last_step_mask"]), np.array(entry["earlier_step_mask"])
    zeros = np.zeros((2, 4))
    loss = clipped_surrogate(zeros, zeros, [entry["traj_advantage"]] * 2, clip_low=0.2, clip_high=0.28)
    close(-loss[0].numpy() * earlier, entry["correct"])
    copied = entry["traj_advantage"] * last
    close(copied, entry["wrong_copy_of_rows"])
    close(copied * earlier, entry["effective_wrong_after_mask"])
