"""GAE along sequences of rows, the value loss, and a critic that fits."""

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

from harness.errors import Diverged
from harness.model import MicroBatch, OptimizerConfig, TrainingRow
from harness.training.advantages import gae
from harness.training.critic import Critic, SquaredValueLoss, explained_variance, sequence_gae
from tests.models.tiny import sampled_rows, tiny

VECTORS: dict[str, Any] = json.loads((Path(__file__).parents[1] / "vectors" / "rl.json").read_text())


def arrays(*rows: Sequence[float]) -> list[np.ndarray]:
    return [np.array(row, dtype=np.float64) for row in rows]


# -- GAE --------------------------------------------------------------------------------------------------------


def test_vectors_observation_tokens_between_rows_are_bridged():
    entry = VECTORS["gae_observation_tokens"]
    rewards, values = entry["rewards"], entry["values"]
    cut = [slice(0, 2), slice(4, 6)]  # the two rows; what stands between is an observation
    advantages, returns = sequence_gae(
        arrays(*(rewards[c] for c in cut)), arrays(*(values[c] for c in cut)), ["a", "a"], gamma=1.0, lam=0.95
    )
    assert np.concatenate(advantages) == pytest.approx(entry["masked"])
    assert np.concatenate(returns) == pytest.approx([0.9139375, 0.94625, 0.975, 1.0])


def test_vectors_padding_of_a_shorter_sequence_does_not_leak():
    """Beside a sequence of five tokens, one of three is padded."""
    entry = VECTORS["gae_padding"]
    long = arrays([0.0] * 5)[0]
    advantages, _ = sequence_gae(
        [np.array(entry["rewards"][:3]), long], [np.array(entry["values"][:3]), long + 0.9], "ab", gamma=1.0, lam=0.95
    )
    assert advantages[0] == pytest.approx(entry["lam95_masked"][:3])


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4)), min_size=1, max_size=7),
    st.floats(0, 1),
    st.floats(0, 1),
    st.integers(0, 2**16),
)
def test_each_sequence_is_the_plain_recursion_over_its_own_rows(rows, gamma, lam, seed):
    """Rows of several sequences may be mixed; only the order within each counts."""
    random = np.random.default_rng(seed)
    rewards, values = ([random.normal(size=n) for _, n in rows] for _ in range(2))
    keys = [key for key, _ in rows]
    advantages, returns = sequence_gae(rewards, values, keys, gamma=gamma, lam=lam)
    for key in set(keys):
        mine = [i for i, other in enumerate(keys) if other == key]
        whole = [np.concatenate([table[i] for i in mine]) for table in (rewards, values, advantages, returns)]
        expected = gae(whole[0], whole[1], np.ones(len(whole[0])), gamma=gamma, lam=lam)
        assert whole[2] == pytest.approx(expected[0])
        assert whole[3] == pytest.approx(expected[1])


def test_rows_and_tokens_must_fit():
    with pytest.raises(ValueError, match="row 1 has 2 rewards and 3 values; pass one per response token"):
        sequence_gae(arrays([0], [0, 1]), arrays([0], [0, 1, 2]), "ab", gamma=1, lam=1)
    with pytest.raises(ValueError, match="2 rows of rewards, 1 of values and 2 sequence keys"):
        sequence_gae(arrays([0], [0]), arrays([0]), "ab", gamma=1, lam=1)
    assert sequence_gae([], [], [], gamma=1, lam=1) == ([], [])


def test_explained_variance():
    returns = np.array([0.0, 1.0, 2.0])
    assert explained_variance(returns, returns) == 1.0
    assert explained_variance(returns, returns + 5) == 1.0, "a constant error is no variance"
    assert explained_variance(returns, np.ones(3)) == 0.0
    assert explained_variance(returns, -returns) == pytest.approx(-3.0)
    assert explained_variance(np.ones(3), returns) == 0.0


