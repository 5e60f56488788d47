"""Everything that is registered keeps its contract."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import pytest

from harness import registry
from harness.conformance import check_env, check_method, check_model
from harness.model import Model, ModelContext, Prompt
from harness.prompts import SCENE_WORDS
from tests.toys import ToyEnv, ToyModel

TINY = {"iterations": 1, "tasks_per_iteration": 2, "rollouts": 2, "strategies": 2, "oversampling": 2, "max_tokens": 8}


def _words() -> list[str]:
    """What the compact prompts of all methods and the toy world say."""
    templates = [
        path.read_text(encoding="utf-8")
        for package in ("baselines", "methods")
        for path in Path(str(files(package))).rglob("prompts/compact/*.txt")
    ]
    world = ToyEnv(view="compact")
    task = world.tasks("test")[0]
    seen = [world.spec.description, task.instruction, world.reset(task, seed=0).text]
    return [*templates, *SCENE_WORDS, *seen, "left right stop"]


def fresh_mini() -> Model:
    """A trainable policy that nobody has taught; what it says is mostly malformed."""
    import torch

    from harness.models.mini import MiniConfig, MiniModel, WordTokenizer

    torch.set_num_threads(1)  # as the harness's workers compute
    shape = MiniConfig(hidden=16, layers=1, heads=2, kv_heads=1, ff=16)
    return MiniModel.fresh(WordTokenizer.of(_words()), shape, seed=0)


def fresh_transformers() -> Model:
    """The same network under the other back end's name."""
    from harness.models.transformers import TransformersModel

    mini = fresh_mini()
    return TransformersModel(mini.network, mini.words, name="transformers", device="cpu")  # type: ignore[attr-defined]


def scripted() -> Model:
    return registry.open_model("scripted:go right", ModelContext("toy"))


MODELS = {"mini": fresh_mini, "transformers": fresh_transformers, "scripted": scripted, "toy": ToyModel}


def _failures(findings):
    return [str(finding) for finding in findings if finding.outcome == "fail"]


@pytest.mark.parametrize("name", [*registry.BUILT_IN["envs"], "toy"])
def test_environments_keep_their_contract(name, toys):
    env_class = registry.load_env(name)
    for view in env_class.spec.views:
        assert _failures(check_env(env_class, view=view)) == []


def embed(texts):
    """Unit vectors that differ between texts."""
    import numpy as np

    from harness.seeding import generator

    vectors = np.array([generator("embed", text).normal(size=8) for text in texts])
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.mark.parametrize("name", [*registry.BUILT_IN["methods"], "toy-walker", "toy-learner", "toy-memory"])
def test_methods_keep_their_contract(name, toys):
    method_class = registry.load_method(name)
    options = {key: value for key, value in TINY.items() if key in method_class.Config.model_fields}
    findings = check_method(
        method_class, ToyEnv, fresh_mini, config=method_class.Config(**options), view="compact", embedder=embed
    )
    assert _failures(findings) == []


def test_every_model_is_checked(toys):
    assert set(MODELS) == set(registry.names("models"))


@pytest.mark.parametrize("name", MODELS)
def test_models_keep_their_contract(name, toys):
    text = " ".join(_words()).split()
    prompts = [Prompt.user(" ".join(text[: 3 + 5 * n])) for n in range(5)]
    assert _failures(check_model(MODELS[name], prompts)) == []
