"""Vanilla: the model as it is."""

from __future__ import annotations

import pytest

from baselines.vanilla import Vanilla
from harness.episode import EpisodeFailed
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


def test_a_prompt_beyond_the_limit_ends_its_episode_without_a_verdict():
    """It used to end the run, and the same command to end there again."""
    method = Vanilla(MethodConfig(max_tokens=40, max_prompt=9), spec=ToyEnv.spec, view="full", seed=0)
    there = world(ScriptedModel(["unused"]))
    assert there.kit.policy.positions is None
    method.setup(there.kit)
    with pytest.raises(EpisodeFailed, match="exceeds max_prompt=9 even without any past step"):
        play(there, method.solve(episode(there, phase="eval")))
