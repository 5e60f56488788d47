"""A critic on a copy of a policy's network: values, training, files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from harness.model import LossOutput, MicroBatch, OptimizerConfig, TrainingRow, UnsupportedOption
from harness.models.value import TransformersValue
from harness.training.losses import row_means
from harness.training.packing import micro_batches
from tests.conformance.faulty_models import Bandit
from tests.models.tiny import advantages, reinforce, sampled_rows, tiny

RATE = OptimizerConfig(lr=1e-2)


def squared(values: torch.Tensor, batch: MicroBatch) -> LossOutput:
    """Squared error against the array `advantages`, and the number of tokens as a metric."""
    error = (values - batch.arrays["advantages"]).square()
    return LossOutput((row_means(error, batch.mask) * batch.weights).sum(), {"tokens": float(batch.mask.sum())})


def split(rows: list[TrainingRow], max_tokens: int) -> list[MicroBatch]:
    weights = np.linspace(1, 2, len(rows))
    arrays = {"advantages": advantages(rows)}
    return micro_batches(rows, weights / weights.sum(), arrays, max_tokens=max_tokens, max_padding=1.0)


def taught(rows: list[TrainingRow], steps: int = 3) -> TransformersValue:
    """A critic whose values differ from token to token."""
    critic = tiny().with_value_head()
    critic.configure(RATE)
    for _ in range(steps):
        critic.update(squared, split(rows, 10_000))
    return critic


def test_values_start_at_zero_and_draw_no_random_numbers() -> None:
    torch.manual_seed(0)
    before = torch.random.get_rng_state()
    critic = tiny().with_value_head()
    assert torch.equal(torch.random.get_rng_state(), before)
    rows = sampled_rows(tiny(), 5)
    for row, values in zip(rows, critic.values(rows), strict=True):
        assert values.tolist() == [0.0] * len(row.ids)
        assert values.dtype == np.float32
    assert critic.values([]) == []


def test_a_value_is_that_of_the_state_before_its_token() -> None:
    """A plain pass without padding: the hidden state of the place that predicts the token."""
    rows = sampled_rows(tiny(), 8)
    critic = taught(rows)
    for row, values in zip(rows, critic.values(rows), strict=True):
        with torch.no_grad():
            hidden = critic.network.body(input_ids=torch.tensor([row.prompt_ids + row.ids])).last_hidden_state[0]
            expected = hidden @ critic.network.weight + critic.network.bias
        assert np.allclose(values, expected[len(row.prompt_ids) - 1 : -1], atol=1e-5)
        changed = TrainingRow(row.prompt_ids, (*row.ids[:-1], 9))
        assert np.allclose(critic.values([changed])[0], values, atol=1e-6), "the last token is not seen by its value"


def test_values_do_not_depend_on_company_or_order() -> None:
    rows = sampled_rows(tiny(), 20)
    critic = taught(rows)
    together = critic.values(rows)
    for first, second in zip(together, critic.values(rows[::-1], batch_tokens=40)[::-1], strict=True):
        assert np.allclose(first, second, atol=1e-5)
    assert np.concatenate(together).std() > 0.01, "they differ at all"


def test_the_loss_sees_the_layout_of_its_micro_batch() -> None:
    rows = sampled_rows(tiny(), 10)
    critic = taught(rows)
    expected = dict(zip(rows, critic.values(rows), strict=True))

    def check(values: torch.Tensor, batch: MicroBatch) -> LossOutput:
        assert values.shape == batch.mask.shape
        for row, line in zip(batch.rows, values, strict=True):
            assert np.allclose(line[: len(row.ids)].detach().numpy(), expected[row], atol=1e-5)
            assert not line[len(row.ids) :].any()
        return squared(values, batch)

    critic.update(check, split(rows, 10_000))


def test_the_split_into_micro_batches_changes_nothing() -> None:
    rows = sampled_rows(tiny(), 16)
    found = []
    for max_tokens in (10_000, 60, 1):
        critic = taught(rows, steps=1)  # past the first step, whose gradient reaches the head alone
        batches = split(rows, max_tokens)
        stats = critic.update(squared, batches)
        found.append((len(batches), [p.grad.clone() for p in critic.network.parameters()], stats))
    assert [count for count, _, _ in found] == [1, found[1][0], 16]
    assert all(gradient.any() for gradient in found[0][1]), "the whole network is trained"
    for _, gradients, stats in found[1:]:
        for mine, whole in zip(gradients, found[0][1], strict=True):
            assert torch.allclose(mine, whole, atol=1e-6)
        assert stats.loss == pytest.approx(found[0][2].loss, abs=1e-5)
        assert stats.grad_norm == pytest.approx(found[0][2].grad_norm, abs=1e-5)
        assert stats.metrics == found[0][2].metrics == {"tokens": sum(len(row.ids) for row in rows)}


def test_policy_and_critic_train_apart() -> None:
    model = tiny()
    rows = sampled_rows(model, 6)
    model.configure(RATE)
    critic = model.with_value_head()
    critic.configure(RATE)
    policy, worth = model.digest, critic.digest
    critic.update(squared, split(rows, 1000))
    assert (model.digest, model.version, critic.version) == (policy, 0, 1)
    assert critic.digest != worth
    worth = critic.digest
    model.update(reinforce, split(rows, 1000), temperature=1.0)
    assert critic.digest == worth


def test_a_critic_of_a_frozen_or_half_precision_policy_trains_in_float32() -> None:
    rows = sampled_rows(tiny(), 4)
    for critic in (
        tiny().frozen_copy().with_value_head(),
        TransformersValue(tiny().network.to(torch.bfloat16), name="half"),
    ):
        critic.configure(RATE)
        for _ in range(2):
            critic.update(squared, split(rows, 1000))
        assert {p.dtype for p in critic.network.parameters()} == {torch.float32}
        assert all(p.grad is not None and p.grad.any() for p in critic.network.parameters())


def test_training_goes_on_bit_for_bit_after_loading(tmp_path: Path) -> None:
    rows = sampled_rows(tiny(), 10)
    critic = taught(rows, steps=2)
    critic.save(tmp_path)
    other = tiny(seed=5).with_value_head()
    other.load(tmp_path)
    assert other.digest == critic.digest
    for each in (critic, other):
        for _ in range(2):
            each.update(squared, split(rows, 200))
    assert other.digest == critic.digest
    assert other.version == critic.version == 4
    assert all(np.array_equal(a, b) for a, b in zip(other.values(rows), critic.values(rows), strict=True))


def test_a_bad_number_stops_before_the_step() -> None:
    rows = sampled_rows(tiny(), 4)
    critic = taught(rows)
    digest = critic.digest
    with pytest.raises(FloatingPointError, match=r"loss of micro-batch 0 of 1 is nan at version 3.*returns"):
        critic.update(lambda values, batch: LossOutput(values.sum() * float("nan")), split(rows, 1000))
    assert (critic.digest, critic.version) == (digest, 3)
    with pytest.raises(RuntimeError, match=r"\(critic\) has no optimiser yet; call configure"):
        tiny().with_value_head().update(squared, split(rows, 1000))


def test_a_back_end_without_a_critic_says_so() -> None:
    with pytest.raises(UnsupportedOption, match="the back end 'bandit' makes none; use --model mini"):
        Bandit().with_value_head()