# -- the loss ---------------------------------------------------------------------------------------------------


def batch(**lines: Sequence[float]) -> MicroBatch:
    """One row of two tokens and a place of padding."""
    tensors = {name: torch.tensor([[*line, 0.0]]) for name, line in lines.items()}
    return MicroBatch([TrainingRow((1,), (2, 3))], torch.tensor([[1.0, 1.0, 0.0]]), torch.ones(1), tensors)


def value_loss(clip: float | None, values: Sequence[float], old: Sequence[float]) -> tuple[float, list[float], float]:
    """Loss against returns 1 and 1, its gradient, and how many values were clipped."""
    given = torch.tensor([[*values, 7.0]], requires_grad=True)
    output = SquaredValueLoss(clip)(given, batch(returns=[1.0, 1.0], old_values=old))
    output.loss.backward()
    return float(output.loss.detach()), given.grad[0].tolist(), output.metrics["clipped"]


def test_half_the_squared_error_as_a_mean_over_tokens():
    loss, gradient, clipped = value_loss(None, [0.0, 0.6], [0.0, 0.0])
    assert loss == pytest.approx((0.5 * 1 + 0.5 * 0.16) / 2)
    assert gradient == pytest.approx([-0.5, -0.2, 0.0])
    assert clipped == 0


def test_a_value_beyond_the_clip_gains_nothing_by_going_farther():
    """From 0 towards 1 with clip 0.5: 0.4 is free, 0.6 counts as 0.5 and has no gradient."""
    loss, gradient, clipped = value_loss(0.5, [0.4, 0.6], [0.0, 0.0])
    assert loss == pytest.approx(0.5 * (0.6**2 + 0.5**2) / 2)
    assert gradient == pytest.approx([-0.3, 0.0, 0.0])
    assert clipped == 1


def test_a_value_that_went_the_wrong_way_is_called_back():
    """The larger error counts: from 0 to -0.6 it is the value's own."""
    loss, gradient, clipped = value_loss(0.5, [-0.6, 0.0], [0.0, 0.0])
    assert loss == pytest.approx(0.5 * (1.6**2 + 1.0) / 2)
    assert gradient == pytest.approx([-0.8, -0.5, 0.0])
    assert clipped == 0


# -- the critic -------------------------------------------------------------------------------------------------


def critic(**options: Any) -> Critic:
    settings = {"clip": None, "steps": 1, "micro_batch_tokens": 1000, **options}
    rate = settings.pop("optimizer", OptimizerConfig(lr=1e-2))
    return Critic(tiny().with_value_head(), rate, **settings)


def everything(rows: Sequence[TrainingRow]) -> np.ndarray:
    return np.arange(len(rows))


def aimed(rows: Sequence[TrainingRow], made: Critic, goal: float = 0.7) -> Critic:
    made.aim([np.full(len(values), goal) for values in made.estimate(rows)])
    return made


def test_it_learns_a_constant():
    rows = sampled_rows(tiny(), 12)
    made, losses = critic(), []
    for _ in range(60):
        losses.append(aimed(rows, made).fit(rows, everything(rows))["value_loss"])
    assert losses[0] == pytest.approx(0.5 * 0.7**2)
    assert losses[-1] < 1e-3
    assert np.concatenate(made.estimate(rows)) == pytest.approx(0.7, abs=0.1)


def test_it_learns_what_differs_and_says_how_much_it_explains():
    rows = sampled_rows(tiny(), 12)
    made, explained = critic(), []
    for _ in range(60):
        made.estimate(rows)
        made.aim([np.full(len(row.ids), float(row.prompt_ids[-1] % 2)) for row in rows])
        explained.append(made.fit(rows, everything(rows))["explained_variance"])
    assert explained[0] == 0.0
    assert explained[-1] > 0.9


