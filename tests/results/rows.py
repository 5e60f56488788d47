"""Rows for the tests: complete, with only what a test is about spelled out."""

from __future__ import annotations

from typing import Any

from results.records import EpisodeRow


def make_row(**fields: Any) -> EpisodeRow:
    """A finished episode; `success` alone is enough, the score follows it."""
    base: dict[str, Any] = {
        "run": "grpo-webshop-0011aabb",
        "method": "grpo",
        "method_digest": "77dd",
        "env": "webshop",
        "model": "mini",
        "task": "goal-0",
        "seed": 0,
        "iteration": 20,
        "status": "ok",
        "success": True,
        "reward": 1.0,
        "steps": 5,
        "stop": "success",
        "tokens_in": 900,
        "tokens_out": 40,
        "wall_time": 0.25,
        "backend": "transformers",
        "deterministic": True,
        "view": "compact",
        "code_version": "0.1.0+abc",
        "env_version": "1",
        "data_digest": "d1",
    }
    values = base | fields
    values.setdefault("score", None if values["success"] is None else float(values["success"]))
    return EpisodeRow(**values)


def failed_row(**fields: Any) -> EpisodeRow:
    """An episode that has no verdict."""
    return make_row(status="infra_error", stop="infra_error", success=None, score=None, reward=None, **fields)
