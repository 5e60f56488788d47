"""Properties of the losses: above all that a mini-batch may be cut into micro-batches anywhere."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.training.losses import MODES, aggregate, clipped_surrogate, kl, row_means, row_weights, token_logprobs

QUICK = settings(max_examples=40, deadline=None)
CLIPS = {"clip_low": 0.2, "clip_high": 0.28}


@st.composite
def mini_batches(draw: st.DrawFn) -> tuple[torch.Tensor, torch.Tensor, list[Any], list[int]]:
    """Losses [rows, T], a mask with at least one token, a trajectory per row, and the places of the cuts."""
    rows, width = draw(st.integers(1, 6)), draw(st.integers(1, 5))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    mask = rng.random((rows, width)) < 0.7
    mask[rng.integers(rows), rng.integers(width)] = True
    trajectories = [("t", int(i)) for i in rng.integers(0, 3, rows)]
    cuts = sorted(draw(st.sets(st.integers(1, rows - 1), max_size=3))) if rows > 1 else []
    return torch.tensor(rng.normal(size=(rows, width))), torch.tensor(mask), trajectories, cuts


@pytest.mark.parametrize("mode", MODES)
@QUICK
@given(batch=mini_batches())
def test_micro_batches_add_up_to_the_mini_batch(mode: str, batch: Any) -> None:
    """Values and gradients; each micro-batch is cut to its longest row, as a packer does."""
    logp, mask, trajectories, cuts = batch
    options = {"constant": 8.0, "trajectories": trajectories}
    whole = logp.clone().requires_grad_()
    loss = aggregate(whole.exp(), mask, mode, **options)
    loss.backward()
    parts = logp.clone().requires_grad_()
    weights = torch.as_tensor(row_weights(mode, mask.sum(dim=1), **options))
    total = 0.0
    for start, stop in zip([0, *cuts], [*cuts, len(logp)], strict=True):
        rows = slice(start, stop)
        width = int(mask[rows].any(dim=0).nonzero().max()) + 1 if mask[rows].any() else 1
        part = (weights[rows] * row_means(parts[rows, :width].exp(), mask[rows, :width])).sum()
        part.backward()
        total += part.item()
    assert total == pytest.approx(loss.item(), abs=1e-12)
    torch.testing.assert_close(parts.grad, whole.grad, rtol=0, atol=1e-12)


@pytest.mark.parametrize("mode", MODES)
@QUICK
@given(batch=mini_batches())
def test_padding_is_invisible(mode: str, batch: Any) -> None:
    """More columns, more empty rows, nan outside the mask: same loss, finite gradient."""
    losses, mask, trajectories, _ = batch
    expected = aggregate(losses, mask, mode, constant=8.0, trajectories=trajectories)
    rows, width = losses.shape
    padded = torch.full((rows + 2, width + 3), float("nan"), dtype=losses.dtype)
    padded[:rows, :width] = torch.where(mask, losses, torch.nan)
    padded_mask = torch.zeros(padded.shape, dtype=torch.long)
    padded_mask[:rows, :width] = mask
    padded.requires_grad_()
    more = [*trajectories, trajectories[0], "padding"]
    actual = aggregate(padded, padded_mask, mode, constant=8.0, trajectories=more)
    actual.backward()
    assert actual.item() == pytest.approx(expected.item(), abs=1e-12)
    assert torch.isfinite(padded.grad).all()


@QUICK
@given(batch=mini_batches())
def test_each_mode_is_what_its_name_says(batch: Any) -> None:
    losses, mask, trajectories, _ = batch
    rows = [(row[keep], key) for row, keep, key in zip(losses, mask, trajectories, strict=True) if keep.any()]
    by_trajectory: dict[Any, list[float]] = {}
    for row, key in rows:
        by_trajectory.setdefault(key, []).append(row.mean().item())
    sums = [row.sum().item() for row, _ in rows]
    expected = {
        "token-mean": losses[mask].mean().item(),
        "seq-mean-token-mean": np.mean([row.mean().item() for row, _ in rows]),
        "seq-mean-token-sum": np.mean(sums),
        "constant": sum(sums) / (len(rows) * 8.0),
        "trajectory-mean": np.mean([np.mean(means) for means in by_trajectory.values()]),
    }
    for mode in MODES:
        actual = aggregate(losses.numpy(), mask.numpy(), mode, constant=8.0, trajectories=trajectories)
        assert actual.item() == pytest.approx(expected[mode], abs=1e-12)


@QUICK
@given(batch=mini_batches())
def test_weights_of_the_mean_modes_sum_to_one(batch: Any) -> None:
    _, mask, trajectories, _ = batch
    for mode in ("token-mean", "seq-mean-token-mean", "trajectory-mean"):
        weights = row_weights(mode, mask.sum(dim=1), trajectories=trajectories)
        assert weights.dtype == np.float64
        assert weights.sum() == pytest.approx(1)


def test_trajectory_mean_differs_from_row_mean() -> None:
    """One long and one short trajectory: by rows the long one weighs three times as much."""
    losses, mask = torch.tensor([[1.0], [1.0], [1.0], [0.0]]), torch.ones(4, 1)
    assert aggregate(losses, mask, "trajectory-mean", trajectories="aaab").item() == 0.5
    assert aggregate(losses, mask, "seq-mean-token-mean").item() == 0.75


def test_clipping_stops_the_gradient_only_where_it_has_gone_far_enough() -> None:
    """Columns: ratio 1.5, 1, 0.5. A good action is not pushed up any further, a bad one not further down."""
    logp = torch.log(torch.tensor([[1.5, 1.0, 0.5]] * 2, dtype=torch.float64)).requires_grad_()
    clipped_surrogate(logp, np.zeros((2, 3)), [1.0, -1.0], **CLIPS).sum().backward()
    torch.testing.assert_close(logp.grad, torch.tensor([[0.0, -1.0, -0.5], [1.5, 1.0, 0.0]], dtype=torch.float64))


def test_first_update_is_the_policy_gradient() -> None:
    logp = torch.zeros(2, 3, requires_grad=True)
    clipped_surrogate(logp, logp, [2.0, -3.0], **CLIPS).sum().backward()
    assert logp.grad.tolist() == [[-2.0] * 3, [3.0] * 3]


def test_advantages_are_per_row_even_when_the_batch_is_square() -> None:
    """[rows] against [rows, T] broadcasts along T when rows equals T; each token would get another row's advantage."""
    zeros = torch.zeros(2, 2)
    expected = [[-1.0, -1.0], [2.0, 2.0]]
    for advantages in ([1.0, -2.0], [[1.0], [-2.0]], np.array([[1.0, 1.0], [-2.0, -2.0]])):
        assert clipped_surrogate(zeros, zeros, advantages, **CLIPS).tolist() == expected


