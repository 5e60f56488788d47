"""Models with one fault each. Every check of `harness.conformance.model` has one here that it must find."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from harness.model import Model, Request, TrainableModel, TrainingRow, ValueModel
from harness.types import Completion
from tests.toys import ToyModel


def reseeded(request: Request, seed: int) -> Request:
    return dataclasses.replace(request, sampling=dataclasses.replace(request.sampling, seed=seed))


class Drifting(ToyModel):
    _calls: ClassVar = itertools.count()

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        return super().generate([reseeded(request, next(self._calls)) for request in requests])


class BatchBound(ToyModel):
    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        return super().generate([reseeded(request, request.sampling.seed + len(requests)) for request in requests])


class Seedless(ToyModel):
    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        return super().generate([reseeded(request, 0) for request in requests])


class Lively(ToyModel):
    """Takes temperature 0 for temperature 1."""

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        warm = [
            dataclasses.replace(r, sampling=dataclasses.replace(r.sampling, temperature=r.sampling.temperature or 1.0))
            for r in requests
        ]
        return super().generate(warm)


class Unlimited(ToyModel):
    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        free = [dataclasses.replace(r, sampling=dataclasses.replace(r.sampling, max_tokens=99)) for r in requests]
        return super().generate(free)


class Altered(ToyModel):
    """A toy whose answers are changed by a function."""

    change: Callable[[Completion], dict[str, Any]]

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        return [dataclasses.replace(answer, **type(self).change(answer)) for answer in super().generate(requests)]


class Uncounted(Altered):
    change = staticmethod(lambda answer: {"usage": dataclasses.replace(answer.usage, tokens_out=0)})


class ShortLogprobs(Altered):
    change = staticmethod(lambda answer: {"logprobs": answer.logprobs[:-1]})


class HalfLogprobs(Altered):
    """Tells the log-probability under another temperature than it sampled with."""

    change = staticmethod(lambda answer: {"logprobs": tuple(p / 2 for p in answer.logprobs)})


class Bandit(TrainableModel):
    """Answers as the toy; scored again it knows its log-probabilities exactly, but for `error`."""

    backend = "bandit"
    error = 0.0

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        return [ToyModel(0.5).generate([request])[0] for request in requests]

    def logprobs(self, rows: Sequence[TrainingRow], *, temperature: float, batch_tokens: int = 0) -> list[np.ndarray]:
        assert temperature == 1.0, "the check asks under the temperature that it sampled with"
        return [np.array([self._first(row), 0.0][: len(row.ids)], dtype=np.float32) for row in rows]

    def _first(self, row: TrainingRow) -> float:
        best = 2  # every prompt of the test wants "right"
        return float(np.log(0.5 if row.ids[0] == best else 0.5 / 3)) + self.error

    def configure(self, optimizer: Any) -> None:
        raise NotImplementedError

    def update(self, loss: Any, micro_batches: Any, *, temperature: float) -> Any:
        raise NotImplementedError

    def frozen_copy(self) -> TrainableModel:
        raise NotImplementedError

    def save(self, folder: Path) -> None:
        raise NotImplementedError

    def load(self, folder: Path) -> None:
        raise NotImplementedError


class Misremembers(Bandit):
    error = 0.1


class LateCritic(ValueModel):
    """Has no value for the state before the first token."""

    digest = "late"

    def values(self, rows: Sequence[TrainingRow], *, batch_tokens: int = 0) -> list[np.ndarray]:
        return [np.zeros(len(row.ids) - 1, dtype=np.float32) for row in rows]

    def configure(self, optimizer: Any) -> None:
        raise NotImplementedError

    def update(self, loss: Any, micro_batches: Any) -> Any:
        raise NotImplementedError

    def save(self, folder: Path) -> None:
        raise NotImplementedError

    def load(self, folder: Path) -> None:
        raise NotImplementedError


class LateValues(Bandit):
    def with_value_head(self) -> ValueModel:
        return LateCritic()


FAULTS: list[tuple[str, type[Model]]] = [
    ("same request, same answer", Drifting),
    ("same answer alone and in a batch", BatchBound),
    ("the seed counts", Seedless),
    ("greedy ignores the seed", Lively),
    ("token limit", Unlimited),
    ("usage", Uncounted),
    ("one log-probability for each id", ShortLogprobs),
    ("log-probabilities are those of what was sampled", HalfLogprobs),
    ("scored again as sampled", Misremembers),
    ("a critic gives one value for each id", LateValues),
]
