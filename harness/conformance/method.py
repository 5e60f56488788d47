"""Does a method keep its contract (`harness.method`)?"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

from harness.arena import Arena, Phase, World
from harness.batching import Lane
from harness.conformance.findings import Finding, Skipped, require, run_checks
from harness.env import Env
from harness.experience import Experience
from harness.method import Coupling, Method, MethodConfig
from harness.model import Kit, Model
from harness.seeding import python_random
from harness.types import Split, Task, Trajectory, View


@dataclass
class MethodUnderTest:
    """A method under test.

    Attributes:
        method_class: the class.
        env_class: a world that it plays.
        open_model: a fresh model for every role; called once per method instance, since training changes it.
        config: options of the method.
        view: rendering of the environment.
        embedder: sentences -> unit vectors, where the method needs one.
        samples: tasks that are solved.
        seed: of the run.
        reset: splits of the tasks that were reset, for the check that learning leaves the test tasks alone.
    """

    method_class: type[Method]
    env_class: type[Env]
    open_model: Callable[[], Model]
    config: MethodConfig
    view: View
    embedder: Callable[[Sequence[str]], Any] | None
    samples: int
    seed: int
    reset: list[Split] = field(default_factory=list)

    def make(self) -> Method:
        """A fresh method with fresh models, set up."""
        method = self.method_class(self.config, spec=self.env_class.spec, view=self.view, seed=self.seed)
        method.setup(Kit({"policy": self.open_model()}, self.embedder))
        return method

    def tasks(self, split: Split) -> list[Task]:
        env = self.env_class(view=self.view)
        try:
            tasks = list(env.tasks(split))
        finally:
            env.close()
        return python_random(self.seed, "conformance tasks").sample(tasks, min(self.samples, len(tasks)))

    @contextmanager
    def world(self, method: Method) -> Iterator[tuple[Lane, World]]:
        """A lane and a world whose environments note what they are reset to."""
        assert method.kit is not None, "setup gives the method its kit"
        lane = Lane()
        world = World(method.spec, self._open, lane, method.kit, self.seed)
        try:
            yield lane, world
        finally:
            world.close()

    def _open(self) -> Env:
        env, note = self.env_class(view=self.view), self.reset
        reset = env.reset

        def noted(task: Task, *, seed: int) -> Any:
            note.append(task.split)
            return reset(task, seed=seed)

        env.reset = noted  # type: ignore[method-assign]
        return env

    def arena(self, world: World, method: Method, phase: Phase, slot: int) -> Arena:
        async def validate(tasks: Sequence[Task] | None) -> list[Trajectory]:
            chosen = self.tasks("validation") if tasks is None else list(tasks)
            arena = self.arena(world, method, "validation", 0)
            return await arena.gather(method.solve(arena.episodes(task, 1)[0]) for task in chosen)

        sampling = method.sampling("train" if phase == "train" else "eval")
        return Arena(world, phase=phase, iteration=1, slot=slot, sampling=sampling, validate=validate)

    def solve(self, method: Method) -> list[Trajectory]:
        """A few test tasks, solved side by side."""
        with self.world(method) as (lane, world):
            arenas = [(task, self.arena(world, method, "eval", 0)) for task in self.tasks("test")]
            found = lane.run(lane.gather([method.solve(arena.episodes(task, 1)[0]) for task, arena in arenas]))
        solved: list[Trajectory] = []
        for outcome in found:
            if isinstance(outcome, BaseException):
                raise outcome
            solved.append(outcome)
        return solved

    @cached_property
    def trained(self) -> tuple[Method, list[Experience], Mapping[str, float], list[Split]]:
        """A method after one whole iteration, what it explored, its metrics, and the splits that it touched."""
        method = self.make()
        self.reset.clear()
        with self.world(method) as (lane, world):
            proposed = lane.run(_one(method.propose(self.arena(world, method, "train", -1), 1)))
            tasks = self.tasks("train") if proposed is None else list(proposed)
            explored = lane.run(
                lane.gather(
                    [method.explore(task, self.arena(world, method, "train", slot)) for slot, task in enumerate(tasks)]
                )
            )
        experiences: list[Experience] = []
        for outcome in explored:
            if isinstance(outcome, BaseException):
                raise outcome
            experiences.append(outcome)
        with self.world(method) as (lane, world):
            metrics = lane.run(_one(method.learn(experiences, self.arena(world, method, "train", -1), 1)))
        return method, experiences, metrics, list(self.reset)


async def _one(coroutine: Any) -> Any:
    return await coroutine


def check_method(
    method_class: type[Method],
    env_class: type[Env],
    open_model: Callable[[], Model],
    *,
    config: MethodConfig | None = None,
    view: View | None = None,
    embedder: Callable[[Sequence[str]], Any] | None = None,
    samples: int = 2,
    seed: int = 0,
    only: Collection[str] | None = None,
) -> list[Finding]:
    """Check a method against its contract, by playing and training it a little.

    Args:
        method_class: the class of the method.
        env_class: a world that it plays.
        open_model: gives a fresh model, equal to the others.
        config: its options, small enough to train one iteration in seconds; its defaults otherwise.
        view: rendering; the environment's first by default.
        embedder: sentences -> unit vectors, for methods that need one.
        samples: tasks that are solved, and explored in the iteration.
        seed: of the run.
        only: names of checks; all by default.
    """
    context = MethodUnderTest(
        method_class, env_class, open_model, config or method_class.Config(), view or env_class.spec.views[0], embedder,
        samples, seed,
    )  # fmt: skip
    return run_checks(CHECKS, context, only)


def _declares(context: MethodUnderTest) -> None:
    method = context.method_class
    require(bool(getattr(method, "name", "")), "it has no name")
    require(method.coupling in get_args(Coupling), f"coupling is {method.coupling!r}, not one of {get_args(Coupling)}")
    require(not method.reads_labels or method.stream, "it reads labels of test tasks without being a stream method")
    require(issubclass(method.Config, MethodConfig), "its Config does not extend MethodConfig")
    bare = [name for name, info in method.Config.model_fields.items() if not info.description]
    require(not bare, f"options without a description: {', '.join(bare)}")


def _coupling(context: MethodUnderTest) -> None:
    method = context.make()
    learns = method.iterations > 0 or method.stream
    require(
        learns == (method.coupling != "independent"),
        f"coupling is {method.coupling!r} and it has {method.iterations} iterations; a method that learns couples its "
        "episodes (online or trained), one that does not has independent ones",
    )


def _learning(context: MethodUnderTest) -> None:
    iterations = context.make().iterations
    for name in ("explore", "learn"):
        has = getattr(context.method_class, name) is not getattr(Method, name)
        require(has == (iterations > 0), f"it has {iterations} iterations and {'a' if has else 'no'} method {name}()")
    has = context.method_class.observe is not Method.observe
    stream = context.method_class.stream
    require(has == stream, f"stream is {stream}, and there is {'an' if has else 'no'} observe()")


def _solves(context: MethodUnderTest) -> None:
    method = context.make()
    for trajectory in context.solve(method):
        require(isinstance(trajectory, Trajectory), f"solve gave {type(trajectory).__name__}, not a Trajectory")
        require(trajectory.verdict.status.has_verdict, f"task {trajectory.task.id!r} has no verdict")
        trainable = [turn.kind for turn in trajectory.turns if turn.trainable]
        require(not trainable, f"turns of an evaluation are marked trainable: {trainable}")


def _solve_is_pure(context: MethodUnderTest) -> None:
    method = context.make()
    before = json.dumps(method.state_dict(), sort_keys=True)
    context.solve(method)
    require(json.dumps(method.state_dict(), sort_keys=True) == before, "solve changed state_dict()")


def _solve_again(context: MethodUnderTest) -> None:
    method = context.make()
    assert method.kit is not None
    if not (method.kit.policy.deterministic and context.env_class.spec.deterministic):
        raise Skipped("the model or the environment is not deterministic")
    first, second = _actions(context.solve(method)), _actions(context.solve(method))
    require(first == second, "the same tasks with the same seeds were solved differently")
    require(_actions(context.solve(context.make())) == first, "a second instance solves the same tasks differently")


def _iteration(context: MethodUnderTest) -> None:
    _needs_learning(context)
    _, experiences, metrics, _ = context.trained
    for name, value in metrics.items():
        require(isinstance(value, float) and math.isfinite(value), f"metric {name} is {value!r}, not a finite float")
    require(any(experience.played for experience in experiences), "explore brought no trajectories (Experience.played)")
    groups = [{*experience.groups, *experience.row_groups} for experience in experiences]
    seen = Counter(group for of_experience in groups for group in of_experience)
    shared = sorted(group for group, count in seen.items() if count > 1)
    require(not shared, f"two draws of a task share a group: {shared[:3]}; start its key with arena.group")


def _test_tasks(context: MethodUnderTest) -> None:
    _needs_learning(context)
    _, _, _, splits = context.trained
    require("test" not in splits, "exploring or learning reset a test task")


def _round_trip(context: MethodUnderTest) -> None:
    method = context.make() if not context.make().iterations else context.trained[0]
    other = context.make()
    with TemporaryDirectory() as folder:
        method.save(Path(folder))
        other.load(Path(folder))
    require(other.state_dict() == method.state_dict(), "state_dict() differs after save and load")
    assert method.kit is not None
    if method.kit.policy.deterministic and context.env_class.spec.deterministic:
        same = _actions(context.solve(other)) == _actions(context.solve(method))
        require(same, "it acts differently after save and load")


def _state(context: MethodUnderTest) -> None:
    method = context.make() if not context.make().iterations else context.trained[0]
    state = method.state_dict()
    copy = json.loads(json.dumps(state))
    require(copy == state, "state_dict() is not plain JSON values (tuples, sets and number keys do not survive)")


def _stream(context: MethodUnderTest) -> None:
    if not context.method_class.stream:
        raise Skipped("the method is no stream")
    method = context.make()
    before = json.dumps(method.state_dict(), sort_keys=True)
    for trajectory in context.solve(method):
        Lane().run(_one(method.observe(trajectory if method.reads_labels else trajectory.unlabelled())))
    method.load_state_dict(json.loads(before))
    after = json.dumps(method.state_dict(), sort_keys=True)
    require(after == before, "load_state_dict() does not bring back the state from before the stream")


def _needs_learning(context: MethodUnderTest) -> None:
    if not context.make().iterations:
        raise Skipped("the method does not learn")


def _actions(trajectories: Sequence[Trajectory]) -> list[list[str | None]]:
    return [[step.action for step in trajectory.steps] for trajectory in trajectories]


CHECKS = {
    "declarations": _declares,
    "coupling as declared": _coupling,
    "explore and learn exactly where there are iterations": _learning,
    "solve gives a trajectory with a verdict": _solves,
    "solve leaves the state alone": _solve_is_pure,
    "same seeds, same actions": _solve_again,
    "a whole iteration": _iteration,
    "learning leaves test tasks alone": _test_tasks,
    "a stream ends where it began": _stream,
    "state is plain JSON": _state,
    "save and load": _round_trip,
}
