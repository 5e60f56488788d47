"""Are the task lists of an environment what its contract promises, in every instance and process?"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter

from harness.conformance.findings import Broken, Skipped, require
from harness.conformance.worlds import EnvUnderTest
from harness.types import SPLITS, Task


def lists(context: EnvUnderTest) -> None:
    ids: Counter[str] = Counter()
    for split, tasks in context.tasks.items():
        for task in tasks:
            require(task.env == context.spec.name, f"task {task.id!r} says env {task.env!r}, not {context.spec.name!r}")
            require(task.split == split, f"task {task.id!r} of {split} says split {task.split!r}")
            require(bool(task.instruction.strip()), f"task {task.id!r} has no instruction")
            ids[task.id] += 1
    require(bool(context.tasks["test"]), "there are no test tasks")
    twice = [name for name, count in ids.items() if count > 1]
    require(not twice, f"task ids that occur twice: {', '.join(twice[:3])}")


def splits(context: EnvUnderTest) -> None:
    seen: dict[str, Task] = {}
    for tasks in context.tasks.values():
        for task in tasks:
            other = seen.setdefault(" ".join(task.instruction.lower().split()), task)
            if other.split != task.split:
                raise Broken(f"{other.split} task {other.id!r} and {task.split} task {task.id!r} have one instruction")


def counts(context: EnvUnderTest) -> None:
    known = {split: count for split, count in context.spec.counts.items() if count is not None}
    tests = context.tasks["test"]
    for split in SPLITS:
        if split in known:
            have = len(context.tasks[split])
            require(have == known[split], f"spec.counts says {known[split]} {split} tasks, tasks() gives {have}")
    for subset, count in context.spec.subsets.items():
        have = sum(task.subset == subset for task in tests)
        require(count in (None, have), f"spec.subsets says {count} test tasks of {subset!r}, tasks() gives {have}")
    strangers = {str(task.subset) for task in tests} - set(context.spec.subsets) if context.spec.subsets else set()
    require(not strangers, f"subsets that spec.subsets does not name: {', '.join(sorted(strangers))}")
    if not known and not context.spec.subsets:
        raise Skipped("the spec gives no counts")


def fresh_lists(context: EnvUnderTest) -> None:
    with context.open() as env:
        for split, tasks in context.tasks.items():
            require(tuple(env.tasks(split)) == tasks, f"a fresh instance has another list of {split} tasks")


_IDS = """
import importlib, json, sys
module, name, view, data = json.loads(sys.argv[1])
env_class = importlib.import_module(module)
for part in name.split("."):
    env_class = getattr(env_class, part)
env = env_class(view=view, data=data)
tasks = [task for split in ("train", "validation", "test") for task in env.tasks(split)]
print(json.dumps([[task.id, task.instruction] for task in tasks]))
"""


def other_process(context: EnvUnderTest) -> None:
    where = [context.env_class.__module__, context.env_class.__qualname__, context.view, context.data]
    if "<locals>" in context.env_class.__qualname__:
        raise Skipped("the class is local to a function: another process cannot import it")
    path = os.pathsep.join(entry for entry in sys.path if entry)
    environ = {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "4711"}
    done = subprocess.run(
        [sys.executable, "-c", _IDS, json.dumps(where)], env=environ, capture_output=True, text=True, check=False
    )
    require(done.returncode == 0, f"another process could not list the tasks: {done.stderr.strip()[-300:]}")
    theirs = json.loads(done.stdout.splitlines()[-1])
    ours = [[task.id, task.instruction] for tasks in context.tasks.values() for task in tasks]
    require(theirs == ours, "another process has another list of tasks (does an order depend on hash() or on a set?)")
