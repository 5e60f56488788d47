"""Presets of other code bases: they resolve for every method they concern, and give the values of their source."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Any

import pytest
import yaml

from harness import registry
from harness.config import RunConfig, resolve
from harness.errors import InputError

ENVS = ("webshop", "alfworld", "sciworld")
SHIPPED = sorted(p.name.removesuffix(".yaml") for p in (files("harness") / "presets").iterdir() if p.name.endswith("l"))

CONVENTIONS = {
    "verl-agent": {
        "iterations": 150, "tasks_per_iteration": 16, "mini_batch": 256, "temperature": 0.4, "top_p": 1.0, "top_k": 0,
        "lr": 1e-6,
        "history": 2, "decay": 0.0, "reward_scale": 10.0, "auxiliary": "invalid", "invalid_penalty": 0.1,
        "aggregation": "token-mean", "clip_low": 0.2, "clip_high": 0.2, "dual_clip": 3.0, "kl_beta": 0.01,
        "kl_kind": "k3", "kl_clamp": 10.0, "entropy": 0.001, "rollouts": 8, "dynamic_sampling": False,
    },
    "rllm": {
        "tasks_per_iteration": 64, "temperature": 1.0, "top_p": 1.0, "top_k": 0, "decay": 0.0, "auxiliary": "none",
        "reward_scale": 1.0, "aggregation": "token-mean", "clip_low": 0.2, "clip_high": 0.2, "dual_clip": None,
        "kl_beta": 0.0, "rollouts": 8, "dynamic_sampling": False,
    },
    "agentgym-rl": {
        "tasks_per_iteration": 16, "rollouts": 8, "kl_beta": 0.001, "kl_kind": "k3", "lr": 1e-6, "temperature": 1.0,
        "train_temperature": 1.0, "top_p": 1.0, "top_k": 0, "history": -1, "decay": 0.0, "auxiliary": "none",
        "clip_low": 0.2, "clip_high": 0.2, "entropy": 0.001,
    },
}  # fmt: skip
"""Shared by all methods that a preset concerns."""

OWN: dict[tuple[str, str], dict[str, Any]] = {
    ("verl-agent", "grpo"): {"statistics": "row", "ddof": 1, "eps": 1e-6, "scale": "std"},
    ("verl-agent", "rloo"): {"statistics": "row"},
    ("verl-agent", "gigpo"): {
        "statistics": "row", "ddof": 1, "eps": 1e-6, "scale": "std", "gamma": 0.95, "omega": 1.0, "similarity": None,
    },
    ("verl-agent", "ppo"): {
        "sequence": "row", "gamma": 1.0, "lam": 1.0, "whiten": True, "value_clip": 0.5, "critic_lr": 1e-5,
        "critic_warmup": 0, "tasks_per_iteration": 128, "rollouts": 1,
    },
    ("rllm", "grpo"): {"statistics": "trajectory", "ddof": 0, "eps": 1e-6, "scale": "std"},
    ("rllm", "rloo"): {"statistics": "trajectory"},
    ("agentgym-rl", "agentgym-rl"): {"horizon": 20},
    ("agentgym-rl", "scalinginter"): {"rounds": [10, 20], "stage_steps": 100},
    ("agentgym-rl", "ppo"): {"sequence": "episode", "gamma": 1.0, "lam": 1.0, "value_clip": 0.5, "critic_lr": 1e-5},
}  # fmt: skip


def resolved(method: str, env: str = "alfworld", *presets: str, **given: Any) -> RunConfig:
    """At the papers' scale, with the toy policy: no weights are looked at."""
    return resolve(method=method, env=env, scale=given.pop("scale", "paper"), presets=presets, **given)


def only(preset: str) -> list[str]:
    """Methods that learn under a preset."""
    named = yaml.safe_load((files("harness") / "presets" / f"{preset}.yaml").read_text()).get("only")
    return named or [name for name in registry.BUILT_IN["methods"] if learns(name)]


def learns(method: str) -> bool:
    return "iterations" in registry.load_method(method).Config.model_fields


@pytest.mark.parametrize(("preset", "method"), OWN)
def test_a_preset_gives_the_values_of_its_source(preset, method):
    options = resolved(method, "sciworld" if preset == "agentgym-rl" else "alfworld", preset).options
    expected = CONVENTIONS[preset] | OWN[preset, method]
    assert {name: options[name] for name in expected} == expected


def test_verl_agent_on_webshop():
    """run_webshop.sh: smaller mini-batches, and GiGPO without the standard deviation."""
    assert resolved("grpo", "webshop", "verl-agent").options["mini_batch"] == 64
    gigpo = resolved("gigpo", "webshop", "verl-agent").options
    assert (gigpo["scale"], gigpo["mini_batch"], gigpo["omega"]) == ("none", 64, 1.0)
    assert resolved("grpo", "webshop", "verl-agent").options["scale"] == "std"


