"""Known faults in which tokens are trained on, and with what probabilities: items 12 to 15 of the list in PAPERS.md."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from baselines.grpo import GRPO
from baselines.ppo import PPO
from harness.experience import Experience, Row
from harness.model import Request, Sampling, TrainingRow
from harness.models.mini import MiniModel, WordTokenizer
from harness.models.sampling import Samplers, draw
from harness.training.advantages import gae, masked_whiten
from harness.training.losses import token_logprobs, truncated_importance_weights
from harness.training.masks import response_mask
from harness.training.packing import micro_batches
from harness.types import Completion, Turn
from tests.models.tiny import SHAPE, prompts, requests, tiny
from tests.training.rollouts import GROUP, Spy, learn, method

VECTORS: dict[str, Any] = json.loads((Path(__file__).parents[1] / "vectors" / "rl.json").read_text())


def close(actual: Any, expected: Any, atol: float = 2e-8) -> None:
    values = actual.detach().numpy() if isinstance(actual, torch.Tensor) else actual
    np.testing.assert_allclose(values, expected, rtol=1e-6, atol=atol)


def asked(model: MiniModel, sampling: Sampling, n: int = 8) -> Experience:
    """Responses sampled as a method says, rewarded in turn with 1 and 0."""
    texts = prompts(n)
    completions = model.generate(
        [Request((i,), text, Sampling(sampling.temperature, sampling.top_p, sampling.top_k, 8, i))
         for i, text in enumerate(texts)]
    )  # fmt: skip
    rows = [
        Row.of(Turn("policy", "action", c, True, 8), reward=float(k % 2), group=GROUP, trajectory=(k,))
        for k, c in enumerate(completions)
    ]
    outcomes = np.array([row.reward for row in rows])
    return Experience(tuple(rows), tuple(row.trajectory for row in rows), outcomes, (GROUP,) * n)


def ratios(model: MiniModel, seen: Experience, temperature: float) -> np.ndarray:
    """Trainer over sampler, of every token."""
    trainer = model.logprobs(seen.rows, temperature=temperature)
    recorded = [np.array(row.logprobs) for row in seen.rows]
    return np.exp(np.concatenate(trainer) - np.concatenate(recorded))


# -- 12: two views of one probability -----------------------------------------------------------------------------


def test_item_12_a_truncated_sampler_is_off_by_the_kept_mass_in_every_token():
    """trl#6789: ratios are 0.8 before anything was learned, below the lower clip, and no cap sees it."""
    entry = VECTORS["tis_top_p"]
    logits = torch.tensor([entry["full"]] * 64).log()
    cut = [Sampling(top_p=entry["top_p"] - 1e-6, seed=seed) for seed in range(64)]  # the mass is 0.8 up to rounding
    ids, recorded = draw(logits, Samplers.of(cut, torch.device("cpu")), 0)
    assert set(ids.tolist()) == {0, 1}
    close(recorded.exp(), np.array(entry["renorm"])[ids], 1e-6)
    biased = token_logprobs(logits, ids) - recorded
    close(biased.exp(), [entry["biased_ratio_for_any_kept_token"]] * 64, 1e-6)
    capped = truncated_importance_weights(biased[None], torch.zeros(1, 64), torch.ones(1, 64), cap=2.0)
    close(capped[0], biased.exp(), 1e-6)
    whole = [Sampling(seed=seed) for seed in range(64)]
    ids, recorded = draw(logits, Samplers.of(whole, torch.device("cpu")), 0)
    close(torch.exp(token_logprobs(logits, ids) - recorded), [entry["correct"]] * 64, 1e-6)


