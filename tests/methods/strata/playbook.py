"""A model that follows a playbook: what is answered to which strategy request, action, and judgment, by their keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from harness.method import Method
from harness.model import Kit, Model, Request
from harness.types import Completion, Usage
from methods.strata.method import StraTA
from tests.plays import arena, play, task, world
from tests.toys import ToyEnv

Place = tuple[int, int]
"""(strategy, rollout)."""


class Playbook(Model):
    """Answers as written down.

    Args:
        candidates: replies to the requests for a strategy, in order of their keys; further ones repeat the last.
        moves: replies of each rollout, in order of its steps; where they end, the last one is repeated.
        judgments: replies of the judge; an empty list where nothing is written.
    """

    backend = "playbook"

    def __init__(
        self,
        candidates: Sequence[str],
        moves: Mapping[Place, Sequence[str]],
        judgments: Mapping[Place, str | Exception] | None = None,
    ) -> None:
        self.candidates, self.moves, self.judgments = candidates, moves, dict(judgments or {})
        self.requests: list[Request] = []
        self.batches: list[list[str]] = []

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        self.batches.append([request.prompt.kind for request in requests])
        self.requests += requests
        return [self._completion(request) for request in requests]

    def prompts(self, kind: str) -> list[str]:
        return [request.prompt.text for request in self.requests if request.prompt.kind == kind]

    def _completion(self, request: Request) -> Completion:
        reply = self._reply(request)
        ids = (*range(3, 3 + len(reply.split())), 1)
        return Completion(reply, ids, (-0.5,) * len(ids), "stop", prompt_ids=(9,), usage=Usage(1, 1, len(ids)))

    def _reply(self, request: Request) -> str:
        _, _, _, _, strategy, rollout, step, _, ordinal = request.key
        if request.prompt.kind == "strategy":
            return self.candidates[min(int(ordinal), len(self.candidates) - 1)]
        place = (max(0, int(strategy)), int(rollout))
        if request.prompt.kind == "judgment":
            reply = self.judgments.get(place, "<judgment>[]</judgment>")
            if isinstance(reply, Exception):
                raise reply
            return reply
        moves = self.moves[place]
        return moves[min(int(step), len(moves) - 1)]


RIGHT, LEFT, STOP = (f"<action>{word}</action>" for word in ("right", "left", "stop"))
BAD = "no action here"


def strategies(*texts: str | None) -> list[str]:
    """Replies with these strategies; None stands for a malformed one."""
    return ["no strategy here" if text is None else f"so <strategy>{text}</strategy>" for text in texts]


def corners(vectors: Mapping[str, Sequence[float]]) -> Callable[[Sequence[str]], Any]:
    """A sentence encoder that knows a few sentences."""
    return lambda texts: np.array([vectors[text] for text in texts], dtype=np.float64)


def strata(
    model: Model, *, embedder: Callable[[Sequence[str]], Any] | None = None, spec: Any = ToyEnv.spec, **options: Any
) -> StraTA:
    """StraTA with N = 2, M = 2, sigma = 2, ready to explore; nothing of it can train."""
    config = StraTA.Config(**{"strategies": 2, "rollouts": 2, "oversampling": 2, "max_tokens": 40, **options})
    method = StraTA(config, spec=spec, view="compact", seed=0)
    Method.setup(method, Kit({"policy": model}, embedder))
    return method


def explore(method: StraTA, *, env: Any = ToyEnv) -> tuple[Any, Any]:
    """What it makes of walking from cell 0 to cell 1: the experience, and the tally of failures."""
    assert method.kit is not None
    there = world(kit=method.kit, env=env)
    experience = play(there, method.explore(task(0, 1), arena(there, iteration=2, slot=3)))[0]
    return experience, there.tally
