"""The scripted model keeps the contract of a model, so that what is tested with it is tested."""

from __future__ import annotations

import asyncio

import pytest

from harness.env import InfraError
from harness.errors import InputError
from harness.model import Model, Prompt, Request, Sampling, TrainableModel
from harness.models.scripted import EOS_ID, ScriptedModel, word_id
from harness.registry import ModelContext, open_model


def ask(model: Model, text: str, *, seed: int = 0, max_tokens: int = 10) -> str:
    return asyncio.run(model.complete(Prompt.user(text), Sampling(seed=seed, max_tokens=max_tokens))).text


def test_a_function_sees_prompt_and_seed() -> None:
    model = ScriptedModel(lambda text, seed: f"{text} {seed}")
    assert ask(model, "hello", seed=7) == "hello 7"
    assert model.prompts == ["hello"]


def test_a_list_is_answered_in_order() -> None:
    model = ScriptedModel(["one", "two"])
    batch = [Request((i,), Prompt.user(f"p{i}"), Sampling()) for i in range(2)]
    assert [completion.text for completion in model.generate(batch)] == ["one", "two"]
    with pytest.raises(LookupError, match="call 3, but the script has 2 replies"):
        ask(model, "more")


def test_a_mapping_answers_by_a_part_of_the_prompt() -> None:
    model = ScriptedModel({"page results": "click", "page": "search"})
    assert ask(model, "page results r1") == "click"
    assert ask(model, "page home") == "search"
    with pytest.raises(LookupError, match=r"no key of the script .* is in 'nothing'"):
        ask(model, "nothing")


def test_failures_are_injected_where_the_script_says() -> None:
    model = ScriptedModel([InfraError("server is gone"), "back"])
    with pytest.raises(InfraError, match="server is gone"):
        ask(model, "first")
    assert ask(model, "again") == "back"


def test_completions_look_like_sampled_ones() -> None:
    model = ScriptedModel(["search  slim mug"])
    completion = model.generate([Request((), Prompt.user("goal mug"), Sampling(max_tokens=4))])[0]
    assert completion.text == "search  slim mug"
    assert completion.token_ids == (word_id("search"), word_id("slim"), word_id("mug"), EOS_ID)
    assert completion.logprobs == (0.0,) * 4
    assert completion.finish_reason == "stop"
    assert completion.prompt_ids == (word_id("goal"), word_id("mug"))
    assert (completion.usage.calls, completion.usage.tokens_in, completion.usage.tokens_out) == (1, 2, 4)


def test_a_token_limit_cuts() -> None:
    """Three words and the end of sequence do not fit into three tokens."""
    completion = ScriptedModel(["search slim mug"]).generate([Request((), Prompt.user("x"), Sampling(max_tokens=3))])[0]
    assert completion.finish_reason == "length"
    assert completion.text == "search slim mug"
    assert EOS_ID not in completion.token_ids
    assert ask(ScriptedModel(["search slim mug"]), "x", max_tokens=2) == "search slim"


def test_the_digest_names_the_script() -> None:
    assert ScriptedModel(["a"]).digest == ScriptedModel(["a"]).digest != ScriptedModel(["b"]).digest


def test_it_does_not_train_and_takes_no_bare_text() -> None:
    assert not isinstance(ScriptedModel([]), TrainableModel)
    with pytest.raises(TypeError, match=r"pass \[text\]"):
        ScriptedModel("a reply")


def test_it_opens_by_name() -> None:
    model = open_model("scripted:<action> search mug </action>", ModelContext("webshop"))
    assert ask(model, "anything") == ask(model, "else") == "<action> search mug </action>"
    with pytest.raises(InputError, match="needs the text that it answers with"):
        open_model("scripted", ModelContext("webshop"))