def test_metrics_of_one_mini_batch():
    rows = sampled_rows(tiny(), 6)
    found = aimed(rows, critic()).fit(rows, np.array([0, 2]))
    assert found["value_loss"] == pytest.approx(0.5 * 0.49)
    assert (found["value_mean"], found["value_clip_fraction"], found["explained_variance"]) == (0, 0, 0)
    assert found["critic_grad_norm"] > 0


@pytest.mark.parametrize("tokens", [1, 60])
def test_the_split_into_micro_batches_changes_memory_not_results(tokens):
    rows = sampled_rows(tiny(), 12)
    gradients = []
    for limit in (10_000, tokens):
        made = critic(micro_batch_tokens=limit, optimizer=OptimizerConfig(lr=1e-2, max_grad_norm=1e9))
        with torch.no_grad():
            made.model.network.weight.fill_(0.1)  # from a head of zeros no gradient comes down to the body
        made.estimate(rows)
        made.aim([np.linspace(-1, 1, len(row.ids)) * len(row.ids) for row in rows])
        found = made.fit(rows, everything(rows))
        gradients.append([found["value_loss"], *(p.grad.clone() for p in made.model.network.parameters())])
    for mine, whole in zip(gradients[1], gradients[0], strict=True):
        assert torch.allclose(torch.as_tensor(mine), torch.as_tensor(whole), atol=5e-6)


def test_every_token_weighs_the_same(monkeypatch):
    rows = [TrainingRow((3, 4), (5,)), TrainingRow((3, 5), (5, 6, 7))]
    made = aimed(rows, critic())
    seen: list[MicroBatch] = []
    plain = made.model.update
    monkeypatch.setattr(made.model, "update", lambda loss, batches: (seen.extend(batches), plain(loss, batches))[1])
    made.fit(rows, everything(rows))
    weights = {row: float(w) for one in seen for row, w in zip(one.rows, one.weights, strict=True)}
    assert [weights[row] for row in rows] == [0.25, 0.75]


def test_more_steps_go_farther_and_a_clip_holds_back():
    rows = sampled_rows(tiny(), 6)
    reached = []
    for options in ({}, {"steps": 20}, {"steps": 20, "clip": 0.05}):
        made = aimed(rows, critic(optimizer=OptimizerConfig(lr=2e-3), **options))
        found = made.fit(rows, everything(rows))
        assert made.model.version == options.get("steps", 1)
        assert (found["value_clip_fraction"] > 0.1) == ("clip" in options)
        reached.append(float(np.concatenate(made.estimate(rows)).mean()))
    assert reached[0] < reached[2] < reached[1] / 2


def test_the_norm_of_its_gradient_is_bounded():
    rows = sampled_rows(tiny(), 6)
    made = critic(optimizer=OptimizerConfig(lr=1e-2, max_grad_norm=1e-3))
    assert aimed(rows, made).fit(rows, everything(rows))["critic_grad_norm"] > 1e-2, "told before clipping"
    norm = torch.stack([p.grad.norm() for p in made.model.network.parameters()]).norm()
    assert float(norm) == pytest.approx(1e-3, rel=1e-3)


def test_numbers_beyond_use_stop_it_with_their_rows():
    rows = sampled_rows(tiny(), 3)
    made = aimed(rows, critic(), goal=1e30)
    before = made.model.digest
    with pytest.raises(Diverged, match=r"the critic: the loss of micro-batch 0 of 1 is inf.*no step") as stopped:
        made.fit(rows, everything(rows))
    assert made.model.digest == before
    assert [row["ids"] for row in stopped.value.batch] == [row.ids for row in rows]
    assert set(stopped.value.batch[0]) == {"prompt_ids", "ids", "returns", "old_values"}
    json.dumps(stopped.value.batch)
    with torch.no_grad():
        made.model.network.bias.fill_(float("nan"))
    with pytest.raises(Diverged, match=r"not finite on 3 of 3 rows; lower its learning rate \(critic_lr\)"):
        made.estimate(rows)
