"""Known faults in what a token's loss is and how tokens add up, items 8 to 11 of the list in PAPERS.md.

Everything goes through the loss that a method hands to its model, on the micro-batches that it hands with it.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from baselines.grpo import GRPO
from harness.experience import Experience
from harness.model import MicroBatch, TrainingRow
from harness.training.surrogate import SurrogateLoss
from methods.strata.method import StraTA
from tests.models.tiny import tiny
from tests.training.rollouts import Spy, learn, method, written

VECTORS: dict[str, Any] = json.loads((Path(__file__).parents[1] / "vectors" / "rl.json").read_text())
RESPONSES = ([3, 1], [4, 5, 6, 7, 8, 1])
"""Two and six tokens, the lengths of the vectors."""


def close(actual: Any, expected: Any, atol: float = 2e-6) -> None:
    """Numbers that went through a network in float32."""
    values = actual.detach().numpy() if isinstance(actual, torch.Tensor) else actual
    np.testing.assert_allclose(values, expected, rtol=1e-6, atol=atol)


def update(monkeypatch: pytest.MonkeyPatch, kind: Any = GRPO, **options: Any) -> Any:
    """What is asked of the model for two rows of advantages 1 and -1, at ratio 1."""
    model = tiny()
    learner = method(kind, model, scale="none", **options)
    spy = Spy().watch(model, monkeypatch)
    seen = written(model, RESPONSES, [1.0, -1.0])
    assert learner.advantages(seen).tolist() == [1.0, -1.0]
    learn(learner, seen)
    (made,) = spy.updates
    return made


def one_token(ratio: float, advantage: float) -> tuple[torch.Tensor, MicroBatch]:
    """A response of one token that the policy has made `ratio` times as likely since."""
    arrays = {"old_logp": torch.tensor([[-3.0]]), "advantages": torch.tensor([[advantage]])}
    batch = MicroBatch([TrainingRow((1,), (2,))], torch.ones(1, 1), torch.ones(1), arrays)
    return torch.tensor([[-3.0 + float(np.log(ratio))]]), batch


def surrogate(monkeypatch: pytest.MonkeyPatch, ratio: float, advantage: float, **options: Any) -> float:
    """The loss of one token under the loss object of a method with these options."""
    logp, batch = one_token(ratio, advantage)
    with monkeypatch.context() as patch:
        made = update(patch, **options).loss
    return float(made(logp, torch.zeros(1, 1), batch).loss)


# -- 8: the mask that an advantage comes with ---------------------------------------------------------------------


def test_item_8_each_step_carries_the_advantage_under_its_own_mask(monkeypatch):
    """SkyRL#1492 copies the masked row of the last step: of a longer earlier step only as many tokens learn."""
    entry = VECTORS["stepwise_broadcast_mask"]
    copied = entry["traj_advantage"] * np.array(entry["last_step_mask"])
    close(copied, entry["wrong_copy_of_rows"])
    close(copied * entry["earlier_step_mask"], entry["effective_wrong_after_mask"])
    close(entry["traj_advantage"] * np.array(entry["earlier_step_mask"]), entry["correct"])
    model = tiny()
    learner, spy = method(GRPO, model, scale="none"), Spy().watch(model, monkeypatch)
    three = written(model, [[4, 5, 6, 1], [3, 1], [7, 8, 1]], [1.4, 1.4, 0.0])
    keys = (three.trajectories[0], three.trajectories[0], three.trajectories[2])  # an earlier step and the last one
    rows = [replace(row, trajectory=key) for row, key in zip(three.rows, keys, strict=True)]
    two = Experience(tuple(rows), (keys[0], keys[2]), np.array([1.4, 0.0]), three.groups[:2])
    learn(learner, two)
    carried = {}
    for batch in spy.updates[0].batches:
        for row, line, mask in zip(batch.rows, batch.arrays["advantages"], batch.mask, strict=True):
            carried[row.ids] = line[mask == 1].tolist()
    close(carried[4, 5, 6, 1], [0.7] * 4)
    close(carried[3, 1], [0.7] * 2)


