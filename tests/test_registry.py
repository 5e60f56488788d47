"""Names to classes, plug-ins included."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from harness import registry
from harness.errors import InputError
from harness.model import Model, ModelContext
from tests import toys

CONTEXT = ModelContext("toy")


@pytest.mark.usefixtures("toys")
def test_plug_ins_stand_beside_the_built_ins():
    assert registry.load_method("toy-learner") is toys.ToyLearner
    assert registry.load_env("toy") is toys.ToyEnv
    assert registry.env_spec("toy") is toys.ToyEnv.spec
    assert "toy" in registry.env_names()
    assert registry.open_model("toy:0.75", CONTEXT).name == "toy:0.75"
    for kind in ("methods", "envs", "models"):
        assert list(registry.names(kind))[: len(registry.BUILT_IN[kind])] == list(registry.BUILT_IN[kind])


@pytest.mark.parametrize("kind", ["methods", "envs", "models"])
def test_every_built_in_can_be_loaded(kind):
    for name in registry.BUILT_IN[kind]:
        assert registry.load(kind, name)


@pytest.mark.usefixtures("toys")
def test_models_that_only_answer_are_known_by_what_their_openers_return(monkeypatch):
    def anything(target: str, context: ModelContext) -> Model:
        return toys.ToyModel()

    assert registry.only_answers("scripted:left")
    assert registry.only_answers("toy:0.5")
    assert not registry.only_answers("mini")
    assert not registry.only_answers("transformers:some/model")
    for annotation in (Model, "Model", "ElsewhereDefined"):
        anything.__annotations__["return"] = annotation
        monkeypatch.setattr(registry, "load", lambda kind, name: anything)
        assert not registry.only_answers("plug-in"), annotation


def test_every_built_in_carries_its_own_name():
    for name in registry.BUILT_IN["methods"]:
        assert registry.load_method(name).name == name
    for name in registry.BUILT_IN["envs"]:
        assert registry.env_spec(name).name == name


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: registry.load_method("gropo"), 'unknown method "gropo"; did you mean "grpo"? (harness list methods)'),
        (lambda: registry.env_spec("webshp"), 'unknown environment "webshp"; did you mean "webshop"?'),
        (lambda: registry.load_env("webshp"), 'unknown env "webshp"; did you mean "webshop"?'),
        (lambda: registry.open_model("min", CONTEXT), 'unknown model "min"; did you mean "mini"?'),
        (lambda: registry.model_identity("min", "toy"), 'unknown model "min"; did you mean "mini"?'),
        (lambda: registry.load_env("sciworld"), '"sciworld" ships as a specification only'),
        (lambda: registry.model_identity("mini", "toy"), "make one with: harness prepare policy toy"),
    ],
)
def test_what_is_not_there_is_named_with_a_way_out(ask, message):
    with pytest.raises(InputError) as error:
        ask()
    assert message in str(error.value)


@pytest.fixture
def declare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Installs a plug-in with one method."""

    def install(name: str, value: str) -> None:
        info = tmp_path / "someones-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: someones\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[abstraction_bench.methods]\n{name} = {value}\n")
        monkeypatch.syspath_prepend(str(tmp_path))

    return install


def test_a_plug_in_cannot_take_a_built_in_name(declare):
    declare("grpo", "mine:GRPO")
    with pytest.raises(InputError, match='mine:GRPO takes the built-in name "grpo"'):
        registry.names("methods")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("no_such_module:Method", r'"mine" \(no_such_module:Method\) cannot be imported: No module'),
        ("tests.toys:Missing", "cannot be imported: module 'tests.toys' has no attribute 'Missing'"),
        ("tests.toys:ToyEnv", "not a subclass of harness.method.Method"),
        ("tests.toys:toy_kit", "not a subclass of harness.method.Method"),
    ],
)
def test_a_broken_plug_in_is_named(declare, value, message):
    declare("mine", value)
    with pytest.raises(InputError, match=message):
        registry.load_method("mine")


def test_a_mini_policy_is_known_by_its_digest(tmp_path: Path):
    with pytest.raises(InputError, match=r"manifest\.json is missing"):
        registry.model_identity(f"mini:{tmp_path}", "toy")
    (tmp_path / "manifest.json").write_text(json.dumps({"sha256": "0123456789abcdef99"}))
    assert registry.model_identity(f"mini:{tmp_path}", "toy") == "mini@0123456789abcdef"
    assert registry.model_identity("scripted:hello", "toy") == "scripted:hello"


def test_a_folder_of_weights_is_known_by_what_lies_in_it(tmp_path: Path):
    """Overwritten weights are another model, though their path is the same."""
    spec = f"transformers:{tmp_path}"
    weights = tmp_path / "model.safetensors"
    (tmp_path / "config.json").write_text("{}")
    weights.write_bytes(b"one")
    os.utime(weights, ns=(1, 1))
    first = registry.model_identity(spec, "toy")
    assert first.startswith(f"{spec}@")
    assert registry.model_identity(spec, "toy") == first
    (tmp_path / "README.md").write_text("no loader reads it")
    assert registry.model_identity(spec, "toy") == first
    os.utime(weights, ns=(2, 2))
    assert (second := registry.model_identity(spec, "toy")) != first
    weights.write_bytes(b"more")
    os.utime(weights, ns=(2, 2))
    assert (third := registry.model_identity(spec, "toy")) not in (first, second)
    (tmp_path / "config.json").write_text("[]")
    assert registry.model_identity(spec, "toy") not in (first, second, third)
    assert registry.model_identity("transformers:some/id", "toy") == "transformers:some/id"


def test_specifications_need_neither_package_nor_data():
    from envs.specs import SPECS

    for name, spec in SPECS.items():
        assert registry.env_spec(name) is spec
