"""One seed of a run: explore and learn, then solve the test tasks. What a worker executes.

    for each iteration: draw train tasks -> explore them in lanes -> learn -> curve, checkpoint
    at the planned iterations: solve the evaluation tasks in lanes, one row an episode
                               (a stream method: one after the other, observing each)

A cell can be stopped at any moment. Going on, it restores the last checkpoint, cuts the curve back to it, and reruns
lanes of which a row or the transcripts are missing; since everything is a function of (configuration, seed,
iteration), the rows come out as if nothing had happened. The checkpoint of an evaluation is kept until each of its
episodes has a verdict.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from harness import registry
from harness.arena import Arena, Phase, Tally, World
from harness.batching import Lane
from harness.checkpoint import SeedFolder
from harness.env import Env, InfraError
from harness.episode import Episode, EpisodeFailed
from harness.errors import Diverged, InputError, RunError
from harness.events import Event, Finished, IterationDone, Notice, Started
from harness.experience import Experience
from harness.method import Method
from harness.model import Kit, ModelContext
from harness.plan import Plan, open_env
from harness.prompts import check_words
from harness.rows import Recorder, row_key
from harness.seeding import generator
from harness.types import Mode, Split, Status, Task, Trajectory
from results.records import RowKey
from results.store import RunFolder

Validate = Callable[[Sequence[Task] | None], Coroutine[Any, Any, list[Trajectory]]]
"""What `arena.validation` calls."""


def open_kit(plan: Plan, method: type[Method]) -> Kit:
    """Open the models of a run; two roles with one specification share one model."""
    config = plan.config
    context = ModelContext(config.env, config.device, config.dtype)
    opened = {spec: registry.open_model(spec, context) for spec in sorted(set(config.models.values()))}
    embedder = None
    if method.needs_embedder(config.method_config()):
        from harness.models.embedders import get_embedder

        embedder = get_embedder(config.embedder)
    return Kit({role: opened[spec] for role, spec in config.models.items()}, embedder)


def make_method(plan: Plan, seed: int, kit: Kit) -> Method:
    """The method of a run for one seed, set up.

    Raises:
        UnsupportedOption: a model cannot honour the method's options, or its sampling in training or evaluation.
    """
    config = plan.config
    method_class = registry.load_method(config.method)
    method = method_class(config.method_config(), spec=registry.env_spec(config.env), view=config.view, seed=seed)
    method.setup(kit)
    modes: tuple[Mode, ...] = ("train", "eval") if method.iterations else ("eval",)
    for mode in modes:
        for model in kit.models.values():
            model.check(method.sampling(mode))
    env = open_env(config)
    check_words(method, kit, env)
    env.close()
    return method


@dataclass(slots=True)
class _Part:
    """A lane while it is evaluated: ids of the tasks whose rows are written, what was told, and how many were lost."""

    iteration: int
    lane: int
    wanted: frozenset[str]
    transcripts: list[dict[str, Any]] = field(default_factory=list)
    lost: int = 0


class Cell:
    """A seed at work.

    Args:
        plan: of the run.
        seed: of this cell.
        folder: of the run.
        finished: keys of the rows that are stored with a verdict.
        attempts: of the others that are stored, how often they were tried.
        listen: told what happens.
        drift: whether rows are to be marked.
    """

    def __init__(
        self,
        plan: Plan,
        seed: int,
        folder: RunFolder,
        *,
        finished: Collection[RowKey],
        listen: Callable[[Event], None],
        drift: bool = False,
        attempts: Mapping[RowKey, int] | None = None,
    ) -> None:
        self.plan, self.seed, self.config = plan, seed, plan.config
        self.finished, self.listen = finished, listen
        self.kit = open_kit(plan, registry.load_method(plan.config.method))
        self.method = make_method(plan, seed, self.kit)
        self.seed_folder = SeedFolder(folder.checkpoints / f"seed-{seed}")
        self.recorder = Recorder(
            plan, seed, folder, self.kit, self.method, listen=listen, drift=drift, attempts=attempts or {}
        )
        self._train_tasks: Sequence[Task] | None = None
        self._lanes = range(len(plan.lanes))
        self._unsettled = {n for n in plan.evaluations if not all(self.is_done(n, lane) for lane in self._lanes)}

    def run(self) -> None:
        """Train from the last checkpoint on, evaluating where planned."""
        method, evaluations = self.method, self.plan.evaluations
        missing = sum(len(self.missing(n, lane)) for n in evaluations for lane in self._lanes)
        self.listen(Started(self.seed, self.seed_folder.latest(), method.iterations, missing))
        self.catch_up()
        iteration = self.seed_folder.restore(method)
        while True:
            if iteration in evaluations:
                self.evaluate_all(iteration)
            if iteration >= method.iterations:
                break
            iteration += 1
            started = time.perf_counter()
            try:
                metrics = self.iterate(iteration)
            except Diverged as error:
                kept = self.seed_folder.keep_batch(iteration, error.batch)
                raise RunError(f"seed {self.seed}, iteration {iteration}: {error}; its rows lie in {kept}") from error
            seconds = time.perf_counter() - started
            self.seed_folder.append(iteration, metrics, seconds)
            if iteration % self.config.checkpoint_every == 0 or iteration in evaluations:
                self.seed_folder.save(method, iteration, keep=self._unsettled)
            self.listen(IterationDone(self.seed, iteration, method.iterations, metrics, seconds))
        self.listen(Finished(self.seed))

    def catch_up(self) -> None:
        """Evaluate earlier iterations again whose episodes have no verdict yet, as infrastructure may leave them."""
        for iteration in sorted(n for n in self._unsettled if n < self.seed_folder.latest()):
            if iteration > 0:  # 0 is the method as it was just made
                kept = self.seed_folder.has(iteration)
                if not kept and not any(self.missing(iteration, lane) for lane in self._lanes):
                    self._unsettled.discard(iteration)
                    gone = f"transcripts of iteration {iteration} are gone, and so is the checkpoint to play it again"
                    self.listen(Notice(f"seed {self.seed}: the {gone}; its rows stand"))
                    continue
                self.seed_folder.load(self.method, iteration)
            self.evaluate_all(iteration)

    # -- training -----------------------------------------------------------------------------------------------

    def iterate(self, iteration: int) -> dict[str, float]:
        """One round of explore and learn; returns its metrics."""
        method, tally = self.method, Tally()
        started = time.perf_counter()
        with self.lane(tally) as (lane, world):
            lead = self.arena(world, "train", iteration, -1)
            proposed = lane.run(method.propose(lead, iteration))
        tasks = self.draw(iteration) if proposed is None else proposed
        per_lane = max(1, self.config.lane // method.rollouts_per_task)
        experiences: list[Experience] = []
        for start in range(0, len(tasks), per_lane):
            with self.lane(tally) as (lane, world):
                arenas = [
                    (task, self.arena(world, "train", iteration, slot))
                    for slot, task in enumerate(tasks[start : start + per_lane], start=start)
                ]
                experiences += lane.run(_all([self.explore(task, arena, tally) for task, arena in arenas]))
        explored, rollouts = time.perf_counter(), tally.episodes
        with self.lane(tally) as (lane, world):
            arena = self.arena(world, "train", iteration, -1, validate=self.validator(world, iteration))
            metrics = dict(lane.run(method.learn(experiences, arena, iteration)))
        return metrics | {
            "failed_rollouts": float(sum(tally.failed.values())),
            "rollouts": float(rollouts),
            "tokens_in": float(tally.usage.tokens_in),
            "tokens_out": float(tally.usage.tokens_out),
            "tokens_cached": float(tally.usage.tokens_cached),
            "explore_seconds": explored - started,
            "learn_seconds": time.perf_counter() - explored,
        }

    async def explore(self, task: Task, arena: Arena, tally: Tally) -> Experience:
        """What a method makes of one task; nothing where infrastructure left it none, which is counted."""
        try:
            return await self.method.explore(task, arena)
        except EpisodeFailed as failure:
            tally.failed[str(failure.status)] += 1
        except InfraError:
            tally.failed[str(Status.INFRA_ERROR)] += 1
        return Experience(dropped=1)

    def tasks(self, split: Split) -> Sequence[Task]:
        """All tasks of a split, in the environment's order."""
        env = open_env(self.config)
        try:
            return env.tasks(split)
        finally:
            env.close()

    def draw(self, iteration: int) -> list[Task]:
        """Train tasks of an iteration: the next of a permutation seeded by the run, the same for all methods.

        Raises:
            InputError: the environment has none.
        """
        if self._train_tasks is None:
            self._train_tasks = self.tasks("train")
        if not self._train_tasks:
            raise InputError(
                f'method "{self.config.method}" trains, and "{self.config.env}" has no train tasks; '
                "choose another environment, or a method without training (vanilla)"
            )
        tasks, n = self._train_tasks, self.method.tasks_per_iteration
        drawn: list[Task] = []
        for place in range((iteration - 1) * n, iteration * n):
            epoch, offset = divmod(place, len(tasks))
            order = generator(self.seed, "train tasks", epoch).permutation(len(tasks))
            drawn.append(tasks[int(order[offset])])
        return drawn

    def arena(self, world: World, phase: Phase, iteration: int, slot: int, validate: Any = None) -> Arena:
        return Arena(
            world, phase=phase, iteration=iteration, slot=slot,
            sampling=self.method.sampling("train" if phase == "train" else "eval"), validate=validate,
        )  # fmt: skip

    def validator(self, world: World, iteration: int) -> Validate:
        """Validation tasks solved as at evaluation."""

        async def validate(tasks: Sequence[Task] | None) -> list[Trajectory]:
            if tasks is None:
                tasks = self.tasks("validation")
            solved: list[Trajectory] = []
            for start in range(0, len(tasks), self.config.lane):
                chunk = tasks[start : start + self.config.lane]
                arenas = [self.arena(world, "validation", iteration, 0) for _ in chunk]
                episodes = [arena.episodes(task, 1)[0] for task, arena in zip(chunk, arenas, strict=True)]
                solved += await arenas[0].gather(self.method.solve(episode) for episode in episodes)
            return solved

        return validate

    # -- evaluation ---------------------------------------------------------------------------------------------

    def missing(self, iteration: int, lane: int) -> list[Task]:
        """Tasks of a lane without a stored verdict."""
        tasks = self.plan.lanes[lane]
        return [task for task in tasks if row_key(self.plan, self.seed, task, iteration) not in self.finished]

    def is_done(self, iteration: int, lane: int) -> bool:
        """Whether a lane has all its verdicts and, where they are kept, its transcripts.

        Episodes of a model that is not deterministic cannot be told again: their transcripts are written with them.
        """
        wanted = self.config.transcripts and self.recorder.deterministic
        told = not wanted or self.recorder.transcript_file(iteration, lane).is_file()
        return told and not self.missing(iteration, lane)

    def evaluate_all(self, iteration: int) -> None:
        """Solve what is missing of all lanes."""
        if all([self.evaluate(iteration, lane) for lane in self._lanes]):
            self._unsettled.discard(iteration)

    def evaluate(self, iteration: int, lane_index: int) -> bool:
        """Solve the tasks of a lane. A lane of which something is missing is rerun whole, since its batches are one
        thing; rows that are there already are not written again.

        Episodes of a model that is not deterministic share no batches, so only what is missing is played.

        Returns:
            Whether every episode of the lane has a verdict now.
        """
        if self.is_done(iteration, lane_index):
            return True
        part = _Part(iteration, lane_index, frozenset(task.id for task in self.missing(iteration, lane_index)))
        tasks = self.plan.lanes[lane_index]
        if self.method.stream:
            self.stream(part)
        else:
            played = [task for task in tasks if self.recorder.deterministic or task.id in part.wanted]
            with self.lane() as (lane, world):
                episodes = [self.arena(world, "eval", iteration, 0).episodes(task, 1)[0] for task in played]
                lane.run(_all([self.play(episode, part) for episode in episodes]))
        if self.config.transcripts and self.recorder.deterministic:
            self.recorder.keep(part.transcripts, iteration, lane_index)
        return part.lost == 0

    def stream(self, part: _Part) -> None:
        """The test tasks one after the other, in an order seeded by the run; `observe` after each.

        A stream is rerun whole: what is stored depends on all that came before it. For the same reason everything from
        the first missing row on is written, also rows that were played after an episode that had failed. What was
        observed ends with the stream: training goes on from the state before.

        Raises:
            InputError: half of it is stored, and the model or the environment is not deterministic.
            RunError: `observe` could not reach its model.
        """
        tasks = self.plan.lanes[part.lane]
        if 0 < len(part.wanted) < len(tasks) and not self.recorder.deterministic:
            raise InputError(
                f"seed {self.seed} has {len(tasks) - len(part.wanted)} of the {len(tasks)} episodes of a stream, and "
                f'"{self.config.method}" cannot go on in its middle, since playing again gives other episodes; '
                "name another folder with --out, or other --seeds"
            )
        order = generator(self.seed, "stream", part.iteration).permutation(len(tasks))
        sequence = [tasks[int(place)] for place in order]
        first = next((place for place, task in enumerate(sequence) if task.id in part.wanted), len(sequence))
        part.wanted = frozenset(task.id for task in sequence[first:])
        before = json.dumps(self.method.state_dict())
        try:
            with self.lane() as (lane, world):
                lane.run(self.play_in_turn(sequence, world, part))
        finally:
            self.method.load_state_dict(json.loads(before))

    async def play_in_turn(self, sequence: Sequence[Task], world: World, part: _Part) -> None:
        """Solve and observe task by task; an episode without a verdict is not observed."""
        for task in sequence:
            outcome = await self.play(self.arena(world, "eval", part.iteration, 0).episodes(task, 1)[0], part)
            if isinstance(outcome, Trajectory):
                try:
                    await self.method.observe(outcome if self.method.reads_labels else outcome.unlabelled())
                except InfraError as failure:
                    raise RunError(
                        f'seed {self.seed}: "{self.config.method}" could not learn from task "{task.id}" ({failure}); '
                        "the rows of later tasks would be wrong, so the stream ends here"
                    ) from failure

    async def play(self, episode: Episode, part: _Part) -> Trajectory | EpisodeFailed:
        """Solve one task and record it."""
        started = time.perf_counter()
        try:
            outcome: Trajectory | EpisodeFailed = await self.method.solve(episode)
        except EpisodeFailed as failure:
            outcome = failure
        except InfraError as failure:
            outcome = EpisodeFailed(Status.INFRA_ERROR, str(failure))
        finally:
            episode.release()
        seconds = time.perf_counter() - started
        transcript = self.recorder.transcript(episode, outcome)
        part.transcripts.append(transcript)
        if self.config.transcripts and not self.recorder.deterministic:  # before its row: it could not be told again
            self.recorder.keep([transcript], part.iteration, part.lane)
        if episode.task.id in part.wanted:
            self.recorder.write(episode, outcome, part.iteration, seconds)
            part.lost += isinstance(outcome, EpisodeFailed)
        return outcome

    # -- worlds -------------------------------------------------------------------------------------------------

    @contextmanager
    def lane(self, tally: Tally | None = None) -> Iterator[tuple[Lane, World]]:
        """A lane and a world; whatever happens inside, its environments are closed."""
        spec = registry.env_spec(self.config.env)
        lane = Lane()
        executor: Executor | None = None
        if spec.offload or spec.thread == "own":
            # one thread for environments that must not change threads or that share one resource
            executor = ThreadPoolExecutor(1 if spec.thread == "own" or spec.resource else 8)
        world = World(spec, self._open_env, lane, self.kit, self.seed, executor, tally or Tally())
        try:
            yield lane, world
        finally:
            world.close()
            if executor is not None:
                executor.shutdown(wait=True, cancel_futures=True)

    def _open_env(self) -> Env:
        return open_env(self.config)


async def _all(coroutines: Sequence[Coroutine[Any, Any, Any]]) -> list[Any]:
    """Run coroutines side by side; the first fault of the program ends the others and is what is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(coroutine) for coroutine in coroutines]
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from errors  # whoever tells the user knows a full disk, not a group of errors
    return [task.result() for task in tasks]
