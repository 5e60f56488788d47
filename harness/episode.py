"""An episode: what a method's `solve` is given. Ask the model, step the world, close; nothing here knows of batches.

    while not episode.over:
        reply = await episode.ask(prompt)
        await episode.step(parse(reply))        # None when malformed: it costs a step, the world stays
    return await episode.close()
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, wait
from contextlib import contextmanager
from typing import TypeVar

from harness.batching import Lane
from harness.env import Env, EnvError, InfraError
from harness.model import Kit, Prompt, Request, Sampling
from harness.seeding import derive
from harness.types import (
    Key,
    Mode,
    Observation,
    Status,
    Step,
    StepInfo,
    StepResult,
    StopReason,
    Strategy,
    Task,
    Trajectory,
    Turn,
    Usage,
    Verdict,
)

T = TypeVar("T")


class EpisodeFailed(RuntimeError):
    """An episode without a verdict; `status` says whose fault it was. Never turned into a score."""

    def __init__(self, status: Status, reason: str) -> None:
        super().__init__(reason)
        self.status = status

    def __reduce__(self) -> tuple[type[EpisodeFailed], tuple[Status, str]]:
        """Pickled by its two arguments: an exception is rebuilt from `args`, which hold the reason alone."""
        return type(self), (self.status, str(self))


class Episode:
    """One attempt at one task.

    Attributes:
        task: what is to be done.
        key: identity within the run: (phase, iteration, slot, task, strategy, rollout).
        seed: of the environment; rollouts that are compared share it and so start in the same state.
        mode: "train" or "eval".
        horizon: steps that are left at the start.
        history: steps taken so far.
        strategy: set by a method that follows one; it goes into the trajectory.
    """

    def __init__(
        self,
        task: Task,
        env_factory: Callable[[], Env],
        *,
        lane: Lane,
        kit: Kit,
        sampling: Sampling,
        run_seed: int,
        key: Key,
        seed: int,
        mode: Mode,
        horizon: int,
        executor: Executor | None = None,
    ) -> None:
        self.task, self.key, self.seed, self.mode, self.horizon = task, key, seed, mode, horizon
        self.history: list[Step] = []
        self.strategy: Strategy | None = None
        self._env_factory, self._lane, self._kit, self._sampling = env_factory, lane, kit, sampling
        self._run_seed, self._executor = run_seed, executor
        self._env: Env | None = None
        self._turns: list[Turn] = []
        self._calls: Counter[tuple[int, str]] = Counter()
        self._stop: StopReason | None = None
        self._closed = False
        self._first: Observation | None = None
        self._now: Observation | None = None
        self._opening: Future[Observation] | None = None
        if executor is not None:
            self._opening = executor.submit(self._open)

    # -- what a method reads ------------------------------------------------------------------------------------

    @property
    def first(self) -> Observation:
        """The observation before the first step; the world is opened when it is first looked at.

        Raises:
            EpisodeFailed: the environment could not be opened, twice.
        """
        if self._first is None:
            self._first = self._opening.result() if self._opening is not None else self._open()
            self._now = self._first
        return self._first

    @property
    def observation(self) -> Observation:
        """What the agent sees now; after a malformed reply the same again, with a notice in front."""
        first = self.first
        return first if self._now is None else self._now

    @property
    def steps(self) -> int:
        """Steps taken, malformed replies included."""
        return len(self.history)

    @property
    def over(self) -> bool:
        return self._stop is not None

    # -- what a method does -------------------------------------------------------------------------------------

    async def ask(self, prompt: Prompt, *, role: str = "policy", sampling: Sampling | None = None) -> str:
        """Ask the model of a role; the response becomes a turn of the trajectory.

        Raises:
            InfraError: the model failed, twice.
        """
        ordinal = self._calls[self.steps, role]
        self._calls[self.steps, role] += 1
        key: Key = (*self.key, self.steps, role, ordinal)
        sampling = dataclasses.replace(sampling or self._sampling, seed=derive(self._run_seed, "request", key))
        completion = await self._lane.ask(self._kit.model(role), Request(key, prompt, sampling))
        trainable = role == "policy" and self.mode == "train"
        self._turns.append(Turn(role, prompt.kind, completion, trainable, sampling.max_tokens, prompt=prompt.text))
        return completion.text

    async def step(self, action: str | None) -> StepResult:
        """Act; None stands for a reply that could not be parsed and costs a step without touching the world.

        The step belongs to the last turn of the policy, whoever was asked since (a judge, a grounder).

        Raises:
            EpisodeFailed: the environment failed, and again after it was set up anew and replayed.
            RuntimeError: the episode is over already.
        """
        if self.over:
            raise RuntimeError(f"episode of task {self.task.id!r} is over ({self._stop}); close it instead of stepping")
        before = self.observation
        if action is None:
            notice = self._live.malformed_notice
            result = StepResult(
                dataclasses.replace(before, text=f"{notice}\n{_without(before.text, notice)}"), 0.0, False, False,
                StepInfo(admissible=False, message="malformed"),
            )
        else:
            result = await self._act(action)
        index = self.steps + 1
        self.history.append(
            Step(index, action, result.observation, before.page, before.anchor, result.reward, result.info.admissible)
        )
        self._credit(index)
        self._now = result.observation
        if result.terminated:
            self._stop = StopReason.FAILURE  # until the verdict says otherwise
        elif result.truncated or index >= self.horizon:
            self._stop = StopReason.HORIZON
        return result

    async def close(self) -> Trajectory:
        """Ask the environment for its verdict, once, and return what happened.

        Raises:
            EpisodeFailed: the environment failed to give a verdict.
        """
        if self._closed:
            raise RuntimeError(f"episode of task {self.task.id!r} was closed already")
        first = self.first
        verdict = await self._offload(self._judge)
        stop = self._stop or StopReason.ABANDONED
        if stop is StopReason.FAILURE and verdict.success:
            stop = StopReason.SUCCESS
        if verdict.status is Status.LIMIT:
            stop = StopReason.LIMIT
        self._closed = True
        await self._offload(self._shut)
        return Trajectory(
            task=self.task,
            key=self.key,
            seed=self.seed,
            horizon=self.horizon,
            first=first,
            steps=tuple(self.history),
            turns=tuple(self._turns),
            stop=stop,
            verdict=verdict,
            usage=self.usage,
            strategy=self.strategy,
        )

    # -- what the harness does ----------------------------------------------------------------------------------

    @property
    def usage(self) -> Usage:
        """Tokens of all turns so far."""
        return sum((turn.completion.usage for turn in self._turns), Usage())

    @property
    def turns(self) -> tuple[Turn, ...]:
        return tuple(self._turns)

    def release(self) -> None:
        """Close the world; safe at any time and more than once."""
        self._closed = True
        if self._opening is not None and not self._opening.cancel():
            wait([self._opening])  # a world that is just being opened could not be closed yet
        if self._env is None:
            return
        if self._executor is None:
            self._shut()
        else:  # where its other calls were made: some environments must not change threads
            self._executor.submit(self._shut).result()

    def _shut(self) -> None:
        env, self._env = self._env, None
        if env is not None:
            env.close()

    @property
    def _live(self) -> Env:
        if self._env is None:
            raise RuntimeError(f"episode of task {self.task.id!r} is closed")
        return self._env

    async def _offload(self, function: Callable[..., T], *arguments: str) -> T:
        """Run an environment call where its spec wants it: here when it is quick, off this thread otherwise."""
        if self._executor is None:
            return function(*arguments)
        return await self._lane.call(self._executor, function, *arguments)

    def _credit(self, index: int) -> None:
        """Note a step with the turn that caused it."""
        for place in reversed(range(len(self._turns))):
            turn = self._turns[place]
            if turn.role == "policy":
                self._turns[place] = dataclasses.replace(turn, steps=(*turn.steps, index))
                return

    @contextmanager
    def _named(self) -> Iterator[None]:
        """A fault of the program in an environment says which task it was on: a plug-in's KeyError does not."""
        try:
            yield
        except (EnvError, InfraError, EpisodeFailed):
            raise
        except Exception as error:
            error.add_note(f"in environment {self.task.env!r}, task {self.task.id!r}, step {self.steps + 1}")
            raise

    def _open(self) -> Observation:
        with self._named():
            return self._twice(self._reopen)

    def _reopen(self) -> Observation:
        """Reset a fresh world and replay what was done, so that a retry goes on where the failure was."""
        self._shut()
        self._env = self._env_factory()
        observation = self._env.reset(self.task, seed=self.seed)
        for step in self.history:
            if step.action is not None:
                self._env.step(step.action)
        return observation

    async def _act(self, action: str) -> StepResult:
        return await self._offload(self._act_now, action)

    def _act_now(self, action: str) -> StepResult:
        with self._named():
            env = self._live
            try:
                return env.step(action)
            except (EnvError, InfraError) as error:
                if env.spec.state == "shared":  # a replay would act twice on a site that others see
                    raise EpisodeFailed(_status(error), str(error)) from error

                def again() -> StepResult:
                    self._reopen()
                    return self._live.step(action)

                return self._once(again)

    def _judge(self) -> Verdict:
        with self._named():
            verdict = self._twice(lambda: self._live.verdict())
        if not verdict.status.has_verdict:
            raise EpisodeFailed(verdict.status, verdict.reason or "the environment gave no verdict")
        return verdict

    def _twice(self, function: Callable[[], T]) -> T:
        try:
            return function()
        except (EnvError, InfraError):
            return self._once(function)

    @staticmethod
    def _once(function: Callable[[], T]) -> T:
        try:
            return function()
        except (EnvError, InfraError) as error:
            raise EpisodeFailed(_status(error), str(error)) from error


def _status(error: Exception) -> Status:
    return Status.ENV_ERROR if isinstance(error, EnvError) else Status.INFRA_ERROR


def _without(text: str, notice: str) -> str:
    """The observation without a notice that stands in front of it already."""
    return text.removeprefix(f"{notice}\n")