# -- 9: how tokens add up -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [GRPO, StraTA])
@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"aggregation": "token-mean"}, "token_mean"),
        ({"aggregation": "seq-mean-token-mean"}, "seq_mean_token_mean"),
        ({"aggregation": "trajectory-mean"}, "seq_mean_token_mean"),
        ({"aggregation": "seq-mean-token-sum"}, "seq_mean_token_sum"),
        ({"aggregation": "constant", "constant": 8.0}, "dr_grpo_const"),
    ],
)
def test_item_9_the_aggregation_is_an_option_with_each_published_value(monkeypatch, kind, options, key):
    """A convention, of every method; with one row a trajectory, the mean over trajectories is that over rows."""
    more = {"diversity": False} if kind is StraTA else {}
    close(update(monkeypatch, kind, **options, **more).stats.loss, VECTORS["loss_agg"][key])


@pytest.mark.parametrize("tokens", [1, 16384])
def test_item_9_the_split_into_micro_batches_moves_nothing(monkeypatch, tokens):
    """Each micro-batch's own mean, averaged: 0 in place of 0.5 (trl#3021)."""
    entry = VECTORS["loss_agg_microbatch"]
    made = update(monkeypatch, aggregation="token-mean", micro_batch_tokens=tokens)
    assert len(made.batches) == (len(entry["microbatches"]) if tokens == 1 else 1)
    close(made.stats.loss, entry["correct_global_token_mean"])
    if tokens == 1:
        own = [-float((b.arrays["advantages"] * b.mask).sum() / b.mask.sum()) for b in made.batches]
        close(np.mean(own), entry["naive_mean_of_token_means"])


def test_item_9_nothing_is_divided_by_the_micro_batches_again(monkeypatch):
    """ms-swift#10117: four micro-batches of a loss of 2 must give 2, not 2 / 4."""
    entry = VECTORS["grad_accum_double_division"]
    model = tiny()
    learner = method(GRPO, model, scale="none", micro_batch_tokens=1, aggregation="token-mean")
    monkeypatch.setattr(GRPO, "advantages", lambda self, e: np.full(len(e.rows), -entry["loss"]))
    spy = Spy().watch(model, monkeypatch)
    learn(learner, written(model, [[3, 1], [4, 1], [5, 1], [6, 1]], [1.0, 0.0, 1.0, 0.0]))
    (made,) = spy.updates
    assert len(made.batches) == entry["G"]
    close(made.stats.loss, entry["correct"])
    close(made.stats.loss / len(made.batches), entry["wrong_effective"])
    assert sum(float(batch.weights.sum()) for batch in made.batches) == pytest.approx(1.0)


# -- 10: clipping -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["clip_pos_hi", "clip_neg_hi", "clip_pos_lo", "clip_neg_lo", "clip_neg_huge"])
def test_item_10_clip_higher_and_dual_clip_are_options(monkeypatch, name):
    entry = VECTORS[name]
    options = {"clip_low": entry["eps_low"], "clip_high": entry["eps_high"]}
    close(surrogate(monkeypatch, entry["ratio"], entry["A"], **options), entry["loss"])
    close(surrogate(monkeypatch, entry["ratio"], entry["A"], **options, dual_clip=3.0), entry["loss_dual_clip_c3"])


def test_item_10_the_defaults_are_clip_higher_without_dual_clip(monkeypatch):
    """Table 7 has 0.2 and 0.28; one bound for both sides, or verl's silent dual clip, give other numbers."""
    high, huge = VECTORS["clip_pos_hi"], VECTORS["clip_neg_huge"]
    close(surrogate(monkeypatch, high["ratio"], high["A"]), high["loss"])
    close(surrogate(monkeypatch, high["ratio"], high["A"], clip_high=0.2), -1.2)
    close(surrogate(monkeypatch, huge["ratio"], huge["A"]), huge["loss"])


# -- 11: the KL term ----------------------------------------------------------------------------------------------


