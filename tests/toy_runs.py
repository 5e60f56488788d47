"""Runs of the toy methods on the toy corridor, and what is compared of them."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from harness.cell import Cell
from harness.config import resolve
from harness.plan import Plan, make_plan
from harness.runner import RunSummary, run
from results.store import RunFolder

TIMES = {"wall_time"}


def toy_plan(
    *overrides: str, method: str = "toy-learner", seeds: Sequence[int] = (0,), model: str = "toy", **given: Any
) -> Plan:
    """A plan of three iterations with a checkpoint after each, evaluated at 0, 2 and the last."""
    small = ["iterations=3", "tasks_per_iteration=2", "rollouts=4", "eval_at=[0, 2]", "checkpoint_every=1"]
    options = [*(small if method == "toy-learner" else []), *overrides]
    config = resolve(method=method, env="toy", models={"policy": model}, overrides=options, **{"lane": 4, **given})
    return make_plan(config, seeds)


def cell(plan: Plan, out: Path, *, seed: int = 0, events: list[Any] | None = None, **rest: Any) -> Cell:
    """A cell of a plan that has no rows yet."""
    listen = events.append if events is not None else lambda event: None
    return Cell(plan, seed, RunFolder(out / plan.name), **{"finished": frozenset(), "listen": listen, **rest})


def run_toy(plan: Plan, out: Path, **rest: Any) -> RunSummary:
    return run(plan, out=out, **{"workers": 1, **rest})


def stored(plan: Plan, out: Path) -> list[dict[str, Any]]:
    """All row lines of a run as they stand in its file, without times, sorted."""
    lines = RunFolder(out / plan.name).rows.read_text().splitlines()
    rows = [{name: value for name, value in json.loads(line).items() if name not in TIMES} for line in lines]
    return sorted(rows, key=lambda row: (row["seed"], row["iteration"], row["task"]))


def curves(plan: Plan, out: Path) -> dict[str, list[dict[str, Any]]]:
    """Learning curve of each seed, without times."""
    return {
        path.parent.name: [
            {name: value for name, value in json.loads(line).items() if not name.endswith("seconds")}
            for line in path.read_text().splitlines()
        ]
        for path in sorted((out / plan.name / "checkpoints").glob("*/curve.jsonl"))
    }


def in_a_child(work: Callable[[], None]) -> int:
    """Do something in a process of its own, forked here; how it ended (a negative signal number, or its exit code)."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def kill_me() -> None:
    """What `kill -9` does: nothing is flushed, no `finally` runs."""
    os.kill(os.getpid(), signal.SIGKILL)