def test_item_12_training_samples_from_the_whole_distribution_whatever_evaluation_does():
    """No option of a method reaches top-p and top-k of training rollouts; those of evaluation do not."""
    model = tiny()
    learner = method(GRPO, model, top_p=0.5, top_k=3, temperature=0.2)
    evaluation, training = learner.sampling("eval"), learner.sampling("train")
    assert (evaluation.top_p, evaluation.top_k) == (0.5, 3)
    assert (training.top_p, training.top_k, training.temperature) == (1.0, 0, 1.0)
    assert ratios(model, asked(model, evaluation), 1.0).min() < 0.9
    np.testing.assert_allclose(ratios(model, asked(model, training), 1.0), 1.0, atol=1e-4)


def test_item_12_the_trainer_divides_by_the_temperature_of_the_rollout(monkeypatch):
    """trl#4159: at temperature 0.7 a trainer that scores at 1 is wrong by up to a factor of 2."""
    entry = VECTORS["temperature"]
    logits = torch.tensor([entry["logits"]])
    for token in range(3):
        at_t, at_1 = token_logprobs(logits, [token], entry["T"]), token_logprobs(logits, [token])
        close(torch.exp(at_1 - at_t), entry["wrong_ratio"][token], 1e-6)
    model = tiny()
    learner, spy = method(GRPO, model, train_temperature=entry["T"], kl_beta=0.1), Spy().watch(model, monkeypatch)
    sampling = learner.sampling("train")
    seen = asked(model, sampling)
    assert np.abs(ratios(model, seen, 1.0) - 1).max() > 0.1
    np.testing.assert_allclose(ratios(model, seen, sampling.temperature), 1.0, atol=1e-4)
    metrics = learn(learner, seen)
    assert [update.temperature for update in spy.updates] == [entry["T"]]
    assert metrics["ratio_max"] == pytest.approx(1, abs=1e-4)
    assert metrics["kl"] == pytest.approx(0, abs=1e-6), "the reference is scored at it too"


@pytest.mark.parametrize(
    ("level", "mode", "key"),
    [
        ("token", "truncate", "token_trunc_C2"),
        ("token", "mask", "token_mask_C2"),
        ("sequence", "truncate", "seq_trunc_C2"),
        ("sequence", "mask", "seq_mask_C2"),
        ("geometric", "truncate", "geo_mean"),
    ],
)
def test_item_12_truncated_and_masked_weights_by_token_and_sequence(level, mode, key):
    """Untruncated, one token of the three weighs 2.46 and so does the whole row."""
    entry = VECTORS["tis"]
    trainer, sampler = np.array([entry["trainer_logp"]]), np.array([entry["rollout_logp"]])
    close(np.exp(trainer - sampler)[0], entry["ratio"])
    close(np.exp((trainer - sampler).sum()), entry["seq_ratio"])
    ours = truncated_importance_weights(trainer, sampler, np.ones((1, 3)), cap=2.0, level=level, mode=mode)
    close(ours[0], np.broadcast_to(entry[key], 3))


def test_item_12_weights_are_constants_and_leave_padding_out():
    """With padding in the product, a sequence's ratio depends on what its neighbours' lengths are."""
    trainer = torch.tensor([[-1.0, -2.0, 7.0], [-1.0, -2.0, -3.0]], dtype=torch.float64, requires_grad=True)
    sampler = torch.tensor([[-1.1, -2.2, float("nan")], [-1.0, -2.0, -3.0]], dtype=torch.float64)
    mask = torch.tensor([[1, 1, 0], [1, 1, 1]])
    for level, ratio in (("sequence", np.exp(0.3)), ("geometric", np.exp(0.15))):
        ours = truncated_importance_weights(trainer, sampler, mask, cap=2.0, level=level)
        close(ours, [[ratio, ratio, 0.0], [1.0, 1.0, 1.0]])
        assert not ours.requires_grad
    close(truncated_importance_weights(trainer, sampler, mask, cap=1.0), [[1.0, 1.0, 0.0], [1.0, 1.0, 1.0]])
    huge = truncated_importance_weights([[900.0, 0.0]], [[0.0, 0.0]], [[1, 1]], cap=2.0, level="sequence", mode="mask")
    close(huge, [[0.0, 0.0]])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cap": 0.5}, "cap is 0.5; below 1"),
        ({"cap": float("nan")}, "cap is nan"),
        ({"cap": 2.0, "level": "row"}, "unknown level 'row'"),
        ({"cap": 2.0, "mode": "drop"}, "unknown mode 'drop'"),
    ],
)
def test_item_12_refusals_name_the_thing(options, message):
    with pytest.raises(ValueError, match=message):
        truncated_importance_weights([[0.0]], [[0.0]], [[1]], **options)
    with pytest.raises(ValueError, match="logp_sampler has shape"):
        truncated_importance_weights([[0.0]], [[0.0, 0.0]], [[1]], cap=2.0)