@pytest.mark.parametrize("kind", ["k1", "k2", "k3"])
def test_kl_is_zero_at_the_reference_and_constant_in_it(kind: str) -> None:
    ref = torch.tensor([-0.3, -2.0], requires_grad=True)
    logp = ref.detach().clone().requires_grad_()
    estimate = kl(logp, ref, kind)
    estimate.sum().backward()
    assert estimate.tolist() == [0.0, 0.0]
    assert ref.grad is None
    assert kl(ref.detach() + 0.1, ref, kind).min() > 0


def test_k3_keeps_its_digits_for_close_policies() -> None:
    """exp(-d) - 1 in float32 rounds to multiples of 6e-8 and k3 would come out negative or zero."""
    estimate = kl(torch.tensor([1e-3]), torch.tensor([0.0]), "k3")
    assert estimate.item() == pytest.approx(5e-7, rel=1e-2)


def test_half_precision_is_computed_in_float32() -> None:
    logits = torch.randn(4, 50, generator=torch.Generator().manual_seed(0), dtype=torch.float32).to(torch.bfloat16)
    ids = torch.tensor([0, 7, 49, 3])
    logprobs = token_logprobs(logits, ids, 0.7)
    assert logprobs.dtype == torch.float32
    exact = torch.log_softmax(logits.double() / 0.7, dim=-1)[torch.arange(4), ids]
    torch.testing.assert_close(logprobs.double(), exact, rtol=0, atol=1e-6)
    assert aggregate(torch.ones(2, 2, dtype=torch.bfloat16), torch.ones(2, 2), "token-mean").dtype == torch.float32


ZEROS = np.zeros((2, 2))
ONES = np.ones((2, 2))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: aggregate(ZEROS, ONES, "mean"), "unknown mode 'mean'; choose one of token-mean"),
        (lambda: aggregate(ZEROS, ONES, "constant"), "constant is None"),
        (lambda: aggregate(ZEROS, ONES, "constant", constant=0), "constant is 0"),
        (lambda: aggregate(ZEROS, ONES, "trajectory-mean"), "needs trajectories="),
        (lambda: aggregate(ZEROS, ONES, "trajectory-mean", trajectories="a"), "2 rows but 1 trajectory keys"),
        (lambda: aggregate(ZEROS, np.ones((2, 3)), "token-mean"), "both must be"),
        (lambda: aggregate(ZEROS[0], ONES[0], "token-mean"), "both must be"),
        (lambda: aggregate(ZEROS, ONES / 2, "token-mean"), "other numbers than 0 and 1"),
        (lambda: aggregate(ZEROS, ZEROS, "token-mean"), "none of the 2 rows has a token"),
        (lambda: row_weights("token-mean", [[1]]), "mask_lengths are"),
        (lambda: clipped_surrogate(ZEROS, ZEROS[:1], ZEROS, **CLIPS), "old_logp has shape"),
        (lambda: clipped_surrogate(ZEROS, ZEROS, [1.0, 2.0, 3.0], **CLIPS), "advantages have shape"),
        (lambda: clipped_surrogate(ZEROS, ZEROS, ZEROS, clip_low=1.2, clip_high=0.2), "clip_low is 1.2"),
        (lambda: clipped_surrogate(ZEROS, ZEROS, ZEROS, clip_low=0.2, clip_high=-1), "clip_high is -1"),
        (lambda: clipped_surrogate(ZEROS, ZEROS, ZEROS, **CLIPS, dual_clip=0.5), "dual_clip is 0.5"),
        (lambda: kl(ZEROS, ZEROS, "k4"), "unknown KL kind 'k4'"),
        (lambda: kl(ZEROS, ZEROS[0], "k1"), "ref_logp has shape"),
        (lambda: token_logprobs(ZEROS, [0, 0], 0.0), "temperature is 0.0"),
        (lambda: token_logprobs(ZEROS, [0], 1.0), "logits have shape"),
    ],
)
def test_refusals_name_the_thing(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