def test_a_tiny_critic_keeps_the_learning_rate_of_its_scale():
    """At verl-agent's 1e-5 the head of a tiny network would still say 0 at the end."""
    for preset in ("verl-agent", "agentgym-rl"):
        plain, over = (resolved("ppo", "webshop", *given, scale="mini").options for given in ((), (preset,)))
        for name in ("lr", "critic_lr", "max_tokens"):
            assert over[name] == plain[name]
        assert plain["critic_lr"] == 1e-3


@pytest.mark.parametrize(("preset", "others"), [
    ("verl-agent", ["agentgym-rl", "scalinginter", "strata"]),
    ("rllm", ["ppo", "gigpo", "agentgym-rl", "scalinginter", "strata"]),
    ("agentgym-rl", ["gigpo", "strata"]),
])  # fmt: skip
def test_a_preset_of_other_code_is_refused_by_methods_it_does_not_name(preset, others):
    for method in others:
        with pytest.raises(InputError) as error:
            resolved(method, "webshop", preset)
        assert f'preset "{preset}" is for {", ".join(only(preset))}, and for methods that do not' in str(error.value)
        assert f'"{method}" is none of them' in str(error.value)
    sampled = resolved("vanilla", "webshop", preset).options
    assert (sampled["top_p"], sampled["top_k"]) == (1.0, 0)


@pytest.mark.parametrize("preset", SHIPPED)
@pytest.mark.parametrize("method", registry.BUILT_IN["methods"])
def test_every_preset_resolves_for_every_method(preset, method):
    """What a method does not have is left out; what it refuses would be an error."""
    if learns(method) and method not in only(preset):
        return
    for env in ENVS:
        scales = [preset] if preset in ("mini", "paper") else ["mini", "paper"]
        for scale in scales:
            models = {"policy": "mini"}
            config = resolve(method=method, env=env, scale=scale, presets=[preset], models=models)
            config.method_config()


@pytest.mark.parametrize("preset", sorted(CONVENTIONS))
def test_every_option_of_a_preset_is_somebodys(preset):
    """A shared option that no method has would be skipped for all of them, and nobody would know."""
    content = yaml.safe_load((files("harness") / "presets" / f"{preset}.yaml").read_text())
    known = {
        name for method in registry.BUILT_IN["methods"] for name in registry.load_method(method).Config.model_fields
    }
    assert set(content["method"]) <= known


@pytest.mark.parametrize("preset", sorted(CONVENTIONS))
def test_what_a_preset_sets_has_a_source(preset):
    """Each convention stands on a line of its own, with the name it has at home."""
    lines = (files("harness") / "presets" / f"{preset}.yaml").read_text().splitlines()
    start = lines.index("method:") + 1
    shared = lines[start : lines.index("methods:") if "methods:" in lines else None]
    assert shared
    assert [line for line in shared if not re.search(r" # \w", line)] == []


def test_horizons_of_the_papers():
    """arXiv 2509.08755: 20 rounds, or stages; no stage is longer than the environment's own horizon."""
    assert resolved("agentgym-rl", "sciworld").options["horizon"] == 20
    assert resolved("agentgym-rl", "webshop").options["horizon"] is None
    published = (("sciworld", [10, 20], 100), ("webshop", [5, 10, 15], None), ("alfworld", None, None))
    for env, rounds, every in published:
        config = resolved("scalinginter", env)
        assert (config.options["rounds"], config.options["stage_steps"]) == (rounds, every)
        method = registry.load_method("scalinginter")
        made = method(config.method_config(), spec=registry.env_spec(env), view="full", seed=0)
        assert made.training_horizon(150) == registry.env_spec(env).horizon
    mini = resolve(method="scalinginter", env="webshop").options
    assert (mini["stage_steps"], mini["rounds"]) == (None, None)


@pytest.mark.parametrize("scale", ["mini", "paper"])
@pytest.mark.parametrize("preset", [None, *(name for name in SHIPPED if name not in ("mini", "paper"))])
def test_budgets_are_equal(scale, preset):
    """All methods of a table play the same number of training episodes."""
    budgets = {}
    for name in only(preset or scale):
        config = resolved(name, "webshop", *([preset] if preset else []), scale=scale)
        made = registry.load_method(name)(
            config.method_config(), spec=registry.env_spec("webshop"), view="full", seed=0
        )
        budgets[name] = made.iterations * made.tasks_per_iteration * made.rollouts_per_task
    assert len(budgets) > 1
    assert len(set(budgets.values())) == 1, budgets