def divergence(loss: SurrogateLoss) -> tuple[torch.Tensor, torch.Tensor]:
    """Expected loss and its gradient in the logits: one row per token, weighted as the policy samples it."""
    entry = VECTORS["kl"]
    p, q = (torch.tensor(entry[name], dtype=torch.float64) for name in "pq")
    logits = p.log().requires_grad_()
    logp = torch.log_softmax(logits, dim=0)[:, None]
    arrays = {"old_logp": logp.detach(), "advantages": torch.zeros(3, 1), "ref_logp": q.log()[:, None]}
    rows = [TrainingRow((9,), (token,)) for token in range(3)]
    batch = MicroBatch(rows, torch.ones(3, 1), p, arrays)
    total = loss(logp, torch.zeros(3, 1), batch).loss
    total.backward()
    return total, logits.grad


@pytest.mark.parametrize("kind", ["k1", "k2", "k3"])
def test_item_11_the_kind_of_kl_is_an_option_with_three_values_and_gradients(monkeypatch, kind):
    """A convention, though k1 as a loss teaches nothing on average: value and gradient of each are stated."""
    entry = VECTORS["kl"]
    value, gradient = divergence(update(monkeypatch, kl_beta=1.0, kl_kind=kind).loss)
    close(value, entry[f"E_{kind}"], 2e-8)
    close(gradient, entry[f"grad_E_{kind}_as_loss"], 2e-8)
    true = {"k2": "grad_true_reverse_KL", "k3": "grad_forward_KL"}
    if kind in true:
        close(gradient, entry[true[kind]], 2e-8)
    else:
        assert np.abs(entry["grad_true_reverse_KL"]).max() > 0.1


@pytest.mark.parametrize("clamp", [None, 10.0])
def test_item_11_the_clamp_of_k3_is_an_option_and_off(monkeypatch, clamp):
    """verl cuts k3 at 10, whose gradient vanishes where the policy has strayed the furthest."""
    entry = VECTORS["k3_clamp"]
    loss = update(monkeypatch, kl_beta=1.0, kl_clamp=clamp).loss

    def at(logp: float, ref: float) -> tuple[float, float]:
        current = torch.tensor([[logp]], dtype=torch.float64, requires_grad=True)
        arrays = {"old_logp": current.detach(), "advantages": torch.zeros(1, 1), "ref_logp": torch.tensor([[ref]])}
        batch = MicroBatch([TrainingRow((1,), (2,))], torch.ones(1, 1), torch.ones(1), arrays)
        value = loss(current, torch.zeros(1, 1), batch).loss
        value.backward()
        return float(value.detach()), float(current.grad)

    close(at(entry["logp"], entry["ref"])[0], entry["value"])
    far = entry["rev_case_ref_minus_logp"]
    close(at(-6.0, -6.0 + far), (entry["value2"], 0.0) if clamp else (np.exp(far) - 1 - far, 1 - np.exp(far)), 1e-4)


def test_item_11_the_kl_term_is_averaged_with_the_mask_and_weights_of_the_loss():
    """A plain mean over the rectangle counts padding as agreement: 7 of 12 tokens here (open-instruct PR 535)."""
    rows = [TrainingRow((1,), (2,) * n) for n in (6, 1)]
    mask = torch.tensor([[1.0] * 6, [1.0] + [0.0] * 5])
    logp, ref = -torch.ones(2, 6) * mask, -1.5 * torch.ones(2, 6) * mask
    arrays = {"old_logp": logp, "advantages": torch.zeros(2, 6), "ref_logp": ref}
    each = float(np.expm1(-0.5) + 0.5)
    faulty = float((torch.expm1(ref - logp) - (ref - logp)).mean())
    close(faulty, each * 7 / 12)
    batch = MicroBatch(rows, mask, torch.tensor([0.5, 0.5]), arrays)
    made = SurrogateLoss(0.2, 0.28, kl_beta=1.0)(logp, torch.zeros(2, 6), batch)
    close(made.loss, each)
    close(made.metrics["kl"] / made.metrics["tokens"], each)
