"""The method contract: what a method gets for nothing, and what it is told when it lacks something."""

from __future__ import annotations

import asyncio

import pytest
from pydantic import ValidationError

from harness.method import MethodConfig
from harness.model import Sampling
from tests.plays import arena, task, trajectory, world
from tests.toys import ToyEnv, ToyWalker


def walker(**options) -> ToyWalker:
    return ToyWalker(MethodConfig(**options), spec=ToyEnv.spec, view="compact", seed=0)


def test_sampling_follows_table_7():
    """T 0.7, top-p 0.8, top-k 20 at evaluation; plain sampling at 1.0 in training."""
    assert walker().sampling("eval") == Sampling(0.7, 0.8, 20, 1024)
    assert walker(max_tokens=9).sampling("train") == Sampling(1.0, 1.0, 0, 9)


def test_options_that_do_not_exist_or_are_out_of_range_are_refused():
    for wrong in ({"temprature": 1}, {"temperature": -1}, {"top_p": 0}, {"top_k": -1}, {"max_tokens": 0}):
        with pytest.raises(ValidationError):
            MethodConfig(**wrong)
    with pytest.raises(ValidationError):
        MethodConfig().temperature = 2


def test_a_method_that_does_not_learn_says_so():
    method, place = walker(), arena(world())
    assert (method.iterations, method.tasks_per_iteration, method.rollouts_per_task) == (0, 0, 1)
    assert asyncio.run(method.propose(place, 1)) is None
    assert not method.needs_embedder(method.config)
    for call, message in (
        (method.explore(task(), place), "does not explore"),
        (method.learn([], place, 1), "does not learn"),
        (method.observe(trajectory(0)), "is not a stream method"),
    ):
        with pytest.raises(TypeError, match=message):
            asyncio.run(call)