# -- 13: the critic's recursion -----------------------------------------------------------------------------------


def unmasked(rewards: np.ndarray, values: np.ndarray, gamma: float, lam: float) -> np.ndarray:
    """verl-agent at 796ed31: the recursion runs through padding and observations."""
    advantages, following, running = np.zeros_like(values), 0.0, 0.0
    for t in reversed(range(values.shape[-1])):
        running = rewards[..., t] + gamma * following - values[..., t] + gamma * lam * running
        following, advantages[..., t] = values[..., t], running
    return advantages


def test_item_13_an_episode_is_worth_the_same_beside_a_longer_one():
    """Padded to its neighbour, an episode's last value would be bootstrapped from what stands in the padding."""
    entry = VECTORS["gae_padding"]
    names = ("rewards", "values", "mask")
    rewards, values, mask = (np.array([entry[name]] * 2, dtype=float) for name in names)
    rewards[1], mask[1] = [0.0, 0.0, 0.0, 0.0, 1.0], 1.0
    batched, returns = gae(rewards, values, mask, gamma=1.0, lam=0.95)
    close(batched[0], entry["lam95_masked"])
    alone, _ = gae(rewards[0, :3], values[0, :3], mask[0, :3], gamma=1.0, lam=0.95)
    close(alone, batched[0, :3])
    assert returns[0, 3:].tolist() == [0.0, 0.0], "padding is no target of the critic"
    faulty = unmasked(rewards, values, 1.0, 0.95)
    close(faulty[0], entry["lam95_no_mask"])
    hidden = unmasked(rewards, values, 1.0, 1.0)[0, :3]
    close(hidden, entry["masked"][:3])  # at lambda 1 the sum telescopes: who tests only there sees nothing


def test_item_13_observation_tokens_are_bridged_and_not_valued():
    """The critic never learns values of observation tokens; read, they move what came before (verl PR 2337)."""
    entry = VECTORS["gae_observation_tokens"]
    rewards, values, mask = (np.array(entry[name], dtype=float) for name in ("rewards", "values", "mask"))
    inside = mask == 1
    faulty = unmasked(rewards, values, entry["gamma"], entry["lam"])
    close(faulty[inside], entry["no_mask"])
    ours, _ = gae(rewards, values, mask, gamma=entry["gamma"], lam=entry["lam"])
    close(ours[inside], entry["masked"])
    values[~inside] = -77.0
    again, _ = gae(rewards, values, mask, gamma=entry["gamma"], lam=entry["lam"])
    assert again.tolist() == ours.tolist()
    late = np.where(mask, mask, 1.0)
    assert np.abs(gae(rewards, values, late, gamma=1.0, lam=0.95)[0][inside] - ours[inside]).max() > 1


def critic_that_says(values: Sequence[Sequence[float]], **options: Any) -> PPO:
    """PPO whose critic has these values for the response tokens of the rows, in their order."""
    learner = method(PPO, tiny(), **{"whiten": False, **options})
    learner.critic.model.values = lambda rows, **_: [np.array(v) for v in values]  # type: ignore[method-assign]
    return learner


