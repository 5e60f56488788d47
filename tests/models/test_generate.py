"""The decode loop: what it samples, what it computes, and that neither depends on a request's neighbours."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from harness.model import Message, Prompt, Request, Sampling, TrainingRow, UnsupportedOption
from harness.models.transformers import TransformersModel
from harness.training.packing import FREE_PADDING
from tests.models.tiny import LETTERS, prompts, requests, tiny


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_log_probabilities_are_those_that_training_recomputes(temperature: float) -> None:
    """Facts 4.12: a trainer that sees another temperature than the sampler starts with ratios away from 1."""
    model = tiny()
    completions = model.generate(requests(prompts(16), temperature=temperature))
    rows = [TrainingRow(completion.prompt_ids, completion.token_ids) for completion in completions]
    for completion, again in zip(completions, model.logprobs(rows, temperature=temperature), strict=True):
        assert again.dtype == np.float32
        assert np.allclose(again, completion.logprobs, atol=1e-4)
    other = np.concatenate(model.logprobs(rows, temperature=1.7 - temperature))
    sampled = np.concatenate([completion.logprobs for completion in completions])
    assert np.abs(np.exp(other - sampled) - 1).max() > 0.1


def test_a_truncated_distribution_is_not_the_one_trained_on() -> None:
    """Facts 4.12 (trl#6789): under top-p the recomputed log-probability of a kept token is lower than the sampled."""
    model = tiny()
    completions = model.generate(requests(prompts(16), top_p=0.5))
    rows = [TrainingRow(completion.prompt_ids, completion.token_ids) for completion in completions]
    full = np.concatenate(model.logprobs(rows, temperature=1.0))
    sampled = np.concatenate([completion.logprobs for completion in completions])
    assert (full <= sampled + 1e-5).all()
    assert (full < sampled - 0.01).any()


@pytest.mark.parametrize("options", [{}, {"temperature": 0.7, "top_p": 0.8, "top_k": 5}, {"temperature": 0.0}])
def test_a_request_alone_and_among_others_gets_the_same_ids(options: dict[str, float]) -> None:
    model = tiny()
    batch = requests(prompts(20), **options)
    together = model.generate(batch)
    assert len({completion.token_ids for completion in together}) >= 8
    for request, completion in zip(batch, together, strict=True):
        alone = model.generate([request])[0]
        assert alone.token_ids == completion.token_ids
        assert np.allclose(alone.logprobs, completion.logprobs, atol=1e-5)


def test_the_order_of_requests_changes_nothing_at_all() -> None:
    """The passes are a function of the batch's content: the same numbers to the last bit, in any order."""
    model = tiny()
    batch = requests(prompts(24) + prompts(6))
    forward = model.generate(batch)
    backward = model.generate(batch[::-1])[::-1]
    assert [c.token_ids for c in forward] == [c.token_ids for c in backward]
    assert [c.logprobs for c in forward] == [c.logprobs for c in backward]


def test_greedy_equals_the_library() -> None:
    model = tiny()
    for prompt, completion in zip(prompts(8), model.generate(requests(prompts(8), temperature=0.0)), strict=True):
        ids = torch.tensor([model.encode(prompt)])
        expected = model.network.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=8, pad_token_id=0
        )
        assert completion.token_ids == tuple(expected[0, ids.shape[1] :].tolist())
        assert set(completion.logprobs) == {0.0}


def test_top_k_bounds_the_support_and_seeds_explore_it() -> None:
    model = tiny()
    prompt = prompts(1)[0]
    asked = [Request((i,), prompt, Sampling(top_k=3, max_tokens=1, seed=i)) for i in range(200)]
    found = {completion.token_ids[0] for completion in model.generate(asked)}
    logits = model.network(input_ids=torch.tensor([model.encode(prompt)])).logits[0, -1]
    assert found == set(logits.topk(3).indices.tolist())


def test_the_end_of_sequence_is_trained_on_and_not_shown() -> None:
    """Facts 4.14. The tiny model ends some responses early, others are cut at the limit."""
    model = tiny()
    completions = model.generate(requests(prompts(60), temperature=3.0, max_tokens=20))
    stopped = [completion for completion in completions if completion.finish_reason == "stop"]
    cut = [completion for completion in completions if completion.finish_reason == "length"]
    assert stopped
    assert cut
    for completion in stopped:
        assert completion.token_ids.index(1) == len(completion.token_ids) - 1
        assert "<eos>" not in completion.text
        assert model.words.encode(completion.text) == [i for i in completion.token_ids[:-1] if i != 0]
    for completion in cut:
        assert len(completion.token_ids) == 20
        assert 1 not in completion.token_ids
    assert all(len(c.logprobs) == len(c.token_ids) == c.usage.tokens_out for c in completions)


