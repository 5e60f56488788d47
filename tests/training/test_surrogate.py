"""The loss of an update against the same sums written out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from harness.model import MicroBatch, TrainingRow
from harness.training.surrogate import SurrogateLoss

OLD = [[-1.0, -2.0, -0.5], [-0.7, -0.1, 0.0]]
NEW = [[-0.5, -2.6, -0.5], [-1.2, -0.1, 0.0]]
REF = [[-0.9, -2.0, -0.8], [-1.0, -0.3, 0.0]]
MASK = [[1.0, 1.0, 1.0], [1.0, 1.0, 0.0]]
ENTROPY = [[1.0, 0.5, 0.2], [0.3, 0.4, 9.0]]
ADVANTAGE = [2.0, -1.5]
WEIGHT = [0.25, 0.75]


def batch() -> MicroBatch:
    rows = [TrainingRow((1,), (2, 3, 4)), TrainingRow((1,), (5, 6))]
    arrays = {
        "old_logp": torch.tensor(OLD),
        "advantages": torch.tensor([[a] * 3 for a in ADVANTAGE]),
        "ref_logp": torch.tensor(REF),
    }
    return MicroBatch(rows, torch.tensor(MASK), torch.tensor(WEIGHT), arrays)


def by_hand(loss: SurrogateLoss) -> float:
    total = 0.0
    for row in range(2):
        tokens = []
        for t in range(3):
            if not MASK[row][t]:
                continue
            rho, a = math.exp(NEW[row][t] - OLD[row][t]), ADVANTAGE[row]
            clipped = min(max(rho, 1 - loss.clip_low), 1 + loss.clip_high)
            value = -min(rho * a, clipped * a)
            if loss.dual_clip is not None and a < 0:
                value = min(value, -loss.dual_clip * a)
            d = NEW[row][t] - REF[row][t]
            kl = {"k1": d, "k2": d * d / 2, "k3": math.exp(-d) - 1 + d}[loss.kl_kind]
            tokens.append(value + loss.kl_beta * kl - loss.entropy * ENTROPY[row][t])
        total += WEIGHT[row] * sum(tokens) / len(tokens)
    return total


@pytest.mark.parametrize(
    "loss",
    [
        SurrogateLoss(0.2, 0.28),
        SurrogateLoss(0.2, 0.28, dual_clip=1.01),
        SurrogateLoss(0.2, 0.28, kl_beta=0.1),
        SurrogateLoss(0.2, 0.28, kl_beta=0.1, kl_kind="k1"),
        SurrogateLoss(0.2, 0.28, kl_beta=0.1, kl_kind="k2", entropy=0.05),
        SurrogateLoss(0.9, 9.0, entropy=0.05),
    ],
    ids=str,
)
def test_the_loss_of_two_rows_is_what_the_equations_say(loss):
    output = loss(torch.tensor(NEW, requires_grad=True), torch.tensor(ENTROPY), batch())
    assert float(output.loss.detach()) == pytest.approx(by_hand(loss), rel=1e-6)


def test_the_gradient_is_that_of_the_loss():
    """Central differences of the sum by hand; no token of this example stands on a kink."""
    loss = SurrogateLoss(0.2, 0.28, kl_beta=0.1, entropy=0.0)
    new = torch.tensor(NEW, dtype=torch.float64, requires_grad=True)
    loss(new, torch.tensor(ENTROPY), batch()).loss.backward()
    for row in range(2):
        for t in range(3):
            plain, step = NEW[row][t], 1e-5
            values = []
            for moved in (plain + step, plain - step):
                NEW[row][t] = moved
                values.append(by_hand(loss))
            NEW[row][t] = plain
            assert float(new.grad[row, t]) == pytest.approx((values[0] - values[1]) / (2 * step), abs=1e-6)


def test_reported_sums_leave_padding_out():
    metrics = SurrogateLoss(0.2, 0.28, kl_beta=0.1)(torch.tensor(NEW), torch.tensor(ENTROPY), batch()).metrics
    ratios = np.exp(np.array(NEW) - OLD)
    inside = np.array(MASK) == 1
    assert metrics["tokens"] == 5
    assert metrics["update_entropy"] == pytest.approx(2.4)
    assert metrics["ratio"] == pytest.approx(ratios[inside].sum())
    assert metrics["ratio_max"] == pytest.approx(ratios[inside].max())
    assert metrics["approx_kl"] == pytest.approx((ratios - 1 - np.log(ratios))[inside].sum())
    assert metrics["clip_fraction"] == 2, "the first token of each row is beyond its clip"
    assert metrics["kl"] > 0
    assert "kl" not in SurrogateLoss(0.2, 0.28)(torch.tensor(NEW), torch.tensor(ENTROPY), batch()).metrics


def test_a_token_without_an_advantage_has_no_gradient_that_a_clip_could_take():
    """A KL term moves it all the same: below 1 - clip_low it would count as clipped."""
    flat = batch()
    flat.arrays["advantages"][1] = 0.0
    loss = SurrogateLoss(0.2, 0.28, kl_beta=0.1)
    assert math.exp(NEW[1][0] - OLD[1][0]) < 1 - loss.clip_low
    metrics = loss(torch.tensor(NEW), torch.tensor(ENTROPY), flat).metrics
    assert metrics["clip_fraction"] == 1, "the first token of the other row"


def test_what_counts_as_clipped_has_no_gradient_and_all_else_has():
    new = torch.tensor(NEW, requires_grad=True)
    loss = SurrogateLoss(0.2, 0.28)(new, torch.tensor(ENTROPY), batch())
    loss.loss.backward()
    assert int(((new.grad == 0) & (torch.tensor(MASK) == 1)).sum()) == loss.metrics["clip_fraction"] == 2


def test_a_clamp_bounds_the_kl_term_and_stops_its_gradient_there():
    """verl clamps k3 to [-10, 10]; here to a bound that two of the five tokens exceed."""
    plain, clamped = (SurrogateLoss(0.2, 0.28, kl_beta=0.1, kl_kind="k2", kl_clamp=c) for c in (None, 0.04))
    values = [float(loss(torch.tensor(NEW), torch.tensor(ENTROPY), batch()).metrics["kl"]) for loss in (plain, clamped)]
    squares = ((np.array(NEW) - REF) ** 2 / 2)[np.array(MASK) == 1]
    assert values == pytest.approx([squares.sum(), np.minimum(squares, 0.04).sum()])
    assert (squares > 0.04).sum() == 3
    new = torch.tensor(NEW, requires_grad=True)
    still = SurrogateLoss(0.9, 9.0, kl_beta=0.1, kl_kind="k2", kl_clamp=0.04)
    zero = batch()
    zero.arrays["advantages"].zero_()
    still(new, torch.tensor(ENTROPY), zero).loss.backward()
    assert ((new.grad != 0).numpy() == ((np.array(NEW) - REF) ** 2 / 2 <= 0.04) & (np.array(MASK) == 1)).all()


def test_a_ratio_beyond_the_limit_is_an_error():
    largest = float(np.exp(np.array(NEW) - OLD).max())
    SurrogateLoss(0.2, 0.28, ratio_limit=largest + 0.01)(torch.tensor(NEW), torch.tensor(ENTROPY), batch())
    with pytest.raises(FloatingPointError, match=r"ratio of 1\.649 exceeds ratio_limit=1\.6"):
        SurrogateLoss(0.2, 0.28, ratio_limit=1.6)(torch.tensor(NEW), torch.tensor(ENTROPY), batch())
