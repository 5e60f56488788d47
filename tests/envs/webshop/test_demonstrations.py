"""Demonstrations for cloning: repeatable, of every quality, on training goals only."""

import pytest

from envs.webshop.demonstrations import demonstrations
from envs.webshop.env import WebShop
from envs.webshop.expert import BEST, PLANS, WORST, plan_text


def test_the_same_seed_gives_the_same_demonstrations():
    first = demonstrations(20, 3, 0.2)
    assert demonstrations(20, 3, 0.2) == first
    assert demonstrations(20, 4, 0.2) != first
    assert demonstrations(5, 3, 0.2) == first[:5]


def test_they_play_different_training_goals_with_plans_of_all_qualities():
    shown = demonstrations(300, 0, 0.1)
    assert {d.task.split for d in shown} == {"train"}
    assert len({d.task.id for d in shown}) == 300
    assert {d.strategy for d in shown} == {plan_text(plan) for plan in PLANS}
    assert {bool(d.verdict.success) for d in shown} == {True, False}


def test_steps_can_be_replayed():
    env = WebShop(view="compact")
    for demonstration in demonstrations(10, 1, 0.3):
        observation = env.reset(demonstration.task, seed=0)
        for step in demonstration.steps:
            assert step.observation == observation
            result = env.step(step.action)
            assert result.info.admissible
            observation = result.observation
        assert env.verdict() == demonstration.verdict
        assert len(demonstration.steps) <= env.spec.horizon


def test_without_noise_every_step_follows_the_plan():
    assert all(step.follows_strategy for d in demonstrations(20, 0, 0.0) for step in d.steps)
    assert not all(step.follows_strategy for d in demonstrations(20, 0, 0.5) for step in d.steps)


def test_successful_purchases_are_steps_forward_and_others_are_not():
    for demonstration in demonstrations(60, 2, 0.1, plans=[BEST, WORST]):
        last = demonstration.steps[-1]
        if last.action == "click buy":
            assert last.forward == demonstration.verdict.success


def test_only_the_plans_given_are_followed():
    shown = demonstrations(10, 0, 0.0, plans=[BEST])
    assert {d.strategy for d in shown} == {plan_text(BEST)}
    assert all(d.verdict.success for d in shown)


@pytest.mark.parametrize(("noise", "plans", "message"), [(1.5, PLANS, "got 1.5"), (0.1, [], "at least one plan")])
def test_impossible_orders_are_refused(noise, plans, message):
    with pytest.raises(ValueError, match=message):
        demonstrations(1, 0, noise, plans=plans)