def test_padding_with_the_end_of_sequence_changes_nothing() -> None:
    """Facts 4.14: many tokenizers pad with EOS; masks come from lengths, so the sampled EOS stays in the response."""

    class Padded(type(tiny().words)):  # type: ignore[misc]
        pad_token_id = 1

    plain = tiny()
    padded = TransformersModel(tiny().network, Padded(plain.words.vocabulary), device="cpu")
    batch = requests(prompts(30), temperature=3.0)
    expected = plain.generate(batch)
    assert [c.token_ids for c in padded.generate(batch)] == [c.token_ids for c in expected]
    rows = [TrainingRow(c.prompt_ids, c.token_ids) for c in expected]
    for row, values in zip(rows, padded.logprobs(rows, temperature=3.0), strict=True):
        assert len(values) == len(row.ids)


def test_every_stop_id_of_the_generation_settings_ends_a_response() -> None:
    """Chat models have two; the tokenizer knows one."""
    network = tiny().network
    network.generation_config.eos_token_id = [1, 5]
    model = TransformersModel(network, tiny().words, device="cpu")
    completions = model.generate(requests(prompts(60), temperature=3.0))
    assert {c.token_ids[-1] for c in completions if c.finish_reason == "stop"} == {1, 5}


def test_equal_prompts_are_prefilled_once() -> None:
    model = tiny()
    first, second = prompts(2, low=10, high=11)
    batch = requests([first, second, first, first])
    together = model.generate(batch)
    assert model.counters.prefill_computed == 20
    assert model.counters.prefill_used == 40
    assert [completion.usage.tokens_cached for completion in together] == [0, 0, 10, 10]
    assert [model.generate([request])[0].token_ids for request in batch] == [c.token_ids for c in together]


def test_what_prompts_begin_with_is_prefilled_once() -> None:
    """The head that the prompts of one task share; the answers are those of each prompt alone."""
    model = tiny()
    texts = [Prompt.user(f"a b c d e {ending}") for ending in ("f", "f g", "h i j", "h i k l", "f")]
    together = model.generate(requests(texts))
    assert model.counters.prefill_computed == 5 + len("fg") + len("hij") + len("kl")
    assert model.counters.prefill_used == 6 + 7 + 8 + 9 + 6
    for text, completion, request in zip(texts, together, requests(texts), strict=True):
        alone = model.generate([request])[0]
        assert alone.token_ids == completion.token_ids
        assert alone.logprobs == pytest.approx(completion.logprobs, abs=1e-5)
        assert model.encode(text) == completion.prompt_ids


def test_a_padded_prefill_gives_the_same_answers() -> None:
    model, padding = tiny(), tiny()
    padding.network.set_attn_implementation("eager")
    batch = requests([*prompts(20), *prompts(4)], temperature=2.0)
    for one, other in zip(model.generate(batch), padding.generate(batch), strict=True):
        assert one.token_ids == other.token_ids
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-5)
    assert model.counters.prefill_computed < model.counters.prefill_used
    assert model.counters.decode_computed == padding.counters.decode_computed


def test_nothing_is_computed_for_a_row_that_has_ended() -> None:
    """verl-agent goes on generating for finished episodes (facts 2c); here every forward pass is counted."""
    model = tiny()
    shapes: list[tuple[int, ...]] = []
    model.network.register_forward_pre_hook(
        lambda module, args, kwargs: shapes.append(tuple(kwargs["input_ids"].shape)), with_kwargs=True
    )
    batch = requests(prompts(30, low=10, high=11), temperature=3.0, max_tokens=12)
    batch += [Request((99,), batch[0].prompt, Sampling(max_tokens=2, seed=99))]
    completions = model.generate(batch)
    lengths = [len(completion.token_ids) for completion in completions]
    assert len(set(lengths)) > 3
    assert shapes[0] == (1, model.counters.prefill_computed)  # distinct prefixes of 30 prompts, and none twice
    assert shapes[1:] == [(n, 1) for n in (sum(length > step for length in lengths) for step in range(1, 12)) if n]
    assert model.counters.decode_computed == model.counters.decode_used == sum(lengths) - len(lengths)