def spoken(lengths: Sequence[Sequence[int]], outcomes: Sequence[float]) -> Experience:
    """Trajectories of rows with so many tokens; a row's reward is the outcome of its trajectory."""
    rows, keys = [], [("train", 1, 0, "t", -1, k) for k in range(len(lengths))]
    for key, tokens, outcome in zip(keys, lengths, outcomes, strict=True):
        rows += [Row((5, 6), (4,) * n, (-1.0,) * n, outcome, GROUP, key, "action") for n in tokens]
    return Experience(tuple(rows), tuple(keys), np.array(outcomes), (GROUP,) * len(keys))


def test_item_13_ppo_gives_an_episode_its_masked_advantages():
    """The same numbers from the method: an episode beside a longer one, and one of two responses."""
    padding, bridged = VECTORS["gae_padding"], VECTORS["gae_observation_tokens"]
    learner = critic_that_says([padding["values"][:3], padding["values"]], lam=0.95)
    short, long = learner.token_advantages(spoken([[3], [5]], [1.0, 0.0]))
    close(short, padding["lam95_masked"][:3])
    close(long, unmasked(np.zeros(5), np.array(padding["values"]), 1.0, 0.95))
    learner = critic_that_says([bridged["values"][:2], bridged["values"][4:]], lam=bridged["lam"])
    first, second = learner.token_advantages(spoken([[2, 2]], [1.0]))
    close([*first, *second], bridged["masked"])


def test_item_13_whitening_reads_the_mask_alone():
    entry = VECTORS["masked_whiten"]
    x, mask = np.array([entry["x"]]), np.array([entry["mask"]])
    faulty = (x - x.mean()) / x.std(ddof=1)
    close(faulty[0, :3], entry["wrong_with_padding"])
    close(masked_whiten(x, mask)[0, :3], entry["right"], 2e-8)
    x[0, 3] = np.nan
    close(masked_whiten(x, mask)[0], [*entry["right"], 0.0], 2e-8)
    learner = critic_that_says([[0.0] * 2, [0.0]], whiten=True)
    whitened = learner.token_advantages(spoken([[2], [1]], [1.0, 0.0]))
    close(np.concatenate(whitened), np.array([1.0, 1.0, -2.0]) / np.sqrt(3), 1e-7)  # no padding of the second row


# -- 14: the end of a sequence ------------------------------------------------------------------------------------


def test_item_14_the_sampled_end_is_trained_on_where_padding_has_its_id(monkeypatch):
    """Masking every pad id unlearns to stop (RAGEN#59); masking none trains on padding."""
    entry = VECTORS["eos_mask"]
    table = np.array(entry["tokens"])
    assert (table != entry["pad"]).astype(int).tolist() == entry["wrong_neq_pad"]
    assert np.ones_like(table).tolist() == entry["wrong_all"]
    assert response_mask(table, entry["eos"]).astype(int).tolist() == entry["right_mask"]
    model = tiny()
    monkeypatch.setattr(WordTokenizer, "pad_token_id", WordTokenizer.eos_token_id)
    eos = model.tokenizer.eos_token_id
    completions = model.generate(requests(prompts(40)))
    ended = next(c.token_ids for c in completions if c.finish_reason == "stop" and 1 < len(c.token_ids) < 7)
    assert ended[-1] == eos
    rows = [TrainingRow((5, 6), ended), TrainingRow((5, 6), (3,) * 8)]
    (batch,) = micro_batches(rows, [0.5, 0.5], max_tokens=999)
    short = next(k for k, row in enumerate(batch.rows) if row.ids == ended)
    assert int(batch.mask[short].sum()) == len(ended)
    padded = [*ended, *[eos] * (8 - len(ended))]
    assert sum(token != eos for token in padded) == len(ended) - 1, "the faulty mask loses the end"
    assert response_mask(padded, eos).tolist() == (batch.mask[short] == 1).tolist()


