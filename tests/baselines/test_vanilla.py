"""Vanilla: the model as it is."""

from __future__ import annotations

from baselines.vanilla import Vanilla
from harness.method import MethodConfig
from harness.models.scripted import ScriptedModel
from tests.plays import best, episode, play, world
from tests.toys import ToyEnv


def test_it_acts_step_by_step_and_learns_nothing():
    model = ScriptedModel(lambda prompt, seed: f"hm <action>{best(prompt)}</action>")
    method = Vanilla(MethodConfig(max_tokens=40), spec=ToyEnv.spec, view="full", seed=0)
    there = world(model)
    done = play(there, method.solve(episode(there, phase="eval")))[0]
    assert [step.action for step in done.steps] == ["right", "right", "stop"]
    assert done.success
    assert (method.iterations, method.state_dict(), method.coupling) == (0, {}, "independent")
    assert "A corridor of cells." in model.prompts[0]
    assert "Put exactly one action between <action> and </action>" in model.prompts[0]
    assert "left, right or stop" in model.prompts[0]