@pytest.mark.parametrize(("share", "low", "high"), [(0.0, 0, FREE_PADDING), (1.0, 3800, 3800)])
def test_padding_is_bounded(share: float, low: int, high: int) -> None:
    """A hundred prompts of 2 tokens beside a hundred of 40: in one pass almost half of it is padding.

    So it is for a network whose attention cannot follow a tree.
    """
    model = tiny()
    model.network.set_attn_implementation("eager")
    model.max_padding = share
    short = [Prompt.user(f"{first} {second}") for first in LETTERS[:10] for second in LETTERS[:10]]
    model.generate(requests(short + prompts(100, low=40, high=41), max_tokens=1))
    assert model.counters.prefill_used == 4200
    assert low <= model.counters.prefill_computed - 4200 <= high


def test_the_ids_trained_on_are_the_ids_sampled() -> None:
    """Facts 4.15: a response whose text has another canonical tokenisation keeps the ids that were sampled."""

    class Merging(type(tiny().words)):  # type: ignore[misc]
        """Writes without blanks and reads the longest known piece, as sub-word tokenizers do."""

        def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
            return "".join(self.vocabulary[i] for i in token_ids)

        def canonical(self, text: str) -> list[int]:
            ids: list[int] = []
            while text:
                piece = max((word for word in self.vocabulary if text.startswith(word)), key=len)
                ids.append(self.vocabulary.index(piece))
                text = text[len(piece) :]
            return ids

    words = Merging(("<pad>", "<eos>", "<unk>", "a", "b", "aa", "ab", "bb", "ba", *LETTERS[2:22]))
    model = TransformersModel(tiny().network, words, device="cpu")
    texts = [Prompt.user(" ".join("abab"[: 2 + i % 3])) for i in range(40)]
    completions = model.generate(requests(texts, temperature=2.0))
    differing = [c for c in completions if words.canonical(c.text) != [i for i in c.token_ids if i != 1]]
    assert differing
    rows = [TrainingRow(c.prompt_ids, c.token_ids) for c in differing]
    for completion, values in zip(differing, model.logprobs(rows, temperature=2.0), strict=True):
        assert np.allclose(values, completion.logprobs, atol=1e-4)


def test_the_chat_template_is_the_tokenizers() -> None:
    seen: list[Any] = []

    class Chatty(type(tiny().words)):  # type: ignore[misc]
        chat_template = "one exists"

        def apply_chat_template(self, messages: Any, **options: Any) -> list[int]:
            seen.append((messages, options))
            return [3, 4, 5]

    model = TransformersModel(tiny().network, Chatty(tiny().words.vocabulary), device="cpu")
    prompt = Prompt((Message("system", "a"), Message("user", "b")))
    completion = model.generate([Request((), prompt, Sampling(max_tokens=2))])[0]
    assert completion.prompt_ids == (3, 4, 5)
    messages, options = seen[0]
    assert messages == [{"role": "system", "content": "a"}, {"role": "user", "content": "b"}]
    assert options["add_generation_prompt"]


def test_without_a_template_a_prompt_is_its_contents() -> None:
    model = tiny()
    prompt = Prompt((Message("system", "a b"), Message("user", "c")))
    assert model.encode(prompt) == tuple(model.words.encode("a b c"))


def test_complete_is_a_batch_of_one() -> None:
    model = tiny()
    request = requests(prompts(1))[0]
    completion = asyncio.run(model.complete(request.prompt, request.sampling))
    assert completion == model.generate([request])[0]


def test_what_does_not_fit_is_refused_with_its_name() -> None:
    model = tiny()
    with pytest.raises(UnsupportedOption, match=r"max_tokens=64 leaves no room.*64 positions"):
        model.check(Sampling(max_tokens=64))
    with pytest.raises(ValueError, match=r"request \(0,\): a prompt of 60 tokens and max_tokens=8 exceed the 64"):
        model.generate(requests(prompts(1, low=60, high=61)))
    with pytest.raises(ValueError, match="the prompt is empty"):
        model.generate(requests([Prompt.user("")]))
    assert model.generate([]) == []