def test_item_14_a_rewarded_end_becomes_likelier():
    """Two equal responses, one ended and one cut short of it: with the end masked both would learn the same."""
    model = tiny()
    eos = model.tokenizer.eos_token_id
    rows = [TrainingRow((5, 6), (3, eos)), TrainingRow((5, 6), (3, 4))]
    before = model.logprobs(rows, temperature=1.0)
    seen = Experience(
        tuple(
            Row(row.prompt_ids, row.ids, tuple(map(float, logp)), 1.0 - k, GROUP, (k,), "action")
            for k, (row, logp) in enumerate(zip(rows, before, strict=True))
        ),
        ((0,), (1,)), np.array([1.0, 0.0]), (GROUP,) * 2,
    )  # fmt: skip
    learn(method(GRPO, model, lr=1e-3), seen)
    after = model.logprobs(rows, temperature=1.0)
    assert after[0][1] > before[0][1] + 1e-4
    assert after[1][1] < before[1][1] - 1e-4


# -- 15: the ids that were sampled --------------------------------------------------------------------------------


class MergingTokenizer(WordTokenizer):
    """Letters and pairs of letters, joined without blanks; encodes pairs where it can, as byte-pair encoders do.

    Two letters that were sampled one by one come back from the text as one id.
    """

    def encode(self, text: str) -> list[int]:
        ids, place = [], 0
        while place < len(text):
            width = 2 if text[place : place + 2] in self._ids and place + 1 < len(text) else 1
            ids.append(self._ids.get(text[place : place + width], self.unk_token_id))
            place += width
        return ids

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        return "".join(self.vocabulary[index] for index in token_ids if index > self.unk_token_id)


def test_item_15_the_ids_of_the_loss_are_the_ids_that_were_sampled(monkeypatch):
    """Tokenised again from their text they are others: other lengths, other probabilities, ratios far from 1."""
    letters = "abcd"
    words = ("<pad>", "<eos>", "<unk>", *letters, *(x + y for x in letters for y in letters))
    model = MiniModel.fresh(MergingTokenizer(words), SHAPE, seed=0)
    learner = method(GRPO, model)
    spy = Spy().watch(model, monkeypatch)
    seen = asked(model, learner.sampling("train"))
    again = [
        TrainingRow(row.prompt_ids, tuple(model.tokenizer.encode(model.tokenizer.decode(list(row.ids)))))
        for row in seen.rows
    ]
    ended = [tuple(i for i in row.ids if i > WordTokenizer.unk_token_id) for row in seen.rows]
    broken = [k for k, (row, ids) in enumerate(zip(again, ended, strict=True)) if row.ids != ids]
    assert len(broken) > len(seen.rows) // 2, "the tokenizer is not canonical"
    faulty = model.logprobs([again[k] for k in broken], temperature=1.0)
    totals = [float(f.sum()) - sum(seen.rows[k].logprobs) for k, f in zip(broken, faulty, strict=True)]
    assert max(map(abs, totals)) > 1, "a ratio of e or more before anything was learned"
    np.testing.assert_allclose(ratios(model, seen, 1.0), 1.0, atol=1e-4)
    metrics = learn(learner, seen)
    (update,) = spy.updates
    assert sorted(row.ids for row in update.rows) == sorted(row.ids for row in seen.rows)
    assert sorted(row.prompt_ids for row in update.rows) == sorted(row.prompt_ids for row in seen.rows)
    assert metrics["ratio_max"] == pytest.approx(1, abs=1e-4)
    old = {row.ids: row.logprobs for row in seen.rows}
    for batch in update.batches:
        for row, line in zip(batch.rows, batch.arrays["old_logp"], strict=True):
            np.testing.assert_allclose(line[: len(row.ids)], old[row.ids], atol=1e-6)


def test_item_15_an_engine_that_tells_no_ids_cannot_be_trained_on():
    """Its text would have to be tokenised again."""
    mute = Completion("ab", (), (), "stop", prompt_ids=(3,))
    with pytest.raises(ValueError, match="training needs one for each sampled id"):
        Row.of(Turn("policy", "action", mute, True, 8), reward=1.0, group=GROUP, trajectory=(0,))
