"""The plan of a run: which tasks, cut into which lanes, evaluated when. A function of the configuration alone."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from harness import registry
from harness.config import RunConfig, digest, method_digest
from harness.env import Env
from harness.errors import InputError, unknown
from harness.types import Task


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run will do.

    Attributes:
        config: the resolved configuration.
        seeds: one run each.
        tasks: evaluation tasks, in order.
        lanes: the tasks in chunks whose episodes share batches; of a stream method, whose episodes come one by one, all
            tasks in one.
        evaluations: iterations after which the tasks are evaluated; the last one always is.
        digest: identity of the rows.
        method_digest: identity of the method and its options, part of every row's key.
        data_digest, env_version, task_list: of the environment.
        identities: role -> identity of the model.
    """

    config: RunConfig
    seeds: tuple[int, ...]
    tasks: tuple[Task, ...]
    lanes: tuple[tuple[Task, ...], ...]
    evaluations: tuple[int, ...]
    digest: str
    method_digest: str
    data_digest: str
    env_version: int
    task_list: str
    identities: dict[str, str]

    @property
    def name(self) -> str:
        """Name of the run's folder."""
        return f"{self.config.method}-{self.config.env}-{self.digest}"

    @property
    def episodes(self) -> int:
        """Evaluation episodes of all seeds."""
        return len(self.tasks) * len(self.evaluations) * len(self.seeds)


def open_env(config: RunConfig) -> Env:
    """The environment of a run, unperturbed or with the perturbations named.

    Raises:
        InputError: data that are missing or wrong, or a perturbation.
    """
    if config.perturb:
        raise InputError(f"perturbation {config.perturb[0]!r} is not known; there are none for text environments yet")
    env_class = registry.load_env(config.env)
    try:
        return env_class(view=config.view, data=config.env_data)
    except ValueError as error:
        raise InputError(str(error)) from error


def make_plan(config: RunConfig, seeds: Sequence[int]) -> Plan:
    """Resolve tasks, lanes and identities.

    Raises:
        InputError: unknown task ids, an evaluation beyond the last iteration, missing models or data.
    """
    env = open_env(config)
    try:
        tasks = _chosen(list(env.tasks(config.split)), config)
        data_digest = env.data_digest
    finally:
        env.close()
    iterations = config.method_config().model_dump().get("iterations", 0)
    if late := [n for n in config.eval_at if not 0 <= n <= iterations]:
        raise InputError(f"eval_at={late[0]} lies outside 0..{iterations}, the iterations of {config.method!r}")
    identities = {role: registry.model_identity(spec, config.env) for role, spec in sorted(config.models.items())}
    lane = len(tasks) if registry.load_method(config.method).stream else config.lane
    task_list = hashlib.sha256("\n".join(task.id for task in tasks).encode()).hexdigest()[:12]
    version = env.spec.version
    return Plan(
        config=config,
        seeds=tuple(seeds),
        tasks=tasks,
        lanes=tuple(tasks[i : i + lane] for i in range(0, len(tasks), lane)),
        evaluations=tuple(sorted({*config.eval_at, iterations})),
        digest=digest(
            config, env_version=version, data_digest=data_digest, task_list=task_list, model_identities=identities
        ),
        method_digest=method_digest(config),
        data_digest=data_digest,
        env_version=version,
        task_list=task_list,
        identities=identities,
    )


def _chosen(tasks: list[Task], config: RunConfig) -> tuple[Task, ...]:
    if config.tasks:
        by_id = {task.id: task for task in tasks}
        for name in config.tasks:
            if name not in by_id:
                raise unknown(f"{config.split} task of {config.env}:", name, by_id)
            if config.tasks.count(name) > 1:
                raise InputError(f'--tasks names "{name}" twice; a task is evaluated once per seed')
        tasks = [by_id[name] for name in config.tasks]
    if config.limit is not None:
        tasks = tasks[: config.limit]
    if not tasks:
        raise InputError(f'environment "{config.env}" has no {config.split} tasks')
    return tuple(tasks)
