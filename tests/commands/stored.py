"""Runs as the runner would have left them, made by hand: for the verbs that only read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.config import RunConfig, digest, method_digest
from harness.manifest import Manifest
from harness.types import Status, StopReason
from results.records import EpisodeRow
from results.store import RowWriter, RunFolder

TASKS = tuple(f"test-{n}" for n in range(12))


def store_run(
    out: Path,
    method: str,
    success: Callable[[int, int], bool | None],
    *,
    env: str = "toy",
    seeds: Sequence[int] = (0, 1, 2),
    tasks: Sequence[str] = TASKS,
    options: Mapping[str, Any] | None = None,
    iteration: int = 0,
    **config: Any,
) -> Path:
    """Write a run and return its folder; `success(task number, seed)` is None for an episode without a verdict."""
    run = RunConfig(method=method, env=env, models={"policy": "toy"}, options=dict(options or {}), **config)
    identity = digest(run, env_version=1, data_digest="embedded", task_list="list", model_identities={"policy": "toy"})
    folder = RunFolder(out / f"{method}-{env}-{identity}")
    with RowWriter(folder.rows) as writer:
        for seed in seeds:
            for number, task in enumerate(tasks):
                writer.write(_row(run, folder.path.name, task, seed, iteration, success(number, seed)))
    Manifest.make(
        name=folder.path.name,
        digest=identity,
        config=run.model_dump(mode="json"),
        method_digest=method_digest(run),
        env_version=1,
        data_digest="embedded",
        task_list="list",
        model_identities={"policy": "toy"},
        argv=["harness", "run", "--method", method, "--env", env],
    ).write(folder.manifest)
    return folder.path


def _row(run: RunConfig, name: str, task: str, seed: int, iteration: int, success: bool | None) -> EpisodeRow:
    judged = success is not None
    return EpisodeRow(
        run=name,
        method=run.method,
        method_digest=method_digest(run),
        env=run.env,
        model="toy",
        task=task,
        seed=seed,
        iteration=iteration,
        status=Status.OK if judged else Status.INFRA_ERROR,
        success=success,
        score=float(success) if success is not None else None,
        reward=float(success) if success is not None else None,
        steps=3,
        stop=(StopReason.SUCCESS if success else StopReason.FAILURE) if judged else StopReason.INFRA_ERROR,
        tokens_in=100,
        tokens_out=10,
        wall_time=0.5,
        backend="toy",
        deterministic=True,
        view="full",
        code_version="0",
        env_version="1",
        data_digest="embedded",
    )
