"""The model contract: prompts, sampling, kits."""

from __future__ import annotations

import asyncio

import pytest

from harness.model import Kit, Message, Prompt, Sampling, UnsupportedOption, add_metrics
from harness.models.scripted import ScriptedModel
from tests.toys import ToyModel


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"temperature": -0.1}, "temperature must be >= 0"),
        ({"top_p": 0.0}, r"top_p must lie in \(0, 1\]"),
        ({"top_p": 1.1}, "top_p must lie"),
        ({"top_k": -1}, "top_k must be >= 0"),
        ({"max_tokens": 0}, "max_tokens must be >= 1"),
    ],
)
def test_sampling_that_means_nothing_is_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        Sampling(**wrong)


def test_a_prompt_is_its_messages():
    assert Prompt((Message("system", "be brief"), Message("user", "hello"))).text == "be brief\n\nhello"
    assert Prompt.user("hello", kind="strategy") == Prompt((Message("user", "hello"),), kind="strategy")


def test_roles_default_to_the_policy():
    policy, judge = ToyModel(0.1), ToyModel(0.2)
    kit = Kit({"policy": policy, "judge": judge})
    assert kit.model("judge") is judge
    assert kit.model("inducer") is kit.policy is policy
    with pytest.raises(UnsupportedOption, match="'toy' cannot; use --model mini"):
        _ = kit.trainable


def test_a_single_call_is_a_batch_of_one():
    model = ScriptedModel(["hello"])
    assert asyncio.run(model.complete(Prompt.user("?"), Sampling())).text == "hello"


def test_metrics_of_parts_are_added_and_largest_ones_kept():
    total: dict[str, float] = {}
    for part in ({"tokens": 2.0, "ratio_max": 1.5}, {"tokens": 3.0, "ratio_max": 1.2}, {"ratio_max": 1.1}):
        add_metrics(total, part)
    assert total == {"tokens": 5.0, "ratio_max": 1.5}
    add_metrics(loss := {}, {"loss_max": -2.0})
    assert loss == {"loss_max": -2.0}


def test_tokens_are_estimated_where_nobody_can_count():
    assert ToyModel().count(Prompt.user("one two three")) == 5
    assert ToyModel().count(Prompt.user("")) == 0
    assert (ToyModel().positions, ToyModel().vocabulary, ToyModel().deterministic) == (None, None, True)
    assert ScriptedModel(["-"]).count(Prompt.user("one two three")) == 3
