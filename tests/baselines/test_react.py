"""ReAct: a thought before every action."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from baselines.react import ReAct
from harness.model import UnsupportedOption
from harness.models.scripted import ScriptedModel
from tests.plays import best, episode, play, world
from tests.toys import ToyEnv


def react(view: str = "full", **options: object) -> ReAct:
    return ReAct(ReAct.Config(max_tokens=40, **options), spec=ToyEnv.spec, view=view, seed=0)


def played(method: ReAct, model: ScriptedModel):
    there = world(model, env=lambda: ToyEnv(view=method.view))
    method.setup(there.kit)
    return play(there, method.solve(episode(there, phase="eval")))[0]


def test_it_asks_for_a_thought_and_acts_on_the_action_alone():
    model = ScriptedModel(lambda prompt, seed: f"<think> go {seed} </think> <action>{best(prompt)}</action>")
    method = react()
    done = played(method, model)
    assert [step.action for step in done.steps] == ["right", "right", "stop"]
    assert done.success
    assert (method.iterations, method.state_dict(), method.coupling) == (0, {}, "independent")
    assert "First reason between <think> and </think>" in model.prompts[0]
    assert "exactly that one action between <action> and </action>" in model.prompts[0]
    assert "left, right or stop" in model.prompts[0]
    assert not any("thought:" in prompt for prompt in model.prompts)


def test_thoughts_stay_in_the_prompt_where_that_is_asked_for():
    told = iter(["first", "", "third"])

    def reply(prompt: str, seed: int) -> str:
        return f"<think>{next(told)}</think> <action>{best(prompt)}</action>"

    model = ScriptedModel(reply)
    played(react(keep_thoughts=True), model)
    assert "thought:" not in model.prompts[0]
    assert "    thought: first\n    action: right" in model.prompts[1]
    assert model.prompts[2].count("thought:") == 1, "an empty thought is none, and the action stands without it"


def test_a_reply_without_an_action_is_malformed_whatever_it_thinks():
    replies = iter(["<think>right</think>", "<action>right</action>"])
    model = ScriptedModel(lambda prompt, seed: next(replies, "<action>stop</action>"))
    done = played(react(), model)
    assert [step.action for step in done.steps] == [None, "right", "stop"]


def test_the_compact_view_has_a_word_of_its_own_and_no_room_for_thoughts():
    model = ScriptedModel(lambda prompt, seed: "<think> why </think> <action> stop </action>")
    played(react("compact"), model)
    assert model.prompts[0].startswith("reason Walk from cell")
    with pytest.raises(UnsupportedOption, match=r"keep_thoughts=true .* use --view full"):
        played(react("compact", keep_thoughts=True), model)


def test_the_option_reasoning_has_nothing_to_add():
    with pytest.raises(ValidationError, match="reasoning"):
        react(reasoning=True)
