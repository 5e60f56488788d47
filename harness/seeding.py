"""Seeds by derivation: every seed is a digest of the labels that name its use, so order and workers do not matter."""

from __future__ import annotations

import hashlib
import random

import numpy as np

from harness.types import Key


def derive(*labels: str | int | Key) -> int:
    """A 63-bit seed from labels, equal in every process.

    Labels are length-prefixed, so that ("ab", "c") and ("a", "bc") differ, and typed, so that 1 and "1" differ.
    """
    digest = hashlib.blake2b(digest_size=8)
    for label in _flat(labels):
        text = f"{type(label).__name__}:{label}".encode()
        digest.update(len(text).to_bytes(4, "big") + text)
    return int.from_bytes(digest.digest(), "big") >> 1


def _flat(labels: tuple[str | int | Key, ...]) -> list[str | int]:
    flat: list[str | int] = []
    for label in labels:
        if isinstance(label, tuple):
            flat += ["(", *_flat(label), ")"]
        else:
            flat.append(label)
    return flat


def generator(*labels: str | int | Key) -> np.random.Generator:
    """A NumPy generator seeded by `derive`."""
    return np.random.default_rng(derive(*labels))


def python_random(*labels: str | int | Key) -> random.Random:
    """A `random.Random` seeded by `derive`."""
    return random.Random(derive(*labels))
