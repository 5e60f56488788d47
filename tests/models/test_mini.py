"""The embedded policy: its words, its size, its files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from harness.errors import InputError
from harness.model import Prompt, TrainingRow, UnsupportedOption
from harness.models.mini import MAX_PARAMETERS, MiniConfig, MiniModel, WordTokenizer, build_mini, open_mini
from harness.registry import ModelContext, open_model
from tests.models.tiny import SHAPE, prompts, requests, tiny

WORDS = WordTokenizer.of(["<action> search slim mug </action>", "click r3 mug"])


@given(st.lists(st.sampled_from(["<action>", "</action>", "search", "slim", "mug", "click", "r3"]), max_size=20))
def test_words_survive_the_way_there_and_back(words: list[str]) -> None:
    ids = WORDS.encode("  ".join(words))
    assert len(ids) == len(words)
    assert WORDS.decode(ids) == " ".join(words)


def test_a_vocabulary_is_a_function_of_its_words() -> None:
    assert WORDS.vocabulary[:3] == ("<pad>", "<eos>", "<unk>")
    assert WordTokenizer.of(["mug r3 click", "slim search </action> <action>"]).vocabulary == WORDS.vocabulary
    assert len(WORDS) == 10


def test_text_cannot_spell_a_special_token() -> None:
    """A page that holds the word <eos> must not end a sequence."""
    assert WORDS.encode("mug <eos> <pad> kettle") == [WORDS.encode("mug")[0], 2, 2, 2]
    assert WORDS.unknown("mug <eos> kettle") == ["<eos>", "kettle"]
    assert WordTokenizer.of(["a <eos>"]).vocabulary == ("<pad>", "<eos>", "<unk>", "a")


def test_unknown_words_are_shown_and_endings_hidden() -> None:
    mug = WORDS.encode("mug")[0]
    assert WORDS.decode([mug, 2, 0, 1]) == "mug <unk>"
    assert WORDS.decode([mug, 1, 0], skip_special_tokens=False) == "mug <eos> <pad>"


@pytest.mark.parametrize(
    ("vocabulary", "message"),
    [
        (("a", "b"), "begins with <pad>, <eos>, <unk>"),
        (("<pad>", "<eos>", "<unk>", "a", "a"), "stand twice in the vocabulary: a"),
        (("<pad>", "<eos>", "<unk>", "a b"), "no white space, got 'a b'"),
        (("<pad>", "<eos>", "<unk>", ""), "not empty"),
    ],
)
def test_a_broken_vocabulary_is_refused(vocabulary: tuple[str, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        WordTokenizer(vocabulary)


def test_a_vocabulary_file_is_a_list_of_words(tmp_path: Path) -> None:
    WORDS.save(tmp_path / "vocab.json")
    assert json.loads((tmp_path / "vocab.json").read_text()) == list(WORDS.vocabulary)
    assert WordTokenizer.load(tmp_path / "vocab.json").vocabulary == WORDS.vocabulary


@pytest.mark.parametrize("config", [SHAPE, MiniConfig(hidden=32, layers=1, heads=4, kv_heads=4, ff=24)])
def test_parameters_are_counted_right(config: MiniConfig) -> None:
    network = build_mini(WORDS, config, seed=0)
    assert sum(parameter.numel() for parameter in network.parameters()) == config.parameters(len(WORDS))


def test_the_default_shape_stays_within_the_bound() -> None:
    assert MiniConfig().parameters(650) <= MAX_PARAMETERS
    with pytest.raises(ValueError, match="parameters with a vocabulary of 10 words; a mini policy has at most 400,000"):
        build_mini(WORDS, MiniConfig(hidden=128, layers=4), seed=0)


@pytest.mark.parametrize("options", [{"hidden": 30}, {"hidden": 12, "heads": 4}, {"kv_heads": 3}, {"depth": 2}])
def test_an_impossible_shape_is_refused(options: dict[str, int]) -> None:
    with pytest.raises(ValidationError):
        MiniConfig(**options)


def test_a_network_is_a_function_of_its_seed() -> None:
    before = torch.random.get_rng_state()
    first, second = (MiniModel.fresh(WORDS, SHAPE, seed=3) for _ in range(2))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert first.digest == second.digest != MiniModel.fresh(WORDS, SHAPE, seed=4).digest


@pytest.mark.parametrize(("option", "value"), [("rope_theta", 100.0), ("kv_heads", 2), ("ff", 24)])
def test_the_shape_shapes_the_network(option: str, value: float) -> None:
    changed = MiniConfig(**{**SHAPE.model_dump(), option: value})
    row = TrainingRow(tuple(WORDS.encode("search slim mug click r3 mug")), tuple(WORDS.encode("click r3")))
    first, second = (
        MiniModel.fresh(WORDS, shape, seed=0).logprobs([row], temperature=1.0)[0] for shape in (SHAPE, changed)
    )
    assert not np.array_equal(first, second)


def test_positions_bound_the_prompt() -> None:
    assert tiny().positions == SHAPE.max_positions == 64


def test_a_policy_folder_opens_as_it_was_written(tmp_path: Path) -> None:
    model = tiny()
    model.export(tmp_path / "policy", card="# A policy\nfor tests", recipe={"epochs": 0})
    opened = open_model(f"mini:{tmp_path / 'policy'}", ModelContext("webshop"))
    assert isinstance(opened, MiniModel)
    assert opened.digest == model.digest
    assert opened.config == model.config
    assert opened.words.vocabulary == model.words.vocabulary
    assert opened.name == "mini:policy"
    batch = requests(prompts(4))
    assert opened.generate(batch) == model.generate(batch)
    manifest = json.loads((tmp_path / "policy" / "manifest.json").read_text())
    assert manifest["parameters"] == model.config.parameters(29)
    assert manifest["recipe"] == {"epochs": 0}


@pytest.mark.parametrize("file", ["policy.safetensors", "vocab.json", "config.json", "card.md"])
def test_a_changed_or_missing_file_is_noticed(tmp_path: Path, file: str) -> None:
    tiny().export(tmp_path, card="for tests", recipe={})
    content = bytearray((tmp_path / file).read_bytes())
    content[-1] ^= 1
    (tmp_path / file).write_bytes(bytes(content))
    with pytest.raises(InputError, match=f"{file} has SHA-256 .* changed or cut"):
        MiniModel.open(tmp_path)
    (tmp_path / file).unlink()
    with pytest.raises(InputError, match=f"{file} is missing"):
        MiniModel.open(tmp_path)


def test_a_policy_needs_a_card(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="needs a card"):
        tiny().export(tmp_path, card=" ", recipe={})


def test_without_a_shipped_policy_the_way_out_is_named() -> None:
    with pytest.raises(InputError, match="make one with: harness prepare policy nowhere"):
        open_mini("", ModelContext("nowhere"))
    with pytest.raises(InputError, match=r"manifest\.json is missing"):
        open_mini("no/such/folder", ModelContext("webshop"))


def test_a_mini_policy_is_float32(tmp_path: Path) -> None:
    tiny().export(tmp_path, card="for tests", recipe={})
    with pytest.raises(UnsupportedOption, match="computed in float32, not bfloat16"):
        open_mini(str(tmp_path), ModelContext("webshop", dtype="bfloat16"))


def test_its_words_are_a_closed_set_that_others_can_ask_for() -> None:
    model = tiny()
    assert model.vocabulary == frozenset(model.words.vocabulary) - {"<pad>", "<eos>", "<unk>"}
    assert model.frozen_copy().vocabulary == model.vocabulary
    assert model.count(Prompt.user("a b  c")) == 3
